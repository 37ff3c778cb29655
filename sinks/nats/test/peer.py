"""NATS, as make sink-test breaks it: killed, frozen, restarted, and without the stream or with a full one."""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "test/rig")]

from peers import Arrival  # noqa: E402
from nats_server import Server  # noqa: E402
from streams import Stream  # noqa: E402

SUBJECTS = ["outbox.event.>"]


class Peer:
    extension = "outbox_nats"

    def __init__(self, directory: Path):
        self.server = Server("sink-test", directory / "nats", directory / "nats.log")
        self.server.start()
        self.stream = Stream(self.server, "events", SUBJECTS)
        self.refusals = 0

    def statements(self) -> list[str]:
        return [f"CREATE SERVER sut FOREIGN DATA WRAPPER outbox_nats OPTIONS (hosts '127.0.0.1:{self.server.port}')"]

    def read(self) -> list[Arrival]:
        known = len(self.stream.messages)
        return [Arrival(message.id, json.loads(message.body)) for message in self.stream.read_all()[known:]]

    def kill(self) -> None:
        self.server.kill()

    def start(self) -> None:
        self.server.start()

    def hang(self) -> None:
        self.server.freeze()

    def resume(self) -> None:
        self.server.thaw()

    def refuse(self) -> None:
        """In turns: the stream takes other subjects, or is full."""
        self.refusals += 1
        self.stream.subjects = ["elsewhere"]
        self.stream.update()
        if self.refusals % 2 == 0:  # nothing arrives meanwhile: the server would delete what is above the new limit
            self.stream.subjects = SUBJECTS
            self.stream.update(max_msgs=max(1, self.stream.count()), discard="new")

    def accept(self) -> None:
        self.stream.subjects = SUBJECTS
        self.stream.update(max_msgs=-1, discard="old")

    def restart(self) -> None:
        self.server.stop()
        self.server.start()

    def close(self) -> None:
        self.server.close()

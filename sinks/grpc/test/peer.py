"""The gRPC server, as make sink-test breaks it: killed, frozen, restarted, and answering UNAVAILABLE."""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "test/rig")]

from peers import Arrival  # noqa: E402
from service import Service  # noqa: E402


class Peer:
    extension = "outbox_grpc"

    def __init__(self, directory: Path):
        self.service, self._read = Service("sink-test", directory / "service", directory / "service.log"), 0
        self.service.start()

    def statements(self) -> list[str]:
        return [f"CREATE SERVER sut FOREIGN DATA WRAPPER outbox_grpc OPTIONS (url '{self.service.url}', allow_http 'true', allow_networks '127.0.0.0/8', timeout '2s')"]

    def read(self) -> list[Arrival]:
        calls = self.service.read()
        new, self._read = calls[self._read:], len(calls)
        return [Arrival(call.event.id, json.loads(call.event.payload)) for call in new if call.code == "OK"]

    def kill(self) -> None:
        self.service.kill()

    def start(self) -> None:
        self.service.start()

    def hang(self) -> None:
        self.service.freeze()

    def resume(self) -> None:
        self.service.thaw()

    def refuse(self) -> None:
        self.service.behave(code="UNAVAILABLE", text="closed")

    def accept(self) -> None:
        self.service.behave()

    def restart(self) -> None:
        self.service.stop()
        self.service.start()

    def close(self) -> None:
        self.service.close()

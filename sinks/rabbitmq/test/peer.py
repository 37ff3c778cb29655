"""The broker, as make sink-test breaks it: killed, frozen, restarted, and without a queue for the messages."""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "test/rig")]

from broker import Broker  # noqa: E402
from peers import Arrival  # noqa: E402
from queues import Queue  # noqa: E402


class Peer:
    extension = "outbox_rabbitmq"

    def __init__(self, directory: Path):
        self.broker = Broker("sink-test", directory / "broker", directory / "broker.log")
        self.broker.start()
        self.queue = Queue(self.broker, "events", arguments={"x-queue-type": "quorum"})
        self.broker.sync()

    def statements(self) -> list[str]:
        return [f"CREATE SERVER sut FOREIGN DATA WRAPPER outbox_rabbitmq OPTIONS (hosts '127.0.0.1:{self.broker.port}', exchange 'events')"]

    def read(self) -> list[Arrival]:
        return [Arrival(properties.message_id, json.loads(body)) for _, properties, body in self.queue.read_all()]

    def kill(self) -> None:
        self.broker.kill()

    def start(self) -> None:
        self.broker.start()

    def hang(self) -> None:
        self.broker.freeze()

    def resume(self) -> None:
        self.broker.thaw()

    def refuse(self) -> None:
        """Messages are returned."""
        channel = self.broker.channel()
        channel.queue_unbind(self.queue.name, "events", "#")
        channel.connection.close()

    def accept(self) -> None:
        channel = self.broker.channel()
        channel.queue_bind(self.queue.name, "events", "#")
        channel.connection.close()
        self.broker.sync()

    def restart(self) -> None:
        self.broker.stop()
        self.broker.start()

    def close(self) -> None:
        self.broker.close()

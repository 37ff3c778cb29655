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
        self._keep_binding()

    def _keep_binding(self) -> None:
        """RabbitMQ itself loses a queue or binding that was made just before it is killed."""
        self.broker.ctl("eval", "mnesia:sync_log().")

    def statements(self) -> list[str]:
        return [f"CREATE SERVER sut FOREIGN DATA WRAPPER outbox_rabbitmq OPTIONS (hosts '127.0.0.1:{self.broker.port}', exchange 'events')"]

    def read(self) -> list[Arrival]:
        channel, found = self.broker.channel(), []
        while (message := channel.basic_get(self.queue.name, auto_ack=True))[0]:
            found.append(Arrival(message[1].message_id, json.loads(message[2])))
        channel.connection.close()
        return found

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
        self._keep_binding()

    def restart(self) -> None:
        self.broker.stop()
        self.broker.start()

    def close(self) -> None:
        self.broker.close()

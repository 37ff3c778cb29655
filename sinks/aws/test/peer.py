"""AWS, as make sink-test breaks it: frozen, throttling every request, and with a host in front of it that dies. moto itself is not killed, because it keeps
what it has acknowledged in memory only.

The queue is no FIFO queue: moto keeps the order of each, and only a FIFO queue would hide duplicates. It is read while events arrive: moto looks at all
messages of a queue for each one that it gives, so 1,000 that are read at the end cost it 40 s of CPU, instead of 4 s.
"""

import json
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "test/rig")]

from front import Front, error  # noqa: E402
from moto import KEYS, REGION, Moto  # noqa: E402
from peers import Arrival  # noqa: E402


class Peer:
    extension = "outbox_aws"

    def __init__(self, directory: Path):
        self.moto = Moto("sink-test", directory / "moto", directory / "moto.log")
        self.moto.start()
        self.queue = self.moto.queue("events")
        self.front = Front(self.moto.port)
        self._taken, self._reads, self._closed = [], threading.Lock(), threading.Event()
        self._reader = threading.Thread(target=self._keep_reading, daemon=True)
        self._reader.start()

    def _keep_reading(self) -> None:
        while not self._closed.wait(0.25):
            with self._reads:
                self._taken += self.queue.take()

    def statements(self) -> list[str]:
        options = {"endpoint": self.front.url, "allow_http": "true", "allow_networks": "127.0.0.1", "target": self.queue.url, "aws_region": REGION, "timeout": "10s", "concurrency": "4"}
        return [f"CREATE SERVER sut FOREIGN DATA WRAPPER outbox_aws OPTIONS ({', '.join(f'{name} {value!r}' for name, value in options.items())})",
                f"CREATE USER MAPPING FOR PUBLIC SERVER sut OPTIONS ({', '.join(f'{name} {value!r}' for name, value in KEYS.items())})"]

    def read(self) -> list[Arrival]:
        with self._reads:
            messages, self._taken = self._taken + self.queue.take(), []
        return [Arrival(message["MessageAttributes"]["id"]["StringValue"], json.loads(message["Body"])) for message in messages]

    def kill(self) -> None:
        self.front.kill()

    def start(self) -> None:
        self.front.start()

    def hang(self) -> None:
        self.moto.freeze()

    def resume(self) -> None:
        self.moto.thaw()

    def refuse(self) -> None:
        """AWS takes no request for now."""
        self.front.answer = lambda request: error("ThrottlingException", "Rate exceeded")

    def accept(self) -> None:
        self.front.answer = lambda request: None

    def close(self) -> None:
        self._closed.set()
        self.moto.thaw()
        self._reader.join()
        self.front.close()
        self.moto.close()

"""Redis, as make sink-test breaks it: killed, frozen, restarted, and with its memory full."""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "test/rig")]

from peers import Arrival  # noqa: E402
from redis_server import RedisServer, Stream  # noqa: E402


class Peer:
    extension = "outbox_redis"

    def __init__(self, directory: Path):
        self.server = RedisServer("sink-test-redis", directory / "redis", directory / "redis.log")
        self.server.start()
        self.stream, self.seen = Stream(self.server, "events"), 0

    def statements(self) -> list[str]:
        return [f"CREATE SERVER sut FOREIGN DATA WRAPPER outbox_redis OPTIONS (hosts '127.0.0.1:{self.server.port}', stream 'events')"]

    def read(self) -> list[Arrival]:
        new = self.stream.read(0)[self.seen:]
        self.seen += len(new)
        return [Arrival(entry["id"], json.loads(entry["payload"])) for entry in new]

    def kill(self) -> None:
        self.server.kill()

    def start(self) -> None:
        self.server.start()

    def hang(self) -> None:
        self.server.freeze()

    def resume(self) -> None:
        self.server.thaw()

    def refuse(self) -> None:
        self.server.config(maxmemory="1")

    def accept(self) -> None:
        self.server.config(maxmemory="0")

    def restart(self) -> None:
        self.server.stop()
        self.server.start()

    def close(self) -> None:
        self.server.close()

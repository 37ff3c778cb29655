"""make bench: a stream, beside hiredis alone with pipelines; --appendfsync always: and each write on the disk."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "test"), str(HERE.parents[1] / "bench")]

from beside_library import BesideLibrary  # noqa: E402
from redis_server import RedisServer  # noqa: E402

STREAM = "bench"


class Redis(BesideLibrary):
    kind, library = "redis", "hiredis"

    def add_arguments(self, parser):
        parser.add_argument("--appendfsync", default="everysec")

    def start(self, rig):
        self.append = self.program(HERE / "bench/append.cpp", "-lhiredis")
        self.server = rig._add(RedisServer(*rig._place("redis"), settings={"appendfsync": self.given.appendfsync}))

    def options(self):
        return f"hosts '127.0.0.1:{self.reach(self.server.port)}', stream '{STREAM}', max_in_flight '{self.window}'"

    def empty(self):
        self.server.client().delete(STREAM)

    def count(self):
        return self.server.client().xlen(STREAM)

    def library_seconds(self, events):
        return self.seconds_of(self.append, self.reach(self.server.port), STREAM, events, self.window, self.payload)


if __name__ == "__main__":
    Redis().main()

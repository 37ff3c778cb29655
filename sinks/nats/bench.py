"""make bench: a stream in a file, beside libnats alone with asynchronous publishing."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "test"), str(HERE.parents[1] / "bench")]

from beside_library import BesideLibrary  # noqa: E402
from nats_server import Server  # noqa: E402
from streams import Stream  # noqa: E402


class Nats(BesideLibrary):
    kind, library = "nats", "libnats"

    def start(self, rig):
        self.publish = self.program(HERE / "bench/publish.cpp", "-lnats")
        self.server = rig._add(Server(*rig._place("nats")))
        self.stream = Stream(self.server, "bench")

    def options(self):
        return f"hosts '127.0.0.1:{self.reach(self.server.port)}', subject 'bench.${{aggregate_type}}.${{event_type}}', max_in_flight '{self.window}'"

    def empty(self):
        self.stream.purge()

    def count(self):
        return self.stream.count()

    def library_seconds(self, events):
        return self.seconds_of(self.publish, self.reach(self.server.port), "bench.Order.order.made", events, self.window, self.payload)


if __name__ == "__main__":
    Nats().main()

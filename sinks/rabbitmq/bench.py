"""make bench: a durable queue, beside librabbitmq alone with confirms."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "test"), str(HERE.parents[1] / "bench")]

from beside_library import BesideLibrary  # noqa: E402
from broker import Broker  # noqa: E402

EXCHANGE = "bench"


class RabbitMq(BesideLibrary):
    kind, library = "rabbitmq", "librabbitmq"

    def start(self, rig):
        self.publish = self.program(HERE / "bench/publish.cpp", "-lrabbitmq")
        self.broker = rig._add(Broker(*rig._place("rabbitmq")))
        self.empty()

    def options(self):
        return f"hosts '127.0.0.1:{self.reach(self.broker.port)}', exchange '{EXCHANGE}', max_in_flight '{self.window}'"

    def empty(self):
        channel = self.broker.channel()
        channel.queue_delete(EXCHANGE)
        channel.exchange_declare(EXCHANGE, "topic", durable=True)
        channel.queue_declare(EXCHANGE, durable=True)
        channel.queue_bind(EXCHANGE, EXCHANGE, "#")
        channel.connection.close()

    def count(self):
        channel = self.broker.channel()
        try:
            return channel.queue_declare(EXCHANGE, passive=True).method.message_count
        finally:
            channel.connection.close()

    def library_seconds(self, events):
        return self.seconds_of(self.publish, self.reach(self.broker.port), EXCHANGE, events, self.window, self.payload)


if __name__ == "__main__":
    RabbitMq().main()

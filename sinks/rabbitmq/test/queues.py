"""The messages that the tests read from the broker."""

import time

from outbox_rig.wait import patient

from broker import Broker


class Queue:
    """A queue bound to an exchange, and what has arrived in it."""

    def __init__(self, broker: Broker, exchange: str, name: str = "", key: str = "#", kind: str = "topic", arguments: dict = {}, declare: bool = True):
        self.broker, self.exchange, self.name, self.key = broker, exchange, name or exchange, key
        self.messages: list[tuple] = []  # (method, properties, body)
        channel = broker.channel()
        if declare:
            channel.exchange_declare(exchange, kind, durable=True)
        channel.queue_declare(self.name, durable=True, arguments=arguments)
        channel.queue_bind(self.name, exchange, key)
        channel.connection.close()

    def read(self, n: int, seconds: float = 60) -> list[tuple]:
        """Reads until `n` messages have arrived in all."""
        channel, deadline = self.broker.channel(), time.monotonic() + patient(seconds)
        channel.basic_qos(prefetch_count=1000)
        try:
            for method, properties, body in channel.consume(self.name, inactivity_timeout=0.2):
                if method is not None:
                    self.messages.append((method, properties, body))
                    channel.basic_ack(method.delivery_tag)
                if len(self.messages) >= n:
                    return self.messages
                assert time.monotonic() < deadline, f"{len(self.messages)} of {n} messages arrived"
        finally:
            channel.connection.close()
        raise AssertionError("the consumer was cancelled")

    def count(self) -> int:
        channel = self.broker.channel()
        try:
            return channel.queue_declare(self.name, passive=True).method.message_count
        finally:
            channel.connection.close()

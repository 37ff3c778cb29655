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

    def read_all(self, seconds: float = 60) -> list[tuple]:
        """Reads all that is in a quorum queue into which nobody publishes meanwhile, in its order. basic_get, which tells when a queue is empty, takes a round
        trip for each message. What a consumer does not acknowledge goes back to the queue when it ends, and what is behind it may come before it: so the
        broker expects no acknowledgements. pika drops what arrives between basic.cancel and its answer: so the consumer is not cancelled."""
        channel, found, deadline = self.broker.channel(), [], time.monotonic() + patient(seconds)
        channel.basic_consume(self.name, lambda _channel, method, properties, body: found.append((method, properties, body)), auto_ack=True)
        while (state := channel.queue_declare(self.name, passive=True).method).message_count > 0 or state.consumer_count == 0:
            assert time.monotonic() < deadline, f"{len(found)} messages were read, and {state.message_count} are left"
            channel.connection.process_data_events(0.05)
        channel.basic_qos()  # its answer comes after all that was on its way
        channel.connection.process_data_events(0)
        channel.connection.close()
        return found

    def count(self) -> int:
        channel = self.broker.channel()
        try:
            return channel.queue_declare(self.name, passive=True).method.message_count
        finally:
            channel.connection.close()

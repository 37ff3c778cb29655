"""What both sinks received, as arrivals."""

import json

import confluent_kafka
from history import Arrival
from outbox_rig import Kafka, Receiver
from outbox_rig.receiver import OK, Delivery, Mode, status
from outbox_rig.wait import wait_until

SINKS = ("kafka", "crm")  # names of the foreign servers
TOPIC = "outbox.event.Chaos"
PARTITIONS = 6
FLAKY = 0.03  # the share of events that the healthy endpoint refuses at first


class Topic:
    """Reads the topic on demand, each partition in order."""

    def __init__(self, kafka: Kafka):
        kafka.create_topic(TOPIC, PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
        self._kafka = kafka
        self._next = [0] * PARTITIONS

    def read(self) -> list[Arrival]:
        """Returns all records since the last call. Uses a new consumer each time: it is not affected by dead
        brokers, and needs no group."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self._kafka.bootstrap, "group.id": "chaos", "log_level": 0,
                                             "enable.auto.commit": False, "auto.offset.reset": "error",
                                             "topic.metadata.refresh.interval.ms": 500})
        found: list[Arrival] = []
        ends: list[int] = []

        def ends_known() -> bool:
            try:
                while len(ends) < PARTITIONS:
                    ends.append(consumer.get_watermark_offsets(confluent_kafka.TopicPartition(TOPIC, len(ends)), timeout=2)[1])
                return True
            except confluent_kafka.KafkaException:
                return False

        def all_read() -> bool:
            for message in consumer.consume(1000, 0.05):
                if message.error() is None and message.offset() >= self._next[message.partition()]:
                    found.append(self._arrival(message))
                    self._next[message.partition()] = message.offset() + 1
            return all(n >= end for n, end in zip(self._next, ends))

        try:
            wait_until(ends_known, 60, "the broker to tell the end of the topic")
            consumer.assign([confluent_kafka.TopicPartition(TOPIC, p, n) for p, n in enumerate(self._next)])
            wait_until(all_read, 60, lambda: f"the topic's end {ends}, at {self._next}")
        finally:
            consumer.close()
        return found

    @staticmethod
    def _arrival(message: confluent_kafka.Message) -> Arrival:
        id = dict(message.headers() or []).get("id")
        body = json.loads(message.value())
        return Arrival("kafka", id.decode() if id else None, body["key"], body["n"], body["id"], message.timestamp()[1] / 1000, True,
                       f"offset {message.offset()} of partition {message.partition()}", message.value(), message.partition())


class Endpoint:
    """The webhook receiver: it refuses a few events once or twice before it accepts them."""

    def __init__(self, receiver: Receiver):
        self.receiver = receiver
        self._refusals: dict[str, int] = {}
        self._number = 0
        self.heal()

    def heal(self) -> None:
        self.receiver.mode = self._answer

    def _answer(self, delivery: Delivery) -> Mode:
        digits = int(delivery.id[:8], 16) if delivery.id else 0
        if digits < FLAKY * 2**32 and self._refusals.get(delivery.id, 0) < 1 + digits % 2:
            self._refusals[delivery.id] = self._refusals.get(delivery.id, 0) + 1
            return status(422 if digits % 3 else 500)
        return OK

    def read(self) -> list[Arrival]:
        """Returns all requests since the last call, in order of arrival."""
        deliveries = self.receiver.deliveries[:]
        del self.receiver.deliveries[:len(deliveries)]
        return [self._arrival(delivery) for delivery in deliveries]

    def _arrival(self, delivery: Delivery) -> Arrival:
        self._number += 1
        body = delivery.json()["data"]
        answer = "answered with " + str(delivery.answered) if delivery.answered else "not answered"
        return Arrival("crm", delivery.id, body["key"], body["n"], body["id"], delivery.at, delivery.accepted(),
                       f"request {self._number}, {answer}", delivery.body)

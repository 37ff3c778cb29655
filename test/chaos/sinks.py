"""What the sinks received, as arrivals."""

import json

import confluent_kafka
from history import Arrival
from outbox_rig import Receiver
from outbox_rig.kafka_cluster import KafkaCluster
from outbox_rig.receiver import EMPTY, OK, Delivery, Mode, status
from outbox_rig.wait import wait_until
from writers import SHARED_KEYS

# The foreign servers, by their first names and comments; the names change. The events that each takes:
TAKES = {"kafka": {"aggregates": "*"}, "crm": {"aggregates": "*"}, "audit": {"aggregates": "Shared"}, "lists": {"aggregates": "Shared"}}
SINKS = tuple(TAKES)
STRANGER = "stranger"  # a sink of a former name: it takes nothing
BLOCKING = "audit"  # a dead letter blocks its key
LISTS = "lists"  # several events in a request, to the endpoint of crm
TOPICS = ("outbox.event.Chaos", "outbox.event.Shared")
PARTITIONS = 6
PLACES = [(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
LARGEST = 30_000  # bytes of a batch
FLAKY = 0.03  # the share of events that a healthy endpoint refuses at first
REFUSALS = {"crm": (500, 422, 410), "audit": (500, 422)}  # a 410 concerns a URL: only crm has one for each key
OF_A_REQUEST = ("webhook-timestamp", "webhook-signature")  # headers
LONG_TEXT = b"abc" + "\u20ac".encode() * 3000  # the answer to a refused request: more than the 8 kB that are kept, so it is cut anywhere
POISONED = 0.01  # the share of events that audit refuses, or closes the connection at, until they are dead letters


def takers(key: str) -> tuple[str, ...]:
    return SINKS if key in SHARED_KEYS else ("kafka", "crm")


def is_poisoned(id: str | None) -> bool:
    return id is not None and int(id[:8], 16) > (1 - POISONED) * 2**32


class Topics:
    """Reads the topics on demand, each partition in order."""

    def __init__(self, kafka: KafkaCluster):
        for topic in TOPICS:
            kafka.create_topic(topic, PARTITIONS, {"message.timestamp.type": "LogAppendTime", "max.message.bytes": str(LARGEST)}, replicas=1)
        self._kafka = kafka
        self._next = dict.fromkeys(PLACES, 0)
        self._found: list[Arrival] = []
        self._place_of: dict[str, tuple[str, int]] = {}

    def keys_of(self, broker: int) -> list[str]:
        """The keys whose partitions this broker leads, as far as they have had records."""
        self._look()
        leaders = {(topic, number): leader for topic in TOPICS for number, leader in self._kafka.leaders(topic).items()}
        return [key for key, place in self._place_of.items() if leaders[place] == broker]

    def read(self) -> list[Arrival]:
        """Returns all records since the last call."""
        self._look()
        found, self._found = self._found, []
        return found

    def _look(self) -> None:
        """Uses a new consumer each time: it is not affected by dead brokers, and needs no group."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self._kafka.bootstrap, "group.id": "chaos", "log_level": 0,
                                             "enable.auto.commit": False, "auto.offset.reset": "error",
                                             "topic.metadata.refresh.interval.ms": 500})
        ends: dict[tuple[str, int], int] = {}

        def ends_known() -> bool:
            try:
                for place in PLACES[len(ends):]:
                    ends[place] = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*place), timeout=2)[1]
                return True
            except confluent_kafka.KafkaException:
                return False

        def all_read() -> bool:
            for message in consumer.consume(1000, 0.05):
                place = (message.topic(), message.partition())
                if message.error() is None and message.offset() >= self._next[place]:
                    self._found.append(self._arrival(message))
                    self._next[place] = message.offset() + 1
            return all(self._next[place] >= end for place, end in ends.items())

        try:
            wait_until(ends_known, 60, "the broker to tell the end of the topic")
            consumer.assign([confluent_kafka.TopicPartition(*place, n) for place, n in self._next.items()])
            wait_until(all_read, 60, lambda: f"the topics' ends {ends}, at {self._next}")
        finally:
            consumer.close()

    def _arrival(self, message: confluent_kafka.Message) -> Arrival:
        headers = tuple(message.headers() or [])
        id = dict(headers).get("id")
        body = json.loads(message.value())
        self._place_of[body["key"]] = (message.topic(), message.partition())
        return Arrival("kafka", id.decode() if id else None, body["key"], body["n"], body["id"], message.timestamp()[1] / 1000, True,
                       f"offset {message.offset()} of {message.topic()} {message.partition()}", message.value(), message.partition(),
                       message.key() or b"", headers)


class Endpoint:
    """A webhook receiver: it refuses a few events once or twice before it accepts them."""

    def __init__(self, sink: str, receiver: Receiver):
        self._sink, self.receiver = sink, receiver
        self.repaired: set[str] = set()
        self._refusals: dict[str, int] = {}
        self._number = 0
        self.heal()

    def heal(self) -> None:
        self.receiver.mode = self._answer

    def _answer(self, delivery: Delivery) -> Mode:
        if delivery.path.endswith(LISTS):
            return self._answer_to_list(delivery)
        digits = int(delivery.id[:8], 16) if delivery.id else 0
        if self._sink == BLOCKING and is_poisoned(delivery.id) and delivery.id not in self.repaired:
            return status(422, body=LONG_TEXT[digits % 4:]) if digits % 2 else EMPTY
        if digits < FLAKY * 2**32 and self._refusals.get(delivery.id, 0) < 1 + digits % 2:
            self._refusals[delivery.id] = self._refusals.get(delivery.id, 0) + 1
            codes = REFUSALS[self._sink]
            return status(codes[digits // 4 % len(codes)], body=LONG_TEXT[digits % 4:])
        return OK

    def _answer_to_list(self, delivery: Delivery) -> Mode:
        """It is refused as a whole because of one event."""
        for event in delivery.json():
            digits = int(event["id"][:8], 16)
            times = self._refusals.get("list " + event["id"], 0)
            if digits < FLAKY * 2**32 and times < 1 + digits % 2:
                self._refusals["list " + event["id"]] = times + 1
                return status((500, 422, 400)[digits // 4 % 3])
        return OK

    def read(self) -> list[Arrival]:
        """Returns all requests since the last call, in order of arrival."""
        deliveries = self.receiver.deliveries[:]
        del self.receiver.deliveries[:len(deliveries)]
        return [arrival for delivery in deliveries for arrival in self._arrivals(delivery)]

    def _arrivals(self, delivery: Delivery) -> list[Arrival]:
        if not delivery.path.endswith(LISTS):
            return [self._arrival(delivery)]
        if not delivery.accepted():  # it may have had events of a key that follow one another
            return []
        self._number += 1
        return [Arrival(LISTS, event["id"], event["data"]["key"], event["data"]["n"], event["data"]["id"], delivery.at, True,
                        f"event {n} of request {self._number}", json.dumps(event).encode())
                for n, event in enumerate(delivery.json(), 1)]

    def _arrival(self, delivery: Delivery) -> Arrival:
        self._number += 1
        body = delivery.json()["data"]
        answer = "answered with " + str(delivery.answered) if delivery.answered else "not answered"
        sink = STRANGER if delivery.path.endswith(STRANGER) else self._sink
        return Arrival(sink, delivery.id, body["key"], body["n"], body["id"], delivery.at, delivery.accepted(),
                       f"request {self._number}, {answer}", delivery.body, 0, delivery.path.encode(),
                       tuple((name, value.encode()) for name, value in delivery.headers.items() if name not in OF_A_REQUEST))

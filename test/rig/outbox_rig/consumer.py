"""A Kafka consumer for tests."""

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import confluent_kafka

from .wait import Deadline, patient


@dataclass
class Record:
    topic: str
    partition: int
    offset: int
    key_bytes: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int
    at: float = field(default_factory=time.time)

    @property
    def key(self) -> str | None:
        return self.key_bytes.decode() if self.key_bytes is not None else None

    @property
    def id(self) -> str | None:
        """The event's id, from the header that Debezium's router also sets."""
        value = dict(self.headers).get("id")
        return value.decode() if value is not None else None


class Consumer:
    """Reads topics from the beginning, one message per poll (a batch would wait until it is full). Must be closed.

    After an outage the broker may have forgotten the group, and the client reads from the beginning again. Each offset of a partition is returned
    once all the same: what comes twice was sent twice."""

    def __init__(self, bootstrap: str, topics: list[str], group: str | None = None):
        self._consumer = confluent_kafka.Consumer({
            "bootstrap.servers": bootstrap,
            "group.id": group or f"rig-{uuid.uuid4()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
            "allow.auto.create.topics": True,
            "fetch.wait.max.ms": 10,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        })
        self._next: dict[tuple[str, int], int] = {}  # the offset after the last record of each partition
        self._consumer.subscribe(topics)

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    def poll(self, timeout: float) -> Record | None:
        """Returns one record, or None. Errors (broker down, topic missing) and records that were read before are ignored, as a service would do."""
        message = self._consumer.poll(timeout)
        if message is None or message.error():
            return None
        place = message.topic(), message.partition()
        if message.offset() < self._next.get(place, 0):
            return None
        self._next[place] = message.offset() + 1
        return Record(message.topic(), message.partition(), message.offset(), message.key(), message.value(),
                      message.headers() or [], message.timestamp()[1])

    def records(self, deadline: Deadline) -> Iterator[Record]:
        """Returns the records until the deadline."""
        while (left := deadline.left()) > 0:
            began, pause = time.monotonic(), min(left, 1)
            record = self.poll(pause)
            deadline.give_back(began, pause)
            if record:
                yield record

    def take(self, count: int, timeout: float = 30) -> list[Record]:
        """Returns exactly the next `count` records; raises TimeoutError if they do not arrive."""
        return self.take_until(lambda got: len(got) >= count, timeout, f"{count} records")

    def take_until(self, enough: Callable[[list[Record]], bool], timeout: float = 30,
                   what: str | Callable[[], str] = "the records") -> list[Record]:
        got: list[Record] = []
        if enough(got):
            return got
        deadline = Deadline(timeout)
        for record in self.records(deadline):
            got.append(record)
            if enough(got):
                return got
        raise TimeoutError(f"waited {deadline.seconds:g} s for {what() if callable(what) else what}, got {len(got)}")

    def at_end(self) -> bool:
        """True when all records of the topics have been polled."""
        positions = self._consumer.position(self._consumer.assignment())
        for partition in positions:
            low, high = self._consumer.get_watermark_offsets(partition, timeout=patient(5))
            if max(partition.offset, low) < high:  # a partition that was never polled has a negative offset
                return False
        return bool(positions)

    def take_rest(self, timeout: float = 60) -> list[Record]:
        """Returns the records up to the end of the topics."""
        got, deadline = [], Deadline(timeout)
        while (record := self.poll(0.3)) or not self.at_end():
            if record:
                got.append(record)
            if deadline.over():
                raise TimeoutError(f"waited {deadline.seconds:g} s for the end of the topics, got {len(got)}")
        return got

    def quiet(self, seconds: float) -> list[Record]:
        """Returns the records of the next `seconds`: to show that there are none."""
        return list(self.records(Deadline(seconds, exactly=True)))

"""What was written and what arrived, and whether the one follows from the other."""

import itertools
import json
import secrets
from collections import Counter, defaultdict

import confluent_kafka
import psycopg
from outbox_rig import Kafka, wait_until
from outbox_rig.receiver import Delivery

TOPIC = "outbox.event.Fault"


class Topic:
    """Reads the topic from where the last call ended; it has one partition, so offsets are the order of arrival."""

    def __init__(self, kafka: Kafka):
        kafka.create_topic(TOPIC, 1)
        self._consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "faults", "log_level": 0,
                                                   "enable.auto.commit": False, "fetch.wait.max.ms": 10})
        self._next = 0
        self._consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])

    def read(self) -> list[tuple[str, dict]]:
        end = self._consumer.get_watermark_offsets(confluent_kafka.TopicPartition(TOPIC, 0), timeout=20)[1]
        found = []

        def all_read() -> bool:
            for message in self._consumer.consume(500, 0.05):
                if message.error() is None and message.offset() >= self._next:
                    found.append((dict(message.headers() or [])["id"].decode(), json.loads(message.value())))
                    self._next = message.offset() + 1
            return self._next >= end

        wait_until(all_read, 30, "the end of the topic")
        return found

    def close(self) -> None:
        self._consumer.close()


class Books:
    """The events of one case. Each transaction writes its events and their lines of the table `ledger`, which says at
    the end what was committed."""

    def __init__(self):
        self.written: dict[str, tuple[str, int]] = {}
        self.may_miss: set[tuple[str, str]] = set()  # (sink, id): a user deleted the row
        self.any_order: set[str] = set()  # keys whose order a user has changed
        self._numbers = itertools.count(1)

    def write(self, connection: psycopg.Connection, key: str, events: int = 1, commit: bool = True, end: str = "COMMIT", padding: int = 0) -> list[str]:
        """One transaction. An error leaves it to the ledger whether it was committed."""
        ids = []
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            for _ in range(events):
                n = next(self._numbers)
                cursor.execute("SELECT gen_random_uuid()::text")
                ids += cursor.fetchone()
                self.written[ids[-1]] = key, n
                cursor.execute("INSERT INTO ledger VALUES (%s)", [ids[-1]])
                cursor.execute("SELECT outbox.enqueue('Fault', %s::text, 'changed', %s::jsonb, id => %s::uuid)",
                               [key, json.dumps({"key": key, "n": n} | ({"padding": secrets.token_hex(padding)} if padding else {})), ids[-1]])
            cursor.execute(end if commit else "ROLLBACK")
        return ids

    def faults(self, sink: str, arrivals: list[tuple[str, dict]], committed: set[str], duplicates: int) -> list[str]:
        """What is wrong with the accepted arrivals at a sink, in their order."""
        found, first = [], defaultdict(list)
        counts = Counter(id for id, _ in arrivals)
        for id, body in arrivals:
            if id not in committed:
                found.append(f"{sink}: phantom {id} {self.written.get(id)}")
            elif (body["key"], body["n"]) != self.written[id]:
                found.append(f"{sink}: {id} came with the payload of another event: {body}")
        for id in counts:
            if id in committed:
                key, n = self.written[id]
                first[key].append(n)
        lost = [self.written[id] for id in committed - set(counts) if (sink, id) not in self.may_miss]
        if lost:
            found.append(f"{sink}: lost {len(lost)} of {len(committed)}: {sorted(lost)[:5]}")
        found += [f"{sink}: key {key} out of order: {numbers}" for key, numbers in first.items()
                  if numbers != sorted(numbers) and key not in self.any_order]
        more = sum(counts.values()) - len(counts)
        if more > duplicates:
            found.append(f"{sink}: {more} duplicates, and the fault allows {duplicates}")
        return found


def accepted(deliveries: list[Delivery]) -> list[tuple[str, dict]]:
    return [(d.id, d.json()["data"]) for d in deliveries if d.accepted()]

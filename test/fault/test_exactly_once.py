"""End to end, effectively exactly once: whichever process dies, the consumer's ledger equals the producer's row by
row."""

import math
import random
import sys
import time
from pathlib import Path

import confluent_kafka
import pytest
from outbox_rig import seed, wait_until
from outbox_rig.database import Database
from outbox_rig.paths import LOGS, pg_config
from outbox_rig.process import Process
from outbox_rig.traffic import Traffic

pytestmark = pytest.mark.slow

CONSUMER = Path(__file__).with_name("shipping_consumer.py")
ROUNDS, DEATHS = 3, 8


@pytest.fixture
def shipping(rig):
    """The consumer's database: another server without the extension, with only the inbox's plain SQL file."""
    server = rig.postgres(settings={"shared_preload_libraries": ""})
    with server.connect() as admin:
        admin.execute("CREATE DATABASE shipping")
    database = Database(server, "shipping")
    database.paste((pg_config("sharedir") / "extension/outbox_inbox.sql").read_text())
    columns = "(event_id uuid, key text, n integer, transaction uuid)"
    database.sql(f"CREATE TABLE shipments {columns}; CREATE TABLE refused {columns}")
    yield database
    database.disconnect()
    server.close()


class Deployment:
    """The consumer's process, which is started again whenever it dies."""

    def __init__(self, argv: list[str], seed: str):
        self._argv, self._dice = argv, random.Random(seed)
        self.log = LOGS / "shipping_consumer.log"
        self.log.unlink(missing_ok=True)
        self._process: Process | None = None
        self._end = math.inf
        self.killed = 0

    def start(self, *crash: str) -> None:
        self._process = Process("shipping_consumer", [sys.executable, str(CONSUMER), *self._argv, str(self._dice.random()), *crash], self.log)

    def died(self) -> list[str]:
        """The point at which it ended itself."""
        return [line.rpartition(" ")[2] for line in self.log.read_text().splitlines() if line.startswith("dies")]

    def deaths(self) -> int:
        return self.killed + len(self.died())

    def look_after(self) -> None:
        """It ends itself at one of 40 events, and is killed within three seconds of its start."""
        if not self._process.running():
            self.start("40")
            self._end = time.monotonic() + self._dice.uniform(0.2, 3)
        elif time.monotonic() > self._end:
            self.kill()

    def kill(self) -> None:
        """Sends kill -9."""
        self.killed += self._process.running()
        self._process.kill()

    def settle(self) -> None:
        """From now on it is not killed."""
        self.kill()
        self.start("0")


def behind(brokers: str, topic: str) -> int:
    """How many records of the topic the consumer has not acknowledged."""
    client = confluent_kafka.Consumer({"bootstrap.servers": brokers, "group.id": f"shipping-{topic}", "log_level": 0})
    try:
        partitions = [confluent_kafka.TopicPartition(topic, number) for number in client.list_topics(topic, 10).topics[topic].partitions]
        highs = [client.get_watermark_offsets(partition, timeout=10)[1] for partition in partitions]
        return sum(high - max(done.offset, 0) for high, done in zip(highs, client.committed(partitions, timeout=10), strict=True))
    finally:
        client.close()


@pytest.mark.kills_server
@pytest.mark.timeout(600)
def test_the_consumers_ledger_is_the_producers(db, pg, kafka, aggregate, shipping):
    topic = f"outbox.event.{aggregate}"
    kafka.create_topic(topic, 3)
    db.kafka_sink("main", kafka)
    consumer = Deployment([shipping.dsn, kafka.bootstrap, topic], str(seed()))
    consumer.start("0", "committed")  # this event is certainly consumed again: it was processed, but its offset was not committed
    try:
        with Traffic(db, aggregate, writers=3, pause=0.1) as traffic:
            wait_until(lambda: consumer.died() == ["committed"], 120, "the first crash")
            for _ in range(ROUNDS):
                enough = traffic.committed + 30
                wait_until(lambda enough=enough: consumer.look_after() or traffic.committed > enough, 120, "writers to go on")
                db.disconnect()
                consumer.kill()
                pg.kill()
                pg.start()
        wait_until(lambda: consumer.look_after() or consumer.deaths() >= DEATHS and db.pending() == 0, 120, "all events to leave, and deaths")
        consumer.settle()
        wait_until(lambda: behind(kafka.bootstrap, topic) == 0, 200, lambda: f"the consumer, {behind(kafka.bootstrap, topic)} records behind", interval=0.2)
    finally:
        consumer.kill()
    committed = {str(name) for name, in db.sql("SELECT transaction FROM business")}
    produced = sorted((event, key, n, name) for name in committed for event, key, n in traffic.transactions[name].events)
    consumed = sorted((str(event), key, n, str(name)) for event, key, n, name in shipping.sql("SELECT * FROM shipments"))
    refused = shipping.value("SELECT count(*) FROM refused")
    print(f"{len(produced)} events; {consumer.killed} kills and crashes {consumer.died()}; {refused} redeliveries were refused")
    assert len(set(consumed)) == len(consumed), f"{len(consumed) - len(set(consumed))} processed twice"
    assert consumed == produced, f"{len(set(produced) - set(consumed))} of {len(produced)} lost, {len(set(consumed) - set(produced))} made up"
    assert len(committed) < len(traffic.transactions), "nothing was rolled back"
    assert refused >= 1, "no event came twice"

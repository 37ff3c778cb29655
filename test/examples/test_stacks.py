"""Every example is tested in the same way: its orders, its events, and what its consumer did with them."""

import re
import secrets
from collections import Counter
from collections.abc import Iterable

import confluent_kafka
import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.example import STARTS, Example, prepare
from outbox_rig.paths import ROOT
from outbox_rig.receiver import SECRET
from outbox_rig.writers import Writers

KAFKA, WEBHOOK = "kafka", "webhook"
STACKS = {"spring-boot": KAFKA, "go-pgx": KAFKA, "sqlalchemy": KAFKA, "django": WEBHOOK, "prisma": WEBHOOK}
NO_TOOLCHAIN = {"ef-core"}  # test_ef_core.py tests what can be tested of it
BATCH_INSERTS = {"spring-boot": 3, "sqlalchemy": 1, "django": 1}  # of 50 events: PgJDBC's multi-row INSERTs have a power of two as number of rows
TOPIC, GROUP = "outbox.event.Order", "shipping"


def test_no_example_is_left_out():
    folders = {path.parent.name for path in (ROOT / "examples").glob("*/README.md")}
    assert folders == set(STACKS) | NO_TOOLCHAIN


@pytest.fixture(scope="module")
def pg(rig):
    return rig.postgres(settings={"outbox.poll_interval": "1s", "outbox.retention": "1h"}, tcp=True)  # so that every event can arrive twice


@pytest.fixture
def db(pg, request):
    """Prepared as a DBA does for an application: docs/security.md."""
    database = Database(pg, f"shop_{request.node.callspec.params['stack'].replace('-', '_')}")
    database.create()
    database.sql("DO $$ BEGIN CREATE ROLE app LOGIN PASSWORD 'app'; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    database.sql("GRANT CREATE ON SCHEMA public TO app")
    database.sql("GRANT USAGE ON SCHEMA outbox TO app")
    database.sql("GRANT INSERT, SELECT (id) ON outbox.events TO app")
    database.sql("CREATE EXTENSION outbox_inbox; GRANT USAGE ON SCHEMA outbox_inbox TO app")
    database.sql("GRANT EXECUTE ON FUNCTION outbox_inbox.mark_processed TO app")
    database.sql(f"ALTER DATABASE {database.name} SET log_statement = 'mod'")
    yield database
    database.drop()


class Customers(Writers):
    """Places orders one by one, from several customers at once."""

    def __init__(self, example: Example):
        super().__init__(3)
        self.example, self.ids = example, []

    def write(self, number: int) -> None:
        while not self.stopping.is_set():
            self.ids.append(order(self.example, f"customer {number}", "10.00"))


def order(example: Example, customer: str, total: str) -> str:
    status, answer = example.call("/orders", {"customer": customer, "total": total})
    assert status == 201, (status, answer, example.service.printed()[-2000:])
    return answer["id"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("stack", STACKS)
def test_the_ledgers_are_equal(stack, rig, pg, db, request):
    prepare(stack, "build")
    env = {"PYTHONPATH": "", "DATABASE_URL": f"postgresql://app:app@127.0.0.1:{pg.port}/{db.name}", "WEBHOOK_SECRET": SECRET}
    kafka = None
    if STACKS[stack] == KAFKA:
        kafka = rig.kafka(partitions=3)  # a server of its own: topic and consumer group have the same names in all examples
        request.addfinalizer(kafka.stop)
        env["KAFKA_BOOTSTRAP_SERVERS"] = kafka.bootstrap
    prepare(stack, "migrate", env)
    example = Example(rig, stack, env)
    request.addfinalizer(example.service.stop)
    request.addfinalizer(example.consumer.stop)
    if kafka:
        db.kafka_sink("shop", kafka)
    else:
        db.webhook_sink("shop", f"http://127.0.0.1:{example.consumer.port}/webhooks", SECRET)

    def start_consumer() -> None:
        example.consumer.start(listens=kafka is None, within=STARTS)

    def shipped() -> int:
        return db.value("SELECT count(*) FROM shipments")

    example.start_service()
    start_consumer()

    # One by one, in a batch, and refused by the credit check after both rows were written.
    odd = "Ada \"the\" O'Brien, Ünïcode ☃ \\n " + secrets.token_hex(4)
    ids = [order(example, odd, "12.50"), order(example, "Grace", "1000.00")]
    for _ in range(3):
        assert example.call("/orders", {"customer": "Mallory", "total": "1000.01"})[0] == 422
    assert db.value("SELECT count(*) FROM orders WHERE customer = 'Mallory'") == 0
    assert db.value("SELECT count(*) FROM outbox.events WHERE payload->>'customer' = 'Mallory'") == 0
    log = pg.log.stat().st_size
    status, answer = example.call("/orders/batch", [{"customer": f"batch {n}", "total": "1.10"} for n in range(50)])
    assert status == 201 and len(answer["ids"]) == 50, (status, answer)
    ids += answer["ids"]
    if stack in BATCH_INSERTS:
        assert event_inserts(pg, log) == BATCH_INSERTS[stack]

    # The consumer is killed while events arrive: some are between its transaction and its acknowledgement.
    with Customers(example) as customers:
        wait_until(lambda: customers.errors or shipped() > len(ids), STARTS, lambda: f"shipments:\n{example.consumer.printed()[-2000:]}")
        example.consumer.kill()
        before = len(customers.ids)
        wait_until(lambda: customers.errors or len(customers.ids) > before + 20, STARTS, "orders meanwhile")
    ids += customers.ids
    start_consumer()

    def all_consumed(events: int) -> bool:
        """This many deliveries have been acknowledged, or their offsets committed."""
        if kafka is None:
            return db.sql("SELECT delivered, pending FROM outbox.sinks") == [(events, 0)]
        return db.value("SELECT delivered FROM outbox.sinks") == events and committed(kafka) == written(kafka) >= events

    def printed() -> str:
        return f"the consumer to be done with {db.sql('SELECT delivered, pending, last_error FROM outbox.sinks')}:\n{example.consumer.printed()[-2000:]}"

    wait_until(lambda: all_consumed(len(ids)), STARTS, printed)
    # Every event arrives a second time with the same id.
    assert db.value("SELECT outbox.replay('shop', now() - interval '1 hour')") == len(ids)
    wait_until(lambda: all_consumed(2 * len(ids)), STARTS, printed)

    orders = db.sql("SELECT id::text, customer, total FROM orders")
    assert differences((id for id, _, _ in orders), ids) == []
    assert (odd, 12.5) in {(customer, float(total)) for _, customer, total in orders}
    assert differences(db.sql("SELECT order_id::text, customer, total FROM shipments"), orders) == []
    events = db.sql("SELECT DISTINCT ON (id) aggregate_id, aggregate_type, event_type, status::text, payload->>'id', payload->>'customer', (payload->>'total')::numeric,"
                    " position('7' in split_part(id::text, '-', 3)) FROM outbox.events")
    assert differences(events, ((id, "Order", "OrderPlaced", "SENT", id, customer, total, 1) for id, customer, total in orders)) == []
    assert db.value("SELECT count(*) FROM outbox_inbox.processed_events WHERE handler = 'shipping'") == len(ids)


def differences(found: Iterable, wanted: Iterable) -> list[tuple]:
    """Some rows whose number differs. (Comparing thousands of rows takes pytest minutes.)"""
    times, should = Counter(found), Counter(wanted)
    return [(each, times[each], "times, not", should[each]) for each in times | should if times[each] != should[each]][:5]


def event_inserts(pg, since: int) -> int:
    """INSERT statements in the server's log from there on."""
    return len(re.findall(r'LOG: .*insert into "?outbox"?\."?events"? ', pg.log.read_bytes()[since:].decode(errors="replace"), re.IGNORECASE))


def written(kafka) -> int:
    """The number of records in the topic."""
    with_group = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "rig"})
    try:
        partitions = with_group.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
        return sum(with_group.get_watermark_offsets(confluent_kafka.TopicPartition(TOPIC, number), timeout=10)[1] for number in partitions)
    finally:
        with_group.close()


def committed(kafka) -> int:
    """The number of records that the consumer group has committed."""
    in_group = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": GROUP})
    try:
        partitions = in_group.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
        return sum(max(0, each.offset) for each in in_group.committed([confluent_kafka.TopicPartition(TOPIC, number) for number in partitions], timeout=10))
    finally:
        in_group.close()

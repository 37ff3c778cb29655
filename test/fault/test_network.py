"""A network that is cut, late responses, a broker that hangs or is away: every committed event arrives in order,
with few duplicates. Broker and receiver are in a network namespace of their own."""

import time

import pytest
from outbox_rig import Consumer, wait_until
from outbox_rig.namespace import NotPermitted
from outbox_rig.receiver import SECRET
from outbox_rig.traffic import Traffic

pytestmark = [pytest.mark.librdkafka, pytest.mark.slow, pytest.mark.timeout(240)]  # a broker of its own must start first
MAX_IN_FLIGHT = 300  # small, so that the bound on duplicates is tested
STALL_S = 30  # StallDetector::stall_after
# A lost packet must be noticed within seconds, not minutes.
QUICK_KAFKA = {"socket_timeout_ms": "3000", "request_timeout_ms": "2000", "socket_connection_setup_timeout_ms": "1500"}


@pytest.fixture(scope="module")
def network(rig):
    try:
        return rig.namespace()
    except (OSError, NotPermitted) as why:
        pytest.skip(f"network namespaces are not permitted here: {why}")


@pytest.fixture(scope="module")
def far_kafka(rig, network):
    with rig.kafka(partitions=4, namespace=network) as kafka:
        yield kafka


@pytest.fixture
def far_receiver(rig, network):
    with rig.receiver(secret=SECRET, namespace=network) as receiver:
        yield receiver


@pytest.fixture
def mended(network):
    yield
    network.mend()


@pytest.fixture(autouse=True)
def small_flights(pg):
    pg.set("outbox.max_in_flight", str(MAX_IN_FLIGHT))
    yield
    pg.reset("outbox.max_in_flight")


def spent_attempts(db, name: str) -> int:
    return db.value("SELECT count(*) FROM outbox.events WHERE sink = %s AND attempts > 0", name)


def wait_delivered(db, name: str, count: int) -> None:
    wait_until(lambda: db.value("SELECT delivered FROM outbox.sinks WHERE name = %s", name) >= count, 60, f"{count} events in {name}")


def check(traffic: Traffic, kafka) -> None:
    """Every committed event is in the topic. Reads with a new consumer, because an old one would take long to rejoin
    its group."""
    traffic.drain()
    with Consumer(kafka.bootstrap, [f"outbox.event.{traffic.aggregate}"]) as consumer:
        traffic.check(consumer.take_rest(), MAX_IN_FLIGHT)


def test_the_network_is_cut(db, network, far_kafka, far_receiver, aggregate, mended):
    db.kafka_sink("main", far_kafka, **QUICK_KAFKA)
    db.webhook_sink("crm", far_receiver, SECRET, timeout="2s", allow_networks=f"{network.address}/32")
    with Traffic(db, aggregate) as traffic:
        wait_delivered(db, "main", 200)
        wait_delivered(db, "crm", 100)
        network.cut()
        before = traffic.committed
        for name in ("main", "crm"):
            wait_until(lambda: db.state(name) == "circuit open", 40, lambda: f"{name} to be seen as down: {db.sql('SELECT * FROM outbox.sinks')}")
        wait_until(lambda: traffic.committed > before + 200, 40, "the writers to go on")
        assert spent_attempts(db, "main") == 0, "the outage is nobody's fault"
        network.mend()
    check(traffic, far_kafka)
    traffic.check(list(far_receiver.deliveries), MAX_IN_FLIGHT)


def test_acknowledgements_are_slow(db, network, far_kafka, aggregate):
    """A broker hangs and then responds late: the number of events in flight is bounded by the settings, not reduced
    to one."""
    db.kafka_sink("main", far_kafka)
    with Traffic(db, aggregate) as traffic:
        wait_delivered(db, "main", 100)
        far_kafka.pause()
        try:
            wait_until(lambda: db.value("SELECT in_flight FROM outbox.sinks") >= MAX_IN_FLIGHT * 0.9, 60, "the credit to be used")
            before = traffic.committed
            wait_until(lambda: traffic.committed > before + 200, 40, "the writers to go on")
            assert db.value("SELECT in_flight FROM outbox.sinks") <= MAX_IN_FLIGHT
        finally:
            far_kafka.resume()
    network.throttle("100kbit")
    try:
        wait_until(lambda: db.pending() == 0, 60, "the rows to leave")
    finally:
        network.throttle("10gbit")
    check(traffic, far_kafka)


def test_an_outage_ends_once(db, pg, far_kafka, aggregate):
    """While no broker is connected, nothing can be acknowledged: that is no stall, and the reconnection ends the outage."""
    db.kafka_sink("main", far_kafka)
    log_start = pg.log.stat().st_size
    with Traffic(db, aggregate, writers=2) as traffic:
        wait_delivered(db, "main", 100)
        far_kafka.stop()
        try:
            wait_until(lambda: db.state("main") == "circuit open" and db.sink("in_flight", "main") > (0,), 40, "the outage")
            until = time.monotonic() + STALL_S + 1
            wait_until(lambda: time.monotonic() > until, 2 * STALL_S)
        finally:
            far_kafka.start()
    check(traffic, far_kafka)
    changes = [line for line in pg.logged(log_start).splitlines() if 'sink "main": circuit' in line]
    assert [state for line in changes for state in ("opened", "closed") if f"circuit {state}" in line] == ["opened", "closed"], changes

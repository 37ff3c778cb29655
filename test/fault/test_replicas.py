"""Three replicated brokers that are far away, so that the sink has several producers: two brokers freeze, a leader is killed, partitions
are added, and the topic is made anew."""

import time

import pytest
from outbox_rig import Consumer, wait_until
from outbox_rig.consumer import Record
from outbox_rig.delay import Delay
from outbox_rig.traffic import Traffic

pytestmark = [pytest.mark.librdkafka, pytest.mark.slow, pytest.mark.timeout(400)]
ROUND_TRIP_MS = 2
FROZEN_S = 40  # after 30 the circuit opens
PARTITIONS = 12
TOO_FEW = (" has not answered for more than", "min.insync.replicas")


@pytest.fixture(scope="module", params=[1, 3], ids=["a controller stays", "no majority of controllers"])
def cluster(rig, request):
    """With one controller, which is never away, the cluster knows that two brokers are. Without a majority it goes on waiting for them."""
    cluster = rig.kafka_cluster(controllers=request.param, proxied=True)
    yield cluster
    cluster.stop()


@pytest.fixture
def networks(cluster):
    networks = [Delay(broker.proxy_port, broker.proxied_port, ROUND_TRIP_MS) for broker in cluster.brokers.values()]
    yield networks
    for network in networks:
        network.stop()


@pytest.fixture
def several(db, pg, cluster, networks, aggregate):
    """Traffic through several producers."""
    cluster.create_topic(topic_of(aggregate), PARTITIONS)
    log_start = pg.log.stat().st_size
    db.kafka_sink("main", cluster, bootstrap_servers=",".join(f"127.0.0.1:{broker.proxy_port}" for broker in cluster.brokers.values()),
                  topic_metadata_refresh_interval_ms="500")
    with Traffic(db, aggregate, keys=25, pause=0) as traffic:
        wait_until(lambda: "Kafka producers now" in pg.logged(log_start), 60, lambda: f"more producers in the log:\n{pg.logged(log_start)}")
        traffic.pause = 0.05  # what waits must be read within the test's time
        flows(db, traffic)
        yield traffic


def topic_of(aggregate: str) -> str:
    return f"outbox.event.{aggregate}"


def status(db) -> tuple[str, str, int]:
    return db.sql("SELECT state, coalesce(last_error, ''), delivered FROM outbox.sinks WHERE name = 'main'")[0]


def tells(db, *causes: str) -> bool:
    """The sink says that events wait, and one of these causes."""
    state, error, _ = status(db)
    return state in ("degraded", "circuit open") and any(cause in error for cause in causes)


def says(db, *causes: str) -> None:
    wait_until(lambda: tells(db, *causes), 20, lambda: f"{causes}: {status(db)}")


def flows(db, traffic) -> None:
    """Events that are committed from now on are delivered."""
    before, committed = status(db)[2], traffic.committed
    wait_until(lambda: status(db)[2] > before + 200 and traffic.committed > committed + 50, 60, lambda: f"events to flow: {status(db)}")
    wait_until(lambda: status(db)[0] in ("delivering", "idle"), 60, lambda: f"the end of the outage: {status(db)}")


def read(cluster, topic: str) -> list[Record]:
    """Partitions that were added last: while a key had events in flight to its old partition, none went to its new one."""
    with Consumer(cluster.bootstrap, [topic]) as consumer:
        return sorted(consumer.take_rest(), key=lambda record: (record.partition >= PARTITIONS, record.partition, record.offset))


def test_brokers_freeze_and_die_and_the_topic_changes(db, cluster, several, aggregate):
    topic = topic_of(aggregate)

    wait_until(lambda: cluster.in_sync(topic), 60, "all replicas")
    for number in (2, 3):
        cluster.brokers[number].pause()
    frozen = time.monotonic()
    try:
        says(db, *TOO_FEW)
        *_, stored = status(db)
        while time.monotonic() < frozen + FROZEN_S:
            assert tells(db, *TOO_FEW), status(db)
            time.sleep(0.2)
        assert status(db)[2] == stored, "so nothing could get through"
    finally:
        for number in (2, 3):
            cluster.brokers[number].resume()
    flows(db, several)

    wait_until(lambda: cluster.in_sync(topic), 60, "all replicas")
    cluster.elect(topic)
    cluster.brokers[2].kill()
    flows(db, several)
    cluster.return_of(2, topic)
    cluster.add_partitions(topic, 2 * PARTITIONS)
    flows(db, several)

    several.held = True
    several.drain()
    arrived = read(cluster, topic)
    assert any(record.partition >= PARTITIONS for record in arrived), "the new partitions are used"
    cluster.delete_topic(topic)
    several.held = False
    says(db, f'topic "{topic}" does not exist')
    cluster.create_topic(topic, PARTITIONS)
    flows(db, several)

    several.stop()
    several.drain()
    assert db.value("SELECT sum(retried + dead) FROM outbox.sinks") == 0, "it is no event's fault"
    several.check(arrived + read(cluster, topic), max_duplicates=0)

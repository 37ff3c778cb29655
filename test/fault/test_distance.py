"""A broker that is far away: the sink opens more producers, and each key keeps its order while their number changes, the network is cut,
the broker is killed and the worker ends."""

import json
import os
import random
import signal

import pytest
from outbox_rig import Consumer, wait_until
from outbox_rig.delay import Delay
from outbox_rig.traffic import Traffic

pytestmark = [pytest.mark.librdkafka, pytest.mark.slow, pytest.mark.timeout(240)]  # a broker of its own must start first
MAX_IN_FLIGHT = 300  # small, so that the bound on duplicates is tested
GIVEN_UP_S = 30  # longest_outage of kafka_lane_number.cpp
PRODUCERS = "Kafka producers now"


@pytest.fixture(scope="module")
def kafka(rig):
    with rig.kafka(partitions=12, proxied=True, killed=True) as kafka:
        yield kafka


@pytest.fixture
def network(kafka):
    with Delay(kafka.proxy_port, kafka.proxied_port, 4) as network:
        yield network


@pytest.fixture(autouse=True)
def small_flights(pg):
    pg.set("outbox.max_in_flight", str(MAX_IN_FLIGHT))
    yield
    pg.reset("outbox.max_in_flight")


@pytest.fixture
def several(db, pg, kafka, network, aggregate, request):
    """Traffic through several producers. At the end every event has arrived, in order. Parameters: the most duplicates, and the topic's configuration."""
    most_duplicates, config = getattr(request, "param", (MAX_IN_FLIGHT, {}))
    kafka.create_topic(f"outbox.event.{aggregate}", config=config)
    log_start = pg.log.stat().st_size
    db.kafka_sink("main", kafka, bootstrap_servers=f"127.0.0.1:{kafka.proxy_port}")
    with Traffic(db, aggregate, keys=25, pause=0) as traffic:
        logged(pg, log_start, PRODUCERS)
        traffic.pause = 0.05  # what waits must be read within the test's time
        delivered_more(db)
        yield traffic
    traffic.drain()
    with Consumer(kafka.bootstrap, [f"outbox.event.{aggregate}"]) as consumer:
        traffic.check(consumer.take_rest(), most_duplicates)


def logged(pg, since: int, text: str, seconds: float = 60) -> None:
    wait_until(lambda: text in pg.logged(since), seconds, lambda: f"{text!r} in the log:\n{pg.logged(since)}")


def delivered_more(db) -> None:
    before = db.sink("delivered", "main")[0]
    wait_until(lambda: db.sink("delivered", "main")[0] > before + 500, 60, lambda: f"deliveries: {db.sql('SELECT * FROM outbox.sinks')}")


def test_several_producers_keep_the_order_of_keys(db, kafka, network, several):
    network.cut()
    wait_until(lambda: db.state("main") == "circuit open", 40, lambda: f"the outage: {db.sql('SELECT * FROM outbox.sinks')}")
    network.mend()
    delivered_more(db)
    kafka.kill()
    kafka.start()
    delivered_more(db)
    [(worker,)] = db.sql("SELECT pid FROM outbox.workers WHERE database = current_database()")
    os.kill(worker, signal.SIGTERM)
    delivered_more(db)


def test_a_producer_without_a_connection_is_given_up(db, pg, network, several):
    """As brokers do that limit the connections of an address: the other producers' keys continue, and then its own do."""
    log_start = pg.log.stat().st_size
    network.takes = False
    network.cut_one()
    wait_until(lambda: db.state("main") == "degraded", 20, lambda: f"a part to be down: {db.sql('SELECT * FROM outbox.sinks')}")
    assert "producers sends nothing" in db.sink("last_error", "main")[0]
    logged(pg, log_start, "is given up with the others but one", GIVEN_UP_S + 20)
    delivered_more(db)
    several.held = True
    wait_until(lambda: db.pending() == 0, 40, "all keys to continue")
    assert "circuit opened" not in pg.logged(log_start)


@pytest.mark.parametrize("fault", [{"breaks_after": 20_000}, {"held": True}, {"loses_answers": True}, {"rate": 20_000}], ids=lambda fault: next(iter(fault)))
def test_a_network_that_is_bad_for_a_time(db, network, several, fault):
    before = several.committed
    for name, value in fault.items():
        setattr(network, name, value)
    wait_until(lambda: several.committed > before + 1000, 40, "traffic meanwhile")
    network.held, network.loses_answers, network.breaks_after, network.rate = False, False, None, None
    assert spent(db) == 0, "it is no event's fault"
    delivered_more(db)


@pytest.mark.parametrize("several", [(0, {"max.message.bytes": "20000"})], indirect=True, ids=["no duplicates"])
def test_events_that_their_topic_refuses(db, several, aggregate):
    """Among those of the same keys and batches: each is a dead letter, and no other event spends an attempt, comes twice or out of order."""
    refused = []
    for _ in range(4):
        db.sql("SELECT outbox.pause('main')")  # so that they are sent in batches
        for _ in range(5):
            before, n = several.committed, len(refused)
            refused.append(db.enqueue(aggregate, f"{n % 4}-{n % 25}", payload=json.dumps(random.Random(n).randbytes(20_000).hex())))
            wait_until(lambda: several.committed > before + 20, 20, "traffic meanwhile")
        db.sql("SELECT outbox.resume('main')")
        wait_until(lambda: db.value("SELECT count(*) FROM outbox.events WHERE status = 'FAILED'") == len(refused), 40, lambda: f"{db.sql('SELECT * FROM outbox.sinks')}")
    assert {id for (id,) in db.sql("SELECT id::text FROM outbox.events WHERE status = 'FAILED' AND attempts = 1")} == set(refused)
    delivered_more(db)
    assert spent(db) == 20


def spent(db) -> int:
    return db.value("SELECT count(*) FROM outbox.events WHERE attempts > 0")

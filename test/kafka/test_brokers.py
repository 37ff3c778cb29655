"""Three brokers, and changes of topics, sizes and quotas: no event is lost or overtaken, and outbox.sinks shows the
problem."""

import json
import os
import time
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import (AclBinding, AclBindingFilter, AclOperation, AclPermissionType, ResourcePatternType,
                                   ResourceType)
from outbox_rig import Consumer, wait_until
from outbox_rig.traffic import Traffic

pytestmark = [pytest.mark.librdkafka, pytest.mark.slow, pytest.mark.timeout(600)]  # each of three brokers is restarted in turn


@pytest.fixture(scope="module")
def cluster(rig):
    cluster = rig.kafka_cluster()
    yield cluster
    cluster.stop()


@pytest.fixture
def topic(cluster, aggregate):
    """A topic for this test's events, with replicas on every broker."""
    name = f"outbox.event.{aggregate}"
    cluster.create_topic(name)
    return name


def sink(db, column: str):
    return db.value(f"SELECT {column} FROM outbox.sinks WHERE name = 'k'")


def says(db, state: str, *texts: str):
    """The sink has this state, and its last error contains these texts."""
    def it_does() -> bool:
        [(now, error)] = db.sql("SELECT state, coalesce(last_error, '') FROM outbox.sinks WHERE name = 'k'")
        return now == state and all(text in error for text in texts)
    wait_until(it_does, 20, lambda: f"{state} {texts}: {db.sql('SELECT state, last_error FROM outbox.sinks')}")


def well(db):
    wait_until(lambda: sink(db, "state") in ("idle", "delivering"), 20, lambda: f"an end of {sink(db, 'state')}: {sink(db, 'last_error')}")


def drained(db, timeout: float = 30, exactly: bool = False):
    wait_until(lambda: db.pending() == 0, timeout, exactly=exactly, what=
               lambda: f"delivery: {db.sql('SELECT state, last_error, pending FROM outbox.sinks')} "
                       f"{db.sql('SELECT position, partition_key, attempts, blocked_by, available_at - now(), last_error FROM outbox.events_pending ORDER BY 1 LIMIT 9')}")


def failed(db) -> int:
    return db.value("SELECT count(*) FROM outbox.events WHERE status = 'FAILED'")


def received(bootstrap: str, *topics: str) -> list:
    """All records of the topics."""
    with Consumer(bootstrap, list(topics)) as consumer:
        return consumer.take_rest()


@contextmanager
def traffic(db, aggregate):
    """Many writers; at the end nothing failed, and no attempt was spent on a failure of a broker."""
    with Traffic(db, aggregate, writers=3, keys=20) as traffic:
        wait_until(lambda: traffic.committed > 30, 20, "traffic")
        yield traffic
        before = traffic.committed
        wait_until(lambda: traffic.committed > before + 30, 20, "traffic after it")
    drained(db)
    assert failed(db) == 0
    assert sink(db, "retried") == 0, "an attempt was spent"


def flows(db, traffic):
    """Events that are committed from now on are delivered."""
    before, committed = sink(db, "delivered"), traffic.committed
    wait_until(lambda: sink(db, "delivered") > before + 50 and traffic.committed > committed + 20, 20, "events to flow")


def test_leaders_move_and_brokers_restart_one_after_the_other(db, cluster, topic, aggregate):
    db.kafka_sink("k", cluster)
    with traffic(db, aggregate) as writers:
        led = [cluster.leaders(topic)]
        for number in cluster.brokers:
            cluster.restart(number, topic)
            led.append(cluster.leaders(topic))
            flows(db, writers)
        cluster.elect(topic)
        led.append(cluster.leaders(topic))
        flows(db, writers)
    assert len({tuple(leaders.items()) for leaders in led}) >= 3, "the leaders have moved"
    writers.check(received(cluster.bootstrap, topic), max_duplicates=0)
    well(db)


def test_a_broker_is_killed_and_too_few_replicas_are_left(db, cluster, topic, aggregate):
    """First two of three brokers are enough, then they are not."""
    db.kafka_sink("k", cluster)
    with traffic(db, aggregate) as writers:
        number = cluster.some_leader(topic)
        cluster.brokers[number].kill()
        wait_until(lambda: number not in (led := cluster.leaders(topic).values()) and any(led), 20, "others to lead")
        flows(db, writers)
        cluster.configure_topic(topic, "min.insync.replicas", "3")
        says(db, "degraded", f'topic "{topic}"', "min.insync.replicas")
        assert db.value("SELECT max(attempts) FROM outbox.events_pending") == 0
        cluster.return_of(number, topic)
        flows(db, writers)
        well(db)
    writers.check(received(cluster.bootstrap, topic), max_duplicates=0)


@pytest.mark.parametrize("seconds", [
    5,
    45,  # longer than the sink and librdkafka wait for an answer
    pytest.param(600, marks=[pytest.mark.skipif(not os.environ.get("NIGHTLY"), reason="ten minutes: make nightly"), pytest.mark.timeout(1800)]),
])
def test_all_brokers_are_killed_and_nothing_comes_twice(db, pg, cluster, topic, aggregate, seconds):
    """Brokers know what they have stored of the requests whose answers were lost. The circuit opens once and closes once."""
    db.kafka_sink("k", cluster)
    log_start = pg.log.stat().st_size
    with traffic(db, aggregate) as writers:
        flows(db, writers)
        writers.pause = 0.0  # so that much is in flight
        wait_until(lambda: sink(db, "in_flight") >= 20, 20, "events in flight", 0.001)
        cluster.kill()
        began = time.monotonic()
        writers.pause = 0.05 * max(1, seconds / 45)  # the backlog must be read within the test's time
        says(db, "circuit open")
        wait_until(lambda: time.monotonic() >= began + seconds, seconds + 10, "the time to pass")
        assert db.value("SELECT max(attempts) FROM outbox.events_pending") == 0
        cluster.start()
        flows(db, writers)
        well(db)
    writers.check(received(cluster.bootstrap, topic), max_duplicates=0)
    changes = [line for line in pg.log.read_bytes()[log_start:].decode(errors="replace").splitlines() if 'sink "k": circuit' in line]
    assert [state for line in changes for state in ("opened", "closed") if f"circuit {state}" in line] == ["opened", "closed"], changes


@pytest.mark.parametrize("topics", ["another topic's", "the same topic's"])
def test_a_broker_is_silent_and_another_refuses_an_event(db, cluster, aggregate, topics):
    """The silent broker's partitions have no other replica, so what it was sent stays in flight. The refused event becomes a dead letter, and
    other topics continue."""
    strict, other, lost = (f"outbox.event.{aggregate}{each}" for each in ("", "-other", "-lost"))
    cluster.create_topic(strict, partitions=6, config={"max.message.bytes": "20000"}, replicas=1)
    cluster.create_topic(lost, partitions=6, replicas=1)
    cluster.create_topic(other, partitions=6, replicas=1)
    db.kafka_sink("k", cluster, compression_type="none", partition="${header.partition}")
    held_topic = strict if topics == "the same topic's" else lost
    leaders = {topic: cluster.leaders(topic) for topic in (strict, other, lost)}
    silent = leaders[strict][0]

    def enqueue(topic: str, on_silent: bool, size: int = 10) -> str:
        partition = next(number for number, leader in leaders[topic].items() if (leader == silent) == on_silent)
        return db.enqueue(topic.removeprefix("outbox.event."), f"{topic} {partition}", payload=json.dumps("x" * size),
                          headers=json.dumps({"partition": str(partition)}))

    def gone(events: list[str]) -> bool:
        return not db.value("SELECT count(*) FROM outbox.events_pending WHERE id = ANY (%s::uuid[])", events)

    places = [(held_topic, True), (strict, False), (other, False)]
    sent = [enqueue(*place) for place in places]
    drained(db)
    cluster.brokers[silent].pause()
    try:
        sent += [enqueue(held_topic, True) for _ in range(3)]
        wait_until(lambda: sink(db, "in_flight") == 3, 20, "them to be in flight")
        says(db, "degraded", f"broker {silent} has not answered")
        refused = enqueue(strict, False, 30_000)
        if topics == "another topic's":
            wait_until(lambda: failed(db) == 1, 30, lambda: f"the refused event's end: {db.sql('SELECT * FROM outbox.sinks')}")
        for _ in range(3):
            others = [enqueue(other, False) for _ in range(20)]
            wait_until(lambda: gone(others), 30, lambda: f"the other topic: {db.sql('SELECT * FROM outbox.sinks')}")
            sent += others
    finally:
        cluster.brokers[silent].resume()
    drained(db, 60)
    assert db.sql("SELECT id::text FROM outbox.events WHERE status = 'FAILED'") == [(refused,)]
    assert {r.id for r in received(cluster.bootstrap, strict, other, lost)} == set(sent)
    well(db)


def test_partitions_are_added(db, cluster, topic, aggregate):
    """A new number of partitions moves a key to another partition, where its events continue; each partition is in
    order."""
    db.kafka_sink("k", cluster, topic_metadata_refresh_interval_ms="500")
    with traffic(db, aggregate) as writers:
        cluster.add_partitions(topic, 12)
        with Consumer(cluster.bootstrap, [topic]) as consumer:
            consumer.take_until(lambda got: bool(got) and got[-1].partition >= 6, 20, "the new ones' use")
    records = received(cluster.bootstrap, topic)
    # Read by partition, the old ones first: that is the order of each key, unless events were still in flight to the
    # old partition.
    writers.check(sorted(records, key=lambda record: (record.partition >= 6, record.partition, record.offset)), max_duplicates=0)


def test_a_topic_is_deleted_and_made_again(db, cluster, topic, aggregate):
    db.kafka_sink("k", cluster, topic="outbox.event.${aggregate_type}")
    other = f"{aggregate}-other"
    cluster.create_topic(f"outbox.event.{other}")
    with traffic(db, aggregate) as writers:
        with Consumer(cluster.bootstrap, [topic]) as early:
            before = early.take(20)
            cluster.delete_topic(topic)
            says(db, "degraded", f'topic "{topic}" does not exist')
            healthy = [db.enqueue(other, "1") for _ in range(20)]
            wait_until(lambda: {r.id for r in received(cluster.bootstrap, f"outbox.event.{other}")} == set(healthy), 20, "the healthy topic")
            assert db.value("SELECT max(attempts) FROM outbox.events_pending") == 0, "it is no event's fault"
        cluster.create_topic(topic)
        flows(db, writers)
        well(db)
    # The deleted topic's records are lost; the later ones are complete and in order.
    numbers, committed = {}, writers.expected()
    for payload in (json.loads(record.value) for record in received(cluster.bootstrap, topic)):
        assert numbers.get(payload["key"], 0) < payload["n"], "out of order"
        numbers[payload["key"]] = payload["n"]
    assert numbers == {key: n for t in writers.transactions.values() for event, key, n in t.events if event in committed}, "the last ones are lost"
    assert before


def test_a_topic_that_does_not_exist(db, cluster, aggregate):
    """Its events wait and are not dead letters, other topics' events continue; when the topic exists, its events are
    sent by themselves, in order."""
    missing, healthy = f"outbox.event.{aggregate}", f"outbox.event.{aggregate}-there"
    logged = db.pg.log.stat().st_size
    cluster.create_topic(healthy)
    db.kafka_sink("k", cluster, max_attempts="2", retry="10ms")
    for n in range(10):
        for key in "abc":
            db.enqueue(aggregate, key, payload=json.dumps({"n": n}))
    says(db, "degraded", f'topic "{missing}" does not exist: create it')
    time.sleep(3)  # longer than max_attempts retries
    assert failed(db) == 0
    assert db.sql("SELECT count(*), max(attempts), count(last_error), count(blocked_by) FROM outbox.events_pending") == [(30, 0, 3, 27)]
    lines = [line for line in db.pg.logged(logged).splitlines() if "tried again" in line]
    assert lines and all("(no attempt is spent)" in line and "(attempt " not in line for line in lines), lines
    began = time.monotonic()
    ids = [db.enqueue(f"{aggregate}-there", str(n)) for n in range(20)]
    wait_until(lambda: db.pending() == 30, 10, "the healthy topic")
    assert time.monotonic() - began < 5
    assert {record.id for record in received(cluster.bootstrap, healthy)} == set(ids)
    [(status, detail)] = db.sql("SELECT status, detail FROM outbox.doctor() WHERE \"check\" = 'sink k'")
    assert status == "warning" and missing in detail

    cluster.create_topic(missing)
    drained(db, 12, exactly=True)  # their next attempt is later
    records = received(cluster.bootstrap, missing)
    assert [[json.loads(r.value)["n"] for r in records if r.key == key] for key in "abc"] == [list(range(10))] * 3
    well(db)
    assert sink(db, "retried") == sink(db, "dead") == 0


def test_a_topic_that_comes_late_under_traffic(db, cluster, aggregate):
    """Hundreds of events of each key were in flight to it. The first of each key waits, and the others for it: when
    the topic exists, all of them are sent at once and in order."""
    topic = f"outbox.event.{aggregate}"
    db.kafka_sink("k", cluster)
    with traffic(db, aggregate) as writers:
        db.sql("SELECT count(outbox.enqueue(%s, n %% 10 || '-many', 'e', jsonb_build_object('n', n))) FROM generate_series(1, 10000) n", aggregate)
        says(db, "degraded", f'topic "{topic}" does not exist')
        wait_until(lambda: db.value("SELECT count(DISTINCT partition_key) FROM outbox.events_pending WHERE last_error IS NOT NULL AND partition_key LIKE '%%-many'") == 10,
                   20, "the first of each to wait")
        # An event that was returned at once may be reported before an earlier one in flight: one per key, never
        # hundreds.
        assert not db.sql("SELECT partition_key, count(*) FROM outbox.events_pending WHERE last_error IS NOT NULL AND available_at IS NOT NULL "
                          "AND blocked_by IS NOT NULL GROUP BY partition_key HAVING count(*) > 1")
        cluster.create_topic(topic)
        wait_until(lambda: sink(db, "delivered") > 10000, 15, lambda: f"delivery, not {sink(db, 'delivered')}", exactly=True)
    records = received(cluster.bootstrap, topic)
    many = [record for record in records if record.key.endswith("-many")]
    for key in {record.key for record in many}:
        numbers = [json.loads(record.value)["n"] for record in many if record.key == key]
        assert numbers == sorted(numbers) and len(numbers) == 1000
    writers.check((record for record in records if not record.key.endswith("-many")), max_duplicates=0)


def test_a_topic_that_the_broker_makes(db, kafka, consume, aggregate):
    """With auto.create.topics.enable."""
    db.kafka_sink("k", kafka)
    ids = [db.enqueue(aggregate, "1") for _ in range(5)]
    drained(db, 20)
    assert [record.id for record in consume(f"outbox.event.{aggregate}").take(5)] == ids
    assert sink(db, "retried") == sink(db, "dead") == 0


def test_a_backlog_of_a_missing_topic_neither_stops_nor_wears_out(db, cluster, aggregate):
    """20,000 keys of a missing topic beside a healthy topic: their rows are written once and then at most 1,000 per
    second; when the topic exists, they do not wait for their next attempt."""
    missing, healthy = f"outbox.event.{aggregate}", f"outbox.event.{aggregate}-there"
    cluster.create_topic(healthy)
    db.kafka_sink("k", cluster)
    began = time.monotonic()
    db.sql("SELECT count(outbox.enqueue(%s, n::text, 'e', to_jsonb(n))) FROM generate_series(1, 20000) n", aggregate)
    db.sql("SELECT count(outbox.enqueue(%s, n::text, 'e', to_jsonb(n))) FROM generate_series(1, 2000) n", f"{aggregate}-there")
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events_pending WHERE last_error IS NOT NULL") == 20000, 30, "all of them to wait")
    assert db.pending() == 20000, "the healthy topic's are gone"

    def written() -> int:
        db.sql("SELECT pg_stat_force_next_flush(), pg_stat_clear_snapshot()")
        return db.value("SELECT n_tup_upd FROM pg_stat_all_tables WHERE relid = 'outbox.events_pending'::regclass")

    wait_until(lambda: written() >= 20000, 20, "the figures")
    time.sleep(3)
    # From the beginning: a worker that was delayed catches up.
    assert written() - 20000 < 1500 * (time.monotonic() - began)
    latest = db.value("SELECT max(available_at) - now() FROM outbox.events_pending")
    assert latest.total_seconds() > 10, "spread"
    cluster.create_topic(missing)
    drained(db, 12, exactly=True)  # their next attempt is later
    assert len(received(cluster.bootstrap, missing)) == 20000


def test_a_message_over_the_topics_limit(db, cluster, aggregate):
    """The record is in the middle of its key's events: it becomes a dead letter at once, and the other events of its
    batch spend no attempt."""
    topic = f"outbox.event.{aggregate}"
    cluster.create_topic(topic, partitions=1, config={"max.message.bytes": "20000"})
    db.kafka_sink("k", cluster, compression_type="none")
    db.sql("""SELECT count(outbox.enqueue(%s, (n %% 10)::text, 'e', jsonb_build_object('n', n, 'x',
              repeat('x', CASE WHEN n = 1235 THEN 30000 ELSE 50 END)))) FROM generate_series(1, 3000) n""", aggregate)
    drained(db)
    [(n, attempts, error)] = db.sql("SELECT payload->>'n', attempts, last_error FROM outbox.events WHERE status = 'FAILED'")
    assert (n, attempts) == ("1235", 1)
    assert f'topic "{topic}"' in error and "max.message.bytes" in error, error
    assert 30_000 < int(error.split("the event has ")[1].split()[0]) < 30_200
    assert sink(db, "retried") == 0
    numbers = [json.loads(record.value)["n"] for record in received(cluster.bootstrap, topic)]
    assert sorted(numbers) == [n for n in range(1, 3001) if n != 1235]
    for key in range(10):
        of_key = [n for n in numbers if n % 10 == key]
        assert of_key == sorted(of_key)


def test_a_quota_throttles(db, cluster, aggregate):
    topic = f"outbox.event.{aggregate}"
    cluster.create_topic(topic, partitions=1)
    cluster.quota("throttled", producer_byte_rate=150_000)
    db.kafka_sink("k", cluster, client_id="throttled", compression_type="none")
    db.sql("SELECT count(outbox.enqueue(%s, n::text, 'e', to_jsonb(repeat('x', 1000)))) FROM generate_series(1, 4000) n", aggregate)
    says(db, "degraded", "throttled", "quota")
    cluster.quota("throttled")
    drained(db)
    well(db)
    assert sink(db, "retried") == sink(db, "dead") == 0
    assert len(received(cluster.bootstrap, topic)) == 4000


def test_rights_are_lost_and_given_back(db, kafka, security, aggregate):
    """With an ACL for another user only."""
    topic = f"outbox.event.{aggregate}"
    kafka.create_topic(topic)
    db.kafka_sink("k", kafka, {"sasl_username": "outbox", "sasl_password": security.users["outbox"]}, security_protocol="sasl_plaintext",
                  sasl_mechanism="PLAIN", bootstrap_servers=security.bootstrap("SASL_PLAINTEXT"), max_attempts="2", retry="10ms")
    names = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
    others = AclBinding(*names, "User:second", "*", AclOperation.WRITE, AclPermissionType.ALLOW)
    with traffic(db, aggregate) as writers:
        flows(db, writers)
        admin = kafka.admin()
        admin.create_acls([others])[others].result(20)
        says(db, "degraded", f'topic "{topic}" may not be written: grant WRITE on it to "User:outbox"')
        before = db.value("SELECT count(*) FROM outbox.events_pending")
        wait_until(lambda: db.pending() > before + 50, 20, "a backlog")
        assert db.value("SELECT max(attempts) FROM outbox.events_pending") == 0
        every = AclBindingFilter(*names, None, None, AclOperation.ANY, AclPermissionType.ANY)
        admin.delete_acls([every])[every].result(20)
        flows(db, writers)
        well(db)
    writers.check(received(kafka.bootstrap, topic), max_duplicates=0)

"""How fast a backlog reaches Kafka, beside librdkafka alone with the same bytes."""

import re
import time
from pathlib import Path

from measure import Cpu, median
from outbox_rig import wait_until
from outbox_rig.database import Database
from results import Failure, Results, Row, at_most, ratio_at_least
from stage import PARTITIONS, Stage, end_of, finish, progress
from watch import Watch

KEYS = 1000

# An order of 300 bytes, as text; the note fills up.
PAYLOAD = f"""
    CREATE FUNCTION payload(n integer) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
    DECLARE
      base jsonb := jsonb_build_object('n', n, 'order', 'order-' || n, 'customer', 'k' || n % {KEYS}, 'status', 'created',
        'total', n % 10000 / 100.0, 'note', '',
        'items', jsonb_build_array(jsonb_build_object('sku', 'sku-' || n % 500, 'quantity', n % 9 + 1)));
      note text := md5(n::text) || md5((-n)::text) || md5('a' || n) || md5('b' || n) || md5('c' || n);
    BEGIN
      RETURN jsonb_set(base, '{{note}}', to_jsonb(left(note, 300 - length(base::text))));
    END $$"""
NUMBER = re.compile(rb'"n": (\d+)')


def load(db: Database, aggregate_type: str, events: int) -> None:
    db.sql(f"""
        INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload)
        SELECT '{aggregate_type}', 'k' || n % {KEYS}, 'order.created', payload(n) FROM generate_series(1, {events}) AS n""")


def export(db: Database, events: int, path: Path) -> None:
    """The same events for librdkafka alone, without touching the table."""
    with open(path, "wb") as out, db.connect() as connection, connection.cursor() as cursor:
        with cursor.copy(f"""COPY (SELECT 'k' || n % {KEYS}, gen_random_uuid(), payload(n)
                                   FROM generate_series(1, {events}) AS n) TO STDOUT""") as copy:
            for block in copy:
                out.write(block)


def drain(stage: Stage, db: Database, events: int) -> dict:
    """Switches delivery on and watches until the last delivery is recorded."""
    watch, started = Watch(stage, db, events), time.monotonic()
    stage.switch(True)
    worker = stage.wait_for_worker(db)
    up = time.monotonic()
    before = Cpu.now(worker, stage.broker_pid)
    watch.finish()
    cpu = Cpu.now(worker, stage.broker_pid).since(before)
    seconds = watch.samples[-1][0] - started
    return {"seconds": seconds, "worker_start_ms": (up - started) * 1000, "rate": events / seconds, "curve": watch.curve(),
            "cpu_us_per_event": cpu.worker / events * 1e6, "main_thread_us_per_event": cpu.worker_main / events * 1e6,
            "worker_memory_mb": watch.memory / 2**20, "limit": cpu.limit(), "cores_busy": cpu.shares()}


def verify(stage: Stage, topic: str, events: int) -> None:
    """Every event once, and in order within its key, as the consumer of each partition sees it."""
    seen, ids, last = bytearray(events + 1), set(), {}
    consumer = stage.consumer(topic)
    try:
        expected, got = end_of(consumer, topic), 0
        if expected != events:
            raise Failure(f"topic {topic} holds {expected} events, {events} were enqueued")
        deadline = time.monotonic() + 60
        while got < expected:
            for message in consumer.consume(10000, 1):
                if message.error():
                    continue
                got += 1
                n, key = int(NUMBER.search(message.value())[1]), message.key()
                if not 1 <= n <= events or seen[n]:
                    raise Failure(f"event {n} arrived twice or was never enqueued")
                if key != b"k%d" % (n % KEYS) or n <= last.get(key, 0):
                    raise Failure(f"event {n} of key {key} came after event {last.get(key)}")
                seen[n], last[key] = 1, n
                ids.add(dict(message.headers())["id"])
            if time.monotonic() > deadline:
                raise Failure(f"only {got} of {expected} events could be consumed")
    finally:
        consumer.close()
    if sum(seen) != events or len(ids) != events:
        raise Failure(f"{sum(seen)} events with {len(ids)} ids arrived, {events} were enqueued")


def measure(stage: Stage, results: Results, events: int, rounds: int) -> None:
    path = stage.directory / "events"
    ours, alone = [], []
    with stage.database("drain") as db:
        db.sql(PAYLOAD)
        stage.kafka_sink(db)
        export(db, events, path)
        for number in range(1, rounds + 1):
            topic = f"alone{number}"
            stage.kafka.create_topic(topic, PARTITIONS)
            with stage.produce(topic, "drain", path) as child:
                alone.append(finish(child))
            progress(f"librdkafka alone: {alone[-1]['rate']:,.0f} events/s")

            stage.pause(db)
            stage.kafka.create_topic(f"outbox.event.Drain{number}", PARTITIONS)
            load(db, f"Drain{number}", events)
            progress(f"{events:,} events enqueued")
            ours.append(drain(stage, db, events) | {"beside": alone[-1]["rate"]})
            wait_until(lambda: db.value("SELECT NOT EXISTS (SELECT FROM outbox.events)"), 30, "an empty table")
            stage.must_be_done(db)
            verify(stage, f"outbox.event.Drain{number}", events)
            progress(f"outbox: {ours[-1]['rate']:,.0f} events/s, each arrived once and in order "
                     f"({ours[-1]['cpu_us_per_event']:.1f} µs of CPU an event)")
            db.sql("VACUUM outbox.events_pending")
    path.unlink()

    ratio = median([one["rate"] / one["beside"] for one in ours])
    best = max(ours, key=lambda one: one["rate"])
    results.data |= {"payload_bytes": 300, "keys": KEYS, "outbox": ours, "librdkafka_alone": alone,
                             "ratio_median": ratio}
    results.rows += [
        Row(f"drain of {events:,} events of 300 B to Kafka", median([one["rate"] for one in ours]), "events/s",
            median([one["rate"] for one in alone]), "librdkafka alone", ratio, [ratio_at_least(0.5)], limit=best["limit"]),
        Row("  CPU of the worker per event", median([one["cpu_us_per_event"] for one in ours]), "µs",
            median([one["cpu_us_per_event"] for one in alone]), "librdkafka alone", goals=[at_most(4)],
            limit=f"of it the main thread {median([one['main_thread_us_per_event'] for one in ours]):.2f} µs"),
        Row("  the worker's own memory at its most", max(one["worker_memory_mb"] for one in ours), "MB"),
    ]

"""How fast a backlog reaches Kafka, beside librdkafka alone with the same bytes."""

import re
import time
from pathlib import Path

from measure import Cpu, median, private_memory
from outbox_rig import wait_until
from outbox_rig.database import Database
from stage import PARTITIONS, Failure, Results, Row, Stage, end_of, finish, progress

KEYS = 1000
GOAL = 0.2

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


def drain(stage: Stage, db: Database, events: int, already: int) -> dict:
    """Switches delivery on and watches until the last delivery is recorded."""
    started = time.monotonic()
    stage.switch(True)
    worker = stage.wait_for_worker(db)
    up = time.monotonic()
    before = Cpu.now(worker, stage.broker_pid)
    memory, last = 0, started
    while (done := stage.delivered(db) - already) < events:
        memory = max(memory, private_memory(worker))
        if time.monotonic() - last > 2:
            last = time.monotonic()
            progress(f"{done:>9,} of {events:,} delivered")
        if time.monotonic() - started > 120:
            raise Failure(f"only {done} of {events} events were delivered in two minutes; see {stage.pg.log}")
        time.sleep(0.02)
    ended = time.monotonic()
    cpu = Cpu.now(worker, stage.broker_pid).since(before)
    return {"seconds": ended - started, "worker_start_ms": (up - started) * 1000, "rate": events / (ended - started),
            "cpu_us_per_event": cpu.worker / events * 1e6, "main_thread_us_per_event": cpu.worker_main / events * 1e6,
            "worker_memory_mb": memory / 2**20, "limit": cpu.limit(), "cores_busy": cpu.shares()}


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
            before = stage.delivered(db)
            ours.append(drain(stage, db, events, before) | {"beside": alone[-1]["rate"]})
            wait_until(lambda: db.value("SELECT NOT EXISTS (SELECT FROM outbox.events)"), 30, "an empty table")
            stage.must_be_done(db)
            verify(stage, f"outbox.event.Drain{number}", events)
            progress(f"outbox: {ours[-1]['rate']:,.0f} events/s, each arrived once and in order "
                     f"({ours[-1]['cpu_us_per_event']:.1f} µs of CPU an event)")
            db.sql("VACUUM outbox.events_pending")
    path.unlink()

    ratio = median([one["rate"] / one["beside"] for one in ours])
    best = max(ours, key=lambda one: one["rate"])
    results.data["drain"] = {"events": events, "payload_bytes": 300, "keys": KEYS, "outbox": ours, "librdkafka_alone": alone,
                             "ratio_median": ratio}
    results.rows += [
        Row(f"drain of {events:,} events of 300 B to Kafka", f"{median([one['rate'] for one in ours]):,.0f} events/s",
            f"{median([one['rate'] for one in alone]):,.0f} librdkafka alone", ratio, GOAL, best["limit"]),
        Row("  CPU of the worker per event", f"{median([one['cpu_us_per_event'] for one in ours]):.2f} µs",
            f"{median([one['cpu_us_per_event'] for one in alone]):.2f} µs librdkafka alone",
            limit=f"of it the main thread {median([one['main_thread_us_per_event'] for one in ours]):.2f} µs"),
        Row("  the worker's own memory at its most", f"{max(one['worker_memory_mb'] for one in ours):.0f} MB"),
    ]

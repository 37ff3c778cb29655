"""INSERT ... SELECT of many events, compared with the same into an ordinary table; with one sink, and with three."""

import time

import plain
from measure import CORES, disk_seconds, machine_seconds, median
from outbox_rig.database import Database
from results import Failure, Results, Row, at_least, ratio_at_least
from stage import Stage, progress

PLAIN = """INSERT INTO plain (id, aggregate_type, aggregate_id, event_type, payload, partition_key, sink)
           SELECT id, aggregate_type, key, event_type, payload, key, 'sink' || sink FROM source, generate_series(1, {sinks}) AS sink"""


def insert(db: Database, statement: str, table: str, rows: int) -> dict:
    plain.empty(db)
    started, busy, disk = time.monotonic(), machine_seconds(), disk_seconds()
    db.sql(statement)
    wall = time.monotonic() - started
    if (found := db.value(f"SELECT count(*) FROM {table}")) != rows:
        raise Failure(f"{found} rows in {table}, not {rows}")
    return {"seconds": round(wall, 2), "rate": rows / wall, "cores_busy": round((machine_seconds() - busy) / wall, 2),
            "disk_waits": round((disk_seconds() - disk) / wall, 2)}


def measure(stage: Stage, results: Results, events: int, rounds: int) -> None:
    with stage.database("bulk") as db:
        stage.pause(db)
        plain.make(stage, db, "Bulk", events)
        for sinks, goals in ((1, [ratio_at_least(0.6), at_least(100_000)]), (3, [ratio_at_least(0.5)])):
            while (count := db.value("SELECT count(*) FROM pg_foreign_server")) < sinks:
                db.kafka_sink(f"sink{count + 1}", stage.kafka, compression_type="lz4")
            ours, beside = [], []
            for _ in range(rounds):
                beside.append(insert(db, PLAIN.format(sinks=sinks), "plain", events * sinks))
                ours.append(insert(db, plain.EVENTS, "outbox.events_pending", events * sinks))
                progress(f"{sinks} sink(s): {ours[-1]['rate']:,.0f} rows/s, plain INSERT {beside[-1]['rate']:,.0f}")
            plain.empty(db)
            ratio = median([one["rate"] / other["rate"] for one, other in zip(ours, beside)])
            results.data[f"sinks_{sinks}"] = {"events": events, "ours": ours, "plain": beside}
            best = max(ours, key=lambda one: one["rate"])
            results.rows.append(Row(
                f"INSERT ... SELECT of {events:,} events, {sinks} sink{'s' if sinks > 1 else ''}", median([one["rate"] for one in ours]), "rows/s",
                median([one["rate"] for one in beside]), "plain INSERT", ratio, goals,
                limit=f"CPU of one backend: {best['cores_busy']:.2f} of {CORES} cores busy, the disk waited for in {best['disk_waits']:.0%} of the time"))

"""WAL from the insert of an event until its row is deleted, compared with the insert alone; and the WAL of the
vacuum afterwards."""

import re
import subprocess

import enqueue
import plain
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.paths import pg_config
from results import Results, Row, ratio_at_most
from stage import PARTITIONS, Stage, progress

RECORD = re.compile(r"^(\S+)\s+(\d+) \(.*?\)\s+\d+ \(.*?\)\s+\d+ \(.*?\)\s+(\d+) \(", re.MULTILINE)


def here(db: Database) -> str:
    return db.value("SELECT pg_current_wal_insert_lsn()::text")


def between(stage: Stage, db: Database, start: str, end: str) -> dict:
    """Bytes in total, and for each kind of record (number, bytes with page images)."""
    db.sql("SELECT pg_switch_wal()")  # pg_waldump reads files
    done = subprocess.run([pg_config("bindir") / "pg_waldump", "--stats=record", "-p", stage.pg.data / "pg_wal", "-s", start, "-e", end],
                          capture_output=True, text=True, check=True)
    kinds = {kind: (int(count), int(size)) for kind, count, size in RECORD.findall(done.stdout)}
    return {"bytes": int(db.value("SELECT pg_wal_lsn_diff(%s, %s)", end, start)), "records": kinds}


def bulk(stage: Stage, db: Database, events: int) -> int:
    db.sql(plain.EVENTS)
    return events


def singly(stage: Stage, db: Database, events: int) -> int:
    path = enqueue.script(stage, "wal", enqueue.ENQUEUE.replace("Enqueue", "Wal"))
    return enqueue.pgbench(db, path, "off", "-t", events // enqueue.CLIENTS)["transactions"]


def measure(stage: Stage, results: Results, events: int) -> None:
    with stage.database("wal") as db:
        stage.kafka_sink(db)
        stage.kafka.create_topic("outbox.event.Wal", PARTITIONS)
        stage.pause(db)
        plain.make(stage, db, "Wal", events)
        for name, fill in (("in one INSERT", bulk), ("one per transaction", singly)):
            plain.empty(db)
            already, start = stage.delivered(db), here(db)
            count = fill(stage, db, events)
            inserted = here(db)
            stage.switch(True)
            wait_until(lambda: stage.delivered(db) - already >= count, 120, "every event to be delivered")
            wait_until(lambda: db.value("SELECT NOT EXISTS (SELECT FROM outbox.events)"), 30, "an empty table")
            stage.must_be_done(db)
            stage.pause(db)
            gone = here(db)
            db.sql("VACUUM outbox.events_pending")
            vacuumed = here(db)
            alone, leaving, vacuum = (between(stage, db, *span) for span in ((start, inserted), (inserted, gone), (gone, vacuumed)))
            results.data[name.replace(" ", "_")] = {"events": count, "insert": alone, "delivery": leaving, "vacuum": vacuum}
            progress(f"{name}: insert {alone['bytes'] / count:.0f} B, delivery {leaving['bytes'] / count:.0f} B, vacuum {vacuum['bytes'] / count:.0f} B an event")
            results.rows += [
                Row(f"WAL from insert to gone, {name}", (alone["bytes"] + leaving["bytes"]) / count, "B per event", alone["bytes"] / count, "the insert alone",
                    goals=[ratio_at_most(1.5)]),
                Row("  vacuum afterwards", vacuum["bytes"] / count, "B per event"),
            ]

"""The dispatcher of the outbox articles, in Python, compared with outbox."""

import subprocess
import sys
from pathlib import Path

import drain
from results import Failure, Results, Row
from stage import PARTITIONS, Stage, finish, progress

PROGRAM = Path(__file__).with_name("dispatcher.py")
TABLE = """
    CREATE TABLE outbox (number bigint GENERATED ALWAYS AS IDENTITY, id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text NOT NULL,
                         aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb, sent_at timestamptz);
    CREATE INDEX ON outbox (number) WHERE sent_at IS NULL"""


def measure(stage: Stage, results: Results, events: int, ours: int) -> None:
    with stage.database("peers_dispatcher") as db:
        db.sql(TABLE)
        stage.kafka.create_topic("outbox.event.Dispatcher", PARTITIONS)
        stage.load(db, "fixed", events, "Dispatcher", into="outbox (aggregate_type, aggregate_id, event_type, payload)")
        db.sql("ANALYZE outbox")
        with subprocess.Popen([Path(sys.executable), PROGRAM, db.pg.dsn(db.name), stage.kafka.bootstrap, stage.linger_ms],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            found = finish(child)
        stage.must_have_arrived("outbox.event.Dispatcher", events)
        if left := db.value("SELECT count(*) FROM outbox WHERE sent_at IS NULL"):
            raise Failure(f"{left} events are left")
        progress(f"the dispatcher: {found['rate']:,.0f} events/s, each arrived once and in order ({found['cpu_us_per_event']:.0f} µs of CPU an event)")
        stage.kafka_sink(db)
        beside = drain.ours(stage, db, "BesideDispatcher", "fixed", ours)
    results.data |= {"dispatcher": found, "outbox": beside}
    results.rows.append(Row("drain to Kafka", beside["rate"], "events/s", found["rate"], "the articles' dispatcher (Python, 100 rows)"))

"""What outbox.enqueue() costs a transaction, beside a plain INSERT into an ordinary table of the same shape."""

import os
import re
import subprocess
import time
from pathlib import Path

from measure import CORES, machine_seconds, median
from outbox_rig.database import Database
from outbox_rig.paths import pg_config
from results import Failure, Results, Row
from stage import Stage, progress

CLIENTS = 4
SECONDS = 3
ROUNDS = 4

# What a team would write by hand: random ids, a sequence, the same columns, defaults and indexes.
PLAIN = """
    CREATE SEQUENCE plain_position CACHE 1;
    CREATE TABLE plain (LIKE outbox.events_pending INCLUDING ALL);
    ALTER TABLE plain ALTER id SET DEFAULT gen_random_uuid(), ALTER position SET DEFAULT nextval('plain_position'),
      ALTER xact SET DEFAULT pg_current_xact_id(), ALTER origin SET DEFAULT 1, ALTER sink SET DEFAULT 'main';
"""
# A variable of pgbench's, so that the server gets it as a parameter and reads it as JSON each time.
PAYLOAD = '{"n": 1, "note": "' + ("0123456789abcdef" * 18)[:280] + '"}'
SCRIPTS = {
    "outbox.enqueue()": "SELECT outbox.enqueue('Enqueue', :k::text, 'order.created', :payload::jsonb)",
    "plain INSERT": "INSERT INTO plain (aggregate_type, aggregate_id, event_type, payload, partition_key) "
                    "VALUES ('Enqueue', :k::text, 'order.created', :payload::jsonb, :k::text) RETURNING id",
}


def pgbench(db: Database, script: Path, synchronous: str) -> dict:
    """Transactions a second, and how many cores of the machine were busy."""
    env = os.environ | {"PGOPTIONS": f"-c synchronous_commit={synchronous}"}
    started, busy = time.monotonic(), machine_seconds()
    done = subprocess.run([pg_config("bindir") / "pgbench", "-n", "-f", script, "-M", "prepared", "-D", f"payload={PAYLOAD}",
                           "-c", str(CLIENTS), "-j", "2", "-T", str(SECONDS), "-h", db.pg.host, "-p", str(db.pg.port),
                           "-U", "postgres", db.name], env=env, capture_output=True, text=True)
    cores = (machine_seconds() - busy) / (time.monotonic() - started)
    tps = re.search(r"tps = ([\d.]+) \(without", done.stdout)
    failed = re.search(r"number of failed transactions: (\d+)", done.stdout)
    if done.returncode or not tps or (failed and int(failed[1])):
        raise Failure(f"pgbench: {done.stdout}\n{done.stderr}")
    return {"tps": float(tps[1]), "cores_busy": round(cores, 2)}


def measure(stage: Stage, results: Results) -> None:
    with stage.database("enqueue") as db:
        stage.kafka_sink(db)
        stage.pause(db)
        db.sql(PLAIN)
        paths = {}
        for name, sql in SCRIPTS.items():
            paths[name] = stage.directory / f"{name.split()[0]}.sql"
            paths[name].write_text(f"\\set k random(1, 1000)\n{sql};\n")
        counted = {"outbox.enqueue()": "outbox.events_pending", "plain INSERT": "plain"}
        for synchronous in ("on", "off"):
            runs: dict[str, list[dict]] = {name: [] for name in SCRIPTS}
            for _ in range(ROUNDS):
                for name, path in paths.items():
                    db.sql("CHECKPOINT")
                    runs[name].append(pgbench(db, path, synchronous))
                    if db.value(f"SELECT count(*) FROM {counted[name]}") < runs[name][-1]["tps"]:
                        raise Failure(f"{name} left fewer rows than it reported transactions")
                    db.sql(f"TRUNCATE {counted[name]}")
            ours, plain = (median([run["tps"] for run in runs[name]]) for name in SCRIPTS)
            progress(f"synchronous_commit = {synchronous}: outbox.enqueue() {ours:,.0f} TPS, plain INSERT {plain:,.0f}")
            busy = median([run["cores_busy"] for run in runs["outbox.enqueue()"]])
            results.data[f"synchronous_commit_{synchronous}"] = {"clients": CLIENTS, "runs": runs, "ratio": ours / plain}
            results.rows.append(Row(f"enqueue, {CLIENTS} clients, synchronous_commit = {synchronous}", ours, "TPS", plain, "plain INSERT",
                                    limit=f"{'CPU' if busy > 0.92 * CORES else 'flushing WAL'}: {busy:.2f} of {CORES} cores busy"))

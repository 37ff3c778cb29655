"""What outbox.enqueue() costs a transaction, compared with a plain INSERT into an ordinary table: without delivery,
and while the worker delivers."""

import os
import re
import subprocess
import time
from pathlib import Path

import plain
from measure import CORES, Cpu, disk_seconds, machine_seconds, median
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.paths import pg_config
from results import Failure, Results, Row, ratio_at_least
from stage import PARTITIONS, Stage, end_of, progress

CLIENTS = 8
TOPIC = "outbox.event.Enqueue"
ENQUEUE = "SELECT outbox.enqueue('Enqueue', :k::text, 'order.created', :payload::jsonb)"
INSERT = ("INSERT INTO plain (aggregate_type, aggregate_id, event_type, payload, partition_key) "
          "VALUES ('Enqueue', :k::text, 'order.created', :payload::jsonb, :k::text) RETURNING id")


def script(stage: Stage, name: str, sql: str) -> Path:
    """Each client has keys of its own, so that there is an order to keep."""
    path = stage.directory / f"{name}.sql"
    path.write_text(f"\\set k :client_id * 125 + random(1, 125)\n{sql};\n")
    return path


def pgbench(db: Database, path: Path, synchronous: str, *how_long: object, clients: int = CLIENTS) -> dict:
    """Transactions per second and in total, and the machine's load. The payload is a variable: the server gets it as
    a parameter and parses it as JSON each time."""
    payload = db.value("SELECT payload::text FROM source LIMIT 1")
    env = os.environ | {"PGOPTIONS": f"-c synchronous_commit={synchronous}"}
    started, busy, disk = time.monotonic(), machine_seconds(), disk_seconds()
    done = subprocess.run([pg_config("bindir") / "pgbench", "-n", "-f", path, "-M", "prepared", "-D", f"payload={payload}",
                           "-c", str(clients), "-j", str(min(clients, 2)), *map(str, how_long), "-h", db.pg.host, "-p", str(db.pg.port),
                           "-U", "postgres", db.name], env=env, capture_output=True, text=True)
    wall = time.monotonic() - started
    tps, count = (re.search(pattern, done.stdout) for pattern in (r"tps = ([\d.]+) \(without", r"actually processed: (\d+)"))
    failed = re.search(r"number of failed transactions: (\d+)", done.stdout)
    if done.returncode or not tps or not count or (failed and int(failed[1])):
        raise Failure(f"pgbench: {done.stdout}\n{done.stderr}")
    return {"tps": float(tps[1]), "transactions": int(count[1]), "cores_busy": round((machine_seconds() - busy) / wall, 2),
            "disk_waits": round((disk_seconds() - disk) / wall, 2)}


def limit(runs: list[dict]) -> str:
    busy, disk = (median([run[what] for run in runs]) for what in ("cores_busy", "disk_waits"))
    return f"{'CPU' if busy > 0.92 * CORES else 'the disk'}: {busy:.2f} of {CORES} cores busy, the disk waited for in {disk:.0%} of the time"


def must_have_arrived(stage: Stage, events: int) -> None:
    """The events must also arrive in the order of their keys: the ids of one session ascend, and so do those of
    consecutive sessions."""
    consumer, ids, last = stage.consumer(TOPIC), set(), {}
    try:
        if (found := end_of(consumer, TOPIC)) != events:
            raise Failure(f"topic {TOPIC} holds {found} events, {events} were enqueued")
        deadline, got = time.monotonic() + 60, 0
        while got < events and time.monotonic() < deadline:
            for message in consumer.consume(10000, 1):
                if message.error():
                    continue
                key, id = message.key(), dict(message.headers())["id"]
                if last.get(key, b"") >= id:
                    raise Failure(f"event {id} of key {key} came after event {last[key]}")
                last[key] = id
                ids.add(id)
                got += 1
    finally:
        consumer.close()
    if len(ids) != events:
        raise Failure(f"{len(ids)} ids arrived, {events} were enqueued")


class Transactions:
    """One event each, with outbox.enqueue() or a plain INSERT."""

    def __init__(self, stage: Stage, db: Database, seconds: float):
        self._stage, self._db, self._seconds = stage, db, seconds
        self._enqueue, self._insert = script(stage, "enqueue", ENQUEUE), script(stage, "plain", INSERT)
        self.delivered = 0

    def _run(self, path: Path, synchronous: str) -> dict:
        return pgbench(self._db, path, synchronous, "-T", f"{self._seconds:g}")

    def _counted(self, run: dict, table: str) -> dict:
        if (rows := self._db.value(f"SELECT count(*) FROM {table}")) != run["transactions"]:
            raise Failure(f"{run['transactions']} transactions left {rows} rows in {table}")
        return run

    def plain(self, synchronous: str) -> dict:
        plain.empty(self._db)
        return self._counted(self._run(self._insert, synchronous), "plain")

    def paused(self, synchronous: str) -> dict:
        plain.empty(self._db)
        return self._counted(self._run(self._enqueue, synchronous), "outbox.events_pending")

    def delivering(self, synchronous: str) -> dict:
        """The worker delivers meanwhile; the share that is delivered at the end shows whether it kept up."""
        plain.empty(self._db)
        self._stage.switch(True)
        worker = self._stage.wait_for_worker(self._db)
        self._deliver(pgbench(self._db, self._enqueue, synchronous, "-t", 1)["transactions"])
        before = Cpu.now(worker, self._stage.broker_pid)
        run = self._run(self._enqueue, synchronous)
        run["limit"] = Cpu.now(worker, self._stage.broker_pid).since(before).limit()
        run["delivered"] = (self._stage.delivered(self._db) - self.delivered) / run["transactions"]
        self._deliver(run["transactions"])
        self._stage.pause(self._db)
        return run

    def _deliver(self, events: int) -> None:
        self.delivered += events
        wait_until(lambda: self._stage.delivered(self._db) >= self.delivered, 60, "every event to be delivered")


def measure(stage: Stage, results: Results, seconds: float, rounds: int) -> None:
    with stage.database("enqueue") as db:
        stage.kafka_sink(db)
        stage.kafka.create_topic(TOPIC, PARTITIONS)
        stage.pause(db)
        plain.make(stage, db, "Enqueue", 1)
        transactions = Transactions(stage, db, seconds)
        transactions.delivering("off")  # a broker that has just started is slow, because its JIT compiler is cold
        ways = {"plain": transactions.plain, "paused": transactions.paused, "delivering": transactions.delivering}
        for synchronous in ("on", "off"):
            runs: dict[str, list[dict]] = {name: [] for name in ways}
            for number in range(rounds):
                for name in [*ways][number % 3:] + [*ways][:number % 3]:  # the machine's speed drifts, so the first place alternates
                    runs[name].append(ways[name](synchronous))
                progress(f"synchronous_commit = {synchronous}: " + ", ".join(f"{name} {runs[name][-1]['tps']:,.0f}" for name in ways) + " TPS")
            results.data[f"synchronous_commit_{synchronous}"] = {"clients": CLIENTS, "runs": runs}
            beside = median([run["tps"] for run in runs["plain"]])
            for name, goal in (("paused", 0.95), ("delivering", 0.95)):
                ratio = median([ours["tps"] / other["tps"] for ours, other in zip(runs[name], runs["plain"])])
                kept_up = f"; {runs[name][-1]['limit']}; {runs[name][-1]['delivered']:.0%} delivered at its end" if name == "delivering" else ""
                results.rows.append(Row(f"enqueue, {CLIENTS} clients, synchronous_commit {synchronous}, {name}",
                                        median([run["tps"] for run in runs[name]]), "TPS", beside, "plain INSERT, nothing delivered", ratio,
                                        [ratio_at_least(goal)], limit=limit(runs[name]) + kept_up))
        must_have_arrived(stage, transactions.delivered)

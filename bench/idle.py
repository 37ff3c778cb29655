"""What an idle outbox costs: one database, and very many."""

import re
import time
from collections.abc import Callable
from pathlib import Path

from measure import Cpu, median, private_memory
from outbox_rig import wait_until
from outbox_rig.database import Database
from results import Results, Row, at_most
from stage import PARTITIONS, SECRET, Stage, progress

POLL_SECONDS = 1
POLLS = 12
LOOK_ON_SECONDS = 15
PLACES = 16  # background workers, including PostgreSQL's own
REST_AFTER_SECONDS = 1


def wake_ups(pid: int) -> int:
    """How often the process's main thread went to sleep, and so woke up."""
    return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", Path(f"/proc/{pid}/task/{pid}/status").read_text(), re.M)[1])


def worker(stage: Stage, results: Results) -> None:
    """Queries and wake-ups of a worker that has delivered an event and has nothing else to do."""
    with stage.server(shared_preload_libraries="outbox,pg_stat_statements", outbox__poll_interval=f"{POLL_SECONDS}s",
                      pg_stat_statements__track="all") as own, own.database("idle") as db:
        own.kafka_sink(db)
        db.enqueue("Order", "first")
        wait_until(lambda: own.delivered(db) == 1 and not db.pending(), 30, "the first event")
        pid, oid = own.wait_for_worker(db), db.value("SELECT oid FROM pg_database WHERE datname = current_database()")
        db.disconnect()
        with own.pg.connect() as other:
            other.execute("CREATE EXTENSION pg_stat_statements")
            before, cpu = wake_ups(pid), Cpu.now(pid, 0)
            other.execute("SELECT pg_stat_statements_reset()")
            time.sleep(POLLS * POLL_SECONDS)  # no condition to wait for: this is the duration of the measurement
            woken, cpu = wake_ups(pid) - before, Cpu.now(pid, 0).since(cpu)
            statements = other.execute("SELECT query, calls FROM pg_stat_statements WHERE dbid = %s ORDER BY calls DESC", [oid]).fetchall()
        memory = private_memory(pid) / 2**20
    queries = sum(calls for _, calls in statements)
    results.data |= {"polls": POLLS, "statements": statements, "wake_ups": woken}
    progress(f"in {POLLS} poll intervals {queries} queries and {woken} wake-ups of the main thread, {cpu.worker / cpu.wall * 1e6:.0f} µs of CPU a second")
    results.rows += [
        Row("idle, queries per poll interval", queries / POLLS, "", goals=[at_most(1)]),
        # One more: the window starts anywhere between two polls.
        Row("idle, wake-ups of the main thread per poll interval", woken / POLLS, "", goals=[at_most(1 + 1 / POLLS)],
            limit=f"{cpu.worker / cpu.wall * 1e6:.0f} µs of CPU a second with its threads, {memory:.1f} MB"),
    ]


def from_rest(stage: Stage, results: Results, rounds: int) -> None:
    """From just before COMMIT in a database whose worker has left, to the consumer, or to the endpoint."""
    receiver = stage.rig.receiver()
    with stage.server(outbox__worker_idle_timeout=f"{REST_AFTER_SECONDS}s") as own:
        stage.kafka.create_topic("outbox.event.Rest", PARTITIONS)
        consumer = own.consumer("outbox.event.Rest")

        def at_consumer() -> float:
            while not (message := consumer.poll(10)) or message.error():
                pass
            return time.time()

        def at_endpoint() -> float:
            wait_until(lambda: receiver.deliveries, 30, "the request", interval=0.001)
            return receiver.deliveries.pop().at
        for kind, arrival in (("Kafka", at_consumer), ("a webhook", at_endpoint)):
            with own.database("rest") as db:
                if kind == "Kafka":
                    own.kafka_sink(db)
                else:
                    db.webhook_sink("main", receiver, SECRET)
                took = [once(own, db, arrival) for _ in range(rounds + 1)][1:]  # the first finds a cold broker
            progress(f"{kind}: median {median(took):.1f} ms, at most {max(took):.1f} ms")
            results.data[kind] = took
            results.rows.append(Row(f"from COMMIT in a database at rest to {kind}, median of {rounds}", median(took), "ms", goals=[at_most(30)],
                                    limit=f"at most {max(took):.1f} ms; a worker starts and connects"))
        consumer.close()


def once(own: Stage, db: Database, arrival: Callable[[], float]) -> float:
    """Milliseconds."""
    wait_until(lambda: not own.workers(db), 30, "the worker to leave")
    before = time.time()
    db.enqueue("Rest", "1")
    return (arrival() - before) * 1000


def databases(stage: Stage, results: Results, databases: int) -> None:
    """Very many databases with the extension and a sink, on a server with far fewer worker slots."""
    with stage.server(max_worker_processes=str(PLACES), outbox__enabled="off", outbox__worker_idle_timeout=f"{REST_AFTER_SECONDS}s",
                      max_wal_size="4GB") as own, own.pg.connect() as admin:
        template = Database(own.pg, "many")
        template.create()
        own.kafka_sink(template)
        template.disconnect()
        for number in range(1, databases):
            admin.execute(f"CREATE DATABASE many{number} TEMPLATE many")
        progress(f"{databases:,} databases with the extension")
        launcher = admin.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'outbox launcher'").fetchone()[0]

        def running() -> int:
            return admin.execute("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'outbox worker'").fetchone()[0]
        calm = [0]

        def at_rest() -> bool:
            """No worker runs, and the launcher has not woken since the last call."""
            calm.append(wake_ups(launcher))
            return not running() and calm[-1] == calm[-2]
        own.kafka.create_topic("outbox.event.Idle", PARTITIONS)
        first = Cpu.now(launcher, 0)
        own.switch(True)
        wait_until(running, 30, "a worker")
        try:  # the launcher looks into each once
            wait_until(at_rest, 60 + databases / 4, interval=1)
        except TimeoutError:
            pass  # the figure then shows how many there are
        first = Cpu.now(launcher, 0).since(first)
        before, woken = Cpu.now(launcher, 0), wake_ups(launcher)
        time.sleep(LOOK_ON_SECONDS)  # the duration of the measurement
        cpu, woken = Cpu.now(launcher, 0).since(before), wake_ups(launcher) - woken
        held = running()
        progress(f"all were looked into after {first.wall:.1f} s, for which the launcher took {first.worker_main:.2f} s of CPU; {held} workers run; the "
                 f"launcher takes {cpu.worker_main / cpu.wall * 1e6:,.0f} µs of CPU a second and wakes {woken / cpu.wall:.2f} times")

        chosen = Database(own.pg, f"many{databases * 777 // 1000}")
        chosen.sql("SELECT 1")  # connected
        started, said = time.monotonic(), ""
        chosen.enqueue("Idle", "first")
        try:
            wait_until(lambda: own.delivered(chosen) == 1, 60, "the event", interval=0.002)
        except TimeoutError:
            said = "NOT delivered within that time"
        seconds = time.monotonic() - started
        progress(f"an event in {chosen.name}: {seconds:.2f} s {said}")
        chosen.disconnect()
        own.switch(False)
    launcher_also = f"{woken / cpu.wall:.2f} wake-ups a second; {first.worker_main:.2f} s in all to look into each at first, which took {first.wall:.0f} s"
    results.data |= {"launcher_us_per_second": cpu.worker_main / cpu.wall * 1e6, "launcher_wake_ups_per_second": woken / cpu.wall, "workers": held,
                     "looked_into_after_seconds": first.wall, "launcher_seconds_for_it": first.worker_main, "seconds_to_delivery": seconds}
    results.rows += [
        Row(f"{databases:,} databases with nothing due, workers that they hold", held, "workers", goals=[at_most(0)],
            limit=f"max_worker_processes {PLACES}, outbox.worker_idle_timeout {REST_AFTER_SECONDS}s"),
        Row("  CPU of the launcher", cpu.worker_main / cpu.wall * 1e6, "µs/s", limit=launcher_also),
        Row("  from COMMIT in one of them until the delivery is recorded", seconds, "s", limit=said or "a worker starts and connects to the broker"),
    ]

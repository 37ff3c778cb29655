"""outbox.probe() while sessions end, workers end, sinks are dropped, and a worker is busy."""

import os
import socket
import threading
import time
from pathlib import Path

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.process import private_memory

pytestmark = pytest.mark.slow

WORKER = "SELECT pid FROM outbox.workers WHERE database = current_database()"


@pytest.fixture
def hanging(db, kafka):
    """A sink "hole" that accepts connections and never responds, beside a good one, "k"."""
    db.kafka_sink("k", kafka)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(128)
        db.kafka_sink("hole", kafka, bootstrap_servers=f"127.0.0.1:{s.getsockname()[1]}", events="never")
        yield db


class Session:
    """outbox.probe() in the background, in a session of its own."""

    def __init__(self, db: Database, sink: str, timeout: str = "60 s"):
        self.connection = db.connect()
        self.pid = self.connection.info.backend_pid
        self.rows: list[tuple] = []
        self.error: psycopg.Error | None = None
        self._thread = threading.Thread(target=self._run, args=(sink, timeout))
        self._thread.start()

    def _run(self, sink: str, timeout: str) -> None:
        try:
            self.rows = self.connection.execute("SELECT step, ok, message FROM outbox.probe(%s, %s::interval)", (sink, timeout)).fetchall()
        except psycopg.Error as error:
            self.error = error

    def running(self) -> bool:
        return self._thread.is_alive()

    def end(self, seconds: float = 20) -> "Session":
        self._thread.join(seconds)
        assert not self.running(), "the probe goes on"
        self.connection.close()
        return self


def worker(db) -> int:
    return wait_until(lambda: db.value(WORKER), 20, "a worker")


def tasks(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def settled(db) -> int:
    """The number of the worker's threads, when all its sinks have started theirs."""
    assert all_ok(db, "k")
    pid = worker(db)
    counts: list[int] = []

    def same() -> bool:
        counts.append(tasks(pid))
        return len(counts) > 20 and len(set(counts[-20:])) == 1
    wait_until(same, 20, lambda: f"the threads to settle: {counts[-20:]}")
    return counts[-1]


def wait_until_probing(db, before: int) -> None:
    """The worker has started the probe: the probe's thread and librdkafka's run."""
    wait_until(lambda: tasks(worker(db)) > before + 2, 20, "the probe to begin")


def all_ok(db, sink: str) -> bool:
    return db.value("SELECT bool_and(ok) FROM outbox.probe(%s)", sink)


def test_cancel(hanging):
    before = settled(hanging)
    for end in ("cancel", "terminate"):
        session = Session(hanging, "hole")
        wait_until_probing(hanging, before)
        start = time.monotonic()
        hanging.sql(f"SELECT pg_{end}_backend(%s)", session.pid)
        assert session.end(5).error is not None and time.monotonic() - start < 5
        wait_until(lambda: tasks(worker(hanging)) <= before, 8, "its threads to end: librdkafka itself gives up after 10 s", exactly=True)
    with hanging.connect() as connection, pytest.raises(psycopg.errors.QueryCanceled):
        connection.execute("SET statement_timeout = '500ms'")
        connection.execute("SELECT * FROM outbox.probe('hole')")
    assert all_ok(hanging, "k")


def test_many_at_once(hanging):
    sessions = [Session(hanging, "k", "30 s") for _ in range(50)]
    for session in sessions:
        rows = session.end(40).rows
        assert session.error is None and rows and all(ok for _, ok, _ in rows), (session.error, rows)


def test_too_many(hanging):
    """The number of slots is limited, and slots of ended sessions are reused."""
    sessions = [Session(hanging, "hole") for _ in range(66)]
    wait_until(lambda: sum(session.running() for session in sessions) == 64, 20, "64 of them to find a slot")
    refused = [session for session in sessions if not session.running()]
    assert all(isinstance(session.error, psycopg.errors.ConfigurationLimitExceeded) for session in refused)
    for session in sessions:
        hanging.sql("SELECT pg_cancel_backend(%s)", session.pid)
    for session in sessions:
        session.end()
    assert all_ok(hanging, "k")


def test_the_worker_ends(hanging):
    """The next worker starts the probe again, within its timeout."""
    before = settled(hanging)
    pid = worker(hanging)
    session = Session(hanging, "hole", "6 s")
    wait_until_probing(hanging, before)
    start = time.monotonic()
    hanging.sql("SELECT pg_terminate_backend(%s)", pid)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), 5, "the worker to end: it waits for no probe")
    assert time.monotonic() - start < 3
    session.end()
    assert session.error is None and session.rows[-1][1] is False, (session.error, session.rows)
    assert "did not answer" in session.rows[-1][2]


def test_the_sink_is_dropped(hanging):
    before = settled(hanging)
    session = Session(hanging, "hole", "3 s")
    wait_until_probing(hanging, before)
    hanging.sql("SET statement_timeout = '2s'")
    hanging.sql("DROP SERVER hole")  # no lock delays it
    session.end()
    assert session.error is None and "did not answer" in session.rows[-1][2]


def test_a_resting_database(db, kafka, setting):
    setting("outbox.worker_idle_timeout", "50ms")
    db.kafka_sink("k", kafka)
    for _ in range(3):
        wait_until(lambda: db.value("SELECT idle FROM outbox_internal.library()") and not db.sql(WORKER), 20, "the worker to leave")
        assert all_ok(db, "k")


def test_the_drain_goes_on(hanging, aggregate):
    """A good sink delivers events while probes of another sink hang: many between a probe's start and its end."""
    before = settled(hanging)
    session = Session(hanging, "hole", "60 s")
    wait_until_probing(hanging, before)
    hanging.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) "
                "SELECT %s, i % 1000, 'x', '{}' FROM generate_series(1, 20000) AS i".replace("% 1000", "%% 1000"), aggregate)
    wait_until(lambda: hanging.pending() == 0, 30, "the drain")
    assert session.running()
    assert all_ok(hanging, "k")
    assert session.running()
    hanging.sql("SELECT pg_cancel_backend(%s)", session.pid)
    session.end()


def test_nothing_is_left(hanging):
    """The worker's threads and memory after 200 probes."""
    before = settled(hanging)
    pid = worker(hanging)
    memory = private_memory(pid)
    for _ in range(10):
        for session in [Session(hanging, sink, "100 ms" if sink == "hole" else "20 s") for sink in ["hole", "k"] * 10]:
            session.end()
    wait_until(lambda: tasks(pid) <= before, 20, lambda: f"{tasks(pid)} threads to become {before}")
    assert worker(hanging) == pid
    assert private_memory(pid) - memory < 20_000_000


def test_the_server_stops(rig, kafka):
    pg = rig.postgres(settings={"outbox.shutdown_timeout": "30s"})
    db = Database(pg, "probe").create()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(128)
        db.kafka_sink("hole", kafka, bootstrap_servers=f"127.0.0.1:{s.getsockname()[1]}")
        before = tasks(worker(db))
        session = Session(db, "hole")
        wait_until_probing(db, before)
        db.disconnect()
        start = time.monotonic()
        pg.stop()
        assert time.monotonic() - start < 10
        assert session.end().error is not None

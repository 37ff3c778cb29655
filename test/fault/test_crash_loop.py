"""A worker that crashes again and again: each crash restarts the server, so the next worker comes after a growing pause, in which sessions can log in."""

import contextlib
import os
import signal
from pathlib import Path

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.preload import compiled
from outbox_rig.receiver import HANG, OK, SECRET


def answers(db, query: str):
    """None while the server restarts."""
    try:
        return db.sql(query)
    except psycopg.OperationalError:
        db.disconnect()
        return None


class Killer:
    """Kills each worker of a database as soon as it runs, `times` times in all."""

    def __init__(self, db, times: int, is_time=lambda: True):
        """`is_time`: kills no worker before."""
        self._db, self._times, self._is_time = db, times, is_time
        self.pauses: list[float] = []  # in s, after each kill, as the server tells them …
        self.in_pauses: list[bool] = []  # … in a session that has logged in before the pause was over

    def _kill_next(self) -> None:
        query = "SELECT pid FROM outbox.workers WHERE database = current_database()"
        worker = wait_until(lambda: answers(self._db, query), 90, "the next worker")[0][0]
        wait_until(self._is_time, 60, "the time to kill it")
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
        n = len(self.pauses) + 1
        [[pause, in_pause]] = wait_until(lambda: answers(self._db, f"""SELECT round(extract(epoch FROM next_start - failed_at)), next_start > clock_timestamp()
            FROM outbox_internal.worker_health() WHERE failures >= {n}"""), 30, f"the pause after crash {n}")
        self.pauses.append(float(pause))
        self.in_pauses.append(in_pause)

    def run(self) -> None:
        for _ in range(self._times):
            self._kill_next()


@pytest.mark.kills_server
@pytest.mark.parametrize("times", (4, pytest.param(6, marks=pytest.mark.slow)))
def test_sessions_log_in_while_somebody_kills_each_worker(db, pg, receiver, times):
    db.webhook_sink("crm", receiver, SECRET)
    killer = Killer(db, times)
    killer.run()
    assert killer.pauses == [1, 2, 4, 8, 16, 32][:times]
    assert killer.in_pauses[2:] == [True] * (times - 2), killer.in_pauses  # those of 4 s and more
    state, detail, hint = db.doctor("worker")
    assert state == "error" and f"{times} times in a row" in detail and "its process crashed" in detail, detail
    event = db.enqueue("Order", "1")
    wait_until(lambda: event in {delivery.id for delivery in receiver.accepted()}, 60, lambda: str(db.doctor("worker")))


@pytest.mark.slow
@pytest.mark.kills_server
def test_somebody_who_kills_workers_for_a_minute_makes_nothing_guilty(db, pg, receiver):
    """Not even if he waits until the same event is in flight each time."""
    receiver.mode = HANG
    db.webhook_sink("crm", receiver, SECRET)
    event = db.enqueue("Order", "1")
    seen = 0

    def is_in_flight() -> bool:
        nonlocal seen
        if len(receiver.deliveries) == seen:
            return False
        seen = len(receiver.deliveries)
        return True

    Killer(db, 6, is_in_flight).run()
    receiver.release()
    receiver.mode = OK
    wait_until(lambda: event in {delivery.id for delivery in receiver.accepted()}, 90, lambda: str(db.doctor("worker")))
    assert db.value("SELECT count(*) FROM outbox.events WHERE status = 'FAILED'") == 0
    assert db.sink("state", "crm") != ("misconfigured",)
    assert "becomes a dead letter" not in db.pg.logged(0) and "cannot be opened" not in db.pg.logged(0)


@pytest.fixture
def scarce(rig):
    """A server whose workers are killed when they ask for a large piece of memory."""
    pg = rig.postgres(env={"LD_PRELOAD": str(compiled(Path(__file__).with_name("large_allocation.c")))})
    database = Database(pg, "scarce").create()
    yield database
    pg.stop()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.kills_server
def test_an_event_that_kills_when_it_is_read_becomes_a_dead_letter(scarce, receiver):
    """SIGKILL leaves no trace of its cause. All other events arrive, in order, and so does this one when it is sent again with its cause gone."""
    scarce.webhook_sink("crm", receiver, SECRET)
    numbers = [scarce.send("a", n) for n in range(5)]
    wait_until(lambda: receiver.numbers("a") == list(range(5)), 30, "the first events")
    scarce.sql("BEGIN")  # one transaction, because the large event may end all sessions
    numbers += [scarce.send("a", n) for n in range(5, 10)]
    large = scarce.value("SELECT outbox.enqueue('Order', 'b', 'order.large', to_jsonb(repeat('x', 13000000)))::text")
    numbers += [scarce.send("a", n) for n in range(10, 15)]
    scarce.sql("COMMIT")
    wait_until(lambda: answers(scarce, f"SELECT 1 FROM outbox.events WHERE status = 'FAILED' AND id = '{large}'"), 400, lambda: scarce.pg.logged(0)[-3000:])
    assert "crashed the worker" in scarce.value("SELECT last_error FROM outbox.events WHERE status = 'FAILED'")
    wait_until(lambda: set(numbers) <= {delivery.id for delivery in receiver.accepted()}, 60, lambda: scarce.sql("SELECT * FROM outbox.sinks"))
    assert scarce.sink("state", "crm") != ("misconfigured",)
    assert scarce.pg.logged(0).count("was terminated by signal 9") == 7
    assert "becomes a dead letter" in scarce.pg.logged(0) and scarce.doctor("dead letters")[0] != "ok"


@pytest.mark.kills_server
@pytest.mark.parametrize("end", ("another process crashes", "immediate shutdown", "power cut", "fast shutdown", "the postmaster dies"))
def test_an_end_that_is_no_crash_of_the_worker(db, pg, receiver, end):
    db.webhook_sink("crm", receiver, SECRET)
    worker = wait_until(lambda: db.value("SELECT pid FROM outbox.workers WHERE database = current_database()"), 10, "a worker")
    if end == "another process crashes":
        pg.kill_child(db.value("SELECT pg_backend_pid()"))
    elif end == "power cut":
        pg.kill()
        pg.start()
    elif end == "the postmaster dies":
        pg.kill_postmaster()
        pg.start()
    else:
        pg.restart(end.split()[0])
    db.disconnect()
    wait_until(lambda: db.value("SELECT pid FROM outbox.workers WHERE database = current_database()") not in (None, worker), 20, "the next one")
    assert db.value("SELECT failures FROM outbox_internal.worker_health()") == 0

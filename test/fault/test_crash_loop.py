"""A worker that crashes again and again: each crash restarts the server, so the next worker comes after a growing pause, in which sessions can log in."""

import contextlib
import os
import signal

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import SECRET


def answers(db, query: str):
    """None while the server restarts."""
    try:
        return db.sql(query)
    except psycopg.OperationalError:
        db.disconnect()
        return None


class Killer:
    """Kills each worker of a database as soon as it runs, `times` times in all."""

    def __init__(self, db, times: int):
        self._db, self._times = db, times
        self.pauses: list[float] = []  # in s, after each kill, as the server tells them …
        self.in_pauses: list[bool] = []  # … in a session that has logged in before the pause was over

    def _kill_next(self) -> None:
        query = "SELECT pid FROM outbox.workers WHERE database = current_database()"
        worker = wait_until(lambda: answers(self._db, query), 90, "the next worker")[0][0]
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

"""Stops processes of the server with SIGSTOP."""

import os
import signal

from .wait import wait_until


def stop_asleep(db, which: str) -> int:
    """Stops the process that matches `which` in pg_stat_activity while it waits for work: when it is busy it may
    hold a lock that others need."""
    waits = f"SELECT pid FROM pg_stat_activity WHERE {which} AND wait_event_type IN ('Activity', 'Extension')"

    def stopped() -> int | None:
        for pid, in db.sql(waits):
            os.kill(pid, signal.SIGSTOP)
            if (pid,) in db.sql(waits):
                return pid
            os.kill(pid, signal.SIGCONT)

    return wait_until(stopped, 20, f"the process with {which} to wait", 0.005)

"""Processes of the server that stand still."""

import os
import signal

from .wait import wait_until


def stop_asleep(db, which: str) -> int:
    """SIGSTOP for the process of pg_stat_activity that is `which`, while it waits for work: awake it may hold a lock that others need."""
    waits = f"SELECT pid FROM pg_stat_activity WHERE {which} AND wait_event_type IN ('Activity', 'Extension')"

    def stopped() -> int | None:
        for pid, in db.sql(waits):
            os.kill(pid, signal.SIGSTOP)
            if (pid,) in db.sql(waits):
                return pid
            os.kill(pid, signal.SIGCONT)

    return wait_until(stopped, 20, f"the process with {which} to wait", 0.005)

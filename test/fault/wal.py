"""Controls which processes write the write-ahead log."""

import contextlib
import os
import signal
from collections.abc import Iterator

from outbox_rig.asleep import stop_asleep
from outbox_rig.database import Database


@contextlib.contextmanager
def nobody_flushes(db: Database) -> Iterator[None]:
    """Only processes that must flush WAL do so: the server's WAL writer and the like are stopped. Not for use around
    CREATE or DROP DATABASE."""
    writers = []
    try:
        for writer in ("walwriter", "background writer"):
            writers.append(stop_asleep(db, f"backend_type = '{writer}'"))
        yield
    finally:
        for pid in writers:
            with contextlib.suppress(ProcessLookupError):  # the test has killed the server
                os.kill(pid, signal.SIGCONT)

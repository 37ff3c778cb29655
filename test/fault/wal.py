"""Who writes the write-ahead log."""

import contextlib
import os
import signal
from collections.abc import Iterator

from outbox_rig.asleep import stop_asleep
from outbox_rig.database import Database


@contextlib.contextmanager
def nobody_flushes(db: Database) -> Iterator[None]:
    """WAL is flushed by those only who have to: the server's own writers stand still. Not around CREATE or DROP DATABASE."""
    writers = []
    try:
        for writer in ("walwriter", "background writer"):
            writers.append(stop_asleep(db, f"backend_type = '{writer}'"))
        yield
    finally:
        for pid in writers:
            with contextlib.suppress(ProcessLookupError):  # the test has killed the server
                os.kill(pid, signal.SIGCONT)

"""Who writes the write-ahead log."""

import contextlib
import os
import signal
from collections.abc import Iterator

from outbox_rig.database import Database


@contextlib.contextmanager
def nobody_flushes(db: Database) -> Iterator[None]:
    """WAL is flushed by those only who have to: the server's own writers stand still. Not around CREATE or DROP DATABASE."""
    writers = [pid for pid, in db.sql("SELECT pid FROM pg_stat_activity WHERE backend_type IN ('walwriter', 'background writer')")]
    assert len(writers) == 2
    for pid in writers:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in writers:
            with contextlib.suppress(ProcessLookupError):  # the test has killed the server
                os.kill(pid, signal.SIGCONT)

"""Finds crashes and unexpected errors of the worker in a server's log."""

import re
from pathlib import Path

CRASH = re.compile(r"terminated by signal|PANIC|server process .* was terminated|\bTRAP:|[Ss]egmentation fault|segfault"
                   r"|AddressSanitizer|terminate called|outbox (worker|launcher)\b.* ERROR: ")


def crashes(log: Path, since: int = 0) -> list[str]:
    """The lines of the log, from byte `since` on, that report a crash."""
    if not log.exists():
        return []
    with open(log, errors="replace") as lines:
        lines.seek(since)
        return [line.rstrip() for line in lines if CRASH.search(line)]

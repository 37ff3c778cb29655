"""What a server's log says when a process of it crashed, or our worker ran into what it did not expect."""

import re
from pathlib import Path

CRASH = re.compile(r"terminated by signal|PANIC|server process .* was terminated|\bTRAP:|[Ss]egmentation fault|segfault"
                   r"|AddressSanitizer|terminate called|outbox (worker|launcher)\b.* ERROR: ")


def crashes(log: Path, since: int = 0) -> list[str]:
    """Lines of the log from byte `since` on that tell of a crash."""
    if not log.exists():
        return []
    with open(log, errors="replace") as lines:
        lines.seek(since)
        return [line.rstrip() for line in lines if CRASH.search(line)]

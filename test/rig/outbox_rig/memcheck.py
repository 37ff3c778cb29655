"""Valgrind's memcheck over a server and all its processes (test/rig/cassert/run --valgrind).

The server must be built for it: palloc then tells memcheck where each of its chunks begins and ends. Errors are read
from the processes' logs, not from exit codes: a backend that ends with a code of its own makes the postmaster restart
the server, and so hides what follows."""

import os
import re
import shutil
from pathlib import Path

from .paths import LOGS, ROOT, pg_config

ON = bool(os.environ.get("OUTBOX_VALGRIND"))
FOLDER = LOGS / "memcheck"
BLANK = re.compile(rb"^==\d+== *\n", re.MULTILINE)  # ends each report
_read: dict[Path, int] = {}


def forget() -> None:
    """Removes the logs of earlier runs."""
    if ON:
        shutil.rmtree(FOLDER, ignore_errors=True)


def command() -> list[str]:
    """What precedes the server's command line; nothing without OUTBOX_VALGRIND."""
    if not ON:
        return []
    FOLDER.mkdir(parents=True, exist_ok=True)
    FOLDER.chmod(0o777)  # the server is another user's
    # Leaks do not count as errors: only those of outbox's own C++ objects are reported (_is_ours).
    return ["valgrind", "--tool=memcheck", "--quiet", "--vgdb=no", "--trace-children=yes", "--num-callers=30", f"--fullpath-after={ROOT}/",
            "--leak-check=full", "--show-leak-kinds=definite", f"--suppressions={pg_config('sharedir')}/valgrind.supp",
            f"--log-file={FOLDER}/%p.log"]


def new_reports(ended: bool = False) -> list[str]:
    """The errors that the processes of all servers have reported since the last call. While they run (not `ended`), a
    report that is being written is left for the next call."""
    reports = []
    for log in sorted(FOLDER.glob("*.log")):
        text = log.read_bytes()[_read.get(log, 0):]
        if not ended:
            text = text[:max((end.end() for end in BLANK.finditer(text)), default=0)]
        _read[log] = _read.get(log, 0) + len(text)
        blocks = [block.decode(errors="replace") for block in BLANK.split(text)]
        reports += [f"{log}:\n{block}" for block in blocks if block.startswith("==") and (" definitely lost " not in block or _is_ours(block))]
    return reports


def _is_ours(leak: str) -> bool:
    """Whether outbox allocated it, and not by palloc: a memory context needs no pointer to its chunks."""
    return re.search(r"\bsrc/(?:server|delivery|dispatch)/", leak) is not None and not re.search(r": (?:palloc|repalloc|MemoryContextAlloc|AllocSet)", leak)

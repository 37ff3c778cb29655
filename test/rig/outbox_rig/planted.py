"""Errors that are put into the code, one at a time, to show that a checker reports them."""

import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import NamedTuple


class Error(NamedTuple):
    file: str
    piece: str  # of the file
    instead: str  # what stands there with the error
    report: str  # a regular expression: what the checker says, in the function that has the error
    test: str  # that runs this code


def show(name: str, began: float, what: str) -> None:
    print(f"{name:45} {time.monotonic() - began:6.1f} s  {what}", flush=True)


def changed(planted: Mapping[str, tuple[str, ...]], root: Path) -> list[str]:
    """Says which pieces do not stand exactly once in their file. `planted`: by name the file, the piece, and more."""
    counts = {name: (root / file).read_text().count(piece) for name, (file, piece, *_) in planted.items()}
    return [f"{name}: {planted[name][0]} has changed; it contains the piece {count} times" for name, count in counts.items() if count != 1]


def check(root: Path, planted: dict[str, Error], names: list[str], build: Callable[[], None], test: Callable[[str], CompletedProcess],
          forget: Callable[[Path], None] = lambda path: None) -> int:
    """Changes the files in `root`, a copy of the checkout. Without an error each test must pass, which is tried first if no
    name is given. `forget` removes what was built from a file that is as it was. Returns an exit code."""
    missed = 0
    if lines := changed(planted, root):
        sys.exit("\n".join(lines))
    if not names:
        build()
        for each in dict.fromkeys(error.test for error in planted.values()):
            began, done = time.monotonic(), test(each)
            show("no error", began, "ok" if done.returncode == 0 else "FAILED")
            if done.returncode:
                print(done.stdout[-6000:])
                return 1
    for name in names or planted:
        error = planted[name]
        path = root / error.file
        text = path.read_text()
        try:
            path.write_text(text.replace(error.piece, error.instead))
            build()
            began, done = time.monotonic(), test(error.test)
        finally:
            path.write_text(text)
            forget(path)
        found = re.search(error.report, done.stdout, re.MULTILINE)
        show(name, began, f"ok: {found[0].splitlines()[0]}" if found and done.returncode else "FAILED: not reported")
        missed += not (found and done.returncode)
    build()
    return int(bool(missed))

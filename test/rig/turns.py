"""The suites that take turns beside `make test` (.ci/turns): which is due, which is next, which ran when.

  test/rig/turns.py next [TURN]   the line after TURN, or after the one in .ci/turn, which it then replaces
  test/rig/turns.py when          each suite, and the last commit of main whose turn it was

.ci/turn is part of a commit, so the gate and CI run the same suites for it, and its history is the table."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TURN, TURNS = ROOT / ".ci/turn", ROOT / ".ci/turns"


def turns() -> list[str]:
    return [line for line in TURNS.read_text().splitlines() if line and not line.startswith("#")]


def due() -> list[str]:
    """The suites of this commit's turn."""
    return TURN.read_text().split() if TURN.exists() else []  # the source of a release has none


def after(turn: str) -> str:
    """The first one, if there is no such turn any more."""
    known = turns()
    return known[(known.index(turn) + 1) % len(known)] if turn in known else known[0]


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def when() -> str:
    """A commit that changes .ci/turn is a landing's."""
    landings = [line.split(" ", 1) for line in git("log", "--first-parent", "--format=%h %as", "--", ".ci/turn").splitlines()]
    ran = [(commit, day, git("show", f"{commit}:.ci/turn").split()) for commit, day in landings]
    lines = [f"{'suite':<16}{'landings ago':>13}  commit"]
    for suite in (suite for turn in turns() for suite in turn.split()):
        found = next(((n, commit, day) for n, (commit, day, suites) in enumerate(ran) if suite in suites), None)
        lines.append(f"{suite:<16}{found[0]:>13}  {found[1]}, {found[2]}" if found else f"{suite:<16}{'-':>13}  not yet")
    return "\n".join(lines)


def main() -> int:
    match sys.argv[1:]:
        case ["next", turn]:
            print(after(turn))
        case ["next"]:
            TURN.write_text(after(TURN.read_text().strip()) + "\n")
            print(f"{TURN}: {TURN.read_text().strip()}")
        case ["when"]:
            print(when())
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The fault points and the edges of the state machines that the source has, and the files by which a server's points
are armed (fault_point.cpp)."""

import os
import re
import sys

from outbox_rig.paths import ROOT
from outbox_rig.postgres import Postgres

sys.path.insert(0, str(ROOT / "test"))
import states  # noqa: E402

WAYS = {
    "kill": "kill -9 of the process at the point",
    "postmaster": "kill -9 of the postmaster, which is then started again",
    "error": "ERROR; where none can be raised, a cancel arrives",
    "fatal": "FATAL; where none can be raised, SIGTERM arrives",
    "wait": "a wait of 5 s",
}
POINT = re.compile(r'^\s*OUTBOX_(?:FAULT_POINT\(|SIGNAL_POINT\(|(?:ROUND_POINT|LOOP_POINT|LOOP_SIGNAL)\(port_, )"([^"]+)"\);$', re.MULTILINE)


def named() -> list[str]:
    """The points with a name, in the order of the source."""
    found = [name for path in sorted((ROOT / "src").rglob("*.cpp")) for name in POINT.findall(path.read_text())]
    assert len(found) == len(set(found)), f"a name is used twice: {sorted(name for name in found if found.count(name) > 1)}"
    return found


def edges() -> list[str]:
    """Every edge of the state machines is a point: "SinkState OPEN->CLOSING"."""
    return [f"{enum} {a}->{b}" for enum, (_, _, arrows) in states.machines().items() for a, b in sorted(arrows)]


def _numbers() -> dict[str, str]:
    """The names of the edges by those in the files: SinkState:1:2."""
    return {f"{enum}:{names.index(a)}:{names.index(b)}": f"{enum} {a}->{b}"
            for enum, (_, names, arrows) in states.machines().items() for a, b in arrows}


EDGE_OF = _numbers()
NUMBER_OF = {edge: number for number, edge in EDGE_OF.items()}


class Faults:
    """The folder outbox_faults of a server."""

    def __init__(self, pg: Postgres):
        self._folder = pg.data / "outbox_faults"
        self._folder.mkdir(mode=0o700)
        stat = pg.data.stat()
        os.chown(self._folder, stat.st_uid, stat.st_gid)
        self._owner = stat.st_uid, stat.st_gid

    def clear(self) -> None:
        for path in self._folder.iterdir():
            path.unlink(missing_ok=True)

    def forget_seen(self) -> set[str]:
        """The points that processes came to since the last call."""
        path = self._folder / "seen"
        found = set(path.read_text().split("\n")[:-1]) if path.exists() else set()
        path.unlink(missing_ok=True)
        return {EDGE_OF.get(name, name) for name in found}

    def arm(self, point: str, way: str) -> None:
        part = self._folder / "part"
        part.write_text(f"{NUMBER_OF.get(point, point)} {way}")
        os.chown(part, *self._owner)
        part.rename(self._folder / "armed")

    def disarm(self) -> None:
        (self._folder / "armed").unlink(missing_ok=True)

    def hit(self) -> str | None:
        """What was hit: point, way, process."""
        path = self._folder / "hit"
        return path.read_text().strip() if path.exists() else None

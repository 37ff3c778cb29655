"""The disk of disk.c: cuts the power, and lets single calls fail."""

import ctypes
import errno
import mmap
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from outbox_rig.paths import ROOT
from outbox_rig.preload import compiled

SOURCE = ROOT / "test" / "power" / "disk.c"
RECORD = struct.Struct("=4Q")
SECTOR, PAGE = 512, 4096
WAL, HEAP = "WAL", "heap"
WRITE, SYNC = "write", "sync"

# What of the unsynced writes survives a cut.
LOSSES = {
    "all is lost": 4,
    "sectors survive": 3,  # each by itself, and in any of the states that it had since the last sync
    "pages survive": 2,  # the same for pages of the kernel's cache
    "the end is lost": 1,  # writes survive up to some place
}


class Control(ctypes.Structure):
    """As in disk.c."""

    _fields_ = [("count", ctypes.c_uint64 * 2 * 2), ("fail_at", ctypes.c_uint64 * 2 * 2), ("error", ctypes.c_uint64), ("failed", ctypes.c_uint64)]


@dataclass
class Write:
    """Before it the file had `size` bytes, and at `offset` these."""

    offset: int
    length: int
    size: int
    before: bytes


@dataclass
class Cut:
    how: str
    writes: int = 0  # unsynced ones
    sectors: int = 0  # that were given another content

    def __str__(self) -> str:
        return f"{self.sectors} sectors of {self.writes} unsynced writes taken ({self.how})" if self.writes else "nothing was unsynced"


class Disk:
    def __init__(self, folder: Path):
        self._library = compiled(SOURCE)
        self._folder = folder
        folder.mkdir(parents=True)
        folder.chmod(0o777)  # the server runs as another user
        path = folder / "control"
        path.write_bytes(bytes(ctypes.sizeof(Control)))
        path.chmod(0o666)
        self._file = open(path, "r+b")
        self._memory = mmap.mmap(self._file.fileno(), 0)
        self._control = Control.from_buffer(self._memory)

    def env(self) -> dict[str, str]:
        """The environment of the server on this disk."""
        return {"LD_PRELOAD": str(self._library), "RIG_DISK": str(self._folder)}

    # ---- calls that fail -------------------------------------------------------------------------------------------

    def count(self, kind: str, call: str) -> int:
        """How many such calls there were."""
        return self._control.count[kind == HEAP][call == SYNC]

    def fail(self, kind: str, call: str, nth: int, error: str) -> None:
        """The nth such call from now on fails with EIO, ENOSPC, …"""
        self._control.error = getattr(errno, error)
        self._control.failed = 0
        self._control.fail_at[kind == HEAP][call == SYNC] = self.count(kind, call) + nth

    def heal(self) -> None:
        for kind in range(2):
            for call in range(2):
                self._control.fail_at[kind][call] = 0

    @property
    def has_failed(self) -> bool:
        return self._control.failed > 0

    # ---- the power cut ---------------------------------------------------------------------------------------------

    def is_unsynced(self) -> bool:
        """Would a cut take something?"""
        return any(kept.stat().st_size for kept in self._folder.iterdir() if kept.name != "control")

    def cut(self, wal: Path, dice: random.Random) -> Cut:
        """Takes writes back that no sync has followed. The server is dead; its WAL files are in `wal`."""
        cut = Cut(dice.choices([*LOSSES], [*LOSSES.values()])[0])
        for segment in sorted(path for path in wal.iterdir() if path.is_file()):
            kept = self._folder / str(segment.stat().st_ino)
            if kept.exists() and (writes := list(_writes(kept.read_bytes()))):
                cut.writes += len(writes)
                cut.sectors += _take_back(segment, writes, cut.how, dice)
        for kept in self._folder.iterdir():
            if kept.name != "control":
                kept.unlink()
        return cut


def _writes(kept: bytes) -> Iterator[Write]:
    at = 0
    while at + RECORD.size <= len(kept):
        offset, length, size, n = RECORD.unpack_from(kept, at)
        at += RECORD.size
        yield Write(offset, length, size, kept[at:at + n])
        at += n


def _states(content: bytearray, writes: list[Write], unit: int) -> dict[int, list[bytes]]:
    """The states of each unit since the last sync, the newest first. `content` becomes the oldest state."""
    states: dict[int, list[bytes]] = {}
    for write in reversed(writes):
        touched = range(write.offset // unit, (write.offset + write.length - 1) // unit + 1)
        for n in touched:
            states.setdefault(n, [bytes(content[n * unit:(n + 1) * unit])])
        content[write.offset:write.offset + len(write.before)] = write.before
        for n in touched:
            states[n].append(bytes(content[n * unit:(n + 1) * unit]))
    return states


def _take_back(segment: Path, writes: list[Write], how: str, dice: random.Random) -> int:
    """Returns how many sectors have another content now."""
    newest = segment.read_bytes()
    oldest = bytearray(newest)
    unit = PAGE if how == "pages survive" else SECTOR
    states = _states(oldest, writes, unit)
    if how == "all is lost":
        left = oldest[:min(write.size for write in writes)] if len(newest) > writes[0].size else oldest
    else:
        left, end = bytearray(newest), dice.choice(sorted(states))
        for n in sorted(states):
            state = dice.choice(states[n]) if how != "the end is lost" else states[n][0 if n < end else -1]
            left[n * unit:(n + 1) * unit] = state
    with open(segment, "r+b") as file:
        file.write(left)
        file.truncate(len(left))
    return sum(newest[at:at + SECTOR] != left[at:at + SECTOR] for at in range(0, len(newest), SECTOR))

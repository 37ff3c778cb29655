"""A wall clock of a server that tests can set. The monotonic clock is not changed, as on a machine whose clock is
set."""

import struct
from pathlib import Path

from .paths import ROOT
from .preload import compiled

SOURCE = ROOT / "test" / "rig" / "clock" / "clock.c"


class Clock:
    def __init__(self, file: Path):
        self._library = compiled(SOURCE)
        self._file = file
        self.offset = 0.0
        file.write_bytes(struct.pack("=q", 0))
        file.chmod(0o644)  # the server runs as another user

    def env(self) -> dict[str, str]:
        """The environment of the server with this clock."""
        return {"LD_PRELOAD": str(self._library), "RIG_CLOCK": str(self._file)}

    def step(self, seconds: float) -> None:
        """Moves the clock by this many seconds, forwards or backwards."""
        self.set(self.offset + seconds)

    def set(self, offset: float) -> None:
        """Sets the clock to this many seconds ahead of the machine's."""
        self.offset = offset
        with open(self._file, "r+b", buffering=0) as file:
            file.write(struct.pack("=q", round(offset * 1_000_000)))

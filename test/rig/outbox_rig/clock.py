"""A wall clock of a server that tests can set. The monotonic clock is not changed, as on a machine whose clock is
set."""

import struct
import subprocess
from pathlib import Path

from .paths import BUILD, ROOT

SOURCE = ROOT / "test" / "rig" / "clock" / "clock.c"
LIBRARY = BUILD / "clock" / "clock.so"


def _build() -> None:
    if LIBRARY.exists() and LIBRARY.stat().st_mtime > SOURCE.stat().st_mtime:
        return
    LIBRARY.parent.mkdir(parents=True, exist_ok=True)
    made = LIBRARY.with_suffix(".new")
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", made, SOURCE, "-ldl"], check=True)
    made.replace(LIBRARY)


class Clock:
    def __init__(self, file: Path):
        _build()
        self._file = file
        self.offset = 0.0
        file.write_bytes(struct.pack("=q", 0))
        file.chmod(0o644)  # the server runs as another user

    def env(self) -> dict[str, str]:
        """The environment of the server with this clock."""
        return {"LD_PRELOAD": str(LIBRARY), "RIG_CLOCK": str(self._file)}

    def step(self, seconds: float) -> None:
        """Moves the clock by this many seconds, forwards or backwards."""
        self.set(self.offset + seconds)

    def set(self, offset: float) -> None:
        """Sets the clock to this many seconds ahead of the machine's."""
        self.offset = offset
        with open(self._file, "r+b", buffering=0) as file:
            file.write(struct.pack("=q", round(offset * 1_000_000)))

"""Other librdkafka versions than the system's: the environment of a process that uses one of them."""

import re
from pathlib import Path

from .paths import BUILD

CURRENT = BUILD / "librdkafka" / "current"
TOO_OLD = BUILD / "librdkafka" / "too-old"


def version(which: Path) -> str:
    """The version of the headers."""
    header = (which / "include/librdkafka/rdkafka.h").read_text()
    number = int(re.search(r"#define RD_KAFKA_VERSION (0x\w+)", header)[1], 16)
    return ".".join(str(number >> shift & 0xFF) for shift in (24, 16, 8))


def environment(which: Path) -> dict[str, str]:
    """LIBRDKAFKA tells the tests which version the server must have loaded."""
    return {"LD_LIBRARY_PATH": str(which / "lib"), "LIBRDKAFKA": str(which)}


def loaded(pid: int) -> Path | None:
    """The library that a process has loaded."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "/librdkafka.so" in line:
            return Path(line.split(maxsplit=5)[5])
    return None

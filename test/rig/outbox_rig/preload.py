"""Libraries in C that the tests preload into a server."""

import subprocess
from pathlib import Path

from .paths import BUILD


def compiled(source: Path) -> Path:
    """The library made of this file, which is compiled when it has changed."""
    library = BUILD / "preload" / f"{source.stem}.so"
    if not library.exists() or library.stat().st_mtime <= source.stat().st_mtime:
        library.parent.mkdir(parents=True, exist_ok=True)
        made = library.with_suffix(".new")
        subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
        made.replace(library)
    return library

"""Libraries in C that the tests preload into a server."""

import subprocess
from pathlib import Path

from .paths import BUILD


def compiled(source: Path) -> Path:
    """The library made of this file, which is compiled when it or a header beside it has changed."""
    library = BUILD / "preload" / f"{source.stem}.so"
    changed = max(file.stat().st_mtime for file in (source, *source.parent.glob("*.h")))
    if not library.exists() or library.stat().st_mtime <= changed:
        library.parent.mkdir(parents=True, exist_ok=True)
        made = library.with_suffix(".new")
        subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
        made.replace(library)
    return library

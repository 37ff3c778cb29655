"""Where things are."""

import os
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD = ROOT / "build"
LOGS = BUILD / "logs"


@cache
def pg_config(what: str) -> Path:
    """A directory of the PostgreSQL under test: pg_config("bindir")."""
    program = os.environ.get("PG_CONFIG", "pg_config")
    return Path(subprocess.run([program, f"--{what}"], check=True, capture_output=True, text=True).stdout.strip())

"""Private copies of this machine's PostgreSQL installations, to install into."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from .paths import BUILD, LOGS, ROOT, pg_config

SYSTEM = Path("/usr/lib/postgresql")
OUTBOX = shutil.ignore_patterns("outbox*")  # from some earlier `make install`


def majors() -> list[int]:
    """The versions that are installed with headers, the oldest first."""
    return sorted(int(path.parent.parent.name) for path in SYSTEM.glob("*/bin/pg_config")
                  if Path(f"/usr/include/postgresql/{path.parent.parent.name}/server").is_dir())


def system(major: int) -> Path:
    """The bindir of the distribution's server."""
    return SYSTEM / f"{major}/bin"


def older() -> list[int]:
    """An older version than the one under test, if the latter is the system's too: pg_upgrade needs both with their
    fixes."""
    bindir = pg_config("bindir")
    return [major for major in majors() if bindir.is_relative_to(SYSTEM) and major < int(bindir.parent.name)]


def copy(root: Path, bindir: Path) -> Path:
    """Copies the installation of that bindir to `root`; PostgreSQL finds its files relative to its programs. Debian has
    them in lib/ and share/ of /usr, or of another folder. Returns the copy's bindir."""
    major = bindir.parent.name
    for part in ("lib", "share"):
        shutil.copytree(usr(bindir) / part / "postgresql" / major, root / "usr" / part / "postgresql" / major, symlinks=True,
                        ignore=OUTBOX)
    return root / f"usr/lib/postgresql/{major}/bin"


def usr(bindir: Path) -> Path:
    return bindir.parents[3]


def is_debian(bindir: Path) -> bool:
    return bindir.parts[-4:-2] == ("lib", "postgresql")


def see_headers(root: Path, bindir: Path) -> None:
    """Lets builds that use the copy's pg_config find the headers, and sets its libdir."""
    headers = root / "usr/include/postgresql"
    headers.parent.mkdir(parents=True, exist_ok=True)
    headers.symlink_to(usr(bindir) / "include/postgresql")
    (root / "usr/lib/x86_64-linux-gnu").mkdir()


def with_outbox(major: int) -> Path:
    """Returns the bindir of such a copy, with this checkout's outbox built for that version."""
    installed = system(major)
    version = subprocess.run([installed / "pg_config", "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
    root, source = BUILD / "installation" / version, BUILD / "installation" / f"{version}-source"
    shutil.rmtree(root, ignore_errors=True)
    bindir = copy(root, installed)
    see_headers(root, installed)
    # Only src/server must be compiled for that version, and only what has changed since the last time.
    for part in ("src/delivery", "sinks"):
        shutil.rmtree(source / part, ignore_errors=True)
    for path in [path for path in source.rglob("*") if path.is_file() and path.suffix != ".o"]:
        path.unlink()
    shutil.copytree(ROOT / "src", source / "src", dirs_exist_ok=True,
                    ignore=lambda folder, names: [name for name in names if ("/src/server" in folder or "/src/kit" in folder) and name.endswith(".o")])
    copy_kinds(source)
    for path in (ROOT / "Makefile", *ROOT.glob("outbox*.control")):
        shutil.copy2(path, source)
    make(source, bindir, f"installation-{version}")
    return bindir


def copy_kinds(source: Path) -> None:
    """Those that `make install` brings."""
    for kind in ("kafka", "webhook"):
        shutil.copytree(ROOT / "sinks" / kind, source / "sinks" / kind)


def make(source: Path, bindir: Path, log: str) -> None:
    """Builds outbox in `source` and installs it into that PostgreSQL."""
    with open(LOGS / f"{log}.log", "wb") as out:
        for goal in ("all", "install"):
            subprocess.run(["make", "-C", source, f"-j{os.cpu_count()}", f"PG_CONFIG={bindir}/pg_config", goal],
                           check=True, stdin=subprocess.DEVNULL, stdout=out, stderr=out)


def version_of(source: Path) -> str:
    return subprocess.run(["make", "-s", "-C", source, "version"], check=True, capture_output=True, text=True).stdout.strip()


def with_next_version(version: str, change: Callable[[Path, str], None]) -> Path:
    """Returns the bindir of a copy of the PostgreSQL under test with a later version of outbox, which
    `change(source, released)` makes of this checkout. It is made as src/extension/README.md describes: the script of
    the released version is kept, and an upgrade script leads from it to `version`."""
    root, source, under_test = BUILD / "installation/next", BUILD / "installation/next-source", pg_config("bindir")
    for folder in (root, source):
        shutil.rmtree(folder, ignore_errors=True)
    if is_debian(under_test):
        bindir = copy(root, under_test)
        see_headers(root, under_test)
    else:
        shutil.copytree(under_test.parent, root, symlinks=True, ignore=OUTBOX)
        bindir = root / "bin"

    shutil.copytree(ROOT / "src", source / "src")  # copies compiled files too
    copy_kinds(source)
    for path in (ROOT / "Makefile", *ROOT.glob("outbox*.control")):
        shutil.copy2(path, source)
    released = version_of(ROOT)
    versions = source / "src/extension/versions"
    versions.mkdir(exist_ok=True)
    shutil.copy2(ROOT / f"outbox--{released}.sql", versions)
    control = source / "outbox.control"
    control.write_text(control.read_text().replace(f"'{released}'", f"'{version}'"))
    change(source / "src/extension", f"{released}--{version}")
    make(source, bindir, "installation-next")
    return bindir

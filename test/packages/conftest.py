"""A copy of the system's PostgreSQL in a directory, to install packages into."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from outbox_rig import installation, wait_until
from outbox_rig.database import Database
from outbox_rig.paths import BUILD, ROOT
from outbox_rig.receiver import SECRET

VERSION = re.search(r"default_version = '(.+)'", (ROOT / "outbox.control").read_text())[1]


def run(*argv: str | Path, **options) -> str:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, cwd=options.pop("cwd", ROOT), **options)
    assert done.returncode == 0, f"{' '.join(map(str, argv))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


class System:
    """A private PostgreSQL below `root`."""

    def __init__(self, root: Path, major: int):
        self.root, self.major = root, major
        shutil.rmtree(root, ignore_errors=True)
        self.bindir = installation.copy(root, installation.system(major))
        self.before = self.files()

    def files(self) -> set[str]:
        """The files, except those of the package manager."""
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*")
                if not path.is_dir() and not str(path.relative_to(self.root)).startswith(("var/", "etc/alternatives"))}

    def brought(self) -> set[str]:
        return self.files() - self.before

    def delivers(self, rig, receiver) -> None:
        """CREATE EXTENSION, a sink and an event, with the files below `root`."""
        pg = rig.postgres(bindir=self.bindir)
        try:
            db = Database(pg, "installed")
            db.create()
            assert db.value("SELECT extversion FROM pg_extension WHERE extname = 'outbox'") == VERSION
            db.webhook_sink("crm", receiver, SECRET)
            db.enqueue("Order", "42", payload='"installed"')
            wait_until(lambda: [delivery.json()["data"] for delivery in receiver.accepted()] == ["installed"], 60, "the event")
            assert f"{self.root}/usr/lib/postgresql/{self.major}/lib/outbox.so" in Path(f"/proc/{pg.pid}/maps").read_text()
            db.disconnect()
        finally:
            pg.close()


@pytest.fixture
def system(request):
    root = BUILD / "packages" / request.node.name
    yield System(root, installation.majors()[-1])
    shutil.rmtree(root, ignore_errors=True)

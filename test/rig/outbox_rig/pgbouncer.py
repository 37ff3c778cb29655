"""PgBouncer in front of a server."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from .postgres import Postgres
from .process import Program, free_port

CONF = """\
[databases]
* = host={host} port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {dir}/users.txt
pool_mode = transaction
{settings}
"""


def version() -> tuple[int, ...]:
    said = subprocess.run(["pgbouncer", "--version"], capture_output=True, text=True, check=True, env=_env()).stdout
    return tuple(int(number) for number in re.search(r"PgBouncer (\d+)\.(\d+)", said).groups())


def _env() -> dict[str, str]:
    return os.environ | {"PATH": os.environ["PATH"] + ":/usr/sbin"}


class Pgbouncer(Program):
    def __init__(self, name: str, directory: Path, log: Path, pg: Postgres, **settings: str | int):
        """`settings`: of the section [pgbouncer]. Clients connect as postgres or app."""
        self.name, self.log, self.port = name, log, free_port()
        self.dir = tempfile.mkdtemp(prefix="outbox-", dir="/tmp")  # another user must be able to read it
        os.chmod(self.dir, 0o755)
        lines = "\n".join(f"{setting} = {value}" for setting, value in settings.items())
        (Path(self.dir) / "pgbouncer.ini").write_text(CONF.format(host=pg.host, server=pg.port, port=self.port, dir=self.dir, settings=lines))
        (Path(self.dir) / "users.txt").write_text('"postgres" ""\n"app" ""\n')

    def dsn(self, dbname: str, user: str = "postgres") -> str:
        return f"host=127.0.0.1 port={self.port} user={user} dbname={dbname}"

    def start(self) -> None:
        user = ["-u", "postgres"] if os.getuid() == 0 else []  # PgBouncer refuses to run as root
        self.run([shutil.which("pgbouncer", path=_env()["PATH"]), *user, f"{self.dir}/pgbouncer.ini"])
        self.wait_listening(20)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)

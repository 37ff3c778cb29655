"""A PostgreSQL server of its own, with the outbox and the kind of sink that are installed. It needs nothing of outbox's source tree."""

import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

SETTINGS = {
    "shared_preload_libraries": "outbox", "listen_addresses": "", "max_prepared_transactions": "50", "outbox.poll_interval": "1s",
    "log_min_messages": "info", "log_line_prefix": "%m [%p] %b %d ", "timezone": "UTC",
}
DATABASE = "sink_test"
CRASH = re.compile(r"terminated by signal(?! 9\b)|PANIC|\bTRAP:|terminate called|outbox (worker|launcher)\b.* ERROR: ")


class Server:
    def __init__(self, pg_config: str, max_in_flight: int):
        self._bindir = Path(subprocess.run([pg_config, "--bindir"], check=True, capture_output=True, text=True).stdout.strip())
        self.dir = Path(tempfile.mkdtemp(prefix="outbox-sink-test-", dir="/tmp"))
        self._as: list[str] = []
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            user = pwd.getpwnam("postgres")
            os.chown(self.dir, user.pw_uid, user.pw_gid)
            self._as = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]
        self.dir.chmod(0o755)
        self._data, self.log = self.dir / "data", self.dir / "server.log"
        self._log_read = 0
        self.database = DATABASE
        self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
        with open(self._data / "postgresql.conf", "a") as conf:
            for name, value in (SETTINGS | {"unix_socket_directories": str(self.dir), "outbox.max_in_flight": str(max_in_flight)}).items():
                conf.write(f"{name} = '{value}'\n")
        self.start()
        with self.connect("postgres") as admin:
            admin.execute(f"CREATE DATABASE {DATABASE}")

    def _run(self, program: str, *arguments: str | Path) -> None:
        done = subprocess.run([*self._as, self._bindir / program, *arguments], cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True)
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stdout[-2000:]}\nlog: {self.log}")

    def start(self) -> None:
        self._run("pg_ctl", "start", "-w", "-D", self._data, "-l", self.log)

    def stop(self, mode: str, limit_s: int = 60) -> None:
        self._run("pg_ctl", "stop", "-w", "-t", str(limit_s), "-D", self._data, "-m", mode)

    def connect(self, database: str = "") -> psycopg.Connection:
        return psycopg.connect(f"host={self.dir} user=postgres dbname={database or self.database}", autocommit=True, connect_timeout=10)

    def sql(self, query: str, *parameters) -> list[tuple]:
        """Runs a statement as soon as the server accepts it; only for statements that may run twice."""
        until = time.monotonic() + 60
        while True:
            try:
                with self.connect() as connection:
                    cursor = connection.execute(query, parameters or None)
                    return cursor.fetchall() if cursor.description else []
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def worker(self) -> int:
        """Its process, as soon as there is one."""
        until = time.monotonic() + 60
        while not (found := self.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'outbox worker' AND datname = current_database()")):
            if time.monotonic() > until:
                raise TimeoutError("no outbox worker started within 60 s")
            time.sleep(0.05)
        return found[0][0]

    def forget_crashes(self) -> None:
        """The pause before the next worker would be up to a minute after several."""
        for record in (self._data / "pg_stat").glob("outbox_crashes.*"):
            record.unlink(missing_ok=True)

    def crashes(self) -> list[str]:
        """The lines that the server has logged since the last call and that report a crash."""
        with open(self.log, errors="replace") as lines:
            lines.seek(self._log_read)
            found = [line.rstrip() for line in lines if CRASH.search(line)]
            self._log_read = self.log.stat().st_size
        return found

    def close(self, keep_files: bool) -> None:
        self.stop("immediate")
        if not keep_files:
            shutil.rmtree(self.dir)

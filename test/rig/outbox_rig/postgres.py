"""A private PostgreSQL server with outbox preloaded."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import psycopg

from . import memcheck
from .namespace import Namespace
from .paths import pg_config
from .process import Program, free_port
from .wait import patient, wait_until

# FSYNC=off: in suites that do not check what survives (suites.py). A fsync of a busy disk may take seconds.
DEFAULTS = {
    "fsync": os.environ.get("FSYNC", "on"),
    "shared_preload_libraries": "outbox",
    "listen_addresses": "",  # only the socket, in a directory that other users cannot enter
    "port": "5432",  # part of the socket's name
    "log_line_prefix": "%m [%p] %b %d ",
    "log_min_messages": "info",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "max_prepared_transactions": "10",
    "max_worker_processes": "16",
    "timezone": "UTC",
}


class Postgres(Program):
    STOP_S = 60  # of a fast shutdown

    def __init__(self, name: str, directory: Path, log: Path, settings: dict[str, str] = {},
                 standby_of: "Postgres | None" = None, copy_of: "Postgres | None" = None, wal: Path | None = None, tcp: bool = False,
                 env: dict[str, str] = {}, namespace: Namespace | None = None, bindir: Path | None = None,
                 checksums: bool = False, tablespaces: dict[Path, Path] = {}):
        """`standby_of`: streams from that server as its standby "standby". `copy_of`: a copy of that server, running
        on its own. `wal`: where to put pg_wal, with small segments. `tcp`: also accepts TCP connections with a
        password. `env`: in addition to our environment. `namespace`: where it runs; its socket can still be used
        from outside. `bindir`: of another installation than the one under test. `checksums`: data checksums, which
        older versions enable only on request. `tablespaces`: of the server that is copied, and where the copy has them."""
        self.name, self.dir, self.log = name, directory, log
        self._bindir, self._checksums, self._tablespaces = bindir or pg_config("bindir"), checksums, tablespaces
        self.data, self._wal = directory / "data", wal
        self._settings = DEFAULTS | settings
        self.env = dict(env)
        self._inside = namespace.command() if namespace else []
        self.port = 5432  # part of the socket's name
        if tcp:
            self.port = free_port()
            self._settings |= {"listen_addresses": "127.0.0.1", "port": str(self.port)}
        self._setpriv: list[str] = []
        # A socket's path has at most 107 bytes, and the repository may be in a deep directory.
        self.host = tempfile.mkdtemp(prefix="outbox-", dir="/tmp")
        directory.mkdir(parents=True)
        if os.getuid() == 0:
            self._become_postgres()
        if standby_of or copy_of:
            self._copy(standby_of or copy_of)
            if standby_of:
                (self.data / "standby.signal").touch()
                self._settings["primary_conninfo"] = f"{standby_of.dsn()} application_name=standby"
        else:
            self._initdb()
        self._configure(self._settings | {"unix_socket_directories": self.host})

    def _become_postgres(self) -> None:
        """PostgreSQL refuses to run as root."""
        user = pwd.getpwnam("postgres")
        for path in (self.dir, self.host):
            os.chown(path, user.pw_uid, user.pw_gid)
        self._setpriv = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        reachable = subprocess.run(["setpriv", *self._setpriv, "--", "test", "-x", str(self.dir)], cwd="/").returncode == 0
        if not reachable:  # under a closed home directory such as /root
            self._setpriv += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]

    def _run(self, *argv: str | Path, cwd: str | Path = "/", stdin: str = "") -> None:
        with open(self.log, "ab") as out:
            done = subprocess.run(["setpriv", *self._setpriv, "--", *map(str, argv)] if self._setpriv else [*map(str, argv)],
                                  input=stdin.encode(), stdout=out, stderr=out, cwd=cwd)
        if done.returncode:
            raise RuntimeError(f"{argv[0]} failed; see {self.log}")

    def _initdb(self) -> None:
        self._run(self._bindir / "initdb", "-D", self.data, "-U", "postgres", "--auth-local=trust", "--auth-host=scram-sha-256", "-E", "UTF8",
                  "--locale=C.UTF-8", "--no-sync", "--wal-segsize=" + ("1" if self._wal else "16"),
                  *([f"--waldir={self._wal}"] if self._wal else []), *(["--data-checksums"] if self._checksums else []))

    def _copy(self, primary: "Postgres") -> None:
        self._run(self._bindir / "pg_basebackup", "-D", self.data, "-d", primary.dsn(), "-c", "fast", "--no-sync",
                  *(f"--tablespace-mapping={old}={new}" for old, new in self._tablespaces.items()))

    def _configure(self, settings: dict[str, str]) -> None:
        with open(self.data / "postgresql.conf", "a") as conf:
            conf.writelines(f"{setting} = '{value}'\n" for setting, value in settings.items())

    # ---- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when the server accepts connections. The calling thread must outlive the server."""
        if self.running():
            return
        self.run([*memcheck.command(), str(self._bindir / "postgres"), "-D", str(self.data)],
                 stop_signal=signal.SIGINT, setpriv=self._setpriv, env=self.env, inside=self._inside)
        self.wait_ready()

    def wait_ready(self) -> None:
        """Waits until the server accepts connections: after the start, and after a crash of one of its processes."""
        wait_until(self._answers, 60, lambda: f"PostgreSQL to start; {self.log} ends:\n{self._process.tail()}")

    def _answers(self) -> bool:
        self._process.must_run()
        try:
            self.connect().close()
            return True
        except psycopg.OperationalError:
            return False

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.host, ignore_errors=True)

    def logged(self, since: int) -> str:
        """What the server has logged from this byte of its log on."""
        return self.log.read_bytes()[since:].decode(errors="replace")

    def restart(self, mode: str = "fast") -> None:
        self._process.signal({"fast": signal.SIGINT, "smart": signal.SIGTERM, "immediate": signal.SIGQUIT}[mode])
        self._process.wait(60)
        self.start()

    def kill(self) -> None:
        """Sends kill -9 to the postmaster and all its processes at once, as if the machine had stopped: none of them
        can flush anything more."""
        family = stopped_family(self._process.pid)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in family:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
        super().kill()
        wait_until(lambda: not any(alive(pid) for pid in family), 20, "the server's processes to be gone")

    def kill_postmaster(self) -> None:
        """Sends kill -9 to the postmaster alone. Returns when its children have exited by themselves."""
        family = stopped_family(self._process.pid)
        super().kill()
        wait_until(lambda: not any(alive(pid) for pid in family), 30, "the orphans to leave")

    def kill_child(self, pid: int) -> None:
        """Sends kill -9 to one process of the server; the postmaster then ends all others and restarts. Returns when
        it has restarted."""
        with self.connect() as witness:
            os.kill(pid, signal.SIGKILL)
            try:
                witness.execute("SELECT pg_sleep(60)")
            except psycopg.OperationalError:
                pass
        self.wait_ready()

    def forget_crashes(self) -> None:
        """The crash of a worker that runs now is not counted, so the next one starts without a pause."""
        for record in (self.data / "pg_stat").glob("outbox_crashes.*"):
            record.unlink(missing_ok=True)

    def promote(self) -> None:
        with self.connect() as connection:
            connection.execute("SELECT pg_promote()")

    def upgrade_from(self, old: "Postgres") -> None:
        """pg_upgrade --link; both servers are stopped, and this one is as initdb made it."""
        self._run(self._bindir / "pg_upgrade", "--link", "-U", "postgres", "-b", old._bindir, "-B", self._bindir, "-d", old.data, "-D", self.data,
                  "-s", self.host, cwd=self.dir)

    def alone(self, *statements: str) -> None:
        """Runs statements in single-user mode, without any library, while the server is stopped."""
        self._run(self._bindir / "postgres", "--single", "-D", self.data, "-c", "shared_preload_libraries=", "-c", "exit_on_error=on", "postgres",
                  stdin="".join(f"{statement}\n" for statement in statements))

    # ---- use -------------------------------------------------------------------------------------------------

    def dsn(self, dbname: str = "postgres", user: str = "postgres") -> str:
        return f"host={self.host} port={self.port} user={user} dbname={dbname}"

    def url(self, dbname: str = "postgres") -> str:
        """The same for clients that accept only a URL."""
        return f"postgresql:///{dbname}?host={self.host}&port={self.port}&user=postgres"

    def connect(self, dbname: str = "postgres", user: str = "postgres", autocommit: bool = True,
                **options) -> psycopg.Connection:
        return psycopg.connect(self.dsn(dbname, user), autocommit=autocommit, connect_timeout=int(patient(10)), **options)

    def reload(self) -> None:
        self._process.signal(signal.SIGHUP)

    def set(self, setting: str, value: str) -> None:
        """ALTER SYSTEM; waits until the server and its sessions have the new value."""
        self._alter(f"SET {setting} = '{value}'")

    def reset(self, *settings: str) -> None:
        """The same, to the values that they had when the server started."""
        self._alter(*(f"RESET {setting}" for setting in settings))

    def _alter(self, *changes: str) -> None:
        with self.connect() as admin:
            for change in changes:
                admin.execute(f"ALTER SYSTEM {change}")
            [altered] = admin.execute("SELECT clock_timestamp()").fetchone()
            admin.execute("SELECT pg_reload_conf()")
            wait_until(lambda: admin.execute("SELECT pg_conf_load_time() > %s", [altered]).fetchone()[0], 20, "the reload")


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def stopped_family(postmaster: int) -> list[int]:
    """Stops the postmaster, so that it starts no new process, and returns its children."""
    os.kill(postmaster, signal.SIGSTOP)
    wait_until(lambda: state(postmaster) == "T", 20, "the postmaster to stand still")
    return children(postmaster)


def state(pid: int | str) -> str | None:
    """The state that ps shows: R, S, T, Z, ...; None if there is no such process. For a thread: "pid/task/tid"."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def alive(pid: int) -> bool:
    """Whether any thread of the process lives: until the last one ends, the process holds its shared memory."""
    try:
        threads = [int(thread.name) for thread in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return False
    return any(state(f"{pid}/task/{thread}") not in (None, "Z", "X") for thread in threads)

"""A Redis server of its own: directory, port and settings are nobody else's."""

import shutil
import signal
from pathlib import Path

import redis
from outbox_rig.paths import BUILD
from outbox_rig.process import Process, free_port
from outbox_rig.wait import patient, wait_until


class RedisServer:
    def __init__(self, name: str, directory: Path, log: Path, tls: dict[str, str] = {}, settings: dict[str, str] = {}, replica_of: "RedisServer | None" = None):
        """`tls`: certificate, key and authority in PEM. `settings`: lines of redis.conf. What is acknowledged is on disk."""
        self.name, self.dir, self.log = name, directory, log
        self.port, self.tls_port = free_port(), free_port()
        directory.mkdir(parents=True)
        lines = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(directory), "daemonize": "no", "save": '""', "appendonly": "yes", "appendfsync": "always",
                 "repl-diskless-sync-delay": "0"} | settings
        if tls:
            for what, pem in tls.items():
                (directory / f"{what}.pem").write_text(pem)
            lines |= {"tls-port": str(self.tls_port), "tls-cert-file": f"{directory}/certificate.pem", "tls-key-file": f"{directory}/key.pem",
                      "tls-ca-cert-file": f"{directory}/authority.pem", "tls-auth-clients": "optional"}
        if replica_of:
            lines |= {"replicaof": f"127.0.0.1 {replica_of.port}"}
        (directory / "redis.conf").write_text("".join(f"{key} {value}\n" for key, value in lines.items()))
        self._process: Process | None = None

    # ---- life ------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, wait: bool = True) -> None:
        self._process = Process(self.name, ["redis-server", str(self.dir / "redis.conf")], self.log, pid_file=BUILD / "run" / f"{self.name}.pid")
        if wait:
            wait_until(self._answers, 60, lambda: f"Redis to start; {self.log} ends:\n{self._process.tail()}", interval=0.05)

    def _answers(self) -> bool:
        self._process.must_run()
        try:
            return self.client().ping()
        except redis.AuthenticationError:
            return True
        except (redis.ConnectionError, redis.BusyLoadingError):
            return False

    def kill(self) -> None:
        self._process.kill()

    def freeze(self) -> None:
        self._process.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process and self._process.running():
            self.thaw()
            self._process.stop(30)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)

    # ---- use -------------------------------------------------------------------------------------------------

    def client(self, **options) -> redis.Redis:
        return redis.Redis("127.0.0.1", self.port, socket_timeout=patient(5), **options)

    def config(self, **settings: str) -> None:
        client = self.client()
        for name, value in settings.items():
            client.config_set(name.replace("_", "-"), value)


class Stream:
    """The entries of a stream, read like a consumer without a group."""

    def __init__(self, server: RedisServer, name: str, database: int = 0):
        self.server, self.name, self.database = server, name, database
        self.entries: list[dict[str, str]] = []
        self._last = "-"

    def count(self) -> int:
        return self.server.client(db=self.database).xlen(self.name)

    def fields(self) -> list[list[tuple[bytes, bytes]]]:
        """All entries, as XRANGE shows their fields: in order."""
        return [list(fields.items()) for _, fields in self.server.client(db=self.database).xrange(self.name)]

    def read(self, n: int, seconds: float = 60) -> list[dict[str, str]]:
        """Reads until `n` entries have arrived in all."""
        client = self.server.client(db=self.database, decode_responses=True)

        def new() -> bool:
            found = client.xrange(self.name, self._last)
            if found:
                self._last = f"({found[-1][0]}"
                self.entries += [fields for _, fields in found]
            return len(self.entries) >= n

        wait_until(new, seconds, lambda: f"{n} entries; {len(self.entries)} have arrived", interval=0.05)
        return self.entries

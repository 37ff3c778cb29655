"""A NATS server of its own: directories and ports are nobody else's."""

import asyncio
import shutil
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import nats
from nats.js import JetStreamContext
from outbox_rig.paths import BUILD
from outbox_rig.process import Process, free_port
from outbox_rig.wait import patient, wait_until

T = TypeVar("T")
PROGRAM = shutil.which("nats-server", path="/usr/sbin:/usr/bin:/usr/local/bin") or "nats-server"


class Server:
    def __init__(self, name: str, directory: Path, log: Path, tls: dict[str, str] = {}, config: str = "", jetstream: str = "", login: dict = {}):
        """`tls`: certificate, key and authority in PEM. `config`: more lines of the configuration. `jetstream`: more of its block. `login`: of the
        tests' own connections."""
        self.name, self.dir, self.log, self.login = name, directory, log, login
        self.port = free_port()
        directory.mkdir(parents=True)
        lines = [f"listen: 127.0.0.1:{self.port}", f'server_name: "{name}"']
        if jetstream is not None:
            lines.append(f'jetstream {{ store_dir: "{directory}/store"; max_mem: 256MB; max_file: 4GB; {jetstream} }}')
        if tls:
            for what, pem in tls.items():
                (directory / f"{what}.pem").write_text(pem)
            lines.append(f'tls {{ cert_file: "{directory}/certificate.pem"; key_file: "{directory}/key.pem"; ca_file: "{directory}/authority.pem"; timeout: 5 }}')
            self.login = login | {"tls": _trusting(directory / "authority.pem")}
        self.config = directory / "nats.conf"
        self.config.write_text("\n".join([*lines, config]) + "\n")
        self._process: Process | None = None

    # ---- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._process = Process(self.name, [PROGRAM, "-c", str(self.config)], self.log, pid_file=BUILD / "run" / f"{self.name}.pid")
        wait_until(self._answers, 30, lambda: f"nats-server to start; {self.log} ends:\n{self._process.tail()}", interval=0.05)

    def _answers(self) -> bool:
        self._process.must_run()
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as peer:
                return peer.recv(5) == b"INFO " and "Server is ready" in self._process.tail(100)
        except OSError:
            return False

    def kill(self) -> None:
        self._process.signal(signal.SIGKILL)
        self._process.wait(20)

    def freeze(self) -> None:
        self._process.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.signal(signal.SIGCONT)

    def reload(self, config: str) -> None:
        """With other lines instead of those that were given as `config`."""
        kept = self.config.read_text().splitlines()[:3 if "tls {" not in self.config.read_text() else 4]
        self.config.write_text("\n".join([*kept, config]) + "\n")
        done = self.log.read_text().count("Reloaded server configuration")
        self._process.signal(signal.SIGHUP)
        wait_until(lambda: self.log.read_text().count("Reloaded server configuration") > done, 10, "the configuration to be read")

    def stop(self) -> None:
        if self._process and self._process.running():
            self.thaw()
            try:
                self._process.stop(15)
            except subprocess.TimeoutExpired:
                self.kill()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.dir / "store", ignore_errors=True)

    # ---- use -------------------------------------------------------------------------------------------------

    def run(self, work: Callable[[JetStreamContext], Awaitable[T]]) -> T:
        """Returns the result of `work`, with a connection of its own."""
        async def connected() -> T:
            client = await nats.connect(f"{'tls' if 'tls' in self.login else 'nats'}://127.0.0.1:{self.port}", connect_timeout=patient(5), allow_reconnect=False, **self.login)
            try:
                return await work(client.jetstream(timeout=patient(10)))
            finally:
                await client.close()

        return asyncio.run(connected())


def _trusting(authority: Path):
    import ssl
    return ssl.create_default_context(cafile=str(authority))

"""A child process with a log file, which never outlives this process."""

import fcntl
import os
import random
import re
import signal
import socket
import subprocess
from pathlib import Path

from .paths import BUILD
from .wait import patient, wait_until

_taken = open(f"/tmp/outbox-ports-{os.getuid()}", "a")  # each process locks the bytes of its ports' numbers in this file
_ours: set[int] = set()


def private_memory(pid: int) -> int:
    """Bytes of a process's anonymous memory, without shared buffers and libraries."""
    return int(re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1]) * 1024


def cpu_seconds(pid: int) -> float:
    """Seconds that a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """Reserves a port until this process ends: other runs on this machine do not use it, even while its part is
    down. The ports are below the ephemeral range: otherwise an outgoing connection could use the port while its part
    is down, and a client that connects to it could even connect to itself."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for _ in range(100):
        port = random.randrange(min(10000, lowest // 2), lowest)
        with socket.socket() as s:
            try:
                fcntl.lockf(_taken, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
                s.bind(("127.0.0.1", port))
            except OSError:
                continue  # the port is reserved or in use
        if port not in _ours:
            _ours.add(port)
            return port
    raise RuntimeError("no free port found")


class Part:
    """What a Rig starts and stops. As a context it is stopped at the end of the block."""

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.stop()


class Process:
    """The thread that starts it must outlive it: the kernel signals the child when the *thread* that started it
    ends."""

    def __init__(self, name: str, argv: list[str], log: Path, *, stop_signal: signal.Signals = signal.SIGTERM,
                 setpriv: list[str] = [], pid_file: Path | None = None, env: dict[str, str] = {}, inside: list[str] = []):
        """`inside`: a command prefix to run as root, for a namespace."""
        self.name, self.log, self.stop_signal, self.pid_file = name, log, stop_signal, pid_file
        # A session of its own: Ctrl-C goes to this process, which stops the parts in order.
        command = [*inside, "setpriv", *setpriv, "--pdeathsig", stop_signal.name.removeprefix("SIG"), "--", *argv]
        with open(log, "ab") as out:
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/",
                                           env=os.environ | env, start_new_session=True)
        if pid_file:
            pid_file.write_text(f"{self.pid}\n")

    @property
    def pid(self) -> int:
        return self._child.pid

    def running(self) -> bool:
        return self._child.poll() is None

    def must_run(self) -> None:
        """Raises RuntimeError with the end of the log if the process has ended."""
        if not self.running():
            raise RuntimeError(f"{self.name} ended with code {self._child.returncode}; {self.log} ends:\n{self.tail()}")

    def tail(self, lines: int = 20) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def signal(self, number: signal.Signals) -> None:
        if self.running():
            self._child.send_signal(number)

    def wait(self, timeout: float) -> None:
        self._child.wait(patient(timeout))

    def stop(self, timeout: float = 20) -> None:
        """Sends SIGTERM, waits, and kills the process if it has not ended."""
        self.signal(self.stop_signal)
        try:
            self.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        self._forget()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait(10)
        self._forget()

    def _forget(self) -> None:
        if self.pid_file:
            self.pid_file.unlink(missing_ok=True)


class Program(Part):
    """A part that is one process, `name` with the output in `log`."""

    STOP_S = 10  # after which it is killed
    name: str
    log: Path
    port: int
    _process: Process | None = None

    def run(self, argv: list[str], **options) -> None:
        """`options`: of Process."""
        self._process = Process(self.name, argv, self.log, pid_file=BUILD / "run" / f"{self.name}.pid", **options)

    def wait_listening(self, within: float) -> None:
        """Until it listens on its port; RuntimeError if it ends before."""
        def listening() -> bool:
            self._process.must_run()
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", self.port)) == 0

        wait_until(listening, within, lambda: f"{self.name} to listen; {self.log} ends:\n{self._process.tail()}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def running(self) -> bool:
        return self._process is not None and self._process.running()

    def stop(self) -> None:
        if self._process:
            self._process.stop(self.STOP_S)

    def kill(self) -> None:
        """Sends kill -9."""
        self._process.kill()

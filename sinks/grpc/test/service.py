"""The gRPC server as the tests see it."""

import json
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from outbox_rig.process import Process, free_port
from outbox_rig.wait import wait_until

import stubs
from stubs import sink_pb2

HERE = Path(__file__).resolve().parent


@dataclass
class Call:
    method: str
    message: bytes
    metadata: dict[str, str]
    deadline: float | None
    peer: str
    user: list[str]
    code: str

    @property
    def event(self):
        return sink_pb2.Event.FromString(self.message)

    @property
    def id(self) -> str:
        return self.metadata["outbox-id"]


class Service:
    def __init__(self, name: str, directory: Path, log: Path, tls: dict[str, str] = {}, **options: int):
        """`tls`: certificate, key and authority in PEM; clients must have a certificate of that authority. `options` of gRPC, without "grpc."."""
        self.name, self.dir, self.log, self.port = name, directory, log, free_port()
        self.tls, self._options = bool(tls), [f"{key}={value}" for key, value in options.items()] + ["tls"] * bool(tls)
        directory.mkdir(parents=True, exist_ok=True)
        for what, pem in tls.items():
            (directory / f"{what}.pem").write_text(pem)
        self._read_bytes = 0
        self.calls: list[Call] = []
        self._process: Process | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    # ---- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._process = Process(self.name, [sys.executable, str(HERE / "server.py"), str(self.port), str(self.dir), *self._options], self.log,
                                env={"STUBS": str(stubs.FOLDER)})
        wait_until(self._answers, 60, lambda: f"{self.name} to start; {self.log} ends:\n{self._process.tail()}")

    def _answers(self) -> bool:
        self._process.must_run()
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        self._process.signal(signal.SIGKILL)
        self._process.wait(20)

    def freeze(self) -> None:
        self._process.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.signal(signal.SIGCONT)

    def stop(self) -> None:
        self._process.signal(signal.SIGCONT)
        self._process.stop()

    close = stop

    # ---- use -------------------------------------------------------------------------------------------------

    def behave(self, **behaviour) -> None:
        part = self.dir / "behaviour.part"
        part.write_text(json.dumps(behaviour))
        part.rename(self.dir / "behaviour")

    def read(self) -> list[Call]:
        """All calls so far."""
        file = self.dir / "calls"
        if file.exists():
            with open(file, "rb") as lines:
                lines.seek(self._read_bytes)
                for line in lines:
                    if not line.endswith(b"\n"):
                        break  # it is still being written
                    self._read_bytes += len(line)
                    fields = json.loads(line)
                    self.calls.append(Call(**fields | {"message": bytes.fromhex(fields["message"])}))
        return self.calls

    def wait_for(self, n: int, seconds: float = 60) -> list[Call]:
        """Waits until there were `n` calls that were answered with OK."""
        return wait_until(lambda: (taken := [call for call in self.read() if call.code == "OK"]) and len(taken) >= n and taken, seconds,
                          lambda: f"{n} calls, of {len(self.calls)}")

"""One of examples/: a small order service and the consumer of its events, run as its README describes."""

import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from .paths import LOGS, ROOT
from .rig import Rig
from .service import Service
from .wait import patient, wait_until

STARTS = 300  # maximum in seconds: a JVM on a busy machine


class Example:
    def __init__(self, rig: Rig, stack: str, env: dict[str, str]):
        """`env`: the addresses of the database and the broker."""
        self.dir, self._env = ROOT / "examples" / stack, env
        self.service, self.consumer = (self._part(rig, part) for part in ("service", "consumer"))

    def _part(self, rig: Rig, part: str) -> Service:
        """Returns a part that is not yet started."""
        return rig.service(argv=[str(self.dir / part)], env=self._env | {"PORT": "{port}"}, start=False)

    def start_service(self) -> None:
        self.service.start(within=STARTS)
        wait_until(lambda: self.call("/health")[0] == 200, STARTS, lambda: f"the service to be ready:\n{self.service.printed()}")

    def call(self, path: str, body: object = None) -> tuple[int, dict]:
        """Sends JSON by POST, or a GET. Returns (status, response)."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.service.port}{path}", headers={"Content-Type": "application/json"},
                                         data=None if body is None else json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=patient(30)) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        return status, json.loads(text) if text.startswith(b"{") else {}


def prepare(stack: str, step: str, env: dict[str, str] = {}) -> None:
    """Runs `build` or `migrate` to the end. `build` downloads packages, so it gets three tries."""
    log = LOGS / f"example-{stack}-{step}.log"
    tries = ["bash", "-euc", '. test/rig/env.sh; again "$0"'] if step == "build" else []
    with open(log, "wb") as out:
        done = subprocess.run([*tries, ROOT / "examples" / stack / step], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                              env=os.environ | env, cwd=ROOT, timeout=patient(600))
    assert done.returncode == 0, f"{step} ended with code {done.returncode}:\n{_end(log)}"


def _end(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-30:])

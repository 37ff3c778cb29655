"""Executes a Dockerfile without Docker: a folder for each stage, its RUN and COPY steps in order."""

import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from outbox_rig.paths import ROOT

HERE = Path(__file__).parent


@dataclass
class Stage:
    root: Path
    env: dict[str, str] = field(default_factory=dict)
    user: str = "root"
    command: list[str] = field(default_factory=list)


def steps(dockerfile: Path) -> list[tuple[str, str]]:
    lines = [line for line in dockerfile.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    text = re.sub(r"\\\n", " ", "\n".join(lines))
    return [(verb, rest.strip()) for verb, rest in (line.split(None, 1) for line in text.splitlines())]


class Build:
    def __init__(self, dockerfile: Path, folder: Path, log: Path):
        self.folder, self.log = folder, log
        self._arguments: dict[str, str] = {}  # instructions before the first FROM
        self._stages: dict[str, Stage] = {}
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        log.unlink(missing_ok=True)
        self.stage: Stage | None = None
        for verb, rest in steps(dockerfile):
            getattr(self, f"_{verb.lower()}")(rest)

    def _run_logged(self, *argv: str) -> None:
        with open(self.log, "a") as out:
            out.write(f"+ {shlex.join(argv)}\n")
            out.flush()
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        assert done.returncode == 0, f"{shlex.join(argv)}\n" + "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])

    def _arg(self, rest: str) -> None:
        name, _, value = rest.partition("=")
        if self.stage:
            self.stage.env[name] = value or self._arguments[name]
        else:
            self._arguments[name] = os.environ.get(name, value)

    def _from(self, rest: str) -> None:
        image, _, name = re.sub(r"\$\{(\w+)\}", lambda match: self._arguments[match[1]], rest).partition(" AS ")
        major = "17" if image == "debian:trixie-slim" else re.sub(r"^postgres:(\d+)-trixie$", r"\1", image)  # the same release, with more packages
        assert major.isdigit(), f"no folder stands for the image {image}"
        base = subprocess.run([HERE / "base", major], check=True, capture_output=True, text=True).stdout.strip()
        root = self.folder / f"stage{len(self._stages)}"
        self._run_logged("cp", "-a", base, str(root))
        self.stage = self._stages[name or "last"] = Stage(root)

    def _run(self, rest: str) -> None:
        self._run_logged(str(HERE / "enter"), "--network", str(self.stage.root), "env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                         *(f"{name}={value}" for name, value in self.stage.env.items()), "/bin/sh", "-c", rest)

    def _copy(self, rest: str) -> None:
        *sources, target = shlex.split(rest)
        origin = ROOT
        if sources[0].startswith("--from="):
            origin = self._stages[sources.pop(0).removeprefix("--from=")].root
        to = self.stage.root / target.lstrip("/")
        for source in sources:
            path = origin / source.lstrip("/")
            if path.is_dir():  # the folder's contents
                to.mkdir(parents=True, exist_ok=True)
                self._run_logged("cp", "-a", "--no-preserve=ownership", f"{path}/.", f"{to}/")
            else:
                (to if target.endswith("/") else to.parent).mkdir(parents=True, exist_ok=True)
                self._run_logged("cp", "-a", "--no-preserve=ownership", str(path), str(to))

    def _user(self, rest: str) -> None:
        self.stage.user = rest

    def _cmd(self, rest: str) -> None:
        self.stage.command = json.loads(rest)

    _entrypoint = _cmd

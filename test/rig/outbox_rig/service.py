"""A program that listens on a port, such as a consumer of webhooks."""

from pathlib import Path

from .process import Program, free_port


class Service(Program):
    def __init__(self, name: str, directory: Path, log: Path, argv: list[str], env: dict[str, str] = {}, more: list[str] = []):
        """`argv` and `env`: {port} is replaced. `more`: arguments of the first start."""
        self.name, self.dir, self.log = name, directory, log
        self.port = free_port()
        self.argv = [each.replace("{port}", str(self.port)) for each in argv]
        self._env = {key: value.replace("{port}", str(self.port)) for key, value in env.items()}
        self._first = more

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks"

    def start(self, *more: str, listens: bool = True, within: float = 20) -> None:
        """`more`: arguments of this start. `within`: seconds until it listens, if it `listens` at all. After a
        stop or a kill it listens on the same port."""
        first, self._first = self._first, []
        self.run([*self.argv, *first, *more], env=self._env)
        if listens:
            self.wait_listening(within)

    def printed(self) -> str:
        return self.log.read_text(errors="replace")

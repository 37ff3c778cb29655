"""Parses what nginx logs about its requests."""

from dataclasses import dataclass
from pathlib import Path


@dataclass
class Attempt:
    status: int
    id: str
    at: float
    connection: str

    def accepted(self) -> bool:
        return 200 <= self.status < 300


def read_attempts(log: Path, where: str) -> list[Attempt]:
    """Parses lines such as "$request_uri $status $http_webhook_id $msec $connection" that begin with `where`."""
    lines = (line.split() for line in log.read_text().splitlines())
    return [Attempt(int(status), event, float(at), connection) for first, status, event, at, connection in lines if first == where]

"""Requests as other senders make them, and numbered events of ours."""

import http.client
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from urllib.parse import urlsplit

from outbox_rig import patient
from outbox_rig.database import Database
from outbox_rig.receiver import SECRET
from outbox_rig.traffic import check
from outbox_rig.writers import Writers
from standardwebhooks import Webhook


def post(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=patient(20))
    try:
        connection.request("POST", parts.path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def signed(event_id: str, body: str, age: float = 0, secret: str = SECRET, prefix: str = "webhook") -> dict[str, str]:
    """The headers of a request that the official library signed `age` seconds ago."""
    at = datetime.now(timezone.utc) - timedelta(seconds=age)
    return {"content-type": "application/json", f"{prefix}-id": event_id, f"{prefix}-timestamp": str(int(at.timestamp())),
            f"{prefix}-signature": Webhook(secret).sign(event_id, at, body)}


class Background(Writers):
    """Runs a function on a thread for the duration of a `with` block, and waits for its end."""

    def __init__(self, function: Callable[[], None]):
        super().__init__(1)
        self._function = function

    def write(self, _: int) -> None:
        self._function()


class Stream:
    """Numbered events of several keys, for the sink that takes this aggregate type. It is no Traffic: a test determines the
    number and the payload of its events, and of those that arrived, it knows the ids alone."""

    def __init__(self, db: Database, aggregate: str, keys: int = 10):
        self._db, self._aggregate, self._keys = db, aggregate, keys
        self.written: dict[str, tuple[str, int]] = {}  # id: key and number within the key
        self._numbers: dict[str, int] = defaultdict(int)

    def write(self, count: int, payload: dict = {}) -> None:
        """Writes in transactions of 20 events."""
        with self._db.connect(autocommit=False) as connection:
            for first in range(0, count, 20):
                for n in range(first, min(first + 20, count)):
                    key = f"{self._aggregate}-{n % self._keys}"
                    self._numbers[key] += 1
                    [(event,)] = connection.execute("SELECT outbox.enqueue(%s, %s::text, 'order.changed', %s::jsonb)::text",
                                                    [self._aggregate, key, json.dumps(payload | {"n": self._numbers[key]})]).fetchall()
                    self.written[event] = (key, self._numbers[key])
                connection.commit()

    def without(self, events: Iterable[str]) -> None:
        """These events are not expected to arrive."""
        for event in events:
            del self.written[event]

    def check(self, arrived: Iterable[str]) -> int:
        """`arrived`: the accepted ids in order. No event is lost, none is unknown, each key is in order. Returns the
        number of duplicates."""
        return check({number: event for event, number in self.written.items()}, ((event, self.written.get(event)) for event in arrived))

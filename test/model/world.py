"""world.py: the real side: one server, one database and one endpoint for all examples. Between examples the tables are emptied, because a new database
for each would take longer than its steps."""

import time
from collections import Counter

from outbox_rig.database import Database
from outbox_rig.receiver import OK, Receiver, status

SESSIONS = 3
READ_ROWS = """SELECT id::text, coalesce(sink, ''), status, coalesce(partition_key, '(none)'), CASE WHEN status = 'SENT' THEN -1 ELSE attempts END,
                      status = 'PENDING' AND coalesce(available_at > clock_timestamp(), false), status <> 'SENT' AND overtaken_by IS NOT NULL,
                      coalesce(payload::text, encode(payload_bytes, 'hex'), ''), coalesce(headers::text, '') FROM outbox.events"""
READ_SINKS = """SELECT name::text, CASE WHEN state IN ('paused', 'dropped', 'circuit open', 'misconfigured', 'no worker') OR state ~ '^disabled' THEN state ELSE '' END,
                       pending, scheduled, failing, blocked, dead, delivered, retried, dead_total, redriven_late, in_flight FROM outbox.sinks"""
CLEAR = """DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT s.srvname FROM pg_foreign_server AS s LOOP EXECUTE format('DROP SERVER %I CASCADE', name); END LOOP;
  DELETE FROM outbox.events; DELETE FROM outbox_internal.dedup; DELETE FROM outbox.leases;
  DELETE FROM outbox.stopped_sinks; DELETE FROM outbox_inbox.processed_events; END $$"""


class World:
    def __init__(self, pg, receiver: Receiver):
        self.db = Database(pg, "model")
        self.db.create()
        self.db.sql("CREATE EXTENSION outbox_inbox; CREATE EXTENSION outbox_manual")
        self.receiver = receiver
        self.bad: set[str] = set()
        receiver.mode = lambda delivery: status(400) if delivery.id in self.bad else OK
        self.admin = self.db.connect()
        self.admin.execute("SET client_min_messages = error")
        self.sessions = [self.db.connect() for _ in range(SESSIONS)]
        self.examples = self.steps = 0
        self.calls: Counter = Counter()

    def clear(self) -> None:
        for session in self.sessions:
            session.rollback()
        for (gid,) in self.admin.execute("SELECT gid FROM pg_prepared_xacts").fetchall():
            self.admin.execute(f"ROLLBACK PREPARED '{gid}'")
        self.bad.clear()
        self.admin.execute(CLEAR)
        self.receiver.clear()

    def count(self, statement: str, failed: bool) -> None:
        self.calls[" ".join(statement.split("(")[0].split()[:2]) + (" (error)" if failed else "")] += 1

    def url(self, number: int) -> str:
        return f"{self.receiver.url}/{self.examples}/{number}"

    def log(self, number: int) -> list[str]:
        path = f"/hook/{self.examples}/{number}"
        return [d.id for d in self.receiver.accepted() if d.path == path]

    def close(self) -> None:
        for session in [self.admin, *self.sessions]:
            session.close()
        self.db.drop()


def until(reading, wanted, seconds: float):
    """Returns the first reading that is as wanted, else the last one."""
    deadline, pause = time.monotonic() + seconds, 0.001
    while (seen := reading()) != wanted and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    return seen

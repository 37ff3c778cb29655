"""During a migration, a hand-written dispatcher works on the same table as the worker: no event is lost."""

import json
import threading
import urllib.request

import psycopg
import pytest
from outbox_rig import patient, wait_until
from outbox_rig.receiver import SECRET, slow
from outbox_rig.traffic import Traffic


class Dispatcher:
    """A dispatcher as articles show it: lock a batch, send it, mark it as sent, commit."""

    def __init__(self, db, url: str, mark: str):
        self.db, self.url, self._mark = db, url, mark
        self.stopping = threading.Event()
        self.errors: list[Exception] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Dispatcher":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.stopping.set()
        self._thread.join()
        if self.errors:
            raise self.errors[0]

    def _run(self) -> None:
        try:
            with self.db.connect(autocommit=False) as connection:
                while not self.stopping.is_set():
                    try:
                        found = self._batch(connection)
                    except psycopg.errors.SerializationFailure:  # other dispatchers move rows under its SKIP LOCKED
                        connection.rollback()
                        found = True
                    if not found:
                        self.stopping.wait(0.05)
        except Exception as e:
            self.errors.append(e)

    def _batch(self, connection) -> bool:
        rows = connection.execute("SELECT id, payload FROM outbox.events WHERE status = 'PENDING' ORDER BY position"
                                  " LIMIT 100 FOR UPDATE SKIP LOCKED").fetchall()
        for event, payload in rows:
            body = json.dumps({"data": payload}).encode()
            urllib.request.urlopen(urllib.request.Request(self.url, body, {"webhook-id": str(event)}), timeout=patient(10)).close()
        connection.execute(f"UPDATE outbox.events SET {self._mark} WHERE id = ANY (%s)", [[row[0] for row in rows]])
        connection.commit()
        return bool(rows)


@pytest.mark.parametrize(("workers", "mark"), [(1, "status = 'SENT'"), (3, "sent_at = now()")])
def test_a_dispatcher_beside_ours(db, rig, receiver, setting, workers, mark):
    theirs = rig.receiver()
    setting("outbox.workers", str(workers))
    db.webhook_sink("crm", receiver, SECRET)
    wait_until(lambda: db.sql("SELECT 1 FROM pg_inherits WHERE inhparent = 'outbox.events_sent'::regclass"), 20, "the days of SENT")
    receiver.mode = slow(0.2)  # so that both get some events
    try:
        with Traffic(db, "Order", writers=3) as traffic, Dispatcher(db, theirs.url, mark), Dispatcher(db, theirs.url, mark):
            wait_until(lambda: traffic.committed > 400 and len(receiver.deliveries) > 100 and len(theirs.deliveries) > 100, 60,
                       lambda: f"both to work: {len(receiver.deliveries)} and {len(theirs.deliveries)}")
        wait_until(lambda: db.pending() == 0, 30, lambda: f"{db.pending()} rows to leave")
        expected = traffic.expected()
        ours, hand = {d.id for d in receiver.accepted()}, {d.id for d in theirs.accepted()}
        assert not expected - ours - hand, "lost"
        assert not (ours | hand) - expected, "phantoms"
        assert ours - hand and hand - ours, "both must have been at work"
        marked = {row[0] for row in db.sql("SELECT id::text FROM outbox.events WHERE status = 'SENT'")}
        assert marked <= hand, "what is marked as sent by hand was sent by hand"

        # The dispatchers have ended: the worker continues with every key in order. (Requests of earlier events may
        # still be in flight.)
        for n in range(2):
            for key in {event[1] for t in traffic.transactions.values() for event in t.events}:
                db.enqueue("Order", key, payload=json.dumps({"key": key, "alone": n}))
        wait_until(lambda: db.pending() == 0, 30, lambda: f"{db.pending()} rows to leave")
        last: dict[str, int] = {}
        for data in (d.json()["data"] for d in receiver.accepted()):
            if "alone" in data:
                assert data["alone"] == last.get(data["key"], -1) + 1
                last[data["key"]] = data["alone"]
        assert set(last.values()) == {1}
    finally:
        theirs.stop()

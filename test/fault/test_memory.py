"""The worker's memory is bounded, whatever waits and whichever peer hangs."""

import os
import signal
import socket

import pytest
from outbox_rig import BUILD, wait_until
from outbox_rig.process import private_memory
from outbox_rig.receiver import SECRET

pytestmark = pytest.mark.slow

LIMIT = 100 * 2**20  # of the worker's private memory


class Memory:
    """The highest value for this database's worker."""

    def __init__(self, db):
        self.db, self.peak = db, 0

    def look(self) -> bool:
        """Always true, so that it can be part of a condition."""
        for (pid,) in self.db.sql("SELECT pid FROM outbox.workers WHERE database = current_database()"):
            self.peak = max(self.peak, private_memory(pid))
        return True

    def settle(self) -> int:
        """The peak, after two more rounds of the worker."""
        for _ in range(2):
            since = self.db.value("SELECT clock_timestamp()")
            wait_until(lambda: self.db.value("SELECT count(*) FROM outbox.workers WHERE database = current_database() "
                                             "AND last_loop_at > %s + interval '1s'", since), 30, "the worker to go round its loop")
            self.look()
        assert self.peak > 0
        return self.peak


@pytest.fixture
def memory(db):
    return Memory(db)


def enqueue_large(db, events: int) -> None:
    """Events of 100 kB of text that neither the table nor the wire can compress."""
    db.sql(f"""INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload)
               SELECT 'Order', n, 'large', jsonb_build_object('n', n, 'text', large)
               FROM (SELECT string_agg(md5(i::text), '') AS large FROM generate_series(1, 3125) AS i) AS one, generate_series(1, {events}) AS n""")


def test_large_payloads_and_a_broker_that_hangs(db, kafka, memory):
    """150 MB are pending, and librdkafka takes as much of them as it may."""
    db.kafka_sink("main", kafka)
    db.enqueue("Order", "0")
    wait_until(lambda: db.pending() == 0, 60, "the first event")
    broker = int((BUILD / "run" / f"{kafka.name}.pid").read_text())
    os.kill(broker, signal.SIGSTOP)
    try:
        enqueue_large(db, 1500)
        wait_until(lambda: db.value("SELECT in_flight > 100 FROM outbox_internal.sink_statistics()"), 30, "events in the air")
        assert memory.settle() < LIMIT
    finally:
        os.kill(broker, signal.SIGCONT)
    wait_until(lambda: memory.look() and db.pending() == 0, 60, "all of them to go")
    assert memory.settle() < LIMIT


def test_large_payloads_and_an_endpoint_that_never_answers(db, memory):
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as silent:
        db.webhook_sink("main", f"http://127.0.0.1:{silent.getsockname()[1]}/", SECRET, concurrency="256", timeout="1min")
        enqueue_large(db, 1500)
        wait_until(lambda: db.value("SELECT in_flight > 100 FROM outbox_internal.sink_statistics()"), 30, "events in the air")
        assert memory.settle() < LIMIT


def test_many_blocked_keys(rig, db, memory):
    """Each key waits for a failing event of its own with rows behind it; after a restart the worker learns them from
    the rows."""
    keys, behind = 10_000, 10
    nginx = rig.nginx(locations="location / { if ($http_x_bad) { return 422; } return 204; }")
    db.webhook_sink("main", nginx.url, SECRET, concurrency="64", forward_headers="x-bad", retry="1d", max_attempts="1000")
    db.enqueue("Order", "first")
    wait_until(lambda: db.pending() == 0, 60, "the first event")
    before = memory.settle()
    db.sql(f"""INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, headers)
               SELECT 'Order', n % {keys}, 'order.created', CASE WHEN n <= {keys} THEN jsonb '{{"x-bad": "1"}}' END
               FROM generate_series(1, {keys * (1 + behind)}) AS n""")
    held = "SELECT count(*) FROM outbox.events_pending WHERE blocked_by IS NOT NULL"
    wait_until(lambda: memory.look() and db.value(held) == keys * behind, 90, lambda: f"all to be marked: {db.value(held)}", interval=0.5)
    grown = memory.settle() - before
    assert grown < keys * 2000, "a few hundred bytes a key, whatever waits behind it"
    worker = "SELECT pid FROM outbox.workers WHERE database = current_database()"
    old = db.value(worker)
    db.sql("SELECT pg_terminate_backend(%s)", old)
    wait_until(lambda: db.value(worker) not in (None, old), 30, "the next worker")
    db.enqueue("Order", "free")
    wait_until(lambda: db.pending() == keys * (1 + behind), 30, "an event of another key")
    assert db.value(held) == keys * behind
    assert memory.settle() < LIMIT
    nginx.stop()

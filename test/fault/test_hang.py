"""An endpoint that never responds delays nothing else: no transaction, no lock, no command, no other sink."""

import os
import signal
import threading
import time
from collections import Counter

import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.postgres import alive
from outbox_rig.receiver import HANG, OK, SECRET

WORKER = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'outbox worker' AND datname = %s"


@pytest.fixture
def hanging(db, receiver):
    """A database with a webhook request in flight that gets no response for the duration of the test."""
    receiver.mode = HANG
    db.webhook_sink("crm", receiver, SECRET, events="order.hangs", timeout="5min")
    db.enqueue("Order", "1", "order.hangs")
    wait_until(lambda: receiver.open_requests, 20, "the request")
    return db


@pytest.mark.slow
def test_nothing_is_held_while_an_endpoint_hangs(hanging, kafka, consume, aggregate):
    """Neither while the worker is idle nor while another of its sinks is busy."""
    db = hanging
    db.kafka_sink("main", kafka, aggregates=aggregate)
    worker = db.value(WORKER, db.name)
    [(in_flight,)] = db.sql("SELECT position FROM outbox.events_pending WHERE event_type = 'order.hangs'")
    held: Counter = Counter()  # the worker's transactions, and in how many samples in a row
    with_xmin = 0
    sent = []
    samples = 150  # 30 s
    for n in range(samples):
        if n >= samples // 2:
            sent.append(db.enqueue(aggregate, "k"))
        began, xmin = db.sql("SELECT xact_start, backend_xmin FROM pg_stat_activity WHERE pid = %s", worker)[0]
        with_xmin += xmin is not None
        locks = db.sql("SELECT virtualtransaction, locktype FROM pg_locks WHERE pid = %s", worker)
        assert not [lock for lock in locks if lock[1] == "advisory"]
        # The short transactions of its rounds may be observed, also while the disk is slow, but not for long. (A
        # transaction that is just ending shows as 'N/0'.)
        held = Counter({transaction: held[transaction] + 1 for transaction in {began, *(lock[0] for lock in locks)} - {None}})
        assert max(held.values(), default=0) < samples / 6, held
        # The row of the event on the wire is not locked.
        assert db.sql("SELECT 1 FROM outbox.events_pending WHERE position = %s FOR UPDATE NOWAIT", in_flight) == [(1,)]
        time.sleep(0.2)
    assert with_xmin < samples / 4
    assert [r.id for r in consume(f"outbox.event.{aggregate}").take(len(sent))] == sent
    assert db.value("SELECT in_flight FROM outbox.sinks WHERE name = 'crm'") == 1, "the endpoint must still hang"


def test_terminate_worker(hanging, receiver):
    db = hanging
    worker = db.value(WORKER, db.name)
    receiver.mode = OK  # for the next request
    assert db.value("SELECT pg_terminate_backend(%s, 60000)", worker)
    wait_until(receiver.accepted, 20, "the next worker to send it again")
    assert db.value(WORKER, db.name) != worker
    wait_until(lambda: db.pending() == 0, 10, "the row to leave")


def test_reload(hanging, setting):
    db = hanging

    moments: set[str] = set()  # of the worker's rounds

    def rounds() -> int:
        moments.add(db.value("SELECT last_loop_at FROM outbox.workers WHERE database = %s", db.name))
        return len(moments)

    def silent() -> bool:
        before = rounds()
        time.sleep(1.5)  # longer than the interval before
        return rounds() == before

    setting("outbox.poll_interval", "1h")
    wait_until(silent, 15, "the worker to fall silent")
    before = rounds()
    setting("outbox.poll_interval", "100ms")
    wait_until(lambda: rounds() >= before + 5, 10, "the worker's rounds")


@pytest.mark.parametrize("mode, number", [("fast", signal.SIGINT), ("smart", signal.SIGTERM)])
def test_stop_server(hanging, pg, receiver, mode, number):
    db = hanging
    db.disconnect()
    os.kill(pg.pid, number)
    wait_until(lambda: not alive(pg.pid), 20, "the server to stop")
    receiver.mode = OK  # for the next request
    pg.start()
    wait_until(receiver.accepted, 20, "delivery after the restart")
    wait_until(lambda: db.pending() == 0, 10, "the row to leave")


def test_a_slot_is_free_when_its_threads_have_ended(hanging, pg):
    """The next worker must not send beside the old one's threads. A worker whose extension is dropped ends
    immediately."""
    db = hanging
    for n in range(30):  # each sink has threads that end slowly
        db.sql(f"CREATE SERVER main{n} FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', aggregates 'none')")
    worker = db.value(WORKER, db.name)
    witness = Database(pg, "hang_witness").create()

    def threads() -> int:
        try:
            return len(os.listdir(f"/proc/{worker}/task"))
        except FileNotFoundError:
            return 0

    wait_until(lambda: threads() > 60, 30, "the threads")
    person = threading.Thread(target=db.sql, args=["DROP EXTENSION outbox CASCADE"])
    person.start()
    wait_until(lambda: not witness.sql("SELECT 1 FROM outbox.workers WHERE pid = %s", worker), 20, "the slot", interval=0)
    left = threads()
    person.join()
    witness.drop()
    assert left <= 1

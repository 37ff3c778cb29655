"""A claim reads the same number of rows while an old snapshot keeps every delivered row in the table. The test
counts index entries, because times on a busy machine are unreliable."""

from contextlib import contextmanager

import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import SECRET

pytestmark = pytest.mark.timing

MANY = 20_000


class Reads:
    """Index entries and rows that were read from a relation, from the statistics of all sessions."""

    def __init__(self, db, relation: str):
        self.db, self.relation = db, relation

    def so_far(self) -> int:
        self.db.sql("SELECT pg_stat_clear_snapshot()")
        return int(self.db.value(
            "SELECT coalesce(sum(i.idx_tup_read), 0) + coalesce((SELECT seq_tup_read FROM pg_stat_user_tables AS t WHERE t.relid = %s::regclass), 0) "
            "FROM pg_stat_user_indexes AS i WHERE i.relid = %s::regclass", self.relation, self.relation))

    def settled(self, at_least: int) -> int:
        """Waits until enough is counted and nothing more arrives. A backend reports its counts at a commit, at most
        once per second; the worker commits every second, so it can need two seconds."""
        seen = [-1]

        def quiet() -> bool:
            seen.append(self.so_far())
            return seen[-1] == seen[-2] and seen[-1] >= at_least
        wait_until(quiet, 30, "the counts to settle", interval=1.5)
        return seen[-1]


@contextmanager
def held_snapshot(db):
    with db.connect(autocommit=False) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM outbox.events")
        yield


@pytest.fixture
def delivering(db, kafka, aggregate):
    db.kafka_sink("main", kafka)
    db.enqueue(aggregate, "0")
    wait_until(lambda: db.pending() == 0, 60, "the first event")
    return db


def deliver_many(db, aggregate: str) -> None:
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) SELECT %s, n %% 100, 'order.created' FROM generate_series(1, %s) AS n",
           aggregate, MANY)
    wait_until(lambda: db.pending() == 0, 60, "all of them")


def test_events_after_many_under_a_held_snapshot(delivering, aggregate):
    with held_snapshot(delivering):
        deliver_many(delivering, aggregate)
        reads = Reads(delivering, "outbox.events_pending")
        before = reads.settled(MANY)
        for n in range(20):
            delivering.enqueue(aggregate, "k")
            wait_until(lambda: delivering.pending() == 0, 30, "the event")
        assert reads.settled(before + 1) - before < MANY / 2


@pytest.mark.kills_server  # the test causes this error of the worker
def test_an_error_in_the_worker_costs_no_walk(delivering, aggregate):
    """Its scans continue where the failed round began, not at the beginning."""
    with held_snapshot(delivering):
        deliver_many(delivering, aggregate)
        reads = Reads(delivering, "outbox.events_pending")
        before = reads.settled(MANY)
        log_start = delivering.pg.log.stat().st_size
        delivering.enqueue(aggregate, "k", available_at=delivering.value("SELECT now() + interval '7s'"))
        with delivering.connect(autocommit=False) as locker:
            locker.execute("LOCK TABLE outbox.events_pending IN EXCLUSIVE MODE")  # no row can be locked
            wait_until(lambda: b"due to lock timeout" in delivering.pg.log.read_bytes()[log_start:], 30, "the worker's error")
        wait_until(lambda: delivering.pending() == 0, 30, "the event")
        assert reads.settled(before + 1) - before < MANY / 2


def test_recalled_rows_after_many_under_a_held_snapshot(delivering, aggregate):
    """outbox_internal.rescan_queue is also read only from where new rows can be."""
    db = delivering
    with held_snapshot(db):
        db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, available_at) "
               "SELECT %s, n, 'order.created', now() + interval '1 day' FROM generate_series(1, 5000) AS n", aggregate)
        db.sql("UPDATE outbox.events SET available_at = now() WHERE status = 'PENDING'")
        wait_until(lambda: db.pending() == 0, 60, "all of them")
        db.sql("SELECT outbox.enqueue(%s, 'k', 'order.created', '{}', available_at => now() + interval '1 day')", aggregate)
        reads = Reads(db, "outbox_internal.rescan_queue")
        before = reads.settled(5000)
        db.sql("UPDATE outbox.events SET available_at = now() WHERE status = 'PENDING'")
        wait_until(lambda: db.pending() == 0, 30, "the recalled event")
        assert reads.settled(before + 1) - before < 1000


def test_a_start_skips_the_rows_of_a_paused_sink(db, receiver):
    db.webhook_sink("crm", receiver, SECRET, events="order.*")
    db.webhook_sink("other", "https://localhost:1", events="item.*")
    db.sql("SELECT outbox.pause('other')")
    db.enqueue("Order", "0", "order.created")
    wait_until(lambda: db.pending() == 0, 30, "the first event")
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) SELECT 'Item', n::text, 'item.made' FROM generate_series(1, %s) AS n", MANY)
    reads = Reads(db, "outbox.events_pending")
    before = reads.settled(MANY)  # the running worker has passed them
    pid = db.value("SELECT pid FROM outbox.workers WHERE database = current_database()")
    db.sql("SELECT pg_terminate_backend(%s)", pid)
    wait_until(lambda: not db.sql("SELECT FROM pg_stat_activity WHERE pid = %s", pid), 30, "the worker to end")
    db.enqueue("Order", "1", "order.created")
    wait_until(lambda: len(receiver.accepted()) == 2, 30, "the event")  # a look at the table would count as well
    assert reads.settled(before + 1) - before < MANY / 2

"""No event is delivered whose commit a crash could undo, and events that are durable anyway cost no extra flush."""

import threading

import pytest
from outbox_rig import wait_until
from outbox_rig.asleep import stop_asleep
from outbox_rig.receiver import HANG, OK, SECRET
from outbox_rig.traffic import Traffic
from wal import nobody_flushes


@pytest.fixture(autouse=True)
def lazy(db):
    with nobody_flushes(db):
        yield


@pytest.mark.kills_server
def test_no_phantom_after_asynchronous_commits(db, pg, receiver):
    """Applications commit without a flush and all processes are killed: every delivered event is in the recovered
    table."""
    db.webhook_sink("crm", receiver, SECRET)
    with Traffic(db, "Order", options="-c synchronous_commit=off") as traffic:
        wait_until(lambda: len(receiver.accepted()) >= 300, 60, "deliveries")
        # For a while, commits that no flush follows: they are visible, and are lost with the server.
        stop_asleep(db, "backend_type = 'outbox worker' AND datname = current_database()")
        before = traffic.committed
        wait_until(lambda: traffic.committed >= before + 50, 30, "commits while the worker stands still")
        pg.kill()
        pg.start()
        db.disconnect()
        survived = {str(row[0]) for row in db.sql("SELECT transaction FROM business")}
        assert len(traffic.acknowledged - survived) >= 50, "the crash took nothing: the test shows nothing"
        before = traffic.committed
        wait_until(lambda: traffic.committed >= before + 20, 30, "the writers to go on")
    traffic.drain()
    traffic.check(list(receiver.deliveries), 40000)


@pytest.mark.kills_server
def test_no_phantom_of_a_trigger_in_a_recording(db, pg, receiver):
    """It enqueues an event in the transaction in which the worker records another one, and which claims the new event too."""
    receiver.mode = HANG
    db.webhook_sink("crm", receiver, SECRET, aggregates="Order")
    db.sql("""CREATE TABLE public.written (n int);
              CREATE FUNCTION public.echo() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                INSERT INTO public.written VALUES (1); PERFORM outbox.enqueue('Order', 'echo', 'echo', '{}'::jsonb); RETURN NULL; END $$;
              CREATE TRIGGER echo AFTER DELETE ON outbox.events_pending FOR EACH ROW WHEN (OLD.event_type = 'first') EXECUTE FUNCTION public.echo()""")

    def arrived() -> set[str]:
        return {d.json()["type"] for d in list(receiver.deliveries)}

    def waiting(kind: str) -> int:
        return db.value("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = %s AND wait_event_type = 'Lock'", kind)

    db.enqueue("Order", "1", "before")
    db.enqueue("Order", "2", "first")
    wait_until(lambda: receiver.open_requests == 2, 20, "both in flight")
    # The first recording waits for a lock, and the second one, which a commit has met, for another: that commit flushes the first one's.
    lock = "LOCK TABLE outbox.events_pending IN SHARE ROW EXCLUSIVE MODE"
    with db.connect(autocommit=False) as one, db.connect(autocommit=False) as other:
        one.execute(lock)
        one.execute("SELECT outbox.enqueue('Other', '3', 'after', '{}'::jsonb)")
        receiver.release(lambda d: OK if d.json()["type"] == "before" else HANG)
        wait_until(lambda: waiting("outbox worker") == 1, 20, "the worker to wait")
        receiver.release(lambda d: OK)
        wait_until(lambda: receiver.open_requests == 0, 20, "the answer")
        locking = threading.Thread(target=other.execute, args=[lock])
        locking.start()
        wait_until(lambda: waiting("client backend") == 1, 20, "the lock to be asked for")
        one.commit()
        locking.join()
        wait_until(lambda: waiting("outbox worker") == 1, 20, "the worker to wait again")
        other.execute("SELECT outbox.enqueue('Other', '4', 'after', '{}'::jsonb)")
        other.commit()
    wait_until(lambda: "echo" in arrived(), 20, arrived)
    pg.kill()
    pg.start()
    db.disconnect()
    assert db.sql("SELECT n FROM public.written") == [(1,)]


def syncs(db) -> int:
    if db.value("SELECT current_setting('server_version_num')::int") >= 180000:
        return int(db.value("SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal'"))
    return db.value("SELECT wal_sync FROM pg_stat_wal")


@pytest.mark.timing
def test_synchronous_commits_cost_no_flush(db, receiver):
    """Each transaction is flushed once, by the application; the worker adds no flush for the delivery, unless its
    own commits came in between."""
    transactions = 150
    db.webhook_sink("crm", receiver, SECRET)
    db.enqueue("Order", "first")
    wait_until(lambda: db.pending() == 0, 30, "the first event")
    before = syncs(db)
    for n in range(transactions):
        db.enqueue("Order", str(n))
        wait_until(lambda: len(receiver.accepted()) == n + 2, 20, "its delivery", interval=0.001)
    # The counts of a process are certainly visible after it has ended.
    db.sql("SELECT pg_terminate_backend(pid, 10000) FROM outbox.workers WHERE database = %s", db.name)
    wait_until(lambda: syncs(db) - before >= transactions, 20, "the statistics")
    extra = syncs(db) - before - transactions
    print("flushes beside the application's own:", extra)
    assert extra <= transactions // 2

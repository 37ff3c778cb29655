"""The sequence of positions defines the order of delivery, whatever is done to the sequence."""

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import SECRET

SEQUENCE = "outbox.events_position"


@pytest.mark.parametrize("change", ["CACHE 50", "INCREMENT BY 1", "INCREMENT BY -1", "CYCLE", "MAXVALUE 1000", "AS integer"])
def test_a_sequence_that_would_lose_the_order_is_refused(db, change):
    with pytest.raises(psycopg.errors.FeatureNotSupported) as refused:
        db.sql(f"ALTER SEQUENCE {SEQUENCE} {change}")
    assert "order" in refused.value.diag.message_detail
    db.sql(f"ALTER SEQUENCE {SEQUENCE} CACHE 1 INCREMENT BY 10001 NO CYCLE")
    db.sql(f"CREATE SEQUENCE mine {'AS bigint' if change.startswith('AS') else change.replace('BY -1', 'BY -2')}; ALTER SEQUENCE mine CACHE 7")


@pytest.mark.parametrize("back", [f"SELECT setval('{SEQUENCE}', 1)", f"ALTER SEQUENCE {SEQUENCE} RESTART"])
def test_a_sequence_that_went_back_stops_nothing(db, receiver, back):
    """Events get positions neither behind the worker's cursor nor before earlier events of their key."""
    db.webhook_sink("crm", receiver, SECRET)
    for n in range(5):
        db.enqueue("Order", "1", f"delivered.{n}")
    wait_until(lambda: db.pending() == 0, 20, "the first events")
    db.sql("SELECT outbox.pause('crm')")
    waiting = [db.enqueue("Order", "1", f"waiting.{n}") for n in range(5)]
    db.sql(back)
    if "setval" in back:
        assert db.doctor("positions")[0] == "error"
    with db.connect() as other:  # this session has used no position before
        waiting += [str(other.execute("SELECT outbox.enqueue('Order', 1, 'after', '{}')").fetchone()[0]), db.enqueue("Order", "1", "after")]
    assert [str(event) for event, in db.sql("SELECT id FROM outbox.events WHERE status = 'PENDING' ORDER BY position")] == waiting
    assert db.doctor("positions")[0] == "ok"
    db.sql("SELECT outbox.resume('crm')")
    wait_until(lambda: len(receiver.accepted()) == 12, 20, "all events")


def test_a_producer_repairs_a_sequence_on_which_it_has_no_right(db):
    with db.role("app") as app, db.connect() as session:
        db.sql(f"GRANT USAGE ON SCHEMA outbox TO {app}; GRANT INSERT ON outbox.events TO {app}")
        last = [db.enqueue("Order", "1") for _ in range(5)][-1]
        session.execute(f"SET ROLE {app}")
        for write in ("SELECT outbox.enqueue('Order', 1, 'x', '{}')", "INSERT INTO outbox.events (aggregate_type, event_type) VALUES ('Order', 'x')"):
            db.sql(f"SELECT setval('{SEQUENCE}', 1)")
            session.execute(write)
            assert db.doctor("positions")[0] == "ok"
        assert db.value("SELECT count(*) FROM outbox.events WHERE position > (SELECT position FROM outbox.events WHERE id = %s)", last) == 2


def test_a_server_that_was_restarted_knows_the_positions(db):
    """After a restart shared memory is empty: the positions in the table count."""
    db.sql(f"SELECT setval('{SEQUENCE}', 1000)")
    db.enqueue("Order", "1", "first")
    db.sql("UPDATE outbox.events SET status = 'FAILED'")
    db.disconnect()
    db.pg.stop()
    db.pg.start()
    db.pg.wait_ready()
    db.sql(f"SELECT setval('{SEQUENCE}', 1)")
    at_work = "SELECT count(*) FROM outbox.workers WHERE database = current_database() AND state <> 'starting'"
    wait_until(lambda: db.value(at_work) == 1, 20, "the worker to have read the table")
    db.enqueue("Order", "1", "second")
    assert db.value("SELECT count(*) FROM outbox.events WHERE event_type = 'second' AND position > 1001") == 1


@pytest.mark.parametrize("preload", ["outbox", ""])
def test_a_producer_knows_the_positions_where_no_worker_has_run(rig, preload):
    with rig.postgres(settings={"shared_preload_libraries": preload, "outbox.enabled": "off"}) as pg:
        db = Database(pg, "quiet").create()
        events = [db.enqueue("Order", "1") for _ in range(5)]
        if preload:
            db.disconnect()
            pg.stop()
            pg.start()
        db.sql(f"SELECT setval('{SEQUENCE}', 1)")
        for _ in range(3):
            with db.connect() as other:
                events += [str(other.execute("SELECT outbox.enqueue('Order', 1, 'x', '{}')").fetchone()[0]) for _ in range(2)]
        assert [str(event) for event, in db.sql("SELECT id FROM outbox.events ORDER BY position")] == events
        assert db.doctor("positions")[0] == "ok"


def test_cached_values_are_not_drawn_behind_others(db, receiver):
    """CACHE is set in the catalog directly, where no command can refuse it."""
    db.webhook_sink("crm", receiver, SECRET)
    db.sql(f"UPDATE pg_sequence SET seqcache = 50 WHERE seqrelid = '{SEQUENCE}'::regclass")
    assert "CACHE" in db.doctor("positions")[1]
    with db.connect() as one, db.connect() as two:
        events = [str(session.execute("SELECT outbox.enqueue('Order', 1, 'x', '{}')").fetchone()[0]) for session in (one, two, one, two, one)]
        wait_until(lambda: len(receiver.accepted()) == 5, 10, "all events")
    assert [request.id for request in receiver.accepted()] == events
    hint = db.doctor("positions")[2]
    db.sql(hint)
    assert db.doctor("positions")[0] == "ok"


@pytest.mark.parametrize("ahead", [2**63 - 1, 2**63 - 20_000, 2**63 - 2_000_000_000_000, 2**62 + 1])
def test_a_sequence_that_was_set_far_ahead_is_refused_until_it_is_set_back(db, receiver, ahead):
    """Nothing remembers the number, and the doctor has the statement that sets it back."""
    db.webhook_sink("crm", receiver, SECRET)
    before = db.enqueue("Order", "1")
    wait_until(lambda: len(receiver.accepted()) == 1, 20, "the first event")
    db.sql(f"SELECT setval('{SEQUENCE}', {ahead})")
    for _ in range(3):
        with pytest.raises((psycopg.errors.NumericValueOutOfRange, psycopg.errors.SequenceGeneratorLimitExceeded)):
            db.enqueue("Order", "1")
    status, detail, hint = db.doctor("positions")
    assert status == "error" and "beyond the last position" in detail
    db.sql(hint)
    assert db.doctor("positions")[0] == "ok"
    with db.connect() as other:
        after = [db.enqueue("Order", "1"), str(other.execute("SELECT outbox.enqueue('Order', 1, 'after', '{}')").fetchone()[0])]
    wait_until(lambda: [d.id for d in receiver.accepted()] == [before, *after], 20, "the events, in order")


def test_the_hint_for_a_sequence_that_was_set_far_ahead_passes_waiting_events(db):
    waiting = [db.enqueue("Order", "1") for _ in range(3)]
    db.sql(f"SELECT setval('{SEQUENCE}', {2**63 - 20_000})")
    db.sql(db.doctor("positions")[2])
    waiting += [db.enqueue("Order", "1") for _ in range(3)]
    assert [str(event) for event, in db.sql("SELECT id FROM outbox.events ORDER BY position")] == waiting

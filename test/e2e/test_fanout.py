"""An event that matches several sinks becomes one row per sink, and each row is delivered independently."""

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import HANG, SECRET, status

EVENTS = 60


def test_each_sink_has_its_own_progress(db, rig, receiver):
    """One endpoint hangs, one refuses, one works."""
    with rig.receiver(secret=SECRET, mode=HANG) as hangs, rig.receiver(secret=SECRET, mode=status(409, body=b"not today")) as refuses:
        db.webhook_sink("well", receiver, SECRET, retention="1d")
        db.webhook_sink("hangs", hangs, SECRET, timeout="5min")
        db.webhook_sink("refuses", refuses, SECRET, retry="1h", max_attempts="5")
        ids = [db.enqueue("Order", f"key-{n % 3}", "e", str(n)) for n in range(EVENTS)]
        wait_until(lambda: len(receiver.accepted()) == EVENTS, 20, "the sink that is well")
        assert [d.id for d in receiver.accepted() if d.json()["data"] % 3 == 0] == ids[::3]
        wait_until(lambda: db.sql("SELECT sink, status, count(*), min(attempts) FROM outbox.events WHERE id = %s GROUP BY 1, 2 ORDER BY 1", ids[0])
                   == [("hangs", "PENDING", 1, 0), ("refuses", "PENDING", 1, 1), ("well", "SENT", 1, 0)], 20,
                   lambda: db.sql("SELECT sink, status, attempts FROM outbox.events WHERE id = %s", ids[0]))
        wait_until(lambda: db.sql("SELECT sink, status, count(*) FROM outbox.events GROUP BY 1, 2 ORDER BY 1") == [
            ("hangs", "PENDING", EVENTS), ("refuses", "PENDING", EVENTS), ("well", "SENT", EVENTS)], 20, "all to be recorded")
        assert db.value("SELECT last_error FROM outbox.events WHERE id = %s AND sink = 'refuses'", ids[0]).endswith("not today")
        assert db.value("SELECT in_flight FROM outbox.sinks WHERE name = 'hangs'") > 0


def test_a_named_sink_alone_gets_the_event(db, pg, other, receiver):
    with db.role(f"app_{db.name}") as role:
        db.webhook_sink("crm", receiver, SECRET)
        db.webhook_sink("audit", other, SECRET, events="none")
        db.sql(f"GRANT USAGE ON SCHEMA outbox TO {role}; GRANT INSERT ON outbox.events TO {role}")
        with pg.connect(db.name, user=role) as app:
            enqueue = "SELECT outbox.enqueue('Order', 'k', 'e', '{}', sink => %s)::text"
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match='sink "audit"'):
                app.execute(enqueue, ["audit"])
            with pytest.raises(psycopg.errors.UndefinedObject, match='"audti"') as unknown:
                app.execute(enqueue, ["audti"])
            assert '"audit"' in unknown.value.diag.message_hint
            db.sql(f"GRANT USAGE ON FOREIGN SERVER audit TO {role}")
            [(event,)] = app.execute(enqueue, ["audit"]).fetchall()
        wait_until(lambda: [d.id for d in other.accepted()] == [event], 20, "the named sink")
        wait_until(lambda: db.pending() == 0, 20, "the row to leave")
        assert receiver.deliveries == []


def test_a_transaction_that_is_older_than_the_sink(db, kafka, consume, aggregate):
    """The event was enqueued when no sink matched it, and committed after the new sink's cursor had passed its
    position."""
    with db.connect(autocommit=False) as open_one:
        early = str(open_one.execute("SELECT outbox.enqueue(%s, '1', 't', '{}')", (aggregate,)).fetchone()[0])
        db.kafka_sink("main", kafka)
        consumer = consume(f"outbox.event.{aggregate}")
        later = db.enqueue(aggregate, "2")
        assert consumer.take(1)[0].id == later
        open_one.commit()
    assert consumer.take(1)[0].id == early


def test_order_across_the_making_of_a_sink(db, kafka, consume, aggregate):
    """The first event of a key was enqueued before the sink existed, the second after the sink's creation had
    committed."""
    enqueue = "SELECT outbox.enqueue(%s, %s::bigint, 't', '{}')::text"
    keys = range(1, 21)
    open_ones = {key: db.connect(autocommit=False) for key in keys}
    first = {key: open_ones[key].execute(enqueue, (aggregate, key)).fetchone()[0] for key in keys}
    db.kafka_sink("main", kafka)
    consumer = consume(f"outbox.event.{aggregate}")
    db.enqueue(aggregate, "0")
    consumer.take(1)  # the sink's cursor has passed them
    second = {}
    for key in keys:
        open_ones[key].commit()
        second[key] = db.value(enqueue, aggregate, key)
        open_ones[key].close()
    got = {}
    for record in consumer.take(2 * len(keys)):
        got.setdefault(int(record.key), []).append(record.id)
    assert got == {key: [first[key], second[key]] for key in keys}


@pytest.mark.parametrize("search_path", ["public", "another, public"])
def test_one_transaction_reads_no_table_as_a_whole(db, search_path):
    """For each of its events: with ids of the writer's own and with dedup keys that are known. The tables are empty when
    it begins, and the search_path changes after its first event, so that each statement is planned again."""
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER a FOREIGN DATA WRAPPER outbox_manual; CREATE SERVER b FOREIGN DATA WRAPPER outbox_manual; CREATE SCHEMA another")
    db.sql("VACUUM outbox.events_pending, outbox_internal.dedup")
    with db.connect(autocommit=False) as session:
        for n in range(10):
            id = f"018f0000-0000-7000-8000-00000000000{n}"
            session.execute("INSERT INTO outbox.events (id, aggregate_type, event_type, dedup_key) VALUES (%s, 'Order', 'x', %s)", (id, str(n)))
            assert str(session.execute("SELECT outbox.enqueue('Order', '1', 'x', '{}', dedup_key => %s)", (str(n),)).fetchone()[0]) == id
            session.execute(f"SET search_path = {search_path}")
        assert session.execute("SELECT relname, seq_scan, idx_scan > 0 FROM pg_stat_xact_user_tables WHERE relname IN ('events_pending', 'dedup')"
                               " ORDER BY 1").fetchall() == [("dedup", 0, True), ("events_pending", 0, True)]

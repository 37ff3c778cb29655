"""Users' triggers that write events inside statements of the extension: what they change is read as if they had changed it themselves."""

import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import HANG, OK, SECRET, status

# The last event of each aggregate is scheduled for a year ahead, until another event of it leaves.
FREE = """CREATE FUNCTION free() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF {when} THEN UPDATE outbox.events SET available_at = NULL WHERE status = 'PENDING' AND event_type = 'last' AND aggregate_id = {row}.aggregate_id AND available_at IS NOT NULL; END IF;
  RETURN NULL; END $$;
CREATE TRIGGER free AFTER {event} ON {table} FOR EACH ROW EXECUTE FUNCTION free()"""
CASES = {
    "delete": ("OLD.event_type = 'first'", "OLD", "DELETE", "outbox.events_pending", {}),
    "keep": ("NEW.status = 'SENT'", "NEW", "INSERT", "outbox.events", {"retention": "1d"}),
    "retry": ("NEW.attempts = 1", "NEW", "UPDATE", "outbox.events_pending", {}),
    "dead letter": ("NEW.status = 'FAILED'", "NEW", "INSERT", "outbox.events", {"max_attempts": "1"}),
}


def got(receiver) -> list[str]:
    return [d.json()["type"] for d in receiver.accepted()]


@pytest.mark.parametrize("case", CASES)
def test_a_trigger_in_a_recording_makes_another_event_due(db, receiver, case):
    """In each of the statements by which the worker records."""
    when, row, event, table, options = CASES[case]
    db.webhook_sink("crm", receiver, SECRET, **{"retry": "50ms..100ms", "max_attempts": "100"} | options)
    db.sql(FREE.format(when=when, row=row, event=event, table=table))
    fails = case in ("retry", "dead letter")
    failures = iter([status(500)])
    receiver.mode = lambda d: next(failures, OK) if fails and d.json()["type"] == "first" else OK
    db.enqueue("Order", "1", "last", available_at="2100-01-01")
    db.enqueue("Order", "2", "before")  # the worker has read past it
    wait_until(lambda: got(receiver) == ["before"], 20, "an event behind it")
    db.enqueue("Order", "1", "first")
    wait_until(lambda: "last" in got(receiver), 20, lambda: f"the event that is due since the recording; got {got(receiver)}")


def test_a_trigger_makes_an_event_due_whose_failure_the_same_transaction_records(db, receiver):
    """The transaction also claims, and finds the event changed while it is still in flight."""
    # An answer of an event's own URL is recorded at once: it cannot be an outage of the sink.
    db.webhook_sink("crm", receiver, SECRET, url=receiver.url + "/${event_type}", retry="1h", max_attempts="5")
    db.sql(FREE.format(when="OLD.event_type = 'first'", row="OLD", event="DELETE", table="outbox.events_pending"))
    receiver.mode = HANG
    for type in ("last", "first", "before"):
        db.enqueue("Order", "1", type, partition_key=type)
    db.enqueue("Order", "2", "other", available_at="2100-01-01")
    wait_until(lambda: len(receiver.deliveries) == 3, 20, "three requests")
    with db.connect(autocommit=False) as user:
        user.execute("LOCK TABLE outbox.events_pending IN SHARE MODE")
        receiver.release(lambda d: OK if d.json()["type"] == "before" else HANG)
        wait_until(lambda: db.sql("SELECT FROM pg_locks WHERE NOT granted AND relation = 'outbox.events_pending'::regclass"), 20, "the worker to wait for the lock")
        receiver.release(lambda d: status(422) if d.json()["type"] == "last" else HANG)
        receiver.release()
        receiver.mode = OK
        user.execute("UPDATE outbox.events SET available_at = '2100-02-01' WHERE event_type = 'other'")  # so that the worker reads changed rows
        user.commit()
    wait_until(lambda: "last" in got(receiver), 20, lambda: f"the event that is due since the recording; got {got(receiver)}")


def test_a_trigger_in_ack_makes_another_event_due(db, receiver):
    """outbox.ack() and nack() run as the owner: what a trigger changes there is read by the worker of another sink."""
    db.webhook_sink("crm", receiver, SECRET, aggregates="Order")
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER hand FOREIGN DATA WRAPPER outbox_manual OPTIONS (aggregates 'Manual')")
    db.sql(FREE.format(when="OLD.event_type = 'first'", row="OLD", event="DELETE", table="outbox.events_pending"))
    db.enqueue("Order", "1", "last", available_at="2100-01-01")
    db.enqueue("Order", "2", "before")
    wait_until(lambda: got(receiver) == ["before"], 20, "an event behind it")
    db.enqueue("Manual", "1", "first")
    token = db.value("SELECT token FROM outbox.claim('hand')")
    assert db.value("SELECT outbox.ack(%s)", token) == 1
    wait_until(lambda: "last" in got(receiver), 20, lambda: f"the event that is due since the acknowledgement; got {got(receiver)}")


def test_a_trigger_in_routing_makes_another_event_due(db, receiver):
    """outbox_internal.route_waiting(), and the worker when a sink is made."""
    db.webhook_sink("crm", receiver, SECRET, aggregates="Order")
    db.sql(FREE.format(when="OLD.sink IS NULL AND NEW.sink IS NOT NULL", row="NEW", event="UPDATE", table="outbox.events_pending"))
    db.enqueue("Order", "1", "last", available_at="2100-01-01")
    db.enqueue("Order", "2", "before")
    wait_until(lambda: got(receiver) == ["before"], 20, "an event behind it")
    db.enqueue("Unrouted", "1", "first")
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER hand FOREIGN DATA WRAPPER outbox_manual OPTIONS (aggregates 'Unrouted')")
    wait_until(lambda: "last" in got(receiver), 20, lambda: f"the event that is due since it was routed; got {got(receiver)}")


def test_a_trigger_in_a_recording_frees_no_dedup_key_of_the_server_but_that_of_a_user(db, receiver):
    """A trigger that deletes a pending event frees its key, as the user's own DELETE does. A delivery does not."""
    db.webhook_sink("crm", receiver, SECRET)
    db.sql("""CREATE FUNCTION drop_other() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM outbox.events WHERE status = 'PENDING' AND event_type = 'last'; RETURN NULL; END $$;
              CREATE TRIGGER drop_other AFTER DELETE ON outbox.events_pending FOR EACH ROW WHEN (OLD.event_type = 'first') EXECUTE FUNCTION drop_other()""")
    last = db.enqueue("Order", "1", "last", available_at="2100-01-01", dedup_key="b")
    db.enqueue("Order", "1", "first", dedup_key="a")
    wait_until(lambda: db.pending() == 0, 20, "the recording")
    assert db.enqueue("Order", "1", "last", dedup_key="b") != last, "the key is free"
    assert db.sql("SELECT dedup_key FROM outbox_internal.dedup ORDER BY 1") == [("a",), ("b",)]


def test_a_trigger_after_an_insert_gives_no_warning(db):
    """enqueue() and the copies for further sinks insert without an SQL statement, which would close what triggers have opened."""
    db.sql("""CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER a FOREIGN DATA WRAPPER outbox_manual; CREATE SERVER b FOREIGN DATA WRAPPER outbox_manual;
              CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.noted VALUES (NEW.sink); RETURN NULL; END $$;
              CREATE TABLE public.noted (sink text); CREATE TRIGGER note AFTER INSERT ON outbox.events FOR EACH ROW EXECUTE FUNCTION note()""")
    said = []
    with db.connect() as session:
        session.add_notice_handler(lambda message: said.append(message.message_primary))
        session.execute("SELECT outbox.enqueue('Order', 1, 'x', '{}')")
        session.execute("INSERT INTO outbox.events (aggregate_type, event_type) VALUES ('Order', 'x')")
    assert said == []
    assert db.sql("SELECT sink, count(*) FROM noted GROUP BY 1 ORDER BY 1") == [("a", 2), ("b", 2)]


AUDIT = """CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {audit}; RETURN NEW; END $$;
CREATE TRIGGER audit {when} INSERT ON outbox.events FOR EACH ROW WHEN (NEW.aggregate_type = 'Order' AND NEW.status IS DISTINCT FROM 'SENT' AND {of}) EXECUTE FUNCTION audit()"""
AUDITS = {
    "INSERT": """INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, headers, dedup_key)
                 VALUES ('Audit', NEW.aggregate_id, 'audit', '{"n": 1}', gen_random_uuid())""",
    "enqueue": """PERFORM outbox.enqueue('Audit', NEW.aggregate_id, 'audit', '{}', '{"n": 1}', dedup_key => gen_random_uuid()::text)""",
}
AUDITED = """SELECT sink, partition_key, headers::text, EXISTS (SELECT FROM outbox_internal.dedup AS d WHERE d.dedup_key = e.dedup_key AND d.event_id = e.id), count(*)
  FROM outbox.events AS e WHERE aggregate_type = 'Audit' GROUP BY 1, 2, 3, 4 ORDER BY 1"""


@pytest.mark.parametrize("audit", AUDITS)
def test_an_event_of_a_trigger_that_runs_before_ours_is_enqueued_like_any_other(db, audit):
    """So is the event whose trigger enqueues it, for a role that has no right on the sinks."""
    with db.role("app") as app, db.connect() as session:
        db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER a FOREIGN DATA WRAPPER outbox_manual; CREATE SERVER b FOREIGN DATA WRAPPER outbox_manual")
        db.sql(AUDIT.format(when="BEFORE", of="NEW.sink IS NULL", audit=AUDITS[audit]))
        db.sql(f"GRANT USAGE ON SCHEMA outbox TO {app}; GRANT INSERT ON outbox.events TO {app}")
        session.execute(f"SET ROLE {app}")
        session.execute("SELECT outbox.enqueue('Order', 1, 'x', '{}', dedup_key => 'd')")
        session.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, dedup_key) VALUES ('Order', 1, 'x', 'e')")
        assert db.sql(AUDITED) == [(sink, "1", '{"n": "1"}', True, 2) for sink in "ab"]
        assert db.sql("SELECT sink, dedup_key FROM outbox.events WHERE aggregate_type = 'Order' ORDER BY 1, 2") == [(s, d) for s in "ab" for d in "de"]


@pytest.mark.parametrize("audit", AUDITS)
@pytest.mark.parametrize("when", ["BEFORE", "AFTER"])
def test_an_event_of_a_trigger_is_enqueued_while_events_are_sent_again(db, when, audit):
    db.sql("""CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER hand FOREIGN DATA WRAPPER outbox_manual OPTIONS (aggregates 'Order', retention '1d');
              CREATE SERVER audits FOREIGN DATA WRAPPER outbox_manual OPTIONS (aggregates 'Audit')""")
    event = db.enqueue("Order", "1")

    def acknowledge() -> None:
        assert db.value("SELECT sum(outbox.ack(token)) FROM (SELECT DISTINCT token FROM outbox.claim('hand')) AS c") == 1

    acknowledge()
    db.sql(AUDIT.format(when=when, of="true", audit=AUDITS[audit]))
    assert db.value("SELECT outbox.replay('hand', now() - interval '1 hour')") == 1
    assert db.sql(AUDITED) == [("audits", "1", '{"n": "1"}', True, 1)]
    acknowledge()
    assert db.value("SELECT outbox.replay('hand', event => %s)", event) == 1
    assert db.sql(AUDITED) == [("audits", "1", '{"n": "1"}', True, 2)]

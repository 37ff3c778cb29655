"""What outbox.doctor() reports about events that no sink delivers, about maintenance, and about secrets that every
role can read."""

import re

import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import SECRET

from test_views import make_large


def well(db, check):
    wait_until(lambda: db.doctor(check)[0] == "ok", 10, lambda: str(db.doctor(check)))


def statement(hint: str, beginning: str) -> str:
    """A user chooses this one of the statements that a hint shows in its comment."""
    assert hint.startswith("-- ")
    [found] = re.findall(rf"{beginning}.*?;", hint)
    return found


def test_events_that_no_sink_takes(db, receiver):
    """The hint adds only the waiting kind of event to the sink's filter."""
    db.webhook_sink("crm", receiver, SECRET, events="order.*", aggregates="Order")
    db.sql("SELECT outbox.enqueue('Customer', '1', 'customer.created', '\"hidden\"', headers => '{\"tenant\": \"hidden\"}')")
    state, detail, hint = db.doctor("routes")
    assert state == "warning" and "1 event waits" in detail and '"customer.created"' in detail and "headers tenant" in detail and "hidden" not in detail
    db.paste(statement(hint, "ALTER SERVER crm"))
    wait_until(receiver.accepted, 10, "the event to be routed at once")
    well(db, "routes")
    assert db.value("SELECT srvoptions @> ARRAY['events=order.*, customer.created', 'aggregates=Order, Customer'] FROM pg_foreign_server WHERE srvname = 'crm'")


def test_events_without_any_sink(db):
    db.enqueue("Customer", "1")
    state, detail, hint = db.doctor("routes")
    assert state == "warning"
    assert db.doctor("sinks")[0] == "warning"
    db.paste(statement(hint, "CREATE SERVER"))
    well(db, "routes")
    assert db.doctor("sinks") is None


def test_a_sink_that_chooses_by_header_is_not_widened(db, receiver):
    """The sink is another customer's endpoint."""
    db.webhook_sink("crm", receiver, SECRET, match='{"tenant": "42"}', events="order.*")
    db.enqueue("Order", "1", "order.created")
    assert "ALTER SERVER" not in db.doctor("routes")[2]


def test_a_lost_sink(db, other, receiver):
    receiver.stop()
    db.webhook_sink("crm", receiver, SECRET)
    event = db.enqueue("Order", "1")
    db.sql("DROP SERVER crm CASCADE")
    state, detail, hint = db.doctor("lost sink")
    assert state == "error" and '"crm"' in detail
    db.webhook_sink("other", other, SECRET)
    hint = db.doctor("lost sink")[2]
    assert "the sinks are: 'other'" in hint
    db.paste(statement(hint, "UPDATE outbox.events").replace("...", "other"))
    wait_until(lambda: [d.id for d in other.accepted()] == [event], 10, "the event to go there at once")
    well(db, "lost sink")


def test_a_lost_sink_whose_events_wait_in_another_sink_too(db):
    """The statement of the hint gives the others to that sink."""
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER crm FOREIGN DATA WRAPPER outbox_manual OPTIONS (events '*')")
    alone = db.enqueue("Order", "1")
    db.sql("CREATE SERVER other FOREIGN DATA WRAPPER outbox_manual OPTIONS (events '*')")
    both = db.enqueue("Order", "1")
    db.sql("DROP SERVER crm CASCADE")
    db.paste(statement(db.doctor("lost sink")[2], "UPDATE outbox.events").replace("...", "other"))
    assert sorted(db.sql("SELECT id::text, sink FROM outbox.events")) == sorted([(alone, "other"), (both, "other"), (both, "crm")])
    assert db.doctor("lost sink")[1].startswith("Pending events: 1 of")
    db.paste(statement(db.doctor("lost sink")[2], "DELETE FROM outbox.events"))
    well(db, "lost sink")
    assert db.pending() == 2


def test_events_of_another_origin(db, receiver):
    db.webhook_sink("crm", receiver, SECRET)
    db.sql("INSERT INTO outbox.events (id, aggregate_type, event_type, position, sink, origin) VALUES (gen_random_uuid(), 'Order', 'e', 1, 'crm', 42)")
    state, detail, hint = db.doctor("origin")
    assert state == "warning" and "another cluster or database" in detail
    db.paste(statement(hint, "SELECT outbox.adopt"))
    wait_until(receiver.accepted, 10, "the adopted event")
    well(db, "origin")


def test_a_copy_deletes_the_events_of_its_original(db):
    db.sql("INSERT INTO outbox.events (id, aggregate_type, event_type, position, origin) VALUES (gen_random_uuid(), 'Order', 'e', 1, 42)")
    own = db.enqueue("Order", "1")
    db.paste(statement(db.doctor("origin")[2], "DELETE FROM outbox.events"))
    assert db.sql("SELECT id::text FROM outbox.events") == [(own,)]
    well(db, "origin")


def test_a_dead_letter_of_another_origin(db, receiver):
    """As after the restore of a dump without pending events: until outbox.adopt(), no operator event is enqueued."""
    db.webhook_sink("ops", receiver, SECRET, events="outbox.*")
    db.sql("INSERT INTO outbox.events (id, aggregate_type, event_type, position, sink, origin, status, attempts, last_error, last_attempt_at)"
           " VALUES (gen_random_uuid(), 'Order', 'e', 1, 'ops', 42, 'FAILED', 1, 'HTTP 400', now())")
    state, detail, hint = db.doctor("origin")
    assert state == "warning" and "dead letter" in detail and "operator events" in detail
    db.paste(statement(hint, "SELECT outbox.adopt"))
    well(db, "origin")
    assert db.value("SELECT count(*) FROM outbox.events WHERE origin = 42") == 0


def test_a_failing_event_of_another_origin_has_no_next_attempt(db, receiver):
    """Nothing tries it before outbox.adopt()."""
    db.webhook_sink("crm", receiver, SECRET)
    [(event,)] = db.sql("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, position, sink, origin, attempts, available_at, last_error)"
                        " VALUES (gen_random_uuid(), 'Order', '1', 'e', 1, 'crm', 42, 3, now() + interval '1 hour', 'HTTP 503') RETURNING id")
    state, detail, hint = db.doctor("sink crm")
    assert state == "warning" and "1 is failing" in detail and "HTTP 503" in detail
    assert "tried again" not in detail and "not tried before outbox.adopt()" in detail and hint.startswith("-- ") and "origin" in hint
    shown = "SELECT attempts, available_at IS NULL FROM outbox.event_status(%s)"
    assert db.sql(shown, event) == [(3, True)]
    db.sql("SELECT outbox.adopt()")
    assert "tried again at" in db.doctor("sink crm")[1] and db.sql(shown, event) == [(3, False)]


def test_one_event_of_another_origin_among_very_many(db, receiver):
    """In a table of thousands of pages: each check finds and counts it."""
    make_large(db)
    db.webhook_sink("crm", receiver, SECRET, events="mine")
    assert db.doctor("origin")[0] == "ok" and db.value("SELECT not_adopted_events FROM outbox.database_metrics") == 0
    with db.connect(autocommit=False) as late:  # the worker's cursor has passed its position when it commits
        late.execute("INSERT INTO outbox.events (id, aggregate_type, event_type, position, sink, origin)"
                     " SELECT gen_random_uuid(), 'Order', 'mine', nextval('outbox.events_position'), 'crm', 42")
        db.enqueue("Order", "1", "mine")
        wait_until(lambda: db.sink("pending, delivered") == (0, 1), 10, lambda: db.sink("*"))
        late.commit()
    seen = [(db.doctor("origin")[0], db.value("SELECT not_adopted_events FROM outbox.database_metrics")) for _ in range(4)]
    assert seen == [("warning", 1)] * 4
    assert db.sink("pending, oldest_pending_age IS NOT NULL") == (1, True)
    db.paste(statement(db.doctor("origin")[2], "SELECT outbox.adopt"))
    wait_until(lambda: len(receiver.accepted()) == 2, 10, "the adopted event")
    well(db, "origin")


def test_a_failing_event_behind_very_many_of_another_sink(db, receiver):
    """Also a dead letter that blocks its key, behind one that blocks very many rows."""
    for name in ("a", "crm", "z"):
        db.webhook_sink(name, receiver, SECRET, events=name, on_dead_letter="block")
    failing = ("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, sink, attempts, available_at, last_error)"
               " SELECT 'Order', n, %s, %s, 1, now() + interval '1 hour', 'HTTP 500' FROM generate_series(1, %s) AS n")
    db.sql(failing, "a", "a", 10001)
    db.sql(failing, "crm", "crm", 1)
    assert "1 is failing" in db.doctor("sink crm")[1]
    dead = "INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, sink, status, attempts) VALUES ('Order', 'k', %s, %s, 'FAILED', 1)"
    behind = "INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) SELECT 'Order', 'k', %s FROM generate_series(1, %s)"
    for sink, n in (("a", 10001), ("z", 1)):
        db.sql(dead, sink, sink)
        db.sql(behind, sink, n)
        wait_until(lambda: db.value("SELECT count(*) FROM outbox.events_pending WHERE sink = %s AND blocked_by IS NOT NULL", sink) == n, 30, "rows behind it")
    assert "waits behind a dead letter" in db.doctor("sink z")[1]


@pytest.mark.parametrize("columns, values, words", [
    ("available_at", "now() + interval '50000 years'", "more than a year ahead"),
    ("available_at", "'infinity'", "more than a year ahead"),
    ("created_at, available_at", "now() + interval '1 day', now() + interval '1 day 1 minute'", "in the future")])
def test_a_wrong_clock(db, receiver, columns, values, words):
    db.webhook_sink("crm", receiver, SECRET)
    db.sql(f"INSERT INTO outbox.events (aggregate_type, event_type, {columns}) VALUES ('Order', 'e', {values})")
    state, detail, hint = db.doctor("clock")
    assert state == "warning" and words in detail
    db.paste(hint)
    wait_until(receiver.accepted, 10, "the event")
    well(db, "clock")


def test_a_schedule_is_no_wrong_clock(db, receiver):
    db.webhook_sink("crm", receiver, SECRET)
    db.sql("SELECT outbox.enqueue('Order', '1', 'e', '1', available_at => now() + interval '90 days')")
    assert db.complaints() == []


def test_a_full_dead_letter_box(db, receiver):
    """How many there are, how large, since when, and whether the number grows."""
    db.webhook_sink("crm", receiver, SECRET)
    failed = "INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, sink, status, attempts, last_error, last_attempt_at) SELECT 'Order', n, 'e', 'crm', 'FAILED', 3, 'HTTP 400', "
    db.sql(failed + "now() - interval '3 days' FROM generate_series(1, 3) n")
    state, detail, hint = db.doctor("dead letters")
    assert state == "warning" and detail.startswith("3 dead letters (") and detail.endswith("; 0 came in the last hour.")
    db.sql(failed + "now() FROM generate_series(4, 10000) n")
    state, detail, hint = db.doctor("dead letters")
    assert state == "error" and detail.startswith("10000 dead letters (") and detail.endswith("; 9997 came in the last hour.")
    assert "HTTP 400" in db.paste(hint)
    db.sql("DELETE FROM outbox.events WHERE status = 'FAILED' AND aggregate_id::int > 5")
    db.paste(db.doctor("sink crm")[2])
    wait_until(lambda: len(receiver.accepted()) == 5, 20, "what was redriven")
    wait_until(lambda: db.complaints() == [], 10, lambda: str(db.complaints()))


def test_a_retention_that_falls_behind(same_day, db, setting):
    setting("outbox.retention", "7d")
    wait_until(lambda: db.value("SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox.events_sent'::regclass") > 3, 10, "the days that the worker makes")
    assert db.doctor("retention")[0] == "ok"
    db.sql("""DO $$ DECLARE day date := (now() AT TIME ZONE 'UTC')::date - 20; BEGIN
              EXECUTE format('CREATE TABLE outbox.events_sent_%s PARTITION OF outbox.events_sent (PRIMARY KEY (position))
                FOR VALUES FROM (%L) TO (%L)', to_char(day, 'YYYYMMDD'), day || ' 00:00Z', day + 1 || ' 00:00Z'); END $$""")
    state, detail, hint = db.doctor("retention")
    assert state == "warning" and detail.startswith("1 day ")
    db.paste(hint)
    well(db, "retention")


def test_days_that_are_missing(db):
    wait_until(lambda: db.doctor("retention", "0 seconds")[0] == "ok", 10, "the days that the worker makes")
    for (day,) in db.sql("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'outbox.events_sent'::regclass"):
        db.sql(f"DROP TABLE {day}")
    state, detail, hint = db.doctor("retention", "0 seconds")
    assert state == "warning" and "not" in detail
    db.paste(hint)
    assert db.doctor("retention", "0 seconds")[0] == "ok"


def test_autovacuum_that_is_off(db, setting):
    db.sql("ALTER TABLE outbox.events_pending SET (autovacuum_enabled = off)")
    state, detail, hint = db.doctor("vacuum")
    assert state == "warning" and "outbox.events_pending" in detail
    db.paste(hint)
    well(db, "vacuum")
    setting("autovacuum", "off")
    state, detail, hint = db.doctor("vacuum")
    assert state == "warning"
    db.paste(hint)
    well(db, "vacuum")


def test_secrets_that_everybody_may_read(db, receiver):
    for table, words in (("pg_user_mapping", "secrets of all user mappings"), ("outbox.events_pending", "payloads")):
        db.sql(f"GRANT SELECT ON {table} TO PUBLIC")
        state, detail, hint = db.doctor("secrets")
        assert state == "error" and words in detail
        db.paste(hint)
        well(db, "secrets")


def test_every_leak_is_named(db, receiver):
    for name in ("crm", "erp", "fine"):
        db.webhook_sink(name, receiver.url + ("?token=t0ken" if name != "fine" else ""), SECRET, events="none")
    db.sql("GRANT SELECT ON outbox.events_pending TO PUBLIC; GRANT SELECT ON pg_user_mapping TO PUBLIC")
    rows = db.sql("SELECT status, detail, hint FROM outbox.doctor() WHERE \"check\" = 'secrets'")
    told = " ".join(detail for _, detail, _ in rows)
    assert [state for state, _, _ in rows] == ["error", "error", "warning", "warning"]
    assert all(words in told for words in ("pg_user_mapping", "outbox.events_pending", "sink crm", "sink erp")) and "sink fine" not in told
    for _, _, hint in rows:
        db.paste(hint)
    assert db.sql("SELECT status FROM outbox.doctor() WHERE \"check\" = 'secrets'") == [("ok",)]


@pytest.mark.parametrize("secret", [None, SECRET])
def test_a_token_in_a_url_that_everybody_may_read(db, receiver, secret):
    """The hint moves the token into the user mapping, without showing it."""
    receiver.secret = None
    db.sql("CREATE SERVER crm FOREIGN DATA WRAPPER outbox_webhook OPTIONS (allow_http 'true', allow_networks '127.0.0.0/8', "
           f"url '{receiver.url}?token=t0ken')")
    if secret:
        db.create_mapping("crm", {"secret": secret})
    state, detail, hint = db.doctor("secrets")
    assert state == "warning" and "sink crm" in detail and "t0ken" not in detail + hint
    db.paste(hint)
    well(db, "secrets")
    assert "t0ken" not in db.value("SELECT srvoptions::text FROM pg_foreign_server WHERE srvname = 'crm'")
    db.enqueue("Order", "1")
    wait_until(lambda: receiver.deliveries and receiver.deliveries[0].path.endswith("?token=t0ken"), 10, "the same request")

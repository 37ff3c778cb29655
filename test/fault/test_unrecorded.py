"""Deliveries that cannot be recorded: they stop no other sink, are sent again by no more than the faults' own measure, and are told of."""

import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import HANG, OK, SECRET, status

pytestmark = [pytest.mark.usefixtures("same_day"), pytest.mark.kills_server]  # the errors are logged on purpose

DAY = "SELECT 'outbox.events_sent_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')"
REFUSE = """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF OLD.sink = 'bad' AND (OLD.headers IS NULL OR OLD.headers ? 'refused') THEN RAISE 'not this one'; END IF; RETURN OLD; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON outbox.events_pending FOR EACH ROW EXECUTE FUNCTION refuse()"""


@pytest.fixture
def day(db) -> str:
    """Today's partition of delivered events, once it is there."""
    day = db.value(DAY)
    wait_until(lambda: db.value("SELECT to_regclass(%s)", day), 20, "today's partition")
    return day


@pytest.fixture
def sinks(db, rig):
    """Two sinks: deliveries of "bad" are recorded only if REFUSE allows it, those of "good" always."""
    bad, good = rig.receiver(secret=SECRET), rig.receiver(secret=SECRET)
    db.webhook_sink("bad", bad, SECRET, aggregates="Bad")
    db.webhook_sink("good", good, SECRET, aggregates="Good")
    yield bad, good
    bad.stop(), good.stop()


def pending(db, sink: str) -> int:
    return db.value("SELECT count(*) FROM outbox.events_pending WHERE sink = %s", sink)


def enqueue(db, aggregate_type: str, first: int, last: int, headers: str | None = None) -> None:
    db.sql("SELECT outbox.enqueue(%s, n::text, 'order.changed', '{}'::jsonb, headers => %s::jsonb) FROM generate_series(%s::int, %s::int) AS n",
           aggregate_type, headers, first, last)


def unrecorded(db, sink: str) -> int:
    return int(next(line.split()[-1] for line in db.value("SELECT outbox.metrics()").splitlines()
                    if line.startswith("outbox_unrecorded_events{") and f'sink="{sink}"' in line))


@pytest.mark.parametrize("how", ["ALTER TABLE outbox.events_sent DETACH PARTITION {day}; DROP TABLE {day}", "DROP TABLE {day}"], ids=["detached", "dropped"])
def test_a_day_that_is_gone_is_made_again(db, receiver, day, how):
    """In the middle of the day, after the worker has used it. What is delivered from then on is kept again."""
    db.webhook_sink("crm", receiver, SECRET, retention="1d")
    db.enqueue("Order", "1")
    wait_until(lambda: db.pending() == 0, 20, "delivery")
    for turn in range(2):
        for statement in how.format(day=day).split("; "):
            db.sql(statement)
        db.enqueue("Order", "2")
        wait_until(lambda: db.pending() == 0, 20, lambda: f"the recording of {db.pending()}")
        assert db.value("SELECT count(*) FROM outbox.events WHERE status = 'SENT'") == 1
    assert len(receiver.deliveries) == 3


def test_a_detached_day_that_keeps_its_name_stops_nothing(db, rig, receiver, day):
    """Its name is taken, so no partition is made: events are deleted instead of kept, and the doctor says what to do."""
    other = rig.receiver(secret=SECRET)
    db.webhook_sink("keeps", receiver, SECRET, retention="1d", aggregates="Kept")
    db.webhook_sink("drops", other, SECRET, aggregates="Other")
    db.enqueue("Kept", "1")
    wait_until(lambda: db.pending() == 0, 20, "delivery")
    db.sql(f"ALTER TABLE outbox.events_sent DETACH PARTITION {day}")
    for n in range(30):
        db.enqueue("Kept", str(n))
        db.enqueue("Other", str(n))
    wait_until(lambda: db.pending() == 0, 40, lambda: f"the recording of {db.pending()}")
    assert (len(receiver.deliveries), len(other.deliveries)) == (31, 30), "nothing is sent twice"
    status, detail, hint = db.doctor("retention", "0s")
    assert status == "error" and f"{day} is no partition" in detail, detail
    db.paste(hint)
    db.enqueue("Kept", "31")
    wait_until(lambda: db.pending() == 0, 20, "delivery")
    assert db.value("SELECT count(*) FROM outbox.events WHERE status = 'SENT'") == 1
    assert db.doctor("retention", "0s")[0] == "ok"
    other.stop()


def test_a_sink_whose_recording_fails_stops_no_other(db, sinks, setting):
    """Each sink has its share of outbox.max_in_flight, and a quarter of it is kept for it whatever another sink's events
    wait for."""
    bad, good = sinks
    setting("outbox.max_in_flight", "40")
    db.sql(REFUSE)
    enqueue(db, "Bad", 1, 200)
    wait_until(lambda: len(bad.deliveries) >= 8, 20, "the first deliveries")
    for first in range(1, 301, 100):
        enqueue(db, "Good", first, first + 99)
        wait_until(lambda: pending(db, "good") == 0, 20, lambda: f"{pending(db, 'good')} events of the other sink to be recorded")
    assert len(good.deliveries) == 300, "nothing is sent twice"
    assert len(bad.deliveries) <= 35, "a sink whose recording fails claims no more"
    db.sql("DROP TRIGGER refuse ON outbox.events_pending")
    wait_until(lambda: db.pending() == 0, 100, lambda: f"the recording of {db.pending()}")
    assert len(bad.deliveries) == 200, "nothing is sent twice"


def test_rows_that_fail_stop_no_other_rows_of_their_sink(db, sinks, setting):
    bad, _ = sinks
    setting("outbox.max_in_flight", "100")
    db.sql(REFUSE)
    enqueue(db, "Bad", 1, 10, '{"refused": "yes"}')
    for first in range(1, 201, 50):
        enqueue(db, "Bad", first, first + 49, '{"taken": "yes"}')
        wait_until(lambda: pending(db, "bad") == 10, 20, lambda: f"the recording of {pending(db, 'bad')}")
    db.sql("DROP TRIGGER refuse ON outbox.events_pending")
    wait_until(lambda: db.pending() == 0, 100, lambda: f"the recording of {db.pending()}")
    assert len(bad.deliveries) == 210, "nothing is sent twice"


def test_it_is_told(db, sinks):
    """The state of the sink, a check of the doctor and a metric: for as long as it lasts."""
    db.sql(REFUSE)
    enqueue(db, "Bad", 1, 30)
    enqueue(db, "Good", 1, 30)
    wait_until(lambda: db.state("bad") == "recording fails", 20, lambda: f"the state, not {db.state('bad')}")
    wait_until(lambda: unrecorded(db, "bad") == 30, 20, lambda: f"the metric, not {unrecorded(db, 'bad')}")
    assert unrecorded(db, "good") == 0
    status, detail, hint = db.doctor("sink bad")
    assert status == "error" and detail.startswith("Delivered and not recorded: 30, since ") and detail.endswith("not this one"), detail
    db.paste(hint)
    assert db.doctor("sink good")[0] != "error" and db.state("good") == "idle"
    db.sql("DROP TRIGGER refuse ON outbox.events_pending")
    wait_until(lambda: db.pending() == 0, 100, lambda: f"the recording of {db.pending()}")
    wait_until(lambda: db.state("bad") == "idle" and unrecorded(db, "bad") == 0, 20, lambda: f"the state, not {db.state('bad')}")
    assert db.doctor("sink bad")[0] != "error"


@pytest.mark.parametrize("before, of, told, cure", [
    ("", "TABLE outbox.events WHERE (status = 'PENDING')", "Column used in the publication WHERE expression is not part of the replica identity.",
     "ALTER PUBLICATION mine SET (publish = 'insert')"),
    ("", "TABLE outbox.events (id, payload)", "Column list used by the publication does not cover the replica identity.", "DROP PUBLICATION mine"),
    ("ALTER TABLE outbox.events_pending REPLICA IDENTITY NOTHING", "ALL TABLES", "To enable deleting from the table, set REPLICA IDENTITY", None),
], ids=["filter", "columns", "no identity"])
def test_a_publication_is_named(db, sinks, before, of, told, cure):
    """PostgreSQL refuses every DELETE. Its DETAIL or HINT names the cause, and the doctor the publication."""
    bad, _ = sinks
    if before:
        db.sql(before)
    db.sql(f"CREATE PUBLICATION mine FOR {of} WITH (publish_via_partition_root = {'true' if cure else 'false'})")
    enqueue(db, "Bad", 1, 3)
    wait_until(lambda: db.state("bad") == "recording fails", 20, lambda: f"the state, not {db.state('bad')}")
    status, detail, hint = db.doctor("sink bad")
    assert status == "error" and told in detail and "check publications" in hint, (detail, hint)
    rows = db.sql("SELECT status, detail, hint FROM outbox.doctor() WHERE \"check\" = 'publications' AND detail LIKE '%%events_pending%%'")
    assert [(status, "the publication mine: " in detail) for status, detail, _ in rows] == [("error", True)], rows
    db.sql(cure or rows[0][2])
    wait_until(lambda: db.pending() == 0, 100, lambda: f"the recording of {db.pending()}")
    assert db.doctor("publications")[0] == "ok"
    assert len(bad.deliveries) == 3, "nothing is sent twice"


@pytest.mark.parametrize("delivered", [0, 2])
def test_a_constraint_that_refuses_a_failed_attempt_is_told_as_that(db, sinks, delivered):
    """PostgreSQL's DETAIL shows the row with its payload, and stands neither in the log nor in the doctor."""
    bad, _ = sinks
    db.sql("ALTER TABLE outbox.events ADD CONSTRAINT no_500 CHECK (status <> 'PENDING' OR last_error !~ 'HTTP 500') NOT VALID")
    if delivered:
        db.sql(REFUSE)
    bad.mode = lambda delivery: status(500) if b"sesame" in delivery.body else OK
    db.sql("SELECT outbox.enqueue('Bad', n::text, 'order.changed', jsonb_build_object('word', CASE WHEN n = 1 THEN 'sesame' END)) FROM generate_series(1, %s) AS n", 1 + delivered)
    told = "Delivered and not recorded: 2; Failed and not recorded: 1, since " if delivered else "Failed and not recorded: 1, since "
    state, detail, hint = wait_until(lambda: (said := db.doctor("sink bad")) and said[1].startswith(told) and said, 60, lambda: str(db.doctor("sink bad")))
    assert state == "error" and db.state("bad") == "recording fails"
    shown = db.paste(hint)
    assert "no_500" in shown and "events_pending_id_sink_key" not in shown and ("refuse" in shown) == bool(delivered), shown
    log = [line for line in db.pg.log.read_text().splitlines() if db.name in line or "no_500" in line]
    assert any('violates check constraint "no_500"' in line for line in log)
    assert "sesame" not in db.pg.log.read_text() and "Failing row" not in db.pg.log.read_text()
    db.sql("ALTER TABLE outbox.events DROP CONSTRAINT no_500")
    if delivered:
        db.sql("DROP TRIGGER refuse ON outbox.events_pending")
    bad.mode = OK
    wait_until(lambda: db.state("bad") != "recording fails", 100, "the recording")
    db.sql("UPDATE outbox.events SET available_at = now() WHERE status = 'PENDING'")
    wait_until(lambda: db.pending() == 0, 60, lambda: f"the recording of {db.pending()}")


def test_a_row_that_a_trigger_keeps_is_not_taken_for_recorded(db, sinks):
    """A BEFORE DELETE trigger that returns NULL."""
    bad, _ = sinks
    db.sql(REFUSE.replace("RAISE 'not this one'", "RETURN NULL"))
    enqueue(db, "Bad", 1, 3)
    wait_until(lambda: db.state("bad") == "recording fails", 20, lambda: f"the state, not {db.state('bad')}")
    assert "trigger" in db.doctor("sink bad")[1]
    db.sql("DROP TRIGGER refuse ON outbox.events_pending")
    wait_until(lambda: db.pending() == 0, 100, lambda: f"the recording of {db.pending()}")
    assert len(bad.deliveries) == 3, "nothing is sent twice"


def test_restarts_do_not_send_all_of_it_again(db, sinks):
    """A worker that ends cannot record what was delivered. The next one sends a single event, until a recording succeeds."""
    bad, _ = sinks
    db.sql(REFUSE)
    enqueue(db, "Bad", 1, 31)
    wait_until(lambda: len(bad.deliveries) == 31 and db.state("bad") == "recording fails", 20, "the deliveries")
    for turn in range(3):
        [(worker,)] = db.sql("SELECT pid FROM outbox.workers WHERE database = %s", db.name)
        sent = len(bad.deliveries)
        db.sql("SELECT pg_terminate_backend(%s)", worker)
        wait_until(lambda: db.sql("SELECT FROM outbox.workers WHERE database = %s AND pid <> %s", db.name, worker), 60, "the next worker")
        wait_until(lambda: len(bad.deliveries) > sent and db.state("bad") == "recording fails", 60, "its first delivery")
    assert len(bad.deliveries) <= 31 + 3 * 2
    db.sql("DROP TRIGGER refuse ON outbox.events_pending")
    wait_until(lambda: db.pending() == 0, 100, lambda: f"the recording of {db.pending()}")


def test_what_can_be_recorded_is_recorded_before_a_restart(db, sinks):
    """Beside rows that cannot be recorded, in the last transactions of a worker."""
    bad, good = sinks
    db.sql(REFUSE)
    bad.mode = good.mode = HANG
    enqueue(db, "Bad", 1, 8)
    enqueue(db, "Good", 1, 8)
    wait_until(lambda: bad.open_requests == good.open_requests == 8, 20, "the requests")
    [(worker,)] = db.sql("SELECT pid FROM outbox.workers WHERE database = %s", db.name)
    db.sql("SELECT pg_terminate_backend(%s)", worker)
    wait_until(lambda: db.value("SELECT state FROM outbox.workers WHERE pid = %s", worker) == "shutting down", 20, "its last transactions")
    bad.mode = good.mode = OK
    bad.release(OK), good.release(OK)
    wait_until(lambda: pending(db, "good") == 0, 60, "the recording")
    assert len(good.deliveries) == 8, "nothing is sent twice"

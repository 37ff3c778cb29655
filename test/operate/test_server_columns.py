"""Columns of an event that only the server may set: applications cannot, and no value in them prevents recording a
failure."""

import uuid

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import status

MOST = 2**31 - 1


@pytest.fixture
def app(db):
    """A role with INSERT and UPDATE that owns nothing."""
    db.sql("CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA outbox TO app; GRANT SELECT, INSERT, UPDATE ON outbox.events TO app")
    with db.connect(user="app") as session:
        yield session
    db.sql("DROP OWNED BY app; DROP ROLE app")


def test_an_insert_gives_no_column_that_the_server_fills(db, app):
    columns = "attempts, last_error, sent_at, last_attempt_at, blocked_by, xact, origin, overtaken_by, redrive_late"
    statement = (f"INSERT INTO outbox.events (aggregate_type, event_type, id, {columns}) VALUES ('Order', 'x', %s, {MOST}, 'a lie', '2020-01-01',"
                 f" '2020-01-01', 7, '7', 7, 7, true) RETURNING {columns.replace('xact', 'xact = pg_current_xact_id()').replace('origin', 'origin = (SELECT origin FROM here)')}")
    db.sql("CREATE VIEW here AS SELECT origin FROM outbox_internal.library(); GRANT SELECT ON here TO app; GRANT EXECUTE ON FUNCTION outbox_internal.library() TO app")
    assert app.execute(statement, [uuid.uuid4()]).fetchone() == (0, None, None, None, None, True, True, None, None)
    # Values that the owner restores stay unchanged.
    assert db.sql(statement, uuid.uuid4())[0][:2] == (MOST, "a lie")


def test_an_update_gives_no_column_that_is_the_servers_alone(db, app):
    event = db.enqueue("Order", "1")
    columns = "position, xact, origin, blocked_by, overtaken_by, redrive_late"
    before = db.sql(f"SELECT {columns} FROM outbox.events")
    for more in ("", ", status = 'FAILED'"):
        app.execute("UPDATE outbox.events SET position = position + 1000, xact = '7', origin = 7, blocked_by = 7, overtaken_by = 7, redrive_late = true" + more)
        assert db.sql(f"SELECT {columns} FROM outbox.events") == before
    assert app.execute("UPDATE outbox.events SET status = 'PENDING', attempts = 3, last_error = 'tried' RETURNING redrive_late, attempts, id::text").fetchone() == (True, 3, event)
    db.sql("UPDATE outbox.events SET origin = 7")
    assert db.value("SELECT origin FROM outbox.events") == 7


@pytest.mark.parametrize("attempts", [MOST, MOST - 1, -MOST - 1])
def test_a_failure_is_recorded_whatever_number_stands_there(db, receiver, attempts):
    receiver.mode = status(400)
    db.webhook_sink("crm", receiver, max_attempts="2", retry="1ms")
    db.sql(f"INSERT INTO outbox.events (aggregate_type, event_type, attempts) VALUES ('Order', 'x', {attempts})")
    wait_until(lambda: db.sink("dead") == (1,), 10, "a dead letter")
    assert db.value("SELECT attempts FROM outbox.events") == (2 if attempts < 0 else MOST)


@pytest.mark.parametrize("attempts", [MOST, -MOST - 1])
def test_nack_counts_whatever_number_stands_there(db, attempts):
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER mine FOREIGN DATA WRAPPER outbox_manual OPTIONS (max_attempts '2', retry '0s')")
    db.sql(f"INSERT INTO outbox.events (aggregate_type, event_type, attempts) VALUES ('Order', 'x', {attempts})")
    ended = [db.value("SELECT outbox.nack(token, id, 'no') FROM outbox.claim('mine')") for _ in range(1 if attempts > 0 else 2)]
    assert ended[-1] == "FAILED"
    assert db.value("SELECT attempts FROM outbox.events") == (2 if attempts < 0 else MOST)


def test_no_column_can_be_added(db):
    """Its values would be lost when the row moves or is copied."""
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="a column cannot be added to outbox.events") as error:
        db.sql("ALTER TABLE outbox.events ADD COLUMN tenant text DEFAULT 'acme'")
    assert "table of your own" in error.value.diag.message_hint
    with pytest.raises(psycopg.errors.WrongObjectType):  # PostgreSQL's own
        db.sql("ALTER TABLE outbox.events_pending ADD COLUMN tenant text")
    db.sql("CREATE TABLE public.events (id int); ALTER TABLE public.events ADD COLUMN tenant text")


def test_no_rule_can_be_added(db):
    """What a rule changed within a statement of the worker would not be read again. A view may have one."""
    for table in ("events", "events_pending", "events_failed", "events_sent", "stopped_sinks"):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match=f"table {table} cannot have a rule") as error:
            db.sql(f"CREATE RULE mine AS ON UPDATE TO outbox.{table} DO ALSO UPDATE outbox.events SET payload = '1'")
        assert error.value.diag.message_hint == "Use a trigger."
    db.sql("CREATE VIEW public.mine AS SELECT * FROM outbox.events; CREATE RULE mine AS ON UPDATE TO public.mine DO INSTEAD NOTHING")
    assert db.value("SELECT count(*) FROM pg_rewrite WHERE rulename = 'mine'") == 1

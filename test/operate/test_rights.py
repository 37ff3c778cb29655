"""The roles of docs/security.md: what they may do, and that they may do no more."""

import json
import os
import re
import subprocess

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.paths import ROOT, pg_config
from outbox_rig.receiver import SECRET, status

PAGE = re.findall(r"^```sql\n(.*?)^```$", (ROOT / "docs/security.md").read_text(), re.MULTILINE | re.DOTALL)
PAYLOAD, HEADER, KEY = "payl0ad-of-somebody", "head3r-of-somebody", "dedup-k3y-of-somebody"


def block(beginning: str) -> str:
    """The page's SQL."""
    [found] = [sql for sql in PAGE if sql.startswith(beginning)]
    return found


@pytest.fixture
def roles(db):
    """app, operator and integration."""
    db.sql("CREATE ROLE app LOGIN; CREATE ROLE operator LOGIN")
    yield
    for role in ("app", "operator", "integration"):
        if db.sql("SELECT 1 FROM pg_roles WHERE rolname = %s", role):
            db.sql(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


@pytest.fixture
def dead_letter(db, roles, receiver):
    """A dead letter of another user's event, which no endpoint accepted."""
    receiver.mode = status(400, body=b"no")
    db.webhook_sink("crm", receiver, SECRET, max_attempts="1")
    event = db.enqueue("Order", "1", payload=json.dumps({"a": PAYLOAD}), headers=json.dumps({"h": HEADER}), dedup_key=KEY)
    wait_until(lambda: db.sink("dead") == (1,), 10, "a dead letter")
    return event


def refused(session: psycopg.Connection, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.execute(statement)


def told(error: psycopg.Error) -> str:
    diagnosis = error.diag
    return " ".join(filter(None, (diagnosis.message_primary, diagnosis.message_detail, diagnosis.message_hint, diagnosis.context)))


def test_an_application_may_enqueue_and_nothing_else(db, dead_letter):
    with db.connect(user="app") as app:
        refused(app, "SELECT outbox.enqueue('Order', 1, 'x', '{}')")
        db.sql("GRANT USAGE ON SCHEMA outbox TO app")
        with pytest.raises(psycopg.errors.InsufficientPrivilege) as no_right:
            app.execute("SELECT outbox.enqueue('Order', 1, 'x', '{}')")
        db.sql("REVOKE USAGE ON SCHEMA outbox FROM app")
        given = block("GRANT USAGE ON SCHEMA outbox TO app")
        assert no_right.value.diag.message_hint in given
        db.sql(given)
        first = app.execute("SELECT outbox.enqueue('Order', 1, 'x', '{}', dedup_key => 'mine')").fetchone()
        assert app.execute("SELECT outbox.enqueue('Order', 1, 'x', '{}', dedup_key => 'mine')").fetchone() == first
        assert str(app.execute("SELECT outbox.enqueue('Order', 1, 'x', '{}', dedup_key => %s)", [KEY]).fetchone()[0]) == dead_letter
        assert db.sql("""SELECT oid::regclass FROM pg_class WHERE relnamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace) AND relkind IN ('r', 'p', 'v')
          AND (has_any_column_privilege('app', oid, 'SELECT, UPDATE, REFERENCES') OR has_table_privilege('app', oid, 'DELETE, TRUNCATE, TRIGGER')
               OR oid <> 'outbox.events'::regclass AND has_any_column_privilege('app', oid, 'INSERT'))""") == []
        refused(app, "SELECT FROM outbox.events")
        callable = {name for name, in db.sql("SELECT DISTINCT proname::text FROM pg_proc WHERE pronamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace)"
                                             " AND has_function_privilege('app', oid, 'EXECUTE')")}
        assert callable == {"enqueue", "enqueue_bytes"}

        waiting = db.enqueue("Invoice", "1", payload=json.dumps({"a": PAYLOAD}), headers=json.dumps({"h": HEADER}), available_at="infinity")
        with pytest.raises(psycopg.errors.UniqueViolation) as clash:
            app.execute("SELECT outbox.enqueue('Order', 1, 'x', '{}', id => %s)", [waiting])
        assert not {PAYLOAD, HEADER, "Invoice"} & set(re.split(r"\W", told(clash.value)))

        refused(app, "SELECT outbox.enqueue('Order', 1, 'x', '{}', sink => 'crm')")
        db.sql(block("GRANT USAGE ON FOREIGN SERVER crm TO app"))
        app.execute("SELECT outbox.enqueue('Order', 1, 'x', '{}', sink => 'crm')")

        app.execute("INSERT INTO outbox.events (aggregate_type, event_type) VALUES ('Order', 'x')")
        insert = "INSERT INTO outbox.events (aggregate_type, event_type) VALUES ('Order', 'x') RETURNING "
        refused(app, insert + "id")
        db.sql(block("GRANT SELECT (id) ON outbox.events TO app"))
        assert app.execute(insert + "id").fetchone()
        for shown in ("payload", "*", "events", "headers"):
            refused(app, insert + shown)
        refused(app, "SELECT payload FROM outbox.events")
        refused(app, "DELETE FROM outbox.events")
        refused(app, "UPDATE outbox.events SET status = 'SENT'")


def test_an_application_sees_its_own_event_and_no_other(db, dead_letter, receiver):
    """By the id, which only it knows; wait_delivered() and this function need a grant."""
    status_of = "SELECT sink, status, attempts, last_error FROM outbox.event_status(%s)"
    db.sql(block("GRANT USAGE ON SCHEMA outbox TO app"))
    with db.connect(user="app") as app:
        mine = app.execute("SELECT outbox.enqueue('Order', 2, 'x', '{}')").fetchone()[0]
        refused(app, f"SELECT outbox.event_status('{mine}')")
        refused(app, f"CALL outbox.wait_delivered('{mine}')")
        db.sql(block("GRANT EXECUTE ON FUNCTION outbox.event_status TO app"))
        wait_until(lambda: app.execute(status_of, [mine]).fetchall() == [("crm", "FAILED", 1, "HTTP 400: no")], 10, lambda: str(app.execute(status_of, [mine]).fetchall()))
        receiver.mode = status(200)
        with db.connect(user="app", autocommit=False) as writer:
            pending = writer.execute("SELECT outbox.enqueue('Order', 3, 'x', '{}')").fetchone()[0]
            assert writer.execute(status_of, [pending]).fetchall() == [("crm", "PENDING", 0, None)]
            assert app.execute(status_of, [pending]).fetchall() == []
            writer.commit()
            writer.autocommit = True
            writer.execute(f"CALL outbox.wait_delivered('{pending}')")
        assert app.execute(status_of, [pending]).fetchall() == []
        everything = str(app.execute("SELECT * FROM outbox.event_status(%s)", [dead_letter]).fetchall())
        assert "FAILED" in everything and not [secret for secret in (PAYLOAD, HEADER, KEY) if secret in everything]
        refused(app, "SELECT FROM outbox.events")


def test_an_operator_sees_all_but_what_is_in_the_events(db, dead_letter, receiver):
    db.sql(block("GRANT pg_monitor TO operator"))
    with db.connect(user="operator") as operator:
        def shown(query: str) -> list[tuple]:
            return operator.execute(query).fetchall()

        assert shown("SELECT id::text, sink, status FROM outbox.events") == [(dead_letter, "crm", "FAILED")]
        assert shown("SELECT name, dead FROM outbox.sinks") == [("crm", 1)] and shown("SELECT count(*) > 0 FROM outbox.workers") == [(True,)]
        assert ("sink crm", "warning") in shown('SELECT "check", status FROM outbox.doctor()')
        assert shown("SELECT outbox.pause('crm'), outbox.resume('crm'), outbox.reset_stats('crm')") == [(True, True, "")]

        db.sql("GRANT USAGE ON SCHEMA outbox_internal TO operator")  # the role of a user who finds a way to call the views' functions
        seen = str([shown(f"SELECT * FROM {view}") for view in ("outbox.sinks", "outbox.workers", "pg_stat_activity", "pg_user_mappings", "pg_stats")])
        functions = [name for name, in db.sql("""SELECT oid::regproc::text FROM pg_proc WHERE pronamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace) AND pronargs = pronargdefaults
                                                   AND has_function_privilege('operator', oid, 'EXECUTE')""")]
        assert {"outbox.doctor", "outbox_internal.library"} < set(functions)
        seen += str([shown(f"SELECT * FROM {name}()") for name in functions])
        assert [secret for secret in (PAYLOAD, HEADER, KEY, SECRET) if secret in seen] == []

        for column in ("payload", "payload_bytes", "headers", "content_type", "dedup_key", "*", "events", "to_jsonb(events)", "md5(events::text)"):
            refused(operator, f"SELECT {column} FROM outbox.events")
        refused(operator, "SELECT FROM outbox.events_failed")
        refused(operator, "SELECT FROM outbox_internal.dedup")
        refused(operator, "SELECT FROM outbox.events WHERE headers IS NOT NULL")
        refused(operator, "UPDATE outbox.events SET available_at = now() RETURNING payload")
        refused(operator, "UPDATE outbox.events SET sink = 'other'")
        refused(operator, "DELETE FROM outbox.events")
        refused(operator, f"SELECT outbox.preview('{dead_letter}')")
        refused(operator, "SELECT outbox.adopt()")
        refused(operator, "SELECT outbox.probe('crm')")
        db.sql(block("GRANT EXECUTE ON FUNCTION outbox.probe TO operator"))
        assert shown("SELECT bool_and(ok) FROM outbox.probe('crm')") == [(True,)]

    receiver.mode = status(200)
    db.sql(block("SET ROLE operator"))  # everything that an operator does according to the page, including a redrive
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events") == 0, 10, "the dead letter to be delivered")
    assert receiver.accepted()


def test_a_monitor_needs_no_other_right(db, dead_letter):
    """The rights of the built-in role are enough."""
    db.sql("GRANT pg_monitor TO app")
    with db.connect(user="app") as monitor:
        for place in ("outbox.sinks", "outbox.workers", "outbox.doctor()", *(["outbox.metrics()"] if db.value("SELECT to_regproc('outbox.metrics')") else [])):
            assert monitor.execute(f"SELECT count(*) FROM {place}").fetchone()[0] > 0
        refused(monitor, "SELECT FROM outbox.events")
        refused(monitor, "SELECT outbox.pause('crm')")
        refused(monitor, "SELECT outbox.reset_stats()")


def test_an_owner_of_sinks(db, roles):
    """It creates sinks for all roles, with secrets that others cannot read."""
    db.sql(block("CREATE ROLE integration"))
    db.sql("ALTER ROLE integration LOGIN")
    with db.connect(user="integration") as owner:
        server = "CREATE SERVER mine FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://crm.example/hooks'{})"
        with pytest.raises(psycopg.Error) as secret:
            owner.execute(server.format(f", secret '{SECRET}'"))
        assert "CREATE USER MAPPING FOR PUBLIC" in secret.value.diag.message_hint and SECRET not in told(secret.value)
        owner.execute(server.format(""))
        with pytest.raises(psycopg.Error, match="must be for PUBLIC"):
            owner.execute(f"CREATE USER MAPPING FOR integration SERVER mine OPTIONS (secret '{SECRET}')")
        owner.execute(f"CREATE USER MAPPING FOR PUBLIC SERVER mine OPTIONS (secret '{SECRET}')")
        refused(owner, "SELECT FROM outbox.events")
        refused(owner, "ALTER SERVER mine OPTIONS (ADD allow_networks '127.0.0.0/8')")
    with db.connect(user="app") as app:
        assert app.execute("SELECT srvoptions FROM pg_foreign_server WHERE srvname = 'mine'").fetchone() == (["url=https://crm.example/hooks"],)
        assert app.execute("SELECT umoptions FROM pg_user_mappings WHERE srvname = 'mine'").fetchone() == (None,)
        refused(app, "SELECT FROM pg_user_mapping")
        refused(app, "CREATE SERVER other FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://crm.example/hooks')")
    assert db.value("SELECT outbox.enqueue('Order', 1, 'x', '{}') IS NOT NULL") and db.sql("SELECT sink FROM outbox.events") == [("mine",)]


RIGHTS = """SELECT what, grantee::regrole::text, privilege_type FROM (
    SELECT oid::regclass::text AS what, relacl AS acl FROM pg_class WHERE relnamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace)
    UNION ALL SELECT attrelid::regclass || '.' || attname, attacl FROM pg_attribute WHERE attrelid = 'outbox.events'::regclass
    UNION ALL SELECT oid::regprocedure::text, proacl FROM pg_proc WHERE pronamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace)
    UNION ALL SELECT srvname, srvacl FROM pg_foreign_server
    UNION ALL SELECT nspname, nspacl FROM pg_namespace WHERE nspname IN ('outbox', 'outbox_internal')) AS a, aclexplode(a.acl)
  WHERE grantee IN (SELECT oid FROM pg_roles WHERE rolname IN ('app', 'operator', 'pg_monitor')) ORDER BY 1, 2, 3"""


def test_a_restored_database_has_the_same_rights(pg, db, roles):
    """pg_dump includes the privileges that users granted on the extension's objects."""
    db.webhook_sink("crm", "http://127.0.0.1:1/", SECRET)
    for beginning in ("GRANT USAGE ON SCHEMA outbox TO app", "GRANT USAGE ON FOREIGN SERVER crm TO app", "GRANT SELECT (id)", "GRANT pg_monitor", "GRANT EXECUTE ON FUNCTION outbox.event_status",
                      "GRANT EXECUTE ON FUNCTION outbox.probe"):
        db.sql(block(beginning))
    granted = db.sql(RIGHTS)
    assert {("outbox.events.last_error", "operator", "SELECT"), ("outbox.events", "app", "INSERT")} <= set(granted) and ("outbox.sinks", "pg_monitor", "SELECT") in granted and len(granted) > 25
    copy = Database(pg, "restored_rights")
    with pg.connect() as admin:
        admin.execute("CREATE DATABASE restored_rights")
    try:
        environment = os.environ | {"PGOPTIONS": "-c client_min_messages=warning"}
        dump = subprocess.run([pg_config("bindir") / "pg_dump", "-d", pg.dsn(db.name)], capture_output=True, check=True, env=environment)
        subprocess.run([pg_config("bindir") / "psql", "-qX", "-d", pg.dsn("restored_rights")], input=dump.stdout, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        assert copy.sql(RIGHTS) == granted
    finally:
        copy.drop()

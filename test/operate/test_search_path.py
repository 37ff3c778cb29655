"""A hostile schema first in the search_path, and a hostile pg_temp: operators, functions, types and tables that look
like PostgreSQL's and ours and record every use. They are never used, and everything works as without them."""

import re

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.paths import ROOT
from outbox_rig.receiver import SECRET, status

TYPES = ["text", "name", "bigint", "integer", "oid", "xid8", "uuid", "boolean", "timestamptz", "interval", "jsonb", "json", "tid", "float8", '"char"', "regclass", "bytea"]
TRAP = """CREATE SCHEMA evil; GRANT USAGE ON SCHEMA evil TO PUBLIC;
DO $do$
DECLARE
  f record;
  n int := 0;
  body text := $body$ LANGUAGE plpgsql AS $$ BEGIN RAISE LOG 'caught: %s'; RETURN NULL; END $$ $body$;
BEGIN
  -- Every operator on our types, so an exact match that comes first.
  FOR f IN SELECT o.oprname, format_type(o.oprleft, NULL) AS l, format_type(o.oprright, NULL) AS r, format_type(o.oprresult, NULL) AS result
           FROM pg_operator AS o WHERE o.oprleft = ANY ({types}) AND o.oprright = ANY ({types}) AND o.oprcode <> 0 LOOP
    n := n + 1;
    EXECUTE format('CREATE FUNCTION evil.op%s(%s, %s) RETURNS %s', n, f.l, f.r, f.result) || format(body, 'operator ' || replace(f.oprname, '%', '%%'));
    EXECUTE format('CREATE OPERATOR evil.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = evil.op%s)', f.oprname, f.l, f.r, n);
  END LOOP;
  -- Every function of PostgreSQL's that ours name, and those of ours that they call.
  FOR f IN SELECT DISTINCT p.proname, pg_get_function_identity_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result
           FROM pg_proc AS p
           WHERE (p.pronamespace = 'pg_catalog'::regnamespace OR p.pronamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace)) AND p.prokind = 'f'
             AND (p.proname IN ('now', 'clock_timestamp', 'unnest', 'nextval', 'hashtextextended', 'int8', 'text', 'jsonb_each')
                  OR EXISTS (SELECT FROM pg_proc AS o WHERE o.pronamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace) AND o.prosrc ~ ('\\m' || p.proname || '\\s*\\(')))
             AND pg_get_function_arguments(p.oid) !~ '"any"|internal|cstring|any' AND pg_get_function_result(p.oid) !~ 'trigger|any|internal|record|TABLE|cstring|SETOF|void|handler' LOOP
    EXECUTE format('CREATE FUNCTION evil.%I(%s) RETURNS %s', f.proname, f.arguments, f.result) || format(body, 'function ' || f.proname);
  END LOOP;
END $do$;
CREATE FUNCTION evil.unnest(bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql AS $$ BEGIN RAISE LOG 'caught: unnest'; END $$;
CREATE FUNCTION evil.unnest(text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN RAISE LOG 'caught: unnest'; END $$;
CREATE FUNCTION evil.format(text, text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE LOG 'caught: format'; RETURN $1; END $$;
CREATE FUNCTION evil.aggregated(bigint, "any") RETURNS bigint LANGUAGE internal IMMUTABLE AS 'int8inc_any';
CREATE FUNCTION evil.told(bigint) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE LOG 'caught: aggregate'; RETURN $1; END $$;
CREATE AGGREGATE evil.count("any") (SFUNC = evil.aggregated, STYPE = bigint, INITCOND = '0', FINALFUNC = evil.told);
CREATE AGGREGATE evil.count(*) (SFUNC = int8inc, STYPE = bigint, INITCOND = '0', FINALFUNC = evil.told)"""
# Tables that were read in place of ours would be empty, which would show.
RELATIONS = ["events", "events_pending", "events_failed", "dedup", "rescan_queue", "stopped_sinks", "failing_sinks", "leases", "sinks", "wrappers",
             "pg_class", "pg_foreign_server", "pg_user_mapping", "pg_namespace", "pg_extension", "pg_database", "pg_roles", "pg_inherits", "pg_locks"]
VALUES = {"text": "'x'", "bigint": "1", "double precision": "1", "uuid": "'018f0000-0000-7000-8000-000000000001'", "jsonb": "'{}'", "json": "'{}'", "bytea": "'x'", "boolean": "true", "tid": "'(0,1)'",
          "timestamp with time zone": "'2030-01-01'", "interval": "'1s'", "oid": "1417", "regclass": "'outbox_internal.dedup'", "text[]": "'{url=https://crm.invalid}'", "integer": "1",
          "uuid[]": "'{018f0000-0000-7000-8000-000000000001}'", "bigint[]": "'{1}'"}
UUID = "'018f0000-0000-7000-8000-00000000000{}'"


@pytest.fixture
def trap(pg):
    """A database with the hostile schema first in its search_path, and a session of it; db's own session has the
    default path."""
    db = Database(pg, "trapped").create()
    db.sql(TRAP.replace("{types}", "ARRAY['" + "'::regtype::oid, '".join(TYPES) + "'::regtype::oid]"))
    for name in RELATIONS:
        db.sql(f"CREATE TABLE evil.{name} (nothing int)")
    for name in ("text", "uuid", "jsonb", "json", "xid8", "regclass", "timestamptz", "name", "oid", "bytea"):
        db.sql(f"CREATE DOMAIN evil.{name} AS pg_catalog.int4" if name not in RELATIONS else "SELECT 1")
    db.sql("ALTER DATABASE trapped SET search_path = evil, pg_temp, pg_catalog")
    with db.connect() as session:
        for name in RELATIONS:
            session.execute(f"CREATE TEMPORARY TABLE {name} (nothing pg_catalog.int4)")
        yield db, session
    db.drop()


def result(session: psycopg.Connection, statement: str) -> str:
    """A statement's rows, or its error, without the parts that vary."""
    session.execute("BEGIN")
    try:
        rows = str(session.execute(statement).fetchall()) if not statement.startswith(("INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP")) \
            else str(session.execute(statement).rowcount)
    except psycopg.Error as error:
        rows = f"{error.sqlstate} {error.diag.message_primary}"
    session.execute("ROLLBACK")
    return re.sub(r"datetime\.\w+\([^()]*(\([^()]*\))?[^()]*\)|[0-9a-f]{8}-[0-9a-f-]{27}|\d+", "?", rows)


def statements(db: Database) -> list[str]:
    """A call of each function, and each way to write with plain SQL; all names in them are qualified."""
    functions = db.sql("""SELECT p.oid::regproc::text, ARRAY(SELECT replace(replace(format_type(t, NULL), 'anyelement', 'json'), 'anycompatible', 'text') FROM unnest(p.proargtypes) AS t)
      FROM pg_proc AS p WHERE p.pronamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace) AND p.prorettype <> 'trigger'::regtype
        AND p.prokind = 'f' AND p.proname NOT IN ('probe', 'announce', 'grant_privilege', 'time_limit') ORDER BY 1, 2""")
    assert len(functions) > 25

    def value(of: str) -> str:
        return f"{VALUES[of]}::" + (f"pg_catalog.{of}" if of.endswith("[]") else f"pg_catalog.{of}" if " " not in of and of != "bigint" and of != "boolean" and of != "integer"
                                    else of)

    calls = [f"SELECT * FROM {name}({', '.join(value(of) for of in types)})" for name, types in functions]
    one, two = (UUID.format(n) for n in (1, 2))
    return calls + [
        f"SELECT * FROM outbox.redrive({one}, 'crm', true)", f"SELECT outbox.redrive({one})", f"SELECT * FROM outbox.preview({one}, 'crm')",
        f"SELECT * FROM outbox.preview({two})", "SELECT outbox.pause('crm')", "SELECT outbox.resume('crm')", "SELECT outbox.reset_stats('crm')",
        "SELECT event_type, attempts, outbox.ack(token) FROM outbox.claim('mine')", "SELECT outbox.nack(token, id, 'no') FROM outbox.claim('mine')",
        "SELECT outbox.nack(token, id, 'no', give_up => true) FROM outbox.claim('mine')",
        "SELECT * FROM outbox.sinks", "SELECT database, worker, workers FROM outbox.workers",
        "SELECT outbox.enqueue('Order', '1', 'x', '{}', '{\"h\": 1}', 'k', 'd', '2030-01-01', 'crm')",
        "SELECT outbox.enqueue('Order', '1', 'x', '{}', dedup_key => 'known')",
        "INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, dedup_key) SELECT 'Order', '1', 'x', 'k'",
        "INSERT INTO outbox.events (aggregate_type, event_type, dedup_key) VALUES ('Order', 'x', 'known')",
        "UPDATE outbox.events SET available_at = '2031-01-01', headers = '{\"n\": 1}', sink = 'other'",
        "UPDATE outbox.events SET status = 'PENDING'", "DELETE FROM outbox.events",
        "CREATE SERVER third FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://crm.invalid')",
        "ALTER SERVER crm OPTIONS (ADD timeout '3s')", "ALTER SERVER crm RENAME TO crm2", "DROP SERVER other CASCADE",
    ]


def test_nothing_is_found_by_the_callers_search_path(trap, pg, receiver):
    db, session = trap
    log = pg.log.stat().st_size

    def caught() -> list[str]:
        return re.findall(r"caught: .*", pg.logged(log))

    session.execute("SELECT now(), 1::bigint = 1::bigint, count(*) FROM pg_class")
    assert len(caught()) >= 3, "the trap is set"
    log = pg.log.stat().st_size

    receiver.mode = status(400)
    db.webhook_sink("crm", receiver, SECRET, max_attempts="2", retry="20ms..50ms", retention="1d")
    db.webhook_sink("other", receiver, SECRET, events="nothing")
    db.sql(f"SELECT outbox.enqueue('Order', '1', 'x', '{{}}', id => {UUID.format(1)})")
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER mine FOREIGN DATA WRAPPER outbox_manual OPTIONS (events 'mine', retention '1d')")
    db.sql("SELECT outbox.enqueue('Order', '3', 'mine', '{}', sink => 'mine')")
    wait_until(lambda: db.sink("dead") == (1,), 10, "a dead letter")
    db.sql(f"SELECT outbox.enqueue('Order', '2', 'x', '{{}}', '{{\"h\": \"1\"}}', dedup_key => 'known', available_at => '2030-01-01', id => {UUID.format(2)})")
    with psycopg.connect(pg.dsn(db.name), autocommit=True, options="-csearch_path=public") as ordinary:
        compared = [(statement, result(ordinary, statement), result(session, statement)) for statement in statements(db)]
    assert [each for each in compared if each[1] != each[2]] == []
    assert sum(not re.match(r"[0-9A-Z?]{5} ", found) for _, found, _ in compared) > 30, "most of them work"

    receiver.mode = status(200)  # the statements of the worker and of its triggers
    session.execute(f"SELECT outbox.redrive({UUID.format(1)})")
    session.execute("SELECT outbox.enqueue('Order', '3', 'x', '{}')")
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events WHERE status = 'SENT'") == 2, 10, "delivery")
    session.execute("ALTER SERVER other OPTIONS (SET events '*')")
    session.execute("SELECT outbox.run_maintenance()")
    assert caught() == []


def test_a_collation_of_the_callers_makes_no_two_sinks_equal(db):
    """A role that may create sinks renames its own, which another sink's events then do not follow."""
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER crm FOREIGN DATA WRAPPER outbox_manual; GRANT USAGE ON FOREIGN DATA WRAPPER outbox_manual TO PUBLIC")
    db.enqueue("Order", "1")
    with db.role("maker") as maker, db.connect() as session:
        db.sql(f"CREATE SCHEMA me AUTHORIZATION {maker}")
        session.execute(f"SET ROLE {maker}; SET search_path = me, pg_catalog")
        session.execute("""CREATE COLLATION me."C" (PROVIDER = icu, LOCALE = 'und-u-ks-level1', DETERMINISTIC = false);
            CREATE SERVER "CRM" FOREIGN DATA WRAPPER outbox_manual OPTIONS (events 'none.*'); ALTER SERVER "CRM" RENAME TO thief""")
        assert db.sql("SELECT sink FROM outbox.events") == [("crm",)]


def test_collations_in_statements_of_sessions_are_qualified():
    """Functions in SQL set the search_path; the server's statements run with their caller's."""
    sources = list((ROOT / "src/server").rglob("*.cpp")) + list((ROOT / "src/server").rglob("*.h"))
    assert len(sources) > 100
    assert [source.name for source in sources if re.search(r"COLLATE (?!pg_catalog\.)", source.read_text())] == []


def test_no_function_reads_a_backslash_by_the_callers_setting(db):
    """standard_conforming_strings = off, which PostgreSQL 19 has no more: a string with a backslash in it begins with
    E."""
    functions = db.sql("SELECT p.oid::regprocedure::text, pg_get_functiondef(p.oid) FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang"
                       " WHERE p.pronamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace) AND l.lanname IN ('sql', 'plpgsql')")
    assert len(functions) > 50
    with db.connect() as session:
        session.execute("SET standard_conforming_strings = off")
        warned = set()
        for name, definition in functions:
            session.add_notice_handler(note := lambda notice, name=name: warned.add(name))
            session.execute(definition)
            session.remove_notice_handler(note)
        assert warned == set()
        assert session.execute("SELECT outbox.metrics() <> ''").fetchone() == (True,)

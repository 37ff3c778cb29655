"""Statements that break the extension's tables, and of which PostgreSQL tells no hook that a server without the preload has. sql/definition.sql has
the others."""

import psycopg
import pytest

SCHEMAS = "IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace)"
BREAKING = {
    "unlogged": f"SELECT format('ALTER %s %s SET UNLOGGED', CASE relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, oid::regclass) FROM pg_class "
                f"WHERE relkind IN ('r', 'p', 'S') AND relnamespace {SCHEMAS}",
    "index": f"SELECT format('DROP INDEX %s', oid::regclass) FROM pg_class WHERE relnamespace {SCHEMAS} AND relname = ANY (outbox_internal.defined_indexes())",
    "constraint": "SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) FROM pg_constraint "
                  f"WHERE connamespace {SCHEMAS} AND conname = ANY (outbox_internal.defined_indexes())",
    "trigger": "SELECT format('DROP TRIGGER %I ON %s', t.tgname, t.tgrelid::regclass) FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid "
               f"JOIN pg_class AS c ON c.oid = t.tgrelid WHERE p.pronamespace {SCHEMAS} AND c.relnamespace {SCHEMAS} AND NOT t.tgisinternal",
}


@pytest.mark.parametrize("what", BREAKING)
def test_what_breaks_the_tables_is_refused(db, what):
    """To superusers, too."""
    statements = [statement for (statement,) in db.sql(BREAKING[what])]
    assert len(statements) >= 5, statements
    accepted = []
    with db.connect(autocommit=False) as session:
        for statement in statements:
            try:
                session.execute(statement)
                accepted.append(statement)
            except psycopg.errors.FeatureNotSupported as refusal:
                assert "of extension outbox cannot be " in str(refusal), (statement, refusal)
            session.rollback()
    assert accepted == []


def test_what_users_add_is_theirs(db):
    db.sql("CREATE INDEX mine ON outbox.events_pending (aggregate_id); DROP INDEX outbox.mine")
    db.sql("ALTER TABLE outbox.events ADD CONSTRAINT mine CHECK (event_type <> 'x'); ALTER TABLE outbox.events DROP CONSTRAINT mine")
    db.sql("CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'")
    db.sql("CREATE TRIGGER mine BEFORE INSERT ON outbox.events FOR EACH ROW EXECUTE FUNCTION mine(); DROP TRIGGER mine ON outbox.events")
    db.sql("CREATE TABLE outbox.mine (id int); ALTER TABLE outbox.mine SET UNLOGGED; DROP TABLE outbox.mine")

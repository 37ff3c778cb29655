"""Versions of the extension: an upgraded database equals a new one and keeps all rights and events, and the library
works with a database that is not upgraded yet. The server has a next version of outbox, made by this test from the
present one."""

import re
import subprocess
from pathlib import Path

import psycopg
import pytest
from outbox_rig import installation, wait_until
from outbox_rig.database import Database
from outbox_rig.extension_objects import differences, extension_objects
from outbox_rig.paths import ROOT, pg_config
from outbox_rig.receiver import SECRET

pytestmark = pytest.mark.slow

FIRST = installation.version_of(ROOT)
NEXT = re.sub(r"\d+$", lambda patch: str(int(patch[0]) + 1), FIRST)
PARTS = sorted((ROOT / "src/extension").glob("*.sql"))
UPDATE = "ALTER EXTENSION outbox UPDATE"
VALUES = {"text": "'x'", "bigint": "1", "double precision": "1", "uuid": "'018f0000-0000-7000-8000-000000000001'", "jsonb": "'{}'", "json": "'{}'", "bytea": "'x'", "boolean": "true", "tid": "'(0,1)'",
          "timestamp with time zone": "now()", "interval": "'1s'", "oid": "1417", "regclass": "'outbox_internal.dedup'", "text[]": "'{url=https://crm.invalid}'", "integer": "1",
          "uuid[]": "'{018f0000-0000-7000-8000-000000000001}'", "bigint[]": "'{1}'"}


def replace(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


def change(extension: Path, upgrade: str) -> None:
    """What a next version may contain: a column, a function with one more argument, and another function body."""
    stopped = extension / "35_stopped.sql"
    replace(stopped, "  stopped_by text,\n", "  stopped_by text,\n  note text,\n")
    replace(stopped, "COMMENT ON TABLE outbox.stopped_sinks", "COMMENT ON COLUMN outbox.stopped_sinks.note IS 'Why.';\nCOMMENT ON TABLE outbox.stopped_sinks")
    replace(stopped, "outbox.pause(sink text)", "outbox.pause(sink text, note text DEFAULT NULL)")
    replace(stopped, "(sink, state, stopped_by)\n  VALUES (pause.sink, 'paused', ", "(sink, state, stopped_by, note)\n  VALUES (pause.sink, 'paused', ")
    replace(stopped, "'none'), session_user))", "'none'), session_user), pause.note)")
    replace(stopped, "COMMENT ON FUNCTION outbox.pause(text)", "COMMENT ON FUNCTION outbox.pause(text, text)")
    (extension / "upgrade" / upgrade).mkdir(parents=True)
    (extension / "upgrade" / upgrade / "before.sql").write_text("""ALTER TABLE outbox.stopped_sinks ADD COLUMN IF NOT EXISTS note text;
ALTER FUNCTION outbox.pause(text) RENAME TO former_pause;
""")
    (extension / "upgrade" / upgrade / "after.sql").write_text("DROP FUNCTION outbox.former_pause(text);\n")


@pytest.fixture(scope="module")
def pg(rig):
    with rig.postgres(settings={"outbox.poll_interval": "1s"}, bindir=installation.with_next_version(NEXT, change)) as pg:
        yield pg


@pytest.fixture
def old(pg):
    """A database with the previous version of the extension."""
    database = Database(pg, "upgraded").create(version=FIRST)
    yield database
    database.drop()


@pytest.fixture
def log(pg):
    """The present end of the server's log. Requested before the database, which may be logged about at once."""
    return pg.log.stat().st_size


@pytest.fixture
def person(pg):
    """A role to which users grant rights. Requested before the database, so that it outlives it."""
    with pg.connect() as admin:
        admin.execute("CREATE ROLE person")
        yield "person"
        admin.execute("DROP ROLE person")


def version_of_library(db) -> str:
    return db.value("SELECT outbox_internal.library_version()")


def version(db) -> str:
    return db.value("SELECT extversion FROM pg_extension WHERE extname = 'outbox'")


def test_an_upgraded_install_is_a_fresh_one(person, old, db):
    """Compared object by object, and again with rights that users granted on each object, which stay."""
    first = extension_objects(old)
    old.sql(UPDATE)
    assert version(old) == version(db) == NEXT != FIRST
    fresh = extension_objects(db)
    assert len(fresh) > 150 and ("function", "outbox.adopt()") in fresh, "there is nothing to compare"
    assert first != fresh and not (found := differences(extension_objects(old), fresh)), "\n" + "\n".join(found)

    old.sql(f"DROP EXTENSION outbox; CREATE EXTENSION outbox VERSION '{FIRST}'")
    granted = [(kind, name) for kind, name in first if kind in ("function", "relation")]
    old.sql(";".join(f"GRANT {'EXECUTE ON ROUTINE' if kind == 'function' else 'ALL ON'} {name} TO {person}" for kind, name in granted))
    old.sql("GRANT EXECUTE ON FUNCTION outbox.redrive TO PUBLIC; GRANT SELECT (id, last_error) ON outbox.events TO person")
    old.sql("GRANT USAGE ON SCHEMA outbox TO person")
    before = extension_objects(old)
    old.sql(UPDATE)
    after = extension_objects(old)
    lost = [f"{kind} {name}" for kind, name in granted if (kind, name) in fresh and "person=" not in after[kind, name]]
    assert not lost, "rights of a person that an upgrade takes away: " + ", ".join(lost)
    assert after["columns", "outbox.events"].count("person=") == before["columns", "outbox.events"].count("person=") == 2
    assert "person=U" in after["schema", "outbox"]
    assert old.value("SELECT has_function_privilege('public', 'outbox.redrive(uuid, text, boolean)', 'EXECUTE')")
    # pg_dump writes the differences to the initial privileges, so a user's grants must not be among those.
    taken = [name for (kind, name), text in after.items() if kind == "privileges at first" and "person=" in text]
    assert not taken, "a dump would leave out the rights that people gave on: " + ", ".join(taken)


def test_a_dump_of_the_first_version(person, old, pg):
    """It is restored into the next version, with the users' rights."""
    old.sql(f"GRANT USAGE ON SCHEMA outbox TO {person}")
    event = old.enqueue("Order", "1")
    new = Database(pg, "restored")
    with pg.connect() as admin:
        admin.execute("CREATE DATABASE restored")
    try:
        with pytest.raises(psycopg.errors.FeatureNotSupported, match='extension "outbox" must be installed in schema "pg_catalog"'):
            new.sql("CREATE EXTENSION outbox SCHEMA public")
        new.paste(subprocess.run([pg_config("bindir") / "pg_dump", "-d", old.dsn], capture_output=True, text=True, check=True).stdout)
        assert version(new) == version_of_library(new) and new.sql("SELECT id::text FROM outbox.events") == [(event,)]
        assert new.value(f"SELECT has_schema_privilege('{person}', 'outbox', 'USAGE')")
        new.sql("DROP EXTENSION outbox")
        assert new.value("SELECT coalesce(to_regnamespace('outbox'), to_regnamespace('outbox_internal'))") is None
    finally:
        new.drop()


def call_all(db) -> int:
    """Calls each declared function of the extension, with NULLs and with values: errors are allowed, crashes are
    not."""
    functions = db.sql("""SELECT p.oid::regproc::text, ARRAY(SELECT CASE t WHEN 'anyelement'::regtype THEN 'json' WHEN 'anycompatible'::regtype THEN 'bigint' ELSE format_type(t, NULL) END FROM unnest(p.proargtypes) AS t), l.lanname
      FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang
      WHERE p.pronamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace) AND p.proname <> 'announce'""")
    for name, types, _ in functions:
        for arguments in ([f"NULL::{t}" for t in types], [f"{VALUES[t]}::{t}" for t in types]):
            try:
                db.sql(f"BEGIN; SET LOCAL statement_timeout = '2s'; SELECT * FROM {name}({', '.join(arguments)})")
            except psycopg.OperationalError:
                if db._connection.broken:
                    raise
            except psycopg.Error:
                pass
            db.sql("ROLLBACK")
    return sum(language == "c" for _, _, language in functions)


def test_the_library_with_an_extension_of_an_earlier_version(log, old, pg, receiver):
    """Events are enqueued, nothing crashes, nothing is delivered, and one message says so. After the update they are
    delivered in order, at once."""
    old.webhook_sink("crm", receiver, SECRET)
    events = [old.enqueue("Order", str(n % 3), payload=str(n)) for n in range(12)]
    old.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('Order', '9', 'order.created')")

    def said() -> list[str]:
        return re.findall(rf'outbox does not deliver in database "{old.name}": its extension is version {FIRST}, and the library [\d.]+',
                          pg.logged(log))

    wait_until(said, 10, "the log to say so")
    assert call_all(old) > 20
    status, detail, hint = old.doctor("version")
    assert status == "error" and FIRST in detail and UPDATE in hint
    pg.reload()  # wakes the launcher
    old.sql("SELECT outbox_internal.announce()")  # makes it look again
    wait_until(lambda: not old.sql("SELECT 1 FROM pg_stat_activity WHERE datname = %s AND backend_type = 'outbox worker'", old.name), 10,
               "the worker to leave")
    assert len(said()) in (1, 2) and not receiver.deliveries and old.pending() == 13

    old.sql(UPDATE)
    wait_until(lambda: old.pending() == 0, 20, "delivery after the update")
    sent = [(d.json()["data"], d.id) for d in receiver.accepted()]
    assert sorted(id for _, id in sent if id in events) == sorted(events) and len(sent) == 13
    for key in range(3):
        assert [data for data, id in sent if id in events and data % 3 == key] == list(range(key, 12, 3))
    assert old.doctor("version")[0] == "ok"
    call_all(old)


@pytest.mark.parametrize("change", [("@VERSION@", "99.0.0"), ("outbox_library_version", "outbox_of_a_later_version")])
def test_an_extension_of_a_later_version_than_the_library(db, change):
    """Its scripts check first: with an older library, even one without the functions, they ask for a restart of the
    server."""
    guard = (ROOT / "src/extension/05_library.sql").read_text().replace("MODULE_PATHNAME", "$libdir/outbox").replace(*change)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="runs an older library") as error:
        db.sql(guard.replace("@VERSION@", version(db)))
    assert "Restart the server" in error.value.diag.message_hint


def test_the_parts_of_the_install_script_can_be_run_again():
    """By an upgrade script, which runs them after before.sql."""
    plain = [f"{part.name}: {line}" for part in PARTS for line in part.read_text().splitlines()
             if re.match(r"CREATE (?!OR REPLACE |(SCHEMA|TABLE|INDEX|UNIQUE INDEX|SEQUENCE) IF NOT EXISTS )|REVOKE |GRANT ", line)]
    assert len(PARTS) > 5 and not plain, "\n" + "\n".join(plain)

"""DDL, stopped sinks and day partitions: the actual change counts, not the text of the command."""

import psycopg
import pytest
from outbox_rig import wait_until

SERVER = "FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://127.0.0.1/', timeout '5s')"
SETUP = [
    "CREATE ROLE stranger", "CREATE ROLE owner", "GRANT USAGE ON FOREIGN DATA WRAPPER outbox_webhook TO owner",
    "SET ROLE owner", f"CREATE SERVER crm {SERVER}", "CREATE USER MAPPING FOR PUBLIC SERVER crm OPTIONS (token 'token')",
    f"CREATE SERVER hook {SERVER}", "RESET ROLE",
    "INSERT INTO outbox.stopped_sinks (sink, state) VALUES ('crm', 'disabled'), ('hook', 'paused')",
    "INSERT INTO outbox_internal.failing_sinks VALUES ('crm', '1 hour', now())",
]
BOTH, PAUSED_ONLY, DISABLED_ONLY = {"crm": "disabled", "hook": "paused"}, {"hook": "paused"}, {"crm": "disabled"}


@pytest.fixture
def session(db):
    """A transaction that is rolled back: roles belong to the whole cluster, and the worker sees no change."""
    with db.connect(autocommit=False) as session:
        for statement in SETUP:
            session.execute(statement)
        session.execute("SAVEPOINT before")
        yield session
        session.rollback()


def after(session: psycopg.Connection, *statements: str, role: str = "postgres") -> dict[str, str]:
    """The sinks that are stopped after the role has run the command; the command is then rolled back."""
    session.execute(f"SET ROLE {role}")
    for statement in statements:
        session.execute(statement)
    session.execute("RESET ROLE")
    found = dict(session.execute("SELECT sink, state FROM outbox.stopped_sinks").fetchall())
    session.execute("ROLLBACK TO before")
    return found


@pytest.mark.parametrize("statement", [
    "CREATE SERVER IF NOT EXISTS {} FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://evil.example/')",
    "DROP USER MAPPING IF EXISTS FOR CURRENT_USER SERVER {}",
    "DO $$ BEGIN EXECUTE 'CREATE SERVER IF NOT EXISTS {} FOREIGN DATA WRAPPER outbox_webhook'; END $$",
])
def test_a_command_that_is_skipped_changes_nothing(session, statement):
    """PostgreSQL skips the command before it checks permissions."""
    assert after(session, *(statement.format(sink) for sink in ("crm", "hook")), role="stranger") == BOTH


def test_a_migration_that_runs_at_each_deploy_changes_nothing(session):
    assert after(session, f"CREATE SERVER IF NOT EXISTS crm {SERVER}", "ALTER SERVER crm OPTIONS (SET url 'https://127.0.0.1/', SET timeout '5s')",
                 "CREATE USER MAPPING IF NOT EXISTS FOR PUBLIC SERVER crm OPTIONS (token 'token')",
                 "ALTER USER MAPPING FOR PUBLIC SERVER crm OPTIONS (SET token 'token')",
                 "DROP USER MAPPING IF EXISTS FOR PUBLIC SERVER hook", "ALTER SERVER crm OPTIONS (DROP timeout, ADD timeout '5s')",
                 "ALTER SERVER crm VERSION '2'", "ALTER SERVER crm OWNER TO owner", "DROP SERVER IF EXISTS other", role="owner") == BOTH


@pytest.mark.parametrize("change", [
    "ALTER SERVER {} OPTIONS (SET timeout '6s')", "ALTER SERVER {} OPTIONS (DROP timeout)",
    "CREATE USER MAPPING IF NOT EXISTS FOR PUBLIC SERVER {} OPTIONS (token 'other')",
    "ALTER USER MAPPING FOR PUBLIC SERVER {} OPTIONS (SET token 'other')", "ALTER USER MAPPING FOR PUBLIC SERVER {} OPTIONS (DROP token)",
    "DROP USER MAPPING IF EXISTS FOR PUBLIC SERVER {}"])
def test_a_change_ends_what_the_worker_disabled_and_no_pause(session, change):
    if change.startswith("CREATE"):
        session.execute("DROP USER MAPPING FOR PUBLIC SERVER crm")
        session.execute("INSERT INTO outbox.stopped_sinks (sink, state) VALUES ('crm', 'disabled')")
    else:
        session.execute("CREATE USER MAPPING FOR PUBLIC SERVER hook OPTIONS (token 'token')")
    session.execute("SAVEPOINT before")
    assert after(session, change.format("crm"), change.format("hook"), role="owner") == PAUSED_ONLY
    session.execute("CREATE FUNCTION pg_temp.refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$")
    session.execute("CREATE EVENT TRIGGER refuse ON ddl_command_end EXECUTE FUNCTION pg_temp.refuse()")
    tried = f"DO $do$ BEGIN {change.format('crm')}; EXCEPTION WHEN raise_exception THEN NULL; END $do$"
    assert after(session, tried) == BOTH, "what is undone has changed nothing"


def test_a_server_that_is_gone_takes_its_row_along_however_it_went(session):
    def gone(*statements: str, role: str = "postgres") -> dict[str, str]:
        count = "DO $$ BEGIN ASSERT (SELECT count(*) FROM outbox_internal.failing_sinks) = (SELECT count(*) FROM pg_foreign_server WHERE srvname = 'crm'); END $$"
        return after(session, *statements, "RESET ROLE", count, role=role)

    assert gone("DROP SERVER crm CASCADE", role="owner") == PAUSED_ONLY
    assert gone("DROP SERVER IF EXISTS hook, other", role="owner") == DISABLED_ONLY
    assert gone("DROP OWNED BY owner CASCADE", role="owner") == {}
    free = "ALTER EXTENSION outbox DROP FOREIGN DATA WRAPPER outbox_webhook"
    assert gone(free, "DROP FOREIGN DATA WRAPPER outbox_webhook CASCADE") == {}
    session.execute("DROP EXTENSION outbox CASCADE")  # including servers and tables
    assert not session.execute("SELECT FROM pg_foreign_server").fetchall()


def test_a_drop_says_how_many_events_wait(session):
    """In whatever way the server is dropped; the warning also says what would deliver them."""
    said: list[str] = []
    session.add_notice_handler(lambda notice: said.append(f"{notice.severity}: {notice.message_primary}; {notice.message_hint}"))
    enqueue = ("SELECT outbox.enqueue('Order', '1', 'e', '1'), outbox.enqueue('Order', '1', 'e', '1', available_at => now() + interval '1 hour'),"
               " outbox.enqueue('Order', '2', 'e', '1')")

    def warnings(*statements: str, role: str = "postgres") -> list[str]:
        """In an order that does not depend on the catalogs'."""
        said.clear()
        after(session, *statements, role=role)
        return sorted(line for line in said if line.startswith("WARNING") and "dropped sink" in line)

    def warning(sink: str, events: str = "3 events still wait") -> str:
        return (f'WARNING: {events} for the dropped sink "{sink}"; A sink that is created under this name delivers them.'
                ' See the check "lost sink" of outbox.doctor().')

    assert warnings("DROP SERVER crm, hook CASCADE") == []
    session.execute(enqueue)
    session.execute("ALTER SERVER hook RENAME TO hooks")
    session.execute("SAVEPOINT before")
    assert warnings("DROP SERVER crm CASCADE", role="owner") == [warning("crm")]
    assert warnings("DROP OWNED BY owner CASCADE", role="owner") == [warning("crm"), warning("hooks")]
    assert warnings("ALTER EXTENSION outbox DROP FOREIGN DATA WRAPPER outbox_webhook", "DROP FOREIGN DATA WRAPPER outbox_webhook CASCADE") \
        == [warning("crm"), warning("hooks")]
    assert warnings("DELETE FROM outbox.events WHERE sink = 'crm' AND aggregate_id = '1'", "DROP SERVER crm CASCADE") == [warning("crm", "1 event still waits")]
    said.clear()
    session.execute("DROP EXTENSION outbox CASCADE")  # including the events
    assert not [line for line in said if "dropped sink" in line]


def test_names_that_are_exchanged(session):
    renames = [f"ALTER SERVER {old} RENAME TO {new}" for old, new in [("crm", "third"), ("hook", "crm"), ("third", "hook")]]
    assert after(session, *renames, role="owner") == {"hook": "disabled", "crm": "paused"}
    for statement in renames:
        session.execute(statement)
    session.execute("SAVEPOINT before")
    assert after(session, "CREATE SERVER IF NOT EXISTS hook FOREIGN DATA WRAPPER outbox_webhook", role="stranger") == {"hook": "disabled", "crm": "paused"}


ROWS = "SELECT sink, status, overtaken_by IS NOT NULL FROM outbox.events WHERE sink <> 'hook' ORDER BY position"


def test_a_rename_takes_pending_events_and_dead_letters_along(session):
    """Whatever is known of them stays. Delivered events are history, and keep the name."""
    session.execute("SELECT outbox.run_maintenance()")  # makes the day
    session.execute("SELECT outbox.enqueue('Order', 'k', 'e', to_jsonb(n)) FROM generate_series(1, 5) AS n")
    session.execute("UPDATE outbox.events SET status = 'FAILED', overtaken_by = position + 1 WHERE sink = 'crm' AND payload = '1'")
    session.execute("UPDATE outbox.events SET available_at = now() + interval '1 hour', attempts = 1, overtaken_by = position + 1 WHERE sink = 'crm' AND payload = '2'")
    session.execute("UPDATE outbox.events SET available_at = now(), blocked_by = 1 WHERE sink = 'crm' AND payload = '3'")
    session.execute("UPDATE outbox.events SET status = 'SENT' WHERE sink = 'crm' AND payload = '4'")
    session.execute("DELETE FROM outbox_internal.rescan_queue")
    session.execute("SET ROLE owner")
    session.execute("ALTER SERVER crm RENAME TO sales")
    session.execute("RESET ROLE")
    assert session.execute(ROWS).fetchall() == [("sales", "FAILED", True), ("sales", "PENDING", True), ("sales", "PENDING", False), ("crm", "SENT", False),
                                                ("sales", "PENDING", False)]
    assert session.execute("SELECT count(*) FROM outbox.events WHERE sink = 'sales' AND (attempts = 1 OR blocked_by = 1)").fetchone() == (2,)
    assert session.execute("SELECT FROM outbox_internal.rescan_queue").fetchall() == [], "the worker reads the whole sink again"
    session.execute("SAVEPOINT before")
    assert after(session, f"CREATE SERVER crm {SERVER}", "ALTER SERVER hook RENAME TO third", "ALTER SERVER crm RENAME TO hook", role="owner") \
        == {"sales": "disabled", "third": "paused"}, "the name is free"


def test_a_rename_takes_no_events_of_a_dropped_sink(session):
    """CREATE SERVER with the name does, as DROP SERVER says. What the hint says gives them to the renamed sink."""
    session.execute("SELECT outbox.enqueue('Order', 'k', 'e', '1', sink => 'crm'), outbox.enqueue('Order', 'k', 'e', '2', sink => 'crm')")
    session.execute("UPDATE outbox.events SET status = 'FAILED' WHERE payload = '1'")
    session.execute("DROP SERVER crm CASCADE")
    session.execute("SAVEPOINT before")
    rename = "ALTER SERVER hook RENAME TO crm"

    def refused(*statements: str) -> str:
        for statement in statements:
            session.execute(statement)
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match='events of a dropped sink have the name "crm"') as error:
            session.execute(rename)
        session.execute("ROLLBACK TO before")
        return error.value.diag.message_hint

    hint = refused()
    assert refused("DELETE FROM outbox.events WHERE status = 'PENDING'") == hint, "a dead letter may be redriven"
    assert refused("DELETE FROM outbox.events WHERE status = 'FAILED'") == hint
    assert after(session, "DELETE FROM outbox.events", rename) == {"crm": "paused"}
    assert session.execute(hint[hint.index("UPDATE"):].split(";")[0]).rowcount == 2
    session.execute(rename)
    assert session.execute(ROWS).fetchall() == [("crm", "FAILED", False), ("crm", "PENDING", False)]


def test_a_rename_of_very_many_events_is_refused(session):
    """It would keep everybody from enqueuing for too long."""
    fill = "INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, sink) SELECT 'Order', n::text, 'e', 'crm' FROM generate_series(1, %s) AS n"
    session.execute(fill, [100000])
    session.execute("SAVEPOINT before")
    assert after(session, "ALTER SERVER crm RENAME TO sales") == PAUSED_ONLY | {"sales": "disabled"}
    session.execute(fill, [1])
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match='sink "crm" has too many events to be renamed') as error:
        session.execute("ALTER SERVER crm RENAME TO sales")
    assert "more than 100000 pending events and dead letters" in error.value.diag.message_detail and error.value.diag.message_hint


def test_a_server_of_another_wrapper_is_none_of_ours(session):
    session.execute("CREATE FOREIGN DATA WRAPPER other")
    session.execute("CREATE SERVER crm2 FOREIGN DATA WRAPPER other")
    session.execute("ALTER SERVER crm2 RENAME TO crm3")
    session.execute("INSERT INTO outbox.stopped_sinks (sink, state) VALUES ('crm3', 'disabled')")
    session.execute("SAVEPOINT before")
    assert after(session, "CREATE USER MAPPING FOR PUBLIC SERVER crm3", "DROP USER MAPPING FOR PUBLIC SERVER crm3", "DROP SERVER crm3") == BOTH | {"crm3": "disabled"}


def test_a_day_makes_room_for_no_command_that_is_skipped(same_day, db):
    """An empty day is replaced by the one of a dump."""
    day = db.value("SELECT 'outbox.events_sent_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')")
    is_partition = "SELECT relispartition FROM pg_class WHERE oid = to_regclass(%s)"
    wait_until(lambda: db.sql(is_partition, day), 20, "the worker to have made the day")
    db.sql(f"CREATE TABLE IF NOT EXISTS {day} (id int)")
    assert db.value(is_partition, day)


def test_the_log_tells_of_each_change_and_no_secret(db, pg):
    """Once it is committed, in whatever way the change was made."""
    start = pg.log.stat().st_size

    def told() -> list[str]:
        return [line.split("LOG:  outbox sink ")[1] for line in pg.logged(start).splitlines() if "LOG:  outbox sink " in line and "by role" in line]

    with db.role("maker") as maker, db.connect(autocommit=False) as session:
        db.sql(f"GRANT USAGE ON FOREIGN DATA WRAPPER outbox_webhook TO {maker}")
        session.execute(f"SET ROLE {maker}; CREATE SERVER hook {SERVER}; CREATE USER MAPPING FOR PUBLIC SERVER hook OPTIONS (token 'oak3n')")
        session.execute("SAVEPOINT before; ALTER SERVER hook OPTIONS (SET timeout '9s'); DROP SERVER hook CASCADE; ROLLBACK TO before")
        assert told() == []
        session.commit()
        assert told() == ['"hook": created by role "maker"']
        session.execute(f"CREATE SERVER IF NOT EXISTS hook {SERVER}; ALTER USER MAPPING FOR PUBLIC SERVER hook OPTIONS (SET token 'oak4n')")
        session.execute("ALTER SERVER hook RENAME TO hooks; RESET ROLE; ALTER SERVER hooks OWNER TO CURRENT_USER")
        session.commit()
        session.execute(f"CREATE SERVER other {SERVER}")
        session.rollback()
        session.execute("DROP SERVER hooks CASCADE")
        session.commit()
    assert told()[1:] == ['"hook": altered by role "maker"', '"hook": renamed to "hooks" by role "maker"',
                          '"hooks": given to role "postgres" by role "postgres"', '"hooks": dropped by role "postgres"']
    assert "oak3n" not in pg.logged(start) and "oak4n" not in pg.logged(start)

"""The inbox: which events consumers have processed."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.paths import pg_config
from outbox_rig.receiver import SECRET

pytestmark = pytest.mark.usefixtures("same_day")
PARTITIONS = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox_inbox.processed_events'::regclass"
SOME_DAY = ("(lpad(to_hex(((extract(epoch FROM now()) - {0}) * 1000)::bigint), 12, '0') || '7000800000000000' || lpad(to_hex({1}), 4, '0'))::uuid")


@pytest.fixture
def inbox(db):
    """The extension beside outbox, whose worker maintains it."""
    db.sql("CREATE EXTENSION outbox_inbox")
    return db


@pytest.fixture
def alone(pg, request):
    """A database with the inbox alone, so that no worker maintains it."""
    database = Database(pg, request.node.name[:50])
    with pg.connect() as admin:
        admin.execute(f"CREATE DATABASE {database.name}")
    database.sql("CREATE EXTENSION outbox_inbox")
    yield database
    database.drop()


def test_consumers_that_share_their_work_process_each_event_once(inbox, pg):
    """Eight consumers each receive all events of several days, and sometimes roll back."""
    db = inbox
    ids = [str(row[0]) for row in db.sql(f"SELECT {SOME_DAY.format('(n % 5) * 86400', 'n')} FROM generate_series(1, 150) AS n")]
    ids += [str(row[0]) for row in db.sql("SELECT gen_random_uuid() FROM generate_series(1, 50)")]
    db.sql("CREATE TABLE ledger (event_id uuid)")
    errors = []

    def consume(number: int) -> None:
        try:
            with db.connect(autocommit=False) as connection:
                for n, event in enumerate(ids):
                    if connection.execute("SELECT outbox_inbox.mark_processed(%s, 'ledger')", [event]).fetchone()[0]:
                        connection.execute("INSERT INTO ledger VALUES (%s)", [event])
                    if (n + number) % 7 == 0:
                        connection.rollback()
                        if connection.execute("SELECT outbox_inbox.mark_processed(%s, 'ledger')", [event]).fetchone()[0]:
                            connection.execute("INSERT INTO ledger VALUES (%s)", [event])
                    connection.commit()
        except Exception as error:
            errors.append(error)

    consumers = [threading.Thread(target=consume, args=[number]) for number in range(8)]
    for consumer in consumers:
        consumer.start()
    for consumer in consumers:
        consumer.join()
    assert not errors
    assert sorted(str(row[0]) for row in db.sql("SELECT event_id FROM ledger")) == sorted(ids)


def test_an_event_whose_record_was_dropped_is_not_new_again(alone, pg):
    """Whichever retention the maintenance went by, and whichever is in effect afterwards. A restore knows it too."""
    db = alone
    day = [str(db.value(f"SELECT {SOME_DAY.format(n * 86400, n)}")) for n in range(12)]

    def refused(base: Database, retention: str, event: str) -> str:
        base.sql(f"SELECT outbox_inbox.set_retention('{retention}')")
        with base.connect() as connection, pytest.raises(psycopg.errors.DatetimeFieldOverflow) as error:
            again = connection.execute("SELECT outbox_inbox.mark_processed(%s, 'mail')", [event]).fetchone()
            pytest.fail(f"mark_processed() returned {again}")
        return error.value.diag.message_detail

    def marked(retention: str, *events: str) -> list[bool]:
        db.sql(f"SELECT outbox_inbox.set_retention('{retention}')")
        with db.connect() as connection:
            return [connection.execute("SELECT outbox_inbox.mark_processed(%s, 'mail')", [event]).fetchone()[0] for event in events]

    def maintain(retention: str) -> None:
        db.sql(f"SELECT outbox_inbox.set_retention('{retention}')")
        with db.connect() as connection:
            connection.execute("SELECT outbox_inbox.run_maintenance()")

    # The maintenance goes by 7 days for a while. The day cannot be dropped, only emptied.
    assert marked("30d", day[0], day[10], day[10]) == [True, True, False]
    with db.connect(autocommit=False) as consumer:
        consumer.execute("SELECT outbox_inbox.mark_processed(%s, 'ledger')", [day[0]])
        maintain("7d")
        left = "SELECT to_regclass('outbox_inbox.processed_events_' || to_char(now() - interval '10 days', 'YYYYMMDD'))"
        assert db.value(left) is not None
        refused(db, "30d", day[10])
        consumer.rollback()
    maintain("7d")
    assert db.value(left) is None
    assert "have been dropped" in refused(db, "30d", day[10])
    refused(db, "30d", day[11])
    # The retention was shorter for a while.
    assert marked("7d", day[6], day[4]) == [True, True]
    with db.connect(autocommit=False) as old_snapshot:
        old_snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old_snapshot.execute("SELECT 1")
        maintain("5d")
        with pytest.raises(psycopg.errors.DatetimeFieldOverflow):
            old_snapshot.execute("SELECT outbox_inbox.mark_processed(%s, 'mail')", [day[6]])
    refused(db, "7d", day[6])
    assert marked("7d", day[4], day[3]) == [False, True]
    # Below two days, hours are dropped; a day that begins with dropped hours is not made again.
    hour = [str(db.value(f"SELECT {SOME_DAY.format(n * 3600, n)}")) for n in (30, 29, 27)]
    assert marked("40h", hour[0], hour[0]) == [True, False]
    maintain("28h")
    assert marked("7d", hour[2], hour[2]) == [True, False]
    refused(db, "7d", hour[0])
    db.sql("SELECT outbox_inbox.set_retention('8d')")
    with restored(pg, db) as copy:
        assert copy.value("SELECT outbox_inbox.retention() = interval '8 days'")
        refused(copy, "7d", hour[0])
        refused(copy, "30d", day[10])
        assert copy.value("SELECT outbox_inbox.mark_processed(%s, 'mail')", hour[2]) is False


@contextmanager
def restored(pg, db: Database, user: str = "postgres", *, edit=lambda dump: dump) -> Iterator[Database]:
    """A copy by dump and restore; a role other than postgres owns it, and restores it."""
    copy = Database(pg, db.name + "_restored")
    with pg.connect() as admin:
        admin.execute(f"CREATE DATABASE {copy.name} OWNER {user}")
    try:
        run(pg, "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", copy.name, text=edit(run(pg, "pg_dump", "-d", db.name)), user=user)
        yield copy
    finally:
        copy.drop()


def run(pg, program: str, *arguments: str, text: str | None = None, user: str = "postgres") -> str:
    done = subprocess.run([str(pg_config("bindir") / program), "-h", pg.host, "-p", str(pg.port), "-U", user, *arguments],
                          input=text, capture_output=True, text=True, env=os.environ | {"PGOPTIONS": "-c client_min_messages=warning"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_dump_carries_what_was_delivered_and_processed(inbox, pg, receiver, setting):
    """The restore has no error beside a running launcher, also if the extensions existed for a while before; expired
    days stay as long as the events wait for outbox.adopt()."""
    db = inbox
    setting("outbox.retention", "1d")
    db.webhook_sink("crm", receiver, SECRET)
    event = db.enqueue("Order", "1")
    wait_until(lambda: db.sql("SELECT 1 FROM outbox.events WHERE status = 'SENT'"), 10, "delivery")
    db.sql("SELECT outbox.pause('crm')")
    waiting = db.enqueue("Order", "1")
    ids = [str(row[0]) for row in db.sql(f"SELECT {SOME_DAY.format('n * 86400', 'n')} FROM generate_series(0, 3) AS n UNION ALL SELECT gen_random_uuid()")]
    for processed in ids:
        assert db.value("SELECT outbox_inbox.mark_processed(%s, 'mail')", processed)
    db.sql("SELECT outbox.run_maintenance(), outbox_inbox.run_maintenance()")
    db.sql("""DO $$ DECLARE day timestamptz := date_trunc('day', now(), 'UTC') - interval '20 days'; BEGIN
              PERFORM outbox_internal.add_partition('outbox.events_sent', 'events_sent_' || to_char(day, 'YYYYMMDD'), 'position', day, day + interval '1 day'); END $$""")
    # The worker starts and goes through its loop before the dump restores the tables.
    live = """DO $$ BEGIN FOR n IN 1..1200 LOOP
              IF EXISTS (SELECT FROM outbox.workers WHERE database = current_database() AND last_loop_at > now() + interval '1 s') THEN RETURN; END IF;
              PERFORM pg_sleep(0.05); END LOOP; RAISE 'no worker'; END $$;\n"""

    def with_worker(dump: str) -> str:
        at = max(dump.index("\n", dump.index(f"CREATE EXTENSION IF NOT EXISTS {name} ")) for name in ("outbox", "outbox_inbox"))
        return dump[:at + 1] + live + dump[at + 1:]

    days = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'outbox.events_sent'::regclass ORDER BY 1"
    [(oldest,), *_] = db.sql(days)
    with db.connect(autocommit=False) as reader:
        reader.execute(f"SELECT FROM {oldest}")  # so that the worker here does not drop it meanwhile
        with restored(pg, db, edit=with_worker) as copy:
            assert copy.sql("SELECT id::text, status FROM outbox.events ORDER BY position") == [(event, "SENT"), (waiting, "PENDING")]
            assert [copy.value("SELECT outbox_inbox.mark_processed(%s, 'mail')", processed) for processed in ids] == [False] * 5
            assert copy.sql(days) == db.sql(days)
            parts = "SELECT c.relname::text, pg_get_expr(c.relpartbound, c.oid), x.indexrelid::regclass::text FROM pg_class AS c JOIN pg_index AS x ON x.indrelid = c.oid WHERE c.relname ~ '^processed_events_' ORDER BY 1"
            assert copy.sql(parts) == db.sql(parts)
            assert copy.value("SELECT outbox_internal.maintain_days(true)") == 0  # as the worker calls it
            copy.sql("SELECT outbox.adopt()")
            wait_until(lambda: copy.value("SELECT outbox_internal.maintain_days(true)") is not None and len(copy.sql(days)) == len(db.sql(days)) - 1, 20,
                       "the day to go, by this call or by the worker")
            assert copy.sql("SELECT status FROM outbox.events ORDER BY position") == [("SENT",), ("PENDING",)]


def test_maintenance_leaves_a_restore_alone(alone):
    """While a day lacks its primary key, which a dump makes last."""
    alone.sql("SELECT outbox_inbox.mark_processed(%s, 'mail')", alone.value(f"SELECT {SOME_DAY.format(0, 1)}"))
    today = alone.value("SELECT 'processed_events_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')")
    alone.sql(f"ALTER TABLE outbox_inbox.{today} DROP CONSTRAINT {today}_pkey")
    assert alone.value("SELECT outbox_inbox.run_maintenance()") == 0
    alone.sql(f"ALTER TABLE outbox_inbox.{today} ADD PRIMARY KEY (event_id, handler, id_time)")
    assert alone.value("SELECT outbox_inbox.run_maintenance()") == 2, "tomorrow and the day after"


def test_a_worker_maintains_the_inbox_of_a_superuser_only(inbox, pg):
    """Its functions run as the worker, which is a superuser: those of another owner may be anything."""
    db = inbox
    db.sql(f"SELECT outbox_inbox.mark_processed({SOME_DAY.format(0, 1)}, 'h'), outbox_inbox.mark_processed(gen_random_uuid(), 'h')")
    db.sql("UPDATE outbox_inbox.processed_events SET processed_at = now() - interval '8 days' WHERE id_time = 'infinity'")
    db.sql("SELECT pg_terminate_backend(pid, 20000) FROM outbox.workers")  # the next one maintains at once
    wait_until(lambda: db.value(PARTITIONS) == 4 and db.value("SELECT count(*) FROM outbox_inbox.processed_events") == 1, 20, "today, two days and the other ids")
    with db.role("owner") as role:
        db.sql("DROP EXTENSION outbox_inbox")
        db.sql("DROP TABLE IF EXISTS trace; CREATE TABLE trace (name text)")
        db.sql(f"GRANT INSERT ON trace TO {role}; CREATE SCHEMA outbox_inbox AUTHORIZATION {role}")
        for name in ("maintain_partitions()", "expire_processed(first_block bigint, blocks bigint)"):
            with db.connect(user=role) as owner:
                owner.execute(f"CREATE FUNCTION outbox_inbox.{name} RETURNS bigint LANGUAGE sql AS $$ INSERT INTO public.trace VALUES (current_user) RETURNING 0 $$")
        assert db.value("SELECT outbox_internal.maintain_inbox(0, 256)") == 0
        assert db.sql("SELECT * FROM trace") == []
        db.sql("DROP SCHEMA outbox_inbox CASCADE")


def test_a_role_with_create_on_its_database_owns_the_inbox(rig):
    """docs/consuming.md, without outbox: trusted. It is the owner's, also after a restore by that role; so a trigger of
    the owner's on one of its days has no more rights than the owner."""
    with rig.postgres(settings={"shared_preload_libraries": ""}) as pg:
        with pg.connect() as admin:
            admin.execute("CREATE ROLE app LOGIN")
            admin.execute("CREATE ROLE consumer LOGIN")
            admin.execute("CREATE DATABASE shop")
        shop = Database(pg, "shop")
        with shop.connect(user="app") as app:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                app.execute("CREATE EXTENSION outbox_inbox")
            shop.sql("GRANT CREATE ON DATABASE shop TO app")
            app.execute("CREATE EXTENSION outbox_inbox")
            app.execute("GRANT USAGE ON SCHEMA outbox_inbox TO consumer")
            app.execute("GRANT EXECUTE ON FUNCTION outbox_inbox.mark_processed TO consumer")
            with shop.connect(user="consumer") as consumer:
                assert consumer.execute(f"SELECT outbox_inbox.mark_processed({SOME_DAY.format(0, 1)}, 'h')").fetchone() == (True,)
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    consumer.execute("SELECT outbox_inbox.set_retention('2h')")
            app.execute("SELECT outbox_inbox.set_retention('9 days')")
            assert app.execute("SELECT outbox_inbox.run_maintenance()").fetchone() == (2,)
        owners = """SELECT DISTINCT r.rolname::text FROM pg_roles AS r JOIN (
            SELECT relowner AS owner FROM pg_class WHERE relnamespace = 'outbox_inbox'::regnamespace UNION ALL SELECT proowner FROM pg_proc WHERE pronamespace = 'outbox_inbox'::regnamespace
            UNION ALL SELECT nspowner FROM pg_namespace WHERE nspname = 'outbox_inbox') AS o ON o.owner = r.oid"""
        assert shop.sql(owners) == [("app",)]
        with restored(pg, shop, "app") as copy:
            assert copy.sql(owners) == [("app",)]
            with copy.connect(user="app") as app:
                assert app.execute("SELECT outbox_inbox.retention()::text").fetchone() == ("9 days",)
                assert app.execute("SELECT outbox_inbox.run_maintenance()").fetchone() == (0,)
                app.execute("DROP EXTENSION outbox_inbox CASCADE")
            assert copy.value("SELECT to_regnamespace('outbox_inbox')") is None
        # A superuser restores it, and so owns the extension: it takes over the days, unless inserting would run code of their owner.
        with restored(pg, shop) as copy:
            day = copy.value("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'outbox_inbox.processed_events'::regclass ORDER BY 1 LIMIT 1")
            with copy.connect(user="app") as app:
                copy.sql("GRANT USAGE ON SCHEMA outbox_inbox TO app; GRANT CREATE ON SCHEMA public TO app")
                app.execute("CREATE FUNCTION public.trap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'I am %', current_user; END $$")
                app.execute(f"CREATE TRIGGER trap BEFORE INSERT ON {day} FOR EACH ROW EXECUTE FUNCTION public.trap()")
            for call in (f"mark_processed({SOME_DAY.format(0, 2)}, 'h')", "run_maintenance()"):
                with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
                    copy.sql(f"SELECT outbox_inbox.{call}")
            copy.sql(f"DROP TRIGGER trap ON {day}")
            event = copy.value(f"SELECT {SOME_DAY.format(0, 2)}")
            assert [copy.value("SELECT outbox_inbox.mark_processed(%s, 'h')", event) for _ in range(2)] == [True, False]
            assert copy.sql(owners) == [("postgres",)]


def test_outbox_comes_and_goes_without_it(inbox):
    """Neither extension has objects in the other's schemas."""
    with pytest.raises(AssertionError, match="it has these functions"):
        inbox.paste((pg_config("sharedir") / "extension/outbox_inbox.sql").read_text())
    event = inbox.value(f"SELECT {SOME_DAY.format(0, 1)}")
    assert inbox.value("SELECT outbox_inbox.mark_processed(%s, 'mail')", event) is True
    inbox.sql("DROP EXTENSION outbox")
    assert inbox.value("SELECT outbox_inbox.mark_processed(%s, 'mail')", event) is False
    inbox.sql("SELECT outbox_inbox.run_maintenance()")
    inbox.sql("CREATE EXTENSION outbox")
    inbox.sql("DROP EXTENSION outbox_inbox")
    assert inbox.value("SELECT to_regnamespace('outbox_inbox')") is None
    inbox.sql("SELECT outbox.run_maintenance(), outbox_internal.maintain_inbox(0, 256)")


@pytest.fixture
def plain(rig):
    """A server without the library, whose database has the inbox's plain SQL file alone."""
    with rig.postgres(settings={"shared_preload_libraries": ""}) as server:
        with server.connect() as admin:
            admin.execute("CREATE DATABASE plain")
        database = Database(server, "plain")
        database.paste((pg_config("sharedir") / "extension/outbox_inbox.sql").read_text())
        yield database
        database.disconnect()


def test_maintenance_without_the_extension(plain):
    """docs/consuming.md: the same call, by a role that was granted it."""
    with plain.role("operator") as role, plain.connect(user=role) as operator:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            operator.execute("SELECT outbox_inbox.run_maintenance()")
        plain.sql(f"GRANT USAGE ON SCHEMA outbox_inbox TO {role}; GRANT EXECUTE ON FUNCTION outbox_inbox.run_maintenance() TO {role}")
        for days in (5, 0):
            plain.sql(f"SELECT outbox_inbox.mark_processed({SOME_DAY.format(days * 86400, 1)}, 'h')")
        before = plain.value(PARTITIONS)
        assert operator.execute("SELECT outbox_inbox.run_maintenance()").fetchone() == (2,), "tomorrow and the day after"
        assert plain.value(PARTITIONS) == before + 2
        plain.sql("SELECT outbox_inbox.set_retention('3d')")
    with plain.connect() as owner:
        assert owner.execute("SELECT outbox_inbox.run_maintenance()").fetchone() == (1,), "the day of the first event is over"
    assert plain.value(PARTITIONS) == before + 1


def test_a_consumer_makes_no_partition_beyond_the_retention(plain):
    with plain.role("consumer") as role, plain.connect(user=role) as consumer:
        plain.sql(f"GRANT USAGE ON SCHEMA outbox_inbox TO {role}; GRANT EXECUTE ON FUNCTION outbox_inbox.mark_processed(uuid, text) TO {role}")
        for days in (30, -30):
            with pytest.raises(psycopg.errors.DatetimeFieldOverflow):
                consumer.execute(f"SELECT outbox_inbox.mark_processed({SOME_DAY.format(days * 86400, 1)}, 'h')")
        week = [plain.value(f"SELECT {SOME_DAY.format(days * 86400, 1)}") for days in range(-6, 7)]
        for event in week:
            assert consumer.execute("SELECT outbox_inbox.mark_processed(%s, 'h')", [event]).fetchone() == (True,)
        assert plain.value(PARTITIONS) == 14
        for event in week:  # none is forgotten
            assert consumer.execute("SELECT outbox_inbox.mark_processed(%s, 'h')", [event]).fetchone() == (False,)
    plain.sql("SELECT outbox_inbox.set_retention('30d')")
    assert plain.value(f"SELECT outbox_inbox.mark_processed({SOME_DAY.format(20 * 86400, 1)}, 'h')") is True
    assert plain.value(PARTITIONS) == 15


def test_partitions_are_made_where_the_owner_has_their_parents(inbox, pg):
    """Not where the role that calls mark_processed() or run_maintenance() has its default."""
    db = inbox
    where = "SELECT coalesce(t.spcname, 'default'), count(*) FROM pg_class AS c LEFT JOIN pg_tablespace AS t ON t.oid = c.reltablespace" \
            " WHERE c.relname ~ '^(events_sent|processed_events)_[0-9]+(_pkey)?$' GROUP BY 1 ORDER BY 1"
    with pg.connect() as admin:
        admin.execute("SET allow_in_place_tablespaces = on")
        for name in ("mine", "theirs"):
            admin.execute(f"CREATE TABLESPACE {name} LOCATION ''")
    try:
        with db.role("consumer") as role, db.connect(user=role) as consumer:
            db.sql(f"GRANT USAGE ON SCHEMA outbox, outbox_inbox TO {role}; GRANT EXECUTE ON FUNCTION outbox_inbox.mark_processed(uuid, text), outbox.run_maintenance() TO {role};"
                   f"GRANT CREATE ON TABLESPACE mine TO {role}; CREATE ACCESS METHOD odd TYPE TABLE HANDLER heap_tableam_handler")
            wait_until(lambda: db.value("SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox.events_sent'::regclass") == 5, 20, "the days")
            days = [name for (name,) in db.sql("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'outbox.events_sent'::regclass ORDER BY 1")]
            db.sql(f"DROP TABLE {days[-1]}")
            consumer.execute("SET default_tablespace = mine; SET default_table_access_method = odd")
            consumer.execute("SELECT outbox_inbox.mark_processed(gen_random_uuid(), 'h')")
            consumer.execute(f"SELECT outbox_inbox.mark_processed({SOME_DAY.format(60, 2)}, 'h'), outbox.run_maintenance()")
            consumer.execute("RESET ALL")
            assert db.sql(where) == [("default", db.sql(where)[0][1])]
            assert db.value("SELECT count(*) FROM pg_class AS c JOIN pg_am AS a ON a.oid = c.relam WHERE a.amname = 'odd'") == 0
            db.sql("ALTER TABLE outbox.events_sent SET TABLESPACE theirs")
            db.sql(f"DROP TABLE {days[-1]}")
            db.sql("SELECT outbox.run_maintenance()")
            assert ("theirs", 2) in db.sql(where), "the day and its index"
    finally:
        db.disconnect()
        db.sql("ALTER TABLE outbox.events_sent SET TABLESPACE pg_default")
        for (name,) in db.sql("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'outbox.events_sent'::regclass"):
            db.sql(f"DROP TABLE {name}")
        for name in ("mine", "theirs"):
            db.sql(f"DROP TABLESPACE {name}")

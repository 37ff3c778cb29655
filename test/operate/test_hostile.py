"""Hostile users: what they can prepare for operators and processes that have more rights than they."""

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import SECRET, status

TRAPS = [
    "CREATE TABLE public.told (who text, what text)",
    """CREATE FUNCTION public.grab(what text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
         EXECUTE 'ALTER ROLE demoted SUPERUSER';
       EXCEPTION WHEN OTHERS THEN
         INSERT INTO public.told VALUES (current_user, what || ': ' || SQLERRM);
         PERFORM set_config('search_path', 'public', false);
       END $$""",
    """CREATE FUNCTION public.grab() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
         PERFORM public.grab(TG_OP);
         RETURN coalesce(NEW, OLD);
       END $$""",
    "CREATE FUNCTION public.grabbing(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM public.grab('INDEX'); RETURN $1; END $$",
    "CREATE TRIGGER before_all BEFORE INSERT OR UPDATE OR DELETE ON outbox.events FOR EACH ROW EXECUTE FUNCTION public.grab()",
    "CREATE TRIGGER tells AFTER INSERT OR DELETE ON outbox.stopped_sinks FOR EACH ROW EXECUTE FUNCTION public.grab()",
    "CREATE INDEX trap ON outbox.events_failed (public.grabbing(sink))",
    *(f"ALTER TABLE outbox.{table} {verb} ROW LEVEL SECURITY" for table in ("events", "events_pending") for verb in ("ENABLE", "FORCE")),
]


def settled(db: Database) -> None:
    """The worker has created the days, so that its DDL does not collide with the test's."""
    day = "to_regclass('outbox.events_sent_' || to_char(now() AT TIME ZONE 'UTC' + '1 day', 'YYYYMMDD'))"
    wait_until(lambda: db.value(f"SELECT {day}"), 20, "the worker to have made the days")


@pytest.fixture
def demoted(pg):
    """A database whose extension belongs to a role that was superuser only during the installation."""
    db = Database(pg, "of_demoted")
    with pg.connect() as admin:
        admin.execute("CREATE ROLE demoted LOGIN SUPERUSER")
        admin.execute("CREATE DATABASE of_demoted OWNER demoted")
    with db.connect(user="demoted") as session:
        session.execute("CREATE EXTENSION outbox")
    with pg.connect() as admin:
        admin.execute("ALTER ROLE demoted NOSUPERUSER")
    settled(db)
    yield db
    db.drop()
    with pg.connect() as admin:
        admin.execute("DROP ROLE demoted")


def test_nothing_runs_with_more_rights_than_the_owner(demoted, pg, receiver):
    """The worker runs triggers, index expressions and policies of an owner who is not a superuser: it delivers,
    retries, keeps events and makes dead letters, and none of that code runs with a superuser's rights or leaves a
    setting changed."""
    db = demoted
    with db.connect(user="demoted") as owner:
        for trap in TRAPS:
            owner.execute(trap)
    receiver.mode = status(400)
    db.webhook_sink("crm", receiver, SECRET, retry="50ms..100ms", max_attempts="2", retention="1d")
    with db.connect(user="demoted") as owner:
        owner.execute("SELECT outbox.enqueue('Order', 1, 'order.created', '{}')")
    wait_until(lambda: db.sink("dead") == (1,), 10, "a dead letter")
    receiver.mode = status(200)
    with db.connect(user="demoted") as owner:
        owner.execute("SELECT outbox.enqueue('Order', 2, 'order.created', '{}')")
        owner.execute("SELECT outbox.pause('crm'), outbox.resume('crm')")
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events WHERE status = 'SENT'") == 1, 10, "an event that is kept")
    assert db.value("SELECT rolsuper FROM pg_roles WHERE rolname = 'demoted'") is False
    told = db.sql("SELECT DISTINCT who, what FROM public.told")
    assert {what.split(":")[0] for _, what in told} == {"INSERT", "UPDATE", "DELETE", "INDEX"}
    assert {who for who, _ in told} == {"demoted"} and all("superuser" in what or "permission denied" in what for _, what in told)


def test_the_doctor_of_an_owner_without_rights(demoted, receiver):
    """It sees which sinks are signed and which URLs have tokens, without a secret; other roles' sessions only after a
    GRANT, which it names."""
    db, found = demoted, {}
    db.webhook_sink("signed", receiver, SECRET)
    db.webhook_sink("unsigned", receiver, events="none")
    db.webhook_sink("token", receiver.url + "?token=t0ken", SECRET, events="none")
    for _ in range(2):
        rows = db.sql("SELECT \"check\", status, detail, hint FROM outbox.doctor('0 seconds')")
        assert [row for row in rows if "could not look" in row[2] or "permission denied" in row[2]] == []
        found = {row[0]: row[1:] for row in rows}
        assert "advice signed signature" not in found and found["advice unsigned signature"][0] == "warning"
        assert found["secrets"][0] == "warning" and "sink token" in found["secrets"][1] and "ALTER USER MAPPING" in found["secrets"][2]
        assert SECRET not in str(rows) and "t0ken" not in str(rows)
        if "sessions" in found:
            state, detail, hint = found["sessions"]
            assert state == "ok" and "transactions" in detail and hint == "GRANT pg_read_all_stats TO demoted;"
            db.paste(hint)
    assert "sessions" not in found
    db.create_mapping("unsigned", {"token": "t0ken"})
    assert db.sql("SELECT name, target FROM outbox.sinks ORDER BY 1")[2] == ("unsigned", receiver.url)
    db.sql("ALTER USER MAPPING FOR PUBLIC SERVER unsigned OPTIONS (ADD url 'https://crm.example/?token=t0ken')")
    assert db.value("SELECT target FROM outbox.sinks WHERE name = 'unsigned'") == "(in the user mapping)"
    with db.connect(autocommit=False, user="postgres") as late:
        late.execute("SELECT outbox.enqueue('Order', '1', 'none', '{}')")
        wait_until(lambda: db.doctor("transactions", "0 seconds")[0] == "warning", 10, lambda: str(db.doctor("transactions", "0 seconds")))
    db.paste("REVOKE pg_read_all_stats FROM demoted")
    assert db.doctor("sessions")


@pytest.fixture
def mallory(pg, db):
    """A role with the rights that careless administrators grant."""
    settled(db)
    db.sql("CREATE ROLE mallory LOGIN")
    db.sql(f"GRANT CREATE ON DATABASE {db.name} TO mallory")
    db.sql("GRANT USAGE ON SCHEMA outbox TO mallory")
    db.sql("GRANT USAGE ON SCHEMA outbox_internal TO mallory")
    db.sql("GRANT ALL ON ALL TABLES IN SCHEMA outbox, outbox_internal TO mallory")
    with db.connect(user="mallory") as session:
        yield session
    db.sql("DROP OWNED BY mallory CASCADE")
    db.sql("DROP ROLE mallory")


def refused(session: psycopg.Connection, statement: str) -> str:
    with pytest.raises(psycopg.Error) as error:
        session.execute(statement)
    assert error.value.sqlstate == "42501", error.value
    assert error.value.diag.message_detail or error.value.diag.message_hint or "permission denied" in str(error.value)
    return error.value.diag.message_primary


def test_what_a_deferred_trigger_sets_ends_with_its_transaction(db, receiver):
    """Also that of an owner who is a superuser: with another search_path the worker would use operators of other roles."""
    db.sql("""CREATE TABLE seen (path text, timeout text);
        CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          INSERT INTO public.seen VALUES (current_setting('search_path'), current_setting('lock_timeout'));
          PERFORM set_config('search_path', 'public', false), set_config('lock_timeout', '7s', false); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER look AFTER DELETE ON outbox.events_pending DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION look()""")
    db.webhook_sink("crm", receiver, SECRET)
    for n in range(1, 4):
        db.enqueue("Order", "1")
        wait_until(lambda: db.value("SELECT count(*) FROM seen") == n, 30, f"the recording of event {n}")
    [(path, timeout)] = db.sql("SELECT DISTINCT path, timeout FROM seen")
    assert "public" not in path and timeout != "7s"


def test_a_right_on_the_tables_is_no_right_to_run_code_in_them(db, mallory):
    """GRANT ALL ON ALL TABLES includes TRIGGER and REFERENCES, which must not make the worker run that role's code."""
    mallory.execute("CREATE SCHEMA mine")
    mallory.execute("CREATE FUNCTION mine.take() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    for table in ("outbox.events", "outbox.events_pending", "outbox.events_failed", "outbox.stopped_sinks", "outbox_internal.dedup"):
        assert refused(mallory, f"CREATE TRIGGER t BEFORE INSERT OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION mine.take()") \
            == f"must be owner of table {table.split('.')[1]} to give it a trigger or refer to it"
    refused(mallory, "CREATE TABLE mine.hook (p bigint REFERENCES outbox.events_pending (position) ON DELETE CASCADE)")
    mallory.execute("CREATE TABLE mine.own (a int)")
    mallory.execute("CREATE TRIGGER t BEFORE INSERT ON mine.own FOR EACH ROW EXECUTE FUNCTION mine.take()")
    assert db.value("SELECT count(*) FROM pg_trigger WHERE tgname = 't'") == 1
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied to change owner of table events"):
        db.sql("ALTER TABLE outbox.events OWNER TO mallory")
    assert "outbox" in refused(mallory, "CREATE FUNCTION outbox.enqueue(text, text, text, json) RETURNS uuid LANGUAGE sql AS 'SELECT NULL::uuid'")


def test_an_insert_reaches_no_sink_that_enqueue_would_refuse(db, mallory, receiver):
    """Neither as a dead letter that an operator redrives, nor before other events of its key."""
    db.webhook_sink("closed", receiver, SECRET, events="nothing")
    columns = "aggregate_type, aggregate_id, event_type, sink"
    assert refused(mallory, f"INSERT INTO outbox.events ({columns}) VALUES ('Order', '1', 'x', 'closed')") == 'permission denied for sink "closed"'
    for state in ("FAILED", "SENT"):
        assert refused(mallory, f"INSERT INTO outbox.events ({columns}, status, sent_at) VALUES ('Order', '1', 'x', 'closed', '{state}', now())") \
            == "permission denied to insert an event that is not pending"
    assert refused(mallory, f"INSERT INTO outbox.events ({columns}, position) VALUES ('Order', '1', 'x', 'closed', 1)") \
        == "permission denied to give an event its position"
    # Nor by an UPDATE that is rolled back, after which the event would seem to be in flight.
    db.sql("INSERT INTO outbox.events (aggregate_type, event_type, status, position, origin) VALUES ('Order', 'x', 'FAILED', 77, 1)")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="to give an event its position"):
        mallory.execute(f"""DO $$ BEGIN
            BEGIN
              UPDATE outbox.events SET status = 'SENT', aggregate_type = 'line' || chr(10) WHERE position = 77;
            EXCEPTION WHEN invalid_parameter_value THEN NULL;
            END;
            INSERT INTO outbox.events ({columns}, position) VALUES ('Order', '1', 'x', 'closed', 77);
          END $$""")
    db.sql("DELETE FROM outbox.events")
    mallory.execute("INSERT INTO outbox.events (aggregate_type, event_type, redrive_late, blocked_by, overtaken_by, origin, xact)"
                    " VALUES ('Order', 'x', true, 1, 1, 1, '5')")
    assert db.sql("SELECT redrive_late, blocked_by, overtaken_by, origin = (SELECT origin FROM outbox_internal.library()), xact > '5'"
                  " FROM outbox.events") == [(None, None, None, True, True)]


def test_a_schema_that_lay_in_wait_is_refused(pg, db, mallory):
    db.sql("DROP EXTENSION outbox CASCADE")
    mallory.execute("CREATE SCHEMA outbox")
    mallory.execute("CREATE FUNCTION outbox.enqueue(text, text, text, json) RETURNS uuid LANGUAGE sql AS 'SELECT NULL::uuid'")

    def refuse(schema: str = "outbox") -> None:
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=f'schema {schema} is not a member of extension "outbox"'):
            db.sql("CREATE EXTENSION outbox")

    refuse()
    db.sql("ALTER SCHEMA outbox OWNER TO CURRENT_USER")
    refuse()
    db.sql("ALTER EXTENSION plpgsql ADD SCHEMA outbox")
    refuse()
    db.sql("ALTER EXTENSION plpgsql DROP SCHEMA outbox")
    db.sql("DROP SCHEMA outbox CASCADE")
    mallory.execute("CREATE SCHEMA outbox_internal")
    refuse("outbox_internal")
    mallory.execute("DROP SCHEMA outbox_internal")
    db.sql("CREATE EXTENSION outbox")
    assert db.value("SELECT outbox.enqueue('Order', 1, 'x', '{}') IS NOT NULL")
    db.sql("DROP EXTENSION outbox")
    assert db.value("SELECT to_regnamespace('outbox')") is None, "the schema is the extension's"

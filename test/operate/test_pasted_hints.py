"""A superuser pastes every hint of outbox.doctor(), whatever names other users have chosen: no hint runs the content
of a name."""

import re
import subprocess
from contextlib import ExitStack, closing

import psycopg
import pytest
from outbox_rig import patient, wait_until
from outbox_rig.paths import pg_config
from outbox_rig.receiver import status
from psycopg import sql

ATTACK = "'\"$$%s;{}DROP TABLE c;{}\\!>x{}--"  # ends a literal, a name, a dollar quote; with line feeds, also a comment
STATES = ["paused", "disabled", "failed", "held", "failing", "open", "wrong", "secret", "lost"]


@pytest.fixture(params=["\n", " "], ids=["line feeds", "one line"])
def attack(request) -> str:
    return ATTACK.format(*[request.param] * 3)


def make_sink(db, name: str, receiver, **options: str) -> None:
    """Also with a name that CREATE SERVER refuses: it may have been created by an older version."""
    allowed = name.replace("\n", "~")
    with db._connected().transaction():
        db.webhook_sink(allowed, receiver, events="none", **options)
        db.sql("SET LOCAL allow_system_table_mods = on")
        db.sql("UPDATE pg_foreign_server SET srvname = %s WHERE srvname = %s", name, allowed)


def state(db, name: str) -> str:
    return str(db.sql("SELECT state, in_flight, dead, last_error FROM outbox.sinks WHERE name = %s", name))


def end_prepared(db) -> None:
    for [gid] in db.sql("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"):
        db.sql(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))


@pytest.fixture
def hostile(db, pg, rig, attack):
    """A database in which every object that a hint can name has a hostile name."""
    refuses, fails = rig.receiver(), rig.receiver()
    refuses.mode, fails.mode = status(400), status(503)
    where = {"failed": refuses, "held": refuses, "failing": fails}
    options = {"failed": {"max_attempts": "1"}, "held": {"max_attempts": "1", "on_dead_letter": "block"}, "failing": {"retry": "1h"}}
    role = "mallory" + attack
    if int(db.value("SHOW server_version_num")) >= 190000:  # which refuses role names of more than one line
        role = role.replace("\n", " ")
    db.sql("CREATE TABLE public.c AS SELECT 1 AS a")
    db.sql(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
    db.sql(sql.SQL("GRANT USAGE ON SCHEMA outbox TO {0}; GRANT INSERT ON outbox.events TO {0}").format(sql.Identifier(role)))
    gids = ["prepared" + attack, "lock" + attack, "row" + attack]
    with ExitStack() as stack:
        for receiver in (refuses, fails):
            stack.callback(receiver.stop)
        stack.callback(lambda: db.sql(sql.SQL("DROP ROLE {}").format(sql.Identifier(role))))
        stack.callback(lambda: db.sql(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role))))
        stack.callback(end_prepared, db)
        for what in STATES:
            token = "?token=t0ken" if what == "secret" else ""
            make_sink(db, what + attack, where[what].url + token if what in where else "http://127.0.0.1:1/" + token, **options.get(what, {}))
        make_sink(db, "narrow" + attack, "http://127.0.0.1:1/", secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
        db.sql("SELECT outbox.pause(%s)", "paused" + attack)
        db.sql("INSERT INTO outbox.stopped_sinks (sink, state, reason) VALUES (%s, 'disabled', '410')", "disabled" + attack)
        for what in STATES:
            for _ in range(2):
                db.enqueue("Order", "1", "x", sink=what + attack)
        wait_until(lambda: db.sql("SELECT FROM outbox.events_failed WHERE sink = %s OFFSET 1", "failed" + attack), 20, lambda: state(db, "failed" + attack))
        wait_until(lambda: db.sql("SELECT FROM outbox.events_pending WHERE blocked_by IS NOT NULL AND sink = %s", "held" + attack), 20, lambda: state(db, "held" + attack))
        wait_until(lambda: db.sql("SELECT FROM outbox.events_pending WHERE attempts > 0 AND sink = %s", "failing" + attack), 20,
                   lambda: state(db, "failing" + attack))
        wait_until(lambda: "circuit open" in state(db, "open" + attack), 20, lambda: state(db, "open" + attack))
        db.sql("SET allow_system_table_mods = on")
        db.sql("UPDATE pg_foreign_server SET srvoptions = '{url=nonsense,events=none}' WHERE srvname = %s", "wrong" + attack)
        db.sql(sql.SQL("DROP SERVER {} CASCADE").format(sql.Identifier("lost" + attack)))
        wait_until(lambda: "misconfigured" in state(db, "wrong" + attack), 20, lambda: state(db, "wrong" + attack))
        flat = attack.replace("\n", " ")
        db.sql("SELECT outbox.enqueue(%s, %s::text, %s, '{}'::jsonb, headers => jsonb_build_object(%s::text, 'x'))", "nix, *" + flat, "1" + flat, "nix, *", "h" + flat)
        session = stack.enter_context(closing(psycopg.connect(db.dsn, user=role)))
        session.execute("SELECT outbox.enqueue('Order', '1', 'none', '{}')")
        session.execute(sql.SQL("PREPARE TRANSACTION {}").format(sql.Literal(gids[0])))
        open_transaction = stack.enter_context(closing(psycopg.connect(db.dsn, user=role, application_name=attack)))
        open_transaction.execute("SELECT outbox.enqueue('Order', '1', 'none', '{}')")
        reader = stack.enter_context(closing(psycopg.connect(db.dsn, user=role, application_name=attack)))
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT FROM pg_class")
        with db.connect(autocommit=False) as locker:
            locker.execute("LOCK TABLE outbox_internal.dedup IN SHARE MODE")
            locker.execute(sql.SQL("PREPARE TRANSACTION {}").format(sql.Literal(gids[1])))
        with db.connect(autocommit=False) as locker:
            locker.execute("SELECT FROM outbox.events_pending WHERE sink = %s ORDER BY position FOR UPDATE", ["open" + attack])
            locker.execute(sql.SQL("PREPARE TRANSACTION {}").format(sql.Literal(gids[2])))
        yield db


def test_no_hint_runs_what_stands_in_a_name(hostile, attack, tmp_path):
    db, harmful = hostile, []
    rows = db.sql("SELECT \"check\", detail, hint FROM outbox.doctor('0 seconds') WHERE hint IS NOT NULL")
    told = {check.removesuffix(attack) for check, _, _ in rows} | {f"{check} {'prepared' in detail}" for check, detail, _ in rows if check == "locks"}
    told |= {f"{check} {'prepared' in detail}" for check, detail, _ in rows if check == "row locks"}
    expected = {f"sink {what}" for what in STATES if what != "lost"} | {"locks True", "row locks True", "prepared", "transactions", "horizon", "routes", "lost sink", "dead letters",
                                                                       "secrets", f"advice paused{attack} signature"}
    assert expected <= told, expected - told
    db.disconnect()
    for check, _, hint in rows:
        subprocess.run([pg_config("bindir") / "psql", "-X", "-q", "-d", db.dsn], input=hint + "\n", capture_output=True, text=True, timeout=patient(60), cwd=tmp_path)
        gone = not db.value("SELECT to_regclass('public.c') IS NOT NULL")
        if gone or list(tmp_path.iterdir()):
            harmful.append((check, hint))
            db.sql("CREATE TABLE IF NOT EXISTS public.c AS SELECT 1 AS a")
            for left in tmp_path.iterdir():
                left.unlink()
    assert harmful == []
    assert not db.sql("SELECT FROM pg_foreign_server WHERE array_to_string(srvoptions, ' ') ~ 'nix'"), "no sink takes every event now"


def test_hints_end_what_they_are_for_whatever_the_name(hostile, attack):
    """They also work."""
    db = hostile
    for check, hint in db.sql("SELECT \"check\", hint FROM outbox.doctor('0 seconds') WHERE hint IS NOT NULL"):
        if check.removesuffix(attack) in ("sink paused", "sink disabled", "prepared", "secrets"):
            db.paste(hint)
    assert not db.sql("SELECT FROM outbox.stopped_sinks") and not db.sql("SELECT FROM pg_prepared_xacts")
    moved = "SELECT count(*) FROM pg_user_mappings WHERE srvname = %s AND 'url=http://127.0.0.1:1/?token=t0ken' = ANY (umoptions)"
    assert db.value(moved, "secret" + attack) == 1


def test_no_hint_has_a_name_behind_a_comment(db):
    """Including hints that need a broker or minutes to appear: all filled-in names are before the first --."""
    bodies = db.sql("SELECT proname, prosrc FROM pg_proc WHERE pronamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace) AND proname ~ '^doctor'")
    literals = [(name, re.sub(r"'\s*\n\s*'", "", literal)) for name, body in bodies
                for literal in re.findall(r"'(?:[^']|''|'\s*\n\s*')*'", re.sub(r"(?m)^\s*--.*$| -- [^';]*$", "", body)) if "-- " in literal]
    assert len(literals) > 25
    assert [found for found in literals if "%" in found[1][found[1].index("-- "):]] == []
    assert not [name for name, body in bodies if "$hint$" in body or "DO $$" in body], "a dollar quote may end in a name"


@pytest.mark.parametrize("character", ["\n", "\r", "\t", "\x1b", "\x7f"])
def test_a_sink_has_no_control_character_in_its_name(db, character):
    name = sql.Identifier(f"crm{character}x")
    server = sql.SQL("CREATE SERVER {} FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://crm.example/')")
    rename = sql.SQL("ALTER SERVER crm RENAME TO {}")
    db.sql(server.format(sql.Identifier("crm")))
    for statement in (server.format(name), rename.format(name)):
        with pytest.raises(psycopg.errors.InvalidName) as error:
            db.sql(statement)
        assert error.value.diag.message_primary == "name of a sink must not contain control characters" and error.value.diag.message_hint
    db.sql("CREATE FOREIGN DATA WRAPPER other")
    db.sql(sql.SQL("CREATE SERVER {} FOREIGN DATA WRAPPER other").format(name))
    db.sql(rename.format(sql.Identifier("crm'\"$$ ü")))
    assert db.sql("SELECT name FROM outbox.sinks") == [("crm'\"$$ ü",)]

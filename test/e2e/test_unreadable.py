"""Events that cannot be read: each waits with its error, and blocks only its own key."""

import functools
import json
import secrets

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import SECRET, Status

ENCODINGS = {"SQL_ASCII": b"\xe9", "WIN1252": b"\x81"}


@pytest.fixture
def database_in(pg, request):
    """A database with this encoding."""
    encoding = request.param
    database = Database(pg, f"encoded_{encoding.lower()}")
    database.connect = functools.partial(database.connect, client_encoding="UTF8")  # otherwise Python gets no text from SQL_ASCII
    with pg.connect() as admin:
        admin.execute(f"CREATE DATABASE {database.name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'")
    with database.connect(client_encoding=encoding) as session:
        session.execute("CREATE EXTENSION outbox")
        yield database, session, ENCODINGS.get(encoding, b"")
    database.drop()


@pytest.mark.parametrize("database_in", ENCODINGS, indirect=True)
def test_a_change_to_text_that_is_not_utf8_is_refused(database_in):
    _, session, byte = database_in
    session.execute("SELECT outbox.enqueue('Order', '1', 'x', '{\"a\": \"plain\"}'::jsonb, headers => '{\"h\": \"plain\"}'::jsonb)")
    refusals = psycopg.errors.CharacterNotInRepertoire, psycopg.errors.UntranslatableCharacter
    for column, value in {"payload": b'{"a": "%s"}', "headers": b'{"a": "%s"}', "aggregate_id": b"%s", "partition_key": b"%s"}.items():
        with pytest.raises(refusals) as refused:
            session.execute(b"UPDATE outbox.events SET " + column.encode() + b" = '" + value % byte + b"'")
        assert column in refused.value.diag.context, column
    session.execute("UPDATE outbox.events SET payload = '{\"a\": \"other\"}', aggregate_id = '2', available_at = now()")
    assert session.execute("SELECT count(*) FROM outbox.events WHERE payload ->> 'a' = 'other' AND aggregate_id = '2'").fetchone() == (1,)


def odd_payload(byte: bytes) -> bytes:
    return b"SELECT '{\"a\": \"" + byte + b"\"}'::jsonb"


@pytest.mark.parametrize("database_in", ENCODINGS, indirect=True)
def test_text_that_is_not_utf8_is_refused(database_in):
    _, session, byte = database_in
    session.execute("SELECT outbox.enqueue('Order', 1, 'x', '{\"a\": \"plain\"}')")
    refusals = psycopg.errors.CharacterNotInRepertoire, psycopg.errors.UntranslatableCharacter
    for column, expression in {"payload": b"payload => '{\"a\": \"%s\"}'", "payload ": b"payload => ('{\"%s\": ' || repeat('1', 9000) || '}')::jsonb",
                               "aggregate_id": b"'{}', aggregate_id => '%s'", "partition_key": b"'{}', partition_key => '%s'",
                               "dedup_key": b"'{}', dedup_key => '%s'", "headers": b"'{}', headers => '{\"a\": \"%s\"}'"}.items():
        id = b"" if column == "aggregate_id" else b"aggregate_id => '1'::text, "
        call = b"SELECT outbox.enqueue(aggregate_type => 'Order', event_type => 'x', " + id + expression.replace(b"'{}', ", b"payload => '{}', ") % byte + b")"
        with pytest.raises(refusals) as refused:
            session.execute(call)
        assert column.strip() in refused.value.diag.context, call
    assert session.execute("SELECT count(*) FROM outbox.events").fetchone() == (1,)


def well_and_alone(db: Database, receiver, broken: str) -> None:
    """The first event of key a cannot be read; other keys and later events are delivered, and its error is visible."""
    wait_until(lambda: {delivery.json()["data"]["n"] for delivery in receiver.accepted()} >= {1, 3}, 15, "the other events")
    wait_until(lambda: db.sink("last_error")[0] is not None and broken in db.sink("last_error")[0], 10, "the error in outbox.sinks")
    wait_until(lambda: db.value("SELECT last_error LIKE %s FROM outbox.events WHERE event_type = 'broken'", f"%{broken}%"), 10, "the error in the row")
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', 'c', 'x', '{\"n\": 4}')")
    wait_until(lambda: 4 in {delivery.json()["data"]["n"] for delivery in receiver.accepted()}, 10, "an event that came later")
    assert sorted(delivery.json()["data"]["n"] for delivery in receiver.accepted()) == [1, 3, 4]
    wait_until(lambda: db.sql("SELECT event_type FROM outbox.events WHERE status = 'PENDING' ORDER BY position") == [("broken",), ("behind",)], 10, "the recording")


def mended(db: Database, receiver) -> None:
    db.sql("UPDATE outbox.events SET payload = '{\"n\": 0}', available_at = now() WHERE event_type = 'broken'")
    wait_until(lambda: len(receiver.accepted()) == 5, 15, "its key")
    assert [delivery.json()["data"]["n"] for delivery in receiver.accepted()][3:] == [0, 2]


def enqueue_rest(db: Database) -> None:
    for key, kind, n in (("b", "x", 1), ("a", "behind", 2), ("b", "x", 3)):
        db.enqueue("Order", key, kind, json.dumps({"n": n}))


@pytest.mark.parametrize("database_in", ENCODINGS, indirect=True)
def test_an_event_that_is_there_already_waits_alone(database_in, receiver):
    """Such an event can come from a restored dump."""
    db, session, byte = database_in
    db.webhook_sink("crm", receiver, SECRET)
    db.sql("SELECT outbox.pause('crm')")
    session.execute(b"INSERT INTO outbox.events (aggregate_type, aggregate_id, partition_key, event_type, position, sink, origin, payload) "
                    b"SELECT 'Order', 'a', 'a', 'broken', nextval('outbox.events_position'), 'crm', origin, (" + odd_payload(byte) + b") FROM outbox_internal.library()")
    enqueue_rest(db)
    db.sql("SELECT outbox.resume('crm')")
    well_and_alone(db, receiver, "0x")
    mended(db, receiver)


ABROAD = "café \u20ac \u5546".encode() + b" \xff"
SHOWN = ("SELECT last_error FROM outbox.events", "SELECT last_error FROM outbox.sinks")


def is_refused(db: Database, receiver) -> None:
    receiver.mode = Status(400, body=ABROAD)
    db.webhook_sink("crm", receiver, SECRET)
    db.enqueue("Order", "1", "x", "{}")
    wait_until(lambda: db.value(SHOWN[0]), 15, "the failure")


@pytest.mark.parametrize("database_in", [*ENCODINGS, "EUC_JP"], indirect=True)
def test_words_of_a_peer_are_ascii_in_a_database_that_is_not_utf8(database_in, receiver):
    db, _, _ = database_in
    is_refused(db, receiver)
    assert db.value(SHOWN[0]) == "HTTP 400: caf? ? ? ?"
    wait_until(lambda: db.value(SHOWN[1]) == "HTTP 400: caf? ? ? ?", 10, "the error in outbox.sinks")
    assert "caf? ? ? ?" in db.value("SELECT string_agg(detail, ' ') FROM outbox.doctor()")


def test_words_of_a_peer_hide_no_sink_from_a_client_that_is_not_utf8(db, receiver):
    is_refused(db, receiver)
    wait_until(lambda: db.value(SHOWN[1]) == f"HTTP 400: {ABROAD[:-1].decode()}\ufffd", 10, "the error in outbox.sinks")
    with db.connect(client_encoding="LATIN1") as session:
        assert session.execute(SHOWN[1]).fetchone() == ("HTTP 400: caf? ? ? ?",)
        assert "caf? ? ? ?" in " ".join(detail for detail, in session.execute("SELECT detail FROM outbox.doctor()"))
        for setting in ("parallel_setup_cost = 0", "parallel_tuple_cost = 0", "min_parallel_table_scan_size = 0"):
            session.execute(f"SET {setting}")
        session.execute("CREATE TABLE beside AS SELECT n FROM generate_series(1, 100000) AS n; ANALYZE beside")
        assert session.execute("SELECT last_error, n FROM outbox.sinks CROSS JOIN (SELECT count(*) AS n FROM beside WHERE n % 3 = 0) AS b").fetchone() == (
            "HTTP 400: caf? ? ? ?", 33333), "in a parallel query too"


def damage(db: Database, column: str) -> None:
    """Damages the row as a lost page of the TOAST table would."""
    db.create_contrib("pg_surgery")
    toast = db.value("SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'outbox.events_pending'::regclass")
    db.sql(f"SELECT heap_force_kill('{toast}', (SELECT array_agg(ctid) FROM {toast}))")
    with pytest.raises(psycopg.Error, match="chunk"):
        db.sql(f"SELECT md5({column}::text) FROM outbox.events")


def test_damaged_headers_wait_alone_and_can_be_replaced(db, receiver):
    db.webhook_sink("crm", receiver, SECRET)
    db.sql("SELECT outbox.pause('crm')")
    db.sql("SELECT outbox.enqueue('Order', 'a', 'broken', '{\"n\": 0}'::jsonb, headers => %s::jsonb)", json.dumps({"h": secrets.token_hex(20000)}))
    damage(db, "headers")
    enqueue_rest(db)
    db.sql("SELECT outbox.resume('crm')")
    well_and_alone(db, receiver, "chunk")
    db.sql("UPDATE outbox.events SET headers = NULL WHERE event_type = 'broken'")
    mended(db, receiver)


def test_events_that_wait_for_a_sink_are_routed_past_one_that_cannot_be_read(db, receiver):
    """Its headers decide about its sink, and its payload must be copied for a second sink."""
    big = secrets.token_hex(20000)
    db.sql("SELECT outbox.enqueue('Order', 'a', 'broken', '{\"n\": 0}'::jsonb, headers => %s::jsonb)", json.dumps({"h": "1", "big": big}))
    db.enqueue("Copied", "a", "broken", json.dumps({"n": big}))
    damage(db, "headers")
    for n in 1, 2:
        db.sql("SELECT outbox.enqueue('Order', 'a', 'x', %s::jsonb, headers => '{\"h\": \"1\"}')", json.dumps({"n": n}))
    with db.connect() as session, session.transaction():
        for name, options in {"one": "aggregates 'Copied'", "two": "aggregates 'Copied'"}.items():
            session.execute("CREATE EXTENSION IF NOT EXISTS outbox_manual")
            session.execute(f"CREATE SERVER {name} FOREIGN DATA WRAPPER outbox_manual OPTIONS ({options})")
    db.webhook_sink("crm", receiver, SECRET, match='{"h": "1"}', aggregates="Order")
    wait_until(lambda: [d.json()["data"]["n"] for d in receiver.accepted()] == [1, 2], 20, "the other events")
    told = "SELECT count(*) FROM outbox.events WHERE event_type = 'broken' AND sink IS NULL AND last_error LIKE 'the event cannot be read: %chunk%'"
    wait_until(lambda: db.value(told) == 2, 20, "each one's error")
    db.sql("UPDATE outbox.events SET headers = '{\"h\": \"1\"}', available_at = now() WHERE aggregate_type = 'Order'")
    db.sql("UPDATE outbox.events SET payload = '{}', available_at = now() WHERE aggregate_type = 'Copied'")
    wait_until(lambda: [d.json()["data"]["n"] for d in receiver.accepted()] == [1, 2, 0], 20, "the mended event")
    wait_until(lambda: db.sql("SELECT sink FROM outbox.events WHERE aggregate_type = 'Copied' ORDER BY sink") == [("one",), ("two",)], 20, "its copy")


@pytest.mark.parametrize("restarted", [False, True])
def test_a_damaged_toast_value_waits_alone(db, receiver, restarted):
    db.webhook_sink("crm", receiver, SECRET)
    db.sql("SELECT outbox.pause('crm')")
    db.enqueue("Order", "a", "broken", json.dumps({"n": secrets.token_hex(20000)}))
    damage(db, "payload")
    enqueue_rest(db)
    db.sql("SELECT outbox.resume('crm')")
    well_and_alone(db, receiver, "chunk")
    if restarted:
        [(pid,)] = db.sql("SELECT pid FROM outbox.workers WHERE database = current_database()")
        db.sql("SELECT pg_terminate_backend(%s)", pid)
        wait_until(lambda: pid not in [found for found, in db.sql("SELECT pid FROM outbox.workers")] and
                   db.value("SELECT count(*) FROM outbox.workers WHERE database = current_database()") == 1, 20, "another worker")
        db.enqueue("Order", "c", "x", '{"n": 4}')
        wait_until(lambda: len(receiver.accepted()) == 4, 10, "what came after")
        receiver.deliveries.pop()
    mended(db, receiver)


def test_many_damaged_values_do_not_stop_the_others(db, receiver):
    db.webhook_sink("crm", receiver, SECRET)
    db.sql("SELECT outbox.pause('crm')")
    for n in range(50):
        db.enqueue("Order", f"a{n}", "broken", json.dumps({"n": secrets.token_hex(4000)}))
    damage(db, "payload")
    enqueue_rest(db)
    db.sql("SELECT outbox.resume('crm')")
    wait_until(lambda: len(receiver.accepted()) == 3, 20, "the other events")
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events WHERE last_error LIKE '%chunk%'") == 50, 20, "each one's error")


def test_a_damaged_key_stops_nothing(db, receiver):
    """Its key is unknown, so it cannot block a key."""
    db.webhook_sink("crm", receiver, SECRET)
    db.sql("SELECT outbox.pause('crm')")
    db.enqueue("Order", "1", "broken", partition_key=secrets.token_hex(9000))
    damage(db, "partition_key")
    db.enqueue("Order", "1", "x")
    db.sql("SELECT outbox.resume('crm')")
    wait_until(lambda: len(receiver.accepted()) == 1, 20, "the other event")
    wait_until(lambda: "chunk" in (db.sink("last_error")[0] or ""), 10, "the error")
    db.sql("UPDATE outbox.events SET partition_key = '1'")
    wait_until(lambda: len(receiver.accepted()) == 2, 10, "the mended event")

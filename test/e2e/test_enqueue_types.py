"""outbox.enqueue() accepts keys and payloads in the types that drivers send; for other types the error names a call
that works. A payload arrives byte for byte as PostgreSQL prints it, whatever it contains."""

import asyncio
import datetime
import json
import subprocess
import uuid
from decimal import Decimal

import asyncpg
import psycopg
import pytest
from outbox_rig import patient
from outbox_rig.documents import Documents
from outbox_rig.paths import BUILD, ROOT
from psycopg.types.json import Json, Jsonb
from psycopg.types.string import StrDumper

CALL = "SELECT outbox.enqueue(%s, %s, %s, %s)"
WITH_HEADERS = "SELECT outbox.enqueue(%s, %s, %s, %s, headers => %s)"


class VarcharDumper(StrDumper):
    """Sends text as JDBC's setString() and Npgsql do."""

    oid = psycopg.adapters.types["varchar"].oid


def psycopg_ways(db) -> int:
    with db.connect() as session:
        for prepare in (False, True):
            for payload, headers in ((Json({"n": 1}), Json({"tenant": 7})), (Jsonb({"n": 1}), Jsonb({"tenant": 7})), ('{"n": 1}', '{"tenant": 7}'), (Json({"n": 1}), None), (Json({"n": 1}), Jsonb({"tenant": 7}))):
                session.execute(WITH_HEADERS, ["Order", 1, "x", payload, headers], prepare=prepare)
            session.cursor(binary=True).execute(CALL, ["Order", "1", "x", Json({"n": 1})])
            session.execute("SELECT outbox.enqueue(%s, %s, %s, %s::json), outbox.enqueue(%s, %s, %s, %s::text)", ["Order", 1, "x", '{"n": 1}'] * 2, prepare=prepare)
            session.execute(CALL, ["Order", Decimal(1), "x", '{"n": 1}'], prepare=prepare)
    return 18


def set_string(db) -> int:
    with db.connect() as session:
        session.adapters.register_dumper(str, VarcharDumper)
        session.execute(CALL, ["Order", "1", "x", '{"n": 1}'])
        session.execute(CALL, ["Order", 1, "x", '{"n": 1}'])
        session.execute(WITH_HEADERS, ["Order", "1", "x", '{"n": 1}', '{"tenant": 7}'])
        session.execute("SELECT outbox.enqueue(%s, %s, %s, %s, partition_key => %s, dedup_key => %s)", ["Order", "1", "x", '{"n": 1}', "1", "once"])
    return 4


def asyncpg_ways(db) -> int:
    async def enqueue() -> None:
        connection = await asyncpg.connect(host=db.pg.host, port=db.pg.port, user="postgres", database=db.name)
        await connection.fetchval("SELECT outbox.enqueue($1, $2, $3, $4)", "Order", "1", "x", json.dumps({"n": 1}))
        await connection.fetchval("SELECT outbox.enqueue($1, $2::int, $3, $4::jsonb)", "Order", 1, "x", json.dumps({"n": 1}))
        await connection.close()

    asyncio.run(enqueue())
    return 2


def node_postgres(db) -> int:
    done = subprocess.run(["node", ROOT / "test/rig/node/enqueue.mjs", BUILD / "node", db.pg.host, str(db.pg.port), db.name],
                          capture_output=True, text=True, timeout=patient(60))
    assert done.returncode == 0, done.stderr
    return 2


def literals(db) -> int:
    for key in ("1", "'1'", "1::smallint", "1::bigint", "1::numeric", "'1'::varchar", "'1'::char(3)"):
        for payload in ("'{\"n\": 1}'", "'{\"n\": 1}'::json", "jsonb_build_object('n', 1)", "json_build_object('n', 1)", "'{\"n\": 1}'::text", "'{\"n\": 1}'::varchar"):
            db.sql(f"SELECT outbox.enqueue('Order', {key}, 'x', {payload})")
            db.sql(f"SELECT outbox.enqueue(aggregate_type => 'Order', aggregate_id => {key}, event_type => 'x', payload => {payload}, headers => NULL)")
            db.sql(f"SELECT outbox.enqueue('Order', {key}, 'x', {payload}, headers => jsonb_build_object('tenant', '7'))")
    return 126


@pytest.mark.parametrize("way", [psycopg_ways, set_string, asyncpg_ways, node_postgres, literals])
def test_what_drivers_send_is_taken(db, way):
    n = way(db)
    rows = db.sql("SELECT DISTINCT aggregate_type, aggregate_id, partition_key, payload FROM outbox.events")
    assert rows == [("Order", "1", "1", {"n": 1})]
    assert db.value("SELECT count(*) FROM outbox.events") == n
    assert {str(headers) for headers, in db.sql("SELECT headers FROM outbox.events")} <= {"None", "{'tenant': '7'}"}


@pytest.mark.parametrize("arguments, words", [
    (["Order", 1, "x", 7], "to_jsonb(payload)"),
    (["Order", 1, "x", [1, 2]], "to_jsonb(payload)"),
    (["Order", 1, "x", b"bytes"], "outbox.enqueue_bytes("),
    (["Order", uuid.uuid4(), "x", Decimal("1.5")], "to_jsonb(payload)"),
    (["Order", "1", "x", datetime.datetime.now()], "to_jsonb(payload)"),
    (["Order", datetime.date.today(), "x", Json(1)], "aggregate_id::text"),
    (["Order", 1.5, "x", Jsonb(1)], "aggregate_id::text"),
    (["Order", [1], "x", "{}"], "aggregate_id::text"),
])
def test_another_type_is_refused_with_the_call_that_would_do(db, arguments, words):
    with pytest.raises(psycopg.errors.DatatypeMismatch) as refused:
        db.sql(f"SELECT outbox.enqueue({', '.join(['%s'] * len(arguments))})", *arguments)
    assert words in refused.value.diag.message_hint


def test_the_casts_that_the_page_shows(db):
    """docs/enqueue.md: types that PostgreSQL converts for no function need a cast in the statement, and then work."""
    page, event = (ROOT / "docs/enqueue.md").read_text(), uuid.uuid4()
    key, id = "SELECT outbox.enqueue('Order', $1::text, 'order.paid', $2)", "SELECT outbox.enqueue('Order', $1, 'order.paid', $2, id => $3::uuid)"
    assert f"`{key}`" in page and f"`{id}`" in page
    with db.connect() as session:
        session.adapters.register_dumper(str, VarcharDumper)
        cursor = psycopg.RawCursor(session)
        with pytest.raises(psycopg.errors.DatatypeMismatch):
            cursor.execute(key.replace("::text", ""), [datetime.date(2026, 1, 31), '{"n": 1}'])
        cursor.execute(key, [datetime.date(2026, 1, 31), '{"n": 1}'])
        with pytest.raises(psycopg.errors.UndefinedFunction):
            cursor.execute(id.replace("::uuid", ""), ["2026-01-31", '{"n": 1}', str(event)])
        cursor.execute(id, ["2026-01-31", '{"n": 1}', str(event)])
    assert db.sql("SELECT partition_key, payload FROM outbox.events") == [("2026-01-31", {"n": 1})] * 2
    assert db.value("SELECT count(*) FROM outbox.events WHERE id = %s", event) == 1


def test_json_that_is_none_is_refused(db):
    for payload in ("{n: 1}", ""):
        with pytest.raises(psycopg.errors.InvalidTextRepresentation, match="json"):
            db.sql(CALL, "Order", 1, "x", payload)


def test_an_event_without_a_key_says_so(db):
    for call in ("outbox.enqueue('Order', NULL, 'x', '{}')", "outbox.enqueue('Order', NULL::bigint, 'x', '{}'::jsonb)", "outbox.enqueue_bytes('Order', NULL, 'x', '', 'a/b')"):
        with pytest.raises(psycopg.errors.NullValueNotAllowed) as refused:
            db.sql(f"SELECT {call}")
        assert "partition_key => ''" in refused.value.diag.message_hint
    for aggregate_type, event_type in (("NULL", "'x'"), ("'Order'", "NULL")):
        for statement in (f"SELECT outbox.enqueue({aggregate_type}, 1, {event_type}, '{{}}')",
                          f"INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ({aggregate_type}, '1', {event_type})"):
            with pytest.raises(psycopg.errors.NotNullViolation) as refused:
                db.sql(statement)
            assert "such as" in refused.value.diag.message_hint
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER one FOREIGN DATA WRAPPER outbox_manual; CREATE SERVER two FOREIGN DATA WRAPPER outbox_manual")
    db.sql("SELECT outbox.enqueue('Order', NULL, 'x', '{}', partition_key => ''), outbox.enqueue('Order', 1, 'x', '{}', partition_key => ''), outbox.enqueue('Order', NULL, 'x', '{}', partition_key => 'a')")
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, partition_key) VALUES ('Order', '1', 'x', ''), ('Order', '1', 'x', NULL), ('Order', NULL, 'x', NULL)")
    assert db.sql("SELECT aggregate_id, partition_key FROM outbox.events WHERE sink = 'two' ORDER BY position") == [
        (None, None), ("1", None), (None, "a"), ("1", None), ("1", "1"), (None, None)]
    assert db.value("SELECT count(*) FROM outbox.events AS e JOIN outbox.events AS o USING (id) WHERE e.partition_key IS DISTINCT FROM o.partition_key") == 0


def large() -> list[str]:
    """Documents that are long, deep, or have a character to escape at the end of a block that is copied at once."""
    around = [json.dumps("x" * before + escaped + "y" * after) for before in (*range(18), *range(1015, 1034), 65535, 65536)
              for escaped in ('"', "\\", "\n", "\x01", "ä") for after in (0, 9)]
    return around + [
        json.dumps("\x02" * 70_000), json.dumps("€😀" * 20_000), json.dumps({"a": "z" * 200_000, "b": ["\t" * 3000]}),
        "[" * 1000 + "]" * 1000, '{"a":' * 1000 + "1" + "}" * 1000,
        json.dumps({f"key {n}": n for n in range(2000)}), json.dumps([[], {}, [[]], [{}], {"": {}}]),
        '{"a": 1, "a": 2, "b": 3, "a": 4}', '""', "[]", "{}", "1.00", "true", "null", '"text"',
    ]


def test_any_document(db, kafka, consume, aggregate):
    db.kafka_sink("main", kafka)
    documents = Documents(seed=5)
    texts = large() + [documents.value(4) for _ in range(3000)]
    db.sql("CREATE TABLE documents (n int PRIMARY KEY, document jsonb)")
    with db.connect() as connection, connection.cursor().copy("COPY documents FROM STDIN") as copy:
        for row in enumerate(texts):
            copy.write_row(row)
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) SELECT %s, n, 'order.created', document FROM documents", aggregate)
    expected = {str(n): text.encode() for n, text in db.sql("SELECT n, document::text FROM documents")}
    for record in consume(f"outbox.event.{aggregate}").take(len(texts)):
        assert record.value == expected.pop(record.key), f"document {record.key}: {texts[int(record.key)]:.200}"
    assert not expected

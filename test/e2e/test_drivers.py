"""Drivers of several languages insert events in their own ways: values as text and in binary, single rows, batches
and COPY."""

import asyncio
import datetime
import json
import subprocess
import uuid

import asyncpg
import psycopg
import psycopg2
import psycopg2.extras
import pytest
from outbox_rig import patient
from outbox_rig.paths import BUILD, ROOT
from psycopg.types.json import Json, Jsonb

CREATED = datetime.datetime(2021, 11, 1, 10, tzinfo=datetime.UTC)
NAIVE = CREATED.replace(tzinfo=None)  # the server's time zone is UTC
HEADERS = {"tenant": "7"}
COLUMNS = "id, aggregate_type, aggregate_id, event_type, payload, headers, created_at, status, attempts"
INSERT = f"INSERT INTO outbox.events ({COLUMNS}) VALUES ({{}}) RETURNING id"


def placeholders(one: str) -> str:
    return INSERT.format(", ".join([one] * 9))


def row(event_id, key, driver: str, payload, headers, created, status="PENDING", attempts=0) -> tuple:
    return event_id, "Order", key, driver, payload, headers, created, status, attempts


def psycopg_text(db) -> list[int]:
    """As text; a Python str has no type on the wire. Prepared from the second execution on."""
    with db.connect(autocommit=False, prepare_threshold=1) as connection:
        for n in range(8):
            values = [row(None, str(n), "psycopg", f'{{"n": {n}}}', '{"tenant": 7}', CREATED.isoformat(), None, None),
                      row(str(uuid.uuid4()), n, "psycopg", Jsonb({"n": n}), Json({"tenant": 7}), NAIVE),
                      row(uuid.uuid4(), n, "psycopg", Json({"n": n}), Jsonb({"tenant": 7}), CREATED)][n % 3]
            assert connection.execute(placeholders("%t" if n % 2 else "%s"), values).fetchone()[0]
        return list(range(8))


def psycopg_binary(db) -> list[int]:
    with db.connect(autocommit=False, prepare_threshold=1) as connection:
        cursor = connection.cursor(binary=True)
        for n in range(8):
            cursor.execute(placeholders("%b"), row(uuid.uuid4() if n % 2 else None, str(n), "psycopg", Jsonb({"n": n}), Jsonb({"tenant": 7}), CREATED))
            assert isinstance(cursor.fetchone()[0], uuid.UUID)
        return list(range(8))


def psycopg_batches(db) -> list[int]:
    """executemany() and a pipeline, with the ids in the order of the rows; COPY as text and in binary."""
    with db.connect(autocommit=False) as connection:
        cursor = connection.cursor()
        given = [uuid.uuid4() for _ in range(5)]
        cursor.executemany(placeholders("%s"), [row(event, str(n), "psycopg", Jsonb({"n": n}), Jsonb(HEADERS), CREATED) for n, event in enumerate(given)], returning=True)
        returned = [cursor.fetchone()[0]]
        while cursor.nextset():
            returned.append(cursor.fetchone()[0])
        assert returned == given
        with connection.pipeline():
            for n in (5, 6):
                connection.execute(placeholders("%s"), row(None, str(n), "psycopg", Jsonb({"n": n}), Jsonb(HEADERS), CREATED, None, None))
        with cursor.copy(f"COPY outbox.events ({COLUMNS}) FROM STDIN") as copy:
            copy.write_row(row(None, "7", "psycopg", Jsonb({"n": 7}), Jsonb(HEADERS), CREATED, None, None))
        with cursor.copy(f"COPY outbox.events ({COLUMNS}) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["uuid", "text", "text", "text", "jsonb", "jsonb", "timestamptz", "text", "int4"])
            copy.write_row(row(None, "8", "psycopg", Jsonb({"n": 8}), Jsonb(HEADERS), CREATED, None, None))
            copy.write_row(row(uuid.uuid4(), "9", "psycopg", Jsonb({"n": 9}), Jsonb(HEADERS), CREATED))
        return list(range(10))


def psycopg2_literals(db) -> list[int]:
    """Every value is a literal in the statement's text."""
    connection = psycopg2.connect(db.dsn)
    psycopg2.extras.register_uuid(conn_or_curs=connection)
    with connection, connection.cursor() as cursor:
        cursor.execute(placeholders("%s"), row(None, 0, "psycopg2", '{"n": 0}', psycopg2.extras.Json(HEADERS), CREATED, None, None))
        cursor.execute(placeholders("%s"), row(uuid.uuid4(), "1", "psycopg2", psycopg2.extras.Json({"n": 1}), '{"tenant": 7}', NAIVE))
        statement = INSERT.format("").replace("VALUES ()", "VALUES %s")
        rows = [row(None, str(n), "psycopg2", psycopg2.extras.Json({"n": n}), psycopg2.extras.Json(HEADERS), CREATED, None, None) for n in range(2, 7)]
        assert len(psycopg2.extras.execute_values(cursor, statement, rows, page_size=3, fetch=True)) == 5
    connection.close()
    return list(range(7))


def asyncpg_binary(db) -> list[int]:
    """All values in binary: a prepared statement, a portal that is read row by row, executemany() and COPY."""

    async def insert() -> None:
        connection = await asyncpg.connect(host=db.pg.host, port=db.pg.port, user="postgres", database=db.name)
        statement = INSERT.format(", ".join(f"${n}" for n in range(1, 10)))
        place = await connection.prepare(statement)
        for n in range(7):
            assert await place.fetchval(*row(None, str(n), "asyncpg", json.dumps({"n": n}), json.dumps(HEADERS), CREATED, None, None))
        async with connection.transaction():
            portal = await connection.cursor(statement, *row(str(uuid.uuid4()), "7", "asyncpg", '{"n": 7}', '{"tenant": 7}', CREATED))
            assert len(await portal.fetch(1)) == 1
        await connection.executemany(statement, [row(None, str(n), "asyncpg", json.dumps({"n": n}), json.dumps(HEADERS), CREATED) for n in (8, 9)])
        await connection.copy_records_to_table("events", schema_name="outbox", columns=COLUMNS.split(", "), records=[
            row(None, "10", "asyncpg", '{"n": 10}', '{"tenant": 7}', CREATED, None, None), row(uuid.uuid4(), "11", "asyncpg", '{"n": 11}', '{"tenant": 7}', CREATED)])
        await connection.close()

    asyncio.run(insert())
    return list(range(12))


def node_postgres(db) -> list[int]:
    done = subprocess.run(["node", ROOT / "test/rig/node/insert.mjs", BUILD / "node", db.pg.host, str(db.pg.port), db.name],
                          capture_output=True, text=True, timeout=patient(60))
    assert done.returncode == 0, done.stderr
    return list(range(9))


DRIVERS = {"psycopg": [psycopg_text, psycopg_binary, psycopg_batches], "psycopg2": [psycopg2_literals], "asyncpg": [asyncpg_binary], "node": [node_postgres]}


def test_every_driver_inserts_the_same_events(db):
    for driver, ways in DRIVERS.items():
        for way in ways:
            numbers = way(db)
            rows = db.sql("SELECT aggregate_id, event_type, payload, headers, created_at, status, attempts, partition_key, id <> '00000000-0000-0000-0000-000000000000'"
                          " FROM outbox.events ORDER BY position")
            assert rows == [(str(n), driver, {"n": n}, HEADERS, CREATED, "PENDING", 0, str(n), True) for n in numbers], way.__name__
            assert db.value("SELECT count(DISTINCT id) FROM outbox.events") == len(numbers), way.__name__
            db.sql("DELETE FROM outbox.events")


def test_enums_and_citext_of_the_application_are_taken(db):
    db.create_contrib("citext")
    db.sql("CREATE TYPE status AS ENUM ('PENDING', 'SENT')")
    with db.connect() as connection:
        for prepared in (False, True):
            connection.execute("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, status) VALUES (%s::citext, %s, %s::citext, %s::status)",
                               ["Order", "1", "OrderPlaced", "PENDING"], prepare=prepared)
    assert db.sql("SELECT aggregate_type, event_type, status FROM outbox.events") == [("Order", "OrderPlaced", "PENDING")] * 2
    with pytest.raises(psycopg.errors.CheckViolation, match="no partition"):
        db.sql("INSERT INTO outbox.events (aggregate_type, event_type, status) VALUES ('Order', 'OrderPlaced', 'Pending'::citext)")

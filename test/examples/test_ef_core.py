"""The EF Core example without .NET: psycopg sends what EF Core is documented to send (examples/ef-core/sent.sql), in
the way of Npgsql: extended protocol, binary parameters, the statements of a SaveChanges in one round trip. The C#
code itself is parsed."""

import json
import re
import secrets
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import Decimal
from xml.etree import ElementTree

import psycopg
import pytest
import tree_sitter
import tree_sitter_c_sharp
from outbox_rig import wait_until
from outbox_rig.paths import ROOT
from psycopg.types.datetime import DatetimeBinaryDumper
from psycopg.types.json import Jsonb, JsonbBinaryDumper
from psycopg.types.numeric import DecimalBinaryDumper
from psycopg.types.string import StrBinaryDumper
from psycopg.types.uuid import UUIDBinaryDumper

EXAMPLE = ROOT / "examples" / "ef-core"
DUMPERS = {"uuid": (uuid.UUID, UUIDBinaryDumper), "text": (str, StrBinaryDumper), "jsonb": (Jsonb, JsonbBinaryDumper),
           "numeric": (Decimal, DecimalBinaryDumper), "timestamptz": (datetime, DatetimeBinaryDumper)}


class Sent:
    """The statements of sent.sql, as they reach the server."""

    def __init__(self) -> None:
        self.sql: dict[str, str] = {}
        self.types: dict[str, list[str]] = {}
        for block in re.split(r"^-- name: ", (EXAMPLE / "sent.sql").read_text(), flags=re.MULTILINE)[1:]:
            name, rest = block.split("\n", 1)
            names = iter(dict.fromkeys(re.findall(r"@p\d+", rest)))
            numbers = {each: f"${n}" for n, each in enumerate(names, 1)}
            statement = "\n".join(line for line in rest.splitlines() if not line.startswith("--")).strip()
            self.sql[name] = re.sub(r"@p\d+", lambda found: numbers[found[0]], statement)
            self.types[name] = "".join(re.findall(r"^-- types: (.*)$", rest, re.MULTILINE)).split()


SENT = Sent()


class Context:
    """The role of EF Core: a DbContext's transactions, and its SaveChanges."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection
        for python, dumper in DUMPERS.values():
            connection.adapters.register_dumper(python, dumper)  # binary, with the type's oid

    def plain(self, name: str) -> None:
        self.connection.execute(SENT.sql[name])

    def one(self, name: str, *values: object) -> psycopg.RawCursor:
        assert len(values) == len(SENT.types[name])
        for value, kind in zip(values, SENT.types[name]):
            assert value is None or isinstance(value, DUMPERS[kind][0])
        cursor = psycopg.RawCursor(self.connection)
        return cursor.execute(SENT.sql[name], values, binary=True)

    def save_changes(self, *commands: tuple) -> None:
        """In a transaction that is already open."""
        self.plain("savepoint")
        try:
            with self.connection.pipeline():
                for command in commands:
                    self.one(*command)
        except psycopg.Error:
            self.plain("back to savepoint")
            raise
        finally:
            self.plain("release savepoint")


def event_of(order: uuid.UUID, aggregate: str, customer: str, total: str, id: uuid.UUID, headers: dict | None = None) -> tuple:
    payload = {"id": str(order), "customer": customer, "total": total}
    return ("insert event", id, str(order), aggregate, datetime.now(timezone.utc), "OrderPlaced", headers and Jsonb(headers), Jsonb(payload))


def growing_ids() -> Iterator[uuid.UUID]:
    """As UuidV7.cs makes them."""
    last = 0
    while True:
        last = max(time.time_ns() // 1_000_000 << 12, last + 1)
        yield uuid.UUID(int=last >> 12 << 80 | 7 << 76 | (last & 0xFFF) << 64 | 2 << 62 | secrets.randbits(62))


@pytest.fixture
def app(db):
    """A connection with the grants of docs/security.md, and the example's tables."""
    db.sql("DO $$ BEGIN CREATE ROLE app LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    db.sql("GRANT CREATE ON SCHEMA public TO app")
    db.sql("GRANT USAGE ON SCHEMA outbox TO app")
    db.sql("GRANT INSERT, SELECT (id) ON outbox.events TO app")
    db.sql("CREATE EXTENSION outbox_inbox; GRANT USAGE ON SCHEMA outbox_inbox TO app")
    db.sql("GRANT EXECUTE ON FUNCTION outbox_inbox.mark_processed TO app")
    with db.connect(user="app") as connection:
        connection.execute(SENT.sql["tables"])
        yield Context(connection)


def test_statements_as_ef_core_sends_them(db, app, kafka, consume, aggregate):
    db.kafka_sink("main", kafka)
    ids = growing_ids()
    placed = []

    def place(orders: list[tuple[str, str]], commit: bool = True) -> list[uuid.UUID]:
        """PlaceAll() of Program.cs."""
        keys = [next(ids) for _ in orders]
        events = [event_of(key, aggregate, *order, next(ids), {"tenant": "7"}) for key, order in zip(keys, orders)]
        app.plain("begin")
        app.save_changes(*events, *(("insert order", key, customer, Decimal(total)) for key, (customer, total) in zip(keys, orders)))
        app.plain("commit" if commit else "rollback")
        if commit:
            placed.extend((str(key), customer, total, str(event[1])) for key, (customer, total), event in zip(keys, orders, events))
        return keys

    odd = "Ada \"the\" O'Brien, Ünïcode ☃ \\n"
    ada, = place([(odd, "12.50")])
    place([("Mallory", "1000.01")], commit=False)  # refused by the credit check, after both rows had been written
    place([(f"batch {n}", "1.10") for n in range(50)])

    # A failed SaveChanges rolls back to EF Core's savepoint; later statements of the transaction are committed.
    first, second, third = next(ids), next(ids), next(ids)
    app.plain("begin")
    with pytest.raises(psycopg.errors.UniqueViolation):
        app.save_changes(event_of(ada, aggregate, "twice", "1.00", first), ("insert order", ada, "twice", Decimal("1.00")))
    app.save_changes(event_of(second, aggregate, "again", "2.00", third), ("insert order", second, "again", Decimal("2.00")))
    app.plain("commit")
    placed.append((str(second), "again", "2.00", str(third)))

    # The server generates the id.
    of = event_of(ada, aggregate, "odd", "0.00", uuid.UUID(int=0))[2:]
    returned, = app.one("insert event, id by the server", *of).fetchone()
    assert returned.version == 7

    records = consume(f"outbox.event.{aggregate}").take(len(placed) + 1, 60)
    wait_until(lambda: db.sql("SELECT delivered, pending FROM outbox.sinks") == [(len(records), 0)], 30, "the deliveries to be recorded")
    seen = [(record.key, *(json.loads(record.value)[field] for field in ("customer", "total")), record.id) for record in records]
    assert Counter(seen) == Counter([*placed, (str(ada), "odd", "0.00", str(returned))])
    assert sorted(db.sql("SELECT id::text, customer, total::text FROM orders")) == sorted(order[:3] for order in placed)
    for partition in {record.partition for record in records}:  # EF Core sorts by the ids, and this order is kept
        in_order = [record.id for record in records if record.partition == partition and record.id != str(returned)]
        assert in_order == sorted(in_order)

    # The consumer of Shipping.cs: every event arrives twice.
    for record in [*records, *records]:
        app.plain("begin")
        first_time, = app.one("mark processed", uuid.UUID(record.id)).fetchone()
        if first_time:
            order = json.loads(record.value)
            app.save_changes(("insert shipment", order["customer"], uuid.UUID(order["id"]), Decimal(order["total"])))
        app.plain("commit")
    shipped = db.sql("SELECT order_id::text, customer, total::text FROM shipments")
    assert Counter(shipped) == Counter([order[:3] for order in placed] + [(str(ada), "odd", "0.00")])


def parsed(file) -> tree_sitter.Node:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_c_sharp.language())).parse(file.read_bytes()).root_node


def test_the_sources_are_csharp():
    files = sorted(EXAMPLE.glob("*.cs"))
    assert len(files) > 5
    for file in files:
        assert not parsed(file).has_error, file
    packages = {each.get("Include"): each.get("Version") for each in ElementTree.parse(EXAMPLE / "orders.csproj").iter("PackageReference")}
    assert set(packages) >= {"Npgsql.EntityFrameworkCore.PostgreSQL", "Confluent.Kafka"}
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in packages.values())


def test_what_is_sent_is_what_is_mapped(db):
    """Every property of OutboxEvent is a column of sent.sql, in EF Core's order: the key first, then by name; and a
    column of the table."""
    names = re.findall(r"public (?:required )?\S+ (\w+) \{ get; init; \}", (EXAMPLE / "OutboxEvent.cs").read_text())
    columns = [re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in ["Id", *sorted(set(names) - {"Id"})]]
    assert re.search(r"outbox\.events \((.*)\)", SENT.sql["insert event"])[1].split(", ") == columns
    types = dict(db.sql("SELECT attname::text, format_type(atttypid, -1) FROM pg_attribute WHERE attrelid = 'outbox.events'::regclass"))
    assert [types[column].replace("timestamp with time zone", "timestamptz") for column in columns] == SENT.types["insert event"]

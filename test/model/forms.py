"""forms.py: the ways to enqueue one event. Each is a statement whose first column is the event's id, and its values."""

import json

from model import Event

COLUMNS = "aggregate_type, aggregate_id, event_type, payload, headers, partition_key, dedup_key, available_at, sink, id"


def function(payload: str, headers: str, aggregate: str = "'1'", name: str = "enqueue", more: str = ""):
    """outbox.enqueue() or outbox.enqueue_bytes() with arguments of these types."""
    def form(event: Event, sink: str | None, time: str):
        given = "decode(%s, 'hex')" if name == "enqueue_bytes" else f"%s{payload}"
        return (f"SELECT outbox.{name}('Order', {aggregate}, %s, {given}{more}, headers => %s{headers}, partition_key => %s, dedup_key => %s,"
                f" available_at => {time}, sink => %s, id => %s)::text",
                [event.type, event.payload, event.headers, event.key or "", event.dedup, sink, event.id])
    return form


def insert(body: str, table: str = "outbox.events", conflict: str = ""):
    def form(event: Event, sink: str | None, time: str):
        return (f"INSERT INTO {table} ({COLUMNS}) {body.replace('TIME', time)}{conflict} RETURNING id::text",
                [event.type, event.payload, event.headers, event.key or "", event.dedup, sink, event.id])
    return form


def insert_nulls(event: Event, sink: str | None, time: str):
    """As ORMs do: NULL for every column that they do not know."""
    return (f"INSERT INTO outbox.events ({COLUMNS}, seq, created_at, attempts, status, last_error, sent_at, last_attempt_at, content_type, position, xact, origin)"
            f" VALUES ('Order', NULL, %s, %s, coalesce(%s, 'null')::jsonb, %s, %s, {time}, %s, %s, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) RETURNING id::text",
            [event.type, event.payload, event.headers, event.key or "", event.dedup, sink, event.id])


ROW = "'Order', '1', %s, %s::jsonb, %s::jsonb, %s, %s, TIME, %s, %s::uuid"
FORMS = {
    "jsonb": function("::jsonb", "::jsonb"),
    "json": function("::json", "::json"),
    "text": function("::text", "::text"),
    "untyped": function("", ""),
    "text, headers of jsonb": function("::text", "::jsonb"),
    "json, headers of jsonb": function("::json", "::jsonb"),
    "bigint": function("::jsonb", "::jsonb", "1::bigint"),
    "uuid": function("::jsonb", "::jsonb", "gen_random_uuid()"),
    "bytes": function("", "::jsonb", name="enqueue_bytes", more=", 'application/octet-stream'"),
    "bytes, bigint": function("", "::jsonb", "1::bigint", "enqueue_bytes", ", 'application/octet-stream'"),
    "bytes, uuid": function("", "::jsonb", "gen_random_uuid()", "enqueue_bytes", ", 'application/octet-stream'"),
    "INSERT": insert(f"VALUES ({ROW})"),
    "INSERT with NULLs": insert_nulls,
    "INSERT SELECT": insert(f"SELECT {ROW} FROM generate_series(1, 1)"),
    "INSERT into the partition": insert(f"VALUES ({ROW})", "outbox.events_pending"),
}


def is_function(name: str) -> bool:
    return not name.startswith("INSERT")


def payload_of(name: str, number: int) -> tuple[str | None, str | None]:
    """What to give, and how outbox.events shows it."""
    if name.startswith("bytes"):
        return f"00ff{number:02x}", f"00ff{number:02x}"
    given = [None, "{}", '{"a": 1.50}', '[1, "two"]', '"text"', "null"][number % 6]
    return given, given or ""


def headers_of(name: str, number: int) -> tuple[str | None, str | None]:
    given = [None, None, '{"tenant": "7"}', '{"n": 7, "yes": true}'][number % 4]
    return given, given and json.dumps({key: value if isinstance(value, str) else json.dumps(value) for key, value in json.loads(given).items()})

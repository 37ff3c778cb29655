"""Events of every kind, and the CloudEvent that each must become."""

import json
from dataclasses import dataclass, field
from datetime import datetime

from .database import Database

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass(frozen=True)
class Event:
    """An event to enqueue: its payload is JSON, bytes or NULL."""

    payload: str | bytes | None = '{"a": 1}'
    aggregate_type: str = "Order"
    aggregate_id: str | None = "42"
    event_type: str = "order.created"
    partition_key: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    seq: int | None = None
    created_at: str = "2024-05-01T12:00:00.123456Z"
    source: str = "Order"  # the last part of the attribute's name
    of_bytes: str = "application/avro"

    @property
    def content_type(self) -> str:
        return self.of_bytes if isinstance(self.payload, bytes) else "application/json"


EVENTS = {
    "plain": Event(),
    "unicode": Event('{"ä": "😀 \\u2028 \\"q\\" \\\\ \\u001f", "b": [1, null, {}]}', aggregate_id='ä "x" 😀 % \\', event_type="order.geändert 😀"),
    "source": Event(aggregate_type="Bestellung ä", source="Bestellung%20%C3%A4"),
    "digits": Event('{"a": 1.10, "b": 9223372036854775808, "c": 0.10000000000000000000001}'),
    "text": Event('"text"'),
    "null": Event("null"),
    "bytes": Event(bytes(range(256))),
    "no bytes": Event(b""),
    "tombstone": Event(None),
    "numbered": Event(seq=42),
    "other key": Event(partition_key="customer 7"),
    "no key": Event(aggregate_id=None),
    "traced": Event(headers={"traceparent": PARENT, "tracestate": "vendor=1,other=2"}),
    "badly traced": Event(headers={"traceparent": "00-0-0-01", "tracestate": "vendor=1"}),
    "extended": Event(headers={"ce_tenant": "acme ä", "plain": "x"}),
    "seconds": Event(created_at="2024-05-01T12:00:00.000000Z"),
}


def enqueue(db: Database, event: Event) -> str:
    data, content_type = (event.payload, event.content_type) if isinstance(event.payload, bytes) else (None, None)
    return str(db.value("""
        INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, payload_bytes, content_type, headers, partition_key, seq, created_at)
        VALUES (%s, %s, %s, %s::jsonb, %s, %s, %s::jsonb, %s, %s, %s) RETURNING id""", event.aggregate_type, event.aggregate_id, event.event_type,
                        None if data is not None else event.payload, data, content_type, json.dumps(event.headers), event.partition_key, event.seq, event.created_at))


def attributes_of(event: Event, id: str, database: str, position: int) -> dict[str, str]:
    found = {"specversion": "1.0", "id": id, "source": f"/outbox/{database}/{event.source}", "type": event.event_type,
             "subject": event.aggregate_id, "time": event.created_at, "datacontenttype": None if event.payload is None else event.content_type,
             "partitionkey": event.partition_key or event.aggregate_id, "sequence": f"{event.seq or position:019d}",
             "tenant": event.headers.get("ce_tenant")}
    if event.headers.get("traceparent") == PARENT:
        found |= event.headers
    return {name: value for name, value in found.items() if value is not None}


def text_of(db: Database, event: Event) -> bytes | None:
    """The payload as it must arrive."""
    return event.payload if not isinstance(event.payload, str) else db.value("SELECT (%s::jsonb)::text", event.payload).encode()


def as_written(time: datetime) -> str:
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")

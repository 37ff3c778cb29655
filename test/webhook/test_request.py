"""Requests, read by the official libraries of two languages: signatures over unusual payloads in every format,
CloudEvents, the rotation of a secret under traffic, and retries."""

import base64
import hashlib
import hmac
import json
from datetime import datetime
from urllib.parse import quote, unquote

import psycopg
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.node import read_by_node
from outbox_rig.odd_events import EVENTS, Event, as_written, attributes_of, enqueue, text_of
from outbox_rig.receiver import SECRET, Delivery, Receiver, Status, status
from outbox_rig.writers import Writers
from standardwebhooks import Webhook, WebhookVerificationError

NEW_SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()

ODD = EVENTS | {
    "huge numbers": Event('{"n": 123456789012345678901234567890.0000000000000000001, "e": 1e400, "z": -0.0}'),
    "nested": Event("[" * 200 + "]" * 200),
    "empty object": Event("{}"),
    "1 MB": Event(json.dumps({"text": "x€😀\\\"" * 100_000})),
    "quotes": Event(event_type='"order".\'paid\' \\ {"a": 1}', aggregate_id='","x":"'),
    "astral": Event('{"𝕊": "\\ud835\\udd4a 𝕊"}', event_type="𝕊.😀.\u2028", aggregate_id="👩‍👩‍👧"),
    "JSON in bytes": Event(b'{"lone": "\\ud800", "line":\r\n "\\u0000"}\r\n', of_bytes="application/json"),
    "text in bytes": Event("Zoë\r\n.\r\n".encode(), of_bytes="text/plain; charset=utf-8"),
}
SINKS = {
    "standard": {},
    "raw": {"format": "raw"},
    "binary": {"format": "cloudevents", "forward_headers": "traceparent, tracestate, plain"},
    "structured": {"format": "cloudevents-structured"},
    "rest": {"method": "PUT", "idempotency_key": "true", "headers": '{"X-Type": "${event_type}", "X-Key": "${partition_key}"}',
             "body": '{"id": ${id}, "type": ${event_type}, "ref": "${aggregate_type}/${aggregate_id}", "payload": ${payload}, "seq": ${seq}}'},
}


class Sent:
    """All unusual events, sent by all sinks to one receiver."""

    def __init__(self, db: Database, receiver: Receiver):
        self.db = db
        for sink, options in SINKS.items():
            path = "/${aggregate_type}/${id}?ref=${event_type}" if sink == "rest" else ""
            db.webhook_sink(sink, f"{receiver.url}/{sink}{path}", SECRET, retention="1d", **options)
        self.ids = {name: enqueue(db, event) for name, event in ODD.items()}
        count = len(ODD) * len(SINKS)
        wait_until(lambda: len(receiver.accepted()) >= count, 30, lambda: f"{count} deliveries, and not only {len(receiver.accepted())}")
        names = {event: name for name, event in self.ids.items()}
        self.by_sink: dict[str, dict[str, Delivery]] = {sink: {} for sink in SINKS}
        for delivery in receiver.deliveries:
            sink = delivery.path.split("/")[2]
            self.by_sink[sink][names[delivery.headers["webhook-id"]]] = delivery
        assert all(len(found) == len(ODD) for found in self.by_sink.values())

    def of(self, sink: str, events: dict[str, Event]):
        """For each event its name, the event, the request, and the CloudEvent that it must be."""
        positions = dict(self.db.sql("SELECT id::text, position FROM outbox.events WHERE sink = %s", sink))
        for name, event in events.items():
            yield name, event, self.by_sink[sink][name], attributes_of(event, self.ids[name], self.db.name, positions[self.ids[name]])


@pytest.fixture(scope="module")
def sent(pg, rig):
    db = Database(pg, "request").create()
    receiver = rig.receiver()
    yield Sent(db, receiver)
    receiver.stop()
    db.drop()


def signature(delivery: Delivery) -> str:
    """Verified by the specification alone, because the libraries accept only JSON."""
    signed = f"{delivery.headers['webhook-id']}.{delivery.headers['webhook-timestamp']}.".encode() + delivery.body
    digest = hmac.digest(base64.b64decode(SECRET.removeprefix("whsec_")), signed, hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"


def is_json(body: bytes) -> bool:
    try:
        json.loads(body)
        return True
    except ValueError:
        return False


def test_every_request_is_signed(sent):
    for sink, found in sent.by_sink.items():
        for name, delivery in found.items():
            assert delivery.headers["webhook-signature"] == signature(delivery), (sink, name)
        others = [header for delivery in found.values() for header in delivery.headers if header.startswith("svix-")]
        assert not others, sink
        read = {name: delivery for name, delivery in found.items() if is_json(delivery.body)}
        assert len(read) >= len(ODD) - 4
        for library in ("standardwebhooks", "svix"):
            assert dict(zip(read, read_by_node(library, read.values(), SECRET))) == dict.fromkeys(read, "ok"), (sink, library)
        for delivery in read.values():
            Webhook(SECRET).verify(delivery.body, delivery.headers)


def test_standard_webhooks(sent):
    for name, event, delivery, _ in sent.of("standard", ODD):
        if isinstance(event.payload, bytes):
            assert delivery.body == event.payload, name
            assert delivery.headers["content-type"] == event.content_type, name
            continue
        assert delivery.headers["content-type"] == "application/json", name
        payload = b"null" if event.payload is None else text_of(sent.db, event)
        assert delivery.body.endswith(b'"data":' + payload + b"}"), name  # digit by digit
        body = delivery.json()
        assert (body["id"], body["type"]) == (sent.ids[name], event.event_type), name
        assert body["timestamp"] == event.created_at[:-4] + "Z", name
        assert abs(int(delivery.headers["webhook-timestamp"]) - delivery.at) < 30, name


def test_raw_is_the_payload(sent):
    for name, event, delivery, _ in sent.of("raw", ODD):
        assert delivery.body == (text_of(sent.db, event) or b""), name
        assert delivery.headers.get("content-type") == (None if event.payload is None else event.content_type), name


def test_any_rest_endpoint(sent):
    for name, event, delivery, _ in sent.of("rest", ODD):
        assert delivery.path == f"/hook/rest/{quote(event.aggregate_type, safe='')}/{sent.ids[name]}?ref={quote(event.event_type, safe='')}", name
        payload = event.payload if event.payload is None else text_of(sent.db, event)
        payload = base64.b64encode(payload).decode() if isinstance(event.payload, bytes) else json.loads(payload or "null")
        assert delivery.json() == {"id": sent.ids[name], "type": event.event_type, "ref": f"{event.aggregate_type}/{event.aggregate_id or ''}",
                                   "payload": payload, "seq": event.seq}, name
        assert delivery.headers["idempotency-key"] == f'"{sent.ids[name]}"', name
        assert delivery.headers["x-type"] == event.event_type, name
        assert delivery.headers.get("x-key") == (event.partition_key or event.aggregate_id), name


def by_python(delivery: Delivery) -> tuple[dict[str, str], dict | str | bytes | None]:
    event = from_http_event(HTTPMessage(delivery.headers, delivery.body))
    found = event.get_attributes()
    return found | {"time": as_written(found["time"])}, event.get_data()


def by_node(shown: str, event: Event, encoded: bool) -> dict[str, str]:
    """The attributes; it checks them by the specification's JSON schema, does not decode them, and truncates to milliseconds."""
    found = json.loads(shown)
    assert found.pop("valid") is True
    for member in ("data", "data_base64"):
        found.pop(member, None)
    moment = datetime.fromisoformat(found["time"])
    assert moment.replace(microsecond=0) == datetime.fromisoformat(event.created_at).replace(microsecond=0)
    found = {name: unquote(value) if encoded else value for name, value in found.items()}
    return found | {"time": event.created_at}


def test_cloudevents_binary(sent):
    arrived = list(sent.of("binary", EVENTS))
    shown = read_by_node("cloudevents", [delivery for _, _, delivery, _ in arrived])
    for (name, event, delivery, expected), by_npm in zip(arrived, shown, strict=True):
        assert delivery.body == (text_of(sent.db, event) or b""), name
        assert delivery.headers.get("content-type") == expected.get("datacontenttype"), name
        ours = {header: value for header, value in delivery.headers.items() if header.startswith("ce-")}
        safe = "".join(chr(c) for c in range(0x21, 0x7f) if chr(c) not in '"%')
        assert ours == {f"ce-{attribute}": quote(value, safe=safe) for attribute, value in expected.items() if attribute != "datacontenttype"}, name
        assert delivery.headers.get("plain") == event.headers.get("plain")

        found, data = by_python(delivery)
        assert found == expected, name
        if isinstance(event.payload, str):
            assert data == json.loads(event.payload), name
        if event.payload is not None:  # npm's SDK invents a content type if there is no data
            assert by_node(by_npm, event, True) == expected, name


def test_cloudevents_structured(sent):
    arrived = list(sent.of("structured", EVENTS))
    shown = read_by_node("cloudevents", [delivery for _, _, delivery, _ in arrived])
    for (name, event, delivery, expected), by_npm in zip(arrived, shown, strict=True):
        assert delivery.headers["content-type"] == "application/cloudevents+json; charset=utf-8", name
        assert not [header for header in delivery.headers if header.startswith("ce-") or header.startswith("ce_")], name
        document = delivery.json()
        data = {member: document.pop(member) for member in ("data", "data_base64") if member in document}
        assert document == expected, name
        if isinstance(event.payload, str):
            assert delivery.body.endswith(b'"data":' + text_of(sent.db, event) + b"}"), name
        else:
            assert data == ({} if event.payload is None else {"data_base64": base64.b64encode(event.payload).decode()}), name
        found, data = by_python(delivery)
        assert found == expected, name
        assert data == (json.loads(event.payload) if isinstance(event.payload, str) else event.payload), name
        assert by_node(by_npm, event, False) == expected, name


def test_line_breaks_in_a_type_are_refused(sent):
    for event_type in ("order\r\nEvil: 1", "order\n", "order\r"):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="must not contain a line break"):
            enqueue(sent.db, Event(event_type=event_type))


class Writing(Writers):
    """Enqueues events of seven keys until it is stopped."""

    def __init__(self, db: Database):
        super().__init__(1)
        self._db = db
        self.ids: list[str] = []

    def write(self, _: int) -> None:
        with self._db.connect() as connection:
            while not self.stopping.is_set():
                self.ids.append(str(connection.execute("SELECT outbox.enqueue('Order', %s::text, 'order.changed', '{}')",
                                                       [str(len(self.ids) % 7)]).fetchone()[0]))

    def go_on(self, count: int = 100) -> None:
        until = len(self.ids) + count
        wait_until(lambda: len(self.ids) > until, 20, "more events")


def either(delivery: Delivery) -> Status:
    """The response of a receiver that knows both secrets."""
    for secret in (SECRET, NEW_SECRET):
        try:
            Webhook(secret).verify(delivery.body, delivery.headers)
            return status(200)
        except WebhookVerificationError:
            continue
    return status(401)


def test_a_secret_is_rotated_under_traffic(rig, db):
    """Receivers with only the old secret, only the new one, or both: during the rotation each accepts every event."""
    old, new, both = rig.receiver(secret=SECRET), rig.receiver(secret=NEW_SECRET), rig.receiver(mode=either)

    def must_have(receiver: Receiver, events: list[str]) -> None:
        wait_until(lambda: set(events) <= {delivery.id for delivery in receiver.accepted()}, 20, "all events to be accepted")

    try:
        db.webhook_sink("knows_old", old, SECRET)
        db.webhook_sink("knows_both", both, SECRET)
        with Writing(db) as written:
            written.go_on()
            for sink in ("knows_old", "knows_both"):
                db.sql(f"ALTER USER MAPPING FOR PUBLIC SERVER {sink} OPTIONS (SET secret '{NEW_SECRET}, {SECRET}')")
            db.webhook_sink("knows_new", new, NEW_SECRET)
            db.sql(f"ALTER USER MAPPING FOR PUBLIC SERVER knows_new OPTIONS (SET secret '{NEW_SECRET}, {SECRET}')")
            begun = len(written.ids) + 1  # one event may be in flight, or already routed
            written.go_on()
            rotating = written.ids[begun:]
            must_have(old, rotating)
            must_have(new, rotating)
            db.sql("DROP SERVER knows_old CASCADE")
            for sink in ("knows_new", "knows_both"):
                db.sql(f"ALTER USER MAPPING FOR PUBLIC SERVER {sink} OPTIONS (SET secret '{NEW_SECRET}')")
            written.go_on()
        must_have(both, written.ids)
        must_have(new, written.ids[begun:])
        for receiver in (old, new, both):
            assert [delivery.id for delivery in receiver.deliveries if delivery.answered == 401] == []
        assert {len(delivery.headers["webhook-signature"].split(" ")) for delivery in both.deliveries} == {1, 2}
    finally:
        for receiver in (old, new, both):
            receiver.stop()


def test_a_retry_has_the_same_id_and_a_new_timestamp(db, receiver):
    receiver.mode = lambda delivery: status(500) if len(receiver.deliveries) == 1 else status(200)
    db.webhook_sink("crm", receiver, SECRET, retry="2s")
    event = db.enqueue("Order", "42")
    wait_until(receiver.accepted, 20, "the second attempt")
    first, second = receiver.deliveries
    assert first.id == second.id == event
    assert first.body == second.body
    assert int(second.headers["webhook-timestamp"]) > int(first.headers["webhook-timestamp"])
    assert first.verified and second.verified
    assert first.headers["webhook-signature"] != second.headers["webhook-signature"]

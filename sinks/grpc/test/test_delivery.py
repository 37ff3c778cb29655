"""Events arrive as calls, in order per key, as the preview says."""

import json
from collections import defaultdict

import psycopg
import pytest
from outbox_rig import wait_until

from stubs import sink_pb2


def sinks(db):
    return lambda: str(db.sql("SELECT * FROM outbox.sinks"))


def state_is(db, state: str, error: str = "", name: str = "grpc", seconds: float = 30) -> None:
    wait_until(lambda: db.sink("state", name) == (state,) and error in (db.sink("last_error", name)[0] or ""), seconds, sinks(db))


def many(db, n: int, keys: int, begin: int = 0) -> None:
    db.sql("SELECT outbox.enqueue('Order', (n %% %s::int)::text, 'order.made', jsonb_build_object('n', n)) FROM generate_series(%s::int, %s::int) AS n",
           keys, begin, begin + n - 1)


def numbers_by_key(calls) -> dict[str, list[int]]:
    found = defaultdict(list)
    for call in calls:
        found[call.event.key].append(json.loads(call.event.payload)["n"])
    return found


def first_deliveries_in_order(calls) -> int:
    """Asserts that each key's events came first in their order; returns the number of duplicates."""
    duplicates = 0
    for key, numbers in numbers_by_key(calls).items():
        first = list(dict.fromkeys(numbers))
        assert first == sorted(first), (key, numbers)
        duplicates += len(numbers) - len(first)
    return duplicates


def test_an_event_is_a_call(db, service):
    db.grpc_sink("grpc", service, {"token": "a-token", "headers": '{"x-key": "of-the-mapping"}'}, headers='{"x-tenant": "eu"}', timeout="5s")
    id = db.enqueue("Order", "7", "order.created", '{"a": "ä"}', headers='{"tenant": "eu", "traceparent": "00-1"}')
    [call] = service.wait_for(1)
    assert call.method == "/outbox.v1.Sink/Publish"
    event = call.event
    assert (event.id, event.aggregate_type, event.aggregate_id, event.key, event.event_type) == (id, "Order", "7", "7", "order.created")
    assert (event.payload.decode(), event.content_type, event.attempt) == ('{"a": "ä"}', "application/json", 1)
    assert dict(event.headers) == {"tenant": b"eu", "traceparent": b"00-1"} and not event.HasField("seq")
    assert abs(event.created_at.seconds - float(db.value("SELECT extract(epoch FROM now())"))) < 60
    expected = {"x-tenant": "eu", "x-key": "of-the-mapping", "authorization": "Bearer a-token", "outbox-id": id, "traceparent": "00-1", "user-agent": "outbox"}
    assert expected.items() <= call.metadata.items()
    assert 3 < call.deadline <= 5, "the timeout is the deadline"
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    assert db.sink("kind, target, state", "grpc") == ("grpc", service.url, "idle")


@pytest.mark.parametrize("code, trailers, told", [("OK", {"x-request-id": "r-7"}, "OK, x-request-id r-7"), ("ALREADY_EXISTS", {}, "ALREADY_EXISTS")])
def test_a_kept_event_tells_the_status_of_its_call(db, service, code, trailers, told):
    service.behave(code=code, trailers=trailers)
    db.grpc_sink("grpc", service, retention="1d")
    id = db.enqueue("Order", "7")
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    assert db.value("SELECT acknowledgement FROM outbox.events WHERE id = %s", id).startswith(told)


def test_the_preview_is_what_arrives(db, service):
    db.grpc_sink("grpc", service, {"token": "a-token"}, headers='{"x-tenant": "eu", "X-Type": "${event_type}"}')
    db.sql("SELECT outbox.pause('grpc')")
    id = db.enqueue("Order", "7", "order.created", '{"a": [1, 2.50, "ä"]}', headers='{"tenant": "eu", "tracestate": "a=1"}')
    preview = db.sql("SELECT part, name, value, bytes FROM outbox.preview(%s, 'grpc')", id)
    db.sql("SELECT outbox.resume('grpc')")
    [call] = service.wait_for(1)
    parts = {(part, name or ""): (value, bytes(data) if data is not None else None) for part, name, value, data in preview}
    assert parts[("message", "")][1] == call.message
    assert parts[("url", "")][0] == service.url and parts[("method", "")][0] == call.method
    metadata = {name: value for (part, name), (value, _) in parts.items() if part == "metadata"}
    assert "a-token" not in str(preview)
    hidden = ("authorization", "te", "content-type", "grpc-timeout")  # the first is masked, gRPC shows no application the others
    assert {name: value for name, value in metadata.items() if name not in hidden} == {name: value for name, value in call.metadata.items() if name not in hidden}
    assert metadata["authorization"] == "(Bearer ***)" and metadata["grpc-timeout"] == "15000m"


def test_metadata_with_variables(db, service):
    """It is of the event; without a value it is left out, and a value that cannot be sent is refused when it is enqueued."""
    db.grpc_sink("grpc", service, headers='{"X-Tenant": "${header.tenant}", "x-route": "${aggregate_type}/${event_type}", "x-api-key": "${header.key}"}')
    db.enqueue("Order", "1", "order.made", headers='{"tenant": "eu", "key": "k"}')
    db.enqueue("Order", "2", "order.paid")
    found = {call.event.key: {name: value for name, value in call.metadata.items() if name.startswith("x-")} for call in service.wait_for(2)}
    assert found == {"1": {"x-tenant": "eu", "x-route": "Order/order.made", "x-api-key": "k"}, "2": {"x-route": "Order/order.paid"}}
    with pytest.raises(psycopg.Error, match='unknown variable "tenant"'):
        db.sql("ALTER SERVER grpc OPTIONS (SET headers '{\"x-tenant\": \"${tenant}\"}')")
    with pytest.raises(psycopg.Error, match='"Traceparent" is the event.s header') as refused:
        db.sql("ALTER SERVER grpc OPTIONS (SET headers '{\"Traceparent\": \"00-1\"}')")
    assert "give the header to outbox.enqueue()" in refused.value.diag.message_hint
    with pytest.raises(psycopg.Error, match='metadata "x-tenant" has other characters than printable ASCII'):
        db.enqueue("Order", "3", "order.made", headers='{"tenant": "Köln"}')
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events WHERE status IS DISTINCT FROM 'SENT'") == 0, 10, "the recording")


def test_our_bytes_are_those_of_protoc(db, service):
    """A repeated encoding by Google's library gives the same bytes, so no field is written in an unusual way."""
    db.grpc_sink("grpc", service)
    db.sql("SELECT outbox.enqueue_bytes('Order', '1', 'order.raw', '\\x00ff', 'application/avro', headers => '{\"a\": \"\"}')")
    db.sql("SELECT outbox.enqueue('Order', '3', 'order.gone', NULL, partition_key => '')")
    db.sql("SELECT outbox.enqueue('Order', '2', 'order.large', jsonb_build_object('x', repeat('y', 100000)))")
    for call in service.wait_for(3):
        assert call.event.SerializeToString(deterministic=True) == call.message
    by_type = {call.event.event_type: call.event for call in service.calls}
    assert by_type["order.raw"].payload == b"\0\xff" and by_type["order.raw"].content_type == "application/avro"
    assert not by_type["order.gone"].HasField("payload") and not by_type["order.gone"].HasField("seq")


def test_a_thousand_keys_in_order(db, tls_service, tls_sink):
    tls_sink(tls_service, concurrency="50")
    many(db, 5000, 1000)
    found = numbers_by_key(tls_service.wait_for(5000))
    assert len(found) == 1000
    for key, numbers in found.items():
        assert numbers == [n for n in range(5000) if str(n % 1000) == key]
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    assert len(tls_service.read()) == 5000, "no event arrives twice without a fault"
    assert len({call.peer for call in tls_service.calls}) <= 2, "calls share a connection"


def test_payload_bytes_are_the_message(db, service):
    db.grpc_sink("grpc", service, format="payload_bytes", method="/shop.v1.Orders/Put")
    message = sink_pb2.Event(id="x", event_type="anything").SerializeToString()
    db.sql("SELECT outbox.enqueue_bytes('Order', '1', 'order.made', %s, 'application/x-protobuf')", message)
    with pytest.raises(psycopg.Error, match="event has no payload_bytes"):
        db.enqueue("Order", "1")
    [call] = service.wait_for(1)
    assert (call.method, call.message) == ("/shop.v1.Orders/Put", message)
    assert [ok for _, ok in db.sql("SELECT step, ok FROM outbox.probe('grpc', send => true)")] == [True] * 4


def test_a_large_message(make_service, db):
    service = make_service(max_receive_message_length=12_000_000)
    db.grpc_sink("grpc", service, max_message="10000000")
    db.sql("SELECT outbox.enqueue('Order', '1', 'order.large', jsonb_build_object('x', repeat('y', 9000000)))")
    [call] = service.wait_for(1)
    assert len(call.event.payload) > 9_000_000
    with pytest.raises(psycopg.Error, match="event is too large for a gRPC message"):
        db.sql("SELECT outbox.enqueue('Order', '1', 'order.large', jsonb_build_object('x', repeat('y', 10000000)))")

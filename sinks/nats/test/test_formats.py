"""The formats of a message, and that a preview shows the bytes that are published."""

import json

import pytest
from outbox_rig import wait_until

from streams import Stream

EVENT = {"headers": '{"tenant": "eu", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}'}


def deliver(db, server, name, **options):
    """One event: its id, and the message, which is what the preview shows."""
    stream = Stream(server, name)
    db.nats_sink("nats", server, subject=f"{name}.${{event_type}}", **options)
    db.sql("SELECT outbox.pause('nats')")
    id = db.enqueue("Order", "7 %ä", "order.created", '{"a": [1, 2.50, "ä"]}', **EVENT)
    preview = db.sql("SELECT part, name, value FROM outbox.preview(%s, 'nats')", id)
    db.sql("SELECT outbox.resume('nats')")
    [message] = stream.read(1)
    shown = [("subject", None, message.subject), *(("header", name, value) for name, value in message.headers.items()), ("body", None, message.body.decode())]
    assert [(part, name or None, value) for part, name, value in preview] == shown
    assert message.id == id and message.headers.pop("Nats-Msg-Id")[:37] == id + "-"
    return id, message


def test_debezium(db, server, name):
    id, message = deliver(db, server, name, additional_placement="event_type:header:eventType")
    assert message.body.decode() == '{"a": [1, 2.50, "ä"]}'
    assert message.headers == {"id": id, "eventType": "order.created"} | json.loads(EVENT["headers"])


def test_debezium_compact(db, server, name):
    _, message = deliver(db, server, name, value_format="json_compact", additional_placement="event_type:envelope")
    assert json.loads(message.body) == {"payload": {"a": [1, 2.5, "ä"]}, "event_type": "order.created"} and b" " not in message.body


def test_raw(db, server, name):
    id, message = deliver(db, server, name, format="raw")
    assert message.body.decode() == '{"a": [1, 2.50, "ä"]}' and message.headers["id"] == id


def test_cloudevents(db, server, name):
    """The names and the encoding of CloudEvents' NATS binding."""
    id, message = deliver(db, server, name, format="cloudevents")
    assert message.body.decode() == '{"a": [1, 2.50, "ä"]}'
    headers = message.headers
    assert headers["ce-id"] == id and headers["ce-specversion"] == "1.0" and headers["ce-type"] == "order.created"
    assert headers["ce-source"] == f"/outbox/{db.name}/Order" and headers["ce-subject"] == "7%20%25%C3%A4"
    assert headers["ce-datacontenttype"] == "application/json"
    assert headers["tenant"] == "eu" and not any(name.startswith("ce_") or name == "content-type" for name in headers)


def test_cloudevents_structured(db, server, name):
    id, message = deliver(db, server, name, format="cloudevents-structured", source="/shop")
    assert message.headers["content-type"] == "application/cloudevents+json; charset=UTF-8"
    event = json.loads(message.body)
    assert (event["id"], event["source"], event["data"]) == (id, "/shop", {"a": [1, 2.5, "ä"]})
    assert message.headers["tenant"] == "eu"


def test_bytes_and_no_payload(db, server, name):
    stream = Stream(server, name)
    db.nats_sink("nats", server, subject=f"{name}.x", tombstone_on_empty_payload="true", format="raw")
    db.sql("SELECT outbox.enqueue_bytes('Order', '1', 'order.raw', '\\x00ff0d0a', 'application/avro')")
    db.sql("SELECT outbox.enqueue('Order', '1', 'order.gone', NULL)")
    first, second = stream.read(2)
    assert first.body == b"\0\xff\r\n" and first.headers["content-type"] == "application/avro"
    assert second.body == b"" and "content-type" not in second.headers


def test_a_large_body(db, make_server, name):
    server = make_server(config="max_payload: 8388608")
    stream = Stream(server, name)
    db.nats_sink("nats", server, subject=f"{name}.x", max_message="8388608")
    text = json.dumps("x" * 7_000_000)
    db.enqueue("Order", "1", "order.large", text)
    db.enqueue("Order", "1", "order.small", "1")
    first, second = stream.read(2)
    assert first.body.decode() == text and second.body == b"1"


@pytest.mark.parametrize("options, message", [
    ("subject 'e'", 'option "hosts" is required'),
    ("hosts 'nats://a'", "host or host:port, without a scheme"),
    ("hosts 'a:0'", "Example: 'first.example, second.example"),
    ("hosts 'a', subject 'event_type'", "write ${event_type}"),
    ("hosts 'a', subject '${event_typ}'", "Perhaps you meant ${event_type}"),
    ("hosts 'a', subject 'orders.*'", "wildcards of subscriptions"),
    ("hosts 'a', subject 'orders.>'", "wildcards of subscriptions"),
    ("hosts 'a', subject 'orders of ${event_type}'", "has no blanks"),
    ("hosts 'a', subject 'orders..${event_type}'", "nothing before, between or after its dots"),
    ("hosts 'a', subject '$JS.API.STREAM.DELETE.${event_type}'", "are those of the server"),
    ("hosts 'a', subject ''", "It is empty"),
    ("hosts 'a', stream 'a.b'", "name of a stream"),
    ("hosts 'a', inbox_prefix 'a.>'", "beginning of a subject"),
    ("hosts 'a', heartbeat '0'", "Expected a duration from 1s to 1h"),
    ("hosts 'a', connect_timeout '1d'", "Expected a duration from 100ms to 5min"),
    ("hosts 'a', max_in_flight '0'", "from 1 to 50000"),
    ("hosts 'a', max_message '1'", "from 1kB"),
    ("hosts 'a', ssl_ca_pem 'x'", "ssl_ca_pem"),
    ("hosts 'a', enable_ssl_certificate_verification 'false'", "set tls 'true'"),
    ("hosts 'a', additional_placement 'aggregate_id:partition'", "a message has no partition"),
    ("hosts 'a', additional_placement 'event_type:header:Nats-Rollup'", "takes headers that begin with Nats- as instructions"),
    ("hosts 'a', additional_placement 'event_type:header:a b'", "printable ASCII without blanks"),
    ("hosts 'a', format 'cloudevents', additional_placement 'event_type:header:ce-id'", "are attributes of the CloudEvent"),
    ("hosts 'a', format 'avro'", "Expected one of: debezium, cloudevents"),
    ("hosts 'a', token 'x'", "is a secret and cannot be an option of the server"),
    ("hosts 'a', sbject 'x'", 'Perhaps you meant the option "subject"'),
])
def test_options_are_checked(db, options, message):
    db.refuses(f"CREATE SERVER bad FOREIGN DATA WRAPPER outbox_nats OPTIONS ({options})", message)


@pytest.mark.parametrize("options, message", [
    ("user 'u'", 'option "password" is required with "user"'),
    ("password 'secret'", 'option "user" is required'),
    ("user 'u', password 'secret', token 'other'", '"user" and "token" are both given'),
    ("token ''", "It is empty"),
    ("credentials 'SU-secret'", "Expected the seed of an nkey"),
    ("credentials 'SAANWZ2WFLZR3ZSTN5RJTAYVDYCVPM4HZ4JYAZTDHJHGOEPLGQWHYXGZ6A'", "begins with SU"),
    ("credentials 'secret'", "Expected the content of a .creds file"),
    ("hosts 'a'", "belongs to the server"),
    ("ssl_certificate_pem 'x'", "ssl_certificate_pem"),
])
def test_options_of_mappings_are_checked(db, options, message):
    db.sql("CREATE SERVER good FOREIGN DATA WRAPPER outbox_nats OPTIONS (hosts '127.0.0.1:1')")
    db.refuses(f"CREATE USER MAPPING FOR PUBLIC SERVER good OPTIONS ({options})", message)
    db.sql("DROP SERVER good")


@pytest.mark.parametrize("event_type, payload, headers, parts", [
    ("made", "1", {}, ["event has no value for ${header.route}"]),
    ("made", "1", {"route": ""}, ["is no subject", "nothing before, between or after its dots"]),
    ("made", "1", {"route": "a b"}, ["is no subject", "has no blanks", "what the event has for it"]),
    ("made", "1", {"route": "*"}, ["is no subject", "wildcards"]),
    (".made", "1", {"route": "a"}, ["is no subject", "its dots"]),
    ("made", "1", {"route": "a" * 1200}, ["is no subject", "at most 1024"]),
    ("made", "x" * 2000, {"route": "a"}, ["too large for a NATS message", "at most 1024 are allowed"]),
    ("made", "1", {"route": "a", "Nats-Expected-Last-Sequence": "1"}, ["cannot be sent to NATS", "as instructions"]),
    ("made", "1", {"route": "a", "nats-rollup": "all"}, ["cannot be sent to NATS", "as instructions"]),
    ("made", "1", {"route": "a", "colon:x": "1"}, ["cannot be sent to NATS", "without blanks and colons"]),
    ("made", "1", {"route": "a", "ä": "1"}, ["cannot be sent to NATS", "printable ASCII"]),
    ("made", "1", {"route": "a", "x": " 1"}, ["cannot be sent to NATS", "begins or ends with a blank"]),
    ("made", "1", {"route": "a", "x": "1\nNats-Rollup: all"}, ["line break"]),
    ("made", "1", {"route": "a", "x": "y" * 66000}, ["headers of the event are too large", "65535"]),
    ("made", None, {"route": "a"}, ["payload is NULL"]),
])
def test_events_are_checked(db, server, event_type, payload, headers, parts):
    db.nats_sink("nats", server, subject="a.${header.route}.${event_type}", max_message="1024")
    db.refuses("SELECT outbox.enqueue('Order', '1', %s, %s::jsonb, headers => %s)", *parts,
            args=(event_type, None if payload is None else json.dumps(payload), json.dumps(headers)))
    assert db.value("SELECT count(*) FROM outbox.events") == 0


@pytest.mark.parametrize("format", ["debezium", "raw"])
@pytest.mark.parametrize("end", ["\r\n", "\n", "\r"])
def test_a_column_forges_no_header(db, server, name, format, end):
    """Nats-Rollup deletes all earlier messages of a stream that allows it."""
    stream = Stream(server, name, allow_rollup_hdrs=True)
    db.nats_sink("nats", server, subject=f"{name}.${{event_type}}", format=format)
    for n in range(3):
        db.enqueue("Order", str(n))
    stream.read(3)
    db.sql("SELECT outbox.pause('nats')")
    before = db.enqueue("Order", f"x{end}Nats-Rollup: all")
    db.sql("ALTER SERVER nats OPTIONS (ADD additional_placement 'aggregate_id:header:order-id')")
    db.refuses("SELECT outbox.enqueue('Order', %s, 'order.made', '{}')", 'value of header "order-id" contains a line break', args=(f"x{end}Nats-Rollup: all",))
    db.sql("SELECT outbox.resume('nats')")
    wait_until(lambda: db.pending() == 0, 30)
    assert db.sql("SELECT id::text FROM outbox.events WHERE status = 'FAILED' AND last_error LIKE '%%contains a line break%%'") == [(before,)]
    assert stream.count() == 3


def test_any_owner_names_hosts_as_of_a_kafka_sink(db):
    db.sql("CREATE ROLE maker; GRANT USAGE ON FOREIGN DATA WRAPPER outbox_nats TO maker; SET ROLE maker")
    db.sql("CREATE SERVER own FOREIGN DATA WRAPPER outbox_nats OPTIONS (hosts '127.0.0.1:1')")
    db.sql("RESET ROLE; DROP SERVER own; DROP OWNED BY maker; DROP ROLE maker")

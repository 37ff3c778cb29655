"""The recipes of docs/webhooks.md and docs/kafka.md, sent to an endpoint and a broker. What arrives has the fields and types that the peer
documents. (The recipes for RabbitMQ are tested in sinks/rabbitmq/test.)"""

import base64
import json
import os
import re
import subprocess
import uuid

import jsonschema
import psycopg
import pytest
from outbox_rig import patient, wait_until
from outbox_rig.paths import ROOT, pg_config
from outbox_rig.receiver import SECRET, Delivery, Receiver, Status, status

from page import chapters

PAGES = (ROOT / "docs/webhooks.md", ROOT / "docs/kafka.md")
TEXT = {"type": "string", "minLength": 1}


def fields(required: dict, optional: dict = {}) -> dict:
    """The schema of an object with these fields and no others."""
    return {"type": "object", "properties": required | optional, "required": list(required), "additionalProperties": False}


# sink: (the peer's body, its answer)
PEERS: dict[str, tuple[dict, Status]] = {
    # https://api.slack.com/messaging/webhooks
    "slack": (fields({"text": TEXT}, {"blocks": {"type": "array"}}), Status(200, body=b"ok")),
    # https://docs.github.com/en/rest/repos/repos#create-a-repository-dispatch-event
    "github": (fields({"event_type": TEXT | {"maxLength": 100}, "client_payload": {"type": "object", "maxProperties": 10}}), Status(204)),
    # https://developers.cloudflare.com/api/resources/queues/subresources/messages/methods/push/
    "queue": (fields({"body": {"type": "object"}, "content_type": {"const": "json"}}, {"delay_seconds": {"type": "number"}}),
              Status(200, body=b'{"success":true,"errors":[],"messages":[]}')),
    # https://cloud.google.com/pubsub/docs/reference/rest/v1/projects.topics/publish and .../v1/PubsubMessage
    "pubsub": (fields({"messages": {"type": "array", "minItems": 1, "items": fields({
        "data": TEXT, "attributes": {"type": "object", "additionalProperties": {"type": "string"}}}, {"orderingKey": {"type": "string"}})}}),
               Status(200, body=b'{"messageIds":["19916711285"]}')),
}


def recipe(sink: str) -> str:
    [step] = [step for page in PAGES for chapter in chapters(page) for step in chapter if step.step == sink]
    return step.sql


def at(receiver: Receiver, sql: str) -> str:
    """With this endpoint instead of the peer's."""
    sql, n = re.subn(r"https://[\w.-]+(?=/)", f"http://{receiver.address}:{receiver.port}", sql)
    assert n == 1
    return sql.replace("OPTIONS (\n", "OPTIONS (allow_http 'true', allow_networks '127.0.0.0/8',\n", 1)


@pytest.fixture
def endpoint(rig):
    """endpoint(answer)"""
    receivers = []

    def start(answer) -> Receiver:
        receivers.append(rig.receiver(mode=answer))
        return receivers[-1]

    yield start
    for receiver in receivers:
        receiver.stop()


def deliver(db, endpoint, sink: str) -> Delivery:
    receiver = endpoint(PEERS[sink][1])
    db.paste(at(receiver, recipe(sink)))
    wait_until(lambda: db.pending() == 0, 30, lambda: str(db.sql("SELECT state, last_error FROM outbox.sinks")))
    [delivery] = receiver.accepted()
    return delivery


@pytest.mark.parametrize("sink", PEERS)
def test_the_peer_gets_what_it_documents(db, endpoint, sink):
    sql, (schema, _) = recipe(sink), PEERS[sink]
    delivery = deliver(db, endpoint, sink)
    jsonschema.validate(delivery.json(), schema)

    [url] = re.findall(r"https://[\w.-]+(/[^']*)'", sql)
    assert delivery.path == url
    secret = re.search(r"\btoken '(.*?)'", sql)
    assert delivery.headers.get("authorization") == (f"Bearer {secret[1]}" if secret else None)


def test_githubs_headers(db, endpoint):
    headers = deliver(db, endpoint, "github").headers
    assert headers["accept"] == "application/vnd.github+json" and headers["content-type"] == "application/json" and headers["user-agent"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", headers["x-github-api-version"])


def test_pubsubs_data_is_the_payload_in_base64(db, endpoint):
    [message] = deliver(db, endpoint, "pubsub").json()["messages"]
    assert base64.b64decode(message["data"], validate=True) == b'{"total": 99.50}'
    uuid.UUID(message["attributes"]["id"])
    assert message["attributes"]["type"] == "order.paid" and message["orderingKey"] == "42"


def test_slacks_blocks_are_the_payload(db, endpoint):
    """The page's sentence about blocks."""
    receiver = endpoint(PEERS["slack"][1])
    db.webhook_sink("slack", receiver, format="raw", events="none")
    message = {"text": "Order 42", "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "*Order 42*"}}]}
    db.enqueue("Order", "42", "order.paid", json.dumps(message), sink="slack")
    [delivery] = wait_until(receiver.accepted, 30)
    jsonschema.validate(delivery.json(), PEERS["slack"][0])
    assert delivery.json() == message


def test_a_renewed_token_ends_the_401s(db, endpoint, tmp_path):
    """The page's script, with a gcloud that prints a token."""
    receiver = endpoint(lambda delivery: PEERS["pubsub"][1] if delivery.headers["authorization"] == "Bearer ya29.new" else status(401))
    db.paste(at(receiver, recipe("pubsub")))
    for key in "abc":
        db.sql("SELECT outbox.enqueue_bytes('Order', %s::text, 'order.paid', '1', 'application/json')", key)
    wait_until(lambda: "circuit" in db.sink("state", "pubsub")[0], 30, lambda: str(db.sink("state, last_error", "pubsub")))

    [script] = re.findall(r"<!-- renew -->\n```sh\n(.*?)```", (ROOT / "docs/webhooks.md").read_text(), re.DOTALL)
    (tmp_path / "gcloud").write_text('#!/bin/sh\n[ "$*" = "auth print-access-token" ] && echo ya29.new\n')
    (tmp_path / "gcloud").chmod(0o755)
    settings = psycopg.conninfo.conninfo_to_dict(db.dsn)
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE"}
    subprocess.run(["bash", "-euc", script], check=True, timeout=patient(60),
                   env=os.environ | {names[key]: str(value) for key, value in settings.items() if key in names}
                   | {"PATH": f"{tmp_path}:{pg_config('bindir')}:{os.environ['PATH']}"})
    wait_until(lambda: db.pending() == 0, 20, lambda: str(db.sink("state, last_error", "pubsub")))
    assert db.value("SELECT count(*) FROM outbox.events WHERE status = 'FAILED'") == 0 and len(receiver.accepted()) == 4


def record(db, kafka, consume, sink: str, topic: str):
    consumer = consume(topic)
    db.paste(recipe(sink).replace("localhost:9092", kafka.bootstrap))
    [record] = consumer.take(1)
    return record


def test_masstransits_rider_gets_plain_json_and_a_message_id(db, kafka, consume):
    """https://masstransit.io/documentation/configuration/transports/kafka; the rider parses the id as a Guid."""
    found = record(db, kafka, consume, "rider", "orders-paid")
    assert json.loads(found.value) == {"orderId": 42, "total": 99.5} and found.key == "42"
    headers = dict(found.headers)
    uuid.UUID(headers.pop("MessageId").decode())
    assert headers == {}


def test_a_consumer_can_hand_records_to_nservicebus(db, kafka, consume):
    """https://docs.particular.net/nservicebus/messaging/headers: those that an endpoint needs, as texts."""
    found = record(db, kafka, consume, "nservicebus_kafka", "orders-nservicebus")
    assert json.loads(found.value) == {"OrderId": 42, "Total": 99.5} and found.key == "42"
    headers = {name: value.decode() for name, value in found.headers}
    uuid.UUID(headers.pop("NServiceBus.MessageId"))
    assert headers == {"NServiceBus.EnclosedMessageTypes": "Shop.Contracts.OrderPaid", "NServiceBus.ContentType": "application/json",
                       "NServiceBus.MessageIntent": "Publish"}


def test_openoutbox_writers_and_readers_need_no_change(db, kafka, consume):
    """https://open-outbox.dev/concepts/table-schema and the relay's internal/publishers/kafka.go: topic event_type, key partition_key, and
    the header X-Event-ID beside the event's own."""
    db.sql("DROP ROLE IF EXISTS app; CREATE ROLE app")
    found = record(db, kafka, consume, "relay", "order.placed")
    assert (found.key, found.value, {name: value.decode() for name, value in found.headers}) == (
        "42", b'{"total": 99.50}', {"trace_id": "4bf92f35", "X-Event-ID": "6f1c1b0e-6c1d-4a53-9f52-0f6f8f4b2a11"})

    columns = [name for name, in db.sql("SELECT attname FROM pg_attribute WHERE attrelid = 'openoutbox_events'::regclass ORDER BY attnum")]
    assert columns[:-1] == ["event_id", "event_type", "partition_key", "payload", "headers", "status", "attempts", "last_error", "available_at",
                            "locked_by", "locked_at", "delivered_at", "created_at", "updated_at"]
    db.sql("SET ROLE app")  # what the relay's own examples insert, with the rights of the page
    db.sql("INSERT INTO openoutbox_events (event_id, event_type, payload, partition_key) VALUES (gen_random_uuid(), 'openoutbox.demo', '{\"id\": 123}', '123')")
    db.sql("INSERT INTO openoutbox_events (event_id, event_type, payload, status, available_at) VALUES (gen_random_uuid(), 'openoutbox.later', 'x', 'PENDING', 'infinity')")
    db.sql("RESET ROLE")
    assert db.sql("SELECT status, attempts, locked_by FROM openoutbox_events WHERE event_type = 'openoutbox.later'") == [("PENDING", 0, None)]
    with consume("openoutbox.demo") as consumer:
        [demo] = consumer.take(1)
    assert (demo.key, demo.value) == ("123", b'{"id": 123}')
    db.sql("DROP OWNED BY app; DROP ROLE app")


def test_each_customer_gets_its_own_events(db, endpoint):
    """The loop of docs/webhooks.md, and the event above it."""
    [section] = re.findall(r"^## An endpoint for each customer\n(.*?)^## ", (ROOT / "docs/webhooks.md").read_text(), re.MULTILINE | re.DOTALL)
    enqueue, loop = re.findall(r"^(SELECT outbox\.enqueue.*?;|DO \$\$.*?^END \$\$;)$", section, re.MULTILINE | re.DOTALL)
    receivers = {id: endpoint(Status(200)) for id in (42, 43)}
    db.sql("CREATE TABLE customers (id int, hook_url text, hook_secret text); INSERT INTO customers VALUES (44, NULL, NULL)")
    for id, receiver in receivers.items():
        db.sql("INSERT INTO customers VALUES (%s, %s, %s)", id, receiver.url, SECRET)
    assert loop.count("OPTIONS (url %L") == 1
    db.paste(loop.replace("OPTIONS (url %L", "OPTIONS (allow_http ''true'', allow_networks ''127.0.0.0/8'', url %L"))
    assert db.sql("SELECT name FROM outbox.sinks ORDER BY name") == [("customer_42",), ("customer_43",)]
    for id in (42, 43, 44):
        assert enqueue.count("42") == 1
        db.paste(enqueue.replace("42", str(id)).replace("99.50", str(id)))
    nobody_takes = [(None, {"tenant": "44"})]
    wait_until(lambda: db.sql("SELECT sink, headers FROM outbox.events_pending") == nobody_takes, 30, lambda: str(db.sql("SELECT state, last_error FROM outbox.sinks")))
    for id, receiver in receivers.items():
        [delivery] = receiver.accepted()
        assert (delivery.json()["type"], delivery.json()["data"]) == ("invoice.sent", {"total": id})

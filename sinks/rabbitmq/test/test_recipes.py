"""The recipes of the page: what arrives has the fields and types that MassTransit and NServiceBus document."""

import json
import re
import sys
import uuid
from datetime import datetime
from pathlib import Path

import jsonschema
from outbox_rig import wait_until
from outbox_rig.paths import ROOT

from queues import Queue

sys.path.append(str(ROOT / "test/docs"))

from page import Step, chapters, follow  # noqa: E402

PAGE = Path(__file__).parents[1] / "README.md"
UUID = {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}
TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"}
ADDRESS = {"type": "string", "pattern": "^rabbitmq://"}
TEXT = {"type": "string", "minLength": 1}
# https://masstransit.io/documentation/configuration/serialization#message-envelope: the example, and the table of properties
ENVELOPE = {
    "type": "object", "additionalProperties": False, "required": ["messageId", "messageType", "message", "sentTime", "headers", "host"],
    "properties": {
        **dict.fromkeys(("messageId", "correlationId", "requestId", "initiatorId", "conversationId"), UUID),
        **dict.fromkeys(("sourceAddress", "destinationAddress", "responseAddress", "faultAddress"), ADDRESS),
        **dict.fromkeys(("expirationTime", "sentTime"), TIME),
        "messageType": {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": r"^urn:message:[\w.]+:[\w+]+$"}},
        "message": {"type": "object"}, "headers": {"type": "object"},
        "host": {"type": "object", "additionalProperties": False, "properties": {"processId": {"type": "integer"}} | dict.fromkeys(
            ("machineName", "processName", "assembly", "assemblyVersion", "frameworkVersion", "massTransitVersion", "operatingSystemVersion"), TEXT)},
    },
}
# https://docs.particular.net/nservicebus/messaging/headers
NSERVICEBUS = {
    "type": "object", "additionalProperties": False,
    "required": ["NServiceBus.MessageId", "NServiceBus.EnclosedMessageTypes", "NServiceBus.ContentType", "NServiceBus.MessageIntent"],
    "properties": {
        "NServiceBus.MessageId": UUID, "NServiceBus.EnclosedMessageTypes": {"type": "string", "pattern": r"^[\w.+]+$"},
        "NServiceBus.ContentType": {"const": "application/json"}, "NServiceBus.MessageIntent": {"enum": ["Send", "Publish", "Reply"]},
        "NServiceBus.TimeSent": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{6} Z$"},
    },
}


def recipe(name: str, broker) -> Step:
    """With this broker."""
    [step] = [step for chapter in chapters(PAGE) for step in chapter if step.step == name]
    return Step(step.line, step.sql.replace("localhost:5672", f"127.0.0.1:{broker.port}"))


def arrived(db, broker, name: str, tmp_path: Path) -> tuple:
    """Returns the messages of a consumer's queue, which is bound as the framework binds it: (method, properties, body)."""
    queue = Queue(broker, "Shop.Contracts:OrderPaid", name=f"{name}-service", kind="fanout")
    follow([recipe(name, broker)], db.dsn, tmp_path, PAGE)
    [message] = queue.read(1)
    wait_until(lambda: db.pending() == 0, 30, "the event to be recorded as delivered")
    return message


def test_masstransit(db, broker, tmp_path):
    method, properties, body = arrived(db, broker, "masstransit", tmp_path)
    envelope = json.loads(body)
    jsonschema.validate(envelope, ENVELOPE)
    assert properties.content_type == "application/vnd.masstransit+json" and method.exchange == "Shop.Contracts:OrderPaid"
    assert envelope["messageId"] == properties.message_id == properties.headers["id"]
    assert envelope["messageType"] == ["urn:message:Shop.Contracts:OrderPaid"]
    assert envelope["message"] == {"orderId": 42, "total": 99.5} and b"99.50" in body
    assert envelope["headers"] == {"tenant": "eu"} and properties.headers["tenant"] == "eu"
    assert abs((datetime.fromisoformat(envelope["sentTime"]) - datetime.now().astimezone()).total_seconds()) < 300


def test_masstransits_raw_json(db, broker, exchange):
    """The page's sentence about endpoints with UseRawJsonDeserializer()."""
    queue = Queue(broker, exchange, kind="fanout")
    [placed] = re.findall(r"UseRawJsonDeserializer.*?`additional_placement\s+'([^']*)'`", PAGE.read_text(), re.DOTALL)
    db.rabbit_sink("masstransit", broker, exchange=exchange, format="raw", additional_placement=placed)
    id = db.enqueue("Order", "42", "OrderPaid", '{"orderId": 42}')
    [(_, properties, body)] = queue.read(1)
    assert (properties.content_type, json.loads(body), properties.headers) == ("application/json", {"orderId": 42}, {"MessageId": id})


def test_nservicebus(db, broker, tmp_path):
    method, properties, body = arrived(db, broker, "nservicebus", tmp_path)
    headers = properties.headers
    jsonschema.validate(headers, NSERVICEBUS)
    assert method.exchange == "Shop.Contracts:OrderPaid" and headers["NServiceBus.EnclosedMessageTypes"] == "Shop.Contracts.OrderPaid"
    assert properties.message_id == headers["NServiceBus.MessageId"] == str(uuid.UUID(properties.message_id))
    assert properties.content_type == headers["NServiceBus.ContentType"]
    assert json.loads(body) == {"OrderId": 42, "Total": 99.5}
    sent = datetime.strptime(headers["NServiceBus.TimeSent"].replace(" Z", "+0000"), "%Y-%m-%d %H:%M:%S:%f%z")
    assert abs((sent - datetime.now().astimezone()).total_seconds()) < 300


def test_nservicebus_with_the_direct_topology(db, broker, tmp_path):
    """The options that the page names for it."""
    [options] = re.findall(r"`exchange 'amq.topic',\s+routing_key\s+'([^']*)'`", PAGE.read_text())
    queue = Queue(broker, "amq.topic", name="direct-service", key="Shop.Contracts.OrderPaid", declare=False)
    sql = recipe("nservicebus", broker).sql
    db.paste(sql.replace("exchange '${event_type}'", f"exchange 'amq.topic', routing_key '{options}'"))
    [(method, _, _)] = queue.read(1)
    assert method.routing_key == "Shop.Contracts.OrderPaid"

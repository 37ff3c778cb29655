"""The formats of a message, what is refused, and that a preview and the requests are the same bytes."""

import json

import psycopg
import pytest
from outbox_rig import wait_until

from front import error


def send_one(db, moto, front, name, kind="queue", **options):
    """One event: its id, and the request, whose bytes are those of the preview."""
    queue = moto.queue(name)
    target = {"queue": lambda: {"target": queue.url}, "topic": lambda: {"target": moto.topic(name, queue)}, "bus": lambda: {"target": moto.bus(name, queue)}}[kind]()
    db.aws_sink("aws", front.url, **target, **options)
    db.sql("SELECT outbox.pause('aws')")
    id = db.enqueue("Order", "7", "order.created", '{"a": [1, 2.50, "ä"]}', headers='{"tenant": "eu"}')
    preview = {(part, part_name or ""): value for part, part_name, value in db.sql("SELECT part, name, value FROM outbox.preview(%s, 'aws')", id)}
    db.sql("SELECT outbox.resume('aws')")
    queue.read(1)
    [request] = front.sends()
    assert preview.pop(("body", "")) == request.body.decode() and preview.pop(("method", "")) == "POST"
    assert preview.pop(("url", "")) == front.url + request.path
    assert preview.pop(("header", "authorization")).startswith("(AWS4") and preview.pop(("header", "x-amz-date")).startswith("(the time")
    for (part, header), value in preview.items():
        assert part == "header" and request.headers[header] == value
    return id, request


def test_debezium(db, moto, front, name):
    id, request = send_one(db, moto, front, name)
    [entry] = request.json["Entries"]
    assert entry["MessageBody"] == '{"a": [1, 2.50, "ä"]}'
    assert entry["MessageAttributes"] == {"id": {"DataType": "String", "StringValue": id}, "tenant": {"DataType": "String", "StringValue": "eu"}}
    assert entry["MessageGroupId"] == "7" and "MessageDeduplicationId" not in entry, "the group of a fair queue"


def test_an_envelope_for_a_bus(db, moto, front, name):
    id, request = send_one(db, moto, front, name, "bus", value_format="json_compact", additional_placement="id:envelope, header.tenant:envelope", detail_type="${aggregate_type}")
    [entry] = request.json["Entries"]
    assert json.loads(entry["Detail"]) == {"payload": {"a": [1, 2.5, "ä"]}, "id": id, "tenant": "eu"}
    assert (entry["Source"], entry["DetailType"], entry["EventBusName"].partition("/")[2], entry["Resources"]) == ("outbox.Order", "Order", name, [f"urn:uuid:{id}"])


def test_raw_for_a_topic(db, moto, front, name):
    id, request = send_one(db, moto, front, name, "topic", format="raw", subject="Hello")
    form = request.form
    prefix = "PublishBatchRequestEntries.member.1."
    assert form[prefix + "Message"] == '{"a": [1, 2.50, "ä"]}' and form[prefix + "Subject"] == "Hello"
    assert form[prefix + "MessageAttributes.entry.1.Name"] == "id" and form[prefix + "MessageAttributes.entry.1.Value.StringValue"] == id


@pytest.mark.parametrize("kind", ["queue", "bus"])
def test_cloudevents_structured(db, moto, front, name, kind):
    id, request = send_one(db, moto, front, name, kind, format="cloudevents-structured", source="/shop")
    [entry] = request.json["Entries"]
    event = json.loads(entry["Detail" if kind == "bus" else "MessageBody"])
    assert (event["id"], event["source"], event["data"]) == (id, "/shop", {"a": [1, 2.5, "ä"]})
    assert kind == "queue" or entry["Source"] == "/shop"


QUEUE = "target 'https://sqs.eu-central-1.amazonaws.com/123456789012/orders'"
TOPIC = "target 'arn:aws:sns:eu-central-1:123456789012:orders'"
BUS = "target 'arn:aws:events:eu-central-1:123456789012:event-bus/default'"


@pytest.mark.parametrize("options, message", [
    ("aws_region 'eu-central-1'", 'option "target" is required'),
    ("target 'orders'", "Expected the URL of a queue, or the ARN of a topic or of an event bus"),
    ("target 'https://user:pass@sqs.eu-central-1.amazonaws.com/1/q'", "Expected the URL of a queue"),
    ("target 'https://sqs.eu-central-1.amazonaws.com/123456789012/'", "name of a queue"),
    ("target 'https://sqs.eu-central-1.amazonaws.com/123456789012/a.b'", "name of a queue"),
    ("target 'https://sqs.eu-central-1.example.com/123456789012/orders'", 'a superuser sets option "endpoint"'),
    ("target 'https://evil.example/sqs.eu-central-1.amazonaws.com/orders'", 'a superuser sets option "endpoint"'),
    ("target 'https://sqs.eu-central-1.amazonaws.com.evil.example/1/orders'", 'a superuser sets option "endpoint"'),
    ("target 'http://sqs.eu-central-1.amazonaws.com/123456789012/orders'", "no https URL"),
    ("target 'http://127.0.0.1:5000/123456789012/orders', aws_region 'eu-central-1'", 'a superuser sets option "endpoint"'),
    (f"{QUEUE}, aws_region 'eu-west-1'", 'names region eu-central-1'),
    ("target 'arn:aws:sqs:eu-central-1:123456789012:orders'", "Expected the URL of a queue, or the ARN of a topic"),
    ("target 'arn:aws:sns:eu-central-1.evil.example:123456789012:orders'", "Expected the URL of a queue, or the ARN of a topic"),
    ("target 'arn:aws:events:eu-central-1:123456789012:event-bus/a b'", "or of an event bus"),
    ("target 'arn:aws:events:eu-central-1:123456789012:rule/orders'", "or of an event bus"),
    (f"{BUS}, aws_region 'evil.example/'", "code of a region"),
    (f"{QUEUE}, endpoint 'http://127.0.0.1:1'", "allow_http"),
    (f"{QUEUE}, endpoint 'https://127.0.0.1:1/path'", "without a path"),
    (f"{QUEUE}, subject 'x'", "Only messages of SNS"),
    (f"{TOPIC}, subject 'x\ny'", "control characters"),
    (f"{TOPIC}, detail_type 'x'", "Only events of EventBridge"),
    (f"{TOPIC}, source 'x'", "attribute of CloudEvents"),
    (f"{BUS}, source 'aws.x'", "those of AWS itself"),
    (f"{BUS}, detail_type '${{event_typ}}'", "Perhaps you meant ${event_type}"),
    (f"{BUS}, additional_placement 'event_type:header'", "no headers"),
    (f"{QUEUE}, additional_placement 'event_type:header:a b'", "cannot be an attribute"),
    (f"{QUEUE}, additional_placement 'event_type:header:AWS.x'", "cannot be an attribute"),
    (f"{QUEUE}, additional_placement 'aggregate_id:partition'", "a message has no partition"),
    (f"{QUEUE}, format 'cloudevents'", "Use 'cloudevents-structured'"),
    (f"{QUEUE}, tombstone_on_empty_payload 'true'", "AWS takes no empty messages"),
    (f"{QUEUE}, value_format 'bytes'", "A message of AWS is text"),
    (f"{QUEUE}, max_message '1'", "from 1kB"),
    (f"{QUEUE}, concurrency '0'", "from 1"),
    (f"{QUEUE}, aws_secret_access_key 'x'", "is a secret and cannot be an option of the server"),
    (f"{QUEUE}, taget 'x'", 'Perhaps you meant the option "target"'),
])
def test_options_are_checked(db, options, message):
    db.refuses(f"CREATE SERVER bad FOREIGN DATA WRAPPER outbox_aws OPTIONS ({options})", message)


@pytest.mark.parametrize("options", [
    QUEUE, TOPIC, BUS, "target 'https://eu-west-1.queue.amazonaws.com/1/a'", "target 'https://queue.amazonaws.com/1/a.fifo'",
    "target 'https://sqs.cn-north-1.amazonaws.com.cn/1/a'", "target 'https://sqs.us-east-1.api.aws/1/a'", "target 'arn:aws-cn:sns:cn-north-1:123456789012:a.fifo'",
    "target 'arn:aws:events:eu-west-1:123456789012:event-bus/a.b'", f"{QUEUE}, aws_region 'eu-central-1'",
])
def test_targets_of_any_owner(db, options):
    db.sql("CREATE ROLE maker; GRANT USAGE ON FOREIGN DATA WRAPPER outbox_aws TO maker; SET ROLE maker")
    try:
        db.sql(f"CREATE SERVER own FOREIGN DATA WRAPPER outbox_aws OPTIONS ({options})")
        for name, value in {"endpoint": "https://localhost", "allow_http": "true", "allow_networks": "127.0.0.1", "aws_credentials": "chain"}.items():
            db.refuses(f"ALTER SERVER own OPTIONS (ADD {name} '{value}')", "superuser")
    finally:
        db.sql("RESET ROLE; DROP SERVER IF EXISTS own; DROP OWNED BY maker; DROP ROLE maker")


@pytest.mark.parametrize("options, message", [
    ("aws_access_key_id 'AKIAIOSFODNN7EXAMPLE'", '"aws_secret_access_key" is required'),
    ("aws_secret_access_key 'secretsecretsecret'", '"aws_access_key_id" is required'),
    ("target 'x'", "belongs to the server"),
])
def test_options_of_mappings_are_checked(db, options, message):
    db.sql(f"CREATE SERVER good FOREIGN DATA WRAPPER outbox_aws OPTIONS ({QUEUE})")
    db.refuses(f"CREATE USER MAPPING FOR PUBLIC SERVER good OPTIONS ({options})", message)
    db.sql("DROP SERVER good")


def enqueue(payload: str = "'{}'", headers: str = "'{}'") -> str:
    return f"SELECT outbox.enqueue('Order', '1', 'x', {payload}, headers => {headers})"


def test_events_for_a_queue_are_checked(db):
    db.sql(f"CREATE SERVER aws FOREIGN DATA WRAPPER outbox_aws OPTIONS ({QUEUE}, max_message '2000')")
    db.refuses(enqueue("to_jsonb(repeat('x', 2000))"), "too large for a message of AWS", "With its attributes it has 2046 bytes")
    db.refuses(enqueue(headers="jsonb_build_object('a b', 'x')"), 'header "a b" cannot be an attribute', "Give the header another name")
    db.refuses(enqueue(headers="jsonb_build_object('Amazon.x', 'x')"), "cannot be an attribute")
    db.refuses(enqueue(headers="jsonb_build_object('a..b', 'x')"), "cannot be an attribute")
    db.refuses(enqueue(headers="jsonb_build_object('a', '')"), 'header "a" is empty')
    db.refuses(enqueue(headers=r"""'{"a": "x\u0001"}'"""), "cannot be sent to AWS")
    db.refuses(enqueue(headers="(SELECT jsonb_object_agg('h' || n, 'x') FROM generate_series(1, 10) AS n)"), "11 attributes", "Move some of them into the payload")
    db.refuses(enqueue("NULL"), "payload is NULL")
    db.refuses(r"SELECT outbox.enqueue_bytes('Order', '1', 'x', '\x00', 'a/b')", "no raw bytes", "cloudevents-structured")
    db.sql(enqueue(headers="(SELECT jsonb_object_agg('h' || n, 'x') FROM generate_series(1, 9) AS n)"))


def test_events_for_a_topic_and_a_bus_are_checked(db):
    db.sql(f"CREATE SERVER aws FOREIGN DATA WRAPPER outbox_aws OPTIONS ({TOPIC}, subject '${{header.subject}}')")
    db.refuses(enqueue(), "event has no value for ${header.subject}")
    db.refuses(enqueue(headers="jsonb_build_object('subject', 'ä')"), "takes as a subject")
    db.refuses(enqueue(headers="jsonb_build_object('subject', repeat('x', 100))"), "at most 99")
    db.sql("DROP SERVER aws")
    db.sql(f"CREATE SERVER aws FOREIGN DATA WRAPPER outbox_aws OPTIONS ({BUS}, source '${{header.source}}')")
    db.refuses(enqueue(headers="jsonb_build_object('source', 'aws.x')"), "begins with aws.")
    db.refuses(enqueue().replace("'x'", "repeat('x', 129)").replace("headers => '{}'", "headers => '{\"source\": \"s\"}'"), "at most 128")


def test_the_text_of_a_payload_is_checked(db, moto, front, name):
    """Characters that are none of XML 1.0, and a detail that is no object. U+10FFFE is one of XML, and its last bytes are like those of U+FFFE."""
    queue = moto.queue(name)
    db.aws_sink("aws", front.url, target=queue.url, aggregates="Queue")
    db.aws_sink("bus", front.url, target=moto.bus(name, queue), aggregates="Bus")
    for character in ("FFFE", "FFFF"):
        db.refuses(rf"SELECT outbox.enqueue('Queue', '1', 'x', jsonb_build_object('a', repeat('x', 500), 'b', U&'\{character}'::text))", "payload cannot be sent to AWS", "\\u escapes")
    db.refuses("SELECT outbox.enqueue('Bus', '1', 'x', '[]')", "must be a JSON object")
    db.sql(r"SELECT outbox.enqueue('Queue', '1', 'x', jsonb_build_object('a', U&'\+10FFFE\FFFD\0009'::text)), outbox.enqueue('Bus', '1', 'x', jsonb_build_object('b', U&'\FFFE'::text))")
    assert {json.loads(message["Body"]).get("a") for message in queue.read(2)} == {"\U0010FFFE\uFFFD\t", None}


def test_a_payload_that_an_update_brings(db, moto, front, name):
    """It is checked as a new one is, and the event stays as it was."""
    db.aws_sink("aws", front.url, target=moto.queue(name).url)
    db.sql("SELECT outbox.pause('aws')")
    db.sql("SELECT outbox.enqueue('Order', '1', 'x', '{}')")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="cannot be sent to AWS"):
        db.sql(r"UPDATE outbox.events SET payload = to_jsonb(U&'\FFFE'::text)")
    db.sql("SELECT outbox.resume('aws')")
    wait_until(front.sends, 30, "the event as it was")


def steps(db, name: str = "aws", send: bool = False) -> dict[str, tuple]:
    return {step: (ok, message, hint) for step, ok, message, hint in db.sql("SELECT step, ok, message, hint FROM outbox.probe(%s, send => %s)", name, send)}


@pytest.mark.parametrize("kind", ["queue", "topic", "bus"])
def test_a_probe(db, moto, front, name, kind):
    queue = moto.queue(name)
    target = {"queue": lambda: {"target": queue.url}, "topic": lambda: {"target": moto.topic(name, queue)}, "bus": lambda: {"target": moto.bus(name, queue)}}[kind]()
    db.aws_sink("aws", front.url, **target)
    found = steps(db, send=True)
    assert all(ok for ok, *_ in found.values()) and {"connect", "credentials", "target", "send"} <= set(found), found
    [message] = queue.read(1)
    if kind == "bus":  # whose events have no attributes
        event = json.loads(message["Body"])
        assert (event["detail-type"], event["detail"]) == ("outbox.probe", {"test": True})
    else:
        assert message["MessageAttributes"]["outbox-probe"] == {"StringValue": "true", "DataType": "String"}


def test_a_probe_that_fails(db, moto, front, name):
    queue = moto.queue(name)
    db.aws_sink("aws", front.url, target=queue.url + "x")
    found = steps(db, send=True)
    assert found["target"][0] is False and "QueueDoesNotExist" in found["target"][1] and "make queue" in found["target"][2].lower()
    db.sql("DROP SERVER aws CASCADE")
    db.aws_sink("aws", "http://127.0.0.1:1", target=queue.url)
    assert steps(db)["connect"][0] is False
    db.sql("DROP SERVER aws CASCADE")
    front.answer = lambda request: error("AccessDenied", "not authorized to perform: sqs:getqueueattributes", 403) if request.operation == "GetQueueAttributes" else None
    db.aws_sink("aws", front.url, target=queue.url)
    found = steps(db, send=True)
    assert "sqs:GetQueueAttributes" in found["target"][2] and found["send"][0] is True, "sending needs no right to ask"


def test_the_network_guard(db, front):
    db.aws_sink("aws", front.url, target=f"{front.url}/1/orders", allow_networks="10.0.0.0/8")
    found = steps(db)
    assert found["guard"][0] is False and "127.0.0.0/8" in found["guard"][2]
    db.enqueue("Order", "1")
    wait_until(lambda: db.sink("state", "aws") == ("circuit open",), 30, lambda: db.sql("SELECT * FROM outbox.sinks"))
    assert "127.0.0.0/8" in db.sink("last_error", "aws")[0]
    assert db.value("SELECT attempts FROM outbox.events_pending") == 0 and front.requests == []
    assert db.sql("SELECT reason FROM outbox.failure_metrics") == [("blocked",)]

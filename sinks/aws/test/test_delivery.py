"""Events arrive in queues, by topics and by a bus, in order per key, and batched."""

import json
from collections import defaultdict

import pytest
from outbox_rig import wait_until
from outbox_rig.kind_fixtures import advice_is

from front import signature_of
from moto import KEYS, REGION


def sinks(db):
    return lambda: str(db.sql("SELECT * FROM outbox.sinks"))


def many(db, n: int, keys: int, begin: int = 0) -> None:
    db.sql("SELECT outbox.enqueue('Order', (n %% %s::int)::text, 'order.made', jsonb_build_object('key', (n %% %s::int)::text, 'n', n)) FROM generate_series(%s::int, %s::int) AS n",
           keys, keys, begin, begin + n - 1)


def by_key(bodies) -> dict[str, list[int]]:
    found = defaultdict(list)
    for body in bodies:
        found[body["key"]].append(body["n"])
    return found


def bodies(messages: list[dict]) -> list[dict]:
    return [json.loads(message["Body"]) for message in messages]


def all_is_sent(db) -> None:
    wait_until(lambda: db.pending() == 0, 60, sinks(db))
    assert db.value("SELECT count(*) FROM outbox.events") == 0


def is_signed(front, service: str) -> None:
    """moto looks at no signature."""
    [request] = front.sends()
    assert request.headers["authorization"] == signature_of(request, service, REGION, *KEYS.values())


def test_an_event_is_a_message_of_a_queue(db, moto, front, name):
    queue = moto.queue(name)
    db.aws_sink("aws", front.url, target=queue.url, additional_placement="event_type:header:eventType")
    id = db.enqueue("Order", "7", "order.created", '{"a": "ä"}', headers='{"tenant": "eu"}')
    [message] = queue.read(1)
    assert message["Body"] == '{"a": "ä"}'
    attributes = {name: value["StringValue"] for name, value in message["MessageAttributes"].items()}
    assert attributes == {"id": id, "eventType": "order.created", "tenant": "eu"}
    all_is_sent(db)
    assert db.sink("kind, target, state", "aws") == ("aws", queue.url, "idle")
    is_signed(front, "sqs")


@pytest.mark.parametrize("target", ["arn:aws:sns:eu-central-1:123456789012:orders", "arn:aws:events:eu-central-1:123456789012:event-bus/orders"])
def test_the_target_is_the_topic_or_the_bus(db, target):
    db.aws_sink("aws", "http://127.0.0.1:9", target=target)
    assert db.sink("target", "aws") == (target,)


def test_a_binary_header(db, moto, front, name):
    queue = moto.queue(name)
    db.aws_sink("aws", front.url, target=queue.url, format="cloudevents-structured")
    id = db.sql("SELECT outbox.enqueue_bytes('Order', '1', 'order.raw', '\\x00ff', 'application/avro', headers => '{\"tenant\": \"eu\"}')")[0][0]
    [message] = queue.read(1)
    event = json.loads(message["Body"])
    assert (event["id"], event["data_base64"], event["datacontenttype"]) == (str(id), "AP8=", "application/avro")
    assert message["MessageAttributes"]["content-type"]["StringValue"] == "application/cloudevents+json; charset=UTF-8"


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_order_of_each_key_and_batches(db, moto, front, name, kind):
    """FIFO: the group is the key, and the deduplication id is the event's."""
    queue = moto.queue(f"{name}.fifo")
    options = {"target": queue.url} if kind == "queue" else {"target": moto.topic(f"{name}-t.fifo", queue)}
    db.aws_sink("aws", front.url, concurrency="4", timeout="1min", **options)
    many(db, 300, 60)
    messages = queue.read(300, 120)
    assert len(messages) == 300
    for key, numbers in by_key(bodies(messages)).items():
        assert numbers == [n for n in range(300) if str(n % 60) == key]
    for message in messages:
        assert message["Attributes"]["MessageGroupId"] == json.loads(message["Body"])["key"]
        assert message["Attributes"]["MessageDeduplicationId"][:37] == message["MessageAttributes"]["id"]["StringValue"] + "-"
    all_is_sent(db)
    sizes = [request.size for request in front.sends()]
    assert sum(sizes) == 300 and max(sizes) == 10 and len(sizes) < 100, sizes


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_two_sinks_of_one_fifo_and_a_replay_are_no_duplicates(db, moto, front, name, kind):
    queue = moto.queue(f"{name}.fifo")
    options = {"target": queue.url} if kind == "queue" else {"target": moto.topic(f"{name}-t.fifo", queue)}
    for sink in ("a", "b"):
        db.aws_sink(sink, front.url, retention="1d", **options)
    id = db.enqueue("Order", "7")
    assert {message["MessageAttributes"]["id"]["StringValue"] for message in queue.read(2, 60)} == {id}
    wait_until(lambda: db.pending() == 0, 30, "both acknowledgements")
    db.sql("SELECT outbox.replay('a', event => %s)", id)
    queue.read(3, 60)


def test_keys_that_are_no_group(db, moto, front, name):
    """Their group is a hash of the key; an event without a key is a group of its own."""
    queue = moto.queue(f"{name}.fifo")
    db.aws_sink("aws", front.url, target=queue.url)
    for key in ("a/b", "ä b", "x" * 128, "x" * 129):
        db.enqueue("Order", key)
        db.enqueue("Order", key)
    alone = db.value("SELECT outbox.enqueue('Order', '1', 'x', '{}', partition_key => '')")
    groups = [message["Attributes"]["MessageGroupId"] for message in queue.read(9)]
    assert groups.count("a/b") == 2 and groups.count("x" * 128) == 2 and groups.count(str(alone)) == 1
    hashes = [group for group in groups if group.startswith("sha256-")]
    assert len(hashes) == 4 and len(set(hashes)) == 2 and {len(group) for group in hashes} == {71}


def test_a_topic(db, moto, front, name):
    queue = moto.queue(name)
    db.aws_sink("aws", front.url, target=moto.topic(name, queue), subject="${event_type} of ${aggregate_id}")
    plain = moto.queue(f"{name}-plain")
    moto.sns.subscribe(TopicArn=f"arn:aws:sns:eu-central-1:123456789012:{name}", Protocol="sqs", Endpoint=plain.arn)
    id = db.enqueue("Order", "7", "order.created", '{"a": "ä & <b>=+%"}', headers='{"tenant": "eu central"}')
    [message] = queue.read(1)
    assert message["Body"] == '{"a": "ä & <b>=+%"}'
    assert {name: value["StringValue"] for name, value in message["MessageAttributes"].items()} == {"id": id, "tenant": "eu central"}
    [wrapped] = plain.read(1)
    assert json.loads(wrapped["Body"])["Subject"] == "order.created of 7"
    is_signed(front, "sns")
    many(db, 200, 200)
    queue.read(201)
    all_is_sent(db)
    assert max(request.size for request in front.sends()) == 10


def test_a_bus(db, moto, front, name):
    queue = moto.queue(name)
    db.aws_sink("aws", front.url, target=moto.bus(name, queue), source="shop.${aggregate_type}")
    id = db.enqueue("Order", "7", "order.created", '{"a": "ä"}', headers='{"tenant": "eu"}')
    [message] = queue.read(1)
    event = json.loads(message["Body"])
    assert (event["source"], event["detail-type"], event["detail"], event["resources"]) == ("shop.Order", "order.created", {"a": "ä"}, [f"urn:uuid:{id}"])
    created = db.value("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD')")
    assert event["time"].startswith(created)
    is_signed(front, "events")
    many(db, 200, 200)
    assert {json.loads(message["Body"])["detail"].get("n") for message in queue.read(201)} == {None, *range(200)}
    all_is_sent(db)
    assert max(request.size for request in front.sends()) == 10


@pytest.mark.parametrize("service", ["sqs", "sns", "events"])
def test_a_kept_event_tells_the_id_that_aws_gave_it(db, moto, front, name, service):
    queue = moto.queue(name)
    targets = {"sqs": lambda: {"target": queue.url}, "sns": lambda: {"target": moto.topic(name, queue, raw=False)}, "events": lambda: {"target": moto.bus(name, queue)}}
    db.aws_sink("aws", front.url, retention="1d", **targets[service]())
    ids = [db.enqueue("Order", str(n), payload=json.dumps({"n": n})) for n in range(3)]
    given = {}
    for message in queue.read(3):
        body = json.loads(message["Body"])
        n = json.loads(body["Message"])["n"] if service == "sns" else body["detail"]["n"] if service == "events" else body["n"]
        given[n] = {"sqs": f"MessageId {message['MessageId']}", "sns": f"MessageId {body.get('MessageId')}", "events": f"EventId {body.get('id')}"}[service]
    wait_until(lambda: db.pending() == 0, 60, sinks(db))
    told = [db.value("SELECT acknowledgement FROM outbox.events WHERE id = %s", id) for id in ids]
    assert all(text.startswith(given[n]) for n, text in enumerate(told)), (told, given)


def test_a_request_is_cut_to_what_it_may_carry(db, moto, front, name):
    queue = moto.queue(name)
    db.aws_sink("aws", front.url, target=queue.url)
    db.sql("SELECT outbox.enqueue('Order', n::text, 'x', jsonb_build_object('x', repeat('x', 100000))) FROM generate_series(1, 20) AS n")
    queue.read(20)
    all_is_sent(db)
    assert {request.size for request in front.sends()} <= {1, 2} and max(len(request.body) for request in front.sends()) < 262_144


QUEUE = "https://sqs.eu-central-1.amazonaws.com/123456789012/orders"


@pytest.mark.parametrize("options, checks", [
    ({"target": QUEUE}, ["keys", "order"]), ({"target": f"{QUEUE}.fifo"}, ["keys"]), ({"target": "arn:aws:events:eu-central-1:123456789012:event-bus/orders"}, ["keys", "order"]),
    ({"target": f"{QUEUE}.fifo", "endpoint": "http://sqs.example", "allow_http": "true"}, ["encryption"])])
def test_typical_mistakes(db, options, checks):
    db._create_server("aws", "outbox_aws", options)
    db.create_mapping("aws", KEYS)
    advice_is(db, "aws", *checks)

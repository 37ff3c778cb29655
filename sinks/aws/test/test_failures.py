"""Failures at AWS: a message, a target, the credentials, the clock, AWS as a whole. Where moto has no such failure, the front answers as AWS's
references of errors say."""

import json
import time
from email.utils import formatdate

import pytest
from outbox_rig import wait_until
from outbox_rig.certificates import Authority
from outbox_rig.kind_fixtures import an_endpoint_without_an_answer_is_named, memory_is_bounded, metrics_show

from front import Answer, error, xml_error
from moto import REGION
from test_delivery import all_is_sent, bodies, by_key, many, sinks

QUICK = {"retry": "100ms..500ms", "max_attempts": "1000"}


def state_is(db, state: str, error: str = "", seconds: float = 30) -> None:
    wait_until(lambda: db.sink("state", "aws") == (state,) and error in (db.sink("last_error", "aws")[0] or ""), seconds, sinks(db))


def no_attempt_is_spent(db) -> None:
    assert db.value("SELECT coalesce(max(attempts), 0) FROM outbox.events WHERE status = 'PENDING'") == 0


def in_order(messages) -> int:
    """Asserts that each key's events came first in their order; returns the number of duplicates."""
    duplicates = 0
    for key, numbers in by_key(bodies(messages)).items():
        first = list(dict.fromkeys(numbers))
        assert first == sorted(first), (key, numbers)
        duplicates += len(numbers) - len(first)
    return duplicates


def test_a_missing_queue_is_waited_for(db, moto, front, name):
    db.aws_sink("aws", front.url, target=f"{moto.url}/123456789012/{name}", max_attempts="2", retry="10ms")
    many(db, 50, 10)
    state_is(db, "circuit open", "QueueDoesNotExist")
    assert f'make queue "{name}" in region eu-central-1' in db.sink("last_error", "aws")[0]
    [(status, detail, hint)] = db.sql("SELECT status, detail, hint FROM outbox.doctor() WHERE \"check\" = 'sink aws'")
    assert status == "error" and "make queue" in detail and "outbox.probe('aws')" in hint
    no_attempt_is_spent(db)
    messages = moto.queue(name).read(50)
    assert in_order(messages) == 0
    all_is_sent(db)
    state_is(db, "idle")


def test_aws_asks_for_a_pause(db, moto, front, name):
    """No request starts before it is over, or before resume() ends it."""
    front.answer = lambda request: error("ServiceUnavailable", "come back later", 503, retry_after="400")
    queue = moto.queue(name)
    db.aws_sink("aws", front.url, target=queue.url, **QUICK)
    many(db, 1, 1)
    state_is(db, "paused by endpoint")
    front.answer = lambda request: None
    many(db, 5, 5)
    db.sql("SELECT outbox.resume('aws')")
    all_is_sent(db)


def takes_everything(request):
    """EventBridge acknowledges events for a bus that does not exist, and drops them: https://github.com/aws/aws-cli/issues/9186"""
    if request.operation != "PutEvents":
        return None
    return Answer(200, json.dumps({"FailedEntryCount": 0, "Entries": [{"EventId": str(n)} for n in range(request.size)]}).encode(), {})


def test_a_bus_that_was_deleted(db, moto, front, name):
    """By somebody, while the worker was not there: its first request asks."""
    db.aws_sink("aws", front.url, target=moto.bus(name, moto.queue(name)))
    many(db, 1, 1)
    all_is_sent(db)
    moto.events.remove_targets(Rule="all", EventBusName=name, Ids=["1"])
    moto.events.delete_rule(Name="all", EventBusName=name)
    moto.events.delete_event_bus(Name=name)
    front.answer = takes_everything
    db.sql("SELECT pg_terminate_backend(pid, 30000) FROM outbox.workers")
    many(db, 20, 10)
    state_is(db, "circuit open", "ResourceNotFound")
    no_attempt_is_spent(db)
    assert db.pending() == 20


def test_a_bus_that_may_not_be_asked_for(db, moto, front, name):
    """Events are sent; the state, the probe and the server's log say what nobody can see."""
    queue = moto.queue(name)
    db.aws_sink("aws", front.url, target=moto.bus(name, queue))
    front.answer = lambda request: error("AccessDeniedException", "not authorized to perform: events:DescribeEventBus") if request.operation == "DescribeEventBus" else None
    many(db, 20, 10)
    queue.read(20)
    all_is_sent(db)
    assert "allow events:DescribeEventBus" in db.pg.log.read_text()
    state_is(db, "degraded", "DescribeEventBus")
    assert db.sql("SELECT ok FROM outbox.probe('aws') WHERE step = 'target'") == [(False,)]


@pytest.mark.parametrize("kind, code", [("topic", "NotFound"), ("bus", "ResourceNotFound")])
def test_a_missing_topic_or_bus(db, moto, front, name, kind, code):
    queue = moto.queue(name)
    if kind == "bus":
        front.answer = takes_everything
    db.aws_sink("aws", front.url, **({"target": f"arn:aws:sns:eu-central-1:123456789012:{name}"} if kind == "topic" else {"target": f"arn:aws:events:eu-central-1:123456789012:event-bus/{name}"}))
    many(db, 20, 10)
    state_is(db, "circuit open", code)
    no_attempt_is_spent(db)
    front.answer = lambda request: Answer(503, b"", {})  # until the target leads to the queue: what comes before is dropped
    moto.topic(name, queue) if kind == "topic" else moto.bus(name, queue)
    front.answer = lambda request: None
    queue.read(20)
    all_is_sent(db)


def test_a_killed_service_that_forgets_its_queue(db, make_moto, name):
    moto = make_moto()
    queue = moto.queue(name)
    db.aws_sink("aws", moto.url, target=queue.url)
    many(db, 100, 10)
    queue.read(100)
    moto.kill()
    many(db, 100, 10, 100)
    state_is(db, "circuit open")
    moto.start()
    state_is(db, "circuit open", "QueueDoesNotExist")
    no_attempt_is_spent(db)
    messages = moto.queue(name).read(100)
    assert in_order(messages) == 0 and {body["n"] for body in bodies(messages)} == set(range(100, 200))
    all_is_sent(db)


def test_a_service_that_hangs(db, make_moto, name):
    moto = make_moto()
    queue = moto.queue(name)
    db.aws_sink("aws", moto.url, target=queue.url, timeout="2s", **QUICK)
    many(db, 20, 10)
    queue.read(20)
    moto.freeze()
    try:
        many(db, 100, 50, 20)
        state_is(db, "circuit open")
    finally:
        moto.thaw()
    wait_until(lambda: db.pending() == 0, 60, sinks(db))
    assert {body["n"] for body in bodies(queue.messages + queue.take())} == set(range(120))


def test_a_service_that_does_not_answer(db):
    an_endpoint_without_an_answer_is_named(db, "aws", Authority("ours"), "target", endpoint="URL", target="URL/123456789012/orders.fifo", aws_region=REGION)


def test_memory_is_bounded_while_the_service_hangs(db, make_moto, name):
    moto = make_moto()
    db.aws_sink("aws", moto.url, target=moto.queue(name).url, timeout="1min")
    memory_is_bounded(db, "aws", moto, most=400, events=1000, size=200_000)


def test_one_message_of_a_batch_fails(db, moto, front, name):
    """By the fault of AWS it is sent again, by its own it is a dead letter; the others are delivered once, and later events of the key wait."""
    queue = moto.queue(f"{name}.fifo")
    seen = []

    def answer(request):
        entries = request.json["Entries"]
        bad = next((entry for entry in entries if (n := json.loads(entry["MessageBody"])["n"]) in (3, 25) and n not in seen), None)
        if bad is None:
            return None
        seen.append(n := json.loads(bad["MessageBody"])["n"])
        rest = [entry for entry in entries if entry is not bad]
        if rest:
            moto.sqs.send_message_batch(QueueUrl=queue.url, Entries=rest)
        failed = {"Id": bad["Id"], "SenderFault": n == 25, "Code": "InvalidMessageContents" if n == 25 else "InternalError", "Message": "as told"}
        return Answer(200, json.dumps({"Successful": [{"Id": entry["Id"], "MessageId": "1", "MD5OfMessageBody": "x"} for entry in rest], "Failed": [failed]}).encode(), {})

    front.answer = answer
    db.aws_sink("aws", front.url, target=queue.url, **QUICK)
    many(db, 100, 10)
    messages = queue.read(99)
    wait_until(lambda: db.pending() == 0, 30, sinks(db))
    assert sorted(body["n"] for body in bodies(messages + queue.take())) == [n for n in range(100) if n != 25]
    assert in_order(messages) == 0
    [(n, attempts, text)] = db.sql("SELECT payload->>'n', attempts, last_error FROM outbox.events WHERE status = 'FAILED'")
    assert (n, attempts) == ("25", 1) and text == "Amazon SQS: InvalidMessageContents: as told"
    metrics_show(db, "aws", delivered=99, dead_letters=1)


def test_an_entry_of_a_bus_fails(db, moto, front, name):
    queue = moto.queue(name)
    moto.bus(name, queue)
    failed = []

    def answer(request):
        if failed or len(entries := request.json.get("Entries", [])) < 2:
            return None
        failed.append(json.loads(entries[1]["Detail"])["n"])
        moto.events.put_events(Entries=[entry | {"Time": int(entry["Time"])} for entry in entries[:1] + entries[2:]])
        results = [{"EventId": str(i)} for i in range(len(entries))]
        results[1] = {"ErrorCode": "ThrottlingException", "ErrorMessage": "Rate exceeded"}
        return Answer(200, json.dumps({"FailedEntryCount": 1, "Entries": results}).encode(), {})

    front.answer = answer
    db.aws_sink("aws", front.url, target=f"arn:aws:events:eu-central-1:123456789012:event-bus/{name}")
    many(db, 50, 50)
    messages = queue.read(50)
    all_is_sent(db)
    assert failed and sorted(json.loads(message["Body"])["detail"]["n"] for message in messages + queue.take()) == list(range(50))


def test_a_message_that_sns_refuses_is_found(db, moto, front, name):
    """SNS refuses the batch; each message is then sent alone."""
    queue = moto.queue(name)

    def answer(request):
        return xml_error("InvalidParameter", "Invalid parameter: Message too odd") if b"%22odd%22" in request.body else None

    front.answer = answer
    db.aws_sink("aws", front.url, target=moto.topic(name, queue), retry="100ms..500ms")
    db.sql("BEGIN")
    many(db, 30, 15)
    db.enqueue("Order", "5", "order.made", '{"key": "5", "n": 1000, "x": "odd"}')
    many(db, 30, 15, 2000)
    db.sql("COMMIT")
    messages = queue.read(60)
    wait_until(lambda: db.sql("SELECT status, attempts, payload->>'n' FROM outbox.events") == [("FAILED", 1, "1000")], 30, lambda: db.sql("SELECT status, attempts, last_error FROM outbox.events"))
    assert {body["n"] for body in bodies(messages)} == {*range(30), *range(2000, 2030)} and in_order(messages) == 0
    assert "Message too odd" in db.value("SELECT last_error FROM outbox.events")


def test_requests_that_are_all_refused(db, moto, front, name):
    """Whatever the words, it is the sink's fault: ten keys in a row open the circuit, and the backlog is delivered later."""
    queue = moto.queue(name)
    front.answer = lambda request: error("InvalidParameterValue", "One or more parameters are invalid.")
    db.aws_sink("aws", front.url, target=queue.url)
    many(db, 100, 50)
    state_is(db, "circuit open", "InvalidParameterValue")
    no_attempt_is_spent(db)
    [(dead,)] = db.sql("SELECT count(*) FROM outbox.events WHERE status = 'FAILED'")
    assert dead < 10
    front.answer = lambda request: None
    assert in_order(queue.read(100 - dead)) == 0
    wait_until(lambda: db.pending() == 0, 30, sinks(db))
    assert db.value("SELECT count(*) FROM outbox.events WHERE status = 'FAILED'") == dead


@pytest.mark.parametrize("answer", [
    error("ThrottlingException", "Rate exceeded"), error("RequestThrottled", "Request is throttled.", 403), error("TooManyRequestsException", "Too many", 429),
    Answer(503, b"<html>slow down</html>", {}), Answer(429, b"", {}),
], ids=lambda answer: f"{answer.status}")
def test_throttling_spends_no_attempt(db, moto, front, name, answer):
    queue = moto.queue(name)
    ends = []
    front.answer = lambda request: None if ends else answer
    db.aws_sink("aws", front.url, target=queue.url, max_attempts="1")
    many(db, 100, 50)
    wait_until(lambda: len(front.sends()) >= 3, 30, sinks(db))
    wait_until(lambda: (db.sink("last_error", "aws")[0] or "").startswith("Amazon SQS: "), 30, sinks(db))
    no_attempt_is_spent(db)
    ends.append(True)
    assert in_order(queue.read(100)) == 0
    all_is_sent(db)


@pytest.mark.parametrize("answer, words", [
    (error("AccessDenied", "User: arn:aws:iam::1:user/x is not authorized to perform: sqs:sendmessage", 403), "allow sqs:SendMessage on queue"),
    (error("InvalidClientTokenId", "The security token included in the request is invalid.", 403), "correct aws_access_key_id and aws_secret_access_key"),
    (error("SignatureDoesNotMatch", "The request signature we calculated does not match", 403), "correct aws_access_key_id"),
    (error("KmsAccessDenied", "The caller does not have the required KMS access"), "KMS key"),
    (error("ExpiredToken", "The security token included in the request is expired", 403), "aws_session_token"),
    (Answer(404, b"<html>not here</html>", {}), "correct the options aws_region and endpoint"),
    (Answer(200, b"hello", {}), "the answer is none of AWS's"),
    (Answer(301, b"", {"Location": "http://127.0.0.1:1/"}), "HTTP 301"),
])
def test_what_a_user_must_correct(db, moto, front, name, answer, words):
    queue = moto.queue(name)
    ends = []
    front.answer = lambda request: None if ends else answer
    db.aws_sink("aws", front.url, target=queue.url, max_attempts="1000")
    many(db, 30, 30)
    state_is(db, "circuit open", words)
    ends.append(True)
    db.sql("SELECT outbox.pause('aws')")
    db.sql("SELECT outbox.resume('aws')")
    queue.read(30)
    wait_until(lambda: db.pending() == 0, 60, sinks(db))


@pytest.mark.parametrize("seconds", [-900, 900])
def test_a_wrong_clock_is_corrected(db, moto, front, name, seconds):
    """AWS's time is `seconds` from that of the database server: the answer's Date tells."""
    queue = moto.queue(name)

    def answer(request):
        then = time.time() + seconds
        signed = time.mktime(time.strptime(request.headers["x-amz-date"], "%Y%m%dT%H%M%SZ")) - time.timezone
        if abs(signed - then) < 300:
            return None
        text = "Signature expired: 20261124T080000Z is now earlier than 20261124T081000Z" if signed < then else "Signature not yet current: 20261124T083000Z is still later than 20261124T082500Z"
        return error("InvalidSignatureException", text, 403, Date=formatdate(then, usegmt=True))

    front.answer = answer
    db.aws_sink("aws", front.url, target=queue.url, max_attempts="1")
    many(db, 100, 50)
    assert in_order(queue.read(100)) == 0
    all_is_sent(db)
    assert "clock" in db.pg.log.read_text() and "900 s" in db.pg.log.read_text()


def test_a_removed_sink_ends_at_once(db, make_moto, name):
    moto = make_moto()
    queue = moto.queue(name)
    db.aws_sink("aws", moto.url, target=queue.url)
    moto.freeze()
    try:
        many(db, 10, 10)
        wait_until(lambda: db.sink("in_flight", "aws")[0] > 0, 30, sinks(db))
        db.sql("DROP SERVER aws CASCADE")
        wait_until(lambda: db.value("SELECT count(*) FROM outbox.sinks WHERE state <> 'dropped'") == 0, 30, sinks(db))
    finally:
        moto.thaw()


def test_no_secret_in_any_text(db, moto, front, name):
    """AWS repeats what it was sent in some errors."""
    queue = moto.queue(name)
    front.answer = lambda request: error("SignatureDoesNotMatch", "x" * 290 + " FwoGZXIvYXdzEBYaDtoken and wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY", 403)
    db.aws_sink("aws", front.url, {"aws_access_key_id": "AKIAIOSFODNN7EXAMPLE", "aws_secret_access_key": "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY", "aws_session_token": "FwoGZXIvYXdzEBYaDtoken"}, target=queue.url)
    many(db, 3, 3)
    state_is(db, "circuit open", "***")
    [request, *_] = front.sends()
    assert request.headers["x-amz-security-token"] == "FwoGZXIvYXdzEBYaDtoken"
    shown = str(db.sql("SELECT * FROM outbox.sinks")) + str(db.sql("SELECT outbox.doctor()")) + db.pg.log.read_text()
    assert "wJalrXUtn" not in shown and "FwoGZXIv" not in shown

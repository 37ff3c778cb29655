"""test/rig/receiver, which developers start to see webhooks arrive."""

import json
import re
import socket
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from outbox_rig import patient, wait_until
from outbox_rig.paths import ROOT
from outbox_rig.receiver import SECRET
from senders import Stream, post, signed

QUICK = {"retry": "50ms..200ms", "max_attempts": "1000"}
BODY = '{"type": "order.paid", "data": {"total": 99.5}}'


@pytest.fixture(scope="module")
def consumer_database(new_consumer_database) -> str:
    return new_consumer_database()


@pytest.fixture
def work(consumer_database):
    """work(query): a value from the receiver's database, which is empty at first."""
    with psycopg.connect(consumer_database, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS processed_events, work")
        yield lambda query: connection.execute(query).fetchone()[0]


@pytest.fixture
def developing(rig, consumer_database, work, request):
    """The receiver, started as a developer does."""
    service = rig.service(argv=[str(ROOT / "test/rig/receiver/run"), "--port", "{port}", "--secret", SECRET, "--database", consumer_database],
                          more=getattr(request, "param", []))
    yield service
    service.stop()


@pytest.mark.parametrize("developing", [["--delay", "60"]], indirect=True, ids=["slow"])
def test_a_receiver_that_dies_between_commit_and_answer_does_the_work_once(db, developing, work):
    db.webhook_sink("crm", developing.url, SECRET, **QUICK, forward_headers="x-tenant")
    event = db.enqueue("Order", "42", "order.paid", '{"total": 99.5}', headers=json.dumps({"X-Tenant": "7"}))
    wait_until(lambda: work("SELECT count(*) FROM work") == 1, 20, "the commit")
    assert db.pending() == 1, "not answered"
    developing.kill()
    developing.start("--fail", "0.1", "--status", "503", "--retry-after", "0")
    wait_until(lambda: db.pending() == 0, 20, "the second delivery")
    assert f"order.paid  {event}  -> 204 duplicate, dropped\n" in developing.printed()
    assert 'x-tenant: 7' in developing.printed() and '"total": 99.5' in developing.printed()
    assert work("SELECT count(*) FROM work") == work("SELECT count(*) FROM processed_events") == 1

    stream = Stream(db, "Order")
    stream.write(300)
    wait_until(lambda: db.pending() == 0, 30, "the events to leave")
    assert stream.check(work(f"SELECT array_agg(event_id ORDER BY done_at) FROM work WHERE event_id <> '{event}'")) == 0
    assert "-> 503 told to fail\n" in developing.printed()
    developing.stop()
    assert "300 done" in developing.printed()


def test_what_is_not_signed_well_is_refused_with_what_to_check(developing, work):
    def refused(body: bytes, headers: dict[str, str]) -> str:
        before = len(developing.printed())
        assert post(developing.url, body, headers) == (401, "bad signature")
        return wait_until(lambda: developing.printed()[before:], 5, "it to be printed")

    event = str(uuid.uuid4())
    good = signed(event, BODY)
    changed = refused(BODY.replace(" ", "").encode(), good | {"Via": "1.1 gateway"})
    assert "-> 401 bad signature, refused" in changed and "check: the secret" in changed and "came through one (via: 1.1 gateway)" in changed
    assert "check: the secret" in refused(BODY.encode(), signed(event, BODY, secret="whsec_" + "A" * 32))
    assert "check: the secret" in refused(BODY.encode(), good | {"webhook-id": str(uuid.uuid4())})
    assert re.search("the clocks: this machine's is 4.. s ahead of the timestamp", refused(BODY.encode(), signed(event, BODY, age=400)))
    assert re.search("the clocks: this machine's is 4.. s behind the timestamp", refused(BODY.encode(), signed(event, BODY, age=-450)))
    assert "no webhook-signature: the sink has no secret" in refused(BODY.encode(), {name: good[name] for name in list(good)[:-1]})
    assert "check: the secret" in refused(BODY.encode(), good | {"webhook-signature": "v1"})
    assert "this body is not UTF-8" in refused(b"\xff\x00", good)
    assert work("SELECT count(*) FROM work") == 0
    assert post(developing.url, BODY.encode(), good)[0] == 204
    assert post(developing.url, BODY.encode(), signed(event, BODY, prefix="svix"))[0] == 204
    assert work("SELECT count(*) FROM work") == 1 and work("SELECT event_type FROM work") == "order.paid"


def test_of_concurrent_duplicates_one_wins(developing, consumer_database, work):
    event = str(uuid.uuid4())
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with ThreadPoolExecutor(6) as pool, psycopg.connect(consumer_database) as first:
        first.execute("INSERT INTO processed_events VALUES (%s)", [event])
        answers = [pool.submit(post, developing.url, BODY.encode(), signed(event, BODY)) for _ in range(6)]
        wait_until(lambda: work(waiting) == 6, 20, "all of them to wait for the first one's end")
        first.rollback()
        assert [answer.result()[0] for answer in answers] == [204] * 6
    assert work("SELECT count(*) FROM work") == 1
    assert developing.printed().count("204 done") == 1 and developing.printed().count("204 duplicate, dropped") == 5


def test_what_is_missing_is_said_with_what_to_do(consumer_database):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        complete = {"--secret": SECRET, "--database": consumer_database, "--port": str(port)}
        cases = [
            ({"--secret": ""}, "no secret", "openssl rand -base64 32"),
            ({"--secret": "whsec_abc"}, "the secret is not whsec_ and the base64 of 24 to 64 bytes", "openssl rand"),
            ({"--database": ""}, "no database", "createdb receiver"),
            ({"--database": "receiver"}, "the database cannot be used", 'Expected postgresql://user@host/receiver or "host='),
            ({"--database": consumer_database.replace("consumers", "no_such")}, "does not exist", "createdb receiver"),
            ({"--port": "70000"}, "argument --port: expected a number from 1 to 65535", ""),
            ({}, f"port {port} is in use", "--port"),
        ]
        started = []
        for change, *words in cases:
            command = [sys.executable, "-m", "receiver", *(word for pair in (complete | change).items() for word in pair)]
            started.append((words, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)))
        for words, child in started:
            printed = child.communicate(timeout=patient(30))[0]
            assert child.returncode in (1, 2) and "Traceback" not in printed
            for word in words:
                assert word in printed

"""What the pages show and the buttons do, without JavaScript."""

import html
import json
import re
import time
from collections.abc import Iterator

import pytest
from outbox_rig import ROOT, wait_until
from outbox_rig.receiver import HANG, OK, status
from visit import Document, Visitor


def test_a_healthy_system_looks_healthy(visitor, db, receiver):
    db.webhook_sink("crm", receiver.url)
    db.enqueue("Order", "1")
    db.wait_empty()
    wait_until(lambda: visitor.open("/") and "All is well" in visitor.text, what=lambda: visitor.text)
    assert "crm" in visitor.page.links
    assert "FROM outbox.sinks" in visitor.text  # the page shows its SQL


def test_without_a_sink_it_says_so(visitor):
    assert "There is no sink yet" in visitor.text


def statements_of(answer) -> list[str]:
    return [html.unescape(text) for text in re.findall(r"<pre[^>]*>(.*?)</pre>", answer.text.partition("The SQL of this page")[2], re.DOTALL)]


def test_the_sql_of_each_page_can_be_pasted(visitor, db, dead):
    [event] = dead()
    for path in ("/", "/doctor", "/sink?name=crm", "/events?show=dead", "/events?show=dead&sink=crm&error=customer", "/events?show=failing&sink=crm", "/events?show=waiting&sink=crm",
                 "/events?show=waiting&since=2020-01-01", f"/event?id={event}", f"/event?id={event}&part=message", f"/event?id={event}&part=payload"):
        answer = visitor.open(path)
        assert answer.status_code == 200, (path, visitor.text)
        assert statements_of(answer), path
        for statement in statements_of(answer):
            db.paste(statement)


def scans(plan: dict) -> Iterator[dict]:
    if "Scan" in plan["Node Type"] and plan.get("Relation Name", "").startswith("events_"):
        yield plan
    for part in plan.get("Plans", []):
        yield from scans(part)


def test_a_page_of_events_reads_no_more_than_it_looks_at(visitor, db, receiver):
    """By an index in its order, whatever the statistics: here there are none."""
    db.webhook_sink("crm", receiver.url)
    db.sql("SELECT outbox.pause('crm')")
    db.sql("ALTER TABLE outbox.events_pending SET (autovacuum_enabled = off)")
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) SELECT 'Order', n, 'type' || n % 7 FROM generate_series(1, 20000) AS n")
    options = " ".join(re.findall(r"-c enable_\w+=off|-c max_parallel\w+=0", (ROOT / "console/database/connection.cpp").read_text()))
    assert options.count("-c") >= 4
    with db.connect(options=options) as session:
        for path in ("/events", "/events?sink=crm", "/events?type=none", "/events?key=7", "/events?since=2020-01-01", "/events?since=2020-01-01&sink=crm&type=type3"):
            for statement in statements_of(visitor.open(path)):
                [[[found]]] = session.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + statement).fetchall()
                assert [scan["Index Name"] for scan in scans(found["Plan"]) if scan["Actual Rows"] * scan["Actual Loops"] > 5100] == [], (path, statement)


def test_a_sink_that_is_down_is_shown_with_its_error(visitor, db, receiver):
    receiver.mode = status(503, body=b"closed for lunch")
    db.webhook_sink("crm", receiver.url)
    db.enqueue("Order", "1")
    wait_until(lambda: visitor.open("/sink?name=crm") and "closed for lunch" in visitor.text, what=lambda: visitor.text)
    visitor.open("/")
    assert "All is well" not in visitor.text and "503" in visitor.text


def test_pause_and_resume(visitor, db, receiver):
    db.webhook_sink("crm", receiver.url)
    visitor.open("/sink?name=crm")
    visitor.press("Pause")
    assert "The sink is paused" in visitor.text
    assert db.sql("SELECT state FROM outbox.stopped_sinks") == [("paused",)]
    visitor.open("/sink?name=crm")
    assert "The sink is paused" not in visitor.text, "it is told once"
    visitor.press("Resume")
    assert not db.sql("SELECT FROM outbox.stopped_sinks")
    assert not visitor.has("Resume")


def test_a_dead_letter_is_redriven(visitor, db, receiver, dead):
    [event] = dead()
    visitor.open("/events?show=dead")
    visitor.follow("Order: order.created")
    assert "no such customer" in visitor.text
    receiver.mode = OK
    visitor.press("Redrive")
    assert "The event is sent again" in visitor.text
    db.wait_empty()
    assert receiver.accepted()
    wait_until(lambda: visitor.open(f"/event?id={event}") and "delivered" in visitor.text, what="the story's end")


def test_a_group_of_dead_letters_is_redriven(visitor, db, receiver, dead):
    dead(7)
    visitor.open("/sink?name=crm")
    visitor.follow("redrive or discard")
    assert "7 of the last" in visitor.text and "outbox.redrive(e.id, e.sink)" in visitor.text
    receiver.mode = OK
    visitor.press("Redrive")
    assert "7 of 7 dead letters are sent again" in visitor.text
    wait_until(lambda: len(receiver.accepted()) == 7, what="the deliveries")


def test_a_dead_letter_is_discarded(visitor, db, dead):
    [event] = dead()
    visitor.open(f"/event?id={event}")
    visitor.press("Discard")
    assert "is deleted" in visitor.text
    assert not db.sql("SELECT FROM outbox.events WHERE status = 'FAILED'")


def test_a_group_is_discarded(visitor, db, dead):
    dead(3)
    visitor.open("/sink?name=crm")
    visitor.follow("redrive or discard")
    visitor.press("Discard")
    assert "3 of 3 dead letters are deleted" in visitor.text
    assert not db.sql("SELECT FROM outbox.events WHERE status = 'FAILED'")


def test_what_an_event_waits_for_is_a_link(visitor, db, receiver):
    receiver.mode = status(500)
    db.webhook_sink("crm", receiver.url, retry="1h")
    first, second = db.enqueue("Order", "1", "first"), db.enqueue("Order", "1", "second")
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events WHERE blocked_by IS NOT NULL") == 1, what="the block")
    visitor.open(f"/event?id={second}")
    assert visitor.page.links["first"].endswith(first)
    visitor.open("/sink?name=crm")
    assert first in visitor.page.links["first"]


def test_no_row_of_an_event_is_left_out_between_two_pages(visitor, db, receiver):
    """Each event has a row for each of three sinks; pages of fifty end within an event."""
    for name in ("a", "b", "c"):
        db.webhook_sink(name, receiver.url)
        db.sql(f"SELECT outbox.pause('{name}')")
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) SELECT 'Order', n, 'type' FROM generate_series(1, 40) AS n")
    for path in ("/events", "/events?since=2020-01-01"):
        n = 0
        visitor.open(path)
        while True:
            n += visitor.answer.text.count("<td><a ")
            if "Go on" not in visitor.page.links:
                break
            visitor.follow("Go on")
        assert n == 120, path


def test_dead_letters_that_were_never_tried_are_the_last_ones(visitor, db, dead):
    dead(3)
    db.sql("UPDATE outbox.events SET last_attempt_at = NULL WHERE aggregate_id = 'k1'")
    visitor.open("/events?show=dead&sink=crm")
    assert visitor.answer.text.count("<td><a ") == 3


def test_a_group_is_acted_upon_as_shown(visitor, db, receiver, dead):
    """An error of several lines is one group, and the others are left alone."""
    dead(2)
    db.sql("UPDATE outbox.events SET last_error = E'line one\nline two\r\n<3>' WHERE aggregate_id = 'k1'")
    visitor.open("/sink?name=crm")
    group = next(link for text, link in visitor.page.links.items() if text == "redrive or discard")
    visitor.open(group)
    assert "1 of the last" in re.sub(" +", " ", visitor.text)
    visitor.press("Discard")
    assert "1 of 1 dead letters are deleted" in visitor.text
    assert db.value("SELECT count(*) FROM outbox.events WHERE status = 'FAILED'") == 1


def test_a_part_that_the_server_refuses_leaves_the_others(visitor, db, receiver):
    db.webhook_sink("crm", receiver.url)
    with db.connect() as other, other.transaction():
        other.execute("LOCK TABLE outbox.events IN ACCESS EXCLUSIVE MODE")
        answer = visitor.open("/")
        assert answer.status_code == 200 and "lock timeout" in visitor.text and 'data-refreshes="yes"' in answer.text


def test_a_probe_shows_its_steps(visitor, db, receiver):
    db.webhook_sink("crm", receiver.url)
    visitor.open("/sink?name=crm")
    visitor.press("Probe")
    assert "Probe of crm" in visitor.text and " ok " in visitor.text


def test_the_steps_of_a_probe_appear_as_they_happen(visitor, db, receiver):
    """The endpoint takes the connection, and then says nothing for some seconds."""
    db.webhook_sink("crm", receiver.url, timeout="8s")
    receiver.mode = HANG
    visitor.open("/sink?name=crm")
    form = visitor.form("Probe")
    began, first, text = time.monotonic(), None, ""
    with visitor.client.stream("POST", form.action, data=form.fields, headers={"Origin": visitor.console.url}) as answer:
        for part in answer.iter_text():
            text += part
            if first is None and ">ok</span>" in text:
                first = time.monotonic() - began
    whole = time.monotonic() - began
    assert first is not None and first < whole - 4, (first, whole, text)
    assert ">failed</span>" in text and text.rstrip().endswith("</html>")
    Document(text)
    assert visitor.open("/sink?name=crm").status_code == 200, "the session goes on"


def test_who_leaves_a_probe_ends_it(visitor, db, receiver):
    db.webhook_sink("crm", receiver.url, timeout="2min")
    receiver.mode = HANG
    visitor.open("/sink?name=crm")
    form = visitor.form("Probe")
    with visitor.client.stream("POST", form.action, data=form.fields, headers={"Origin": visitor.console.url}) as answer:
        next(answer.iter_text())
    wait_until(lambda: not db.sql("SELECT FROM pg_stat_activity WHERE application_name = 'outbox-console' AND state = 'active'"), what="the end of the probe")
    assert visitor.open("/").status_code == 200


def test_events_come_by_fifties(visitor, db, receiver):
    receiver.mode = HANG
    db.webhook_sink("crm", receiver.url)
    db.sql("SELECT outbox.pause('crm')")
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) SELECT 'Order', n, 'type' || n FROM generate_series(1, 120) AS n")
    for path in ("/events", "/events?sink=crm", "/events?since=2020-01-01"):
        seen = []
        visitor.open(path)
        while True:
            seen += [link for text, link in visitor.page.links.items() if text.startswith("Order: type")]
            if "Go on" not in visitor.page.links:
                break
            visitor.follow("Go on")
        assert len(seen) == len(set(seen)) == 120, path


@pytest.mark.parametrize("field, text", [("key", "7"), ("type", "type7")])
def test_a_filter_shows_these_events(visitor, db, receiver, field, text):
    db.webhook_sink("crm", receiver.url)
    db.sql("SELECT outbox.pause('crm')")
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) SELECT 'Order', n, 'type' || n FROM generate_series(1, 20) AS n")
    visitor.open(f"/events?{field}={text}")
    assert [text for text in visitor.page.links if text.startswith("Order: ")] == ["Order: type7"]


def test_the_message_and_the_payload_are_shown_on_demand(visitor, db, receiver, dead):
    [event] = dead(payload='{"secret": "payload text"}')
    visitor.open(f"/event?id={event}")
    assert "payload text" not in visitor.text
    visitor.follow("What is sent")
    assert "webhook-id" in visitor.text
    visitor.open(f"/event?id={event}")
    visitor.follow("Payload")
    assert "payload text" in visitor.text


def test_buttons_follow_the_rights(console, db, operator, dead):
    [event] = dead()
    from conftest import PASSWORD
    with Visitor(console(service=True)) as visitor:
        visitor.log_in(operator, PASSWORD)
        visitor.open(f"/event?id={event}")
        assert visitor.has("Redrive") and not visitor.has("Discard")
        assert "Payload" not in visitor.page.links and "What is sent" not in visitor.page.links
        visitor.open("/sink?name=crm")
        assert visitor.has("Pause") and not visitor.has("Probe")
        answer = visitor.post("/discard", {"id": event, "sink": "crm", "form_token": visitor.form("Pause").fields["form_token"]})
        assert answer.status_code == 403 and "permission denied" in visitor.text
    assert db.sql("SELECT FROM outbox.events WHERE status = 'FAILED'")


def test_read_only_changes_nothing(console, db, dead):
    [event] = dead()
    with Visitor(console("--read-only")) as visitor:
        visitor.enter()
        visitor.open(f"/event?id={event}")
        assert not visitor.has("Redrive") and not visitor.has("Discard")
        token = visitor.form("Log out").fields["form_token"]
        assert visitor.post("/redrive", {"id": event, "sink": "crm", "form_token": token}).status_code == 400
        assert "--read-only" in visitor.text
        for path in ("/", "/doctor", "/sink?name=crm", "/events?show=dead"):
            assert visitor.open(path).status_code == 200, visitor.text


def test_the_support_file_has_no_names(visitor, db, receiver):
    receiver.mode = status(400, body=b"body of the endpoint")
    db.webhook_sink("customer_4711", receiver.url, max_attempts="1")
    db.enqueue("Order", "key-0815", payload='{"a": "payload text"}')
    wait_until(lambda: db.sql("SELECT FROM outbox.events WHERE status = 'FAILED'"), what="the dead letter")
    visitor.open("/doctor")
    answer = visitor.open("/support.json")
    found = json.loads(answer.text)
    assert found["sinks"][0]["dead"] == 1 and found["checks"] and found["settings"]["outbox.workers"] == "1"
    for secret in ("customer_4711", "key-0815", "payload text", "127.0.0.1", "body of the endpoint", db.name):
        assert secret not in answer.text, secret


def test_a_lost_connection_is_told_and_heals(visitor, db):
    db.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'outbox-console'")
    answer = visitor.open("/")
    if answer.status_code == 503:
        assert "No connection to the database" in visitor.text
    wait_until(lambda: visitor.open("/").status_code == 200, what=lambda: visitor.text)


def test_no_query_while_nobody_looks(visitor, db):
    visitor.open("/")
    before = db.value("SELECT state_change FROM pg_stat_activity WHERE application_name = 'outbox-console'")
    time.sleep(4)
    assert db.value("SELECT state_change FROM pg_stat_activity WHERE application_name = 'outbox-console'") == before

"""Brokers that send what no broker sends: nothing may crash (the fixture no_crash looks), and nothing counts as delivered."""

import itertools
import struct
import time
from collections import Counter

import pytest
from outbox_rig import wait_until
from outbox_rig.kind_fixtures import (a_flood_ends_with_its_sink, a_flood_fills_no_memory, no_error_tells_an_address,
                                      only_the_event_that_breaks_the_connection_fails, the_machine_itself_is_refused)

from strange_broker import BLOCKED, BODY, HEADER, HEARTBEAT, RETURN, START, StrangeBroker, ack, frame, long, method, returned, short, tune
from test_connections import probe
from test_delivery import sinks
from test_failures import state_is

# What librabbitmq, which does not clear its memory, puts the next struct upon: properties whose message_id, as long as an id, is at an address of the
# broker's choice.
POINTERS = frame(BODY, 1, b"\x41" * 129 + struct.pack("<QQ", 36, 0x4141_4141_4141_4141) + b"\x41" * 248)


def sink(db, strange: StrangeBroker, **options: str) -> None:
    db.sql(f"CREATE SERVER rabbit FOREIGN DATA WRAPPER outbox_rabbitmq OPTIONS (hosts '127.0.0.1:{strange.port}', exchange 'e'"
           + "".join(f", {name} '{value}'" for name, value in options.items()) + ")")


HEADERS = {  # after RETURN: only then does the sink look for an id
    "of each other class": b"".join(RETURN + POINTERS + frame(HEADER, 1, struct.pack(">HHQH", class_id, 0, 0, 0x80)) for class_id in (10, 20, 30, 40, 50, 85, 90)),
    "without an id": RETURN + POINTERS + frame(HEADER, 1, struct.pack(">HHQH", 60, 0, 0, 0)),
    "unasked": POINTERS + frame(HEADER, 1, struct.pack(">HHQH", 60, 0, 0, 0x80) + short(b"x" * 36)),
}


@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS)
def test_content_headers_that_nobody_asked_for(db, headers):
    with StrangeBroker(message=headers + ack(1)) as strange:
        sink(db, strange)
        db.enqueue("Order", "1")
        wait_until(lambda: db.pending() == 0, 30, sinks(db))
        assert strange.connections == 1


ANSWERS = {
    "exchange": (POINTERS + BLOCKED, "exchange", "has blocked publishing"),
    "exchange, by another method": (method(2, 60, 80, struct.pack(">QB", 1, 0)), "exchange", "with another method"),
    "channel": (BLOCKED, "channel", "has blocked publishing"),
    "channel, by another method": (method(1, 20, 41), "channel", "with another method"),
    "confirm": (method(1, 20, 11, b"\0\0\0\0"), "channel", "with another method"),
    "open": (BLOCKED, "vhost", "cannot be opened"),
    "tune": (BLOCKED, "login", "asks for more"),
    "start": (BLOCKED, "login", "does not begin as a RabbitMQ broker does"),
}


@pytest.mark.parametrize("at", ANSWERS)
def test_a_probe_that_is_answered_by_another_method(db, at):
    answer, step, said = ANSWERS[at]
    with StrangeBroker(**{at.split(",")[0]: answer}) as strange:
        sink(db, strange)
        ok, message, _ = probe(db)[step]
        assert not ok and said in message


@pytest.mark.parametrize("frame_max", [1, 8, 4095])
def test_frames_that_are_too_small(db, frame_max):
    """A message in frames without a payload would have no end."""
    with StrangeBroker(tune=tune(frame_max)) as strange:
        sink(db, strange)
        db.enqueue("Order", "1")
        state_is(db, "circuit open", f"frames of at most {frame_max} bytes")
        assert f"frames of at most {frame_max} bytes" in probe(db, send=True)["login"][1]


REFUSED = {
    "channels": (b"".join(frame(BODY, channel, b"x" * 1000) for channel in range(3, 1000)), "a channel that is not open"),
    "a frame": (struct.pack(">BHI", BODY, 1, 2**31 - 1), "are agreed"),
    "a frame of all numbers": (struct.pack(">BHI", BODY, 1, 2**32 - 1), "are agreed"),
    "closed channels": (method(1, 20, 40, struct.pack(">H", 406) + short(b"PRECONDITION_FAILED") + b"\0\0\0\0") * 1000, "does not read them"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_flood_fills_no_memory(db, what):
    flood, error = REFUSED[what]
    with StrangeBroker(message=lambda: itertools.repeat(flood)) as strange:
        sink(db, strange)
        db.enqueue("Order", "1")
        a_flood_fills_no_memory(db, "rabbit", error, strange.hung_up)


FLOODS = {"heartbeats": frame(HEARTBEAT, 0, b"") * 8192, "alarms": (BLOCKED + method(0, 10, 61)) * 4096, "bodies": frame(BODY, 1, b"x" * 60_000)}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_a_flood_that_the_protocol_allows(db, flood):
    with StrangeBroker(message=lambda: itertools.chain([ack(1)], itertools.repeat(flood))) as strange:
        sink(db, strange)
        db.enqueue("Order", "1")
        wait_until(lambda: db.pending() == 0, 30, sinks(db))
        a_flood_ends_with_its_sink(db, "rabbit", strange.hung_up)


def test_a_flood_before_the_login(db):
    with StrangeBroker(start=lambda: itertools.chain([START], itertools.repeat(FLOODS["heartbeats"]))) as strange:
        sink(db, strange, connect_timeout="1s")
        db.enqueue("Order", "1")
        a_flood_fills_no_memory(db, "rabbit", "no answer in time", strange.hung_up)


def test_networks_that_are_refused(db):
    the_machine_itself_is_refused(db, "rabbitmq", exchange="e")


def test_no_error_tells_an_address(db):
    no_error_tells_an_address(db, "rabbitmq", exchange="e")


SECRET = "zqx7-horse-battery-staple"


@pytest.mark.parametrize("before", [200, 280, 290])
def test_a_secret_is_masked_before_its_text_is_cut(db, before):
    """The name of the broker's product is the only text that is longer than what is shown: the others have 255 bytes."""
    product = short(b"product") + b"S" + long(b"x" * before + SECRET.encode() + b"y" * 300)
    start = method(0, 10, 10, b"\x00\x09" + long(product) + long(b"PLAIN EXTERNAL") + long(b"en_US"))
    with StrangeBroker(start=start) as strange:
        sink(db, strange)
        db.create_mapping("rabbit", {"user": "app", "password": SECRET})
        db.enqueue("Order", "1")
        wait_until(lambda: db.pending() == 0, 30, sinks(db))
        shown = str(probe(db))
        assert "xxx" in shown and SECRET[:4] not in shown and SECRET[:4] not in db.pg.log.read_text()


def closes_without_a_word() -> list[bytes]:
    raise OSError  # closes the connection


ENDS = {"closed": closes_without_a_word, "541": lambda: [method(0, 10, 50, struct.pack(">H", 541) + short(b"INTERNAL_ERROR - bad") + b"\0\0\0\0")]}


@pytest.mark.parametrize("ends", ENDS)
def test_an_event_that_breaks_the_connection(db, ends):
    with StrangeBroker(message=lambda: ENDS[ends]() if b'"bad"' in strange.body else [ack(strange.tag)]) as strange:
        sink(db, strange, max_attempts="2", retry="50ms")
        only_the_event_that_breaks_the_connection_fails(db, "rabbit")
        assert ends in db.value("SELECT last_error FROM outbox.events")


def test_an_exchange_that_returns_what_it_delivers(db):
    """As that of the plugin for delayed messages does, with each message: the error names the cure, and few copies come until a user has read it."""
    bodies = Counter()

    def answer() -> list[bytes]:
        bodies[strange.body] += 1
        return [returned(strange.header, strange.body), ack(strange.tag)]

    with StrangeBroker(message=answer) as strange:
        sink(db, strange, max_attempts="3", retry="50ms")
        for n in range(20):
            db.enqueue("Order", str(n), payload=f'{{"n": {n}}}')
        state_is(db, "circuit open", "set option mandatory 'false'")
        time.sleep(10)  # in which they would come
        assert max(bodies.values()) <= 5 and sum(bodies.values()) <= 40, bodies
        assert db.sql("SELECT DISTINCT status, attempts FROM outbox.events") == [("PENDING", 0)]

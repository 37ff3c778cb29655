"""Brokers that send what no broker sends: nothing may crash (the fixture no_crash looks), and nothing counts as delivered."""

import struct

import pytest
from outbox_rig import wait_until

from strange_broker import BLOCKED, BODY, HEADER, StrangeBroker, ack, frame, method, short
from test_connections import probe
from test_delivery import sinks

# What librabbitmq, which does not clear its memory, puts the next struct upon: properties whose message_id, as long as an id, is at an address of the
# broker's choice.
POINTERS = frame(BODY, 1, b"\x41" * 129 + struct.pack("<QQ", 36, 0x4141_4141_4141_4141) + b"\x41" * 248)


def sink(db, strange: StrangeBroker, **options: str) -> None:
    db.sql(f"CREATE SERVER rabbit FOREIGN DATA WRAPPER outbox_rabbitmq OPTIONS (hosts '127.0.0.1:{strange.port}', exchange 'e'"
           + "".join(f", {name} '{value}'" for name, value in options.items()) + ")")


HEADERS = {
    "of each other class": b"".join(POINTERS + frame(HEADER, 1, struct.pack(">HHQH", class_id, 0, 0, 0)) for class_id in (10, 20, 30, 40, 50, 85, 90)),
    "without an id": POINTERS + method(1, 60, 50, struct.pack(">H", 312) + short(b"NO_ROUTE") + short(b"e") + short(b"k")) + POINTERS
    + frame(HEADER, 1, struct.pack(">HHQH", 60, 0, 0, 0)),
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

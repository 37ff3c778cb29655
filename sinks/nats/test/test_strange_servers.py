"""Servers that answer what JetStream does not: only a whole acknowledgement is one."""

from outbox_rig import wait_until

from strange_server import StrangeServer, message
from test_delivery import sinks

NO_ACKNOWLEDGEMENTS = [
    b"",
    b"+OK",
    b'{"stream":"',
    b'{"stream":"S"',
    b'{"stream":"S"}',
    b'{"stream":"S", "seq":}',
    b'{"stream":"S", "seq":1',
    b'{"stream":"S", "seq":1}}',
    b'{"stream":"S", "seq":1} x',
    b'{"stream":"S", "seq":0}',
    b'{"stream":"S", "seq":-1}',
    b'{"stream":"S", "seq":1.5}',
    b'{"stream":"S", "seq":"1"}',
    b'{"stream":"S", "seq":true}',
    b'{"stream":"", "seq":1}',
    b'{"stream":null, "seq":1}',
    b'{"stream":["S"], "seq":1}',
    b'{"stream":"S\\", "seq":1}',
    b'{"stream":"S", "seq":1, "x":1e999,',
    b'[{"stream":"S", "seq":1}]',
]
ACKNOWLEDGEMENTS = [
    b'{"stream":"S","seq":1}',
    b'{"stream":"S", "seq":18446744073709551615}',
    b'{"stream":"S", "domain":"d", "seq":7}',
    b'{"type":"io.nats.jetstream.api.v1.pub_ack_response","stream":"S","seq":2}',
]


def answered(db, answers: list[bytes]) -> list[tuple]:
    """Each event has a subject of its own, so that none waits for another one. Returns the numbers of those that are left when the last has been answered."""
    def answer(subject: bytes, reply: bytes) -> bytes:
        return message(reply, answers[int(subject.split(b".")[1])])

    with StrangeServer(answer) as strange:
        db.nats_sink("nats", strange, subject="${event_type}")
        for n in range(len(answers)):
            db.enqueue("Order", str(n), event_type=f"order.{n}")
        wait_until(lambda: strange.messages >= len(answers) and db.sink("in_flight", "nats") == (0,), 60, sinks(db))
        return [int(n) for (n,) in db.sql("SELECT aggregate_id FROM outbox.events ORDER BY aggregate_id::int")]


def test_only_a_whole_acknowledgement_is_one(db):
    assert answered(db, NO_ACKNOWLEDGEMENTS + ACKNOWLEDGEMENTS) == list(range(len(NO_ACKNOWLEDGEMENTS)))


def test_a_status_is_no_acknowledgement(db):
    with StrangeServer(lambda _, reply: message(reply, b'{"stream":"S", "seq":1}', b"NATS/1.0 408 Request Timeout\r\n\r\n")) as strange:
        db.nats_sink("nats", strange)
        db.enqueue("Order", "1")
        wait_until(lambda: db.sink("state", "nats") == ("degraded",), 30, sinks(db))
        assert "no stream" in db.sink("last_error", "nats")[0] and db.pending() == 1

"""Servers that answer what JetStream does not: only a whole acknowledgement is one."""

import itertools

import pytest
from outbox_rig import wait_until
from outbox_rig.kind_fixtures import (a_flood_ends_with_its_sink, a_flood_fills_no_memory, no_error_tells_an_address,
                                      only_the_event_that_breaks_the_connection_fails, the_machine_itself_is_refused)

from strange_server import INFO, StrangeServer, message
from streams import Stream
from test_connections import probe
from test_delivery import sinks
from test_failures import state_is

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
    b'{"stream":"S", "seq":' + b"1" * 21 + b"}",
    b'{"stream":"S", "seq":' + b"1" * 400 + b"}",
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
    seen = set()  # those that are refused come again, so their number says nothing

    def answer(subject: bytes, reply: bytes) -> bytes:
        n = int(subject.split(b".")[1])
        seen.add(n)
        return message(reply, (answers + [ACKNOWLEDGEMENTS[0]])[n])

    with StrangeServer(answer) as strange:
        db.nats_sink("nats", strange, subject="${event_type}")
        for n in range(len(answers)):
            db.enqueue("Order", str(n), event_type=f"order.{n}")
        wait_until(lambda: len(seen) == len(answers) and db.sink("in_flight", "nats") == (0,), 60, sinks(db))
        last = db.enqueue("Order", "last", event_type=f"order.{len(answers)}")  # what was answered before it is recorded with it, or was before
        wait_until(lambda: db.value("SELECT count(*) FROM outbox.events WHERE id = %s", last) == 0, 60, sinks(db))
        return [int(n) for (n,) in db.sql("SELECT aggregate_id FROM outbox.events ORDER BY aggregate_id::int")]


def test_only_a_whole_acknowledgement_is_one(db):
    assert answered(db, NO_ACKNOWLEDGEMENTS + ACKNOWLEDGEMENTS) == list(range(len(NO_ACKNOWLEDGEMENTS)))


def test_a_status_is_no_acknowledgement(db):
    with StrangeServer(lambda _, reply: message(reply, b'{"stream":"S", "seq":1}', b"NATS/1.0 408 Request Timeout\r\n\r\n")) as strange:
        db.nats_sink("nats", strange)
        db.enqueue("Order", "1")
        wait_until(lambda: db.sink("state", "nats") == ("degraded",), 30, sinks(db))
        assert "no stream" in db.sink("last_error", "nats")[0] and db.pending() == 1


def test_a_server_that_takes_logins_and_no_messages(db, server, name):
    """It closes each connection at the first message: the next server of the list is tried."""
    def hangs_up(_subject: bytes, _reply: bytes) -> bytes:
        raise ValueError

    stream = Stream(server, name)
    with StrangeServer(hangs_up) as strange:
        db.nats_sink("nats", server, subject=f"{name}.${{event_type}}", hosts=f"127.0.0.1:{strange.port}, 127.0.0.1:{server.port}")
        for n in range(10):
            db.enqueue("Order", str(n), event_type="made")
        wait_until(lambda: db.pending() == 0, 60, sinks(db))
        assert strange.messages > 0 and len(stream.read(10)) == 10


OWN_ERRORS = {10111: b"rollup not permitted", 10071: b"wrong last sequence: 7", 10165: b"invalid per-message TTL"}


@pytest.mark.parametrize("code", OWN_ERRORS)
def test_a_messages_own_error_does_not_hold_its_subject(db, code):
    """The stream refuses what one message asks for: the event fails, and the others of its subject are stored."""
    error = b'{"error":{"code":400,"err_code":%d,"description":"%s"},"stream":"S","seq":0}' % (code, OWN_ERRORS[code])
    with StrangeServer(lambda _, reply: message(reply, error if b'"bad"' in strange.body else b'{"stream":"S", "seq":1}')) as strange:
        db.nats_sink("nats", strange, subject="all")
        bad = db.enqueue("Order", "bad", payload='"bad"')
        for n in range(20):
            db.enqueue("Order", str(n))
        wait_until(lambda: db.pending() == 0, 30, sinks(db))
        [(event, attempts, failure)] = db.sql("SELECT id::text, attempts, last_error FROM outbox.events WHERE status = 'FAILED'")
        assert (event, attempts) == (bad, 1) and OWN_ERRORS[code].decode() in failure


def test_answers_that_nobody_reads(db):
    """PING after PING from a server that does not read."""
    with StrangeServer(then=lambda: itertools.repeat(b"PING\r\n" * 8192)) as strange:
        db.nats_sink("nats", strange)
        db.enqueue("Order", "1")
        a_flood_fills_no_memory(db, "nats", "bytes of answers, and does not read them", strange.hung_up)


FLOODS = {"+OK": b"+OK\r\n" * 8192, "errors": b"-ERR 'Permissions Violation for Publish to \"nosuch\"'\r\n" * 1000, "INFO": b'INFO {"headers":true}\r\n' * 1000}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_a_flood_that_the_protocol_allows(db, flood):
    with StrangeServer(then=lambda: itertools.repeat(flood)) as strange:
        db.nats_sink("nats", strange)
        wait_until(strange.begun.is_set, 30, sinks(db))
        a_flood_ends_with_its_sink(db, "nats", strange.hung_up)


def test_a_flood_before_the_login(db):
    with StrangeServer(then=lambda: itertools.repeat(FLOODS["+OK"]), pong=False) as strange:
        db.nats_sink("nats", strange, connect_timeout="1s")
        db.enqueue("Order", "1")
        a_flood_fills_no_memory(db, "nats", "no answer in time", strange.hung_up)
        assert "no answer in time" in probe(db)["login"][1]


def test_a_probe_among_messages_that_nobody_asked_for(db):
    with StrangeServer(then=lambda: itertools.repeat(message(b"other", b"") * 1000)) as strange:
        db.nats_sink("nats", strange, connect_timeout="1s")
        ok, said, _ = probe(db)["JetStream"]
        assert not ok and "no answer in time" in said


LONG = {"a line": b"INFO " + b"x" * 1_200_000, "a message": b"MSG a 1 %d\r\n" % 10**12}


@pytest.mark.parametrize("long", LONG.values(), ids=LONG)
def test_an_operation_has_a_largest_size(db, long):
    with StrangeServer(then=lambda: itertools.chain([long], itertools.repeat(b"x" * 1_000_000))) as strange:
        db.nats_sink("nats", strange)
        db.enqueue("Order", "1")
        a_flood_fills_no_memory(db, "nats", "is this the port of a NATS server", strange.hung_up)


def test_networks_that_are_refused(db):
    the_machine_itself_is_refused(db, "nats")


def test_no_error_tells_an_address(db):
    no_error_tells_an_address(db, "nats")


@pytest.mark.parametrize("most", [1, 100, 1023])
def test_a_limit_that_makes_no_sense(db, most):
    """It makes no event a dead letter."""
    with StrangeServer(info=INFO | {"max_payload": most}) as strange:
        db.nats_sink("nats", strange)
        db.enqueue("Order", "1")
        state_is(db, "circuit open", f"takes messages of at most {most} bytes")
        assert f"at most {most} bytes" in probe(db)["connect"][1]
        assert db.sql("SELECT status, attempts FROM outbox.events") == [("PENDING", 0)]


@pytest.mark.parametrize("later", [b"INFO {\"headers\":true}\r\n", b"INFO {\"headers\":true,\"max_payload\":0}\r\n", b"INFO {\"headers\":true,\"max_payload\":-1}\r\n"])
def test_an_info_without_a_limit(db, later):
    with StrangeServer(lambda _, reply: later + message(reply, b'{"stream":"S", "seq":1}')) as strange:
        db.nats_sink("nats", strange)
        for n in range(3):
            db.enqueue("Order", "1")
            wait_until(lambda: db.pending() == 0, 30, sinks(db))
        assert db.value("SELECT count(*) FROM outbox.events") == 0


SECRET = "zqx7-horse-battery-staple"


@pytest.mark.parametrize("before", [200, 270, 280, 290])
def test_a_secret_is_masked_before_its_text_is_cut(db, before):
    error = b'{"error":{"code":400,"err_code":10099,"description":"' + b"x" * before + SECRET.encode() + b"y" * 300 + b'"}}'
    with StrangeServer(lambda _, reply: message(reply, error)) as strange:
        db.nats_sink("nats", strange, {"token": SECRET}, max_attempts="1")
        db.enqueue("Order", "1")
        wait_until(lambda: db.value("SELECT last_error FROM outbox.events") is not None, 30, sinks(db))
        shown = str(db.sql("SELECT * FROM outbox.events")) + str(db.sql("SELECT * FROM outbox.sinks")) + str(probe(db, send=True))
        assert "xxx" in shown and SECRET[:4] not in shown and SECRET[:4] not in db.pg.log.read_text()


def test_an_event_that_breaks_the_connection(db):
    def answer(subject: bytes, reply: bytes) -> bytes:
        if subject == b"bad":
            raise OSError  # closes the connection
        return message(reply, b'{"stream":"S", "seq":1}')

    with StrangeServer(answer) as strange:
        db.nats_sink("nats", strange, subject="${event_type}", max_attempts="2", retry="50ms")
        only_the_event_that_breaks_the_connection_fails(db, "nats")

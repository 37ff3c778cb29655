"""Servers that reply what Redis does not: only the id of an entry is an entry."""

import itertools
import ssl

import pytest
from outbox_rig import wait_until
from outbox_rig.certificates import Authority
from outbox_rig.kind_fixtures import (a_flood_fills_no_memory, no_error_tells_an_address, only_the_event_that_breaks_the_connection_fails,
                                      the_machine_itself_is_refused)

from strange_server import StrangeServer, bulk
from test_connections import probe
from test_delivery import sinks
from test_failures import state_is


def sink(db, strange: StrangeServer, mapping: dict[str, str] = {}, **options: str) -> None:
    db.redis_sink("redis", strange, mapping, **options)


REPLIES = {
    "nil": (b"$-1\r\n", "nothing"),
    "no list": (b"*-1\r\n", "nothing"),
    "QUEUED": (b"+QUEUED\r\n", "QUEUED, as within a transaction"),
    "a status": (b"+1-1\r\n", "a status"),
    "0": (b":0\r\n", "a number"),
    "an empty list": (b"*0\r\n", "a list"),
    "a list of an id": (b"*1\r\n" + bulk("1-1"), "a list"),
    "an empty text": (bulk(""), "another text"),
    "half an id": (bulk("1526919030474-"), "another text"),
    "a text with an id": (bulk("1-1 "), "another text"),
}


@pytest.mark.parametrize("which", REPLIES)
def test_only_an_id_is_an_entry(db, which):
    reply, said = REPLIES[which]
    with StrangeServer(XADD=reply) as strange:
        sink(db, strange)
        db.enqueue("Order", "1")
        state_is(db, "circuit open", f"answers XADD with {said}")
        assert db.sql("SELECT status, attempts FROM outbox.events") == [("PENDING", 0)]
        ok, message, _ = probe(db, send=True)["send"]
        assert not ok and said in message


@pytest.mark.parametrize("reply", [b"$-1\r\n", b"+OK\r\n", b":-1\r\n", b"*0\r\n", bulk("1")])
def test_only_a_number_counts_replicas(db, reply):
    with StrangeServer(WAIT=lambda words: [b":0\r\n" if words[1] == b"0" else reply]) as strange:
        sink(db, strange, wait_replicas="1")
        db.enqueue("Order", "1")
        state_is(db, "circuit open", "answers WAIT with")
        assert db.sql("SELECT status, attempts FROM outbox.events") == [("PENDING", 0)]
        assert not probe(db)["replicas"][0]


@pytest.mark.parametrize(("command", "step"), [("HELLO", "login"), ("SELECT", "database"), ("PING", "ready")])
def test_only_the_usual_answer_is_a_login(db, command, step):
    with StrangeServer(**{command: b":1\r\n"}) as strange:
        sink(db, strange, database="1")
        db.enqueue("Order", "1")
        state_is(db, "circuit open", f"answers {command} with a number")
        assert not probe(db)[step][0]
        assert strange.count("XADD") == 0


def test_the_usual_answers(db):
    with StrangeServer() as strange:
        sink(db, strange, wait_replicas="1", database="1")
        db.enqueue("Order", "1")
        wait_until(lambda: db.pending() == 0, 30, sinks(db))
        assert strange.count("XADD") == 1


MEGABYTE = b"x" * 1_000_000
TOO_LARGE = {
    "a text": [b"$%d\r\n" % 10**15],
    "a text of all numbers": [b"$18446744073709551616\r\n"],
    "a line": [b"+"],
    "a list": [b"*4294967295\r\n"],
    "a list of lists": [b"*4000\r\n" * 100],
    "a deep list": [b"*1\r\n" * 200_000],
    "a list of much": [b"*2000\r\n" + b"$1000\r\n" + b"x" * 1000 + b"\r\n"] + [(b"$1000\r\n" + b"x" * 1000 + b"\r\n") * 1999],
}


def endless(parts: list[bytes]):
    return lambda _: itertools.chain(parts, itertools.repeat(MEGABYTE))


@pytest.mark.parametrize("reply", TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_reply_has_a_largest_size(db, reply):
    with StrangeServer(XADD=endless(reply)) as strange:
        sink(db, strange)
        db.enqueue("Order", "1")
        a_flood_fills_no_memory(db, "redis", "a reply is larger than any", strange.hung_up)
        assert db.sql("SELECT status, attempts FROM outbox.events") == [("PENDING", 0)]


def test_a_reply_to_a_login_and_a_probe_has_a_largest_size(db):
    with StrangeServer(HELLO=endless(TOO_LARGE["a text"])) as strange:
        sink(db, strange)
        db.enqueue("Order", "1")
        a_flood_fills_no_memory(db, "redis", "a reply is larger than any", strange.hung_up)
        assert "a reply is larger than any" in probe(db)["login"][1]
    with StrangeServer(TYPE=endless(TOO_LARGE["a list"])) as strange:
        db.sql(f"ALTER SERVER redis OPTIONS (SET hosts '127.0.0.1:{strange.port}', ADD stream 's')")
        assert "a reply is larger than any" in probe(db)["login"][1]


def test_a_reply_within_tls_has_a_largest_size(db, tmp_path):
    authority = Authority("the test's authority")
    own = authority.issue("server", "127.0.0.1", rsa_bits=2048)
    for name in ("certificate", "key"):
        (tmp_path / name).write_text(getattr(own, name))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    with StrangeServer(tls=context, XADD=endless(TOO_LARGE["a text"])) as strange:
        sink(db, strange, tls="true", ssl_ca_pem=authority.certificate)
        db.enqueue("Order", "1")
        a_flood_fills_no_memory(db, "redis", "a reply is larger than any", strange.hung_up)


def test_replies_to_nothing(db):
    with StrangeServer(XADD=lambda _: itertools.chain([bulk("1-1")], itertools.repeat(b":1\r\n" * 8192))) as strange:
        sink(db, strange)
        db.enqueue("Order", "1")
        a_flood_fills_no_memory(db, "redis", "replies to nothing", strange.hung_up)


SECRET = "zqx7-horse-battery-staple"


@pytest.mark.parametrize("before", [200, 280, 290, 380, 390])
def test_a_secret_is_masked_before_its_text_is_cut(db, before):
    with StrangeServer(XADD=b"-ERR " + b"x" * before + SECRET.encode() + b"y" * 300 + b"\r\n") as strange:
        sink(db, strange, {"password": SECRET}, max_attempts="1")
        db.enqueue("Order", "1")
        wait_until(lambda: db.value("SELECT last_error FROM outbox.events") is not None, 30, sinks(db))
        shown = str(db.sql("SELECT * FROM outbox.events")) + str(db.sql("SELECT * FROM outbox.sinks")) + str(probe(db, send=True))
        assert "xxx" in shown and SECRET[:4] not in shown and SECRET[:4] not in db.pg.log.read_text()


def test_a_secret_that_the_server_cuts(db):
    """As Redis 5 repeats HELLO."""
    password = SECRET * 4
    with StrangeServer(HELLO=b"-ERR unknown command `HELLO`, with args beginning with: `2`, `AUTH`, `default`, `" + password[:104].encode() + b"`, \r\n") as strange:
        sink(db, strange, {"password": password})
        db.enqueue("Order", "1")
        state_is(db, "circuit open", "Redis 6 or later is required")
        shown = str(db.sql("SELECT * FROM outbox.sinks")) + str(probe(db))
        assert SECRET[:4] not in shown and SECRET[:4] not in db.pg.log.read_text()


def test_networks_that_are_refused(db):
    the_machine_itself_is_refused(db, "redis")


def test_no_error_tells_an_address(db):
    no_error_tells_an_address(db, "redis")


def test_an_event_that_breaks_the_connection(db):
    def reply(words: list[bytes]) -> list[bytes]:
        if any(b'"bad"' in word for word in words):
            raise OSError  # closes the connection
        return [bulk(f"1-{strange.count('XADD')}")]

    with StrangeServer(XADD=reply) as strange:
        sink(db, strange, max_attempts="2", retry="50ms")
        only_the_event_that_breaks_the_connection_fails(db, "redis")

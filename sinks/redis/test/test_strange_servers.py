"""Servers that reply what Redis does not: only the id of an entry is an entry."""

import pytest
from outbox_rig import wait_until

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

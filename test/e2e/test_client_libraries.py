"""Which process loads the client libraries: a worker does; the server's start and sessions that enqueue do not."""

from pathlib import Path

import pytest
from outbox_rig import wait_until
from outbox_rig.paths import pg_config
from outbox_rig.receiver import SECRET

CLIENTS = ("librdkafka", "libcurl")


def loaded(pid: int) -> set[str]:
    """The client libraries, and the libraries of kinds of sink, that the process has mapped."""
    names = {Path(line.split()[-1]).name for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if line.count("/")}
    return {client for client in CLIENTS if any(name.startswith(client + ".") for name in names)} | {name for name in names if name.startswith("outbox_")}


def test_outbox_itself_needs_none():
    needed = Path(pg_config("pkglibdir") / "outbox.so").read_bytes()
    assert [client for client in CLIENTS if client.encode() in needed] == []


@pytest.fixture
def sinks(db, receiver):
    """Of both kinds; Kafka's has no broker."""
    db.sql("CREATE SERVER main FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:1', aggregates 'order', retention '1h')")
    db.webhook_sink("hook", receiver, SECRET)
    db.disconnect()


def test_a_session_that_enqueues_and_watches_loads_the_parts_that_make_messages(db, sinks, receiver):
    mine = db.value("SELECT pg_backend_pid()")
    event = db.enqueue("order", "1")
    wait_until(receiver.accepted, 20, "the webhook")
    db.sql("SELECT * FROM outbox.sinks")
    db.sql("SELECT * FROM outbox.metrics()")
    assert loaded(mine) == {"outbox_kafka_messages.so", "outbox_webhook_messages.so"}
    assert loaded(db.pg.pid) == set()
    worker = db.value("SELECT pid FROM outbox.workers WHERE database = current_database()")
    assert loaded(worker) == {"outbox_kafka.so", "outbox_webhook.so", *CLIENTS}
    db.sql("SELECT * FROM outbox.preview(%s)", event)
    assert loaded(mine) >= {"outbox_kafka.so", *CLIENTS}  # it is byte for byte what the worker sends

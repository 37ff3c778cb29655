"""Versions of librdkafka: the requested one is loaded, and one that is too old is reported."""

import os
from pathlib import Path

import pytest
from outbox_rig import librdkafka, wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import SECRET


# The directories of the library and its headers: the requested version's, or the system's.
WANTED = Path(os.environ.get("LIBRDKAFKA", "/usr"))


def doctor(db: Database, check: str) -> tuple[str, str, str | None]:
    return db.sql('SELECT status, detail, hint FROM outbox.doctor() WHERE "check" = %s', check)[0]


@pytest.mark.librdkafka
def test_the_worker_runs_what_was_asked_for(db, kafka, consume, aggregate):
    db.kafka_sink("main", kafka)
    event = db.enqueue(aggregate, "1")
    assert consume(f"outbox.event.{aggregate}").take(1)[0].id == event
    wanted = librdkafka.version(WANTED)
    assert f"librdkafka {wanted}, " in doctor(db, "version")[1]
    worker = db.value("SELECT pid FROM outbox.workers WHERE database = current_database()")
    assert librdkafka.loaded(worker).is_relative_to(WANTED)
    status, detail, hint = doctor(db, "librdkafka")
    assert (status, hint) == ("ok", None) and f"librdkafka {wanted} is supported" in detail


@pytest.mark.slow  # a library and a server of its own
def test_one_that_is_too_old(rig, kafka, consume, receiver, aggregate):
    """The server starts; its log, the sink and outbox.doctor() report the problem; other sinks deliver; no event is
    lost."""
    if not librdkafka.TOO_OLD.joinpath("lib/librdkafka.so.1").exists():
        pytest.skip("no ready-made one for this machine")
    pg = rig.postgres(settings={"outbox.poll_interval": "1s"}, env=librdkafka.environment(librdkafka.TOO_OLD))
    message = "librdkafka 1.9.2 is too old: outbox needs 2.0.2 or later"
    db = Database(pg, "versions").create()
    db.kafka_sink("main", kafka)
    db.webhook_sink("hook", receiver, secret=SECRET)
    event = db.enqueue(aggregate, "1")
    wait_until(receiver.accepted, 20, "the webhook")
    query = "SELECT state, last_error FROM outbox.sinks WHERE name = 'main'"
    wait_until(lambda: (row := db.sql(query)[0])[0] == "misconfigured" and row[1].startswith(message), 10, lambda: f"the sink to say so: {db.sql(query)}")
    log = pg.log.read_text()
    assert f'WARNING:  outbox sink "main" cannot be opened: {message}' in log and log.count(f"WARNING:  outbox: {message}") == 1
    worker = db.value("SELECT pid FROM outbox.workers WHERE database = current_database()")
    assert librdkafka.loaded(worker).is_relative_to(librdkafka.TOO_OLD)
    hint = ("Upgrade the package that brings it (Debian: librdkafka1), then end the workers, which have loaded it: "
            "SELECT pg_terminate_backend(pid) FROM outbox.workers;")
    status, detail, said = doctor(db, "librdkafka")
    assert (status, said) == ("error", f"-- {hint}") and detail.startswith(message)
    status, detail, said = doctor(db, "sink main")
    assert (status, said) == ("error", f"-- {hint}") and message in detail
    wait_until(lambda: db.pending() == 1, 10, "the webhook to be recorded, and the other to wait")

    db.disconnect()
    pg.env.clear()  # the package is upgraded
    pg.restart()
    assert consume(f"outbox.event.{aggregate}").take(1)[0].id == event
    wait_until(lambda: db.pending() == 0, 10, "the table to be empty")
    pg.stop()

"""kill -9 of anything, in the middle of a burst: all that was committed arrives, nothing else does, in order."""

import json
import os
import signal

import pytest
from outbox_rig import wait_until
from outbox_rig.postgres import alive, children
from outbox_rig.receiver import SECRET
from traffic import Traffic

MAX_IN_FLIGHT = 200  # small, so that the bound on duplicates means something


@pytest.fixture(scope="module", autouse=True)
def small_flights(pg):
    with pg.connect() as connection:
        connection.execute(f"ALTER SYSTEM SET outbox.max_in_flight = {MAX_IN_FLIGHT}")
        connection.execute("SELECT pg_reload_conf()")
    yield
    with pg.connect() as connection:
        connection.execute("ALTER SYSTEM RESET outbox.max_in_flight")
        connection.execute("SELECT pg_reload_conf()")


def kill_worker(db, pg, kafka):
    """The postmaster then restarts every process of the server."""
    os.kill(db.value("SELECT pid FROM outbox.workers WHERE database = %s", db.name), signal.SIGKILL)
    wait_until(lambda: "terminated by signal 9" in pg.log.read_text(errors="replace"), 20, "the postmaster to notice")
    pg.wait_ready()


def kill_postmaster(db, pg, kafka):
    """The postmaster alone: its children have to leave by themselves."""
    family = children(pg.pid)
    os.kill(pg.pid, signal.SIGKILL)
    wait_until(lambda: not any(alive(pid) for pid in [pg.pid, *family]), 20, "orphans to leave")
    pg.start()


def kill_server(db, pg, kafka):
    """All its processes at once."""
    pg.kill()
    pg.start()


def stop_immediately(db, pg, kafka):
    pg.restart("immediate")


def kill_broker(db, pg, kafka):
    kafka.kill()
    wait_until(lambda: db.value("SELECT state = 'circuit open' FROM outbox.sinks WHERE name = 'main'"), 20, "an open circuit")
    kafka.start()


@pytest.mark.kills_server
@pytest.mark.parametrize("fault", [kill_worker, kill_postmaster, kill_server, stop_immediately, kill_broker],
                         ids=lambda fault: fault.__name__)
def test_all_that_was_committed_arrives(db, pg, kafka, consume, aggregate, receiver, fault):
    db.kafka_sink("main", kafka)
    db.webhook_sink("crm", receiver, SECRET)
    consumer = consume(f"outbox.event.{aggregate}")
    with Traffic(db, aggregate) as traffic:
        records = consumer.take(200, 60)
        fault(db, pg, kafka)
        db.disconnect()  # the server may have ended it
        before = traffic.committed
        wait_until(lambda: traffic.committed >= before + 100, 60, "the writers to go on")
    expected = traffic.expected()
    seen = {record.id for record in records}

    def all_in(got) -> bool:
        if got:
            seen.add(got[-1].id)
        return seen >= expected

    records += consumer.take_until(all_in, 60, f"{len(expected)} events")
    wait_until(lambda: db.pending() == 0, 30, lambda: f"{db.pending()} events to leave: {db.sql('SELECT * FROM outbox.sinks')}")
    records += consumer.take_until(lambda got: consumer.at_end(), 20, "the end of the topic")
    traffic.check([(r.id, json.loads(r.value)) for r in records], MAX_IN_FLIGHT)
    traffic.check([(d.id, d.json()["data"]) for d in list(receiver.deliveries)], MAX_IN_FLIGHT)

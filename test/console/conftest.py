"""A server with passwords, a database with the extension, and the console in front of it."""

import itertools
import os

import pytest
from outbox_rig import wait_until
from visit import Console, Visitor, build

_numbers = itertools.count(1)
PASSWORD = "correct horse battery staple"


@pytest.fixture(scope="session", autouse=True)
def built():
    build()


@pytest.fixture(scope="session")
def pg(rig):
    return rig.postgres(settings={"outbox.poll_interval": "1s", "outbox.retention": "1h"}, tcp=True)


@pytest.fixture
def receiver(rig):
    """An endpoint without a secret."""
    with rig.receiver() as receiver:
        yield receiver


@pytest.fixture
def console(pg, db):
    """console(ARGUMENT..., service=True): a console of the test's database."""
    started = []

    def start(*arguments: str, conninfo: str = "", **options) -> Console:
        if not conninfo:  # a form's login is by password, which the socket does not ask for
            conninfo = f"host=127.0.0.1 port={pg.port} dbname={db.name}" if options.get("service") else pg.dsn(db.name)
        found = Console(f"test-{os.environ.get('SUITE', 'console')}-{next(_numbers)}", conninfo, *arguments, **options)
        started.append(found)
        found.start()
        return found

    yield start
    for each in started:
        each.stop()


@pytest.fixture
def visitor(console):
    """Somebody who has opened the link."""
    with Visitor(console()) as visitor:
        yield visitor.enter()


@pytest.fixture
def operator(db):
    """A role with the grants of docs/security.md, and a password."""
    name = f"operator{next(_numbers)}"
    with db.role(name, f"LOGIN PASSWORD '{PASSWORD}'"):
        db.sql(f"""GRANT pg_monitor TO {name}; GRANT USAGE ON SCHEMA outbox TO {name};
                   GRANT EXECUTE ON FUNCTION outbox.pause, outbox.resume, outbox.redrive, outbox.reset_stats, outbox.run_maintenance, outbox.story TO {name};
                   GRANT SELECT (id, sink, aggregate_type, aggregate_id, event_type, partition_key, created_at, available_at, attempts, status, last_error,
                                 sent_at, last_attempt_at, position, blocked_by, overtaken_by, redrive_late) ON outbox.events TO {name};
                   GRANT UPDATE (available_at) ON outbox.events TO {name}""")
        yield name
        db.disconnect()


@pytest.fixture
def dead(db, receiver):
    """dead(n): so many dead letters of the sink crm."""
    def make(n: int = 1, **more) -> list[str]:
        from outbox_rig.receiver import status
        receiver.mode = status(400, body=b"no such customer")
        if not db.sql("SELECT FROM pg_foreign_server WHERE srvname = 'crm'"):
            db.webhook_sink("crm", receiver.url, max_attempts="1")
        ids = [db.enqueue("Order", f"k{i}", **more) for i in range(n)]
        wait_until(lambda: db.value("SELECT count(*) FROM outbox.events WHERE status = 'FAILED'") >= n, what="the dead letters")
        return ids

    return make

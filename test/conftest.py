"""Fixtures of the end-to-end and fault tests: real parts, one database per test."""

import itertools
import os
import time

import pytest
from outbox_rig import Consumer, Rig, librdkafka, memcheck, patient, wait_until
from outbox_rig.crashes import crashes
from outbox_rig.database import Database
from outbox_rig.receiver import SECRET

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items):
    """A test's own timeout is written for a quiet machine."""
    for item in items:
        if marker := item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(patient(marker.args[0])), append=False)


@pytest.fixture(scope="session")
def rig():
    with Rig(f"test-{os.environ.get('SUITE', 'pytest')}") as rig:
        yield rig
    if found := memcheck.new_reports(ended=True):
        pytest.fail("\n".join(found), pytrace=False)


@pytest.fixture(scope="session")
def pg(rig):
    """A private server with outbox preloaded, and with the librdkafka that $LIBRDKAFKA names."""
    pg = rig.postgres(settings={"outbox.poll_interval": "1s", "wal_level": "logical", "wal_retrieve_retry_interval": "100ms"})
    if wanted := os.environ.get("LIBRDKAFKA"):
        assert librdkafka.loaded(pg.pid).is_relative_to(wanted)
    return pg


@pytest.fixture(scope="session")
def kafka(rig):
    """A broker shared by all tests; each test uses aggregate types, and so topics, of its own."""
    return rig.kafka(partitions=12)


@pytest.fixture
def db(pg):
    """A fresh database with the extension."""
    database = Database(pg, f"test{next(_numbers)}").create()
    yield database
    database.drop()


@pytest.fixture
def setting(pg, db):
    """setting(name, value): changes a setting for the duration of the test."""
    names = set()

    def set_it(name: str, value: str) -> None:
        names.add(name)
        pg.set(name, value)
        wait_until(lambda: db.value("SELECT current_setting(%s)", name) == value, what="the reload")

    yield set_it
    if names:
        pg.wait_ready()
        pg.reset(*names)


@pytest.fixture
def same_day():
    """For a test that names days: it does not begin shortly before midnight UTC."""
    left = -time.time() % 86400
    if left < 120:
        time.sleep(left + 1)


@pytest.fixture
def aggregate():
    """An aggregate type, and so a topic, that no other test uses."""
    return f"Order{next(_numbers)}"


@pytest.fixture
def receiver(rig):
    """A webhook endpoint that verifies signatures."""
    with rig.receiver(secret=SECRET) as receiver:
        yield receiver


@pytest.fixture
def other(rig):
    """Another one."""
    with rig.receiver(secret=SECRET) as receiver:
        yield receiver


@pytest.fixture
def consume(kafka):
    """consume("topic", ...): a consumer that reads these topics from the beginning."""
    consumers = []

    def open_consumer(*topics: str) -> Consumer:
        consumers.append(Consumer(kafka.bootstrap, list(topics)))
        return consumers[-1]

    yield open_consumer
    for consumer in consumers:
        consumer.close()


def _server_log(item):
    """The server's log file, if the test uses a server."""
    pg = item.funcargs.get("pg") if hasattr(item, "funcargs") else None
    return pg.log if pg else None


@pytest.fixture(autouse=True)
def no_crash(request):
    """No process of the server may crash, unless the test kills one deliberately, or do what memcheck reports."""
    pg = request.getfixturevalue("pg") if "pg" in request.fixturenames else None
    before = pg.log.stat().st_size if pg else 0
    request.node.log_start = before
    yield
    if pg and not request.node.get_closest_marker("kills_server"):
        found = crashes(pg.log, before)
        if found:
            pytest.fail("the server's log tells of a crash:\n" + "\n".join(found), pytrace=False)
    if found := memcheck.new_reports():
        pytest.fail("\n".join(found), pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """On failure, shows the end of the server's log of the test."""
    report = (yield).get_result()
    log = _server_log(item)
    if report.failed and log and log.exists():
        with open(log, errors="replace") as lines:
            lines.seek(getattr(item, "log_start", 0))
            tail = lines.readlines()[-30:]
        report.sections.append((f"server log ({log})", "".join(tail)))

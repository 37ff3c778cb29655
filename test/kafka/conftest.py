"""One broker for this suite, with a listener for every way to connect."""

import re

import pytest


@pytest.fixture(scope="session")
def kafka(rig):
    """As in other suites, with `kafka.security` in addition."""
    return rig.kafka(partitions=12, secured=True)


@pytest.fixture(scope="session")
def security(kafka):
    """Its listeners, users, certificates and tokens."""
    return kafka.security


@pytest.fixture(scope="session")
def debezium(rig, kafka):
    """Kafka Connect with a server and a database of its own, for the tests of the pages on Debezium. It confirms the
    slot's position at once."""
    pg = rig.postgres(settings={"outbox.poll_interval": "1s", "wal_level": "logical"}, tcp=True)
    debezium = rig.debezium(pg=pg, dbname="moving", kafka=kafka, jit=False, worker={"offset.flush.interval.ms": "300"})
    yield debezium
    debezium.stop()
    pg.stop()


@pytest.fixture
def librdkafka(db):
    """The version that the server has loaded: (2, 0, 2)."""
    return tuple(map(int, re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", db.libraries()).groups()))

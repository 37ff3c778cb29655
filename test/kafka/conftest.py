"""One broker for this suite: it also has a listener for every way to connect."""

import re

import pytest



@pytest.fixture(scope="session")
def kafka(rig):
    """As everywhere, with `kafka.security` besides."""
    return rig.kafka(partitions=12, secured=True)


@pytest.fixture(scope="session")
def security(kafka):
    """Its listeners, users, certificates and tokens."""
    return kafka.security


@pytest.fixture
def librdkafka(db):
    """The version that the server runs with: (2, 0, 2)."""
    return tuple(map(int, re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", db.value("SELECT libraries FROM outbox.library()")).groups()))

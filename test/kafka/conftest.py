"""One broker for this suite: it also has a listener for every way to connect."""

import pytest


@pytest.fixture(scope="session")
def kafka(rig):
    """As everywhere, with `kafka.security` besides."""
    return rig.kafka(partitions=12, secured=True)


@pytest.fixture(scope="session")
def security(kafka):
    """Its listeners, users, certificates and tokens."""
    return kafka.security

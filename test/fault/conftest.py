"""Fixtures of the tests that break things."""

import pytest


@pytest.fixture(scope="session")
def kafka(rig):
    """As in other suites; some tests kill it."""
    return rig.kafka(partitions=12, killed=True)

"""What several files of this suite start."""

import itertools
from collections.abc import Callable

import pytest

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def new_consumer_database(pg) -> Callable[[], str]:
    """new_consumer_database(): a database of a consumer's own, without the extension. Its URL."""
    def create() -> str:
        name = f"consumer{next(_numbers)}"
        with pg.connect() as admin:
            admin.execute(f"CREATE DATABASE {name}")
        return pg.url(name)
    return create

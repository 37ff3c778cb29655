"""Fixtures that several files of this suite share."""

import itertools
from collections.abc import Callable

import pytest

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def new_consumer_database(pg) -> Callable[[], str]:
    """new_consumer_database(): a place for a consumer's tables, without the extension. Returns its URL. (It is a
    schema, which is cheaper than a database and looks the same to the consumer.)"""
    with pg.connect() as admin:
        admin.execute("CREATE DATABASE consumers")

    def create() -> str:
        name = f"consumer{next(_numbers)}"
        with pg.connect("consumers") as admin:
            admin.execute(f"CREATE SCHEMA {name}")
        return f"{pg.url('consumers')}&options=-csearch_path%3D{name}"
    return create


@pytest.fixture
def plain(rig):
    """A receiver that verifies no signature."""
    with rig.receiver() as receiver:
        yield receiver

"""Fixtures: one server with the kind, one moto, a database and a front per test."""

import itertools

import pytest
from outbox_rig.database import Database

from front import Front
from moto import KEYS, REGION, Moto

pytest_plugins = ["outbox_rig.kind_fixtures"]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def make_moto(rig):
    """make_moto(): one more moto, stopped at the end of the session."""
    return lambda: rig._add(Moto(*rig._place("moto")))


@pytest.fixture(scope="session")
def moto(make_moto):
    return make_moto()


@pytest.fixture
def front(moto):
    front = Front(moto.port)
    yield front
    front.close()


class AwsDatabase(Database):
    def aws_sink(self, name: str, endpoint: str, mapping: dict[str, str] = KEYS, **options: str) -> None:
        with self._connected().transaction():
            self._create_server(name, "outbox_aws", {"endpoint": endpoint, "allow_http": "true", "allow_networks": "127.0.0.1", "aws_region": REGION} | options)
            if mapping:
                self.create_mapping(name, mapping)


@pytest.fixture
def db(pg):
    database = AwsDatabase(pg, f"test{next(_numbers)}")
    database.create()
    database.sql("CREATE EXTENSION outbox_aws")
    yield database
    database.drop()


@pytest.fixture
def name():
    """A name that no other test uses."""
    return f"orders{next(_numbers)}"

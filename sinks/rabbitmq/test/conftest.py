"""Fixtures: one server with the kind, one broker, a database per test."""

import itertools

import pytest
from outbox_rig.database import Database

from broker import Broker

pytest_plugins = ["outbox_rig.kind_fixtures"]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def make_broker(rig):
    """make_broker(...): one more broker, stopped at the end of the session."""
    return lambda **options: rig._add(Broker(*rig._place("rabbitmq"), **options))


@pytest.fixture(scope="session")
def broker(make_broker):
    return make_broker()


class RabbitDatabase(Database):
    def rabbit_sink(self, name: str, broker: Broker, mapping: dict[str, str] = {}, **options: str) -> None:
        with self._connected().transaction():
            self._create_server(name, "outbox_rabbitmq", {"hosts": f"127.0.0.1:{broker.port}", "exchange": "events"} | options)
            if mapping:
                self.create_mapping(name, mapping)


@pytest.fixture
def db(pg):
    database = RabbitDatabase(pg, f"test{next(_numbers)}")
    database.create()
    database.sql("CREATE EXTENSION outbox_rabbitmq")
    yield database
    database.drop()


@pytest.fixture
def exchange():
    """A name that no other test uses."""
    return f"events{next(_numbers)}"

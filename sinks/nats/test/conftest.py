"""Fixtures: one server with the kind, one NATS server, a database per test."""

import itertools

import pytest
from outbox_rig.database import Database

from nats_server import Server

pytest_plugins = ["outbox_rig.kind_fixtures"]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def make_server(rig):
    """make_server(...): one more server, stopped at the end of the session."""
    return lambda **options: rig._add(Server(*rig._place("nats"), **options))


@pytest.fixture(scope="session")
def server(make_server):
    return make_server()


class NatsDatabase(Database):
    def nats_sink(self, name: str, server: Server, mapping: dict[str, str] = {}, **options: str) -> None:
        with self._connected().transaction():
            self._create_server(name, "outbox_nats", {"hosts": f"127.0.0.1:{server.port}"} | options)
            if mapping:
                self.create_mapping(name, mapping)


@pytest.fixture
def db(pg):
    database = NatsDatabase(pg, f"test{next(_numbers)}")
    database.create()
    database.sql("CREATE EXTENSION outbox_nats")
    yield database
    database.drop()


@pytest.fixture
def name():
    """Of a stream and the first token of its subjects; no other test uses it."""
    return f"events{next(_numbers)}"

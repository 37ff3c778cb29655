"""Fixtures: one server with the kind, one Redis, a database per test."""

import itertools

import pytest
from outbox_rig.database import Database

from redis_server import RedisServer, Stream

pytest_plugins = ["outbox_rig.kind_fixtures"]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def make_redis(rig):
    """make_redis(...): one more Redis, stopped at the end of the session."""
    return lambda **options: rig._add(RedisServer(*rig._place("redis"), **options))


@pytest.fixture(scope="session")
def shared(make_redis):
    return make_redis()


@pytest.fixture
def server(shared):
    """The session's Redis, without keys, with its settings of the beginning."""
    shared.client().flushall()
    yield shared


@pytest.fixture
def stream(server):
    """A name that no other test uses."""
    return Stream(server, f"events{next(_numbers)}")


class RedisDatabase(Database):
    def redis_sink(self, name: str, server: RedisServer, mapping: dict[str, str] = {}, **options: str) -> None:
        with self._connected().transaction():
            self._create_server(name, "outbox_redis", {"hosts": f"127.0.0.1:{server.port}"} | options)
            if mapping:
                self.create_mapping(name, mapping)


@pytest.fixture
def db(pg):
    database = RedisDatabase(pg, f"test{next(_numbers)}")
    database.create()
    database.sql("CREATE EXTENSION outbox_redis")
    yield database
    database.drop()

"""Fixtures: one server with the kind, a gRPC server per test, a database per test."""

import itertools

import pytest
from outbox_rig.certificates import Authority
from outbox_rig.database import Database

from service import Service

pytest_plugins = ["outbox_rig.kind_fixtures"]

_numbers = itertools.count(1)


@pytest.fixture
def make_service(rig):
    """make_service(...): one more gRPC server, stopped at the end of the test."""
    made = []

    def make(**options) -> Service:
        made.append(Service(*rig._place("grpc"), **options))
        made[-1].start()
        return made[-1]

    yield make
    for service in made:
        service.stop()


@pytest.fixture
def service(make_service):
    return make_service()


@pytest.fixture(scope="session")
def authority():
    return Authority("the test's authority")


@pytest.fixture
def make_tls_service(make_service, authority):
    """With TLS, calls share connections also before libcurl 8.0.0."""
    own = authority.issue("service", "127.0.0.1", rsa_bits=2048)
    return lambda **options: make_service(tls={"authority": authority.certificate, "certificate": own.certificate, "key": own.key}, **options)


@pytest.fixture
def tls_service(make_tls_service):
    return make_tls_service()


@pytest.fixture
def tls_sink(db, authority):
    """Makes a sink with a client certificate."""
    client = authority.issue("the sink", "client", rsa_bits=2048)
    return lambda service, name="grpc", **options: db.grpc_sink(name, service, {"ssl_certificate_pem": client.certificate, "ssl_key_pem": client.key},
                                                   ssl_ca_pem=authority.certificate, **options)


class GrpcDatabase(Database):
    def grpc_sink(self, name: str, service: Service, mapping: dict[str, str] = {}, **options: str) -> None:
        with self._connected().transaction():
            self._create_server(name, "outbox_grpc", {"url": service.url, "allow_http": "true", "allow_networks": "127.0.0.0/8"} | options)
            if mapping:
                self.create_mapping(name, mapping)


@pytest.fixture
def db(pg):
    database = GrpcDatabase(pg, f"test{next(_numbers)}")
    database.create()
    database.sql("CREATE EXTENSION outbox_grpc")
    yield database
    database.drop()

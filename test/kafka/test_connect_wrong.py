"""Wrong ways to connect: the sink's state says what to do, no event is lost, and after the correction all are
delivered."""

import socket
from dataclasses import dataclass
from typing import Any

import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.process import free_port

from ways import client_key, nothing, password, sasl, sasl_plaintext, tls

pytestmark = pytest.mark.librdkafka


@dataclass
class Wrong:
    listener: str
    options: Any  # from the broker's security, like the others
    mapping: Any
    words: list[str]  # expected in last_error
    server: Any = nothing  # the correction
    user: Any = nothing


def at(listener):
    return lambda s: {"bootstrap_servers": s.bootstrap(listener)}


CASES = {
    "wrong password": Wrong(
        "SASL_SSL", lambda s: sasl(s, "PLAIN"), lambda s: password(s) | {"sasl_password": "not this one"},
        ['SASL authentication failed for user "outbox" by PLAIN', "user mapping"], user=password),
    "expired server": Wrong(
        "EXPIRED", tls, nothing, ["{bootstrap} failed: its certificate (CN=broker) has expired on 20"], at("SSL")),
    "misnamed server": Wrong(
        "MISNAMED", tls, nothing, ["its certificate (CN=broker) is not made out to that host"], at("SSL")),
    "unknown authority": Wrong(
        "SSL", lambda s: tls(s) | {"ssl_ca_pem": s.stranger.certificate}, nothing,
        ["not trusted here (CN=rig CA)", "ssl_ca_pem"], lambda s: {"ssl_ca_pem": s.ca_pem}),
    "expired client": Wrong(
        "MTLS", tls, lambda s: client_key(s.client_authority, expired=True),
        ["the client's certificate (CN=client) has expired on 20", "user mapping"],
        user=lambda s: client_key(s.client_authority)),
    "unknown client": Wrong(
        "MTLS", tls, lambda s: client_key(s.stranger), ["the client's certificate (CN=client) of authority CN=unknown CA is not accepted"],
        user=lambda s: client_key(s.client_authority)),
    "no client certificate": Wrong(
        "MTLS", tls, nothing, ["the broker wants a client certificate", "ssl_key_pem"], user=lambda s: client_key(s.client_authority)),
    "tls to plaintext": Wrong(
        "PLAINTEXT", tls, nothing, ["the broker does not speak TLS on this port", "now 'ssl'"], at("SSL")),
    "plaintext to tls": Wrong(
        "SSL", nothing, nothing, ["perhaps its port wants TLS or SASL;", "now 'plaintext'"], at("PLAINTEXT")),
    "plaintext to sasl": Wrong(
        "SASL_PLAINTEXT", nothing, nothing, ["perhaps its port wants TLS or SASL;", "now 'plaintext'"], at("PLAINTEXT")),
    "sasl to plaintext": Wrong(
        "PLAINTEXT", sasl_plaintext, password, ["the broker wants no SASL on this port", "now 'sasl_plaintext'"], at("SASL_PLAINTEXT")),
    "sasl without tls": Wrong(
        "SASL_SSL", sasl_plaintext, password, ["perhaps its port wants TLS;"], at("SASL_PLAINTEXT")),
    "mechanism not offered": Wrong(
        "SASL_PLAINTEXT", lambda s: sasl_plaintext() | {"sasl_mechanism": "SCRAM-SHA-256"}, password,
        ["the broker does not offer SASL mechanism SCRAM-SHA-256"], lambda s: {"sasl_mechanism": "PLAIN"}),
    "nobody listens": Wrong(
        "", lambda s: {"bootstrap_servers": f"127.0.0.1:{free_port()}"}, nothing, ["Connection refused"], at("PLAINTEXT")),
    "unknown host": Wrong(
        "", lambda s: {"bootstrap_servers": "no-such-host.invalid:9092"}, nothing, ["no-such-host.invalid:9092"], at("PLAINTEXT")),
}


@pytest.fixture(scope="module")
def crowd(pg, kafka):
    """All the wrong sinks, each with a pending event."""
    database = Database(pg, "connect_wrong").create()
    security = kafka.security
    for name, case in CASES.items():
        options = (at(case.listener)(security) if case.listener else {}) | case.options(security)
        database.kafka_sink(name, kafka, case.mapping(security), topic="wrong-" + name.replace(" ", "-"), aggregates=name, **options)
        for number in range(3):
            database.enqueue(name, "1", payload=f'{{"n": {number}}}')
    yield database
    database.drop()


@pytest.mark.parametrize("name", CASES)
def test_it_is_said_and_survived(crowd, kafka, security, consume, name):
    case = CASES[name]
    words = [word.format(bootstrap=security.bootstrap(case.listener) if case.listener else "") for word in case.words]

    def said():
        [(state, error)] = crowd.sql("SELECT state, last_error FROM outbox.sinks WHERE name = %s", name)
        return state == "circuit open" and all(word in (error or "") for word in words)
    wait_until(said, 15, lambda: f"{words} in {crowd.sql('SELECT state, last_error FROM outbox.sinks WHERE name = %s', name)}")

    waiting = crowd.sql("SELECT status, attempts, payload ->> 'n' FROM outbox.events WHERE sink = %s ORDER BY position", name)
    assert waiting == [("PENDING", 0, str(number)) for number in range(3)]
    if server := case.server(security):
        crowd.set_sink(name, **server)
    if mapping := case.user(security):
        crowd.set_mapping(name, **mapping) if case.mapping(security) else crowd.create_mapping(name, mapping)
    records = consume("wrong-" + name.replace(" ", "-")).take(3)
    assert [record.value for record in records] == [b'{"n": %d}' % number for number in range(3)]
    wait_until(lambda: crowd.value("SELECT state FROM outbox.sinks WHERE name = %s", name) == "idle", 10, "the circuit to close")


def test_a_broker_that_answers_no_handshake(db):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel takes connections, and nobody reads from them
        with db.connect() as connection:
            connection.execute("CREATE SERVER main FOREIGN DATA WRAPPER outbox_kafka OPTIONS"
                               f" (bootstrap_servers '127.0.0.1:{silent.getsockname()[1]}', security_protocol 'ssl')")
        db.enqueue("Order", "1")
        wait_until(lambda: db.state("main") == "circuit open", 25, lambda: str(db.sink("state, last_error", "main")))
        [error] = db.sink("last_error", "main")
        assert "does not answer the TLS handshake" in error and "(now 'ssl')" in error

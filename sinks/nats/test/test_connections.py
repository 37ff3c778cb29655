"""Ways to connect and to log in, what is said when that fails, and probes."""

import json
import re
import socket

import pytest
from outbox_rig import wait_until
from outbox_rig.kind_fixtures import Link, advice_is, logins_without_an_end, strange_peer, talking_peer
from outbox_rig.certificates import Authority
from outbox_rig.process import free_port

from operators import Operator, User, user_nkey
from strange_server import INFO
from streams import Stream
from test_delivery import sinks
from test_failures import degraded, state_is


@pytest.fixture(scope="module")
def authority():
    return Authority("the test's authority")


@pytest.fixture(scope="module")
def tls_server(make_server, authority):
    own = authority.issue("nats", "127.0.0.1")
    return make_server(tls={"authority": authority.certificate, "certificate": own.certificate, "key": own.key})


def probe(db, send: bool = False) -> dict[str, tuple]:
    return {step: (ok, message, hint) for step, ok, message, hint in db.sql("SELECT step, ok, message, hint FROM outbox.probe('nats', send => %s, timeout => '60s')", send)}


def delivers(db, stream) -> None:
    before = len(stream.messages)
    db.enqueue("Order", "1")
    stream.read(before + 1)


def shows_nowhere(db, secret: str) -> None:
    shown = str(db.sql("SELECT * FROM outbox.sinks")) + str(probe(db)) + db.pg.log.read_text()
    assert secret not in shown.replace(f"'{secret}'", "")


def test_user_and_password(db, make_server, name):
    server = make_server(config='authorization { users: [{ user: "app", password: "correct horse" }] }', login={"user": "app", "password": "correct horse"})
    stream = Stream(server, name)
    db.nats_sink("nats", server, {"user": "app", "password": "wrong battery"}, subject=f"{name}.x")
    db.enqueue("Order", "1")
    state_is(db, "circuit open", 'does not accept user "app"')
    assert "look at the user mapping" in db.sink("last_error", "nats")[0]
    steps = probe(db)
    assert steps["connect"][0] and not steps["login"][0] and "Authorization Violation" in steps["login"][1]
    shows_nowhere(db, "wrong battery")
    db.set_mapping("nats", password="correct horse")
    stream.read(1)
    steps = probe(db)
    assert list(steps) == ["connect", "login", "JetStream", "stream"] and all(ok for ok, _, _ in steps.values())
    assert 'user "app"' in steps["login"][1] and name in steps["stream"][1] and "nats-server 2." in steps["connect"][1]


def test_a_token(db, make_server, name):
    server = make_server(config='authorization { token: "s3cret words" }', login={"token": "s3cret words"})
    stream = Stream(server, name)
    db.nats_sink("nats", server, subject=f"{name}.x")
    state_is(db, "circuit open", "does not accept a client without a login")
    db.create_mapping("nats", {"token": "s3cret words"})
    delivers(db, stream)


def test_an_nkey(db, make_server, name):
    app, other = user_nkey(), user_nkey()
    server = make_server(config=f'authorization {{ users: [{{ nkey: "{app.public}" }}, {{ user: "test", password: "test" }}] }}', login={"user": "test", "password": "test"})
    stream = Stream(server, name)
    db.nats_sink("nats", server, {"credentials": other.seed}, subject=f"{name}.x")
    state_is(db, "circuit open", f"does not accept nkey {other.public}")
    shows_nowhere(db, other.seed)
    db.set_mapping("nats", credentials=app.seed)
    delivers(db, stream)


def test_credentials(db, make_server, name):
    operator = Operator()
    app, tests = User(operator), User(operator)
    server = make_server(config=operator.config(), login={"user_jwt_cb": tests.jwt_callback, "signature_cb": tests.signature_callback})
    stream = Stream(server, name)
    db.nats_sink("nats", server, {"credentials": app.credentials}, subject=f"{name}.x")
    for seconds in (4, 16, 64):  # on a busy machine they may expire before they are used
        gone = User(operator, expires_in=seconds)
        db.set_mapping("nats", credentials=gone.credentials)
        db.enqueue("Order", "1")
        wait_until(lambda: db.pending() == 0 or gone.public in (db.sink("last_error", "nats")[0] or ""), 60, sinks(db))
        if db.pending() == 0:
            break
    else:
        pytest.fail(sinks(db)())
    state_is(db, "circuit open", f"the credentials of {gone.public}")
    assert "user mapping" in db.sink("last_error", "nats")[0]
    assert any(words in db.pg.log.read_text() for words in ("Expired", "Authorization Violation"))
    shows_nowhere(db, gone.jwt)
    db.set_mapping("nats", credentials=app.credentials)
    delivers(db, stream)
    assert app.public in probe(db)["login"][1]


def test_rights(db, make_server, name):
    """Publishing that is not allowed, and an inbox."""
    rights = 'authorization {{ users: [{{ user: "admin", password: "admin" }}, {{ user: "app", password: "app", permissions: {{ publish: {publish}, subscribe: "own.>" }} }}] }}'
    server = make_server(config=rights.format(publish=f'"{name}.free"'), login={"user": "admin", "password": "admin"})
    stream = Stream(server, name)
    db.nats_sink("nats", server, {"user": "app", "password": "app"}, subject=f"{name}.${{event_type}}", max_attempts="2", retry="10ms")
    state_is(db, "circuit open", "refuses user \"app\" its inbox")
    assert "option inbox_prefix" in db.sink("last_error", "nats")[0]
    db.sql("ALTER SERVER nats OPTIONS (ADD inbox_prefix 'own')")
    db.sql("SELECT outbox.enqueue('Order', n::text, CASE n % 2 WHEN 0 THEN 'free' ELSE 'mine' END, to_jsonb(n)) FROM generate_series(1, 20) AS n")
    stream.read(10)
    degraded(db, f'subject "{name}.mine" is not allowed to be published to by user "app"')
    assert db.value("SELECT max(attempts) FROM outbox.events WHERE status = 'PENDING'") == 0
    assert probe(db)["JetStream"][:2] == (True, "the user may not ask about it")
    assert not probe(db, send=True)["send"][0] and "permissions" in probe(db, send=True)["send"][1]
    server.reload(rights.format(publish=f'"{name}.>"'))
    stream.read(20, 90)
    wait_until(lambda: db.pending() == 0, 30, sinks(db))
    assert stream.count() == 20


def test_several_hosts_and_the_first_one_dead(db, server, name):
    stream = Stream(server, name)
    db.nats_sink("nats", server, subject=f"{name}.x", hosts=f"127.0.0.1:{free_port()}, no-such-host.invalid, 127.0.0.1:{server.port}")
    delivers(db, stream)
    assert db.sink("state", "nats") in [("idle",), ("delivering",)]
    steps = db.sql("SELECT step, ok, message FROM outbox.probe('nats')")
    assert [(step, ok) for step, ok, _ in steps][:3] == [("connect", False), ("resolve", False), ("connect", True)]


FIRST = logins_without_an_end(b"INFO " + json.dumps(INFO).encode() + b"\r\n", b"+OK\r\n")


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_several_hosts_and_the_first_one_lets_nobody_in(db, server, name, first):
    stream = Stream(server, name)
    with talking_peer(first) as port:
        db.nats_sink("nats", server, subject=f"{name}.x", hosts=f"127.0.0.1:{port}, 127.0.0.1:{server.port}", connect_timeout="1s")
        delivers(db, stream)


def test_no_server(db, server, name):
    port = free_port()
    db.nats_sink("nats", server, subject=f"{name}.x", hosts=f"127.0.0.1:{port}")
    state_is(db, "circuit open", f"could not connect to 127.0.0.1 port {port}: Connection refused: is the server running")
    db.enqueue("Order", "1")
    state_is(db, "circuit open", "Connection refused")
    assert db.value("SELECT attempts FROM outbox.events") == 0
    assert probe(db)["connect"][2].startswith("Is the server running")


@pytest.mark.parametrize("answer, error", [
    (b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\r\nsecret of the endpoint", "does not speak the protocol of NATS"),
    (b"secret of", "does not speak the protocol of NATS"),
    (b"INFO secret of the endpoint\r\n", "its INFO is no JSON"),
    (b"+OK secret of the endpoint\r\n", "does not begin as a NATS server does"),
    (b'INFO {"version":"2.0.0","max_payload":1048576}\r\n', "the server knows no headers"),
    (b"", "takes the connection and gives no answer in time: is this its port, and is option tls as that port wants it?"),
    (None, "was lost before a first answer"),
])
def test_a_peer_that_is_no_server(db, server, answer, error):
    """Nothing of its answer is shown: sinks must not be a way to read from the server's network."""
    with strange_peer(answer) as port:
        db.nats_sink("nats", server, hosts=f"127.0.0.1:{port}", connect_timeout="500ms")
        state_is(db, "circuit open", error)
        assert error.split(": ")[0] in str(db.sql("SELECT * FROM outbox.probe('nats')"))
        assert "secret of" not in str(db.sql("SELECT * FROM outbox.sinks")) + str(db.sql("SELECT * FROM outbox.probe('nats')"))


def test_tls(db, tls_server, authority, name):
    stream = Stream(tls_server, name)
    db.nats_sink("nats", tls_server, subject=f"{name}.x", tls="true")
    state_is(db, "circuit open", "comes from an authority that is not trusted here")
    assert "ssl_ca_pem" in db.sink("last_error", "nats")[0]
    steps = probe(db)
    assert not steps["TLS"][0]
    db.sql(f"ALTER SERVER nats OPTIONS (ADD ssl_ca_pem '{authority.certificate}')")
    delivers(db, stream)
    assert list(probe(db)) == ["connect", "TLS", "login", "JetStream", "stream"] and all(ok for ok, _, _ in probe(db).values())
    db.sql("SELECT outbox.enqueue('Order', (n % 100)::text, 'x', to_jsonb(repeat('x', n))) FROM generate_series(1, 3000) AS n")
    stream.read(3001)


class LyingLink(Link):
    """Whoever is between sink and server can change what is said before the encryption begins."""

    def carry(self, reads, writes, there) -> None:
        while data := reads.recv(65536):
            writes.sendall(data if there else re.sub(rb'"max_payload":\d+', b'"max_payload":2048', data))


def test_a_limit_before_tls(db, make_server, authority, name):
    """It makes no event a dead letter; one that the server itself finds too large is found."""
    own = authority.issue("nats", "127.0.0.1")
    server = make_server(config="max_payload: 100KB", tls={"authority": authority.certificate, "certificate": own.certificate, "key": own.key})
    stream = Stream(server, name)
    with LyingLink(server.port) as link:
        db.nats_sink("nats", server, subject=f"{name}.x", tls="true", ssl_ca_pem=authority.certificate, hosts=f"127.0.0.1:{link.port}",
                     max_attempts="2", retry="50ms")
        bad = db.enqueue("Order", "bad", payload=json.dumps("x" * 110_000))
        db.sql("SELECT outbox.enqueue('Order', n::text, 'x', to_jsonb(repeat('x', 3000))) FROM generate_series(1, 100) AS n")
        stream.read(100)
        wait_until(lambda: db.pending() == 0, 60, sinks(db))
    [(event, error)] = db.sql("SELECT id::text, last_error FROM outbox.events WHERE status = 'FAILED'")
    assert event == bad and "Maximum Payload" in error
    assert stream.count() == 100


def test_tls_of_another_host(db, tls_server, authority, name):
    stream = Stream(tls_server, name)
    db.nats_sink("nats", tls_server, hosts=f"localhost:{tls_server.port}", tls="true", ssl_ca_pem=authority.certificate, subject=f"{name}.x")
    state_is(db, "circuit open", "is not made out to that host")
    db.sql("ALTER SERVER nats OPTIONS (ADD enable_ssl_certificate_verification 'false')")
    delivers(db, stream)


def test_tls_that_is_missing_on_one_side(db, server, tls_server):
    db.nats_sink("nats", server, tls="true")
    state_is(db, "circuit open", "offers no TLS")
    db.nats_sink("plain", tls_server)
    state_is(db, "circuit open", "takes connections with TLS only: set option tls", name="plain")


def test_a_handshake_that_hangs(db, server):
    """It ends with connect_timeout."""
    with strange_peer(b'INFO {"version":"2.9.10","max_payload":1048576,"headers":true,"tls_required":true}\r\n') as port:
        db.nats_sink("nats", server, hosts=f"127.0.0.1:{port}", tls="true", connect_timeout="500ms")
        state_is(db, "circuit open", "takes the connection and gives no answer in time to the handshake: name its TLS port in option hosts")
        assert "no answer in time to the handshake" in probe(db)["TLS"][1]


def test_a_client_certificate(db, make_server, authority, name):
    own, app = authority.issue("nats", "127.0.0.1"), authority.issue("app")
    server = make_server(tls={"authority": authority.certificate, "certificate": own.certificate, "key": own.key})
    stream = Stream(server, name)
    server.stop()
    server.config.write_text(server.config.read_text().replace("timeout: 5", "timeout: 5; verify: true"))
    server.start()
    tls = {"tls": "true", "ssl_ca_pem": authority.certificate, "subject": f"{name}.x"}
    stranger = Authority("nobody").issue("app")
    db.nats_sink("nats", server, {"ssl_certificate_pem": stranger.certificate, "ssl_key_pem": stranger.key}, **tls)
    state_is(db, "circuit open", "does not accept the client's certificate")
    db.sql("DROP USER MAPPING FOR PUBLIC SERVER nats")
    db.create_mapping("nats", {"ssl_certificate_pem": app.certificate, "ssl_key_pem": app.key})
    db.enqueue("Order", "1")
    wait_until(lambda: db.pending() == 0, 30, sinks(db))
    steps = probe(db)
    assert "the client's certificate" in steps["login"][1] and stream.name in steps["stream"][1]


def test_a_probe_sends_a_message_that_says_it_is_a_test(db, server, name):
    db.nats_sink("nats", server, subject=f"{name}.${{event_type}}")
    assert not probe(db)["stream"][0] and f"no stream takes {name}.>" in probe(db)["stream"][1]
    orders = Stream(server, name, [f"{name}.order.>"])
    assert probe(db)["stream"][0], "it may be for some of the events"
    assert not probe(db, send=True)["send"][0] and "is taken by no stream" in probe(db, send=True)["send"][1]
    everything = Stream(server, f"{name}-all", [f"{name}.outbox.>"])
    assert probe(db, send=True)["send"][0]
    [message] = everything.read(1)
    assert message.headers["outbox-probe"] == "true" and message.subject == f"{name}.outbox.probe" and message.body == b'{"test": true}'
    assert orders.count() == 0
    db.sql("ALTER SERVER nats OPTIONS (ADD stream 'ORDERS')")
    assert not probe(db)["stream"][0] and 'stream "ORDERS" does not take' in probe(db)["stream"][1]


class ByteByByte(Link):
    """It brings the server's answers one byte at a time."""

    def carry(self, reads, writes, there):
        writes.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := reads.recv(65536 if there else 1):
            writes.sendall(data)


def test_a_connection_that_carries_a_byte_at_a_time(db, server, name):
    """The sink understands the server wherever its text is cut."""
    stream = Stream(server, name)
    with ByteByByte(server.port) as link:
        db.nats_sink("nats", server, subject=f"{name}.x", hosts=f"127.0.0.1:{link.port}")
        db.sql("SELECT outbox.enqueue('Order', (n % 10)::text, 'x', to_jsonb(n)) FROM generate_series(1, 200) AS n")
        stream.read(200)
        wait_until(lambda: db.pending() == 0, 30, sinks(db))
        assert "was lost" not in str(db.sink("last_error", "nats"))


def test_typical_mistakes(db):
    db.sql("CREATE SERVER nats FOREIGN DATA WRAPPER outbox_nats OPTIONS (hosts '127.0.0.1:1')")
    advice_is(db, "nats", "stream")
    db.set_sink("nats", hosts="127.0.0.1:1, nats.example")
    advice_is(db, "nats", "encryption")

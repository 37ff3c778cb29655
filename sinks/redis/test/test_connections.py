"""Ways to connect, what is said when that fails, and probes."""

import contextlib
import re
import socket
import ssl
import threading
import warnings

import pytest
from outbox_rig import wait_until
from outbox_rig.kind_fixtures import advice_is, logins_without_an_end, strange_peer, talking_peer
from outbox_rig.certificates import Authority
from outbox_rig.paths import BUILD
from outbox_rig.process import free_port

from conftest import RedisDatabase
from test_delivery import sinks
from test_failures import all_wait, state_is
from test_replicas import in_sync


@pytest.fixture(scope="module")
def authority():
    return Authority("the test's authority")


@pytest.fixture(scope="module")
def tls_server(make_redis, authority):
    own = authority.issue("server", "127.0.0.1", rsa_bits=2048)
    return make_redis(tls={"authority": authority.certificate, "certificate": own.certificate, "key": own.key})


@pytest.fixture
def user(server):
    """user(*rules): a user of the server, with the password "correct horse"."""
    made = []

    def make(*rules: str) -> str:
        made.append(f"app{len(made)}")
        server.client().execute_command("ACL", "SETUSER", made[-1], "reset", "on", ">correct horse", *rules)
        return made[-1]

    yield make
    for name in made:
        server.client().execute_command("ACL", "DELUSER", name)


def probe(db, send: bool = False) -> dict[str, tuple]:
    return {step: (ok, message, hint) for step, ok, message, hint in db.sql("SELECT step, ok, message, hint FROM outbox.probe('redis', send => %s, timeout => '60s')", send)}


def delivers(db, stream) -> None:
    before = len(stream.entries)
    db.enqueue("Order", "1")
    stream.read(before + 1)


def test_a_user_with_the_least_rights(db, server, stream, user):
    name = user(f"~{stream.name}", "+xadd", "+ping")
    db.redis_sink("redis", server, {"user": name, "password": "wrong battery"}, stream=stream.name)
    db.enqueue("Order", "1")
    state_is(db, "circuit open", f'the login of user "{name}" was refused: WRONGPASS')
    assert "look at user and password in the user mapping" in db.sink("last_error", "redis")[0]
    steps = probe(db)
    assert steps["connect"][0] and not steps["login"][0] and "password" in steps["login"][1]
    shown = str(db.sql("SELECT * FROM outbox.sinks")) + str(steps) + db.pg.log.read_text()
    assert "wrong battery" not in shown.replace("password 'wrong battery'", "")
    db.set_mapping("redis", password="correct horse")
    stream.read(1)
    steps = probe(db, send=True)
    assert all(ok for ok, _, _ in steps.values()) and f'accepts user "{name}"' in steps["login"][1]
    assert "not known" in steps["stream"][1] and "not known" in steps["durability"][1]


def test_a_password_without_a_user(db, make_redis, stream):
    server = make_redis(settings={"requirepass": "secretwords"})
    db.redis_sink("redis", server, stream=stream.name)
    db.enqueue("Order", "1")
    state_is(db, "circuit open", "the server refuses a login without a password: NOAUTH")
    assert "give the user mapping a password" in db.sink("last_error", "redis")[0]
    db.create_mapping("redis", {"password": "secretwords"})
    wait_until(lambda: db.pending() == 0, 30, sinks(db))
    assert "secretwords" not in (str(db.sql("SELECT * FROM outbox.sinks")) + str(probe(db)) + db.pg.log.read_text()).replace("password 'secretwords'", "")


def test_commands_that_are_not_allowed(db, server, stream, user):
    name = user("~*", "+ping")
    db.redis_sink("redis", server, {"user": name, "password": "correct horse"}, stream=stream.name, max_attempts="1")
    all_wait(db, "the server refuses entries: NOPERM", "ACL SETUSER name +xadd")
    server.client().execute_command("ACL", "SETUSER", name, "+xadd")
    stream.read(100)


def test_streams_that_are_not_allowed(db, server, stream, user):
    name = user("~other", "+xadd", "+ping")
    db.redis_sink("redis", server, {"user": name, "password": "correct horse"}, stream=stream.name, max_attempts="1")
    for n in range(20):
        db.enqueue("Order", str(n))
    state_is(db, "degraded", f'stream "{stream.name}" cannot be written: NOPERM')
    server.client().execute_command("ACL", "SETUSER", name, f"~{stream.name}")
    stream.read(20)
    state_is(db, "idle")


def test_wait_that_is_not_allowed(db, server, stream, user):
    """It is found before an entry is sent, which would be sent again and again."""
    name = user("~*", "+xadd", "+ping")
    db.redis_sink("redis", server, {"user": name, "password": "correct horse"}, stream=stream.name, wait_replicas="1")
    db.enqueue("Order", "1")
    state_is(db, "circuit open", "WAIT is refused: NOPERM")
    assert stream.count() == 0


def test_a_database_that_is_not_there(db, server, stream):
    db.redis_sink("redis", server, stream=stream.name, database="99")
    state_is(db, "circuit open", "database 99 cannot be used: ERR DB index is out of range: correct option database")
    assert not probe(db)["database"][0]


def test_several_hosts_and_the_first_ones_dead(db, server, stream):
    db.redis_sink("redis", server, stream=stream.name, hosts=f"127.0.0.1:{free_port()}, no-such-host.invalid, 127.0.0.1:{server.port}")
    delivers(db, stream)
    assert db.sink("state", "redis") in [("idle",), ("delivering",)]
    steps = db.sql("SELECT step, ok, message FROM outbox.probe('redis')")
    assert [(step, ok) for step, ok, _ in steps][:3] == [("connect", False), ("resolve", False), ("connect", True)]


FIRST = logins_without_an_end(b"*2000\r\n", b"+a\r\n")  # a reply to HELLO


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_several_hosts_and_the_first_one_lets_nobody_in(db, server, stream, first):
    with talking_peer(first) as port:
        db.redis_sink("redis", server, stream=stream.name, hosts=f"127.0.0.1:{port}, 127.0.0.1:{server.port}", connect_timeout="1s")
        delivers(db, stream)


@pytest.mark.parametrize("answer, error", [
    (b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\r\nsecret of the endpoint", "does not speak the protocol of Redis"),
    (b"", "takes the connection and gives no answer in time: is this its port, and is option tls as that port wants it?"),
    (None, "was lost before a first answer"),
])
def test_a_peer_that_is_no_redis(db, server, answer, error):
    """Nothing of its answer is shown: sinks must not be a way to read from the server's network."""
    with strange_peer(answer) as port:
        db.redis_sink("redis", server, hosts=f"127.0.0.1:{port}", connect_timeout="500ms")
        state_is(db, "circuit open", error)
        assert error.split(": ")[0] in str(db.sql("SELECT * FROM outbox.probe('redis')"))
        assert "secret of" not in str(db.sql("SELECT * FROM outbox.sinks")) + str(db.sql("SELECT * FROM outbox.probe('redis')"))


def test_tls(db, tls_server, authority, stream):
    stream.server = tls_server
    db.redis_sink("redis", tls_server, hosts=f"127.0.0.1:{tls_server.tls_port}", tls="true", stream=stream.name)
    state_is(db, "circuit open", "comes from an authority that is not trusted here")
    assert "ssl_ca_pem" in db.sink("last_error", "redis")[0]
    steps = probe(db)
    assert steps["connect"][0] and not steps["TLS"][0]
    db.sql(f"ALTER SERVER redis OPTIONS (ADD ssl_ca_pem '{authority.certificate}')")
    delivers(db, stream)
    assert list(probe(db)) == ["connect", "TLS", "login", "role", "ready", "stream", "durability"] and all(ok for ok, _, _ in probe(db).values())
    db.sql("SELECT outbox.enqueue('Order', (n % 100)::text, 'x', to_jsonb(repeat('x', n))) FROM generate_series(1, 3000) AS n")
    stream.read(3001)


def test_tls_of_another_host(db, tls_server, authority, stream):
    stream.server = tls_server
    db.redis_sink("redis", tls_server, hosts=f"localhost:{tls_server.tls_port}", tls="true", ssl_ca_pem=authority.certificate, stream=stream.name)
    state_is(db, "circuit open", "is not made out to that host")
    db.sql("ALTER SERVER redis OPTIONS (ADD enable_ssl_certificate_verification 'false')")
    delivers(db, stream)


def test_tls_on_a_plain_port_and_the_reverse(db, tls_server, authority, stream):
    db.redis_sink("redis", tls_server, tls="true", ssl_ca_pem=authority.certificate, stream=stream.name, connect_timeout="500ms")
    state_is(db, "circuit open", "gives no answer in time to the handshake: name its TLS port in option hosts")
    assert "no answer in time to the handshake" in probe(db)["TLS"][1]
    db.redis_sink("plain", tls_server, hosts=f"127.0.0.1:{tls_server.tls_port}", stream=stream.name)
    state_is(db, "circuit open", name="plain")
    assert re.search(r"is this .* port.*, and (does it want TLS|is option tls as that port wants it)\?", db.sink("last_error", "plain")[0])


@pytest.fixture
def old_tls(authority):
    """A server that speaks nothing later than TLS 1.1; returns its port, and the versions of the handshakes that have succeeded."""
    context, versions = authority.issue("server", "127.0.0.1", rsa_bits=2048).server_context(security_level=0), []
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:  # the end of the test
                    return
                with peer, contextlib.suppress(OSError), context.wrap_socket(peer, server_side=True) as session:
                    versions.append(session.version())

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1], versions
        listener.shutdown(socket.SHUT_RDWR)


def test_a_server_with_an_old_tls(rig, old_tls, authority):
    """The sink refuses it also on a machine whose OpenSSL would take it. (Every kind with the option tls has its TLS from the kit.)"""
    port, versions = old_tls
    lenient = BUILD / "run" / "lenient-openssl.cnf"
    lenient.write_text("openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = lenient\n[lenient]\n"
                       "MinProtocol = TLSv1\nCipherString = DEFAULT:@SECLEVEL=0\n")
    with rig.postgres(env={"OPENSSL_CONF": str(lenient)}) as pg:
        db = RedisDatabase(pg, "old_tls")
        db.create()
        db.sql("CREATE EXTENSION outbox_redis")
        options = {"hosts": f"127.0.0.1:{port}", "tls": "true", "ssl_ca_pem": authority.certificate, "connect_timeout": "2s"}
        db._create_server("redis", "outbox_redis", options)
        db.enqueue("Order", "1")
        state_is(db, "circuit open", "TLS failed: the server speaks no TLS 1.2 or later")
        ok, message, hint = probe(db)["TLS"]
        assert not ok and "the server speaks no TLS 1.2 or later" in message and "certificate" not in hint, (message, hint)
    assert versions == []


def test_a_client_certificate(db, tls_server, authority, stream):
    stream.server = tls_server
    own, stranger = authority.issue("app"), Authority("nobody").issue("app")
    db.redis_sink("redis", tls_server, {"ssl_certificate_pem": own.certificate, "ssl_key_pem": own.key},
                  hosts=f"127.0.0.1:{tls_server.tls_port}", tls="true", ssl_ca_pem=authority.certificate, stream=stream.name)
    delivers(db, stream)
    db.sql("DROP USER MAPPING FOR PUBLIC SERVER redis")
    db.create_mapping("redis", {"ssl_certificate_pem": stranger.certificate, "ssl_key_pem": stranger.key})
    state_is(db, "circuit open", "does not accept the client's certificate")


def test_a_probe_sends_an_entry_that_says_it_is_a_test(db, server, stream):
    db.redis_sink("redis", server, stream=stream.name)
    assert "will create" in probe(db)["stream"][1] and stream.count() == 0
    assert probe(db, send=True)["send"][0]
    [entry] = stream.read(1)
    assert entry["header.outbox-probe"] == "true" and entry["type"] == "outbox.probe" and entry["payload"] == '{"test": true}'
    assert "is a stream" in probe(db)["stream"][1]


def test_a_probe_names_what_may_lose_entries(db, server, stream, make_redis):
    db.redis_sink("redis", server, stream=stream.name)
    assert "on disk when it counts as delivered" in probe(db)["durability"][1]
    server.client().set(stream.name, "something")
    assert probe(db)["stream"][:2] == (False, f'key "{stream.name}" is no stream, but has type string')
    weak = make_redis(settings={"appendonly": "no", "maxmemory-policy": "allkeys-lru"})
    db.sql(f"ALTER SERVER redis OPTIONS (SET hosts '127.0.0.1:{weak.port}', ADD wait_replicas '1')")
    steps = probe(db)
    assert "loses what came after its last snapshot" in steps["durability"][1] and "appendonly yes" in steps["durability"][2]
    assert "deletes whole streams" in steps["eviction"][1]
    assert steps["replicas"][:2] == (False, "0 of 1 replicas answered")
    replica = make_redis(replica_of=weak)
    wait_until(in_sync(weak), 30)
    assert probe(db)["replicas"][0]
    db.sql(f"ALTER SERVER redis OPTIONS (SET hosts '127.0.0.1:{replica.port}')")
    assert not probe(db)["role"][0] and "is a replica" in probe(db)["role"][1]


def test_typical_mistakes(db):
    db.sql("CREATE SERVER redis FOREIGN DATA WRAPPER outbox_redis OPTIONS (hosts '127.0.0.1:1')")
    advice_is(db, "redis", "maxlen")
    db.set_sink("redis", hosts="one.example, two.example")
    advice_is(db, "redis", "encryption", "replicas")

"""Ways to connect, what is said when that fails, and probes."""

import re
import select
import socket
import struct
import threading

import pytest
from outbox_rig import wait_until
from outbox_rig.kind_fixtures import Link, advice_is, logins_without_an_end, strange_peer, talking_peer
from outbox_rig.certificates import Authority
from outbox_rig.process import free_port

from queues import Queue
from strange_broker import HEARTBEAT, START, frame
from test_failures import state_is


@pytest.fixture(scope="module")
def authority():
    return Authority("the test's authority")


@pytest.fixture(scope="module")
def tls_broker(make_broker, authority):
    own = authority.issue("broker", "127.0.0.1", rsa_bits=2048)
    return make_broker(tls={"authority": authority.certificate, "certificate": own.certificate, "key": own.key})


def probe(db, send: bool = False) -> dict[str, tuple]:
    return {step: (ok, message, hint) for step, ok, message, hint in db.sql("SELECT step, ok, message, hint FROM outbox.probe('rabbit', send => %s, timeout => '60s')", send)}


def delivers(db, queue) -> None:
    before = len(queue.messages)
    db.enqueue("Order", "1")
    queue.read(before + 1)


def test_a_user_of_its_own(db, broker, exchange):
    queue = Queue(broker, exchange)
    broker.ctl("add_user", "app", "correct horse")
    broker.ctl("set_permissions", "app", "^$", ".*", "^$")
    db.rabbit_sink("rabbit", broker, {"user": "app", "password": "wrong battery"}, exchange=exchange)
    db.enqueue("Order", "1")
    state_is(db, "circuit open", 'the login of user "app" was refused')
    assert "look at user and password in the user mapping" in db.sink("last_error", "rabbit")[0]
    steps = probe(db)
    assert steps["connect"][0] and not steps["login"][0] and "password" in steps["login"][2]
    shown = str(db.sql("SELECT * FROM outbox.sinks")) + str(steps) + db.pg.log.read_text()
    assert "wrong battery" not in shown.replace("password 'wrong battery'", "")
    db.set_mapping("rabbit", password="correct horse")
    queue.read(1)
    assert all(ok for ok, _, _ in probe(db).values())
    assert "RabbitMQ" in probe(db)["login"][1] and '"app"' in probe(db)["login"][1]


def test_a_vhost(db, broker, exchange):
    db.rabbit_sink("rabbit", broker, exchange=exchange, vhost="shop")
    db.enqueue("Order", "1")
    state_is(db, "circuit open", 'vhost "shop" cannot be opened')
    assert "rabbitmqctl add_vhost" in db.sink("last_error", "rabbit")[0]
    broker.ctl("add_vhost", "shop")
    state_is(db, "circuit open", "refused for user")
    assert "set_permissions" in db.sink("last_error", "rabbit")[0]
    steps = probe(db)
    assert steps["login"][0] and not steps["vhost"][0]
    assert db.value("SELECT attempts FROM outbox.events") == 0
    broker.ctl("set_permissions", "-p", "shop", "guest", ".*", ".*", ".*")
    state_is(db, "degraded", f'exchange "{exchange}" does not exist in vhost "shop"')


def test_writing_that_is_not_allowed(db, broker, exchange):
    queue = Queue(broker, exchange)
    broker.ctl("add_user", "reader", "secret words")
    broker.ctl("set_permissions", "reader", "^$", "^$", ".*")
    db.rabbit_sink("rabbit", broker, {"user": "reader", "password": "secret words"}, exchange=exchange, max_attempts="1")
    ids = [db.enqueue("Order", str(n)) for n in range(20)]
    wait_until(lambda: db.sink("state", "rabbit") == ("degraded",) and "ACCESS_REFUSED" in str(db.sql("SELECT * FROM outbox.sinks")), 30)
    broker.ctl("set_permissions", "reader", "^$", ".*", ".*")
    assert {properties.message_id for _, properties, _ in queue.read(20, 60)} == set(ids)


def test_several_hosts_and_the_first_one_dead(db, broker, exchange):
    queue = Queue(broker, exchange)
    db.rabbit_sink("rabbit", broker, exchange=exchange, hosts=f"127.0.0.1:{free_port()}, no-such-host.invalid, 127.0.0.1:{broker.port}")
    delivers(db, queue)
    assert db.sink("state", "rabbit") in [("idle",), ("delivering",)]
    steps = db.sql("SELECT step, ok, message FROM outbox.probe('rabbit')")
    assert [(step, ok) for step, ok, _ in steps][:3] == [("connect", False), ("resolve", False), ("connect", True)]


FIRST = logins_without_an_end(START, frame(HEARTBEAT, 0, b""))


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_several_hosts_and_the_first_one_lets_nobody_in(db, broker, exchange, first):
    queue = Queue(broker, exchange)
    with talking_peer(first) as port:
        db.rabbit_sink("rabbit", broker, exchange=exchange, hosts=f"127.0.0.1:{port}, 127.0.0.1:{broker.port}", connect_timeout="1s")
        delivers(db, queue)


def test_the_next_host_when_one_dies(db, broker, make_broker, exchange):
    """The brokers know nothing of each other, so the queues show which of them got what."""
    other = make_broker()
    theirs, ours = Queue(other, exchange), Queue(broker, exchange)
    db.rabbit_sink("rabbit", broker, exchange=exchange, hosts=f"127.0.0.1:{other.port}, 127.0.0.1:{broker.port}")
    delivers(db, theirs)
    other.kill()
    delivers(db, ours)
    assert db.sink("state", "rabbit") in [("idle",), ("delivering",)]


class OutOfOrder(Link):
    """It answers as a busy broker does: confirm.select-ok comes behind the answer of another channel, if there is one within a second."""
    SELECT_OK = struct.pack(">HH", 85, 11)
    swapped = 0

    def carry(self, reads, writes, there):
        if there:
            super().carry(reads, writes, there)
        else:
            self.answer(reads, writes)

    def answer(self, reads, writes):
        def frame() -> bytes:
            head = reads.recv(7, socket.MSG_WAITALL)
            return head and head + reads.recv(struct.unpack(">xxxI", head)[0] + 1, socket.MSG_WAITALL)

        while answer := frame():
            if answer[7:11] == self.SELECT_OK:
                self.swapped += 1
                if select.select([reads], [], [], 1)[0]:
                    writes.sendall(frame())
            writes.sendall(answer)


def test_the_answers_of_two_channels_in_any_order(db, broker, exchange):
    queue = Queue(broker, exchange)
    with OutOfOrder(broker.port) as busy:
        db.rabbit_sink("rabbit", busy, exchange=exchange, connect_timeout="300s")
        delivers(db, queue)
        assert all(ok for ok, _, _ in probe(db).values()) and busy.swapped == 4  # sink and probe, two channels with confirms each


def test_no_broker(db, broker, exchange):
    port = free_port()
    db.rabbit_sink("rabbit", broker, exchange=exchange, hosts=f"127.0.0.1:{port}")
    state_is(db, "circuit open", f"could not connect to 127.0.0.1 port {port}: Connection refused: is the broker running")
    db.enqueue("Order", "1")
    state_is(db, "circuit open", "Connection refused")
    assert db.value("SELECT attempts FROM outbox.events") == 0
    assert probe(db)["connect"][2].startswith("Is the broker running")


@pytest.mark.parametrize("answer, error", [
    (b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\r\nsecret of the endpoint", "does not speak AMQP"),
    (b"", "takes the connection and gives no answer in time: is this its port, and is option tls as that port wants it?"),
    (b"AMQP\0\1\0\0", "speaks another version of AMQP"),
    (None, "was lost before a first answer"),
])
def test_a_peer_that_is_no_broker(db, broker, exchange, answer, error):
    """Nothing of its answer is shown: sinks must not be a way to read from the server's network."""
    with strange_peer(answer) as port:
        db.rabbit_sink("rabbit", broker, exchange=exchange, hosts=f"127.0.0.1:{port}", connect_timeout="500ms")
        state_is(db, "circuit open", error)
        assert error.split(": ")[0] in str(db.sql("SELECT * FROM outbox.probe('rabbit')"))
        assert "secret of" not in str(db.sql("SELECT * FROM outbox.sinks")) + str(db.sql("SELECT * FROM outbox.probe('rabbit')"))


def test_tls(db, tls_broker, authority, exchange):
    queue = Queue(tls_broker, exchange)
    tls = {"hosts": f"127.0.0.1:{tls_broker.tls_port}", "tls": "true", "exchange": exchange}
    db.rabbit_sink("rabbit", tls_broker, **tls)
    state_is(db, "circuit open", "comes from an authority that is not trusted here")
    assert "ssl_ca_pem" in db.sink("last_error", "rabbit")[0]
    steps = probe(db)
    assert steps["connect"][0] and not steps["TLS"][0]
    db.sql(f"ALTER SERVER rabbit OPTIONS (ADD ssl_ca_pem '{authority.certificate}')")
    delivers(db, queue)
    assert list(probe(db)) == ["connect", "TLS", "login", "vhost", "exchange"] and all(ok for ok, _, _ in probe(db).values())
    many = 3000
    db.sql("SELECT outbox.enqueue('Order', (n % 100)::text, 'x', to_jsonb(repeat('x', n))) FROM generate_series(1, 3000) AS n")
    queue.read(1 + many)


def test_tls_of_another_host(db, tls_broker, authority, exchange):
    db.rabbit_sink("rabbit", tls_broker, hosts=f"localhost:{tls_broker.tls_port}", tls="true", ssl_ca_pem=authority.certificate, exchange=exchange)
    state_is(db, "circuit open", "is not made out to that host")
    db.sql("ALTER SERVER rabbit OPTIONS (ADD enable_ssl_certificate_verification 'false')")
    queue = Queue(tls_broker, exchange)
    delivers(db, queue)


def test_tls_on_a_plain_port_and_the_reverse(db, tls_broker, authority, exchange):
    db.rabbit_sink("rabbit", tls_broker, tls="true", ssl_ca_pem=authority.certificate, exchange=exchange)
    state_is(db, "circuit open", "does not speak TLS on this port")
    db.rabbit_sink("plain", tls_broker, hosts=f"127.0.0.1:{tls_broker.tls_port}", exchange=exchange)
    state_is(db, "circuit open", name="plain")
    assert re.search(r"is this .* port.*, and (does it want TLS|is option tls as that port wants it)\?", db.sink("last_error", "plain")[0])


def test_a_handshake_that_hangs(db, broker, exchange):
    with strange_peer(b"") as port:
        db.rabbit_sink("rabbit", broker, exchange=exchange, hosts=f"127.0.0.1:{port}", tls="true", connect_timeout="500ms")
        state_is(db, "circuit open", "takes the connection and gives no answer in time to the handshake: name its TLS port in option hosts")
        assert "no answer in time to the handshake" in probe(db)["TLS"][1]


def test_a_client_certificate(db, tls_broker, authority, exchange):
    queue = Queue(tls_broker, exchange)
    own = authority.issue("app")
    db.rabbit_sink("rabbit", tls_broker, {"user": "guest", "password": "guest", "ssl_certificate_pem": own.certificate, "ssl_key_pem": own.key},
                   hosts=f"127.0.0.1:{tls_broker.tls_port}", tls="true", ssl_ca_pem=authority.certificate, exchange=exchange)
    delivers(db, queue)
    stranger = Authority("nobody").issue("app")
    db.sql("DROP USER MAPPING FOR PUBLIC SERVER rabbit")
    db.create_mapping("rabbit", {"user": "guest", "password": "guest", "ssl_certificate_pem": stranger.certificate, "ssl_key_pem": stranger.key})
    state_is(db, "circuit open", "does not accept the client's certificate")


def test_a_login_by_certificate_needs_the_brokers_plugin(db, tls_broker, authority, exchange):
    own = authority.issue("app")
    db.rabbit_sink("rabbit", tls_broker, {"ssl_certificate_pem": own.certificate, "ssl_key_pem": own.key},
                   hosts=f"127.0.0.1:{tls_broker.tls_port}", tls="true", ssl_ca_pem=authority.certificate, exchange=exchange)
    state_is(db, "circuit open", "rabbitmq_auth_mechanism_ssl")


def test_a_login_by_certificate(db, make_broker, authority, exchange):
    server, own = authority.issue("broker", "127.0.0.1", rsa_bits=2048), authority.issue("app")
    broker = make_broker(tls={"authority": authority.certificate, "certificate": server.certificate, "key": server.key}, plugins="rabbitmq_auth_mechanism_ssl",
                         settings={"auth_mechanisms.1": "PLAIN", "auth_mechanisms.2": "EXTERNAL", "ssl_cert_login_from": "common_name"})
    broker.ctl("add_user", "app", "unused words")
    broker.ctl("set_permissions", "app", "^$", ".*", "^$")
    queue = Queue(broker, exchange)
    db.rabbit_sink("rabbit", broker, {"ssl_certificate_pem": own.certificate, "ssl_key_pem": own.key},
                   hosts=f"127.0.0.1:{broker.tls_port}", tls="true", ssl_ca_pem=authority.certificate, exchange=exchange)
    delivers(db, queue)
    assert "accepts the client's certificate" in probe(db)["login"][1]


def test_a_probe_sends_a_message_that_says_it_is_a_test(db, broker, exchange):
    db.rabbit_sink("rabbit", broker, exchange=exchange)
    assert not probe(db)["exchange"][0]
    queue = Queue(broker, exchange, key="Order.#")
    assert not probe(db, send=True)["send"][0] and "no queue is bound" in probe(db, send=True)["send"][1]
    everything = Queue(broker, exchange, name=f"{exchange}-all")
    assert probe(db, send=True)["send"][0]
    [(method, properties, body)] = everything.read(1)
    assert properties.headers["outbox-probe"] == "true" and properties.type == "outbox.probe" and body == b'{"test": true}'
    assert queue.count() == 0


def test_an_idle_connection_stays_open_by_heartbeats(db, broker, exchange):
    queue = Queue(broker, exchange)
    db.rabbit_sink("rabbit", broker, exchange=exchange, heartbeat="1s")
    delivers(db, queue)
    connected = db.pg.log.read_text().count("connected to")
    pulses = threading.Event()
    pulses.wait(5)  # five heartbeats: the broker closes a connection that is silent for two
    delivers(db, queue)
    assert db.pg.log.read_text().count("connected to") == connected


def test_a_silent_broker_is_noticed_while_idle(db, broker, exchange):
    queue = Queue(broker, exchange)
    db.rabbit_sink("rabbit", broker, exchange=exchange, heartbeat="1s", connect_timeout="500ms")
    delivers(db, queue)
    broker.freeze()
    try:
        state_is(db, "circuit open", "no heartbeat")
    finally:
        broker.thaw()
    delivers(db, queue)


def test_typical_mistakes(db):
    create = 'CREATE SERVER "The Broker" FOREIGN DATA WRAPPER outbox_rabbitmq OPTIONS (exchange \'events\', hosts %s)'
    db.sql(create % "'localhost, [::1]:5672, 127.0.0.1'")
    advice_is(db, "The Broker")
    db.sql("""ALTER SERVER "The Broker" OPTIONS (SET hosts 'localhost, broker.example')""")
    advice_is(db, "The Broker", "encryption", "login")
    db.set_mapping("The Broker", user="guest", password="guest")
    db.set_sink("The Broker", tls="false")
    advice_is(db, "The Broker", "encryption", "login")
    db.sql("""ALTER SERVER "The Broker" OPTIONS (ADD enable_ssl_certificate_verification 'false')""")
    advice_is(db, "The Broker", "encryption")

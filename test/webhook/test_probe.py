"""outbox.probe() of webhooks over TLS: its explanations of problems, which a running sink gives too."""

import datetime
import socket
import ssl
import threading
import time
import warnings

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.certificates import Authority, self_signed
from outbox_rig.process import free_port
from outbox_rig.receiver import SECRET, Receiver, redirect, slow, status

HOST = "127.0.0.1"


def probe(db, sink: str, timeout: str = "10 s") -> list[tuple]:
    return db.sql("SELECT step, ok, message, hint FROM outbox.probe(%s, %s::interval)", sink, timeout)


class Handshakes:
    """A TLS server that sends an alert when it refuses a handshake (asyncio's closes the connection without one),
    and never responds to a request."""

    def __init__(self, context: ssl.SSLContext):
        self._context, self._listener = context, socket.create_server((HOST, 0))
        self.url = f"https://{HOST}:{self._listener.getsockname()[1]}/"
        self.requests = b""
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            try:
                with self._context.wrap_socket(connection, server_side=True) as tls:
                    self.requests += tls.recv(1000)
            except OSError:
                connection.close()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


class Endpoints:
    """TLS servers, each with a problem, and a sink for each that trusts `authority`."""

    def __init__(self, rig, db):
        self.rig, self.db = rig, db
        self.authority, self.clients, self.stranger = Authority("rig CA"), Authority("client CA"), Authority("stranger CA")
        self.receivers: dict[str, Receiver | Handshakes] = {}

    def add(self, name: str, context: ssl.SSLContext, handshakes: bool = False) -> None:
        receiver = self.receivers[name] = Handshakes(context) if handshakes else self.rig.receiver(tls=context)
        self.db.webhook_sink(name, receiver.url, ssl_ca_pem=self.authority.certificate, events="none")


@pytest.fixture
def endpoints(rig, db):
    endpoints = Endpoints(rig, db)
    yield endpoints
    for receiver in endpoints.receivers.values():
        receiver.stop()


def day(days: int) -> str:
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)).strftime("%Y-%m-%d")


def test_without_tls(db, receiver):
    """Which endpoints respond, and that no event is sent."""
    db.webhook_sink("good", receiver)
    assert [step[:3] for step in probe(db, "good")] == [
        ("resolve", True, "the url's host has an address"), ("connect", True, f"127.0.0.1 port {receiver.port} accepts the connection"),
        ("answer", True, "the endpoint answers requests (OPTIONS *: HTTP 401)")]
    [ping] = receiver.deliveries
    assert (ping.path, ping.body) == ("*", b"") and not [name for name in ping.headers if name.startswith("webhook-")]
    db.webhook_sink("refused", f"http://127.0.0.1:{free_port()}/")
    db.webhook_sink("unknown", "http://no-such-host.invalid/")
    for sink, step, words in (("refused", "connect", "Connection refused"), ("unknown", "resolve", "Could not resolve host")):
        *_, (last, ok, message, hint) = probe(db, sink)
        assert (last, ok) == (step, False) and words in message and hint, (last, message)


SEND = "SELECT step, ok, message, hint FROM outbox.probe('crm', send => true) WHERE step = 'send'"


def test_a_test_event_on_demand(db, receiver):
    """It is signed and sent like an event, but marked as a test; the hint explains a refusal."""
    db.webhook_sink("crm", receiver, SECRET)
    [(_, ok, message, hint)] = db.sql(SEND)
    assert ok and "HTTP 20" in message and hint is None, message
    [test] = receiver.accepted()
    assert test.headers["outbox-probe"] == "true" and test.json()["type"] == "outbox.probe" and test.json()["data"] == {"test": True}
    assert db.sql("SELECT (SELECT count(*) FROM outbox.events), delivered, dead_total FROM outbox.sinks") == [(0, 0, 0)]
    for answer, words in ((status(401, body=b"who are you"), "token"), (status(404), "option url"), (status(500), "endpoint's log"),
                          (redirect("http://elsewhere.invalid/"), "redirects are not followed")):
        receiver.mode = answer
        [(_, ok, message, hint)] = db.sql(SEND)
        assert not ok and message.startswith("HTTP ") and words in hint, (message, hint)


def test_a_mute_endpoint(db):
    """It accepts the connection and never responds: the probe ends in time."""
    with socket.create_server((HOST, 0)) as mute:
        db.webhook_sink("mute", f"https://{HOST}:{mute.getsockname()[1]}/")
        start = time.monotonic()
        steps = probe(db, "mute", "500 ms")
        assert 0.5 <= time.monotonic() - start < 9, "not the default of 10 s"
    assert steps[-1][:3] == ("TLS", False, "the endpoint takes the connection and does not answer the handshake")


def test_an_endpoint_that_takes_connections_and_answers_nothing(endpoints, db):
    """Sink and probe say so, and what the url may be wrong about."""
    tls = endpoints.receivers["tls"] = Handshakes(endpoints.authority.issue("crm", HOST).server_context())
    wants_tls = "; perhaps this port wants TLS, and the url must begin with https (libcurl: "
    with socket.create_server((HOST, 0)) as mute:
        port = mute.getsockname()[1]
        said = {
            "mute": (f"http://{HOST}:{port}/", "the endpoint takes the connection and does not answer the request" + wants_tls),
            "plain": (tls.url.replace("https", "http"), "the endpoint closed the connection without an answer" + wants_tls),
            "handshake": (f"https://{HOST}:{port}/", "TLS failed: the endpoint takes the connection and does not answer the handshake. Is it running"),
            "after": (tls.url, "the endpoint closed the connection without an answer (libcurl: "),
        }
        for sink, (url, _) in said.items():
            db.webhook_sink(sink, url, ssl_ca_pem=endpoints.authority.certificate, events="none", timeout="1s")
            db.enqueue("Order", sink, sink=sink)
        for sink, (_, words) in said.items():
            wait_until(lambda: words in (db.sink("last_error", sink)[0] or ""), 20, lambda: db.sql("SELECT * FROM outbox.sinks"))
            assert db.state(sink) in ("failing", "circuit open")
            *_, (step, ok, message, _) = probe(db, sink)
            assert (step, ok) == ("TLS" if sink == "handshake" else "answer", False)
            assert message.split(" (libcurl")[0] == words.split(" (libcurl")[0].removeprefix("TLS failed: ").removesuffix(". Is it running")


@pytest.mark.parametrize("text", ["The plain HTTP request was sent to HTTPS port", "Client sent an HTTP request to an HTTPS server."])
def test_an_endpoint_that_says_that_it_wants_tls(db, rig, text):
    receiver = rig.receiver(mode=status(400, body=text.encode()))
    db.webhook_sink("crm", receiver)
    step, ok, message, _ = probe(db, "crm")[-1]
    receiver.stop()
    assert (step, ok) == ("answer", False) and text in message


@pytest.mark.slow
def test_a_probe_waits_as_long_as_the_sink(db, receiver):
    """Otherwise it would report a failure where the sink delivers. A caller who gives it less time is told so."""
    db.webhook_sink("crm", receiver, SECRET, timeout="30s")
    receiver.mode = slow(11)
    [(_, ok, message, hint)] = db.sql(SEND)
    assert ok and "HTTP 20" in message and hint is None, (message, hint)
    receiver.mode = slow(1)
    [(_, ok, message, hint)] = db.sql("SELECT step, ok, message, hint FROM outbox.probe('crm', '500 ms', send => true) WHERE step = 'send'")
    assert not ok and hint == "SELECT * FROM outbox.probe('crm', '35000 ms', send => true); -- waits as long as the sink does", (message, hint)
    assert db.sql(hint)[-1][1]
    patience = "SELECT outbox_internal.probe_patience(oid) FROM pg_foreign_server WHERE srvname = 'crm'"
    for given, milliseconds in (("5min", 300000), ("2m", 125000), ("15s", 20000), ("16s", 21000), ("500ms", 20000)):
        db.set_sink("crm", timeout=given)
        assert db.value(patience) == milliseconds, given


def test_certificates(endpoints, db):
    """Each problem in plain words, with names and dates of the certificate, and with what to do. A sink's last error
    is the same."""
    issue = endpoints.authority.issue
    endpoints.add("good", issue("good", HOST).server_context())
    endpoints.add("expired", issue("crm", HOST, expired=True).server_context())
    endpoints.add("early", issue("crm", HOST, days=(1, 2)).server_context())
    endpoints.add("misnamed", issue("crm", "crm.example", "10.1.2.3").server_context())
    endpoints.add("self_signed", self_signed("crm", HOST).server_context())
    endpoints.add("stranger", endpoints.stranger.issue("crm", HOST).server_context())
    endpoints.add("weak", issue("crm", HOST, rsa_bits=1024).server_context(security_level=0))
    said = {
        "expired": (f"the endpoint's certificate (CN=crm) has expired on {day(-1)} ", "must renew it"),
        "early": (f"the endpoint's certificate (CN=crm) is not valid before {day(1)} ", f"clocks: the time here is {day(0)} "),
        "misnamed": ("the endpoint's certificate is made out to crm.example, 10.1.2.3, and not to 127.0.0.1", "Correct the url"),
        "self_signed": ("the endpoint's certificate (CN=crm) is self-signed, and not trusted here", "option ssl_ca_pem"),
        "stranger": ("the endpoint's certificate (CN=crm) comes from an authority that is not known here (CN=stranger CA)", "option ssl_ca_pem"),
        "weak": ("the endpoint's certificate (CN=crm) has a key that is too weak (RSA, 1024 bits)", "must renew it"),
    }
    port = endpoints.receivers["good"].port
    assert [step[:3] for step in probe(db, "good")] == [
        ("resolve", True, "the url's host has an address"), ("connect", True, f"127.0.0.1 port {port} accepts the connection"),
        ("TLS", True, "the endpoint's certificate is accepted"), ("answer", True, "the endpoint answers requests (OPTIONS *: HTTP 200)")]
    for sink, (message, hint) in said.items():
        *before, (step, ok, told, next_step) = probe(db, sink)
        assert [step[:2] for step in before] == [("resolve", True), ("connect", True)], before
        assert (step, ok) == ("TLS", False) and told.startswith(message) and hint in next_step, (sink, told, next_step)
        db.enqueue("Order", "1", sink=sink)
    for sink, (message, hint) in said.items():
        wait_until(lambda: db.value("SELECT state FROM outbox.sinks WHERE name = %s", sink) == "circuit open", 20, f"{sink} to be down")
        error = db.value("SELECT last_error FROM outbox.sinks WHERE name = %s", sink)
        assert error.startswith(f"TLS failed: {message}") and hint in error, error
    assert db.value("SELECT sum(attempts) FROM outbox.events") == 0  # only the sink is to blame
    db.set_sink("stranger", ssl_ca_pem=endpoints.stranger.certificate)
    wait_until(lambda: endpoints.receivers["stranger"].accepted(), 20, "the event, once the authority is given")
    assert not any(receiver.deliveries for name, receiver in endpoints.receivers.items() if name not in ("good", "stranger"))


def test_other_faults_of_tls(endpoints, db, rig):
    """A port without TLS, an old version."""
    plain = endpoints.receivers["plain"] = rig.receiver()
    db.webhook_sink("plain", plain.url.replace("http:", "https:"))
    old = endpoints.authority.issue("crm", HOST).server_context(security_level=0)
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    endpoints.add("old", old, handshakes=True)
    for sink, message in (("plain", "the endpoint does not speak TLS on this port"), ("old", "the endpoint speaks no TLS 1.2 or later")):
        step, ok, told, hint = probe(db, sink)[-1]
        assert (step, ok, told) == ("TLS", False, message) and hint, (sink, told, hint)
    assert not plain.deliveries


def test_client_certificates(endpoints, db):
    """Required and missing, of the wrong authority, correct: TLS 1.2 and 1.3 (whose servers refuse after the
    handshake)."""
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = endpoints.authority.issue("crm", HOST).server_context(clients=endpoints.clients)
        context.minimum_version = context.maximum_version = version
        sink = version.name.lower()
        endpoints.add(sink, context, handshakes=True)
        *_, (step, ok, message, hint) = probe(db, sink)
        assert (step, ok, message) == ("TLS", False, "the endpoint wants a client certificate"), message
        assert hint == "Set ssl_certificate_pem and ssl_key_pem in PUBLIC's user mapping."
        db.enqueue("Order", "1", sink=sink)
        wait_until(lambda: db.value("SELECT last_error FROM outbox.sinks WHERE name = %s", sink) is not None, 20, "the failure")
        assert "TLS failed: the endpoint wants a client certificate. " in db.value("SELECT last_error FROM outbox.sinks WHERE name = %s", sink)
        assert db.value("SELECT state FROM outbox.sinks WHERE name = %s", sink) == "circuit open"
        assert not endpoints.receivers[sink].requests
        stranger, known = endpoints.stranger.issue("client"), endpoints.clients.issue("client")
        db.create_mapping(sink, {"ssl_certificate_pem": stranger.certificate, "ssl_key_pem": stranger.key})
        *_, (step, ok, message, hint) = probe(db, sink)
        refused = ("the endpoint does not accept the client certificate, whose authority it does not know", "the endpoint hung up when it had got the client certificate")
        assert (step, ok) == ("TLS", False) and message in refused and "ssl_certificate_pem" in hint, message
        db.set_mapping(sink, ssl_certificate_pem=known.certificate, ssl_key_pem=known.key)
        assert ("TLS", True, "the endpoint's certificate is accepted, and the client's was shown") in [step[:3] for step in probe(db, sink)]


def test_a_client_certificate_that_is_optional(endpoints, db):
    context = endpoints.authority.issue("crm", HOST).server_context(clients=endpoints.clients, optional=True)
    endpoints.add("optional", context)
    *_, (step, ok, message, hint), (last, answers, *_) = probe(db, "optional")
    assert (last, answers) == ("answer", True)
    assert (step, ok) == ("TLS", True) and "asks for a client certificate" in message and "ssl_certificate_pem" in hint


def test_the_network_guard(db):
    """A refusal is a step of its own, with the statement to paste."""
    db.webhook_sink("inner", f"http://127.0.0.1:{free_port()}/")
    db.sql('ALTER SERVER "inner" OPTIONS (DROP allow_networks)')
    *before, (step, ok, message, hint) = probe(db, "inner")
    assert [step[:2] for step in before] == [("resolve", True)]
    assert (step, ok, message) == ("guard", False, "The url's host has an address that is the database server itself")
    statement = hint[hint.index("ALTER SERVER"):]
    db.sql(statement)
    assert probe(db, "inner")[-1][:2] == ("connect", False)
    with pytest.raises(psycopg.errors.DuplicateObject):
        db.sql(statement)

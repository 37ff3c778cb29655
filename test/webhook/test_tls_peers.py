"""nginx with certificates that must be refused, until they are corrected: pending events are then sent by
themselves. And an endpoint with an optional client certificate."""

import re
import ssl
from collections import Counter
from pathlib import Path

import pytest
from nginx_log import Attempt, read_attempts
from outbox_rig import wait_until
from outbox_rig.certificates import EXPIRED, Authority, self_signed
from outbox_rig.database import Database, module_db
from outbox_rig.process import free_port
from outbox_rig.receiver import EMPTY, SECRET, Status
from senders import Stream

SERVER = """
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {file};
    ssl_certificate_key {file};
    ssl_protocols {protocols};
    access_log {log} attempts;
    location / {{ return 204; }}
  }}
"""
# The texts of sink and outbox.doctor() for each.
BAD = {
    "expired": r"the endpoint's certificate \(CN=hooks\) has expired on 20",
    "not_yet_valid": r"the endpoint's certificate \(CN=hooks\) is not valid before 20",
    "wrong_host": r"the endpoint's certificate is made out to other\.example, and not to 127\.0\.0\.1",
    "self_signed": r"the endpoint's certificate \(CN=hooks\) is self-signed, and not trusted here",
    "unknown": r"comes from an authority that is not (known|trusted) here \(CN=stranger\)",
}
GOOD = {"tls12": "TLSv1.2", "tls13": "TLSv1.3"}
CONCURRENCY = 8


class Endpoints:
    """A server for each certificate, in one nginx; a sink and a stream of events for each."""

    def __init__(self, rig, db: Database, folder: Path):
        self._db, self._folder = db, folder
        self.authority, self.stranger = Authority("ours"), Authority("stranger")
        issue = self.authority.issue
        certificates = {
            "expired": issue("hooks", "127.0.0.1", days=EXPIRED), "not_yet_valid": issue("hooks", "127.0.0.1", days=(1, 2)),
            "wrong_host": issue("hooks", "other.example"), "self_signed": self_signed("hooks", "127.0.0.1"),
            "unknown": self.stranger.issue("hooks", "127.0.0.1"), "tls12": issue("hooks", "127.0.0.1"), "tls13": issue("hooks", "127.0.0.1")}
        self._log, self._ports = folder / "attempts.log", {name: free_port() for name in certificates}
        for name, certificate in certificates.items():
            self.file(name).write_text(certificate.chain)
        servers = [SERVER.format(port=port, file=self.file(name), protocols=GOOD.get(name, "TLSv1.2 TLSv1.3"), log=self._log)
                   for name, port in self._ports.items()]
        self.nginx = rig.nginx(http='log_format attempts "$server_port $status $http_webhook_id $msec $ssl_protocol/$connection";' + "".join(servers))
        self.streams = {}
        for name, port in self._ports.items():
            db.webhook_sink(name, f"https://127.0.0.1:{port}/", SECRET, aggregates=name, ssl_ca_pem=self.authority.certificate, retention="1d",
                            concurrency=str(CONCURRENCY))
            self.streams[name] = Stream(db, name, keys=20)

    def file(self, name: str) -> Path:
        return self._folder / f"{name}.pem"

    def attempts(self, name: str) -> list[Attempt]:
        return read_attempts(self._log, str(self._ports[name]))

    def arrived(self, name: str) -> list[Attempt]:
        """When all its events are there: once and in order."""
        written = len(self.streams[name].written)
        wait_until(lambda: len(self.attempts(name)) >= written, 40, lambda: f"{name}: {self._db.sql('SELECT * FROM outbox.sinks')}")
        attempts = self.attempts(name)
        assert self.streams[name].check(attempt.id for attempt in attempts) == 0
        return attempts


db = module_db


@pytest.fixture(scope="module")
def endpoints(rig, db, tmp_path_factory):
    endpoints = Endpoints(rig, db, tmp_path_factory.mktemp("certificates"))
    for name, stream in endpoints.streams.items():
        stream.write(60 if name in BAD else 400)
    yield endpoints
    endpoints.nginx.stop()


@pytest.mark.parametrize("name", BAD)
def test_events_wait_and_it_is_said_why(endpoints, db, name):
    wait_until(lambda: db.value("SELECT state FROM outbox.sinks WHERE name = %s", name) == "circuit open", 20, "the circuit to open")
    error = db.value("SELECT last_error FROM outbox.sinks WHERE name = %s", name)
    assert re.search(BAD[name], error), error
    [(status, detail)] = db.sql('SELECT status, detail FROM outbox.doctor() WHERE "check" = %s', f"sink {name}")
    assert status in ("warning", "error")
    assert re.search(BAD[name], detail)
    assert db.sql("SELECT count(*), max(attempts), min(status) FROM outbox.events WHERE sink = %s", name) == [(60, 0, "PENDING")]
    assert not endpoints.attempts(name)


@pytest.mark.parametrize("name", GOOD)
def test_connections_are_kept_under_load(endpoints, name):
    served = Counter(attempt.connection for attempt in endpoints.arrived(name))
    assert len(served) <= CONCURRENCY and sum(served.values()) == 400
    assert all(connection.startswith(f"{GOOD[name]}/") for connection in served)


def test_what_waited_goes_by_itself_when_it_is_mended(endpoints, db):
    good = endpoints.authority.issue("hooks", "127.0.0.1").chain
    for name in ("expired", "not_yet_valid", "wrong_host", "self_signed"):
        endpoints.file(name).write_text(good)
    endpoints.nginx.reloaded()
    db.set_sink("unknown", ssl_ca_pem=endpoints.authority.certificate + endpoints.stranger.certificate)
    for name in BAD:
        endpoints.arrived(name)
    wait_until(lambda: db.pending() == 0, 20, "all to be recorded")
    assert db.sql("SELECT max(attempts), min(status), max(status) FROM outbox.events") == [(0, "SENT", "SENT")]
    states = dict(db.sql("SELECT name, state FROM outbox.sinks"))
    assert all(states[name] in ("idle", "delivering") for name in BAD), states


@pytest.mark.parametrize("poison_is_first", (True, False))
def test_a_connection_that_one_event_ends(rig, pg, poison_is_first):
    """The endpoint asks for a client certificate and takes events without one. At one event it closes the connection
    without an answer: that event fails, and not the sink, whether or not the endpoint has answered before."""
    ours, clients = Authority("ours"), Authority("clients")
    context = ours.issue("hooks", "127.0.0.1").server_context(clients=clients, optional=True)
    taken = Status(headers={"Connection": "close"})
    receiver = rig.receiver(secret=SECRET, tls=context, mode=lambda delivery: EMPTY if b"poison" in delivery.body else taken)
    db = Database(pg, "optional_certificate")
    db.create()
    try:
        db.webhook_sink("crm", receiver.url, SECRET, ssl_ca_pem=ours.certificate, retry="50ms", max_attempts="3")
        if poison_is_first:
            db.enqueue("Order", "poisoned", payload='{"poison": 1}')
            wait_until(lambda: receiver.deliveries, 20, "the poison event to arrive")
        else:
            db.enqueue("Order", "before")
            wait_until(lambda: receiver.accepted(), 20, "the first event to arrive")
            db.enqueue("Order", "poisoned", payload='{"poison": 1}')
        stream = Stream(db, "Order")
        stream.write(60)
        wait_until(lambda: db.pending() == 0, 30, lambda: db.sql("SELECT * FROM outbox.sinks"))
        assert stream.check(d.id for d in receiver.accepted() if d.id in stream.written) == 0
        [(key, attempts, error)] = db.sql("SELECT aggregate_id, attempts, last_error FROM outbox.events WHERE status = 'FAILED'")
        assert (key, attempts) == ("poisoned", 3) and "asked for a client certificate" in error, error
        assert db.state() in ("idle", "delivering")
    finally:
        db.drop()
        receiver.stop()


def test_the_systems_authorities_are_read_once(rig, pg):
    """Not for each connection: reading them takes the only HTTP thread 20 ms and more."""
    receiver = rig.receiver(secret=SECRET, tls=self_signed("hooks", "127.0.0.1").server_context())
    db = Database(pg, "system_authorities")
    db.create()
    try:
        db.webhook_sink("crm", receiver.url, SECRET, concurrency="40")
        with db.connect() as connection:  # all in one transaction
            for key in range(40):
                connection.execute("SELECT outbox.enqueue('Order', %s, 'created', '{}'::jsonb)", (str(key),))
        wait_until(lambda: "self-signed" in (db.value("SELECT last_error FROM outbox.sinks") or ""), 20, "the failure")
        pid = db.value("SELECT pid FROM outbox.workers WHERE database = current_database()")
        [read] = re.findall(r"rchar: (\d+)", Path(f"/proc/{pid}/io").read_text())
        assert int(read) < 10 * Path(ssl.get_default_verify_paths().cafile).stat().st_size
    finally:
        db.drop()
        receiver.stop()

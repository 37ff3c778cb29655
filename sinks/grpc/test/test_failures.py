"""Failures of an event, the server, the way to it."""

import contextlib
import json
import re
import socket
import threading
from pathlib import Path

import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from outbox_rig import wait_until
from outbox_rig.kind_fixtures import memory_is_bounded, metrics_show
from outbox_rig.process import free_port
from outbox_rig.writers import Writers

from test_delivery import first_deliveries_in_order, many, sinks, state_is

HERE = Path(__file__).parents[1]
QUICK = {"retry": "50ms..200ms", "max_attempts": "1000"}

# The fate of an event whose first call ends so: it is delivered, tried again or a dead letter.
DELIVERED, AGAIN, DEAD = "delivered", "again", "dead letter"
CODES = {"OK": DELIVERED, "CANCELLED": AGAIN, "UNKNOWN": AGAIN, "INVALID_ARGUMENT": DEAD, "DEADLINE_EXCEEDED": AGAIN, "NOT_FOUND": AGAIN,
         "ALREADY_EXISTS": DELIVERED, "PERMISSION_DENIED": AGAIN, "RESOURCE_EXHAUSTED": AGAIN, "FAILED_PRECONDITION": DEAD, "ABORTED": AGAIN,
         "OUT_OF_RANGE": AGAIN, "UNIMPLEMENTED": AGAIN, "INTERNAL": AGAIN, "UNAVAILABLE": AGAIN, "DATA_LOSS": AGAIN, "UNAUTHENTICATED": AGAIN}


@pytest.mark.parametrize("code", CODES)
def test_each_status(db, service, code):
    service.behave(code=code, text="a reason\nwith ä", times=1)
    db.grpc_sink("grpc", service, retry="30min")
    id = db.enqueue("Order", "1")
    if CODES[code] == DELIVERED:
        wait_until(lambda: db.pending() == 0, 20, sinks(db))
        assert db.value("SELECT count(*) FROM outbox.events WHERE status <> 'SENT'") == 0
        return
    state = "FAILED" if CODES[code] == DEAD else "PENDING"
    wait_until(lambda: db.sql("SELECT status FROM outbox.events WHERE id = %s AND attempts = 1", id) == [(state,)], 20, sinks(db))
    assert f"{code}: a reason with ä" in db.value("SELECT last_error FROM outbox.events WHERE id = %s", id)


SECRET = "zqx7-horse-battery-staple"


@pytest.mark.parametrize("before", [900, 980, 990])
def test_a_secret_is_masked_before_its_text_is_cut(db, service, before):
    service.behave(code="INVALID_ARGUMENT", text="x" * before + SECRET + "y" * 300)
    db.grpc_sink("grpc", service, {"token": SECRET}, max_attempts="1")
    db.enqueue("Order", "1")
    wait_until(lambda: db.value("SELECT last_error FROM outbox.events") is not None, 30, sinks(db))
    probed = db.sql("SELECT * FROM outbox.probe('grpc', send => true)")
    shown = str(db.sql("SELECT * FROM outbox.events")) + str(db.sql("SELECT * FROM outbox.sinks")) + str(probed)
    assert "xxx" in shown and SECRET[:4] not in shown and SECRET[:4] not in db.pg.log.read_text()


def test_a_large_answer(db, service):
    """Nothing of it is of use, but the status comes after it."""
    service.behave(size=3_000_000)
    db.grpc_sink("grpc", service, **QUICK)
    id = db.enqueue("Order", "1")
    wait_until(lambda: db.pending() == 0, 10, sinks(db))
    assert [call.id for call in service.read()] == [id]


def test_an_answer_that_is_too_large(db, service):
    """It is read for the sake of the status behind it, and not without a bound."""
    service.behave(size=6_000_000)
    db.grpc_sink("grpc", service, retry="30min")
    id = db.enqueue("Order", "1")
    wait_until(lambda: db.sql("SELECT 1 FROM outbox.events WHERE id = %s AND attempts = 1", id), 20, sinks(db))
    assert "the answer is larger than" in db.value("SELECT last_error FROM outbox.events WHERE id = %s", id)


def test_the_metrics(db, service):
    service.behave(code="INVALID_ARGUMENT", keys=["2"])
    db.grpc_sink("grpc", service)
    db.enqueue("Order", "1")
    db.enqueue("Order", "2")
    metrics_show(db, "grpc", delivered=1, dead_letters=1)


def test_the_table_of_the_page_is_that_of_the_code():
    outcomes = {"Sent": "is delivered", "Retry": "is tried again", "RetryBlameSink": "is tried again, and counts for the circuit",
                "Refused": "is tried again, seldom, and counts for the circuit", "Rejected": "is a dead letter"}
    rules = re.findall(r'\{"([A-Z_]+)",\s+Outcome::(\w+),\s+OB_REASON_\w+\}', (HERE / "grpc_status.cpp").read_text())
    assert [name for name, _ in rules] == list(CODES)
    table = re.findall(r"^\| (`[A-Z_]+`.*?) \| ([^|]+) \|$", (HERE / "README.md").read_text(), re.MULTILINE)
    assert {name: outcome for names, outcome in table for name in re.findall(r"`([A-Z_]+)`", names)} == {name: outcomes[of] for name, of in rules}


def details(seconds: int) -> str:
    """google.rpc.Status in hex, with a detail of another type and RetryInfo."""
    info = Any(type_url="type.googleapis.com/google.rpc.RetryInfo", value=field(1, Duration(seconds=seconds).SerializeToString()))
    other = Any(type_url="type.googleapis.com/google.rpc.DebugInfo", value=field(2, b"a queue is full"))
    return (b"\x08\x08" + field(2, b"slow down") + field(3, other.SerializeToString()) + field(3, info.SerializeToString())).hex()


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


@pytest.mark.parametrize("trailers", [{"grpc-retry-pushback-ms": "40000"}, {"grpc-status-details-bin": details(40)}], ids=str)
def test_the_server_sets_the_time_of_the_next_attempt(db, service, trailers):
    service.behave(code="RESOURCE_EXHAUSTED", text="slow down", trailers=trailers, times=1)
    db.grpc_sink("grpc", service, retry="100ms")
    id = db.enqueue("Order", "1")
    wait_until(lambda: db.sql("SELECT 1 FROM outbox.events WHERE id = %s AND attempts = 1", id), 20, sinks(db))
    assert db.value("SELECT extract(epoch FROM available_at - now()) FROM outbox.events WHERE id = %s", id) > 20


def test_the_server_asks_for_a_pause(db, service):
    """No call of any key starts before it is over, or before resume() ends it."""
    service.behave(code="RESOURCE_EXHAUSTED", text="slow down", trailers={"grpc-retry-pushback-ms": "400000"}, times=1)
    db.grpc_sink("grpc", service, retry="100ms", events="order.*")
    db.enqueue("Order", "1")
    state = "SELECT state FROM outbox.sinks WHERE name = 'grpc'"
    wait_until(lambda: db.value(state) == "paused by endpoint", 20, sinks(db))
    service.behave(code="OK")
    db.enqueue("Order", "2")
    db.grpc_sink("other", service, events="other")
    db.enqueue("Order", "3", "other")
    wait_until(lambda: db.pending() == 2, 20, sinks(db))
    assert len(service.read()) == 2  # the one that was refused, and the other sink's
    db.sql("SELECT outbox.resume('grpc')")
    wait_until(lambda: db.pending() == 0, 20, sinks(db))


def test_a_pause_has_a_bound(db, service):
    service.behave(code="UNAVAILABLE", trailers={"grpc-retry-pushback-ms": "3000000"}, times=1)
    db.grpc_sink("grpc", service, retry="100ms", max_pause="1s", rate_limit="10/s")
    for n in range(3):
        db.enqueue("Order", str(n))
    wait_until(lambda: db.pending() == 0, 20, sinks(db))


@pytest.mark.parametrize("trailers", [{"grpc-retry-pushback-ms": str(2**63 - 1)}, {"grpc-status-details-bin": details(2**38)}], ids=str)
def test_the_server_cannot_put_an_event_off_for_ever(db, service, trailers):
    service.behave(code="UNAVAILABLE", trailers=trailers, times=1)
    db.grpc_sink("grpc", service, retry="100ms")
    id = db.enqueue("Order", "1")
    wait_until(lambda: db.sql("SELECT 1 FROM outbox.events WHERE id = %s AND attempts = 1", id), 20, sinks(db))
    assert 3000 < db.value("SELECT extract(epoch FROM available_at - now()) FROM outbox.events WHERE id = %s", id) <= 3600


@pytest.mark.parametrize("broken", ["1a", "1a05ff", "1a7f0a", "0b", "ff" * 12, details(40)[:-2], details(-5), "1a2b" + details(40)[:20]])
def test_details_that_are_no_delay(db, service, broken):
    """They are left out: the event is tried again as `retry` says."""
    service.behave(code="RESOURCE_EXHAUSTED", text="slow down", trailers={"grpc-status-details-bin": broken}, times=1)
    db.grpc_sink("grpc", service, retry="100ms")
    db.enqueue("Order", "1")
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    assert len(service.read()) == 2


def test_a_status_in_the_headers(db, rig):
    """An answer without a message has its status in the headers; nginx sends no trailers. A proxy's own answer asks for a pause as HTTP does."""
    port = free_port()
    nginx = rig.nginx(http=f"""server {{ listen 127.0.0.1:{port} http2; default_type application/grpc; client_max_body_size 1m;
        location /outbox.v1.Sink/ {{ add_header grpc-status 3 always; add_header grpc-message "no%20such%20order" always; return 200; }}
        location /away. {{ add_header Retry-After 40.5 always; return 503; }}
        location /busy. {{ add_header grpc-status 8 always; add_header grpc-retry-pushback-ms 40000 always; return 200; }} }}""")
    try:
        for name, method in (("grpc", "/outbox.v1.Sink/Publish"), ("busy", "/busy.Sink/Publish"), ("away", "/away.Sink/Publish")):
            db._create_server(name, "outbox_grpc", {"url": f"http://127.0.0.1:{port}", "method": method, "allow_http": "true",
                                                    "allow_networks": "127.0.0.0/8", "retry": "100ms"})
        db.enqueue("Order", "1")
        found = wait_until(lambda: (rows := db.sql("SELECT sink, status, last_error, available_at > now() + interval '20s' FROM outbox.events"
                                                   " WHERE attempts > 0 ORDER BY sink")) and len(rows) == 3 and rows, 20, sinks(db))
        assert found == [("away", "PENDING", "UNAVAILABLE: HTTP 503, without a gRPC status", True), ("busy", "PENDING", "RESOURCE_EXHAUSTED", True), ("grpc", "FAILED", "INVALID_ARGUMENT: no such order", None)]
    finally:
        nginx.stop()


def test_a_page_with_a_status_is_no_success(db, rig):
    """grpc-status 0 counts in an answer of gRPC alone, not in a proxy's page that has it from the server behind."""
    port = free_port()
    nginx = rig.nginx(http=f"""server {{ listen 127.0.0.1:{port} http2; default_type application/grpc; client_max_body_size 1m;
        location /unavailable. {{ add_header grpc-status 0 always; return 503; }}
        location /exists. {{ add_header grpc-status 6 always; return 403; }}
        location /page. {{ default_type text/html; add_header grpc-status 0 always; return 200 "<html>"; }} }}""")
    try:
        for name in ("unavailable", "exists", "page"):
            db._create_server(name, "outbox_grpc", {"url": f"http://127.0.0.1:{port}", "method": f"/{name}.Sink/Publish", "allow_http": "true",
                                                    "allow_networks": "127.0.0.0/8", "retry": "100ms", "max_attempts": "1"})
        db.enqueue("Order", "1")
        wait_until(lambda: all(db.sink("last_error", name)[0] for name in ("unavailable", "exists", "page")), 20, sinks(db))
        assert db.sql("SELECT sum(delivered) FROM outbox.sinks") == [(0,)] and db.value("SELECT count(*) FROM outbox.events") == 3
    finally:
        nginx.stop()


def test_memory_is_bounded_while_the_server_hangs(db, service):
    """The sink holds at most 64 MiB of messages, and libcurl a copy of none."""
    db.grpc_sink("grpc", service, timeout="2min")
    memory_is_bounded(db, "grpc", service, most=70)


def test_a_failing_event_delays_its_own_key_only(db, service):
    service.behave(code="NOT_FOUND", keys=["3"], times=3)
    db.grpc_sink("grpc", service, **QUICK)
    many(db, 500, 10)
    calls = service.wait_for(500)
    assert first_deliveries_in_order([call for call in calls if call.code == "OK"]) == 0
    assert len(service.read()) > 500


def test_a_deadline(db, service):
    service.behave(sleep=60, times=1)
    db.grpc_sink("grpc", service, timeout="300ms", **QUICK)
    id = db.enqueue("Order", "1")
    wait_until(lambda: db.sql("SELECT 1 FROM outbox.events WHERE id = %s AND attempts >= 1", id) or db.pending() == 0, 20, sinks(db))
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    assert [call.id for call in service.read()] == [id, id]


def test_a_message_that_the_server_finds_too_large(db, make_service):
    service = make_service(max_receive_message_length=2000)
    db.grpc_sink("grpc", service, max_attempts="2", retry="50ms")
    id = db.sql("SELECT outbox.enqueue('Order', '1', 'order.large', jsonb_build_object('x', repeat('y', 5000)))")[0][0]
    db.enqueue("Order", "2")
    service.wait_for(1)
    wait_until(lambda: db.sql("SELECT 1 FROM outbox.events WHERE id = %s AND status = 'FAILED'", id), 20, sinks(db))
    assert "RESOURCE_EXHAUSTED" in db.value("SELECT last_error FROM outbox.events WHERE id = %s", id)
    assert db.sink("state", "grpc") == ("idle",)


def test_a_message_that_is_too_large_in_the_words_of_the_server(db, service):
    """It is known by the smaller ones that pass, and slows nothing down."""
    service.behave(code="RESOURCE_EXHAUSTED", text="quota of bytes", keys=["large"])
    db.grpc_sink("grpc", service, max_attempts="3", retry="50ms")
    id = db.sql("SELECT outbox.enqueue('Order', 'large', 'order.large', jsonb_build_object('x', repeat('y', 100000)))")[0][0]
    wait_until(lambda: db.enqueue("Order", "small") and db.sql("SELECT 1 FROM outbox.events WHERE id = %s AND status = 'FAILED'", id), 60, sinks(db), interval=0.1)
    reasons = dict(db.sql("SELECT reason, publish_failures_total FROM outbox.failure_metrics WHERE sink = 'grpc'"))
    assert reasons["too_large"] >= 2, reasons
    assert "quota of bytes" in db.value("SELECT last_error FROM outbox.events WHERE id = %s", id)


class Steady(Writers):
    """Enqueues events of 50 keys until it is stopped."""

    def __init__(self, db):
        super().__init__(1)
        self.db, self.n = db, 0

    def write(self, writer: int) -> None:
        with self.db.connect() as session:
            while not self.stopping.is_set():
                session.execute("SELECT outbox.enqueue('Order', (n %% 50)::text, 'order.made', jsonb_build_object('n', n))"
                                " FROM generate_series(%s::int, %s::int) AS n", [self.n, self.n + 19])
                self.n += 20
                self.stopping.wait(0.02)


def everything_arrived(db, service, n: int, most_duplicates: int) -> None:
    wait_until(lambda: db.pending() == 0, 120, sinks(db))
    calls = service.read()
    assert {json.loads(call.event.payload)["n"] for call in calls} == set(range(n))
    assert first_deliveries_in_order(calls) <= most_duplicates


def test_a_killed_server_loses_nothing(db, tls_service, tls_sink):
    service = tls_service
    tls_sink(service, **QUICK)
    with Steady(db) as traffic:
        wait_until(lambda: len(service.read()) > 500, 60)
        service.kill()
        state_is(db, "circuit open", "refused")
        service.start()
        enough = traffic.n + 500
        wait_until(lambda: traffic.n > enough, 60)
    everything_arrived(db, service, traffic.n, 200)


def test_a_frozen_server_loses_nothing(db, tls_service, tls_sink):
    service = tls_service
    tls_sink(service, timeout="500ms", **QUICK)
    with Steady(db) as traffic:
        wait_until(lambda: len(service.read()) > 500, 60)
        service.freeze()
        state_is(db, "circuit open")
        service.thaw()
        enough = traffic.n + 500
        wait_until(lambda: traffic.n > enough, 60)
    everything_arrived(db, service, traffic.n, 1000)


class Way:
    """To the server, over TCP: connections that it has lost stay silent, new ones work."""

    def __init__(self, port: int):
        self.port, self._to, self._lost, self._listener = free_port(), port, threading.Event(), socket.socket()
        self._listener.bind(("127.0.0.1", self.port))
        self._listener.listen(100)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, far = self._listener.accept()[0], socket.create_connection(("127.0.0.1", self._to))
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, target, self._lost), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not lost.is_set():
                    target.sendall(data)
            if not lost.is_set():
                target.shutdown(socket.SHUT_RDWR)

    def lose_connections(self) -> None:
        self._lost.set()
        self._lost = threading.Event()


def test_sinks_leave_a_connection_that_hangs(db, tls_service, tls_sink):
    """They share it, and the probes of each would keep it in use for the others."""
    way = Way(tls_service.port)
    names = {"grpc": "2s", "grpc2": "3s", "grpc3": "5s"}
    for name, timeout in names.items():
        tls_sink(tls_service, name, url=f"https://127.0.0.1:{way.port}", timeout=timeout, headers=json.dumps({"sink": name}), **QUICK)

    def all_deliver() -> bool:
        many(db, 3, 3)
        return {call.metadata["sink"] for call in tls_service.read()[before:]} == set(names)

    before = 0
    wait_until(all_deliver, 20)
    way.lose_connections()
    before = len(tls_service.read()) + 3 * 32  # those that were on their way
    wait_until(all_deliver, 40, sinks(db))
    wait_until(lambda: db.pending() == 0, 60, sinks(db))


def test_a_restarted_server_loses_nothing(db, tls_service, tls_sink):
    service = tls_service
    tls_sink(service, **QUICK)
    with Steady(db) as traffic:
        for _ in range(3):
            enough = traffic.n + 300
            wait_until(lambda: traffic.n > enough, 60)
            service.stop()
            service.start()
    everything_arrived(db, service, traffic.n, 300)


def test_one_stream_at_a_time(db, make_tls_service, tls_sink):
    service = make_tls_service(max_concurrent_streams=1)
    tls_sink(service)
    many(db, 500, 50)
    assert first_deliveries_in_order(service.wait_for(500)) == 0
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    assert db.value("SELECT max(attempts) FROM outbox.events") is None


def test_connections_that_the_server_ends(db, make_tls_service, tls_sink):
    """GOAWAY after 200 ms. libcurl may lose the end of an answer with the connection: then the event comes again."""
    service = make_tls_service(max_connection_age_ms=200, max_connection_age_grace_ms=5000)
    tls_sink(service, **QUICK)
    for begin in range(0, 2000, 100):
        many(db, 100, 50, begin)
        service.wait_for(begin + 100)
    connections = len({call.peer for call in service.read()})
    assert connections > 2
    everything_arrived(db, service, 2000, 32 * connections)


def test_a_peer_that_speaks_another_protocol(db, rig):
    receiver = rig.receiver()
    with db._connected().transaction():
        db._create_server("grpc", "outbox_grpc", {"url": receiver.url.split("/hook")[0], "allow_http": "true", "allow_networks": "127.0.0.0/8"})
    db.enqueue("Order", "1")
    wait_until(lambda: (db.sink("last_error", "grpc")[0] or "") != "", 30, sinks(db))
    steps = db.sql("SELECT step, ok FROM outbox.probe('grpc')")
    assert steps[1] == ("connect", True) and steps[-1][0] == "HTTP/2" and not steps[-1][1], steps

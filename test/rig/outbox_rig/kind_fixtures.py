"""Fixtures for the tests of a kind of sink in sinks/<kind>/test, as a pytest plugin: a server for the session, and a look at its log.
And tests that all kinds have in common."""

import contextlib
import itertools
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import pytest

from .certificates import Authority
from .crashes import crashes
from .process import cpu_seconds, free_port, private_memory
from .rig import Rig
from .wait import wait_until


@pytest.fixture(scope="session")
def rig(request):
    with Rig(f"sink-{request.config.rootpath.parent.name}") as rig:
        yield rig


@pytest.fixture(scope="session")
def pg(rig):
    return rig.postgres(settings={"outbox.poll_interval": "1s"})


@pytest.fixture(autouse=True)
def no_crash(request):
    pg = request.getfixturevalue("pg") if "pg" in request.fixturenames else None
    before = pg.log.stat().st_size if pg else 0
    yield
    if pg and (found := crashes(pg.log, before)):
        pytest.fail("the server's log tells of a crash:\n" + "\n".join(found), pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    pg = item.funcargs.get("pg") if hasattr(item, "funcargs") else None
    if report.failed and pg and pg.log.exists():
        report.sections.append(("server log", "\n".join(pg.log.read_text(errors="replace").splitlines()[-30:])))


@pytest.fixture
def start_program():
    """Starts a program in Python with these arguments, which is killed at the end."""
    running = []

    def start(*arguments, **options) -> subprocess.Popen:
        running.append(subprocess.Popen([sys.executable, *arguments], **options))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


def worker_pid(db) -> int:
    [(pid,)] = db.sql("SELECT pid FROM outbox.workers")
    return pid


def cpu_of(db, seconds: float) -> float:
    """Seconds that the database's worker computes within this time."""
    before = cpu_seconds(worker_pid(db))
    time.sleep(seconds)  # the time is what is measured
    return cpu_seconds(worker_pid(db)) - before


def memory_is_bounded(db, sink: str, peer, most: int, events: int = 300, size: int = 1_000_000) -> None:
    """While the peer hangs, the sink holds at most this number of large events, whatever number waits. It is the sink's own limit that is tested:
    the worker may hold them all."""
    seen = []

    def in_flight_stays() -> bool:
        seen.append(db.sink("in_flight", sink)[0])
        return seen[-1] >= 30 and seen[-5:] == seen[-1:] * 5

    db.pg.set("outbox.max_in_flight_memory", "1GB")
    db.enqueue("Order", "first")
    wait_until(lambda: db.pending() == 0, 60, lambda: db.sql("SELECT * FROM outbox.sinks"))
    before = private_memory(worker_pid(db))
    peer.freeze()
    try:
        db.sql("SELECT outbox.enqueue('Order', n::text, 'order.large', to_jsonb(repeat('x', %s::int))) FROM generate_series(1, %s::int) AS n", size, events)
        wait_until(in_flight_stays, 60, lambda: f"{seen}; {db.sql('SELECT * FROM outbox.sinks')}", interval=0.5)
        assert seen[-1] <= most < events and private_memory(worker_pid(db)) - before < 200_000_000
    finally:
        peer.thaw()
        db.pg.reset("outbox.max_in_flight_memory")
    wait_until(lambda: db.pending() == 0, 120, lambda: db.sql("SELECT * FROM outbox.sinks"))


def a_flood_fills_no_memory(db, sink: str, error: str, hung_up: threading.Event) -> None:
    """A peer that never stops sending: the sink gives it up with this error, and its memory stays."""
    wait_until(lambda: db.sink("state", sink) == ("circuit open",) and error in db.sink("last_error", sink)[0], 60, lambda: db.sql("SELECT * FROM outbox.sinks"))
    wait_until(hung_up.is_set, 30)
    assert private_memory(worker_pid(db)) < 300_000_000


def only_the_event_that_breaks_the_connection_fails(db, sink: str) -> None:
    """The peer of this sink closes the connection at the text "bad"; max_attempts is 2."""
    bad = db.enqueue("Order", "one", event_type="bad", payload='{"kind": "bad"}')
    for key in ("one", *map(str, range(40))):
        db.enqueue("Order", key, event_type="good", payload='{"kind": "good"}')
    wait_until(lambda: db.pending() == 0, 120, lambda: str(db.sql("SELECT * FROM outbox.sinks")))
    [(id, attempts, error)] = db.sql("SELECT id::text, attempts, last_error FROM outbox.events WHERE status = 'FAILED'")
    assert (id, attempts) == (bad, 2) and error.startswith("the connection breaks at this event, which was sent alone: "), error
    assert db.sink("delivered", sink) == (41,)


def a_flood_ends_with_its_sink(db, sink: str, hung_up: threading.Event) -> None:
    """What a peer sends without an end, and the protocol allows, does not outlive DROP SERVER."""
    assert not hung_up.is_set()
    db.sql(f"DROP SERVER {sink} CASCADE")
    wait_until(hung_up.is_set, 60)
    assert private_memory(worker_pid(db)) < 300_000_000


def the_machine_itself_is_refused(db, kind: str, hosts: str = "hosts", **options: str) -> None:
    """To a sink whose owner is no superuser, before there is a socket; a superuser allows it. The sinks of all other tests belong to a superuser."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        role, more = f"owner_{port}", "".join(f", {name} '{value}'" for name, value in options.items())
        db.sql(f"CREATE ROLE {role}")
        try:
            db.sql(f"""
                BEGIN;
                GRANT USAGE ON FOREIGN DATA WRAPPER outbox_{kind} TO {role};
                CREATE SERVER guarded FOREIGN DATA WRAPPER outbox_{kind} OPTIONS ({hosts} 'localhost:{port}'{more});
                ALTER SERVER guarded OWNER TO {role};
                COMMIT""")
            db.enqueue("Order", "1")
            said = "has an address that is the database server itself"
            wait_until(lambda: said in (db.sink("last_error", "guarded")[0] or ""), 30, lambda: db.sql("SELECT * FROM outbox.sinks"))
            assert db.sql("SELECT reason FROM outbox.failure_metrics WHERE sink = 'guarded'") == [("blocked",)]
            ok, message, hint = db.sql("SELECT ok, message, hint FROM outbox.probe('guarded') WHERE NOT ok")[0]
            assert said in message and "option allow_networks" in message + hint and "option allow_networks" in db.sink("last_error", "guarded")[0]
            assert "127.0.0.1" not in message + db.sink("last_error", "guarded")[0]
            with pytest.raises(BlockingIOError):
                listener.accept()
            with pytest.raises(Exception, match="superuser"):
                db.sql(f"SET ROLE {role}; ALTER SERVER guarded OPTIONS (ADD allow_networks '127.0.0.0/8')")
            db.sql("RESET ROLE")
            db.sql("ALTER SERVER guarded OPTIONS (ADD allow_networks '127.0.0.0/8, ::1')")
            listener.settimeout(60)
            listener.accept()
        finally:
            db.sql("RESET ROLE; DROP SERVER IF EXISTS guarded CASCADE")
            db.sql(f"DROP OWNED BY {role}; DROP ROLE {role}")


def no_error_tells_an_address(db, kind: str, hosts: str = "hosts", said: str = "could not connect to localhost port PORT: Connection refused", **options: str) -> None:
    """To which a name resolves."""
    port, more = free_port(), "".join(f", {name} '{value}'" for name, value in options.items())
    db.sql(f"CREATE SERVER nobody FOREIGN DATA WRAPPER outbox_{kind} OPTIONS ({hosts} 'localhost:{port}'{more})")
    db.enqueue("Order", "1")
    said = said.replace("PORT", str(port))
    wait_until(lambda: said in (db.sink("last_error", "nobody")[0] or ""), 30, lambda: db.sql("SELECT * FROM outbox.sinks"))
    probed = str(db.sql("SELECT * FROM outbox.probe('nobody')"))
    assert said in probed and not [shown for shown in (db.sink("last_error", "nobody")[0], probed) if "127.0.0.1" in shown or "::1" in shown]


@contextlib.contextmanager
def strange_peer(answer: bytes | None) -> Iterator[int]:
    """A port that gives each connection this answer and keeps it open, or closes it at once (None)."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept = []

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    client, _ = server.accept()
                    if answer:
                        client.sendall(answer)
                    if answer is None:
                        client.close()
                    kept.append(client)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def talking_peer(parts: Callable[[], Iterable[bytes]]) -> Iterator[int]:
    """A port that sends each connection these parts, whatever the client says, and keeps it open until the client hangs up."""
    def serve(client):
        with client, contextlib.suppress(OSError):
            for part in parts():
                client.sendall(part)
            while client.recv(65536):
                pass

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def _byte_by_byte(numbers: Iterable[int]) -> Iterator[bytes]:
    for number in numbers:
        yield bytes([number])
        time.sleep(0.01)  # this is the rate


def logins_without_an_end(begin: bytes, goes_on: bytes) -> dict[str, Callable[[], Iterable[bytes]]]:
    """Parts for talking_peer(): no login ends as long as `begin` and then only `goes_on` come."""
    return {"silent": lambda: [],
            "dripping": lambda: _byte_by_byte(itertools.chain(begin, itertools.cycle(goes_on))),
            "flooding": lambda: itertools.chain([begin], itertools.repeat(goes_on * (65536 // len(goes_on))))}


@contextlib.contextmanager
def peers_without_an_answer(authority: Authority) -> Iterator[tuple[int, int]]:
    """A port that takes connections, and one that wants TLS; neither ever answers."""
    context = authority.issue("silent", "127.0.0.1").server_context()

    def serve(wants_tls):
        with contextlib.suppress(OSError):
            while True:
                client, _ = wants_tls.accept()
                threading.Thread(target=handshake, args=(client,), daemon=True).start()

    def handshake(client):
        with client, contextlib.suppress(OSError), context.wrap_socket(client, server_side=True) as session:
            while session.recv(65536):
                pass

    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as wants_tls:
        threading.Thread(target=serve, args=(wants_tls,), daemon=True).start()
        yield silent.getsockname()[1], wants_tls.getsockname()[1]
        wants_tls.shutdown(socket.SHUT_RDWR)


def _fails_for(db, sink: str, words: str, hint: str) -> bool:
    """Between two tries the state is "delivering" again, and the error stays."""
    error, state = db.sink("last_error, state", sink)
    return state in ("failing", "circuit open") and words in (error or "") and hint in error


def an_endpoint_without_an_answer_is_named(db, kind: str, authority: Authority, step: str, **options: str) -> None:
    """Of a kind that speaks HTTP: by the sink and by the probe. In the options, URL stands for that of the endpoint."""
    takes, closes = "the endpoint takes the connection and does not answer the ", "the endpoint closed the connection without an answer"
    with peers_without_an_answer(authority) as (silent, wants_tls):
        for n, (url, failing, words, hint) in enumerate([
                (f"http://127.0.0.1:{silent}", step, takes + "request", "perhaps this port wants TLS"),
                (f"http://127.0.0.1:{wants_tls}", step, closes, "perhaps this port wants TLS"),
                (f"https://127.0.0.1:{silent}", "TLS", takes + "handshake", "is this its TLS port"),
                (f"https://127.0.0.1:{wants_tls}", step, takes + "request", "")]):
            more = "".join(f", {name} '{value}'" for name, value in options.items()).replace("URL", url)
            db.sql(f"CREATE SERVER mute{n} FOREIGN DATA WRAPPER outbox_{kind} OPTIONS (allow_http 'true', allow_networks '127.0.0.0/8',"
                   f" ssl_ca_pem '{authority.certificate}', timeout '1s', events 'order.{n}'{more})")
            if kind == "aws":
                db.create_mapping(f"mute{n}", {"aws_access_key_id": "AKIAIOSFODNN7EXAMPLE", "aws_secret_access_key": "wJalrXUtnFEMI"})
            for key in range(2):
                db.enqueue("Order", str(key), f"order.{n}")
            wait_until(lambda: _fails_for(db, f"mute{n}", words, hint), 20, lambda: db.sql("SELECT * FROM outbox.sinks"))
            *_, (last, ok, message) = db.sql("SELECT step, ok, message FROM outbox.probe(%s)", f"mute{n}")
            assert (last, ok) == (failing, False) and words in message, (last, message)


class Link:
    """A port whose connections lead to another one. carry() is what happens to the bytes, of a thread for each direction."""

    def __init__(self, to: int, receive_buffer: int = 0):
        self.to, self.connections, self._sockets = to, 0, [socket.socket()]
        if receive_buffer:
            self._sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._sockets[0].bind(("127.0.0.1", 0))
        self._sockets[0].listen()
        self.port = self._sockets[0].getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._sockets[0].accept()
                self.connections += 1
                server = socket.create_connection(("127.0.0.1", self.to))
                self._sockets += [client, server]
                for reads, writes in [(client, server), (server, client)]:
                    threading.Thread(target=self._serve, args=(reads, writes, reads is client), daemon=True).start()

    def _serve(self, reads: socket.socket, writes: socket.socket, there: bool) -> None:
        with contextlib.suppress(OSError):
            self.carry(reads, writes, there)
            writes.shutdown(socket.SHUT_WR)

    def carry(self, reads: socket.socket, writes: socket.socket, there: bool) -> None:
        """Until the one ends from which it reads. `there`: to the other port."""
        while data := reads.recv(65536):
            writes.sendall(data)


class SlowLink(Link):
    """It carries this number of bytes per second there."""

    def __init__(self, to: int, rate: int):
        super().__init__(to, receive_buffer=65536)  # and no more by itself
        self.rate = rate

    def carry(self, reads: socket.socket, writes: socket.socket, there: bool) -> None:
        if there:
            while data := reads.recv(self.rate // 20):
                writes.sendall(data)
                time.sleep(0.05)  # this is the rate
        else:
            super().carry(reads, writes, there)


def a_slow_link_is_waited_for(db, sink: str, link: SlowLink, events: int = 1, size: int = 5_000_000) -> None:
    """Events that are on their way for more than 30 s arrive by their first connection, and those behind them, too. Half of their bytes are in the
    sink's buffer at first, and half in the socket's."""
    db.enqueue("Order", "first")
    wait_until(lambda: db.pending() == 0, 60, lambda: db.sql("SELECT * FROM outbox.sinks"))
    logged = len(db.pg.log.read_text())

    def have_arrived() -> bool:
        assert link.connections == 1, db.sql("SELECT * FROM outbox.sinks")
        return db.pending() == 0

    db.sql("SELECT outbox.enqueue('Order', n::text, 'order.large', to_jsonb(repeat('x', %s::int))) FROM generate_series(1, %s::int) AS n", size, events)
    db.enqueue("Order", "small")
    began = time.monotonic()
    wait_until(have_arrived, 150, lambda: db.sql("SELECT * FROM outbox.sinks"))
    assert time.monotonic() - began > 60, "the link is slow"
    assert f'"{sink}"' not in db.pg.log.read_text()[logged:], "nothing is reported"


def metrics_show(db, sink: str, delivered: int, dead_letters: int) -> None:
    """outbox.metrics() counts the sink's deliveries, their latencies and its failures."""
    labels, counts = f'datname="{db.name}",sink="{sink}"', {"published_events": delivered, "dead_letters": dead_letters}
    expected = {f"outbox_{name}_total{{{labels}}} {n}" for name, n in counts.items()} | {f"outbox_publish_latency_seconds_count{{{labels}}} {delivered}"}
    wait_until(lambda: expected <= set(db.value("SELECT outbox.metrics()").splitlines()), 30, lambda: db.value("SELECT outbox.metrics()"))
    metrics = db.value("SELECT outbox.metrics()")
    assert float(re.search(rf"outbox_publish_latency_seconds_sum{{{labels}}} (\S+)", metrics)[1]) > 0
    assert sum(map(int, re.findall(rf"outbox_publish_failures_total{{{labels},reason=\S+}} (\d+)", metrics))) >= dead_letters


MAY_BE_MEANT = ("encryption", "keys", "maxlen", "size", "stream")


def advice_is(db, sink: str, *checks: str) -> None:
    """outbox.doctor() finds these mistakes in the sink's options, and its hints correct them: those that are comments end with the statement."""
    rows = f"SELECT \"check\", status, hint FROM outbox.doctor() WHERE \"check\" LIKE 'advice {sink} %'"
    found = db.sql(rows)
    assert [(check, status) for check, status, _ in found] == [(f"advice {sink} {check}", "ok" if check in MAY_BE_MEANT else "warning") for check in checks]
    for _, _, hint in found:
        db.paste(hint.rsplit(": ", 1)[1] if hint.startswith("-- ") else hint)
    assert db.sql(rows) == []

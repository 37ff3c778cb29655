"""nginx as the endpoint, with a location for each fault. All locations get their events at the same time."""

import itertools
import socket
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from nginx_log import Attempt, read_attempts
from outbox_rig import Nginx, Receiver, Rig, wait_until
from outbox_rig.database import Database, module_db
from outbox_rig.receiver import OK, SECRET, slow
from senders import Background, Stream

pytestmark = pytest.mark.slow

# One request in five fails at random: each event is delivered.
HTTP = """
  log_format attempts "$request_uri $status $http_webhook_id $msec $connection";
  split_clients $request_id $unlucky { 20% 1; * ""; }
  split_clients $request_id $fate { 5% 301; 5% 302; 5% 307; 5% 308; * ""; }
  limit_req_zone $uri zone=few:1m rate=100r/s;
"""
LOCATIONS = """
    access_log $dir/attempts.log attempts;
    location = /500 { if ($unlucky) { return 500 "it broke"; } return 204; }
    location = /502 { if ($unlucky) { rewrite ^ /refused last; } return 204; }
    location = /504 { if ($unlucky) { rewrite ^ /mute last; } return 204; }
    location = /444 { if ($unlucky) { return 444; } return 204; }
    location = /413 { client_max_body_size 1k; return 204; }
    location = /429 { limit_req zone=few burst=20 nodelay; limit_req_status 429; proxy_pass http://127.0.0.1:$port/fine; }
    location = /503 { limit_req zone=few burst=100 nodelay; limit_req_status 503; add_header Retry-After 1 always;
                      proxy_pass http://127.0.0.1:$port/fine; }
    location = /redirects { if ($fate = 301) { return 301 /target; } if ($fate = 302) { return 302 /target; }
                            if ($fate = 307) { return 307 /target; } if ($fate = 308) { return 308 /target; } return 204; }
    location = /keepalive { keepalive_requests 3; return 204; }
    location = /once { keepalive_requests 1; return 204; }
    location = /slow { proxy_pass http://127.0.0.1:%(slow)s/hook; }
    location /target { return 204; }
    location /fine { access_log off; return 204; }
    location /refused { internal; proxy_pass http://127.0.0.1:%(refused)s; }
    location /mute { internal; proxy_pass http://127.0.0.1:%(mute)s; proxy_read_timeout 30ms; }
"""
FAULTS = ["500", "502", "503", "504", "413", "429", "444", "redirects", "keepalive", "once", "slow"]
EVENTS = 200
CIRCUIT = ["429"]  # ten failing keys in a row open the circuit; those failures are not counted
LARGE = 20
QUICK = {"retry": "20ms..200ms", "max_attempts": "100", "retention": "1d"}
SPECIAL = {"slow": {"timeout": "300ms"}}


class Faults:
    """A stream of events to each location, and nginx's log of it. `late` is behind /slow."""

    def __init__(self, nginx: Nginx, late: Receiver):
        self._log, self.late = nginx.dir / "attempts.log", late
        self.streams: dict[str, Stream] = {}

    def attempts(self, location: str) -> list[Attempt]:
        return read_attempts(self._log, f"/{location}")


db = module_db


@pytest.fixture(scope="module")
def faults(rig: Rig, db: Database) -> Iterator[Faults]:
    """All streams are being sent."""
    turns = itertools.count()
    late = rig.receiver(secret=SECRET, mode=lambda _: slow(0.6) if next(turns) % 20 == 7 else OK)
    with socket.create_server(("127.0.0.1", 0)) as mute, socket.socket() as refused:
        refused.bind(("127.0.0.1", 0))  # and never listens
        nginx = rig.nginx(http=HTTP, locations=LOCATIONS % {"mute": mute.getsockname()[1], "refused": refused.getsockname()[1], "slow": late.port})
        faults = Faults(nginx, late)
        for fault in FAULTS:
            db.webhook_sink(f"sink_{fault}", f"{nginx.url}/{fault}", SECRET, aggregates=fault, **QUICK | SPECIAL.get(fault, {}))
            faults.streams[fault] = Stream(db, fault, keys=20 if fault in CIRCUIT else 8)
        faults.streams["413"].write(LARGE, {"padding": "x" * 1100})
        for stream in faults.streams.values():
            stream.write(EVENTS)
        yield faults
        nginx.stop()
        late.stop()


def ended(db: Database, fault: str) -> None:
    waiting = "SELECT count(*) FROM outbox.events_pending WHERE sink = %s"
    wait_until(lambda: db.value(waiting, f"sink_{fault}") == 0, 40,
               lambda: f"the stream to end: {db.sql('SELECT * FROM outbox.sinks WHERE name = %s', f'sink_{fault}')}"
                       f" {db.sql('SELECT attempts, available_at - now(), last_error FROM outbox.events_pending WHERE sink = %s LIMIT 5', f'sink_{fault}')}")


def spent(db: Database, fault: str) -> dict[str, int]:
    """The counted failed attempts of the events that have any."""
    return dict(db.sql("SELECT id::text, attempts FROM outbox.events WHERE attempts > 0 AND sink = %s", f"sink_{fault}"))


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in ("413", "slow")])
def test_a_stream_gets_through_in_order(faults, db, fault):
    ended(db, fault)
    attempts = faults.attempts(fault)
    assert faults.streams[fault].check(attempt.id for attempt in attempts if attempt.accepted()) == 0, "what was accepted came again"
    failed, counted = Counter(attempt.id for attempt in attempts if not attempt.accepted()), spent(db, fault)
    if fault in ("keepalive", "once"):
        assert not failed and not counted
        assert max(Counter(attempt.connection for attempt in attempts).values()) == (3 if fault == "keepalive" else 1)
    elif fault in CIRCUIT:
        assert failed and counted.keys() <= failed.keys() and all(counted[event] <= failed[event] for event in counted)
    elif fault == "444":  # a request without a response on a kept connection is repeated at once
        assert counted and all(0 < counted[event] <= failed[event] for event in counted)
    else:
        assert failed == counted
    if fault == "503":
        assert shortest_pause(attempts) > 0.95, "Retry-After: 1"
    if fault == "redirects":
        assert {attempt.status for attempt in attempts} == {204, 301, 302, 307, 308}
        assert not faults.attempts("target"), "no redirect is followed"


def shortest_pause(attempts: list[Attempt]) -> float:
    """The shortest time from a failure of an event to its next attempt."""
    times = defaultdict(list)
    for attempt in attempts:
        times[attempt.id].append(attempt.at)
    return min(later - earlier for of_one in times.values() for earlier, later in zip(of_one, of_one[1:]))


def test_what_is_too_large_is_a_dead_letter_and_its_keys_go_on(faults, db):
    ended(db, "413")
    attempts = faults.attempts("413")
    dead = db.sql("SELECT id::text, last_error FROM outbox.events WHERE status = 'FAILED' AND sink = 'sink_413'")
    assert len(dead) == LARGE and all("HTTP 413" in error for _, error in dead)
    assert Counter(attempt.id for attempt in attempts if not attempt.accepted()) == {event: 3 for event, _ in dead} == spent(db, "413")
    stream = faults.streams["413"]
    stream.without(event for event, _ in dead)
    assert stream.check(attempt.id for attempt in attempts if attempt.accepted()) == 0


def test_answers_after_the_timeout_bring_the_event_again(faults, db):
    ended(db, "slow")
    arrived, counted = faults.late.deliveries, sum(spent(db, "slow").values())
    assert all(delivery.verified for delivery in arrived), "through a proxy"
    assert faults.streams["slow"].check(delivery.id for delivery in arrived) == counted > 0
    assert sum(attempt.status == 499 for attempt in faults.attempts("slow")) == counted, "the connection was given up"


def test_a_proxy_that_is_reloaded_and_restarted_under_traffic(rig, db):
    """The application behind the proxy sees what arrives, and in which order."""
    application = rig.receiver(secret=SECRET)
    nginx = rig.nginx(workers=2, locations=f"""location / {{ proxy_pass {application.url}; proxy_http_version 1.1;
        proxy_set_header Host $host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }}""")
    db.webhook_sink("sink_proxied", nginx.url, SECRET, aggregates="proxied", **QUICK)
    stream, reloaded = Stream(db, "proxied"), threading.Event()

    def write() -> None:
        stream.write(20)
        while not reloaded.is_set():
            stream.write(20)

    with Background(write):
        for goal in (100, 200, 300):
            wait_until(lambda: len(application.deliveries) >= goal, 20, "traffic")
            nginx.reload()
        reloaded.set()
    ended(db, "proxied")
    assert stream.check(delivery.id for delivery in application.deliveries) == 0
    assert all(delivery.verified for delivery in application.deliveries) and not spent(db, "proxied"), "a reload costs no attempt"

    application.clear()
    again = Stream(db, "proxied")
    with Background(lambda: again.write(400)):
        wait_until(lambda: len(application.deliveries) >= 50, 20, "traffic")
        nginx.restart()
    ended(db, "proxied")
    most = db.value("SELECT max(attempts) FROM outbox.events WHERE sink = 'sink_proxied'")
    assert again.check(delivery.id for delivery in application.deliveries) <= 20, "at most what was under way: one of each key, asked for again at once"
    assert most <= 1, "only what was under way may have cost an attempt"
    nginx.stop()
    application.stop()

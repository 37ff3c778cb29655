"""Sinks that are stopped permanently: by a user, by a 410, by failing for disable_after; and how they are resumed."""

import time
from datetime import timedelta

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import HANG, OK, SECRET, Status, status

QUICK = {"retry": "50ms..100ms", "max_attempts": "1000"}
WORKERS = "SELECT count(*) FROM outbox.workers WHERE database = current_database()"


@pytest.fixture
def endpoint(db, rig, setting):
    """The endpoint of the sink crm."""
    setting("outbox.poll_interval", "100ms")  # the test waits for rounds without an event
    receiver = rig.receiver()
    db.webhook_sink("crm", receiver, **QUICK)
    db.enqueue("Order", "warm")
    wait_until(lambda: db.pending() == 0, 10, "a first event")
    receiver.clear()
    yield receiver
    receiver.stop()


def state(db) -> str:
    return db.value("SELECT state FROM outbox.sinks WHERE name ~ 'crm'")


def stop_and_enqueue(db, n: int) -> list[str]:
    """Pauses crm, and enqueues two events for each of n keys."""
    assert db.value("SELECT outbox.pause('crm')")
    assert state(db) == "paused"
    return [db.enqueue("Order", str(i % n)) for i in range(2 * n)]


def a_round(db) -> None:
    """Waits until every worker has completed two rounds."""
    def loops() -> list:
        return db.sql("SELECT last_loop_at FROM outbox.workers WHERE database = current_database() ORDER BY worker")
    for _ in range(2):
        before = loops()
        wait_until(lambda: all(now > then for now, then in zip(loops(), before, strict=True)), 10, "a round of the workers")


def wait_all(db, endpoint, events: list[str]) -> None:
    wait_until(lambda: db.pending() == 0, 20, lambda: f"{db.pending()} rows to leave; {db.sql('SELECT * FROM outbox.sinks')}")
    assert sorted(d.id for d in endpoint.accepted()) == sorted(events), "each once"
    by_key = [d.id for d in endpoint.accepted()]
    keys = dict(zip(events, [i % max(1, len(events) // 2) for i in range(len(events))], strict=True))
    for key in set(keys.values()):
        assert [e for e in by_key if keys[e] == key] == [e for e in events if keys[e] == key]


def test_pause_and_resume(db, endpoint, pg):
    with db.connect(autocommit=False) as session:
        session.execute("SELECT outbox.pause('crm')")
        session.rollback()
    assert state(db) != "paused"

    endpoint.mode = HANG
    on_the_wire = db.enqueue("Order", "first")
    wait_until(lambda: endpoint.open_requests == 1, 10, "a request on the wire")
    behind = db.enqueue("Order", "first")
    waiting = stop_and_enqueue(db, 5)
    endpoint.mode = OK
    endpoint.release()
    wait_until(lambda: db.pending() == 11, 10, "what was on the wire to end")
    assert [d.id for d in endpoint.accepted()] == [on_the_wire]
    a_round(db)
    wait_until(lambda: db.value("SELECT in_flight FROM outbox.sinks") == 0, 10, "what was queued to come back")
    db.set_sink("crm", retry="60ms..100ms")  # no reason to continue
    a_round(db)
    assert state(db) == "paused" and len(endpoint.deliveries) == 1
    assert db.sql("SELECT pending FROM outbox.sinks") == [(11,)]
    assert db.sql("SELECT max(attempts) FROM outbox.events_pending") == [(0,)]
    check, detail, hint = db.doctor("sink crm")
    assert check == "warning" and "paused since" in detail and "by postgres" in detail and hint == "SELECT outbox.resume('crm');"

    db.sql("ALTER SERVER crm RENAME TO crm2")
    db.disconnect()
    pg.restart()
    wait_until(lambda: db.value(WORKERS) == 1, 10, "the worker")
    a_round(db)
    assert state(db) == "paused" and len(endpoint.deliveries) == 1
    endpoint.clear()
    with db.connect(autocommit=False) as session:
        session.execute("SELECT outbox.resume('crm2')")
        session.rollback()
        a_round(db)
        assert not endpoint.deliveries
        session.execute("SELECT outbox.resume('crm2')")
        session.commit()
    wait_until(lambda: db.pending() == 0, 10, "the events")
    order = [d.id for d in endpoint.accepted()]
    assert sorted(order) == sorted([behind, *waiting])
    assert all(order.index(waiting[i]) < order.index(waiting[i + 5]) for i in range(5))
    assert state(db) in ("idle", "delivering")


def test_a_look_at_the_catalog_that_fails_drops_no_sink(db, endpoint):
    assert db.value("SELECT outbox.pause('crm')")
    a_round(db)
    with db.connect(autocommit=False) as session:
        session.execute("LOCK TABLE outbox.stopped_sinks IN ACCESS EXCLUSIVE MODE")
        db.sql("SELECT pg_reload_conf()")  # the worker reads the catalog again, up to that table
        wait_until(lambda: db.value("SELECT state FROM outbox.workers WHERE database = current_database()") == "waiting for a lock", 10, "the worker to give way")
        a_round(db)
        session.rollback()
    wait_until(lambda: db.value("SELECT state FROM outbox.workers WHERE database = current_database()") != "waiting for a lock", 10, "the worker to go on")
    assert state(db) == "paused" and db.value("SELECT delivered FROM outbox.sinks") == 1, "its counters are still there"


def test_all_workers_stop_and_a_database_at_rest_goes_on(db, endpoint, setting):
    setting("outbox.workers", "2")
    wait_until(lambda: db.sql("SELECT shards FROM outbox.workers WHERE database = current_database()") == [(128,)] * 2, 20, "two workers")
    events = stop_and_enqueue(db, 40)
    a_round(db)
    assert not endpoint.deliveries and db.pending() == 80
    db.sql("SELECT outbox.resume('crm')")
    wait_all(db, endpoint, events)

    endpoint.clear()
    setting("outbox.worker_idle_timeout", "50ms")
    events = stop_and_enqueue(db, 2)
    wait_until(lambda: db.value(WORKERS) == 0 and db.value("SELECT idle FROM outbox_internal.library()"), 20, "the workers to leave: nothing is to be done")
    assert state(db) == "paused" and not endpoint.deliveries
    db.sql("SELECT outbox.resume('crm')")
    wait_all(db, endpoint, events)


def test_a_pause_that_the_endpoint_asks_for_is_a_state_that_resume_ends(db, endpoint, setting):
    """A 2xx can ask for it, too."""
    setting("outbox.worker_idle_timeout", "50ms")
    endpoint.mode = Status(200, {"RateLimit-Remaining": "0", "RateLimit-Reset": "60000"})
    db.enqueue("Order", "1")
    wait_until(lambda: state(db) == "paused by endpoint", 10, lambda: state(db))
    endpoint.mode = OK
    waiting = db.enqueue("Order", "1")
    until = db.value("SELECT paused_until - now() FROM outbox.sinks")
    assert timedelta(minutes=55) < until <= timedelta(hours=1), "the default of max_pause"
    check, detail, hint = db.doctor("sink crm")
    assert check == "warning" and "asked for a pause until" in detail and hint.startswith("SELECT outbox.resume('crm');")
    assert len(endpoint.deliveries) == 1 and db.value(WORKERS) == 1, "another worker would not know of the pause"
    assert db.value("SELECT outbox.resume('crm')")
    wait_until(lambda: endpoint.deliveries[-1].id == waiting, 10, "the event")
    wait_until(lambda: db.sql("SELECT state, paused_until FROM outbox.sinks") == [("idle", None)], 10, lambda: str(db.sql("SELECT state, paused_until FROM outbox.sinks")))
    assert db.value("SELECT outbox.resume('crm')") is False


def test_resume_also_tries_the_events_that_wait_for_the_end_of_the_pause(db, endpoint):
    """An event that got the 429 waits as long as the pause. One that failed before for a reason of its own waits on."""
    db.sql("ALTER SERVER crm OPTIONS (SET retry '1h')")
    endpoint.mode = status(400)
    own = db.enqueue("Order", "own")
    wait_until(lambda: db.value("SELECT attempts FROM outbox.events WHERE id = %s", own) == 1, 10, "a failure of its own")
    db.sql("UPDATE outbox.events SET last_attempt_at = now() - interval '1 minute' WHERE id = %s", own)
    endpoint.mode = status(429, 3600)
    events = [db.enqueue("Order", "0")]
    wait_until(lambda: state(db) == "paused by endpoint", 20, lambda: state(db))
    endpoint.mode = OK
    events.append(db.enqueue("Order", "0"))
    assert db.value("SELECT outbox.resume('crm')")
    wait_until(lambda: sorted(d.id for d in endpoint.accepted()) == sorted(events), 20, lambda: str(db.sql("SELECT id, attempts, available_at - now(), last_error FROM outbox.events")))
    wait_until(lambda: db.sql("SELECT id::text, attempts FROM outbox.events WHERE status = 'PENDING'") == [(own, 1)], 10, "recording")
    assert [d.id for d in endpoint.accepted() if d.id in (events[0], events[-1])] == [events[0], events[-1]], "in the order of their key"


def test_a_pause_ends_after_max_pause(db, endpoint):
    db.sql("ALTER SERVER crm OPTIONS (ADD max_pause '1s', SET retry '1ms')")
    endpoint.mode = status(503, 3600)
    failed = db.enqueue("Order", "1")
    wait_until(lambda: endpoint.deliveries, 10, "the first attempt")
    endpoint.mode = OK
    wait_until(lambda: [d.id for d in endpoint.accepted()] == [failed], 10, lambda: str(db.sql("SELECT state, paused_until FROM outbox.sinks")))
    assert endpoint.deliveries[1].at - endpoint.deliveries[0].at > 0.9
    endpoint.mode = status(503, 3600)
    for key in "23":  # nor does the circuit wait for longer, which two keys open
        db.enqueue("Order", key)
    wait_until(lambda: state(db) == "circuit open", 10, lambda: state(db))
    endpoint.mode = OK
    wait_until(lambda: db.pending() == 0, 10, lambda: str(db.sql("SELECT state, paused_until FROM outbox.sinks")))


def test_410_disables_for_good_until_a_person_resumes(db, endpoint, pg):
    endpoint.mode = status(410)
    events = [db.enqueue("Order", "1"), db.enqueue("Order", "1")]
    wait_until(lambda: state(db) == "disabled: 410", 10, "the sink to be disabled")
    check, detail, hint = db.doctor("sink crm")
    assert check == "error" and "disabled since" in detail and "410" in detail and "SELECT outbox.resume('crm')" in hint
    endpoint.mode = OK
    db.disconnect()
    pg.restart()
    wait_until(lambda: db.value(WORKERS) == 1, 10, "the worker")
    a_round(db)
    assert state(db) == "disabled: 410" and len(endpoint.deliveries) == 1
    assert db.sql("SELECT count(*), max(attempts) FROM outbox.events_pending") == [(2, 0)]
    db.paste(hint)
    wait_all(db, endpoint, events)
    wait_until(lambda: db.doctor("sink crm")[0] == "ok", 10, "the row to be gone")


def test_410_for_one_customers_url_disables_nothing(db, receiver):
    """The url has a variable: what is gone is this customer's. The event says so, and the other customers' events go on."""
    receiver.mode = lambda delivery: status(410) if delivery.path.endswith("/gone") else OK
    db.webhook_sink("crm", receiver.url + "/${aggregate_id}", SECRET, retry="1h")
    gone = db.enqueue("Order", "gone")
    others = [db.enqueue("Order", str(n)) for n in range(5)]
    wait_until(lambda: {d.id for d in receiver.accepted()} == set(others), 20, lambda: db.sql("SELECT * FROM outbox.sinks"))
    wait_until(lambda: db.sql("SELECT id::text, attempts, split_part(last_error, ':', 1) FROM outbox.events_pending") == [(gone, 1, "HTTP 410")], 20,
               lambda: db.sql("SELECT * FROM outbox.events_pending"))
    assert db.state() != "disabled: 410"


def test_a_sink_that_is_resumed_before_its_worker_has_looked_again(db, endpoint):
    """The worker has disabled it, and never sees its own row."""
    db.sql("""CREATE FUNCTION resume() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM outbox.resume(NEW.sink); RETURN NULL; END $$;
              CREATE TRIGGER resume AFTER INSERT ON outbox.stopped_sinks FOR EACH ROW EXECUTE FUNCTION resume()""")
    answers = iter([status(410)])
    endpoint.mode = lambda delivery: next(answers, OK)
    wait_all(db, endpoint, [db.enqueue("Order", "1")])


@pytest.mark.slow
@pytest.mark.kills_server
def test_failing_for_disable_after_disables_and_only_time_that_was_tried_counts(db, endpoint, pg):
    def failed_for() -> float:
        return db.value("SELECT extract(epoch FROM failed_for)::float8 FROM outbox_internal.failing_sinks") or 0

    db.sql("ALTER SERVER crm OPTIONS (ADD disable_after '6s')")
    endpoint.mode = status(503)
    first = db.enqueue("Order", "1")
    wait_until(lambda: failed_for() > 0.5, 10, "the outage to be noted")
    endpoint.mode = OK
    wait_until(lambda: db.pending() == 0 and not failed_for(), 10, "a success to end it")
    endpoint.mode = status(503)
    events = [db.enqueue("Order", "1"), db.enqueue("Order", "1")]
    [pid] = db.sql("SELECT pid FROM outbox.workers WHERE database = current_database()")[0]
    wait_until(lambda: failed_for() > 0.4, 10, "the outage to be noted")
    db.sql("SELECT pg_terminate_backend(%s)", pid)
    before = wait_until(lambda: (noted := failed_for()) > 2 and noted, 10, "more of it, by the next worker")
    assert before < 5 and not db.sql("SELECT FROM outbox.stopped_sinks")
    db.disconnect()
    pg.kill()
    tried = len(endpoint.deliveries)
    time.sleep(4.5)  # longer than the remaining time: nothing is sent meanwhile
    pg.start()
    since = wait_until(lambda: db.value("SELECT extract(epoch FROM since)::float8 FROM outbox.stopped_sinks"), 20, "the sink to be disabled")
    assert state(db) == "disabled: disable_after"
    resumed = endpoint.deliveries[tried].at
    assert 0.5 < since - resumed < 5, f"{since - resumed} s after the restart, and {before} s before"
    [(reason, error, row)] = db.sql("SELECT reason, error, stopped_by FROM outbox.stopped_sinks")
    assert reason == "disable_after" and "503" in error and row is None and not failed_for()
    detail = db.value("""SELECT detail FROM outbox.doctor() WHERE "check" = 'sink crm'""")
    assert "failed for disable_after" in detail and "503" in detail
    endpoint.mode = OK
    later = db.enqueue("Order", "2")
    a_round(db)
    assert not [d for d in endpoint.accepted() if d.id != first]
    db.sql("SELECT outbox.resume('crm')")
    wait_until(lambda: db.pending() == 0, 10, "the events")
    order = [d.id for d in endpoint.accepted()]
    assert sorted(order) == sorted([first, *events, later]) and order.index(events[0]) < order.index(events[1])


def test_what_ddl_does_to_a_stopped_sink(db, endpoint):
    """Another endpoint may accept events again after a 410; only a user ends a user's pause."""
    def stopped() -> list:
        return db.sql("SELECT sink, state FROM outbox.stopped_sinks")

    disabled, paused = [("crm", "disabled")], [("crm", "paused")]
    disable = "INSERT INTO outbox.stopped_sinks (sink, state, reason) VALUES ('crm', 'disabled', '410')"
    changes = ["ALTER SERVER crm OPTIONS (ADD timeout '5s')", "CREATE USER MAPPING FOR PUBLIC SERVER crm OPTIONS (token 'token')",
               "ALTER USER MAPPING FOR PUBLIC SERVER crm OPTIONS (SET token 'other')", "DROP USER MAPPING FOR PUBLIC SERVER crm"]
    db.sql(disable)
    db.sql("ALTER SERVER crm VERSION '2'")
    assert stopped() == disabled
    for change in changes[:1]:
        with db.connect(autocommit=False) as session:
            session.execute(change)
            session.rollback()
        assert stopped() == disabled
    db.sql("DELETE FROM outbox.stopped_sinks")
    for change in changes:
        db.sql(disable)
        db.sql(change)
        assert not stopped(), change
    db.sql("SELECT outbox.pause('crm')")
    db.sql("ALTER SERVER crm OPTIONS (DROP timeout)")
    assert stopped() == paused
    db.sql("DROP SERVER crm")
    assert not stopped()
    db.sql(disable)  # as if the wrapper had been dropped with all its servers
    db.webhook_sink("crm", endpoint)
    assert not stopped()
    db.sql("SELECT outbox.pause('crm')")
    db.sql("ALTER SERVER crm RENAME TO crm2")
    with pytest.raises(psycopg.errors.UndefinedObject) as error:
        db.sql("SELECT outbox.resume('crm')")
    assert error.value.diag.message_hint == "The sinks are: 'crm2'."
    assert stopped() == [("crm2", "paused")]


def test_an_operator_needs_no_more_than_execute(db, endpoint):
    with db.role("outbox_stops_operator"):
        with db.connect(user="outbox_stops_operator") as operator:
            for _ in range(2):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    operator.execute("SELECT outbox.pause('crm')")
                db.sql("GRANT USAGE ON SCHEMA outbox TO outbox_stops_operator")
            db.sql("GRANT EXECUTE ON FUNCTION outbox.pause(text), outbox.resume(text) TO outbox_stops_operator")
            operator.execute("SELECT outbox.pause('crm')")
            event = db.enqueue("Order", "1")
            a_round(db)
            assert db.sql("SELECT sink, stopped_by FROM outbox.stopped_sinks") == [("crm", "outbox_stops_operator")]
            assert not endpoint.deliveries
            operator.execute("SELECT outbox.resume('crm')")
        wait_until(lambda: [d.id for d in endpoint.accepted()] == [event], 10, "the event")

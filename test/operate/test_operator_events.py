"""Operator events: what is wrong with a sink, told to the sinks that ask for it."""

import re
import uuid
from pathlib import Path

import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import OK, SECRET, Receiver, Status, status

QUICK = {"retry": "50ms", "max_attempts": "1"}


@pytest.fixture
def ops(db, receiver, setting) -> Receiver:
    """The receiver of the operators' channel."""
    setting("outbox.notice_after", "2s")
    db.webhook_sink("ops", receiver, SECRET, events="outbox.*", format="raw", **QUICK)
    return receiver


@pytest.fixture
def crm(db, rig, ops) -> Receiver:
    """The receiver of a sink that takes every event."""
    endpoint = rig.receiver(secret=SECRET)
    db.webhook_sink("crm", endpoint, SECRET, **QUICK)
    yield endpoint
    endpoint.stop()


def told(ops: Receiver) -> list[dict]:
    return [d.json() for d in ops.accepted() if "text" in d.json()]


def wait_told(ops: Receiver, said: str) -> dict:
    wait_until(lambda: any(said in notice["text"] for notice in told(ops)), 30, lambda: f"{said} among {told(ops)}")
    return next(notice for notice in told(ops) if said in notice["text"])


def look(db, times: int = 1) -> None:
    """As the worker does when nothing was told for outbox.notice_after."""
    for _ in range(times):
        db.sql("UPDATE outbox_internal.conditions SET told_at = told_at - interval '1 day' WHERE what = 'dead_letters'")
        assert db.value("SELECT outbox_internal.look_at_sinks()") == 1


def test_a_sink_is_disabled_and_resumed(db, ops, crm):
    crm.mode = status(410)
    db.enqueue("Order", "1")
    notice = wait_told(ops, 'outbox sink "crm" of database')
    assert "is disabled" in notice["text"] and notice["state"] == "disabled: 410" and notice["sink"] == "crm"
    crm.mode = OK
    db.sql("SELECT outbox.resume('crm')")
    assert wait_told(ops, "is no longer disabled")["was"] == "disabled"
    wait_until(lambda: db.pending() == 0, 20, "delivery")
    assert len(told(ops)) == 2 and len(crm.accepted()) == 1, "crm takes every event, and got no operator event"


def test_dead_letters_are_counted_and_told_once(db, ops, crm):
    crm.mode = status(400, body=b"no such customer")
    for n in range(5):
        db.enqueue("Order", str(n))
    wait_until(lambda: counted(ops) == 5, 30, lambda: f"five: {told(ops)}")
    assert "no such customer" in told(ops)[0]["text"]
    look(db, times=3)
    wait_until(lambda: db.pending() == 0, 20, "delivery")
    assert counted(ops) == 5


def test_a_look_reads_one_of_many_errors(db):
    """All errors together would be a quarter of a gigabyte."""
    db.webhook_sink("crm", "https://localhost:1", events="order.*")
    db.webhook_sink("ops", "https://localhost:1", events="outbox.*")
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, sink, status, attempts, last_error, last_attempt_at, origin, position) "
           "SELECT 'Order', 'k' || n, 'order.created', 'crm', 'FAILED', 1, 'error ' || n || repeat(' of a peer', 820), clock_timestamp(), "
           "(SELECT origin FROM outbox_internal.library()), nextval('outbox.events_position') FROM generate_series(1, 30000) AS n")
    with db.connect() as connection:
        def peak() -> int:
            status = Path(f"/proc/{connection.info.backend_pid}/status").read_text()
            return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])
        query = "SELECT fresh, error FROM outbox_internal.new_dead_letters(clock_timestamp(), '10 minutes', '5 minutes') WHERE sink = 'crm'"
        connection.execute("SELECT count(*), sum(length(event_type)) FROM outbox.events_failed")  # the shared buffers count as its memory
        before = peak()
        [(fresh, error)] = connection.execute(query).fetchall()
        assert fresh == 30_000 and error.startswith("error 30000 of a peer") and len(error) == 500
        assert peak() - before < 50_000
    assert db.value("SELECT outbox_internal.look_at_sinks()") == 1


def counted(ops: Receiver) -> int:
    return sum(notice.get("count", 0) for notice in told(ops))


def test_dead_letters_behind_an_operator_event_and_a_reset_of_the_counters(db, ops, crm):
    """Neither hides them."""
    db.sql("ALTER SERVER crm OPTIONS (ADD events 'order.*, outbox.sink.test')")
    crm.mode = status(400, body=b"no such customer")
    with db.connect(autocommit=False) as session:
        session.execute("SELECT outbox.enqueue('Order', n::text, 'order.paid', '{}') FROM generate_series(1, 3) AS n")
        session.execute("SELECT outbox.enqueue('Order', '9', 'outbox.sink.test', '{}')")
    wait_until(lambda: counted(ops) == 3, 30, lambda: f"three: {told(ops)}")
    assert all("no such customer" in notice["last_error"] for notice in told(ops) if notice["sink"] == "crm")
    db.enqueue("Order", "4")
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events_failed") == 5, 30, "the dead letter")
    db.sql("SELECT outbox.reset_stats()")
    wait_until(lambda: counted(ops) == 4, 30, lambda: f"the fourth: {told(ops)}")


def test_dead_letters_are_told_once_within_the_bound(db, ops, crm, setting):
    """The first at once, and those that follow in one event later: however many die, the channel has room for the rest."""
    setting("outbox.notice_after", "1h")
    crm.mode = status(400)
    db.enqueue("Order", "0")
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events_failed") == 1, 30, "a dead letter")
    assert db.value("SELECT outbox_internal.look_at_sinks()") == 1
    wait_until(lambda: counted(ops) == 1, 30, "the first one")
    for n in range(3):
        db.enqueue("Order", str(n))
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events_failed") == 4, 30, "dead letters")
    for _ in range(3):
        assert db.value("SELECT outbox_internal.look_at_sinks()") == 1
    wait_until(lambda: db.pending() == 0, 20, "delivery")
    assert [notice["count"] for notice in told(ops)] == [1]
    look(db, times=3)
    wait_until(lambda: counted(ops) == 4, 30, lambda: str(told(ops)))
    assert [notice["count"] for notice in told(ops)] == [1, 3]
    db.sql("SELECT outbox.redrive(id, sink) FROM outbox.events WHERE status = 'FAILED'")  # they die again
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events_failed") == 4, 30, "dead letters")
    look(db, times=3)
    wait_until(lambda: counted(ops) == 8, 30, lambda: str(told(ops)))


def test_a_sink_fails_for_long(db, ops, crm):
    crm.stop()
    db.enqueue("Order", "1")
    notice = wait_told(ops, "is failing")
    assert notice["state"] == "circuit open" and notice["pending"] == 1


def test_one_event_fails_for_long_in_a_busy_sink(db, ops, crm):
    """Another event is in flight at each look, so the sink is in the state "delivering"."""
    busy = str(uuid.uuid4())
    crm.mode = lambda d: Status(delay=60) if d.id == busy else Status(503)
    db.sql("ALTER SERVER crm OPTIONS (SET retry '1h', SET max_attempts '3', ADD timeout '2min')")
    db.enqueue("Order", "1", id=busy)
    wait_until(lambda: db.state() == "delivering", 20, "an event in flight")
    db.enqueue("Order", "2")
    assert wait_told(ops, "is failing")["state"] == "delivering"
    crm.stop()


def test_a_sink_fails_for_less_than_the_bound(db, ops, crm, setting):
    """Neither that nor its end is told."""
    setting("outbox.notice_after", "1h")
    crm.stop()
    db.enqueue("Order", "1")
    wait_until(lambda: db.value("SELECT state FROM outbox.sinks WHERE name = 'crm'") == "circuit open", 30, "an open circuit")
    failing = "SELECT told_at FROM outbox_internal.conditions WHERE sink = 'crm' AND what = 'failing'"
    for _ in range(3):
        assert db.value("SELECT outbox_internal.look_at_sinks()") == 1
        assert db.sql(failing) == [(None,)]
    crm.start()
    wait_until(lambda: db.pending() == 0, 20, "delivery")
    assert db.value("SELECT outbox_internal.look_at_sinks()") == 1 and db.sql(failing) == []
    wait_until(lambda: db.pending() == 0, 20, "delivery of a notice")
    assert len(crm.accepted()) == 1 and told(ops) == []


def test_no_event_about_its_own_events(db, ops):
    """The operators' own channel refuses everything."""
    ops.mode = status(400)
    db.set_sink("ops", events="outbox.*, order.*")
    db.enqueue("Order", "1")
    told_of_one = "SELECT count(*) FROM outbox.events_failed WHERE event_type = 'outbox.sink.dead_letters'"
    wait_until(lambda: db.value(told_of_one) == 1, 30, "the dead letter of the notice")
    look(db, times=3)
    assert db.value("SELECT count(*) FROM outbox.events") == 2


def test_a_channel_that_refuses_everything_after_a_while_has_not_recovered(db, ops):
    """Its failing events become dead letters. That it fails is told once, and dies there too; that is no recovery, which would be told and die again."""
    ops.mode = status(400)
    db.set_sink("ops", retry="6s", max_attempts="2")
    db.enqueue("outbox.sink", "x", "outbox.sink.test")
    told_of = "SELECT event_type FROM outbox.events_failed ORDER BY position"
    wait_until(lambda: db.sql(told_of) == [("outbox.sink.test",), ("outbox.sink.failing",)], 60, lambda: str(db.sql("SELECT * FROM outbox.events")))
    look(db, times=3)
    assert db.value("SELECT count(*) FROM outbox.events") == 2
    ops.mode = OK
    db.enqueue("outbox.sink", "y", "outbox.sink.test", payload='{"text": "test"}')
    assert wait_told(ops, "is no longer failing")["was"] == "failing", "it has delivered"


def test_only_sinks_that_name_them(db):
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER every FOREIGN DATA WRAPPER outbox_manual")
    db.sql("CREATE SERVER named FOREIGN DATA WRAPPER outbox_manual OPTIONS (events 'order.*, outbox.sink.disabled')")
    db.enqueue("outbox.sink", "crm", "outbox.sink.disabled")
    assert db.sql("SELECT sink FROM outbox.events") == [("named",)]


def test_an_error_of_several_lines_and_an_event_that_is_refused(db, rig, ops, crm):
    """Neither hides what happens to another sink. A sink that refuses an event takes it from no other channel."""
    picky = rig.receiver(secret=SECRET)
    db.webhook_sink("picky", picky.url + "/${header.tenant}", SECRET, events="outbox.*")
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER tasks FOREIGN DATA WRAPPER outbox_manual OPTIONS (events 'task.*', max_attempts '1')")
    wait_until(lambda: db.value("SELECT count(*) FROM outbox_internal.conditions WHERE what = 'dead_letters'") == 4, 30, "a look")
    event = db.enqueue("Task", "1", "task.made")
    ((token,),) = db.sql("SELECT token FROM outbox.claim('tasks')")
    db.sql("SELECT outbox.nack(%s, %s, E'Traceback\\n  line 1\\n', give_up => true)", token, event)
    crm.mode = status(410)
    db.enqueue("Order", "1")
    assert "Traceback   line 1" in wait_told(ops, "tasks")["text"]
    wait_told(ops, "is disabled")
    assert 'WARNING:  outbox cannot enqueue an operator event for sink "picky": ' in db.pg.log.read_text()
    assert db.sql("SELECT FROM outbox.events WHERE sink = 'picky'") == []
    picky.stop()


def test_a_sink_lags(db, ops, crm):
    """It delivers more slowly than events come, without an error. That is told once, and its end."""
    db.sql("ALTER SERVER crm OPTIONS (ADD rate_limit '1/30s')")
    for n in range(3):
        db.enqueue("Order", str(n))
    notice = wait_told(ops, "is lagging")
    assert notice["sink"] == "crm" and notice["pending"] == 2 and notice["last_error"] is None
    db.sql("ALTER SERVER crm OPTIONS (DROP rate_limit)")
    assert wait_told(ops, "is no longer lagging")["was"] == "lagging"
    assert len(told(ops)) == 2


def test_old_dead_letters_that_are_redriven_do_not_lag(db, ops, crm, setting):
    """Their events are old, but have been due only since then."""
    setting("outbox.notice_after", "30min")
    crm.mode = status(400)
    event = db.enqueue("Order", "1")
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events_failed") == 1, 30, "a dead letter")
    crm.mode = OK
    db.enqueue("Order", "2")  # meanwhile the key that was blocked drains
    wait_until(lambda: len(crm.accepted()) == 1, 30, "the event of another key")
    db.sql("ALTER SERVER crm OPTIONS (ADD rate_limit '1/1h')")
    db.enqueue("Order", "2")
    wait_until(lambda: len(crm.accepted()) == 2, 30, "the only event of this hour")
    db.sql("UPDATE outbox.events SET created_at = created_at - interval '2 hours'")
    assert db.value("SELECT outbox.redrive(%s)", event)
    lagging = "SELECT told_at FROM outbox_internal.conditions WHERE sink = 'crm' AND what = 'lagging'"
    look(db, times=2)
    assert db.sql(lagging) == [(None,)]
    db.sql("UPDATE outbox_internal.conditions SET since = since - interval '20 minutes' WHERE what = 'lagging'")
    look(db)
    assert db.value(lagging) is not None


@pytest.mark.parametrize("new_name", ["crm2", None], ids=["renamed", "dropped"])
def test_a_sink_that_was_told(db, ops, crm, new_name):
    """Under its new name it is not told again, and its end is told; also that it was dropped."""
    crm.mode = status(410)
    db.enqueue("Order", "1")
    wait_told(ops, '"crm" of database')
    if new_name is None:
        db.sql("DROP SERVER crm CASCADE")  # its event is left
        assert wait_told(ops, "is no longer disabled")["state"] == "dropped"
    else:
        with db.connect(autocommit=False) as session:
            session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            session.execute("SELECT FROM outbox.events")
            db.sql("UPDATE outbox_internal.conditions SET since = since")  # as a look may do
            session.execute(f"ALTER SERVER crm RENAME TO {new_name}")
        look(db, times=2)
        crm.mode = OK
        db.sql(f"SELECT outbox.resume('{new_name}')")
        assert wait_told(ops, "is no longer disabled")["sink"] == new_name
    assert len(told(ops)) == 2


@pytest.mark.parametrize("trouble", ["fails", "lags"])
def test_a_channel_in_trouble_gets_each_notice_once(db, ops, trouble):
    """The operators' own channel is the only sink, and the notices about it wait in it. They cause no further ones."""
    if trouble == "lags":
        db.sql("ALTER SERVER ops OPTIONS (ADD rate_limit '1/30s')")
    else:
        ops.mode = status(503)
    db.set_sink("ops", events="outbox.*, order.*", max_attempts="100")
    db.sql("SELECT count(outbox.enqueue('Order', n::text, 'order.paid', '{}')) FROM generate_series(1, 20) n")
    notices = "SELECT event_type FROM outbox.events WHERE event_type LIKE 'outbox.%' ORDER BY event_type"
    expected = [("outbox.sink.lagging",)] if trouble == "lags" else [("outbox.sink.failing",), ("outbox.sink.lagging",)]
    wait_until(lambda: db.sql(notices) == expected, 30, lambda: str((db.sql(notices), db.sql("SELECT * FROM outbox_internal.conditions"))))
    for _ in range(5):
        assert db.value("SELECT outbox_internal.look_at_sinks()") == 1
    assert db.sql(notices) == expected
    if trouble == "lags":
        db.sql("ALTER SERVER ops OPTIONS (DROP rate_limit)")
    ops.mode = OK
    for (event_type,) in expected:
        wait_told(ops, f"is no longer {event_type.rsplit('.', 1)[1]}")
    wait_until(lambda: db.pending() == 0, 20, "delivery")
    assert len(told(ops)) == 2 * len(expected), "the beginning and the end of each"

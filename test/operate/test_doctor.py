"""What outbox.doctor() reports about library, worker and sinks: the cause, and a hint that ends the stall when it is
pasted unchanged."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pytest
from outbox_rig import wait_until
from outbox_rig.asleep import stop_asleep
from outbox_rig.database import Database
from outbox_rig.receiver import HANG, OK, SECRET, slow, status
from outbox_rig.traffic import Traffic

CHECKS = ["preload", "version", "librdkafka", "worker", "standby", "timeline", "locks", "row locks", "transactions", "prepared", "horizon", "routes", "lost sink",
          "origin", "clock", "positions", "dead letters", "sink crm", "tables", "collation", "retention", "vacuum", "secrets", "publications"]


def test_a_healthy_database(receiver, db):
    assert db.doctor("worker")[0] == "ok"  # while it is starting
    db.webhook_sink("crm", receiver, SECRET)
    db.enqueue("Order", "1")
    wait_until(lambda: db.pending() == 0, 10, "delivery")
    assert db.sql("SELECT \"check\", status, hint FROM outbox.doctor() WHERE \"check\" <> 'librdkafka'") == [
        (check, "ok", None) for check in CHECKS if check != "librdkafka"]
    assert db.doctor("librdkafka")[0] == "ok"


def test_groups_that_fail(db):
    """Users ask for checks by name: each check of a group that could not look has a row."""
    well = [check for check, in db.sql("SELECT \"check\" FROM outbox.doctor() WHERE \"check\" <> 'sessions'")]
    groups = db.sql("""SELECT proname FROM pg_proc WHERE pronamespace = 'outbox_internal'::regnamespace
                       AND proname ~ '^doctor_' AND proargnames = '{patience,check,status,detail,hint}'""")
    for group, in groups:
        db.sql(f"""CREATE OR REPLACE FUNCTION outbox_internal.{group}(
                     patience interval, OUT "check" text, OUT status text, OUT detail text, OUT hint text
                   ) RETURNS SETOF record LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$""")
    rows = db.sql("SELECT \"check\", detail FROM outbox.doctor() WHERE \"check\" <> 'sessions'")
    assert [check for check, _ in rows] == well
    assert {detail for _, detail in rows} == {"The doctor could not look: broken"}


def test_the_default_of_patience(db):
    db.sql("""CREATE OR REPLACE FUNCTION outbox_internal.doctor_transactions(
                patience interval, OUT "check" text, OUT status text, OUT detail text, OUT hint text
              ) RETURNS SETOF record LANGUAGE sql AS $$ SELECT 'transactions', 'ok', $1::text, NULL $$""")
    for call, patience in (("doctor()", "00:00:30"), ("doctor(NULL)", "00:00:30"), ("doctor(patience => '5 s')", "00:00:05")):
        assert db.value(f"SELECT detail FROM outbox.{call} WHERE \"check\" = 'transactions'") == patience


@pytest.mark.timing
def test_no_false_alarm_under_load(db, receiver, setting):
    """Writers that commit and roll back, a retention, a worker that exits when idle and is started by each event: no
    check ever fails. The patience is long: a commit that waits a second for a slow disk is a true finding."""
    setting("outbox.retention", "1d")
    setting("outbox.worker_idle_timeout", "100ms")
    db.webhook_sink("crm", receiver, SECRET)
    found = []
    with Traffic(db, "Order"):
        for _ in range(25):
            found += db.complaints("30 seconds")
    wait_until(lambda: db.pending() == 0, 20, "delivery")
    rested = 0
    for n in range(6):
        wait_until(lambda: not db.sql("SELECT 1 FROM outbox.workers WHERE database = current_database()"), 20, "the worker to rest")
        rested += db.doctor("worker")[1].startswith("Nothing is due")
        found += db.complaints("30 seconds")
        db.enqueue("Order", str(n))
        while db.pending() > 0:
            found += db.complaints("30 seconds")
    assert rested > 0 and found == []


def test_no_preload(rig, receiver):
    """It installs and enqueues, and outbox.doctor() reports what is missing; after the hint and a restart, all
    events are delivered."""
    with rig.postgres(settings={"shared_preload_libraries": ""}) as pg:
        db = Database(pg, "bare").create()
        db.webhook_sink("crm", receiver, SECRET)
        event = db.enqueue("Order", "1")
        assert db.sql("SELECT id::text, sink FROM outbox.events") == [(event, "crm")]
        state, detail, hint = db.doctor("preload")
        assert state == "error" and "no worker delivers" in detail
        assert db.doctor("worker")[0] == "error"
        assert db.sink("state, pending") == ("not preloaded", 1)
        assert db.sql("SELECT * FROM outbox.workers") == []
        db.paste(hint)
        db.disconnect()
        pg.restart()
        wait_until(receiver.accepted, 20, "delivery")
        wait_until(lambda: db.complaints() == [], 10, lambda: str(db.complaints()))
        db.disconnect()


def test_library_that_is_older_than_the_extension(db):
    """The package was upgraded, and the server not restarted."""
    installed = db.value("SELECT extversion FROM pg_extension WHERE extname = 'outbox'")
    db.sql("UPDATE pg_extension SET extversion = '99.0.0' WHERE extname = 'outbox'")
    state, detail, hint = db.doctor("version")
    assert state == "error" and "99.0.0" in detail and installed in detail
    db.paste(hint)
    assert hint.startswith("-- restart the server")
    db.sql("UPDATE pg_extension SET extversion = %s WHERE extname = 'outbox'", installed)
    assert db.doctor("version")[0] == "ok"


@pytest.mark.parametrize("name, value, words", [("outbox.enabled", "off", "enabled is off"), ("outbox.workers", "0", "workers is 0")])
def test_delivery_is_turned_off(db, receiver, setting, name, value, words):
    db.webhook_sink("crm", receiver, SECRET)
    setting(name, value)
    wait_until(lambda: not db.sql("SELECT 1 FROM outbox.workers WHERE database = current_database()"), 10, "the worker to go")
    db.enqueue("Order", "1")
    state, detail, hint = db.doctor("worker")
    assert state == "warning" and words in detail
    assert db.sink("state") == ("no worker",)
    db.paste(hint)
    wait_until(receiver.accepted, 10, "delivery")
    assert db.doctor("worker")[0] == "ok"


def test_a_template_database_has_no_worker(db, receiver, pg):
    db.webhook_sink("crm", receiver, SECRET)
    db.sql(f"ALTER DATABASE {db.name} IS_TEMPLATE true")
    state, detail, hint = db.doctor("worker")
    assert state == "warning" and "template" in detail
    db.paste(hint)
    db.enqueue("Order", "1")
    wait_until(receiver.accepted, 20, "delivery")
    assert db.doctor("worker")[0] == "ok"


@contextmanager
def broken(db, pg):
    """No session can connect to the database: one of its files is missing."""
    folder = pg.data / "base" / str(db.value("SELECT oid FROM pg_database WHERE datname = current_database()"))
    os.rename(folder / "PG_VERSION", folder / "away")
    try:
        yield
    finally:
        os.rename(folder / "away", folder / "PG_VERSION")


def test_a_worker_that_dies_again_and_again(db, pg, receiver):
    db.webhook_sink("crm", receiver, SECRET)
    worker = wait_until(lambda: db.value("SELECT pid FROM outbox.workers WHERE database = current_database()"), 10, "a worker")
    with broken(db, pg):
        db.sql("SELECT pg_terminate_backend(%s)", worker)
        dies = re.compile("[2-9] times in a row.*is not a valid data directory.* The next one starts at")
        state, detail, hint = wait_until(lambda: (said := db.doctor("worker"))[0] == "error" and dies.search(said[1]) and said, 20, lambda: str(db.doctor("worker")))
        assert pg.log.read_text().count("is not a valid data directory") >= 1
    db.paste(hint)
    db.enqueue("Order", "1")
    wait_until(receiver.accepted, 20, "delivery by the next one")
    assert db.doctor("worker")[0] in ("ok", "warning")  # the error is reported for a minute


ENDS = {"terminated": lambda db, setting, n: db.sql("SELECT pg_terminate_backend(pid) FROM outbox.workers WHERE database = current_database()"),
        "another cluster name": lambda db, setting, n: setting("outbox.cluster_name", f"name{n}")}


@pytest.mark.parametrize("end", ENDS)
def test_a_worker_that_is_told_to_end_has_not_failed(db, pg, setting, end):
    """The next one starts at once, however often, and the log says why the last one has ended."""
    start, pid = pg.log.stat().st_size, "SELECT pid FROM outbox.workers WHERE database = current_database()"
    said = set()
    for n in range(4):
        worker = wait_until(lambda: db.value(pid), 10, "a worker")
        ENDS[end](db, setting, n)
        wait_until(lambda: said.add(db.doctor("worker")[:2]) or db.value(pid) not in (None, worker), 10, "the next one")
        assert db.value("SELECT failures FROM outbox_internal.worker_health()") == 0
    assert {state for state, _ in said} == {"ok"}, said
    words = "stops on request" if end == "terminated" else "restarts because outbox.cluster_name has changed"
    log = pg.logged(start)
    assert log.count(f'LOG:  outbox worker of database "{db.name}" {words}') == 4 and "outbox worker" not in "".join(
        line for line in log.splitlines() if "exited with exit code" in line), log


PTRACE_ATTACH, PTRACE_DETACH = 16, 17


def traced(pid: int) -> tuple[str, Callable[[], object]]:
    """Stops a process as a debugger does. Returns what the doctor says of it, and what ends it."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.ptrace(PTRACE_ATTACH, pid, None, None) == 0, os.strerror(ctypes.get_errno())
    return f": the debugger with pid {threading.get_native_id()} has stopped it.", lambda: libc.ptrace(PTRACE_DETACH, pid, None, None)


@pytest.mark.parametrize("way", ["signal", "debugger"])
def test_a_worker_that_stands_still(db, receiver, way):
    """It takes no SIGTERM, so that the hint must not promise that one ends it."""
    db.webhook_sink("crm", receiver, SECRET)
    worker = stop_asleep(db, "backend_type = 'outbox worker' AND datname = current_database()")
    undo: list[Callable[[], object]] = []
    try:
        words, cure = ": a signal has stopped it (SIGSTOP or SIGTSTP).", f"kill -CONT {worker};"
        if way == "debugger":
            words, detach = traced(worker)
            cure = "Detach or end the debugger"
            undo.append(detach)
            os.kill(worker, signal.SIGCONT)
        db.enqueue("Order", "1")
        state, detail, hint = wait_until(lambda: (said := db.doctor("worker", "500 ms"))[0] == "error" and said, 20, "the doctor")
        assert f"pid {worker} " in detail and detail.endswith(words), detail
        assert hint.startswith("-- ") and cure in hint and f"kill -9 {worker}, after which PostgreSQL restarts the whole cluster" in hint, hint
        db.sql("SELECT pg_terminate_backend(%s)", worker)
        assert db.doctor("worker", "500 ms")[:2] == (state, detail), "it is still there"
    finally:
        for step in undo:
            step()
        os.kill(worker, signal.SIGCONT)  # as the hint says
    wait_until(lambda: db.value("SELECT pid FROM outbox.workers WHERE database = current_database()") not in (None, worker), 20, "another worker")
    wait_until(lambda: db.pending() == 0, 20, "delivery")
    assert db.doctor("worker", "1 minute")[0] == "ok"


def test_a_process_that_waits_for_its_disk(db):
    """As a parent waits for its vfork() child: the hint can still be pasted, and says that no signal reaches it yet."""
    reader, writer = os.pipe()
    parent = subprocess.Popen([sys.executable, "-c", "import ctypes; libc = ctypes.CDLL(None)\n"
                               f"if libc.vfork() == 0: libc.read({reader}, ctypes.create_string_buffer(1), 1); libc._exit(0)"], pass_fds=[reader])
    try:
        wait_until(lambda: Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text(), 20, "the child")  # before, it may wait for its own pages
        wait_until(lambda: db.value("SELECT state FROM outbox_internal.process_state(%s)", parent.pid) == "D", 20, "state D")
        halt, hint = db.sql("SELECT outbox_internal.doctor_halt(%s), outbox_internal.doctor_terminate(%s, 'it ends')", parent.pid, parent.pid)[0]
        assert halt == "it waits in the kernel for a disk or a network file system (state D)"
        assert hint.startswith(f"SELECT pg_terminate_backend({parent.pid}); -- it ends. Until its I/O ends, it takes no signal, kill -9 neither"), hint
    finally:
        os.write(writer, b"x")
        parent.wait(20)
        os.close(reader)
        os.close(writer)
    assert db.sql("SELECT state, tracer FROM outbox_internal.process_state(%s)", parent.pid) == [(None, None)]


def test_a_session_that_is_stopped(db):
    session = db.connect(autocommit=False)
    session.execute("LOCK TABLE outbox.events IN SHARE MODE")
    pid = session.info.backend_pid
    os.kill(pid, signal.SIGSTOP)
    try:
        status_, detail, hint = wait_until(lambda: (said := db.doctor("locks"))[0] != "ok" and "a signal has stopped it" in said[1] and said, 20, "the lock")
        assert hint.startswith("-- ") and f"kill -CONT {pid};" in hint, hint
    finally:
        os.kill(pid, signal.SIGCONT)
        session.close()
    wait_until(lambda: db.doctor("locks")[0] == "ok", 20, "the lock to end")


def test_a_sink_that_a_rate_limit_holds(db, receiver):
    db.webhook_sink("crm", receiver, SECRET, rate_limit="1/min")
    db.sql("SELECT outbox.enqueue('Order', n::text, 'order.created', '{}') FROM generate_series(1, 20) AS n")
    said = wait_until(lambda: (row := db.doctor("sink crm", "100 ms")) and row[0] == "warning" and row, 20, lambda: str(db.doctor("sink crm")))
    assert re.search(r" Held by rate_limit 1/min: about (19|20) min for the (19|20) that can be sent now\.$", said[1]), said
    assert said[2] == '-- if the endpoint takes more: ALTER SERVER crm OPTIONS (SET rate_limit \'...\');'
    status_, detail, hint = db.doctor("sink crm", "1 hour")
    assert (status_, hint) == ("ok", None) and "Held by rate_limit 1/min" in detail, "nothing has waited for that long"


def test_a_slow_endpoint_with_a_backlog(db, receiver):
    receiver.mode = slow(0.2)
    db.webhook_sink("crm", receiver, SECRET, concurrency="2")
    db.sql("SELECT outbox.enqueue('Order', n::text, 'order.created', '{}') FROM generate_series(1, 9000) AS n")
    said = wait_until(lambda: (row := db.doctor("sink crm", "100 ms")) and row[0] == "warning" and row, 30, lambda: str(db.doctor("sink crm")))
    assert re.search(r" 2 at a time, \d+(\.\d)?/s: about \d+ (min|h) for the \d+ that can be sent now\.$", said[1]), said
    assert "option" in said[2] and "latency_p50" in said[2], said
    db.sql("SELECT outbox.pause('crm')")
    assert "paused" in db.doctor("sink crm")[1] and "at a time" not in db.doctor("sink crm")[1]
    assert db.value("SELECT words FROM outbox_internal.doctor_pace('{concurrency=2}', NULL, 5)") is None, "nothing of it is to be sent now"


# ---- sinks ---------------------------------------------------------------------------------------------------------


def test_a_circuit_that_is_open(db, receiver):
    receiver.stop()
    db.webhook_sink("crm", receiver, SECRET)
    db.enqueue("Order", "1")
    wait_until(lambda: db.sink("state") == ("circuit open",), 10, "an open circuit")
    state, detail, hint = db.doctor("sink crm")
    assert state == "error" and "circuit open" in detail and str(receiver.port) in detail
    assert "connect" in db.paste(hint)
    receiver.start()
    wait_until(lambda: db.doctor("sink crm")[0] == "ok", 20, "the circuit to close")


@pytest.mark.parametrize("mode, words", [(HANG, "timed out|timeout|within"), (status(503), "503"), (status(429), "429")], ids=["silent", "503", "429"])
def test_the_hint_for_a_failing_endpoint_shows_its_failure(db, receiver, mode, words):
    """To connect is not enough to see it."""
    receiver.mode = mode
    db.webhook_sink("crm", receiver, SECRET, timeout="500ms")
    for key in "ab":
        db.enqueue("Order", key)
    hint = wait_until(lambda: (said := db.doctor("sink crm"))[0] != "ok" and "probe" in said[2] and said[2], 30, lambda: str(db.doctor("sink crm")))
    failed = [(step, message) for step, ok, _, message, _ in db.sql(hint) if not ok]
    assert len(failed) == 1 and re.search(words, str(failed)), (hint, failed)


def test_a_secret_that_is_missing(db, receiver):
    db.webhook_sink("crm", receiver)
    for mapping in (False, True):
        state, detail, hint = db.doctor("advice crm signature")
        assert state == "warning" and "not signed" in detail
        with db.connect(autocommit=False) as trial:
            trial.execute(hint[hint.index(": ") + 2:].replace("whsec_...", SECRET))
            assert trial.execute("SELECT FROM outbox.doctor() WHERE \"check\" = 'advice crm signature'").fetchall() == []
            trial.rollback()
        if not mapping:
            db.create_mapping("crm", {"token": "t"})
    db.paste(hint[hint.index(": ") + 2:].replace("whsec_...", SECRET))
    assert db.doctor("advice crm signature") is None


def test_a_url_that_is_missing(db, receiver):
    """The URL may be in the user mapping, so the DDL cannot refuse its absence."""
    db.sql("CREATE SERVER crm FOREIGN DATA WRAPPER outbox_webhook OPTIONS (allow_http 'true', allow_networks '127.0.0.0/8')")
    db.enqueue("Order", "1")
    wait_until(lambda: db.sink("state") == ("misconfigured",), 10, "the worker to see")
    state, detail, hint = db.doctor("sink crm")
    assert state == "error" and "url" in detail
    assert "url" in db.paste(hint)
    db.sql(f"CREATE USER MAPPING FOR PUBLIC SERVER crm OPTIONS (url '{receiver.url}', secret '{SECRET}')")
    wait_until(receiver.accepted, 2, "delivery at once")
    assert db.doctor("sink crm")[0] == "ok"


def test_a_key_that_a_failing_event_holds(db, receiver):
    """The event is named by its id; retried at once, it is delivered and the key continues."""
    receiver.mode = status(500, body=b"no stock")
    db.webhook_sink("crm", receiver, SECRET, retry="1h")
    first = db.enqueue("Order", "1", payload='"hidden"')
    db.enqueue("Order", "1", payload='"hidden"')
    state, detail, hint = wait_until(lambda: (said := db.doctor("sink crm")) and "1 waits behind" in said[1] and said, 20, lambda: str(db.doctor("sink crm")))
    assert state == "warning" and first in detail and "HTTP 500: no stock" in detail and "hidden" not in str(db.sql("SELECT * FROM outbox.doctor()"))
    receiver.mode = OK
    db.paste(hint)
    wait_until(lambda: len(receiver.accepted()) == 2, 20, "both")
    wait_until(lambda: db.complaints() == [], 10, lambda: str(db.complaints()))


def test_a_key_that_a_dead_letter_holds(db, receiver):
    receiver.mode = status(500)
    db.webhook_sink("crm", receiver, SECRET, retry="10ms", max_attempts="1", on_dead_letter="block")
    first = db.enqueue("Order", "1")
    wait_until(lambda: db.sink("dead") == (1,), 20, "a dead letter")
    db.enqueue("Order", "1")
    state, detail, hint = wait_until(lambda: (said := db.doctor("sink crm")) and "1 waits behind" in said[1] and said, 20, lambda: str(db.doctor("sink crm")))
    assert state == "warning" and first in detail
    receiver.mode = OK
    db.paste(hint)
    wait_until(lambda: len(receiver.accepted()) == 2, 20, "both")


def test_a_dispatcher_that_is_missing_beside_a_dead_letter(db):
    """The row of the sink names the events that do not move first."""
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER mine FOREIGN DATA WRAPPER outbox_manual")
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, sink, status, attempts, last_error, last_attempt_at)"
           " VALUES ('Order', '1', 'e', 'mine', 'FAILED', 3, 'no', now())")
    state, detail, hint = db.doctor("sink mine")
    assert state == "warning" and "1 dead letter" in detail and "outbox.redrive" in hint
    db.enqueue("Order", "2")
    db.sql("UPDATE outbox.events SET created_at = now() - interval '2 hours' WHERE status = 'PENDING'")
    state, detail, hint = db.doctor("sink mine")
    assert state == "warning" and "1 dead letter" in detail and "nothing is claimed" in detail and "pg_stat_activity" in hint
    db.sql("UPDATE outbox.events SET available_at = now() + interval '1 hour', last_attempt_at = now(), last_error = 'full', attempts = 1 WHERE status = 'PENDING'")
    db.enqueue("Order", "3")
    db.sql("UPDATE outbox.events SET created_at = now() - interval '2 hours' WHERE status = 'PENDING'")
    state, detail, hint = db.doctor("sink mine")
    assert state == "warning" and "nothing is claimed" in detail and "pg_stat_activity" in hint
    db.paste(hint)


# ---- who may ask ---------------------------------------------------------------------------------------------------


def test_an_operator_sees_what_a_superuser_sees(db, receiver):
    """Including sessions, locks and failing events, which the role cannot read itself."""
    receiver.mode = status(500)
    db.webhook_sink("crm", receiver, SECRET, retry="1h")
    db.enqueue("Order", "1")
    wait_until(lambda: db.doctor("sink crm")[0] == "warning", 20, lambda: str(db.doctor("sink crm")))
    with db.connect() as operator, db.connect(autocommit=False) as writer:
        operator.execute("CREATE ROLE doctor_operator; GRANT USAGE ON SCHEMA outbox TO doctor_operator;"
                         " GRANT EXECUTE ON FUNCTION outbox.doctor TO doctor_operator")
        writer.execute("SELECT outbox.enqueue('Order', '2', 'e', '{}')")
        found(db, "transactions", writer)
        try:
            whole = "SELECT \"check\", status, hint FROM outbox.doctor('100 ms')"
            expected = db.sql(whole)
            operator.execute("SET ROLE doctor_operator")
            with pytest.raises(Exception, match="permission denied"):
                operator.execute("SELECT * FROM outbox.events_pending")
            assert operator.execute(whole).fetchall() == expected
            assert {("sink crm", "warning"), ("transactions", "warning")} <= {row[:2] for row in expected}
            assert len(operator.execute("SELECT FROM outbox.doctor()").fetchall()) >= len(CHECKS)
        finally:
            operator.execute("RESET ROLE; DROP OWNED BY doctor_operator; DROP ROLE doctor_operator")


def found(db, check, session):
    wait_until(lambda: f"({session.info.backend_pid})" in (db.doctor(check, "100 ms")[2] or ""), 10, lambda: str(db.complaints("100 ms")))

"""A synchronous standby: events that it has not confirmed are not delivered, and after a failover no event was
delivered that is not in its table."""

import itertools
import os
import signal
import subprocess
import threading
import time

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.asleep import stop_asleep
from outbox_rig.database import Database
from outbox_rig.paths import pg_config
from outbox_rig.receiver import HANG, OK, SECRET, slow, status
from outbox_rig.traffic import Traffic

MAX_IN_FLIGHT = 200
numbers = itertools.count(1)
WAITING = "waiting for a synchronous standby"


@pytest.fixture(scope="module")
def pg(rig):
    """A primary that waits for its standby."""
    primary = rig.postgres(settings={"outbox.poll_interval": "1s", "outbox.max_in_flight": str(MAX_IN_FLIGHT)})
    primary.standby = rig.postgres(standby_of=primary)
    primary.set("synchronous_standby_names", "standby")
    return primary


@pytest.fixture
def db(pg):
    pg.standby.start()  # an earlier test may have left the standby stopped
    database = Database(pg, f"orders{next(numbers)}").create()
    return database


def local(db) -> psycopg.Connection:
    """A session whose commits do not wait for the standby."""
    return db.connect(options="-c synchronous_commit=local")


def enqueue(connection, number: int) -> str:
    return str(connection.execute("SELECT outbox.enqueue('Order', %s::text, 'order.created', '{}')", [str(number)]).fetchone()[0])


def cancelled_wait(db, number: int) -> str:
    """An event whose transaction waited for the standby until a user cancelled the wait."""
    with db.connect() as session:
        ids, notices = [], []
        session.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        thread = threading.Thread(target=lambda: ids.append(enqueue(session, number)))
        thread.start()
        wait_until(lambda: db.value("SELECT wait_event FROM pg_stat_activity WHERE pid = %s", session.info.backend_pid) == "SyncRep",
                   20, "the wait for the standby")
        session.cancel()
        thread.join()
        assert any("canceling wait for synchronous replication" in notice for notice in notices)
    return ids[0]


def wait_for_waiting(db) -> None:
    wait_until(lambda: db.value("SELECT state FROM outbox.workers WHERE database = %s", db.name) == WAITING, 20, "the worker to wait")


def test_an_unconfirmed_event_waits(db, pg, receiver):
    db.webhook_sink("crm", receiver, SECRET)
    confirmed = db.enqueue("Order", "1")
    wait_until(receiver.accepted, 20, "delivery with a standby")
    wait_until(lambda: db.pending() == 0, 20, "its row to leave")

    receiver.mode = slow(1)
    in_flight = db.enqueue("Order", "2")
    wait_until(lambda: len(receiver.deliveries) == 2, 20, "a request")
    log_start = pg.log.stat().st_size
    pg.standby.stop()
    with local(db) as person:
        waiting = [enqueue(person, 3), cancelled_wait(db, 4)]
        wait_for_waiting(db)
        wait_until(lambda: db.value("SELECT state FROM outbox.sinks") == WAITING, 10, "the sink to say so")
        [(status, detail, hint)] = db.sql("SELECT status, detail, hint FROM outbox.doctor() WHERE \"check\" = 'standby'")
        assert status == "warning" and "standby" in detail and "outbox.wait_for_standbys" in hint
        assert hint.startswith("SELECT ") and hint.index("another server the primary") < hint.index("outbox.wait_for_standbys"), "an old primary would send again"
        # Work that needs no standby continues: recordings, and changes of the sink.
        wait_until(lambda: db.pending() == 2, 20, "the recording of what was in flight")
        person.execute(f"ALTER SERVER crm OPTIONS (SET url '{receiver.url}/new')")
        receiver.mode = slow(0)
    assert [d.id for d in receiver.deliveries] == [confirmed, in_flight]
    assert pg.logged(log_start).count("outbox waits for a synchronous standby") == 1

    pg.standby.start()
    wait_until(lambda: len(receiver.deliveries) == 4, 30, "delivery after the standby's return")
    assert sorted(d.id for d in receiver.deliveries[2:]) == sorted(waiting)
    assert {d.path for d in receiver.deliveries[2:]} == {"/hook/new"}
    wait_until(lambda: db.pending() == 0, 20, "their rows to leave")
    assert db.doctor("standby")[0] == "ok"

    pg.standby.stop()
    with local(db) as person:
        enqueue(person, 5)
        wait_for_waiting(db)
        pg.set("outbox.wait_for_standbys", "off")
        wait_until(lambda: len(receiver.deliveries) == 5, 20, "delivery without the standby")
        pg.set("outbox.wait_for_standbys", "on")
        enqueue(person, 6)
        wait_for_waiting(db)
    db.disconnect()
    with pg.connect(options="-c synchronous_commit=local") as admin:
        admin.execute(f"DROP DATABASE {db.name} WITH (FORCE)")  # it fails after 5 s if the worker stays
    pg.standby.start()


def test_unconfirmed_recordings_fill_the_worker(db, pg, receiver):
    """Recordings that the standby has not confirmed take up all of outbox.max_in_flight. Its confirmation makes room,
    although no commit and no answer of the endpoint follow it."""
    pg.set("outbox.poll_interval", "1h")
    pg.set("outbox.max_in_flight", "4")
    try:
        db.webhook_sink("crm", receiver, SECRET, retry="500ms..1s")
        receiver.mode = HANG
        db.sql("SELECT outbox.enqueue('Order', n::text, 'order.created', to_jsonb(n)) FROM generate_series(1, 20) AS n")
        wait_until(lambda: len(receiver.deliveries) == 4, 20, "four requests")
        sender = stop_asleep(db, "backend_type = 'walsender'")
        try:
            receiver.mode = OK
            receiver.release(lambda delivery: status(500) if delivery.json()["data"] == 1 else OK)
            wait_until(lambda: db.pending() == 17 and db.value("SELECT available_at < now() FROM outbox.events WHERE attempts = 1"), 20,
                       "the recordings, and the failed event to be due")
            before = db.transactions()
            time.sleep(3)
            assert db.transactions() - before < 100, "a busy loop"
            assert len(receiver.deliveries) == 4
        finally:
            os.kill(sender, signal.SIGCONT)
        wait_until(lambda: db.pending() == 0, 20, lambda: f"the other {db.pending()} events to leave")
    finally:
        pg.set("outbox.poll_interval", "1s")
        pg.set("outbox.max_in_flight", str(MAX_IN_FLIGHT))


def test_what_a_confirmation_is_follows_a_reload(rig, receiver):
    """With remote_write the standby must have written, with on it must have flushed. This standby flushes only whole
    files."""
    pg = rig.postgres(settings={"outbox.poll_interval": "1s", "synchronous_commit": "remote_write"})
    db = Database(pg, "written").create()
    db.webhook_sink("crm", receiver, SECRET)
    receive = [str(pg_config("bindir") / "pg_receivewal"), "-d", pg.dsn(), "-D", str(rig.dir / "received"), "--slot=received"]
    (rig.dir / "received").mkdir()
    subprocess.run([*receive, "--create-slot"], check=True)
    standby = subprocess.Popen([*receive, "--no-loop", "--status-interval=1"])
    try:
        pg.set("synchronous_standby_names", "*")
        with local(db) as person:
            enqueue(person, 1)
            wait_until(lambda: len(receiver.deliveries) == 1, 20, "an event that the standby has written")
            pg.set("synchronous_commit", "on")
            enqueue(person, 2)
            written = db.value("SELECT pg_current_wal_flush_lsn()")
            wait_until(lambda: db.value("SELECT write_lsn >= %s AND flush_lsn < %s FROM pg_stat_replication", written, written), 20, "the standby to write it")
            for _ in range(20):  # the worker checks every 50 ms
                wait_for_waiting(db)
                assert len(receiver.deliveries) == 1
                time.sleep(0.05)
            pg.set("synchronous_commit", "remote_write")
            wait_until(lambda: len(receiver.deliveries) == 2, 20, "it, when to write is enough")
    finally:
        standby.kill()
        standby.wait()
        db.disconnect()
        pg.close()


def test_preview_on_the_standby(db, pg):
    """outbox.preview() only reads: it returns the same on a read-only server."""
    db.sql("CREATE SERVER main FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1')")
    db.sql("CREATE SERVER crm FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://crm.invalid/hooks')")
    event = db.enqueue("Order", "1")
    preview = "SELECT * FROM outbox.preview(%s)"
    shown = db.sql(preview, event)
    assert {row[0] for row in shown} == {"main", "crm"}
    with pg.standby.connect(db.name) as reader:
        wait_until(lambda: reader.execute("SELECT to_regclass('outbox.events') IS NOT NULL").fetchone()[0], 20, "the extension on the standby")
        wait_until(lambda: reader.execute("SELECT count(*) FROM outbox.events").fetchone() == (2,), 20, "the event on the standby")
        assert reader.execute("SELECT pg_is_in_recovery()").fetchone() == (True,)
        # Each contains the second in which it was made.
        wait_until(lambda: reader.execute(preview, [event]).fetchall() == db.sql(preview, event), 10, "the same preview within one second")


@pytest.mark.slow
def test_failover(db, pg, kafka, consume, aggregate, receiver):
    """The primary dies while its standby lags. Neither Kafka nor the webhook got an event that the standby does not
    have, and the standby delivers the rest."""
    db.kafka_sink("main", kafka)
    db.webhook_sink("crm", receiver, SECRET)
    consumer = consume(f"outbox.event.{aggregate}")
    with Traffic(db, aggregate, options="-c synchronous_commit=local") as traffic:
        records = consumer.take(200, 60)
        wait_until(lambda: len(receiver.accepted()) >= 200, 60, "deliveries to the webhook")
        # From here on WAL reaches at most the standby's socket, and is lost with it.
        stop_asleep(db, "backend_type = 'walsender'")
        before = traffic.committed
        wait_until(lambda: traffic.committed >= before + 100, 30, "commits that the standby does not get")
        pg.kill()
        pg.standby.set("synchronous_standby_names", "")
        pg.standby.promote()
        traffic.db = promoted = Database(pg.standby, db.name)
        survived = {str(row[0]) for row in promoted.sql("SELECT transaction FROM business")}
        assert len(traffic.acknowledged - survived) >= 50, "the failover took nothing: the test shows nothing"
        before = traffic.committed
        wait_until(lambda: traffic.committed >= before + 20, 60, "the writers to go on")
    traffic.drain()  # by the promoted server
    traffic.check(records + consumer.take_rest(), MAX_IN_FLIGHT)
    traffic.check(list(receiver.deliveries), MAX_IN_FLIGHT)

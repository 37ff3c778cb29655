"""pg_dump and restore beside a running worker: everything is restored, no restored event is delivered before
outbox.adopt(), and then all are in order."""

import subprocess
from collections import defaultdict

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.paths import pg_config
from outbox_rig.receiver import OK, SECRET, status

ROWS = """SELECT position, id, sink, aggregate_type, aggregate_id, event_type, payload, payload_bytes, content_type, headers, partition_key, dedup_key,
  seq, created_at, available_at, attempts, status, last_error, sent_at, last_attempt_at, blocked_by, origin, overtaken_by, redrive_late
  FROM outbox.events ORDER BY position, status"""
KEPT = ["SELECT * FROM outbox_internal.dedup ORDER BY 1",
        "SELECT * FROM outbox.stopped_sinks ORDER BY 1",
        "SELECT srvname, ARRAY(SELECT unnest(srvoptions) ORDER BY 1), srvacl::text FROM pg_foreign_server ORDER BY 1",
        "SELECT srvname, usename, umoptions FROM pg_user_mappings ORDER BY 1"]
CLOSED = "http://127.0.0.1:1/"


def run(program: str, *arguments: str, stdin: bytes | None = None) -> bytes:
    done = subprocess.run([pg_config("bindir") / program, *arguments], input=stdin, capture_output=True, cwd="/")
    assert done.returncode == 0 and b"ERROR" not in done.stderr, f"{program}: {done.stderr.decode()}"
    return done.stdout


@pytest.fixture
def paths(receiver):
    """The receiver's response for each path; 503 for all others."""
    answers = {}
    receiver.mode = lambda delivery: answers.get(delivery.path, status(503))
    return answers


@pytest.fixture
def source(pg, receiver, paths):
    """Events that are pending, blocked, scheduled, dead and kept, for sinks that are down, paused, disabled and
    renamed."""
    db = Database(pg, "production").create()
    options = {"retry": "100ms*1", "max_attempts": "1"}
    paths.update({"/audit": OK, "/picky": status(422), "/gone": status(410)})
    for name, more in (("audit", {"events": "kept", "retention": "30d"}), ("picky", {"events": "bad"}), ("gone", {"events": "gone"}),
                       ("down", {"events": "order.*"}), ("paused", {"events": "order.*"}), ("old", {"events": "order.*"})):
        db.webhook_sink(name, CLOSED if name == "down" else receiver.url.replace("/hook", f"/{name}"), SECRET, **options | more)
    db.sql("SELECT outbox.pause('paused'), outbox.pause('old')")
    for event_type, n in (("kept", 3), ("bad", 2), ("gone", 1)):
        for _ in range(n):
            db.enqueue("Order", "k", event_type)
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events WHERE status = 'SENT'") == 3
               and db.value("SELECT count(*) FROM outbox.events WHERE status = 'FAILED'") == 2
               and db.sink("state", "gone") == ("disabled: 410",), 20, "what is delivered, dead, disabled")
    wait_until(lambda: db.sink("in_flight", "gone") == (0,), 10, "the sink to stand still")
    for n in range(60):
        db.sql("SELECT outbox.enqueue('Order', %s::text, 'order.changed', to_jsonb(%s::int), dedup_key => %s)", n % 4, n, f"d{n}")
    db.sql("ALTER SERVER old RENAME TO billing")
    db.sql("SELECT outbox.enqueue('Order', 'k', 'order.later', '0', available_at => now() + interval '1 day', sink => 'down')")
    db.sql("SELECT outbox.enqueue_bytes('Order', 'k', 'order.bytes', '\\x00ff', 'application/avro', sink => 'down')")
    wait_until(lambda: db.sink("state", "down") == ("circuit open",), 20, "the sink that is down")
    db.sql("ALTER SERVER down OPTIONS (SET events 'none')")
    db.sql("SELECT outbox.pause('down')")  # delivery is off while the databases are compared
    wait_until(lambda: db.sink("in_flight", "down") == (0,), 20, "its events to be given back")
    yield db
    db.disconnect()
    with pg.connect() as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {db.name} WITH (FORCE)")


def dump_plain(source, target) -> None:
    run("psql", "-qX", "-v", "ON_ERROR_STOP=1", "-d", target.dsn, stdin=run("pg_dump", "-d", source.dsn))


def dump_custom(source, target) -> None:
    """With parallel jobs, as for a large database."""
    file = source.pg.dir / "production.dump"
    file.write_bytes(run("pg_dump", "-Fc", "-d", source.dsn))
    run("pg_restore", "-j", "2", "--exit-on-error", "-d", target.dsn, str(file))


def dump_in_sections(source, target) -> None:
    """First the schema, then the data without firing triggers."""
    run("psql", "-qX", "-v", "ON_ERROR_STOP=1", "-d", target.dsn, stdin=run("pg_dump", "--schema-only", "-d", source.dsn))
    wait_until(lambda: target.sql("SELECT 1 FROM outbox.workers WHERE database = %s", target.name), 20, "a worker beside the restore")
    run("psql", "-qX", "-v", "ON_ERROR_STOP=1", "-d", target.dsn, stdin=run("pg_dump", "--data-only", "--disable-triggers", "-d", source.dsn))


@pytest.mark.slow
@pytest.mark.parametrize("restore", [dump_plain, dump_custom, dump_in_sections])
def test_restored(source, pg, receiver, paths, restore):
    target = Database(pg, "staging")
    with pg.connect() as admin:
        admin.execute("CREATE DATABASE staging")
    try:
        rows, kept = source.sql(ROWS), [source.sql(query) for query in KEPT]
        assert {row[16] for row in rows} == {"PENDING", "SENT", "FAILED"} and len(rows) > 180
        restore(source, target)
        assert target.sql(ROWS) == rows
        assert [target.sql(query) for query in KEPT] == kept
        source.drop()

        # No restored event is sent, although all sinks work and none is paused: new events are.
        paths.update({f"/{name}": OK for name in ("down", "paused", "old", "gone", "picky")})
        receiver.clear()
        own = target.enqueue("Order", "own", "order.own")
        target.set_sink("down", url=receiver.url.replace("/hook", "/down"))
        target.sql("SELECT outbox.resume('down')")
        wait_until(lambda: target.sink("state", "paused") == ("paused",) and target.sink("state", "billing") == ("paused",), 20, "the worker")
        own_kept = target.enqueue("Order", "own", "kept")
        wait_until(lambda: own_kept in {d.id for d in receiver.accepted()}, 20, "its own event")
        for sink in ("paused", "billing", "gone"):
            target.sql("SELECT outbox.resume(%s)", sink)
        wait_until(lambda: [d.id for d in receiver.accepted()].count(own) == 2, 20, "its own event to both sinks")
        assert {d.id for d in receiver.deliveries} == {own, own_kept}
        assert target.doctor("origin")[0] == "warning" and "outbox.adopt()" in target.doctor("origin")[2]

        waiting = [row for row in rows if row[16] == "PENDING"]
        assert target.value("SELECT outbox.adopt()") == len(waiting)
        assert target.value("SELECT outbox.adopt()") == 0
        wait_until(lambda: target.pending() == 1, 30, "all but what is scheduled to be delivered")
        order = defaultdict(list)
        for d in receiver.accepted():
            assert d.verified
            if d.headers.get("content-type") == "application/json" and isinstance(data := d.json()["data"], int):
                order[d.path, data % 4].append(data)
        assert order == {(f"/{sink}", key): list(range(key, 60, 4)) for sink in ("down", "paused", "old") for key in range(4)}
        assert target.doctor("origin")[0] == "ok"

        # Dead letters, dedup keys, the triggers and the order of positions work in the restored database.
        assert target.sql("SELECT outbox.redrive(id, sink) FROM outbox.events WHERE status = 'FAILED' AND sink = 'picky'") == [(True,), (True,)]
        wait_until(lambda: [d.path for d in receiver.accepted()].count("/picky") == 2, 20, "the dead letters")
        before = target.value("SELECT last_value FROM outbox.events_position")
        assert before >= rows[-1][0]
        [first] = [row for row in rows if row[11] == "d7"][:1]
        assert target.value("SELECT outbox.enqueue('Order', '1', 'order.changed', '7', dedup_key => 'd7')") == first[1]
        assert target.sql("SELECT DISTINCT tgenabled FROM pg_trigger JOIN pg_partition_tree('outbox.events') ON relid = tgrelid"
                          " WHERE NOT tgisinternal OR tgparentid <> 0") == [("A",)]
    finally:
        target.disconnect()
        with pg.connect() as admin:
            admin.execute("DROP DATABASE staging WITH (FORCE)")


def test_two_who_adopt_wait_for_one_another(db, receiver, setting):
    """Meanwhile the worker delivers other events. Adopted events of a paused sink are scanned quickly and wait."""
    setting("outbox.poll_interval", "1min")
    db.webhook_sink("crm", receiver, SECRET, events="e")
    db.sql("SELECT outbox.pause('crm')")
    db.webhook_sink("other", receiver, SECRET, events="own")
    db.sql("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, position, sink, origin)"
           " SELECT gen_random_uuid(), 'Order', n::text, 'e', n, 'crm', 42 FROM generate_series(1, 2500) AS n")
    with db.connect(autocommit=False) as first, db.connect() as second:
        assert first.execute("SELECT outbox.adopt()").fetchone() == (2500,)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            second.execute("SET lock_timeout = '100ms'; SELECT outbox.adopt()")
        own = db.enqueue("Order", "own", "own")
        wait_until(lambda: own in {d.id for d in receiver.accepted()}, 20, "an event beside it")
        assert len(receiver.accepted()) == 1
        first.commit()
        second.execute("RESET lock_timeout")
        assert second.execute("SELECT outbox.adopt()").fetchone() == (0,)
    wait_until(lambda: db.value("SELECT count(*) FROM outbox_internal.rescan_queue") == 0, 20, "the worker to look through them")
    assert db.pending() >= 2500 and len(receiver.deliveries) == 1
    db.sql("SELECT outbox.resume('crm')")
    wait_until(lambda: db.pending() == 0, 30, "the adopted events")
    assert len(receiver.accepted()) == 2501

"""Transactions of every kind, with a poll interval of one hour: a prompt delivery was caused by a wake-up, or by the
search for late commits. (sql/transactions.sql has the tests that need no worker.)"""

import threading
import time

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import HANG, OK, SECRET, status

SOON = 10  # seconds: far less than the hour, and enough for a slow machine
WORKER = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'outbox worker' AND datname = current_database()"


def asleep(db) -> None:
    """The worker has nothing to do and will not look again by itself."""
    last, since = None, 0.0

    def still() -> bool:
        nonlocal last, since
        loop = db.value("SELECT last_loop_at FROM outbox.workers WHERE database = %s AND state = 'waiting for events'", db.name)
        if loop is None or loop != last:
            last, since = loop, time.monotonic()
        return loop is not None and time.monotonic() - since > 0.5

    wait_until(still, 20, "the worker to fall asleep")


@pytest.fixture
def hook(db, receiver, setting):
    """A webhook sink that has delivered an event, and a worker that sleeps for an hour unless it is woken."""
    setting("outbox.poll_interval", "1h")
    db.webhook_sink("crm", receiver, SECRET)
    db.enqueue("Order", "warm", payload='"warm"')
    wait_until(lambda: receiver.payloads() == ["warm"], SOON, "a first event")
    asleep(db)
    receiver.clear()
    yield receiver
    for gid in prepared(db):  # left over from a failed test
        db.sql(f"ROLLBACK PREPARED '{gid}'")


def pass_by(db, hook, n: int = 300) -> None:
    """Other transactions commit events, and the cursor advances."""
    before = len(hook.accepted())
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) SELECT 'Order', 'key-' || n, 'e', '0'"
           " FROM generate_series(1, %s) n", n)
    wait_until(lambda: len(hook.accepted()) >= before + n, 60, "the others")
    asleep(db)


def event(name: str, **more: str) -> str:
    """The statement that enqueues the event."""
    tail = "".join(f", {column} => '{value}'" for column, value in more.items())
    return f"SELECT outbox.enqueue('Order', '{name}'::text, 'e', '\"{name}\"'{tail})"


def prepare(db, gid: str, *statements: str) -> None:
    with db.connect() as session:
        session.execute("; ".join(["BEGIN", *statements, f"PREPARE TRANSACTION '{db.name} {gid}'"]))


def finish(db, verb: str, gid: str) -> None:
    """Ends the transaction in another session."""
    with db.connect() as session:
        session.execute(f"{verb} PREPARED '{db.name} {gid}'")


def prepared(db) -> list[str]:
    return [row[0] for row in db.sql("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()")]


# ---- late commits ------------------------------------------------------------------------------------------------


def test_a_late_commit_after_thousands_of_others(db, hook):
    with db.connect(autocommit=False) as late, db.connect(autocommit=False) as nested:
        late.execute(event("late"))
        nested.execute("SAVEPOINT s")
        nested.execute(event("nested"))
        nested.execute("RELEASE s")
        prepare(db, "early", event("prepared"))
        pass_by(db, hook, 2000)
        late.commit()
        wait_until(lambda: hook.payloads()[2000:] == ["late"], SOON, "the late one")
        asleep(db)
        nested.commit()
        wait_until(lambda: hook.payloads()[2001:] == ["nested"], SOON, "the one of a savepoint")
    asleep(db)
    finish(db, "COMMIT", "early")
    wait_until(lambda: hook.payloads()[2002:] == ["prepared"], SOON, "the prepared one")


def test_late_commits_around_a_worker_restart(db, hook):
    """The late commits happen before the worker exits, while there is none, while the next one starts, and
    afterwards."""
    names = [f"late-{n}" for n in range(8)]
    open_ones = [db.connect(autocommit=False) for _ in names]
    try:
        for session, name in zip(open_ones, names):
            session.execute(event(name))
        pass_by(db, hook)
        worker = db.value(WORKER)
        committed = iter(open_ones)
        next(committed).commit()
        db.sql("SELECT pg_terminate_backend(%s, 10000)", worker)
        next(committed).commit()
        wait_until(lambda: db.value(WORKER), 20, "the next worker", interval=0.001)
        for _ in range(4):
            next(committed).commit()
        asleep(db)
        pass_by(db, hook)
        for session in committed:
            session.commit()
        wait_until(lambda: set(hook.payloads()) >= set(names), SOON, lambda: f"{sorted(set(names) - set(hook.payloads()))}")
    finally:
        for session in open_ones:
            session.close()


def test_a_row_that_comes_back_with_an_old_position(db, hook):
    """A restore inserts such a row, here in a transaction that commits late."""
    pass_by(db, hook)
    with db.connect(autocommit=False) as person:
        person.execute("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload, position, sink, origin)"
                       """ SELECT gen_random_uuid(), 'Order', 'k', 'e', '"restored"', 1, 'crm', origin FROM outbox_internal.library()""")
        pass_by(db, hook)
        person.commit()
    wait_until(lambda: hook.payloads()[600:] == ["restored"], SOON, "the row")


def test_positions_against_the_order_of_transaction_ids(db, hook):
    """The youngest transaction takes the first position and commits right after the other event was claimed."""
    hook.mode = lambda d: HANG if d.json()["data"] == "old" else OK  # no completion may wake the worker in between
    with db.connect(autocommit=False) as old, db.connect(autocommit=False) as young:
        old.execute("SELECT pg_current_xact_id()")
        young.execute("SELECT pg_current_xact_id()")
        young.execute(event("young"))
        old.execute(event("old"))
        old.commit()
        wait_until(lambda: hook.open_requests, 5, "the old one to be claimed", interval=0.001)
        young.commit()
        wait_until(lambda: hook.payloads() == ["young"], SOON, "the young one")


# ---- two-phase commit --------------------------------------------------------------------------------------------


def test_prepared_transactions_survive_restarts(db, pg, hook):
    for name in ("first", "rolled-back"):
        prepare(db, name, event(name))
    prepare(db, "second", "SAVEPOINT s", event("undone"), "SAVEPOINT t", "ROLLBACK TO s", event("second"), "RELEASE s")
    prepare(db, "keyed", event("keyed", dedup_key="once"))
    pass_by(db, hook)
    db.disconnect()
    pg.restart("immediate")
    pass_by(db, hook)
    finish(db, "COMMIT", "first")
    wait_until(lambda: hook.payloads()[600:] == ["first"], SOON, "the first")

    db.sql("SELECT pg_terminate_backend(pid) FROM (" + WORKER + ") w")
    pass_by(db, hook)
    finish(db, "ROLLBACK", "rolled-back")
    finish(db, "COMMIT", "second")
    wait_until(lambda: hook.payloads()[901:] == ["second"], SOON, "the second")

    ids: list[str] = []
    second = threading.Thread(target=lambda: ids.append(str(db.value(
        "SELECT outbox.enqueue('Order', 'k', 'e', '\"a second\"', dedup_key => 'once')"))))
    db.sql("SELECT")
    second.start()
    with pg.connect(db.name) as watch:
        wait_until(lambda: watch.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s", [db.name]).fetchall(),
                   SOON, "the second of a key to wait for the prepared one")
    finish(db, "COMMIT", "keyed")
    second.join(SOON)
    wait_until(lambda: hook.payloads()[902:] == ["keyed"], SOON, "the keyed one")
    assert ids == [hook.accepted()[-1].id]
    pass_by(db, hook)
    assert not {"rolled-back", "undone", "a second"} & set(hook.payloads())


def test_prepared_changes_of_rows_and_sinks(db, other, hook):
    """An UPDATE, a new sink: COMMIT PREPARED wakes the worker for each kind of change."""
    db.sql("SELECT outbox.enqueue('Order', 'k', 'e', '\"scheduled\"', available_at => now() + interval '1 day')")
    db.sql("SELECT outbox.enqueue('Invoice', 'k', 'other', '\"unrouted\"', sink => 'crm', available_at => now() + interval '1 day')")
    asleep(db)
    prepare(db, "update", "UPDATE outbox.events SET available_at = NULL WHERE aggregate_type = 'Order'")
    asleep(db)
    finish(db, "COMMIT", "update")
    wait_until(lambda: hook.payloads() == ["scheduled"], SOON, "the event that was moved up")

    asleep(db)
    prepare(db, "alter", f"ALTER SERVER crm OPTIONS (SET url '{other.url}')", "UPDATE outbox.events SET available_at = NULL")
    asleep(db)
    finish(db, "COMMIT", "alter")
    wait_until(lambda: other.payloads() == ["unrouted"], SOON, "the sink's new address")


def test_a_prepared_create_extension(pg, receiver, setting, db):
    """The database had no worker before, since the launcher found nothing to do there."""
    setting("outbox.poll_interval", "1h")
    bare = Database(pg, f"{db.name}_bare")
    with pg.connect() as admin:
        admin.execute(f"CREATE DATABASE {bare.name}")
        try:
            prepare(bare, "create", "CREATE EXTENSION outbox", "CREATE SERVER crm FOREIGN DATA WRAPPER outbox_webhook OPTIONS"
                    f" (url '{receiver.url}', allow_http 'true', allow_networks '127.0.0.0/8')",
                    f"CREATE USER MAPPING FOR PUBLIC SERVER crm OPTIONS (secret '{SECRET}')", event("k"))
            finish(bare, "COMMIT", "create")
            wait_until(lambda: receiver.payloads() == ["k"], SOON, "the event")
        finally:
            bare.drop()


# ---- ways to write -----------------------------------------------------------------------------------------------


def test_a_procedure_commits_in_between(db, hook):
    """Each part is delivered when it is committed, while the procedure still runs."""
    db.sql("""CREATE PROCEDURE in_parts() LANGUAGE plpgsql AS $$
        BEGIN
          PERFORM outbox.enqueue('Order', '1', 'e', '"committed"');
          COMMIT;
          PERFORM pg_advisory_lock(1);
          PERFORM outbox.enqueue('Order', '2', 'e', '"rolled back"');
          ROLLBACK;
          INSERT INTO outbox.events (aggregate_type, event_type, payload) VALUES ('Order', 'e', '"last"');
        END $$""")
    with db.connect() as holder, db.connect() as caller:
        holder.execute("SELECT pg_advisory_lock(1)")
        thread = threading.Thread(target=lambda: caller.execute("CALL in_parts()"))
        thread.start()
        try:
            wait_until(lambda: hook.payloads() == ["committed"], SOON, "the first part")
            asleep(db)
        finally:
            holder.execute("SELECT pg_advisory_unlock(1)")
            thread.join()
    wait_until(lambda: hook.payloads() == ["committed", "last"], SOON, "the last part")


def test_copy_binary_and_a_deferred_trigger(db, hook):
    """Rows that are written at the very end of a transaction, and rows of a driver's bulk load."""
    db.sql("CREATE TABLE orders (id int)")
    db.sql("""CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
              $$BEGIN PERFORM outbox.enqueue('Order', NEW.id, 'e', to_jsonb('order ' || NEW.id)); RETURN NULL; END$$""")
    db.sql("CREATE CONSTRAINT TRIGGER tell AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION tell()")
    db.sql("INSERT INTO orders VALUES (1)")
    wait_until(lambda: hook.payloads() == ["order 1"], SOON, "the deferred trigger's event")
    with db.connect() as session:
        with session.cursor().copy("COPY outbox.events (aggregate_type, aggregate_id, event_type, payload) FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["text", "text", "text", "jsonb"])
            for n in range(50):
                copy.write_row(("Order", "copied", "e", psycopg.types.json.Jsonb(n)))
    wait_until(lambda: hook.payloads()[1:] == list(range(50)), SOON, "the copied events, in order")


def test_asynchronous_commits(db, hook):
    with db.connect() as session:
        session.execute("SET synchronous_commit = off")
        for n in range(50):
            session.execute(event(str(n), partition_key="k"))
    wait_until(lambda: len(hook.payloads()) == 50, 10, "all")
    assert hook.payloads() == [str(n) for n in range(50)]


# ---- replication -------------------------------------------------------------------------------------------------


def test_a_publication_for_all_tables(same_day, db, hook, setting):
    """Events are delivered, fail, are kept and are changed by users; days are created and dropped."""
    setting("outbox.retention", "1d")
    db.sql("CREATE PUBLICATION everything FOR ALL TABLES")
    db.sql("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", db.name)
    try:
        db.sql("ALTER SERVER crm OPTIONS (ADD retry '10ms*2', ADD max_attempts '3')")
        hook.mode = lambda d: status(500) if d.json()["data"] == "dead" else OK
        db.enqueue("Order", "dead", payload='"dead"')
        db.sql("SELECT outbox.enqueue('Order', 'k', 'e', '\"scheduled\"', available_at => now() + interval '1 day', dedup_key => 'k')")
        pass_by(db, hook, 50)
        day = "to_char(now() AT TIME ZONE 'UTC' - interval '9 days', 'YYYYMMDD')"
        db.sql(f"""DO $$ BEGIN EXECUTE format('CREATE TABLE outbox.events_sent_%s PARTITION OF outbox.events_sent (PRIMARY KEY (position))
                   FOR VALUES FROM (%L) TO (%L)', {day}, {day} || ' 00:00Z', ({day}::date + 1) || ' 00:00Z'); END $$""")
        db.sql("UPDATE outbox.events SET available_at = NULL WHERE status = 'PENDING'")
        wait_until(lambda: "scheduled" in hook.payloads(), SOON, "the event that a person moved up")
        assert db.value("SELECT outbox.run_maintenance()") == 1
        wait_until(lambda: db.sql("SELECT status, count(*) FROM outbox.events GROUP BY 1 ORDER BY 1") == [("FAILED", 1), ("SENT", 51)],
                   SOON, lambda: db.sql("SELECT status, count(*) FROM outbox.events GROUP BY 1"))
        wait_until(lambda: db.value("SELECT count(*) FROM outbox_internal.rescan_queue") == 0, SOON, "the recalled positions to be taken")
        changes = db.value("SELECT count(*) FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL,"
                           " 'proto_version', '1', 'publication_names', 'everything')", db.name)
        assert changes > 150  # each event was inserted, delivered and kept
    finally:
        db.sql("SELECT pg_drop_replication_slot(%s)", db.name)


SUBSCRIPTION = "pg_subscription WHERE subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())"


@pytest.fixture
def publisher(pg, db):
    """Another database. publisher.publish("TABLE …", …) makes `db` its subscriber."""
    database = Database(pg, f"{db.name}_publisher")
    with pg.connect() as admin:
        admin.execute(f"CREATE DATABASE {database.name}")
    slot = f"{db.name}_slot"

    def publish(what: str, two_phase: bool = False) -> None:
        database.sql(f"CREATE PUBLICATION p FOR {what}")
        # Within one cluster the subscription must not create its slot itself: it would wait for its own transaction to
        # end.
        database.sql("SELECT pg_create_logical_replication_slot(%s, 'pgoutput', false, %s)", slot, two_phase)
        db.sql(f"CREATE SUBSCRIPTION s CONNECTION 'host={pg.host} port={pg.port} user=postgres dbname={database.name}' PUBLICATION p"
               f" WITH (create_slot = false, slot_name = '{slot}', two_phase = {two_phase})")
        wait_until(lambda: db.value("SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel"), 30, "the tables to be in step")
        if two_phase:
            wait_until(lambda: db.value(f"SELECT subtwophasestate FROM {SUBSCRIPTION}") == "e", 30, "two-phase to be enabled")

    database.publish = publish
    yield database
    db.disconnect()
    if db.value(f"SELECT count(*) FROM {SUBSCRIPTION}"):
        db.sql("DROP SUBSCRIPTION s")
    database.drop()


def in_step(db, publisher) -> None:
    """Waits until everything that the publisher has committed is applied."""
    end = publisher.value("SELECT pg_current_wal_lsn()")
    wait_until(lambda: publisher.value("SELECT confirmed_flush_lsn >= %s FROM pg_replication_slots WHERE database = current_database()", end),
               SOON, "the subscriber")


def test_logical_replication_apply(db, hook, publisher):
    """A trigger of the subscriber enqueues events, for rows from the initial copy, from apply, and from prepared
    transactions."""
    for database in (db, publisher):
        database.sql("CREATE TABLE orders (id int PRIMARY KEY)")
    db.sql("""CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
              $$BEGIN PERFORM outbox.enqueue('Order', NEW.id, 'e', to_jsonb(NEW.id), dedup_key => NEW.id::text); RETURN NULL; END$$""")
    db.sql("CREATE TRIGGER tell AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION tell()")
    db.sql("ALTER TABLE orders ENABLE REPLICA TRIGGER tell")
    publisher.sql("INSERT INTO orders VALUES (1)")
    publisher.publish("TABLE orders", two_phase=True)
    wait_until(lambda: hook.payloads() == [1], SOON, "the row that was copied")
    publisher.sql("BEGIN; INSERT INTO orders VALUES (-1); ROLLBACK; INSERT INTO orders VALUES (2), (3)")
    wait_until(lambda: hook.payloads() == [1, 2, 3], SOON, "rows that were applied")
    for verb, order in (("COMMIT", 4), ("ROLLBACK", 5)):
        prepare(publisher, verb, f"INSERT INTO orders VALUES ({order})")
        wait_until(lambda: prepared(db), SOON, "the subscriber's PREPARE")
        asleep(db)
        finish(publisher, verb, verb)
        wait_until(lambda: not prepared(db), SOON, f"its {verb}")
    wait_until(lambda: hook.payloads() == [1, 2, 3, 4], SOON, "the row that was prepared")
    assert db.value("SELECT count(*) FROM orders") == 4


def test_a_replicated_event_is_its_publishers(db, rig, hook, publisher):
    """Both have the same sink: only the publisher delivers, until the subscriber adopts the remaining events."""
    theirs = rig.receiver(secret=SECRET, mode=HANG)
    publisher.sql("CREATE EXTENSION outbox")
    try:
        publisher.webhook_sink("crm", theirs, SECRET, timeout="5min")
        publisher.webhook_sink("theirs alone", theirs, SECRET, events="none")
        publisher.publish("TABLE outbox.events_pending, outbox_internal.rescan_queue, outbox_internal.dedup")
        for n in range(3):
            publisher.enqueue("Order", "k", payload=str(n))
        publisher.sql("SELECT outbox.enqueue('Order', 'k', 'e', '3', available_at => now() + interval '1 day', dedup_key => 'd')")
        publisher.sql("UPDATE outbox.events SET available_at = NULL, sink = 'theirs alone' WHERE dedup_key = 'd'")
        in_step(db, publisher)
        db.enqueue("Order", "k", payload='"own"')
        wait_until(lambda: hook.payloads() == ["own"], SOON, "its own event")
        asleep(db)
        assert db.pending() == 4
        assert len(hook.deliveries) == 1
        assert db.sql("""SELECT status FROM outbox.doctor() WHERE "check" = 'origin'""") == [("warning",)]

        theirs.mode = OK
        publisher.sql("ALTER SERVER crm OPTIONS (SET timeout '1min')")  # opened again, without the hanging request
        publisher.sql('ALTER SERVER "theirs alone" OPTIONS (ADD timeout \'1min\')')
        wait_until(lambda: sorted(theirs.payloads()) == [0, 1, 2, 3], SOON, "the publisher to deliver")
        wait_until(lambda: db.pending() == 0, SOON, "its deletions to be applied")
        in_step(db, publisher)
        assert db.sql("SELECT dedup_key FROM outbox_internal.dedup") == [("d",)]  # delivered by the publisher, recorded here
        assert db.value("SELECT count(*) FROM outbox_internal.rescan_queue") == 0

        theirs.mode = HANG
        publisher.enqueue("Order", "k", payload='"left"')
        in_step(db, publisher)
        assert db.pending() == 1
        db.sql("DROP SUBSCRIPTION s")  # the publisher is gone
        db.sql("SELECT outbox.adopt()")
        wait_until(lambda: hook.payloads() == ["own", "left"], SOON, "the adopted event")
        adopted = publisher.value("SELECT max(position) FROM outbox.events")
        assert db.value("INSERT INTO outbox.events (aggregate_type, event_type) VALUES ('Order', 'e') RETURNING position") > adopted
    finally:
        publisher.disconnect()
        theirs.stop()


def test_a_publisher_without_the_extension(db, hook, publisher):
    """A managed service without extensions keeps a plain table; the subscriber delivers its events."""
    publisher.sql("CREATE SCHEMA outbox")
    publisher.sql("CREATE TABLE outbox.events (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text NOT NULL,"
                  " aggregate_id text, event_type text NOT NULL, payload jsonb)")
    publisher.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', 'k', 'e', '1')")
    publisher.publish("TABLE outbox.events WITH (publish = 'insert')")
    publisher.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', 'k', 'e', '2'), ('Order', 'k', 'e', '3')")
    wait_until(lambda: hook.payloads() == [1, 2, 3], SOON, "its events, in order")
    publisher.sql("DELETE FROM outbox.events")  # the publisher's cleanup is not part of this test
    assert {d.id for d in hook.accepted()}.isdisjoint({None})


def test_days_are_made_beside_events_of_another_origin(db, hook, setting):
    """A subscriber, or a restored database before outbox.adopt(), keeps its own delivered events."""
    db.sql("INSERT INTO outbox.events (id, aggregate_type, event_type, position, sink, origin) VALUES (gen_random_uuid(), 'Order', 'e', 1, 'crm', 42)")
    for (day,) in db.sql("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'outbox.events_sent'::regclass"):
        db.sql(f"DROP TABLE {day}")
    setting("outbox.retention", "1d")
    db.sql("SELECT outbox.run_maintenance()")
    db.enqueue("Order", "k", payload='"own"')
    wait_until(lambda: db.sql("SELECT payload FROM outbox.events WHERE status = 'SENT'") == [("own",)], SOON, "the row to be kept")
    assert hook.payloads() == ["own"]


# ---- hot standby -------------------------------------------------------------------------------------------------


def test_a_hot_standby_reads_and_says_that_it_cannot_write(db, pg, rig, hook):
    db.sql("SELECT outbox.enqueue('Order', 'k', 'e', '{}', available_at => now() + interval '1 day')")
    with rig.postgres(standby_of=pg) as standby:
        with standby.connect(db.name) as session:
            assert session.execute("SELECT name, pending FROM outbox.sinks").fetchall() == [("crm", 1)]
            assert session.execute("SELECT * FROM outbox.workers").fetchall() == []
            doctor = dict(session.execute('SELECT "check", detail FROM outbox.doctor()').fetchall())
            assert "standby" in doctor["worker"] and "sink crm" in doctor and not [text for text in doctor.values() if "could not look" in text]
            for write, name in ((event("k"), r"outbox\.enqueue\(\)"), ("SELECT outbox.adopt()", "UPDATE"), ("SELECT outbox.run_maintenance()", "[A-Z ]+"),
                                ("INSERT INTO outbox.events (aggregate_type, event_type) VALUES ('Order', 'e')", "INSERT")):
                with pytest.raises(psycopg.errors.ReadOnlySqlTransaction, match=f"cannot execute {name}"):
                    session.execute(write)

"""Users change pending, in-flight and failed rows with plain SQL: no event is lost, no key stays blocked, no error
repeats."""

import time

import pytest
from outbox_rig import wait_until
from outbox_rig.process import cpu_seconds
from outbox_rig.receiver import HANG, OK, SECRET, status
from outbox_rig.traffic import Traffic

QUICK = {"retry": "50ms..200ms", "max_attempts": "1000"}
WORKER = "SELECT pid FROM outbox.workers WHERE database = %s"


@pytest.fixture(autouse=True)
def quiet_log(pg):
    """A user's SQL must cause no errors in the worker's log."""
    start = pg.log.stat().st_size
    yield
    errors = [line for line in pg.logged(start).splitlines() if "outbox worker" in line and " ERROR: " in line]
    assert len(errors) <= 1, errors


@pytest.fixture
def hook(db, receiver):
    db.webhook_sink("crm", receiver, SECRET, **QUICK)
    return receiver


def in_flight(db, receiver, key: str = "k") -> None:
    """Event 1 of the key is in flight for as long as receiver.mode determines."""
    receiver.mode = lambda d: HANG if d.json()["data"]["key"] == key else OK
    db.send(key, 1)
    wait_until(lambda: receiver.open_requests, 20, "the request")


def answer(receiver, mode=OK) -> None:
    """Ends the hanging requests; from now on the receiver uses `mode`."""
    receiver.mode = mode
    receiver.release(mode if not callable(mode) else OK)


def wait_got(receiver, numbers: list[int], key: str = "k") -> None:
    wait_until(lambda: receiver.numbers(key) == numbers, 20, lambda: f"{numbers}, got {receiver.numbers(key)}")


def key_goes_on(db, receiver, numbers: list[int], key: str = "k") -> None:
    """Whatever was done to its rows, the next event of the key arrives after these."""
    n = 100 + len(receiver.deliveries)
    db.send(key, n)
    wait_got(receiver, [*numbers, n], key)
    db.wait_empty()


# ---- in flight ---------------------------------------------------------------------------------------------------


CHANGES = {
    "payload": "UPDATE outbox.events SET payload = payload || '{\"more\": 1}'",
    "headers": "UPDATE outbox.events SET headers = '{\"a\": \"b\"}'",
    "key": "UPDATE outbox.events SET partition_key = 'other'",
    "later": "UPDATE outbox.events SET available_at = now() + interval '1 hour'",
    "attempts": "UPDATE outbox.events SET attempts = 5",
    "attempts = 0": "UPDATE outbox.events SET attempts = 0, last_error = NULL",
    "blocked_by": "UPDATE outbox.events SET blocked_by = 1",
    "failed": "UPDATE outbox.events SET status = 'FAILED'",
    "sent": "UPDATE outbox.events SET status = 'SENT'",
    "there and back": "UPDATE outbox.events SET status = 'FAILED'; UPDATE outbox.events SET status = 'PENDING'",
    "delete": "DELETE FROM outbox.events",
    "truncate": "TRUNCATE outbox.events_pending",
    "vacuum full": "VACUUM FULL outbox.events_pending",
    "cluster": "CLUSTER outbox.events_pending USING events_pending_pkey",
    "reindex": "REINDEX TABLE outbox.events_pending",
    "tablespace": "ALTER TABLE outbox.events_pending SET TABLESPACE pg_default",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_to_a_row_in_flight(db, hook, change):
    """The event is in flight; it is recorded wherever its row is afterwards, and not sent again."""
    in_flight(db, hook)
    for statement in CHANGES[change].split("; "):
        db.sql(statement)
    answer(hook)
    wait_got(hook, [1])
    wait_until(lambda: db.value("SELECT in_flight FROM outbox.sinks") == 0, 20, "the recording")
    db.wait_empty()
    assert db.value("SELECT count(*) FROM outbox.events") == (change in ("failed", "sent"))
    key_goes_on(db, hook, [1])


@pytest.mark.parametrize("change", ["key", "later", "attempts = 0", "blocked_by", "failed", "there and back", "delete", "truncate", "vacuum full"])
def test_a_change_to_a_row_whose_attempt_then_fails(db, hook, change):
    """The event blocks its key or the key is free, but the key never stays blocked; the next attempt is at the time
    that follows from the failure."""
    in_flight(db, hook)
    for statement in CHANGES[change].split("; "):
        db.sql(statement)
    answer(hook, status(500))
    wait_until(lambda: db.value("SELECT in_flight FROM outbox.sinks") == 0, 20, "the failure")
    hook.mode = OK
    stays = change not in ("failed", "sent", "delete", "truncate")
    if stays:
        wait_got(hook, [1])
    db.wait_empty()
    key_goes_on(db, hook, [1] if stays else [])


def test_a_row_in_flight_is_given_to_another_sink(db, other, hook):
    """The event was delivered to the first sink and is now sent to the second too, because the user wanted that."""
    db.webhook_sink("other", other, SECRET, events="none", **QUICK)
    in_flight(db, hook)
    db.sql("UPDATE outbox.events SET sink = 'other'")
    answer(hook)
    wait_got(hook, [1])
    wait_got(other, [1])
    db.wait_empty()
    key_goes_on(db, hook, [1])


@pytest.mark.parametrize("writers", ["one transaction", "many"])
def test_the_place_of_a_row_in_flight_becomes_another_rows(db, hook, writers):
    """The acknowledged event is recorded; the row that has taken its place, perhaps in the same transaction, stays."""
    hook.mode = lambda d: HANG if d.json()["data"]["key"] == "k" else OK
    with db.connect(autocommit=writers == "many") as producer:
        for key in ["later"] * 3 + ["k"] + ["later"] * 3:
            producer.execute("SELECT outbox.enqueue('Order', %s, 'e', jsonb_build_object('key', %s::text, 'n', 1), available_at => %s)",
                             [key, key, "2099-01-01" if key == "later" else None])
        producer.commit()
    wait_until(lambda: hook.open_requests, 20, "the request")
    [(place,)] = db.sql("SELECT ctid::text FROM outbox.events_pending WHERE partition_key = 'k'")
    db.sql("DELETE FROM outbox.events_pending WHERE position = (SELECT min(position) FROM outbox.events_pending)")
    db.sql("VACUUM FULL outbox.events_pending")
    assert db.sql("SELECT partition_key FROM outbox.events_pending WHERE ctid = %s::tid", place) == [("later",)]
    answer(hook)
    wait_until(lambda: db.sql("SELECT partition_key FROM outbox.events_pending") == [("later",)] * 5, 20,
               lambda: f"k to leave and no other: {db.sql('SELECT partition_key FROM outbox.events_pending')}")
    assert hook.numbers("k") == [1]


# ---- locks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strength", ["UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"])
def test_a_lock_on_rows_in_flight_on_failing_ones_and_on_pending_ones(db, hook, strength):
    """A lock that is held for long is looked at with pauses; other keys continue, and the locked ones do when the lock
    is released."""
    hook.mode = lambda d: status(500) if d.json()["data"]["key"] == "failing" else HANG if d.json()["data"]["key"] == "k" else OK
    db.send("failing", 1)
    db.send("failing", 2)
    wait_until(lambda: db.value("SELECT max(attempts) FROM outbox.events") >= 1, 20, "a failure")
    db.send("k", 1)
    wait_until(lambda: hook.open_requests, 20, "the request")
    with db.connect(autocommit=False) as person:
        person.execute(f"SELECT FROM outbox.events FOR {strength}")
        answer(hook)
        wait_got(hook, [1])
        db.send("k", 2)  # the key of a delivered event goes on
        for n in range(10):
            db.send(f"free{n}", n)
        wait_until(lambda: len(hook.accepted()) == 12, 20, lambda: f"the others {hook.accepted()} {db.sql('SELECT * FROM outbox.sinks')}")
        time.sleep(1)  # until the worker has reported its transactions: each look is one
        before = db.transactions()
        time.sleep(3)
        assert db.transactions() - before < 300, "a busy loop"
        assert len(hook.accepted()) == 12 and hook.numbers("failing") == []
        person.rollback()
    wait_got(hook, [1, 2], "failing")
    db.wait_empty()
    assert hook.numbers("k") == [1, 2]


def commits(db) -> int:
    db.sql("SELECT pg_stat_clear_snapshot()")
    return db.value("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")


def test_very_many_rows_that_a_person_holds(db, hook, setting):
    """An uncommitted UPDATE of all rows: the worker waits for it without load, and later events continue."""
    setting("outbox.enabled", "off")
    wait_until(lambda: not db.sql("SELECT 1 FROM outbox.workers WHERE database = current_database()"), 20, "the worker to go")
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) SELECT 'Order', n, 'e',"
           " jsonb_build_object('key', 'k' || n, 'n', n) FROM generate_series(1, 5000) n")
    with db.connect(autocommit=False) as person:
        person.execute("UPDATE outbox.events SET payload = payload")
        setting("outbox.enabled", "on")
        worker = wait_until(lambda: db.value(WORKER, db.name), 20, "the worker")
        db.send("free", 1)
        wait_got(hook, [1], "free")
        started, looks, cpu = time.monotonic(), commits(db), cpu_seconds(worker)
        time.sleep(3)  # the worker is at it meanwhile: a rate is counted, whatever time passes
        looks, seconds = commits(db) - looks, time.monotonic() - started
        assert looks / seconds < 100, f"it looks at the rows {looks} times in {seconds:.1f} s"
        assert (cpu_seconds(worker) - cpu) / seconds < 0.5, "a busy loop"
        assert len(hook.deliveries) == 1
        person.rollback()
    db.wait_empty()
    assert len(hook.deliveries) == 5001


# ---- rows that cannot be recorded --------------------------------------------------------------------------------


REFUSE = """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF OLD.partition_key = 'k' THEN RAISE 'not this one'; END IF; RETURN OLD; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON outbox.events_pending FOR EACH ROW EXECUTE FUNCTION refuse()"""


@pytest.mark.kills_server  # the error is logged once
def test_a_trigger_that_refuses_one_row(db, hook):
    """The row is isolated: the other rows are recorded, and this one is not sent again and is recorded when the
    trigger is dropped."""
    db.sql(REFUSE)
    for n in range(1, 4):
        db.send("k", n)
    for n in range(200):
        db.send(f"free{n}", n)
    wait_until(lambda: db.pending() == 3, 20, lambda: f"the others to leave, not {db.pending()}")
    assert hook.numbers("k") == [1, 2, 3]
    for n in range(50):
        db.send(f"more{n}", n)
    wait_until(lambda: db.pending() == 3, 20, lambda: f"more of the others to leave, not {db.pending()}")
    assert "not this one" in db.value("SELECT last_error FROM outbox.sinks")
    db.sql("DROP TRIGGER refuse ON outbox.events_pending")
    db.wait_empty()
    assert len(hook.deliveries) == 253, "nothing is sent twice"


WATCH = {
    "trigger": """CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.seen VALUES (OLD.position); RETURN OLD; END $$;
CREATE TRIGGER watch {when} DELETE ON outbox.events_pending FOR EACH ROW EXECUTE FUNCTION watch()""",
    "statement": """CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.seen SELECT position FROM gone; RETURN NULL; END $$;
CREATE TRIGGER watch AFTER DELETE ON outbox.events_pending REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION watch()""",
}


@pytest.mark.parametrize("how", ["BEFORE", "AFTER", "statement"])
def test_a_person_watches_delivered_rows_leave(db, hook, how):
    """Triggers that users attach to the table work for the worker's DELETEs as for the users' own."""
    db.sql("CREATE TABLE public.seen (position bigint)")
    db.sql(WATCH.get(how, WATCH["trigger"]).replace("{when}", how))
    for n in range(20):
        db.send(f"k{n}", n)
    wait_until(lambda: len(hook.accepted()) == 20, 20, "the deliveries")
    db.wait_empty()
    wait_until(lambda: db.value("SELECT count(DISTINCT position) FROM public.seen") == 20, 20,
               lambda: f"20 rows seen, not {db.value('SELECT count(DISTINCT position) FROM public.seen')}")


@pytest.mark.kills_server  # the error is logged once
def test_a_table_of_delivered_events_that_takes_none(db, receiver):
    """A constraint that a user added: the other rows are recorded, and this one when the constraint is dropped."""
    hook = receiver
    db.webhook_sink("crm", hook, SECRET, retention="1d", **QUICK)
    wait_until(lambda: db.sql("SELECT 1 FROM pg_inherits WHERE inhparent = 'outbox.events_sent'::regclass"), 20, "the days")
    db.sql("ALTER TABLE outbox.events_sent ADD CONSTRAINT mistake CHECK (aggregate_id <> 'k')")
    for n in range(1, 4):
        db.send("k", n)
    for n in range(50):
        db.send(f"free{n}", n)
    wait_until(lambda: db.pending() == 3, 20, lambda: f"the others to leave, not {db.pending()}")
    db.sql("ALTER TABLE outbox.events_sent DROP CONSTRAINT mistake")
    db.wait_empty()
    assert db.value("SELECT count(*) FROM outbox.events WHERE status = 'SENT'") == 53 == len(hook.deliveries)


# ---- locks on tables ---------------------------------------------------------------------------------------------


def test_ddl_while_the_worker_moves_rows(db, receiver):
    """They lock the table and its partitions in different orders: the worker gives way at once."""
    db.webhook_sink("crm", receiver, SECRET, retention="1d")
    with Traffic(db, "Order", writers=2) as traffic, db.connect(autocommit=False) as person:
        wait_until(lambda: traffic.committed > 100, 20, "sessions that know the table")
        for turn in range(150):
            before = traffic.committed
            person.execute("LOCK TABLE outbox.events")
            person.commit()
            wait_until(lambda: traffic.committed > before, 20, f"the writers to go on, turn {turn}", interval=0.005)
    db.wait_empty()
    traffic.check(receiver.deliveries, 1000)


def test_a_lock_on_the_table_is_told_once(db, hook, pg):
    start = pg.log.stat().st_size
    key_goes_on(db, hook, [], "before")  # its statements are planned, and a plan locks partition and table in the other order
    with db.connect(autocommit=False) as person:
        person.execute("LOCK TABLE outbox.events")
        db.sql("SELECT pg_reload_conf()")
        wait_until(lambda: db.value("SELECT state FROM outbox.workers WHERE database = %s", db.name) == "waiting for a lock", 20,
                   "the worker to meet it")
        time.sleep(5)  # this happens repeatedly
        person.rollback()
    key_goes_on(db, hook, [])
    assert pg.logged(start).count("outbox waits for a lock that another session holds") == 1


def make_pending_anew(db) -> None:
    """Replaces the partition of pending events by one with another order of columns."""
    columns = db.value("""
        SELECT string_agg(format('%I %s %s %s', attname, format_type(atttypid, atttypmod),
          CASE WHEN attcollation <> 0 THEN 'COLLATE ' || attcollation::regcollation END, CASE WHEN attnotnull THEN 'NOT NULL' END), ', ' ORDER BY attnum DESC)
        FROM pg_attribute WHERE attrelid = 'outbox.events_pending'::regclass AND attnum > 0 AND NOT attisdropped""")
    constraints = db.sql("SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'outbox.events_pending'::regclass AND contype IN ('p', 'u')")
    indexes = [row[0] for row in db.sql("SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'outbox.events_pending'::regclass"
                                        " AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)")]
    bound = db.value("SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = 'outbox.events_pending'::regclass")
    with db.connect() as person, person.transaction():
        person.execute("LOCK TABLE outbox.events")
        person.execute(f"CREATE TABLE public.events_pending ({columns})")
        for name, definition in constraints:
            person.execute(f"ALTER TABLE public.events_pending ADD CONSTRAINT {name} {definition}")
        for definition in indexes:
            person.execute(definition.replace(" ON outbox.", " ON public."))
        person.execute("ALTER EXTENSION outbox DROP TABLE outbox.events_pending")
        person.execute("ALTER TABLE outbox.events DETACH PARTITION outbox.events_pending")
        person.execute("DROP TABLE outbox.events_pending")
        person.execute("ALTER TABLE public.events_pending SET SCHEMA outbox")
        person.execute(f"ALTER TABLE outbox.events ATTACH PARTITION outbox.events_pending {bound}")
        person.execute("ALTER EXTENSION outbox ADD TABLE outbox.events_pending")


def test_a_partition_with_its_columns_in_another_order(db, receiver):
    """As after a restore of this table alone: a worker that knew the former table delivers, keeps and makes dead
    letters as before."""
    db.webhook_sink("crm", receiver, SECRET, retention="1d", **QUICK)

    def states() -> list:
        return [status for (status,) in db.sql("SELECT status FROM outbox.events ORDER BY position")]

    for n, expected in enumerate([["SENT", "FAILED"], ["SENT", "FAILED"] * 2]):
        if n:
            make_pending_anew(db)
        receiver.mode = OK
        db.enqueue("Order", "k")
        wait_until(lambda: states().count("SENT") == n + 1, 20, lambda: f"the event to be kept: {states()}")
        receiver.mode = status(400)
        db.enqueue("Order", "k")
        wait_until(lambda: states() == expected, 20, lambda: f"a dead letter: {states()}")

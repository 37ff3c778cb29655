"""How long delivered events are kept."""

import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from outbox_rig import patient, wait_until
from outbox_rig.receiver import SECRET

pytestmark = pytest.mark.usefixtures("same_day")


def test_without_retention_delivered_rows_are_gone(db, receiver):
    db.webhook_sink("crm", receiver, SECRET)
    db.enqueue("Order", "1")
    wait_until(lambda: db.pending() == 0, 10, "delivery")
    assert db.value("SELECT count(*) FROM outbox.events") == 0


def test_delivered_rows_are_kept_for_the_retention(db, receiver, setting):
    setting("outbox.retention", "1d")
    db.webhook_sink("crm", receiver, SECRET)
    event = db.enqueue("Order", "1")
    wait_until(lambda: db.pending() == 0, 10, "delivery")
    [(kept, sent, attempts, error)] = db.sql("SELECT id::text, sent_at BETWEEN created_at AND clock_timestamp(), attempts, last_error"
                                             " FROM outbox.events WHERE status = 'SENT'")
    assert (kept, sent, attempts, error) == (event, True, 0, None)


def test_a_sink_has_a_retention_of_its_own(db, rig, receiver):
    db.webhook_sink("keeps", receiver, SECRET, retention="1d", events="kept")
    db.webhook_sink("drops", receiver, SECRET, events="dropped")
    for event_type in ("kept", "dropped"):
        db.enqueue("Order", "1", event_type)
    wait_until(lambda: db.pending() == 0, 10, "delivery")
    assert db.sql("SELECT event_type, status FROM outbox.events") == [("kept", "SENT")]


def add_old_day(db, ago: int, rows: int = 1) -> None:
    """Adds a day that was delivered this many days ago."""
    db.sql(f"""DO $$ DECLARE day timestamptz := date_trunc('day', now(), 'UTC') - interval '{ago} days'; BEGIN
               PERFORM outbox_internal.add_partition('outbox.events_sent', 'events_sent_' || to_char(day, 'YYYYMMDD'), 'position', day, day + interval '1 day'); END $$""")
    db.sql("INSERT INTO outbox.events (aggregate_type, event_type, status, sent_at) SELECT 'Order', 'old', 'SENT', date_trunc('day', now(), 'UTC') - %s * interval '1 day'"
           " FROM generate_series(1, %s)", ago, rows)


def days(db) -> list[int]:
    """The ages in days of the existing day partitions."""
    return [row[0] for row in db.sql("SELECT (now() AT TIME ZONE 'UTC')::date - right(c.relname, 8)::date FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid"
                                     " WHERE i.inhparent = 'outbox.events_sent'::regclass ORDER BY 1")]


def drop_days(db) -> None:
    for (day,) in db.sql("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'outbox.events_sent'::regclass"):
        db.sql(f"DROP TABLE {day}")


def test_maintain_drops_old_days(db, setting):
    """Days older than the retention are dropped whole; younger days stay."""
    setting("outbox.enabled", "off")  # the worker would be faster
    setting("outbox.retention", "7d")
    db.sql("SELECT outbox.run_maintenance()")
    assert days(db) == [-3, -2, -1, 0, 1]
    add_old_day(db, 5)
    add_old_day(db, 20)
    assert db.value("SELECT outbox.run_maintenance()") == 1
    assert days(db) == [-3, -2, -1, 0, 1, 5]
    assert db.value("SELECT count(*) FROM outbox.events") == 1
    setting("outbox.retention", "0")
    assert db.value("SELECT outbox.run_maintenance()") == 1
    assert days(db) == [-3, -2, -1, 0, 1]


def test_after_a_week_without_a_worker(db, receiver, setting):
    """The first event is kept although its day does not exist yet, and all expired days are dropped at once."""
    setting("outbox.retention", "3d")
    db.webhook_sink("crm", receiver, SECRET)
    db.enqueue("Order", "1", "first")
    wait_until(lambda: db.pending() == 0, 10, "delivery")
    setting("outbox.enabled", "off")
    wait_until(lambda: not db.sql("SELECT 1 FROM outbox.workers WHERE database = current_database()"), 10, "the worker to go")
    drop_days(db)
    for ago in range(2, 10):
        add_old_day(db, ago, 1000)
    db.enqueue("Order", "1", "second")
    setting("outbox.enabled", "on")
    wait_until(lambda: days(db) == [-3, -2, -1, 0, 1, 2, 3], 20, lambda: f"the days, not {days(db)}")
    wait_until(lambda: db.pending() == 0, 10, "delivery")
    assert db.sql("SELECT event_type, count(*) FROM outbox.events GROUP BY 1 ORDER BY 1") == [("old", 2000), ("second", 1)]


def test_maintain_waits_for_whoever_makes_the_same_days(db, setting):
    """A worker holds that lock for milliseconds, longer on a busy machine."""
    setting("outbox.enabled", "off")
    with db.connect(autocommit=False) as maker, db.connect() as caller, ThreadPoolExecutor() as pool:
        maker.execute("LOCK TABLE ONLY outbox.events_sent IN SHARE UPDATE EXCLUSIVE MODE")
        done = pool.submit(caller.execute, "SELECT outbox.run_maintenance()")
        waiting = ("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
                   " AND clock_timestamp() - query_start > '300ms'")
        wait_until(lambda: done.done() or db.value(waiting) == 1, 10, "it to wait")
        maker.rollback()
        assert done.result(patient(10)).fetchone()[0] >= 0


def test_events_are_kept_beside_rows_of_another_origin(db, receiver, setting):
    """Rows that wait for outbox.adopt() keep the worker from dropping days, but not from creating those that it
    needs."""
    setting("outbox.enabled", "off")
    setting("outbox.retention", "7d")
    wait_until(lambda: not db.sql("SELECT 1 FROM outbox.workers WHERE database = current_database()"), 10, "the worker to go")
    drop_days(db)
    add_old_day(db, 20)
    db.webhook_sink("crm", receiver, SECRET)
    db.sql("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, position, sink, origin)"
           " VALUES (gen_random_uuid(), 'Order', '1', 'foreign', 1, 'crm', 42)")
    event = db.enqueue("Order", "1", "own")
    setting("outbox.enabled", "on")
    wait_until(lambda: not db.sql("SELECT FROM outbox.events_pending WHERE id = %s", event), 30, "delivery")
    assert db.sql("SELECT event_type FROM outbox.events WHERE status = 'SENT' ORDER BY sent_at") == [("old",), ("own",)]
    assert days(db) == [-3, -2, -1, 0, 1, 20]
    status, detail, hint = db.doctor("retention")
    assert status == "warning" and hint.startswith("-- ") and "outbox.adopt()" in hint and "another cluster or database" in detail


def test_a_sessions_way_to_write_times_does_not_move_a_day(db, setting):
    """In India's time zone, whose abbreviation is also Israel's."""
    setting("outbox.enabled", "off")
    wait_until(lambda: not db.sql("SELECT 1 FROM outbox.workers WHERE database = current_database()"), 10, "the worker to go")
    milliseconds = f"{int(time.time() * 1000):012x}"
    event = f"{milliseconds[:8]}-{milliseconds[8:]}-7000-8000-000000000000"
    db.sql("CREATE EXTENSION outbox_inbox")
    parts = "FROM pg_class AS c WHERE c.relispartition AND c.relname ~ '^(events_sent|processed_events)_[0-9]'"

    def bounds(*settings: str) -> list[tuple]:
        for (part,) in db.sql(f"SELECT c.oid::regclass::text {parts}"):
            db.sql(f"DROP TABLE {part}")
        with db.connect() as session:
            for setting in settings:
                session.execute(f"SET {setting}")
            session.execute("SELECT outbox_inbox.mark_processed(%s::uuid, 'mail')", [event])
            session.execute("SELECT outbox.run_maintenance(), outbox_inbox.run_maintenance()")
        return db.sql(f"SELECT c.relname::text, pg_get_expr(c.relpartbound, c.oid) {parts} ORDER BY 1")

    expected = bounds()
    assert len(expected) >= 8
    assert bounds("DateStyle = 'SQL, DMY'", "TimeZone = 'Asia/Kolkata'") == expected


def test_retention_changed_live(db, receiver, setting):
    """0, a day, 0, without a restart. Kept events are dropped with their day."""
    db.webhook_sink("crm", receiver, SECRET)

    def kept() -> list[str]:
        return [row[0] for row in db.sql("SELECT event_type FROM outbox.events WHERE status = 'SENT' ORDER BY 1")]

    def deliver(event_type: str) -> None:
        event = db.enqueue("Order", "1", event_type)
        db.sql("CALL outbox.wait_delivered(%s)", event)

    deliver("deleted")
    setting("outbox.retention", "1d")
    wait_until(lambda: deliver("kept") or kept(), 10, "the worker to keep it")
    setting("outbox.retention", "0")

    def deleted() -> bool:
        before = kept()
        deliver("deleted")
        return kept() == before

    wait_until(deleted, 10, "the worker to delete it")
    assert set(kept()) == {"kept"}
    # Without a retention days exist too: a user may mark an event as sent.
    db.sql("SELECT outbox.pause('crm')")
    db.enqueue("Order", "2", "marked")
    db.sql("UPDATE outbox.events SET status = 'SENT' WHERE event_type = 'marked'")
    assert set(kept()) == {"kept", "marked"}


def test_a_reader_in_the_way(db, pg, receiver):
    """An expired day is dropped when no session reads it any more, and no other work waits for that."""
    db.webhook_sink("crm", receiver, SECRET)
    db.sql("CALL outbox.wait_delivered(%s)", db.enqueue("Order", "1"))
    wait_until(lambda: len(days(db)) == 5, 10, "the days")
    add_old_day(db, 5)
    add_old_day(db, 6)
    with db.connect(autocommit=False) as reader:
        assert reader.execute("SELECT count(*) FROM outbox.events WHERE status = 'SENT'").fetchone() == (2,)
        log = pg.log.stat().st_size
        began = time.monotonic()
        assert db.value("SELECT outbox.run_maintenance()") == 0
        assert time.monotonic() - began >= 0.1
        assert pg.log.read_text()[log:].count("will be dropped later") == 1  # one wait in all, not one per day
        assert len(days(db)) == 7
    assert db.value("SELECT outbox.run_maintenance()") == 2
    assert len(days(db)) == 5
    # The strongest lock, held deliberately: events are enqueued, delivered and read.
    with db.connect(autocommit=False) as holder:
        holder.execute("LOCK TABLE outbox.events_sent IN ACCESS EXCLUSIVE MODE")
        db.sql("SET lock_timeout = '1s'")
        db.sql("CALL outbox.wait_delivered(%s)", db.enqueue("Order", "1"))
        assert db.sql("SELECT count(*) FROM outbox.events WHERE status = 'PENDING'") == [(0,)]
        with pytest.raises(psycopg.errors.LockNotAvailable):
            db.sql("SELECT count(*) FROM outbox.events WHERE status = 'SENT'")


def test_a_day_that_a_view_reads(db, setting):
    """It stays, and the doctor names the view. Other days are created and dropped."""
    setting("outbox.enabled", "off")
    setting("outbox.retention", "7d")
    db.sql("SELECT outbox.run_maintenance()")
    for ago in (20, 21):
        add_old_day(db, ago)
    oldest, coming = (db.value("SELECT 'outbox.events_sent_' || to_char(now() AT TIME ZONE 'UTC' + %s * interval '1 day', 'YYYYMMDD')", n) for n in (-21, 3))
    db.sql(f"CREATE VIEW public.report AS SELECT id FROM {oldest}")
    db.sql(f"DROP TABLE {coming}")
    assert db.value("SELECT outbox.run_maintenance()") == 2
    assert days(db) == [-3, -2, -1, 0, 1, 21]
    state, detail, hint = db.doctor("retention")
    assert state == "warning" and "view public.report" in detail
    db.sql("DROP VIEW public.report")
    db.paste(hint)
    assert days(db) == [-3, -2, -1, 0, 1] and db.doctor("retention")[0] == "ok"


@pytest.mark.parametrize("owns", ["", "CREATE TRIGGER own BEFORE DELETE ON {day} FOR EACH ROW WHEN (OLD.attempts > 3) EXECUTE FUNCTION suppress_redundant_updates_trigger()",
                                  "CREATE POLICY own ON {day} USING (attempts > 3)", "CREATE STATISTICS own ON attempts, status FROM {day}",
                                  "CREATE INDEX own ON {day} (attempts) WHERE attempts > 3", "ALTER TABLE {day} ADD CONSTRAINT own CHECK (attempts >= 0)"])
def test_a_day_that_a_session_reads(db, setting, owns):
    """What is dropped with the day is not told as what keeps it: PostgreSQL's copies of the extension's triggers depend on its columns."""
    setting("outbox.enabled", "off")
    setting("outbox.retention", "7d")
    db.sql("SELECT outbox.run_maintenance()")
    add_old_day(db, 20)
    day = db.value("SELECT 'outbox.events_sent_' || to_char(now() AT TIME ZONE 'UTC' - interval '20 days', 'YYYYMMDD')")
    if owns:
        db.sql(owns.format(day=day))
    with db.connect(autocommit=False) as reader:
        reader.execute(f"SELECT FROM {day}")
        assert db.value("SELECT outbox.run_maintenance()") == 0
        state, detail, hint = db.doctor("retention")
        assert state == "warning" and detail.endswith("a session has been reading them for long, or no worker runs."), detail
    db.paste(hint)
    assert days(db) == [-3, -2, -1, 0, 1] and db.doctor("retention")[0] == "ok"


@pytest.mark.parametrize(("makes", "drops", "named"), [
    ("CREATE FUNCTION public.report(day {day}) RETURNS uuid LANGUAGE sql AS 'SELECT day.id'", "DROP FUNCTION public.report", "function public.report({day})"),
    ("CREATE TABLE public.report (position bigint REFERENCES {day})", "DROP TABLE public.report", "constraint report_position_fkey on table public.report")])
def test_a_day_on_which_something_else_depends(db, setting, makes, drops, named):
    setting("outbox.enabled", "off")
    setting("outbox.retention", "7d")
    add_old_day(db, 20)
    day = db.value("SELECT 'outbox.events_sent_' || to_char(now() AT TIME ZONE 'UTC' - interval '20 days', 'YYYYMMDD')")
    db.sql(makes.format(day=day))
    db.sql("SELECT outbox.run_maintenance()")
    state, detail, hint = db.doctor("retention")
    assert state == "warning" and named.format(day=day) + " depends on one" in detail, detail
    db.sql(drops)
    db.paste(hint)
    assert days(db) == [-3, -2, -1, 0, 1] and db.doctor("retention")[0] == "ok"


def test_expired_dedup_keys_go_little_by_little(db, receiver, setting):
    """A large table is processed in batches of short transactions; keys of existing events stay."""
    setting("outbox.enabled", "off")
    setting("outbox.dedup_window", "10s")
    db.sql("CREATE TABLE public.batches (transaction xid8, keys bigint)")
    db.sql("""CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                INSERT INTO public.batches SELECT pg_current_xact_id(), count(*) FROM gone; RETURN NULL; END $$;
              CREATE TRIGGER note AFTER DELETE ON outbox_internal.dedup REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION public.note()""")
    db.sql("INSERT INTO outbox_internal.dedup SELECT 'key' || n, gen_random_uuid(), now() - interval '1 hour' FROM generate_series(1, 60000) AS n")
    db.sql("INSERT INTO outbox_internal.dedup SELECT 'new', gen_random_uuid(), now() + interval '1 hour'")
    db.webhook_sink("crm", receiver, SECRET)
    with db.connect(autocommit=False) as producer:
        producer.execute("SELECT outbox.enqueue('Order', '1', 'e', '1', dedup_key => 'key1')")  # reuses an expired key
        setting("outbox.enabled", "on")
        wait_until(lambda: db.value("SELECT count(*) FROM outbox_internal.dedup") == 2, 30, lambda: f"the rest: {db.value('SELECT count(*) FROM outbox_internal.dedup')}")
        producer.commit()
    assert db.sql("SELECT dedup_key FROM outbox_internal.dedup ORDER BY 1") == [("key1",), ("new",)]
    batches = [keys for keys, in db.sql("SELECT sum(keys)::int FROM public.batches GROUP BY transaction")]
    assert sum(batches) == 59999 and max(batches) <= 40000, batches

"""What reads the events while an outage lasts, with the statistics of before: nothing had failed, and no row was
blocked. The tests count rows that were read, because times on a busy machine are unreliable."""

import psycopg
import pytest

MANY = 30_000


def fill(db) -> None:
    """The statistics are of a healthy time. Then each of many keys of the sink crm has a failing event and one behind
    it, three keys have a dead letter in front, and a manual sink has as many failing events."""
    db.sql("ALTER TABLE outbox.events_pending SET (autovacuum_enabled = off); ALTER TABLE outbox.events_failed SET (autovacuum_enabled = off)")
    db.webhook_sink("crm", "https://localhost:1", events="order.*", on_dead_letter="block")
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER mine FOREIGN DATA WRAPPER outbox_manual OPTIONS (events 'item.*')")
    db.sql("SELECT outbox.pause('crm')")
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) SELECT 'Order', 'healthy' || n, 'order.created' FROM generate_series(1, 2000) AS n")
    db.sql("ANALYZE outbox.events_pending, outbox.events_failed, outbox.leases, outbox_internal.failed_attempts")
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, partition_key, event_type, sink, status, attempts, last_error, last_attempt_at, origin, position) "
           "SELECT 'Order', 'dead' || n, 'dead' || n, 'order.created', CASE WHEN n %% 10 = 0 THEN 'mine' ELSE 'crm' END, 'FAILED', 1, 'HTTP 400', clock_timestamp(), "
           "(SELECT origin FROM outbox_internal.library()), nextval('outbox.events_position') FROM generate_series(1, %s) AS n", MANY)
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, attempts, last_error, last_attempt_at, available_at) "
           "SELECT 'Order', 'k' || n, type, 1, 'HTTP 500', clock_timestamp(), clock_timestamp() + interval '2 hours' "
           "FROM generate_series(1, %s) AS n CROSS JOIN unnest('{order.created,item.made}'::text[]) AS type", MANY)
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) "
           "SELECT 'Order', 'k' || n, type FROM generate_series(1, %s) AS n CROSS JOIN unnest('{order.created,item.made}'::text[]) AS type", MANY)
    with db.connect() as connection:
        connection.execute("CREATE TEMPORARY TABLE head AS SELECT partition_key, position FROM outbox.events_pending WHERE last_attempt_at IS NOT NULL AND sink = 'crm'")
        connection.execute("ANALYZE head")
        connection.execute("UPDATE outbox.events_pending AS p SET blocked_by = h.position FROM head AS h "
                           "WHERE h.partition_key = p.partition_key AND p.last_attempt_at IS NULL AND p.sink = 'crm'")


READ = "SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0) FROM pg_stat_xact_all_tables WHERE schemaname IN ('outbox', 'outbox_internal')"
FAILING = "(SELECT id FROM outbox.events_pending WHERE sink = '{0}' AND last_attempt_at IS NOT NULL ORDER BY position LIMIT 1)"
BLOCKED = "(SELECT id FROM outbox.events_pending WHERE sink = '{0}' AND partition_key = 'k7' AND last_attempt_at IS NULL)"
DEAD = "(SELECT id FROM outbox.events_failed WHERE sink = '{0}' AND partition_key = '{1}')"

# The statement, an id for it, and how many rows it may read.
STATEMENTS = [
    ("SELECT count(*) FROM outbox.doctor()", None, 300_000),
    ("SELECT count(*) FROM outbox_internal.doctor_heads()", None, 15_000),
    ("SELECT count(*) FROM outbox_internal.doctor_row_locks('30 seconds')", None, 25_000),
    ("SELECT count(*) FROM outbox_internal.doctor_events('30 seconds')", None, 150_000),
    ("SELECT count(*) FROM outbox.sinks", None, 90_000),
    ("SELECT count(*) FROM outbox_internal.sink_retries()", None, 3_000),
    ("SELECT count(*) FROM outbox_internal.oldest_failures()", None, 3_000),
    ("SELECT outbox_internal.has_late_event('crm', now())", None, 21_000),
    ("SELECT outbox_internal.restore_seen()", None, 3_000),
    ("SELECT count(*) FROM outbox.story(%s)", BLOCKED.format("crm"), 90_000),
    ("SELECT outbox_internal.claim_waits_for((SELECT position FROM outbox.events_pending WHERE id = %s))", BLOCKED.format("mine"), 20),
    ("SELECT count(*) FROM outbox.event_status(%s)", FAILING.format("crm"), 20),
    ("SELECT outbox.redrive(%s)", DEAD.format("crm", "dead7"), 20),
]


@pytest.mark.timing  # it compares counts of rows, and a plan that is wrong takes minutes
def test_the_statistics_of_before(db):
    fill(db)
    too_many = []
    for statement, event, most in STATEMENTS:
        given = [] if event is None else [db.value(f"SELECT {event}")]
        assert None not in given
        with db.connect(autocommit=False) as connection:
            connection.execute("SET LOCAL statement_timeout = '60s'")
            before = connection.execute(READ).fetchone()[0]
            try:
                connection.execute(statement, given)
                read = connection.execute(READ).fetchone()[0] - before
            except psycopg.errors.QueryCanceled:
                read = float("inf")
            connection.rollback()
        print(read, statement)
        if read > most:
            too_many.append((statement, read, most))
    assert too_many == []


def test_an_acknowledgement_and_a_refusal(db):
    """They look for earlier events of the same keys, of which there are many in other keys."""
    fill(db)
    with db.connect(autocommit=False) as connection:
        connection.execute("UPDATE outbox.events_pending SET available_at = NULL WHERE partition_key IN ('k7', 'k8') AND sink = 'mine'")
        claimed = connection.execute("SELECT token, id FROM outbox.claim('mine', 4)").fetchall()
        assert claimed
        token = claimed[0][0]
        before = connection.execute(READ).fetchone()[0]
        connection.execute("SELECT outbox.nack(%s, %s, 'no')", [token, claimed[0][1]])
        connection.execute("SELECT outbox.ack(%s)", [token])
        assert connection.execute(READ).fetchone()[0] - before < 100


def test_a_check_that_takes_too_long_is_a_row(db):
    """The others are still made, and the session goes on."""
    db.sql("CREATE OR REPLACE FUNCTION outbox_internal.doctor_transactions(patience interval, OUT \"check\" text, OUT status text, OUT detail text, OUT hint text) "
           "RETURNS SETOF record LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); END $$")
    with db.connect() as connection:
        rows = {row[0]: row for row in connection.execute("SELECT * FROM outbox.doctor()")}
        assert rows["transactions"][1] == "warning" and "longer than 5 seconds" in rows["transactions"][2]
        assert {"locks", "routes", "retention", "secrets"} < rows.keys()
        connection.execute("SELECT pg_sleep(0.1)")
        # A cancel that the doctor has not asked for ends it.
        connection.execute("SET statement_timeout = '1s'")
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            connection.execute("SELECT * FROM outbox.doctor()")
        connection.execute("SET statement_timeout = 0; SELECT pg_sleep(6)")


def buffers(db, statement: str) -> int:
    """Pages that the statement looks at."""
    [[[plan]]] = db.sql(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}")
    return plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]


def test_rows_that_are_gone_are_not_passed_again_and_again(db):
    """Under an old snapshot vacuum removes nothing, and in most indexes the delivered rows are the first ones."""
    db.sql("ALTER TABLE outbox.events_pending SET (autovacuum_enabled = off)")
    db.webhook_sink("crm", "https://localhost:1")
    db.sql("SELECT outbox.pause('crm')")
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) SELECT 'Order', n, 'order.created' FROM generate_series(1, 60000) AS n")
    looks = ["SELECT outbox_internal.has_rows_of_elsewhere((SELECT l.origin FROM outbox_internal.library() AS l))", "SELECT outbox_internal.restore_seen()"]
    for look in looks:
        db.sql(look)  # plans, and reads the catalogs
    before = [buffers(db, look) for look in looks]
    with db.connect(autocommit=False) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        db.sql("DELETE FROM outbox.events_pending WHERE position < (SELECT max(position) FROM outbox.events_pending)")
        after = [buffers(db, look) for look in looks]
    assert all(many < few + 100 for few, many in zip(before, after, strict=True)), (before, after)


@pytest.mark.parametrize("look", ["outbox_internal.doctor_sinks('30 s')", "outbox.sink_metrics", "outbox.sinks"])
def test_the_sinks_are_looked_at_once(db, look):
    """Also when the catalog of the sinks has statistics, which autovacuum makes where many are created."""
    db.sql("""DO $$ BEGIN FOR n IN 1..200 LOOP
              EXECUTE format('CREATE SERVER s%s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url %L, match %L)', n, 'https://localhost:1', jsonb_build_object('tenant', n)); END LOOP; END $$""")
    db.sql("SELECT outbox.pause(name) FROM outbox.sinks")
    statement = f"SELECT count(*) FROM {look}"
    db.sql(statement)
    before = buffers(db, statement)
    db.sql("ANALYZE")
    db.sql(statement)
    assert buffers(db, statement) < 2 * before + 1000

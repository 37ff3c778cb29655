"""How long delivered events are kept."""

from outbox_rig import wait_until
from outbox_rig.receiver import SECRET


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


def test_maintain_drops_old_days(db, setting):
    """Days that the retention has passed go whole; those within it stay."""
    setting("outbox.retention", "7d")

    def days() -> list[str]:
        return [row[0] for row in db.sql("SELECT right(inhrelid::regclass::text, 8) FROM pg_inherits"
                                         " WHERE inhparent = 'outbox.events_sent'::regclass ORDER BY 1")]

    wait_until(lambda: len(days()) >= 5, 10, "the days that the worker makes")
    made = days()
    for ago in (5, 20):
        db.sql(f"""DO $$ DECLARE day date := (now() AT TIME ZONE 'UTC')::date - {ago}; BEGIN
                   EXECUTE format('CREATE TABLE outbox.events_sent_%s PARTITION OF outbox.events_sent (PRIMARY KEY (position))
                     FOR VALUES FROM (%L) TO (%L)', to_char(day, 'YYYYMMDD'), day || ' 00:00Z', day + 1 || ' 00:00Z'); END $$""")
        db.sql("INSERT INTO outbox.events (aggregate_type, event_type, status, sent_at)"
               " VALUES ('Order', 'e', 'SENT', date_trunc('day', now(), 'UTC') - %s * interval '1 day')", ago)
    assert db.value("SELECT count(*) FROM outbox.events") == 2
    assert db.value("SELECT outbox.maintain()") == 1
    assert len(days()) == len(made) + 1
    assert db.value("SELECT count(*) FROM outbox.events") == 1
    setting("outbox.retention", "0")
    assert db.value("SELECT outbox.maintain()") == 1
    assert days() == made

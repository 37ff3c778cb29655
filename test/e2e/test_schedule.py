"""available_at: events are delivered on time, however many are scheduled, and scheduled events do not slow down
others."""

import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import SECRET

pytestmark = pytest.mark.timing

SCHEDULED = 60_000


def reads(db) -> tuple[int, int]:
    """Rows of the pending partition that were deleted and that were read, according to the statistics."""
    return db.sql("SELECT n_tup_del, (SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes i WHERE i.relid = t.relid) + seq_tup_read"
                  " FROM pg_stat_user_tables t WHERE relid = 'outbox.events_pending'::regclass")[0]


def test_many_scheduled_events(db, receiver, setting):
    setting("outbox.poll_interval", "1h")
    db.webhook_sink("crm", receiver, SECRET)
    insert = ("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, available_at)"
              " SELECT 'Order', 'key-' || n %% 1000, 'e', to_jsonb('far ' || n), now() + (%s - n) * interval '1 hour' FROM generate_series(1, %s) n")
    db.sql(insert, 2 * SCHEDULED, SCHEDULED)
    db.enqueue("Order", "warm", payload='"warm"')
    wait_until(lambda: receiver.payloads() == ["warm"], 30, "the worker to come past them")

    # Reading an ordinary event costs its own row, not the scheduled rows. (Statistics are reported at most once per
    # second.)
    sent = 0

    def send(until_deleted: int) -> bool:
        nonlocal sent
        sent += 1
        db.enqueue("Order", f"key-{sent}", payload=str(sent))
        return reads(db)[0] >= until_deleted

    wait_until(lambda: send(1), 60, "the statistics to tell of the first ones")
    deleted, read = reads(db)
    wait_until(lambda: send(deleted + 100), 60, "the statistics to tell of 100 more")
    deleted_then, read_then = reads(db)
    assert read_then - read < 3 * (deleted_then - deleted)
    wait_until(lambda: len(receiver.payloads()) == sent + 1, 20, "all of them")
    assert receiver.payloads()[1:] == list(range(1, sent + 1))

    # Scheduled events among them are sent when they become due, wherever their rows are.
    db.sql("UPDATE outbox.events SET available_at = clock_timestamp() + (1 + position % 2) * interval '1 s', payload = to_jsonb('due ' || position)"
           " WHERE position % 6000 < 2")
    due = dict(db.sql("SELECT payload #>> '{}', extract(epoch FROM available_at)::float8 FROM outbox.events WHERE available_at < now() + interval '1 min'"))
    assert len(due) == 20
    receiver.clear()
    wait_until(lambda: len(receiver.payloads()) >= 20, 20, "the due ones")
    late = [d.at - due[d.json()["data"]] for d in receiver.accepted()]
    assert len(late) == 20 and min(late) >= 0 and max(late) < 1, late

    # A new worker reads them once.
    db.sql("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE backend_type = 'outbox worker' AND datname = current_database()")
    db.enqueue("Order", "k", payload='"after"')
    wait_until(lambda: receiver.payloads()[20:] == ["after"], 30, "an event behind them all")
    wait_until(lambda: db.pending() == SCHEDULED - 20, 20, "only those to stay that are not due")

"""outbox.replay() delivers events again."""

import datetime
import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import SECRET

KEYS = 4


@pytest.fixture
def kept(db, receiver, setting):
    """Sixty events of four keys, delivered to the sink crm and kept. Returns their ids."""
    setting("outbox.retention", "1d")
    db.webhook_sink("crm", receiver, SECRET)
    with db.connect(autocommit=False) as connection:
        events = [str(connection.execute("SELECT outbox.enqueue('Order', %s::text, %s, to_jsonb(%s::int), headers => jsonb_build_object('region', %s::text))",
                                         [str(n % KEYS), "order.paid" if n % 10 == 0 else "order.created", n, "eu" if n % 2 else "us"]).fetchone()[0])
                  for n in range(60)]
    wait_until(lambda: db.pending() == 0, 20, "delivery")
    return events


def by_key(receiver, after: int = 0) -> dict[int, list[tuple[str, int]]]:
    keys: dict[int, list[tuple[str, int]]] = {}
    for d in receiver.accepted()[after:]:
        n = d.json()["data"]
        keys.setdefault(n % KEYS, []).append((d.id, n))
    return keys


def test_delivered_events_go_again_in_their_order(db, kept, receiver):
    """With their ids, after the pending events and before those that are enqueued later."""
    before = by_key(receiver)
    n = len(receiver.accepted())
    assert n == 60
    db.sql("SELECT outbox.pause('crm')")
    pending = db.enqueue("Order", "0", "order.created", "1000")
    assert db.value("SELECT outbox.replay('crm', now() - interval '1 hour')") == 60
    assert db.value("SELECT outbox.replay('crm', now() - interval '1 hour')") == 0  # they are pending
    later = db.enqueue("Order", "0", "order.created", "2000")
    db.sql("SELECT outbox.resume('crm')")
    wait_until(lambda: db.pending() == 0, 20, "delivery")
    again = by_key(receiver, n)
    assert again[0] == [(pending, 1000), *before[0], (later, 2000)]
    assert [again[key] for key in range(1, KEYS)] == [before[key] for key in range(1, KEYS)]
    # Again: each id once, although it is in the delivered table twice.
    assert db.value("SELECT count(*) FROM outbox.events WHERE status = 'SENT'") == 122
    assert db.value("SELECT outbox.replay('crm', now() - interval '1 hour', events => 'order.p*')") == 6
    wait_until(lambda: len(receiver.accepted()) == n + 62 + 6, 20, "delivery")
    assert db.value("SELECT outbox.replay('crm', now() - interval '2 hours', now() - interval '1 hour')") == 0


def test_their_age_and_latency_count_from_the_replay(db, kept, receiver):
    db.sql("UPDATE outbox.events SET created_at = created_at - interval '3 hours'")
    db.sql("SELECT outbox.pause('crm')")
    assert db.value("SELECT outbox.replay('crm', now() - interval '1 hour')") == 60
    assert db.value("SELECT oldest_pending_age < '1 hour' FROM outbox.sinks")
    db.sql("SELECT outbox.reset_stats('crm')")
    db.sql("SELECT outbox.resume('crm')")
    wait_until(lambda: db.sink("delivered") == (60,), 20, "delivery")
    assert db.value("SELECT latency_p99 < 1800000 FROM outbox.sinks")


def test_a_sink_that_was_made_later(db, kept, receiver, other):
    """It gets the events of other sinks that match its filter, each id once, in order."""
    db.webhook_sink("late", other, SECRET, match='{"region": "eu"}')
    assert db.value("SELECT outbox.replay('late', now() - interval '1 hour')") == 30
    wait_until(lambda: db.pending() == 0, 20, "delivery")
    assert by_key(other) == {key: [e for e in events if e[1] % 2] for key, events in by_key(receiver).items() if key % 2}
    assert len(receiver.accepted()) == 60
    # Events that it has delivered are not sent again; the first sink's are independent.
    db.sql("DELETE FROM outbox.events WHERE status = 'SENT' AND sink = 'late' AND payload IN ('1', '3')")
    db.sql("UPDATE outbox.events SET sent_at = sent_at - interval '2 hours' WHERE sink = 'late'")
    assert db.value("SELECT outbox.replay('late', now() - interval '1 hour')") == 2


def test_kept_events_belong_to_the_name_of_a_sink(db, kept, receiver, other):
    """A new server with the name of a renamed or dropped one sends their history. The renamed one sends what its options take."""
    db.sql("ALTER SERVER crm RENAME TO crm_v1; ALTER SERVER crm_v1 OPTIONS (ADD events 'order.created')")
    db.webhook_sink("crm", other, SECRET, events="none")
    assert db.value("SELECT outbox.replay('crm', '1 hour')") == 60
    assert db.value("SELECT outbox.replay('crm_v1', '1 hour')") == 54
    wait_until(lambda: len(other.accepted()) == 60 and db.pending() == 0, 20, lambda: len(other.accepted()))
    db.sql("DROP SERVER crm CASCADE")
    db.webhook_sink("crm", other, SECRET, events="none")
    assert db.value("SELECT outbox.replay('crm', '1 hour')") == 60


def test_one_event_is_sent_again_and_a_span_is_an_interval(db, kept, receiver):
    [(event,)] = db.sql("SELECT id::text FROM outbox.events WHERE status = 'SENT' ORDER BY position LIMIT 1")
    with db.connect() as session:
        assert session.execute("SELECT outbox.replay(%s, event => %s)", ["crm", event]).fetchone() == (1,)
    wait_until(lambda: [delivery.id for delivery in receiver.accepted()].count(event) == 2, 10, "the event once more")
    wait_until(lambda: db.pending() == 0, 10, "its recording")
    assert db.value("SELECT outbox.replay('crm', %s)", "2 hours") == 60
    wait_until(lambda: db.pending() == 0, 20, "all of them")
    assert db.value("SELECT outbox.replay('crm', %s)", datetime.timedelta(hours=2)) == 60

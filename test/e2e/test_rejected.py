"""Events that were valid when they were enqueued and are invalid when they are delivered: with on_dead_letter
'block', no event of the key overtakes such a dead letter."""

import json

import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import SECRET


@pytest.fixture
def batch(db, aggregate):
    """Enqueues events of key k and of another key, of which the second is invalid. Returns their ids."""
    def enqueue(odd: str, usual: str) -> list[str]:
        with db.connect() as session:  # one transaction, so that the worker claims them together
            return [str(session.execute(f"SELECT outbox.enqueue(%s, %s, 'e', jsonb_build_object('n', %s::int){odd if n == 2 else usual})",
                                        [aggregate, key, n]).fetchone()[0]) for key, n in (("k", 1), ("k", 2), ("k", 3), ("other", 4))]
    return enqueue


def one_is_dead_and_one_is_held(db):
    wait_until(lambda: db.sink("pending, blocked, dead", "s") == (1, 1, 1), 20,
               lambda: f"a dead letter and what it holds: {db.sql('SELECT payload->>0, status, blocked_by, last_error FROM outbox.events')}")


def redriven(db, dead: str):
    assert db.value("SELECT outbox.redrive(%s)", dead)
    wait_until(lambda: db.sink("pending, dead", "s") == (0, 0), 20, lambda: f"the rest: {db.sql('TABLE outbox.events')}")


def test_too_large_for_the_limit_that_a_kafka_sink_has_now(db, kafka, consume, aggregate, batch):
    db.kafka_sink("s", kafka, on_dead_letter="block", message_max_bytes="100000")
    db.sql("SELECT outbox.pause('s')")
    dead = batch(" || jsonb_build_object('x', repeat('x', 5000))", "")[1]
    db.set_sink("s", message_max_bytes="2000")
    db.sql("SELECT outbox.resume('s')")
    one_is_dead_and_one_is_held(db)
    consumer = consume(f"outbox.event.{aggregate}")
    assert sorted(json.loads(record.value)["n"] for record in consumer.take(2)) == [1, 4]
    db.set_sink("s", message_max_bytes="100000")
    redriven(db, dead)
    assert [json.loads(record.value)["n"] for record in consumer.take(2)] == [2, 3]


def test_unfit_for_a_url_that_only_the_user_mapping_has(db, receiver, batch):
    db.sql("CREATE SERVER s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (allow_http 'true', allow_networks '127.0.0.0/8', on_dead_letter 'block')")
    dead = batch("", """, headers => '{"tenant": "acme"}'""")[1]
    db.create_mapping("s", {"url": receiver.url + "/${header.tenant}", "secret": SECRET})
    one_is_dead_and_one_is_held(db)

    def numbers() -> list[int]:
        return [delivery.json()["data"]["n"] for delivery in receiver.accepted()]

    assert sorted(numbers()) == [1, 4]
    db.set_mapping("s", url=receiver.url)
    redriven(db, dead)
    assert numbers()[2:] == [2, 3]

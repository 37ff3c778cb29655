"""Events arrive as entries, in order per key, as the preview says."""

import json
from collections import defaultdict

import pytest
from outbox_rig import wait_until

from redis_server import Stream


def sinks(db):
    return lambda: str(db.sql("SELECT * FROM outbox.sinks"))


def numbers_by_key(entries) -> dict[str, list[int]]:
    found = defaultdict(list)
    for entry in entries:
        found[entry["key"]].append(json.loads(entry["payload"])["n"])
    return found


def test_an_event_is_an_entry(db, server):
    db.redis_sink("redis", server)
    id = db.enqueue("Order", "7", "order.created", '{"a": 1}', headers='{"tenant": "eu", "traceparent": "x"}')
    [entry] = Stream(server, "outbox.event.Order").read(1)
    assert 1_700_000_000_000 < int(entry.pop("created_at")) < 10_000_000_000_000
    assert entry == {"id": id, "type": "order.created", "key": "7", "header.tenant": "eu", "header.traceparent": "x", "content_type": "application/json", "payload": '{"a": 1}'}
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    assert db.sink("kind, target, state", "redis") == ("redis", f"127.0.0.1:{server.port}", "idle")


@pytest.mark.parametrize("options", [{}, {"wait_replicas": "1"}])
def test_a_kept_event_tells_its_entry(db, server, stream, make_redis, options):
    if options:
        make_redis(replica_of=server)
    db.redis_sink("redis", server, stream=stream.name, retention="1d", **options)
    ids = [db.enqueue("Order", str(n)) for n in range(3)]
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    entries = {entry[b"id"].decode(): name.decode() for name, entry in server.client().xrange(stream.name)}
    for id in ids:
        assert db.value("SELECT acknowledgement FROM outbox.events WHERE id = %s", id).startswith(f"entry {entries[id]}")


@pytest.mark.parametrize("options", [{}, {"wait_replicas": "1"}])
def test_a_thousand_keys_in_order(db, server, stream, make_redis, options):
    if options:
        make_redis(replica_of=server)
    db.redis_sink("redis", server, stream=stream.name, **options)
    db.sql("SELECT outbox.enqueue('Order', (n % 1000)::text, 'order.made', jsonb_build_object('n', n)) FROM generate_series(1, 20000) AS n")
    found = numbers_by_key(stream.read(20000))
    assert len(found) == 1000
    for key, numbers in found.items():
        assert numbers == [n for n in range(1, 20001) if str(n % 1000) == key]
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    assert stream.count() == 20000, "no event arrives twice without a fault"


def test_a_stream_is_trimmed_on_request(db, server, stream):
    db.redis_sink("redis", server, stream=stream.name, maxlen="1000")
    db.sql("SELECT outbox.enqueue('Order', n::text, 'order.made', jsonb_build_object('n', n)) FROM generate_series(1, 5000) AS n")
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    assert 1000 <= stream.count() < 1500  # whole nodes of 100 entries are trimmed


def test_a_database_of_its_own(db, server):
    db.redis_sink("redis", server, database="3")
    db.enqueue("Order", "1")
    Stream(server, "outbox.event.Order", database=3).read(1)
    assert not server.client().exists("outbox.event.Order")

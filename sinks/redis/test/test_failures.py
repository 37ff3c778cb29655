"""Failures at the server: an event, a stream, the server as a whole."""

import json
import re
import time

import pytest
import redis
from outbox_rig import wait_until
from outbox_rig.kind_fixtures import SlowLink, a_slow_link_is_waited_for, cpu_of, memory_is_bounded, metrics_show
from outbox_rig.process import free_port
from outbox_rig.writers import Writers

from redis_server import Stream
from test_delivery import numbers_by_key, sinks

QUICK = {"retry": "100ms..500ms", "max_attempts": "1000"}


def state_is(db, state: str, error: str = "", name: str = "redis", seconds: float = 30) -> None:
    wait_until(lambda: db.sink("state", name) == (state,) and error in (db.sink("last_error", name)[0] or ""), seconds, sinks(db))


def many(db, n: int, keys: int, begin: int = 0, kind: str = "order.made") -> None:
    db.sql("SELECT outbox.enqueue('Order', (n %% %s::int)::text, %s, jsonb_build_object('n', n)) FROM generate_series(%s::int, %s::int) AS n", keys, kind, begin, begin + n - 1)


def first_deliveries_in_order(entries) -> int:
    """Asserts that each key's events came first in their order; returns the number of duplicates."""
    duplicates = 0
    for key, numbers in numbers_by_key(entries).items():
        first = list(dict.fromkeys(numbers))
        assert first == sorted(first), (key, numbers)
        duplicates += len(numbers) - len(first)
    return duplicates


def all_of(entries) -> set[int]:
    return {json.loads(entry["payload"])["n"] for entry in entries}


def no_attempt_is_spent(db) -> None:
    assert db.value("SELECT max(attempts) FROM outbox.events WHERE status = 'PENDING'") == 0


class Steady(Writers):
    """Enqueues events of 50 keys until it is stopped."""

    def __init__(self, db):
        super().__init__(1)
        self.db, self.n = db, 0

    def write(self, writer: int) -> None:
        with self.db.connect() as session:
            while not self.stopping.is_set():
                session.execute("SELECT outbox.enqueue('Order', (n %% 50)::text, 'order.made', jsonb_build_object('n', n)) FROM generate_series(%s::int, %s::int) AS n", [self.n, self.n + 99])
                self.n += 100
                self.stopping.wait(0.005)


# ---- the server goes away ------------------------------------------------------------------------------------


def test_a_killed_server_loses_nothing(db, server, stream):
    db.redis_sink("redis", server, stream=stream.name, max_in_flight="500")
    with Steady(db) as traffic:
        wait_until(lambda: traffic.n > 3000, 60)
        server.kill()
        state_is(db, "circuit open")
        assert re.search("was lost|refused", db.sink("last_error", "redis")[0])
        server.start()
        enough = traffic.n + 2000
        wait_until(lambda: traffic.n > enough, 60)
    wait_until(lambda: db.pending() == 0, 120, sinks(db))
    entries = stream.read(stream.count())
    assert all_of(entries) == set(range(traffic.n))
    assert first_deliveries_in_order(entries) <= 500, "no more than was in flight is sent again"
    assert db.sql("SELECT max(attempts) FROM outbox.events") == [(None,)]


def test_a_restarted_server(db, server, stream):
    db.redis_sink("redis", server, stream=stream.name)
    with Steady(db) as traffic:
        wait_until(lambda: traffic.n > 1000, 60)
        server.stop()
        state_is(db, "circuit open")
        server.start()
    wait_until(lambda: db.pending() == 0, 60, sinks(db))
    entries = stream.read(stream.count())
    assert all_of(entries) == set(range(traffic.n))
    first_deliveries_in_order(entries)


@pytest.mark.timeout(600)
def test_a_server_that_hangs(db, server, stream):
    """It is given up after 30 s; until then the sink takes no more events than it may hold."""
    db.redis_sink("redis", server, stream=stream.name, max_in_flight="50")
    many(db, 100, 10)
    stream.read(100)
    server.freeze()
    try:
        many(db, 5000, 1000, 100)
        wait_until(lambda: db.sink("in_flight", "redis")[0] == 200, 20, sinks(db))
        state_is(db, "circuit open", "has replied nothing for 30 s", seconds=60)
        no_attempt_is_spent(db)
    finally:
        server.thaw()
    wait_until(lambda: db.pending() == 0, 60, sinks(db))
    entries = stream.read(stream.count())
    assert all_of(entries) == set(range(5100))
    assert first_deliveries_in_order(entries) <= 50 + 10, "what was in flight, and probes"


def test_memory_is_bounded_while_the_server_hangs(db, server, stream):
    db.redis_sink("redis", server, stream=stream.name)
    memory_is_bounded(db, "redis", server, most=80)


@pytest.mark.timeout(600)
def test_a_large_event_on_a_slow_link(db, server, stream):
    with SlowLink(server.port, 60_000) as link:
        db.redis_sink("redis", server, stream=stream.name, hosts=f"127.0.0.1:{link.port}")
        a_slow_link_is_waited_for(db, "redis", link)
    assert stream.count() == 3


def test_a_removed_sink_ends_at_once(db, server, stream):
    """An event that waits for a hanging server does not hold up DROP SERVER, nor a shutdown."""
    db.redis_sink("redis", server, stream=stream.name)
    many(db, 10, 10)
    stream.read(10)
    server.freeze()
    try:
        many(db, 10, 10)
        wait_until(lambda: db.sink("in_flight", "redis")[0] > 0, 30, sinks(db))
        db.sql("DROP SERVER redis CASCADE")
        wait_until(lambda: db.value("SELECT count(*) FROM outbox.sinks WHERE state <> 'dropped'") == 0, 30, sinks(db))
    finally:
        server.thaw()


def test_an_idle_connection_that_the_server_closes(db, server, stream):
    """The server may close idle connections: that is no outage."""
    db.redis_sink("redis", server, stream=stream.name)
    many(db, 1, 1)
    stream.read(1)
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    client, logged = server.client(), db.pg.log.read_text().count('"redis"')
    connections = lambda: {each["id"] for each in client.client_list() if each["name"] == "outbox"}  # noqa: E731
    [first] = connections()
    client.client_kill_filter(_id=first)
    wait_until(lambda: connections() and first not in connections(), 20, sinks(db))
    many(db, 1, 1, 1)
    stream.read(2)
    assert db.sink("last_error", "redis") == (None,) and db.pg.log.read_text().count('"redis"') == logged


# ---- the server refuses --------------------------------------------------------------------------------------


def all_wait(db, error: str, hint: str, begin: int = 0) -> None:
    """Also a single event, which nothing else shows to be without fault, costs no attempt: its first would be its last."""
    many(db, 1, 1, begin)
    state_is(db, "circuit open", error)
    many(db, 99, 10, begin + 1)
    assert hint in db.sink("last_error", "redis")[0] and error in str(db.sql("SELECT * FROM outbox.doctor()"))
    no_attempt_is_spent(db)


def test_memory_is_full(db, server, stream):
    db.redis_sink("redis", server, stream=stream.name, max_attempts="1")
    server.config(maxmemory="1")
    try:
        all_wait(db, "OOM command not allowed", "raise maxmemory")
    finally:
        server.config(maxmemory="0")
    assert first_deliveries_in_order(stream.read(100)) == 0
    state_is(db, "idle")


def test_too_few_replicas_for_the_server(db, server, stream):
    db.redis_sink("redis", server, stream=stream.name, max_attempts="1")
    server.config(min_replicas_to_write="5")
    try:
        all_wait(db, "NOREPLICAS", "min-replicas-to-write")
    finally:
        server.config(min_replicas_to_write="0")
    assert first_deliveries_in_order(stream.read(100)) == 0


def test_a_disk_that_fails(db, server, stream):
    """A snapshot cannot be written, and the server refuses entries because of that."""
    db.redis_sink("redis", server, stream=stream.name, max_attempts="1")
    many(db, 10, 10)
    stream.read(10)
    client = server.client()
    (server.dir / "dump.rdb").mkdir()  # what is to be renamed to it
    client.config_set("save", "3600 1")
    client.bgsave()
    wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", 30)
    try:
        all_wait(db, "MISCONF", "look at its log", 10)
    finally:
        client.config_set("save", "")
        (server.dir / "dump.rdb").rmdir()
    assert first_deliveries_in_order(stream.read(110)) == 0


def test_a_script_that_runs(db, server, stream):
    db.redis_sink("redis", server, stream=stream.name, max_attempts="1")
    many(db, 10, 10)
    stream.read(10)
    server.config(busy_reply_threshold="10")
    busy = server.client()
    connection = busy.connection_pool.get_connection("EVAL")
    connection.send_command("EVAL", "while true do end", 0)
    try:
        wait_until(lambda: says_busy(server), 20)
        all_wait(db, "BUSY", "when the script has ended", 10)
    finally:
        server.client().script_kill()
        connection.disconnect()
    assert first_deliveries_in_order(stream.read(110)) == 0


def says_busy(server) -> bool:
    try:
        server.client().ping()
        return False
    except redis.ResponseError as error:
        return "BUSY" in str(error)


def test_a_server_that_loads_its_data(db, make_redis, stream):
    server = make_redis(settings={"save": "3600 1", "appendonly": "no", "key-load-delay": "2000", "loading-process-events-interval-bytes": "1024"})
    pipeline = server.client().pipeline()
    for n in range(2000):
        pipeline.set(f"key{n}", "x" * 100)
    pipeline.execute()
    server.client().save()
    db.redis_sink("redis", server, stream=stream.name)
    stream.server = server
    many(db, 10, 10)
    stream.read(10)
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    server.client().save()
    server.kill()
    server.start(wait=False)
    many(db, 10, 10, 10)
    state_is(db, "circuit open", "LOADING")
    no_attempt_is_spent(db)
    wait_until(server._answers, 60)
    assert all_of(stream.read(20)) == set(range(20))


def test_a_key_that_is_no_stream_delays_its_own_events_only(db, server, stream):
    db.redis_sink("redis", server, stream=stream.name + "-${header.where}", max_attempts="2", retry="10ms")
    server.client().set(f"{stream.name}-taken", "something")
    db.sql("SELECT outbox.enqueue('Order', 'a', 'order.made', jsonb_build_object('n', n), headers => '{\"where\": \"taken\"}') FROM generate_series(1, 50) AS n")
    state_is(db, "degraded", f'stream "{stream.name}-taken" cannot be written: WRONGTYPE')
    assert "rename or delete the key" in db.sink("last_error", "redis")[0]
    db.sql("SELECT outbox.enqueue('Order', 'b', 'order.made', jsonb_build_object('n', n), headers => '{\"where\": \"free\"}') FROM generate_series(1, 50) AS n")
    free, taken = Stream(server, f"{stream.name}-free"), Stream(server, f"{stream.name}-taken")
    assert numbers_by_key(free.read(50)) == {"b": list(range(1, 51))}
    time.sleep(2)  # several tries, each of which would cost an attempt
    assert db.value("SELECT count(*) FROM outbox.events WHERE status = 'PENDING'") == 50, "no attempt is spent"
    server.client().delete(f"{stream.name}-taken")
    assert numbers_by_key(taken.read(50)) == {"a": list(range(1, 51))}
    state_is(db, "idle")
    assert db.value("SELECT count(*) FROM outbox.events") == 0


def test_many_keys_of_a_refused_stream(db, server, stream):
    """They are refused together, and delivered soon after the stream can be written."""
    server.client().set(stream.name, "something")
    db.redis_sink("redis", server, stream=stream.name)
    many(db, 3000, 1000)
    state_is(db, "degraded", "WRONGTYPE")
    server.client().delete(stream.name)
    assert first_deliveries_in_order(stream.read(3000)) == 0
    state_is(db, "idle")


def test_an_entry_that_the_server_refuses_for_its_size(db, server, stream):
    """Its neighbours are delivered, although the server closes the connection."""
    db.redis_sink("redis", server, stream=stream.name)
    server.config(proto_max_bulk_len="1mb")
    try:
        db.sql("BEGIN")
        many(db, 100, 20)
        bad = db.enqueue("Order", "5", "order.large", json.dumps({"n": 1000, "x": "x" * 2_000_000}))
        many(db, 100, 20, 2000)
        db.sql("COMMIT")
        wait_until(lambda: db.pending() == 0, 60, sinks(db))
        entries = stream.read(stream.count())
        assert all_of(entries) == {*range(100), *range(2000, 2100)}
        assert first_deliveries_in_order(entries) == 0, "the server has read nothing after it"
        [(id, error)] = db.sql("SELECT id::text, last_error FROM outbox.events WHERE status = 'FAILED'")
        assert id == bad and "invalid bulk length: raise proto-max-bulk-len" in error
        metrics_show(db, "redis", delivered=200, dead_letters=1)
    finally:
        server.config(proto_max_bulk_len="512mb")


# ---- cost ----------------------------------------------------------------------------------------------------


def test_an_idle_sink_sleeps(db, server, stream):
    db.redis_sink("redis", server, stream=stream.name)
    many(db, 1, 1)
    stream.read(1)
    assert cpu_of(db, 4) < 0.25


def test_a_sink_without_a_server_sleeps(db, server, stream):
    db.redis_sink("redis", server, stream=stream.name, hosts=f"127.0.0.1:{free_port()}")
    many(db, 10, 10)
    state_is(db, "circuit open", "Connection refused: is the server running")
    assert cpu_of(db, 4) < 0.25

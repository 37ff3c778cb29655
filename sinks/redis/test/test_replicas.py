"""Masters, replicas, and what is neither."""

from outbox_rig import wait_until
from outbox_rig.process import Process

from redis_server import RedisServer, Stream
from test_delivery import sinks
from test_failures import all_of, first_deliveries_in_order, many, no_attempt_is_spent, state_is


def in_sync(master: RedisServer, replicas: int = 1):
    return lambda: sum(master.client().info("replication").get(f"slave{n}", {}).get("state") == "online" for n in range(replicas)) == replicas


def test_a_replica_takes_over(db, make_redis, stream):
    master = make_redis()
    replica = make_redis(replica_of=master)
    wait_until(in_sync(master), 30)
    db.redis_sink("redis", master, stream=stream.name, hosts=f"127.0.0.1:{replica.port}, 127.0.0.1:{master.port}", wait_replicas="1")
    stream.server = replica
    many(db, 2000, 50)
    stream.read(2000)
    master.kill()
    many(db, 1000, 50, 2000)
    state_is(db, "circuit open", "is a replica")
    assert "Connection refused" in db.sink("last_error", "redis")[0] and "promote a replica" in db.sink("last_error", "redis")[0]
    no_attempt_is_spent(db)
    db.sql("ALTER SERVER redis OPTIONS (DROP wait_replicas)")
    replica.client().execute_command("REPLICAOF", "NO", "ONE")
    entries = stream.read(3000)
    wait_until(lambda: db.pending() == 0, 30, sinks(db))
    assert all_of(entries) == set(range(3000))
    first_deliveries_in_order(entries)


def test_a_master_that_becomes_a_replica(db, make_redis, stream):
    first, second = make_redis(), make_redis()
    db.redis_sink("redis", first, stream=stream.name, hosts=f"127.0.0.1:{first.port}, 127.0.0.1:{second.port}")
    stream.server = first
    many(db, 100, 10)
    stream.read(100)
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    first.client().execute_command("REPLICAOF", "127.0.0.1", second.port)
    many(db, 100, 10, 100)
    moved = Stream(second, stream.name)
    assert all_of(moved.read(100)) == set(range(100, 200)) and first_deliveries_in_order(moved.entries) == 0
    assert "READONLY" in db.pg.log.read_text()


def test_too_few_replicas_for_wait(db, make_redis, stream):
    """The entries are with the master already, so they are not sent again, but wait for replicas."""
    master = make_redis()
    replica = make_redis(replica_of=master)
    wait_until(in_sync(master), 30)
    db.redis_sink("redis", master, stream=stream.name, wait_replicas="1")
    stream.server = master
    many(db, 100, 10)
    stream.read(100)
    wait_until(lambda: db.pending() == 0, 20, sinks(db))
    replica.stop()
    many(db, 1000, 100, 100)
    state_is(db, "circuit open", "only 0 of 1 replicas have the last entries after 1000 ms")
    no_attempt_is_spent(db)
    assert db.pending() > 0
    replica.start()
    entries = stream.read(1100)
    wait_until(lambda: db.pending() == 0, 60, sinks(db))
    state_is(db, "idle")
    assert stream.count() == 1100 and first_deliveries_in_order(entries) == 0


def test_a_cluster_is_refused(db, make_redis, stream):
    node = make_redis(settings={"cluster-enabled": "yes"})
    db.redis_sink("redis", node, stream=stream.name)
    state_is(db, "circuit open", "is a node of a Redis Cluster: cluster mode is not supported")


def test_a_sentinel_is_no_server(db, stream, make_redis, rig):
    sentinel = RedisServer(*rig._place("sentinel"), settings={})
    config = sentinel.dir / "redis.conf"
    config.write_text(f"port {sentinel.port}\nbind 127.0.0.1\ndir {sentinel.dir}\n")
    sentinel._process = Process(sentinel.name, ["redis-server", str(config), "--sentinel"], sentinel.log)
    rig._add(sentinel, start=False)
    wait_until(sentinel._answers, 30)
    db.redis_sink("redis", sentinel, stream=stream.name)
    state_is(db, "circuit open", "is a Sentinel")

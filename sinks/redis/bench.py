"""make bench: a backlog's way from the table to a stream, beside hiredis alone with pipelines, in turns in one run.

Both add the same number of entries of 300 bytes to the same stream, with at most 2,000 without a reply. Only the ratio counts: the
server, the load and everything else share the machine."""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "test"))

from outbox_rig import Rig, wait_until  # noqa: E402
from outbox_rig.database import Database  # noqa: E402
from outbox_rig.paths import BUILD  # noqa: E402

from redis_server import RedisServer  # noqa: E402

PAYLOAD, WINDOW = 300, 2000
STREAM = "bench"


def alone(program: Path, server: RedisServer, events: int) -> float:
    server.client().delete(STREAM)
    seconds = float(subprocess.run([program, str(server.port), STREAM, str(events), str(WINDOW), str(PAYLOAD)], check=True, stdout=subprocess.PIPE).stdout)
    assert server.client().xlen(STREAM) == events
    return events / seconds


def ours(db: Database, server: RedisServer, events: int) -> float:
    server.client().delete(STREAM)
    db.sql("SELECT outbox.pause('redis')")
    db.sql("SELECT count(outbox.enqueue('Order', n::text, 'order.made', jsonb_build_object('x', repeat('x', %s - 9)))) FROM generate_series(1, %s) AS n", PAYLOAD, events)
    db.sql("VACUUM ANALYZE outbox.events_pending")
    db.sql("CHECKPOINT")
    began = time.monotonic()
    db.sql("SELECT outbox.resume('redis')")
    wait_until(lambda: not db.value("SELECT EXISTS (SELECT FROM outbox.events_pending)"), 600, "the backlog to be delivered")
    seconds = time.monotonic() - began
    assert server.client().xlen(STREAM) == events
    return events / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--appendfsync", default="everysec")
    given = parser.parse_args()
    program = BUILD / "bench" / "redis-append"
    program.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["g++", "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, HERE / "bench/append.cpp", "-lhiredis"], check=True)
    with Rig("bench-redis") as rig:
        pg = rig.postgres(settings={"max_wal_size": "4GB"})
        server = rig._add(RedisServer(*rig._place("redis"), settings={"appendfsync": given.appendfsync}))
        db = Database(pg, "bench")
        db.create()
        db.sql("CREATE EXTENSION outbox_redis")
        db.sql(f"CREATE SERVER redis FOREIGN DATA WRAPPER outbox_redis OPTIONS (hosts '127.0.0.1:{server.port}', stream '{STREAM}', max_in_flight '{WINDOW}')")
        alone(program, server, given.events // 10)  # warms the server up
        rounds = []
        for number in range(1, given.rounds + 1):
            rounds.append((alone(program, server, given.events), ours(db, server, given.events)))
            print(f"round {number}: hiredis alone {rounds[-1][0]:,.0f}/s, outbox {rounds[-1][1]:,.0f}/s, ratio {rounds[-1][1] / rounds[-1][0]:.2f}", flush=True)
        db.disconnect()
        print(f"{given.events:,} events of {PAYLOAD} bytes, appendfsync {given.appendfsync}, {given.rounds} rounds, median: hiredis alone {statistics.median(a for a, _ in rounds):,.0f}/s, "
              f"outbox {statistics.median(o for _, o in rounds):,.0f}/s, ratio {statistics.median(o / a for a, o in rounds):.2f}")


if __name__ == "__main__":
    main()

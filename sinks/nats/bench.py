"""make bench: a backlog's way from the table to a stream in a file, beside libnats alone with asynchronous publishing, in turns in one run.

Both publish the same number of messages of 300 bytes with the same headers to the same subject, with at most 2,000 unacknowledged. Only
the ratio counts: the server, the load and everything else share the machine."""

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

from nats_server import Server  # noqa: E402
from streams import Stream  # noqa: E402

PAYLOAD, WINDOW = 300, 2000
SUBJECT = "bench.Order.order.made"


def alone(program: Path, stream: Stream, events: int) -> float:
    stream.purge()
    seconds = float(subprocess.run([program, str(stream.server.port), SUBJECT, str(events), str(WINDOW), str(PAYLOAD)], check=True, stdout=subprocess.PIPE).stdout)
    assert stream.count() == events
    return events / seconds


def ours(db: Database, stream: Stream, events: int) -> float:
    stream.purge()
    db.sql("SELECT outbox.pause('nats')")
    db.sql("SELECT count(outbox.enqueue('Order', n::text, 'order.made', jsonb_build_object('x', repeat('x', %s - 9)))) FROM generate_series(1, %s) AS n", PAYLOAD, events)
    db.sql("VACUUM ANALYZE outbox.events_pending")
    db.sql("CHECKPOINT")
    began = time.monotonic()
    db.sql("SELECT outbox.resume('nats')")
    wait_until(lambda: not db.value("SELECT EXISTS (SELECT FROM outbox.events_pending)"), 600, "the backlog to be delivered")
    seconds = time.monotonic() - began
    assert stream.count() == events
    return events / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    program = BUILD / "bench" / "nats-publish"
    program.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["g++", "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, HERE / "bench/publish.cpp", "-lnats"], check=True)
    with Rig("bench-nats") as rig:
        pg = rig.postgres(settings={"max_wal_size": "4GB"})
        server = rig._add(Server(*rig._place("nats")))
        db = Database(pg, "bench")
        db.create()
        db.sql("CREATE EXTENSION outbox_nats")
        stream = Stream(server, "bench")
        db.sql(f"CREATE SERVER nats FOREIGN DATA WRAPPER outbox_nats OPTIONS (hosts '127.0.0.1:{server.port}', subject 'bench.${{aggregate_type}}.${{event_type}}', max_in_flight '{WINDOW}')")
        alone(program, stream, given.events // 10)  # warms the server up
        rounds = []
        for number in range(1, given.rounds + 1):
            rounds.append((alone(program, stream, given.events), ours(db, stream, given.events)))
            print(f"round {number}: libnats alone {rounds[-1][0]:,.0f}/s, outbox {rounds[-1][1]:,.0f}/s, ratio {rounds[-1][1] / rounds[-1][0]:.2f}", flush=True)
        db.disconnect()
        print(f"{given.events:,} events of {PAYLOAD} bytes, {given.rounds} rounds, median: libnats alone {statistics.median(a for a, _ in rounds):,.0f}/s, "
              f"outbox {statistics.median(o for _, o in rounds):,.0f}/s, ratio {statistics.median(o / a for a, o in rounds):.2f}")


if __name__ == "__main__":
    main()

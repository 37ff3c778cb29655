"""make bench: a backlog's way from the table to a durable queue, beside librabbitmq alone with confirms, in turns in one run.

Both publish the same number of persistent messages of 300 bytes to the same exchange, with at most 2,000 unconfirmed. Only the
ratio counts: the broker, the load and everything else share the machine."""

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

from broker import Broker  # noqa: E402

PAYLOAD, WINDOW = 300, 2000
EXCHANGE = "bench"


def purge(broker: Broker) -> None:
    channel = broker.channel()
    channel.queue_delete(EXCHANGE)
    channel.exchange_declare(EXCHANGE, "topic", durable=True)
    channel.queue_declare(EXCHANGE, durable=True)
    channel.queue_bind(EXCHANGE, EXCHANGE, "#")
    channel.connection.close()


def stored(broker: Broker) -> int:
    channel = broker.channel()
    try:
        return channel.queue_declare(EXCHANGE, passive=True).method.message_count
    finally:
        channel.connection.close()


def alone(program: Path, broker: Broker, events: int) -> float:
    purge(broker)
    seconds = float(subprocess.run([program, str(broker.port), EXCHANGE, str(events), str(WINDOW), str(PAYLOAD)], check=True, stdout=subprocess.PIPE).stdout)
    assert stored(broker) == events
    return events / seconds


def ours(db: Database, broker: Broker, events: int) -> float:
    purge(broker)
    db.sql("SELECT outbox.pause('rabbit')")
    db.sql("SELECT count(outbox.enqueue('Order', n::text, 'order.made', jsonb_build_object('x', repeat('x', %s - 9)))) FROM generate_series(1, %s) AS n", PAYLOAD, events)
    db.sql("VACUUM ANALYZE outbox.events_pending")
    db.sql("CHECKPOINT")
    began = time.monotonic()
    db.sql("SELECT outbox.resume('rabbit')")
    wait_until(lambda: not db.value("SELECT EXISTS (SELECT FROM outbox.events_pending)"), 600, "the backlog to be delivered")
    seconds = time.monotonic() - began
    assert stored(broker) == events
    return events / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    program = BUILD / "bench" / "rabbitmq-publish"
    program.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["g++", "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, HERE / "bench/publish.cpp", "-lrabbitmq"], check=True)
    with Rig("bench-rabbitmq") as rig:
        pg = rig.postgres(settings={"max_wal_size": "4GB"})
        broker = rig._add(Broker(*rig._place("rabbitmq")))
        db = Database(pg, "bench")
        db.create()
        db.sql("CREATE EXTENSION outbox_rabbitmq")
        purge(broker)
        db.sql(f"CREATE SERVER rabbit FOREIGN DATA WRAPPER outbox_rabbitmq OPTIONS (hosts '127.0.0.1:{broker.port}', exchange '{EXCHANGE}', max_in_flight '{WINDOW}')")
        alone(program, broker, given.events // 10)  # warms the broker up
        rounds = []
        for number in range(1, given.rounds + 1):
            rounds.append((alone(program, broker, given.events), ours(db, broker, given.events)))
            print(f"round {number}: librabbitmq alone {rounds[-1][0]:,.0f}/s, outbox {rounds[-1][1]:,.0f}/s, ratio {rounds[-1][1] / rounds[-1][0]:.2f}", flush=True)
        db.disconnect()
        print(f"{given.events:,} events of {PAYLOAD} bytes, {given.rounds} rounds, median: librabbitmq alone {statistics.median(a for a, _ in rounds):,.0f}/s, "
              f"outbox {statistics.median(o for _, o in rounds):,.0f}/s, ratio {statistics.median(o / a for a, o in rounds):.2f} (aim: 0.5)")


if __name__ == "__main__":
    main()

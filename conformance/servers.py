"""Starts what the relays of this folder need, a PostgreSQL with outbox, Kafka and Debezium, and examines all of them."""

import argparse
import os
import sys

import late_commit
from outbox_rig import Rig
from relays import last_id, last_xact, outbox, poller

PATIENCE_S = 10


def examine(relay, dsn: str, found: dict) -> None:
    name = relay.__doc__.partition(":")[0]
    print(f"{name} ...", flush=True)
    found[name] = late_commit.examine(relay.Relay, dsn, PATIENCE_S)


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance/run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without Kafka and Debezium")
    quick = parser.parse_args().quick
    found: dict = {}
    with Rig("conformance") as rig:
        print("starting a private PostgreSQL ...", flush=True)
        pg = rig.postgres(settings={"wal_level": "logical"}, tcp=True)
        for relay in (outbox, poller, last_id, last_xact):
            examine(relay, pg.dsn(), found)
        if not quick:
            from relays import debezium  # needs confluent_kafka

            print("starting Kafka and Debezium ...", flush=True)
            kafka = rig.kafka(jit=False)
            connect = rig.debezium(pg=pg, dbname="debezium", kafka=kafka, jit=False)
            connect.configure()
            os.environ["KAFKA"] = kafka.bootstrap
            examine(debezium, pg.dsn("debezium"), found)
    print("\n" + late_commit.table(found), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())

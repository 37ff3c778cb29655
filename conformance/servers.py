"""Starts what the relays of this folder need, a PostgreSQL with outbox, Kafka and Debezium, and examines all of them.
Exits with 1 if outbox loses an event, or if a relay that must lose one does not."""

import argparse
import os
import sys

import late_commit
from outbox_rig import Rig
from relays import last_id, last_xact, outbox, poller

PATIENCE_S = 10
PATIENCE_WITH_OURS_S = 60  # on a busy machine what is late is not lost


def name(relay) -> str:
    return relay.__doc__.partition(":")[0]


def examine(relay, dsn: str, found: dict) -> None:
    print(f"{name(relay)} ...", flush=True)
    found[name(relay)] = late_commit.examine(relay.Relay, dsn, PATIENCE_WITH_OURS_S if relay is outbox else PATIENCE_S)


def wrong(found: dict) -> list[str]:
    """What the table must not show."""
    faults = [f"outbox: {trial}: {outcome}" for trial, outcome in found[name(outbox)].items() if outcome != late_commit.Outcome()]
    if found[name(last_id)]["commits last"].lost != 1:
        faults.append(f"{name(last_id)} loses the event that commits last, and this was not found")
    return faults


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
    faults = wrong(found)
    print("\n" + late_commit.table(found) + "".join(f"{fault}\n" for fault in faults), end="")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())

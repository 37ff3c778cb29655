"""Connections that a broker closes because they were idle, or because their authentication has ended, are no outage."""

import re
from pathlib import Path

import pytest
from outbox_rig import wait_until

pytestmark = [pytest.mark.librdkafka, pytest.mark.slow]  # a broker of its own


def worker(db) -> int:
    return db.value("SELECT pid FROM pg_stat_activity WHERE backend_type = 'outbox worker' AND datname = current_database()")


def connections(pid: int, port: int) -> set[int]:
    """The local ports of this process's connections to that port."""
    own = {match[1] for link in Path(f"/proc/{pid}/fd").iterdir() if (match := re.match(r"socket:\[(\d+)\]", str(link.readlink())))}
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].split(":")[1], 16) for row in rows if row[3] == "01" and int(row[2].split(":")[1], 16) == port and row[9] in own}


def test_a_closed_idle_connection_is_no_outage(db, pg, rig, aggregate):
    with rig.kafka(partitions=2, jit=False, properties={"connections.max.idle.ms": "4000"}) as broker:
        db.sql(f"CREATE SERVER k FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '{broker.bootstrap}')")
        db.enqueue(aggregate, "1")
        wait_until(lambda: db.pending() == 0, 30, "delivery")
        pid, start, states = worker(db), pg.log.stat().st_size, set()

        def is_replaced(before: set[int]) -> bool:
            states.update(row[0] for row in db.sql("SELECT state FROM outbox.sinks"))
            return not connections(pid, broker.port) & before

        for number in range(3):
            before = wait_until(lambda: connections(pid, broker.port), 30, "a connection")
            wait_until(lambda: is_replaced(before), 60, "the end of the connections")
            db.enqueue(aggregate, str(number))
            wait_until(lambda: db.pending() == 0, 30, "delivery after the pause")
        assert states <= {"idle", "delivering"}
        assert "circuit opened" not in pg.logged(start)
        broker.kill()
        db.enqueue(aggregate, "1")
        wait_until(lambda: db.value("SELECT state FROM outbox.sinks") == "circuit open", 30, "the outage")
        broker.start()
        wait_until(lambda: db.pending() == 0, 60, "delivery after the outage")

"""Each fsync takes seconds: deliveries take as long, the doctor and outbox.sinks say what the worker waits for, and every event comes once and in order."""

import tempfile
from pathlib import Path

from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.preload import compiled
from outbox_rig.receiver import SECRET


def test_each_fsync_takes_seconds(rig, receiver):
    slow = Path(tempfile.mkdtemp(prefix="outbox-")) / "ms"
    slow.parent.chmod(0o755)
    pg = rig.postgres(settings={"outbox.poll_interval": "1s"}, env={"LD_PRELOAD": str(compiled(Path(__file__).with_name("slow_sync.c"))), "SLOW_SYNC": str(slow)})
    db = Database(pg, "slow").create()
    db.webhook_sink("crm", receiver, SECRET)
    db.send("a", 0)
    wait_until(lambda: receiver.numbers("a") == [0], 20, "a first event")
    assert db.doctor("worker")[0] == "ok"
    slow.write_text("3000")
    with db.connect(options="-c synchronous_commit=off") as session:
        for n in range(1, 10):
            session.execute("SELECT outbox.enqueue('Order', 'a', 'e', jsonb_build_object('key', 'a', 'n', %s::int))", [n])
        wait_until(lambda: db.state("crm") == "waiting for the disk", 30, lambda: f"the state, not {db.state('crm')}", 0.05)
        status, detail, hint = wait_until(lambda: (row := db.doctor("worker")) and row[0] != "ok" and row, 30, "the doctor", 0.05)
        assert status == "warning" and "waited for the disk for more than a second (WAL" in detail and "pg_test_fsync" in hint
    wait_until(lambda: len(receiver.accepted()) == 10, 60, "the events, at the pace of the disk")
    slow.unlink()
    wait_until(lambda: db.pending() == 0 and db.state("crm") == "idle", 30, "a healthy sink")
    assert db.doctor("worker")[0] == "ok"
    assert receiver.numbers("a") == list(range(10)), "each once, in order"

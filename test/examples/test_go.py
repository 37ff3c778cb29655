"""The rows that the Go example's package outbox inserts, in each of its ways."""

import os
import subprocess
import uuid

from outbox_rig.paths import ROOT


def test_every_way_to_insert(db):
    db.sql("DO $$ BEGIN CREATE ROLE app LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    db.sql("GRANT USAGE ON SCHEMA outbox TO app")
    db.sql("GRANT INSERT, SELECT (id) ON outbox.events TO app")
    url = f"postgresql:///{db.name}?host={db.pg.host}&port={db.pg.port}&user=app"
    done = subprocess.run(["go", "test", "-count=1", "-v", "./outbox"], cwd=ROOT / "examples" / "go-pgx", capture_output=True, text=True,
                          env=os.environ | {"DATABASE_URL": url}, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    returned = [uuid.UUID(line.split()[-1]) for line in done.stdout.splitlines() if " returned " in line]

    rows = db.sql("SELECT id, event_type, payload, headers FROM outbox.events ORDER BY position")
    full = {"text": "Ünïcode ☃ \\n \" '", "total": "12.50"}, {"tenant": "7"}
    assert [row[1:] for row in rows] == [("one", *full), ("batch", *full), ("batch", *full), ("tombstone", None, None),
                                         ("copy", *full), ("copy", *full), ("tombstone", None, None)]
    assert [id for id, *_ in rows[:4]] == returned
    assert {id.version for id, *_ in rows} == {7}

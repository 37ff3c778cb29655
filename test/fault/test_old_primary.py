"""An old primary that was frozen while its asynchronous standby was promoted, and delivers what it had when it is thawed: a consumer that looks at the
timeline drops it all."""

import os
import re
import shutil
import signal

from outbox_rig import ROOT, wait_until
from outbox_rig.asleep import stop_asleep
from outbox_rig.database import Database
from outbox_rig.postgres import stopped_family
from outbox_rig.receiver import SECRET

REPLICATED, ONLY_THERE = 20, 5


def consumer_of_the_page(db: Database) -> None:
    chapter = (ROOT / "docs/consuming.md").read_text().partition("## Two primaries")[2].partition("\n## ")[0]
    [statements] = re.findall(r"```sql\n(.*?)\nSELECT is_of_newest_primary", chapter, re.DOTALL)
    db.sql(statements)
    db.sql("CREATE EXTENSION outbox_inbox; CREATE TABLE work (event_id uuid)")


def consume_one(db: Database, event: str, timeline: str) -> None:
    with db.connect(autocommit=False) as session:
        if session.execute("SELECT is_of_newest_primary('shop', %s::bigint) AND outbox_inbox.mark_processed(%s, 'work')", [timeline, event]).fetchone()[0]:
            session.execute("INSERT INTO work VALUES (%s)", [event])
        session.commit()


def timeline(record) -> str:
    return dict(record.headers)["timeline"].decode()


def worked(db: Database) -> list[str]:
    return sorted(str(event) for event, in db.sql("SELECT event_id FROM work"))


def test_a_consumer_drops_what_an_old_primary_delivers(rig, kafka, consume, aggregate, receiver):
    old = rig.postgres(settings={"outbox.poll_interval": "1s"})
    new = rig.postgres(standby_of=old)
    db = Database(old, "shop").create()
    inbox = Database(rig.postgres(), "inbox").create()
    consumer_of_the_page(inbox)
    db.kafka_sink("main", kafka, additional_placement="timeline:header")
    db.webhook_sink("crm", receiver, SECRET, headers='{"Outbox-Timeline": "${timeline}"}')
    consumer = consume(f"outbox.event.{aggregate}")
    first = db.enqueue(aggregate, "k")
    [record] = consumer.take(1)
    assert (record.id, timeline(record)) == (first, "1")
    consume_one(inbox, first, timeline(record))

    old.set("outbox.enabled", "off")  # the frozen server is to have something left
    wait_until(lambda: not db.sql("SELECT FROM outbox.workers WHERE database = current_database()"), 20, "the worker to leave")
    both = [db.enqueue(aggregate, "k") for _ in range(REPLICATED)]
    there = Database(new, "shop")
    wait_until(lambda: there.value("SELECT count(*) FROM outbox.events WHERE id = ANY (%s::uuid[])", both) == 2 * REPLICATED, 20, "the standby to have them")
    stop_asleep(db, "backend_type = 'walsender'")
    phantoms = [db.enqueue(aggregate, "k") for _ in range(ONLY_THERE)]
    db.disconnect()
    there.disconnect()
    family = [*stopped_family(old.pid), old.pid]
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    new.promote()
    records = consumer.take(REPLICATED, 60)
    assert [record.id for record in records] == both and {timeline(record) for record in records} == {"2"}
    wait_until(lambda: len(receiver.accepted()) == 1 + REPLICATED, 30, "the webhooks of the new primary")
    assert {d.headers["outbox-timeline"] for d in receiver.accepted()[1:]} == {"2"}
    with there.connect(autocommit=False) as session:
        made = session.execute("SELECT outbox.enqueue('Preview', 'k', 'e', '{}', sink => 'crm')").fetchone()
        assert session.execute("SELECT value FROM outbox.preview(%s, 'crm') WHERE lower(name) = 'outbox-timeline'", made).fetchone() == ("2",)
        session.rollback()
    for record in records:
        consume_one(inbox, record.id, timeline(record))

    for pid in family:
        os.kill(pid, signal.SIGCONT)
    old.set("outbox.enabled", "on")
    late = consumer.take(REPLICATED + ONLY_THERE, 60)
    assert [record.id for record in late] == both + phantoms and {timeline(record) for record in late} == {"1"}
    for record in late:
        consume_one(inbox, record.id, timeline(record))
    assert worked(inbox) == sorted([first, *both]), "each event of the new primary once, and none that it does not have"
    assert db.doctor("timeline")[:2] == ("ok", "The WAL of this server is on timeline 1."), "it cannot know"

    history = old.data / "pg_wal" / "00000002.history"
    shutil.copy(new.data / "pg_wal" / "00000002.history", history)  # as an archive brings it
    shutil.chown(history, (old.data / "PG_VERSION").owner())
    status, detail, hint = db.doctor("timeline")
    assert status == "error" and "where timeline 2 began" in detail and "may not have at all" in detail and "pg_rewind" in hint
    assert there.doctor("timeline")[:2] == ("ok", "The WAL of this server is on timeline 2.")
    history.unlink()
    old.set("primary_conninfo", new.dsn())
    db.disconnect()
    old.stop()
    (old.data / "standby.signal").touch()
    old.start()
    wait_until(lambda: db.doctor("timeline")[0] == "error", 30, "the standby to see that it was left behind")
    assert "cannot follow" in db.doctor("timeline")[1]

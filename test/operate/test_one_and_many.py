"""Singular and plural agree in the texts of outbox.doctor(), errors, warnings and the log."""

import re

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.paths import ROOT
from outbox_rig.receiver import status

NOUNS = "events|attempts|dead letters|days|workers|sinks|topics|keys|times|rows|deliveries|databases|slots|partitions|brokers"
WRONG = re.compile(rf"\b1 (?:(?:failed|more|waiting|due|other) )?(?:{NOUNS})\b|\b1 (?:wait|are|have)\b")


def test_one_of_each(db, rig, pg):
    with rig.receiver(mode=status(400)) as refuses, rig.receiver(mode=status(503)) as fails:
        db.webhook_sink("dead", refuses, events="dead", max_attempts="1")
        db.webhook_sink("held", refuses, events="held", max_attempts="1", on_dead_letter="block")
        db.webhook_sink("failing", fails, events="failing", retry="1h")
        db.webhook_sink("paused", refuses, events="paused")
        db.webhook_sink("disabled", refuses, events="disabled")
        db.sql("SELECT outbox.pause('paused')")
        db.sql("INSERT INTO outbox.stopped_sinks (sink, state, reason) VALUES ('disabled', 'disabled', '410')")
        events = {kind: db.enqueue("Order", "1", kind) for kind in ("dead", "held", "held", "failing", "failing", "paused", "disabled", "none")}
        behind = "SELECT FROM outbox.events_pending WHERE sink = 'held' AND blocked_by IS NOT NULL"
        wait_until(lambda: db.sink("dead", "dead") == (1,) and db.sql(behind) and db.sql("SELECT FROM outbox.events_pending WHERE attempts > 0"), 20,
                   lambda: str(db.sql("SELECT * FROM outbox.sinks")))
        said = {check: detail for check, _, detail, _ in db.complaints("0 seconds")}
        assert "1 event waits because no sink takes it" in said["routes"] and "dead letters" in said
        assert "1 waits behind" in said["sink held"] and "after 1 attempt," in said["sink failing"] and "1 event waits" in said["sink paused"] + said["sink disabled"]
        texts = list(said.values())
        with db.connect() as session:
            notices: list[str] = []
            session.add_notice_handler(lambda notice: notices.append(f"{notice.message_primary} {notice.message_detail}"))
            first = db.value("SELECT id FROM outbox.events_pending WHERE attempts = 1")
            session.execute("SELECT outbox.redrive(%s)", [first])
            for event in (first, events["dead"]):
                with pytest.raises(psycopg.Error) as error:
                    session.execute(f"CALL outbox.wait_delivered('{event}', '10 ms')")
                notices.append(f"{error.value.diag.message_primary} {error.value.diag.message_detail}")
        assert [re.search(r"1 failed attempt\b", text) is not None for text in notices] == [True] * 3, notices
        log = [line for line in pg.log.read_text(errors="replace").splitlines() if f'"{"dead"}"' in line and "dead letter after" in line]
        assert log and "after 1 attempt:" in log[-1]
        assert [text for text in [*texts, *notices, log[-1]] if WRONG.search(text)] == []


def test_no_message_counts_with_a_fixed_plural():
    """Where a number is filled in, there is another text for 1. Numbers that are never 1 are listed here."""
    counted = re.compile(rf"%(?:\d\$)?(?:s|d|ld|u|zu|lld) (?:(?:failed|more|waiting) )?(?:{NOUNS})\b")
    never_one = ("of %s workers", "at most %d databases", "counters of %d sinks", "at least", "%d times, %s", "%s times in a row")
    found = []
    for path in [*(ROOT / "src/extension").glob("*.sql"), *(ROOT / "src/server").rglob("*.cpp")]:
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines, 1):
            told_apart = "counted(" in line or "_plural(" in "".join(lines[max(0, number - 3):number])
            if counted.search(line) and not told_apart and not any(each in line for each in never_one):
                found.append(f"{path.name}:{number}: {line.strip()}")
    assert found == []

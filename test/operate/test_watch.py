"""The statement that an operator pastes into psql to see everything on one screen."""

import re
import signal
import subprocess
from pathlib import Path

from outbox_rig import wait_until
from outbox_rig.paths import ROOT, pg_config
from outbox_rig.receiver import OK, SECRET, status

COLUMNS = 120
PAGE = ROOT / "docs" / "monitoring.md"


def the_line() -> str:
    [line] = [line for line in PAGE.read_text().splitlines() if line.startswith("SELECT ") and "\\watch" in line]
    return line


def screens(output: Path) -> list[list[str]]:
    """The screens that psql has printed so far, each with a title; the last one may be incomplete."""
    return [screen.splitlines() for screen in re.split(r"^(?=.*\(every \d+s?\)$)", output.read_text(), flags=re.MULTILINE) if screen.strip()]


def rows_of(db) -> list[tuple]:
    return db.sql(the_line().replace("\\watch 2", ""))


def test_events_without_a_sink_have_a_row(db):
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER crm FOREIGN DATA WRAPPER outbox_manual OPTIONS (events 'order.*')")
    assert [row[0] for row in rows_of(db)] == ["crm"]
    db.sql("SELECT outbox.enqueue('Order', n::text, 'refund.created', '{}') FROM generate_series(1, 3) AS n")
    assert [row[:3] for row in rows_of(db)] == [("crm", "idle", "0"), ("(none)", "no sink takes", "3")]
    with db.role("operator") as operator, db.connect() as session:
        db.sql(f"GRANT pg_monitor TO {operator}; GRANT USAGE ON SCHEMA outbox TO {operator}")
        session.execute(f"SET ROLE {operator}")
        assert len(session.execute(the_line().replace("\\watch 2", "")).fetchall()) == 2


def test_an_error_of_hours_ago_has_its_age(db, receiver):
    db.webhook_sink("crm", receiver, SECRET, retry="1d")
    receiver.mode = status(422)
    db.enqueue("Order", "1")
    wait_until(lambda: [row[-1] for row in rows_of(db)] == ["HTTP 422"], 20, lambda: str(rows_of(db)))
    wait_until(lambda: db.value("SELECT attempts FROM outbox.events") == 1, 20, "recording")
    db.sql("SELECT outbox.reset_stats('crm')")
    db.sql("UPDATE outbox.events SET last_attempt_at = now() - interval '3 hours 7 minutes'")
    assert [row[-1] for row in rows_of(db)] == ["03:07:00 ago: HTTP 422"]


def test_one_screen(db, receiver, tmp_path):
    """With sinks that deliver, fail and cannot be reached, and with long names and errors."""
    long_name = "a_sink_whose_name_is_as_long_as_names_may_be_in_postgresql_63_b"
    db.webhook_sink("crm", receiver, SECRET, events="crm")
    db.webhook_sink(long_name, receiver, SECRET, events="bad", retry="1h", max_attempts="1")
    db.webhook_sink("gone", "http://127.0.0.1:9/", SECRET, events="gone")
    receiver.mode = lambda d: status(422, body=b"no such customer, and so many\nwords " * 20) if d.json()["type"] == "bad" else OK
    output = tmp_path / "output"
    with open(output, "w") as out:
        psql = subprocess.Popen([pg_config("bindir") / "psql", "-X", "-h", db.pg.host, "-p", str(db.pg.port), "-U", "postgres", db.name],
                                stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, text=True)
        try:
            psql.stdin.write(the_line() + "\n")
            psql.stdin.flush()
            for event_type in ("bad", "gone"):
                db.enqueue("Order", "1", event_type)
            # `\watch` shows a screen every two seconds.
            def shown() -> list[str] | None:
                db.enqueue("Order", "1", "crm")
                whole = screens(output)[:-1]
                last = "\n".join(whole[-1]) if whole else ""
                dead = re.search(r"^ *a_sink_\w+ *\|[^|]*\| *0 *\| *1 *\|.*HTTP 422", last, re.MULTILINE)  # the row disappears when the error appears
                return whole[-1] if dead and "circuit open" in last and re.search(r"^ *crm *\|(?:[^|]*\|){4} *[1-9]\d* *\|", last, re.MULTILINE) else None

            screen = wait_until(shown, 30, lambda: f"all of it on a screen: {output.read_text()}", interval=0.02)
        finally:
            psql.send_signal(signal.SIGINT)
            psql.kill()
            psql.wait()
    assert max(map(len, screen)) <= COLUMNS, screen
    assert "ERROR" not in output.read_text()
    header = next(line for line in screen if line.lstrip().startswith("sink"))
    assert [name.strip() for name in header.split("|")] == ["sink", "state", "pending", "dead", "oldest", "rate", "error"]
    rows = {(cells := [cell.strip() for cell in line.split("|")])[0]: cells for line in screen if line.count("|") == 6 and line is not header}
    assert set(rows) == {"crm", "gone", long_name[:16]}
    assert rows["gone"][1] == "circuit open" and rows["gone"][2] == "1" and re.fullmatch(r"\d\d:\d\d:\d\d", rows["gone"][4]) and rows["gone"][6]
    assert rows[long_name[:16]][3] == "1" and rows[long_name[:16]][6].startswith("HTTP 422")
    assert int(rows["crm"][5]) > 0

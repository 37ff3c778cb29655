"""Every statement of docs/operations.md and of the alerts, run as the role that the pages name."""

import re

import psycopg
import pytest
import yaml
from outbox_rig import wait_until
from outbox_rig.paths import ROOT
from outbox_rig.receiver import SECRET, status

RULES = yaml.safe_load((ROOT / "docker/prometheus/outbox.rules.yml").read_text())["groups"][0]["rules"]
PAGE = (ROOT / "docs/operations.md").read_text()
SECURITY = re.findall(r"^```sql\n(.*?)^```$", (ROOT / "docs/security.md").read_text(), re.MULTILINE | re.DOTALL)
MONITORING = re.findall(r"^```sql\n(.*?)^```$", (ROOT / "docs/monitoring.md").read_text(), re.MULTILINE | re.DOTALL)
VERB = r"(?:SELECT|UPDATE|DELETE|INSERT|CALL)\b"


def statements(sql: str) -> list[str]:
    """Removes what only psql understands. A comment after a statement stays with it: it may name the role."""
    sql = re.sub(r"\\watch.*", ";", sql)
    return [found.strip() for found in re.findall(rf"{VERB}[^;]*;(?: *--[^\n]*)?", sql)]


def printed() -> list[str]:
    """All statements of the page, also those with a part to fill in."""
    blocks = "".join(text for kind, text in re.findall(r"^```(sql|text)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
    prose = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    inline = [code + (";" if owner == "" else "; -- (owner)") for code, owner in re.findall(rf"`({VERB}[^`]*)`( \(owner\))?", prose)]
    return statements(blocks) + inline


def of_page() -> list[str]:
    return [one for one in printed() if "…" not in one]


def of_alerts() -> list[str]:
    texts = [re.sub(r"\{\{ \$labels\.sink \}\}", "crm", rule["annotations"]["description"]) for rule in RULES]
    return [found + (" -- (owner)" if "As the owner of outbox" in text else "") for text in texts for found in re.findall(rf"{VERB}[^;]*;", text)]


@pytest.fixture
def operator(db, receiver):
    """With the grants of security.md; there is a dead letter, a paused sink and a sink without events."""
    receiver.mode = status(400)
    db.webhook_sink("crm", receiver, SECRET, max_attempts="1", events="order.*")
    db.webhook_sink("other", receiver, SECRET, max_attempts="1", events="other.*")
    db.sql("CREATE ROLE operator LOGIN")
    for block in SECURITY:
        if block.startswith(("GRANT pg_monitor", "GRANT EXECUTE ON FUNCTION outbox.probe")):
            db.sql(block)
    db.enqueue("Order", "1")
    wait_until(lambda: db.sink("dead") == (1,), 10, "a dead letter")
    db.enqueue("Order", "1", "unknown")
    db.sql("SELECT outbox.pause('other')")
    with db.connect(user="operator", autocommit=False) as session:
        yield session
        session.rollback()
    db.sql("DROP OWNED BY operator CASCADE")
    db.sql("DROP ROLE operator")


def run(session: psycopg.Connection, statement: str) -> str | None:
    """The error, or None."""
    try:
        session.execute(re.sub(r" *--.*$", "", statement), prepare=False)
    except psycopg.Error as error:
        session.rollback()
        if error.sqlstate == "55P03":  # run_maintenance() would wait for a worker that creates the same day
            return run(session, statement)
        return f"{error.sqlstate} {error}"
    session.rollback()
    return None


def test_the_operator_runs_what_the_pages_say(db, operator):
    found = of_page() + of_alerts()
    assert len(found) > 40 and any("stopped_sinks" in one for one in found) and any("run_maintenance()" in one for one in found)
    of_owner = [one for one in found if re.search(r"-- \(owner\)", one)]
    assert len(of_owner) >= 4
    assert [(one, error) for one in found if one not in of_owner and (error := run(operator, one))] == []
    for one in of_owner:
        assert (run(operator, one) or "").startswith("42501"), f"{one}: the operator may"
    with db.connect(autocommit=False) as owner:
        assert [(one, error) for one in of_owner if (error := run(owner, one))] == []


def test_no_statement_changes_more_than_it_says():
    """A reader pastes them into a server that is in trouble."""
    changes = [one for one in printed() if re.match("UPDATE|DELETE", one)]
    assert len(changes) >= 4 and [one for one in changes if not re.search(r" WHERE \w+ =", one)] == []
    assert [one for one in changes if "(owner)" not in one and not re.match(r"UPDATE outbox\.events SET available_at = [^,]* WHERE", one)] == []


def test_what_the_exporter_asks_for(db, operator):
    """The role of docs/monitoring.md runs that page's statements."""
    [role] = [block for block in MONITORING if block.startswith("CREATE ROLE exporter")]
    db.sql(role)
    try:
        with db.connect(user="exporter", autocommit=False) as exporter:
            asked = [one for block in MONITORING if block != role for one in statements(block)]
            assert len(asked) >= 3 and [(one, error) for one in asked if (error := run(exporter, one))] == []
            assert run(exporter, "SELECT * FROM outbox.stopped_sinks") is None
            for more in ("SELECT outbox.run_maintenance()", "SELECT outbox.enqueue('Sink', 'crm', 'outbox.sink.failing', '{}')"):
                assert run(exporter, more).startswith("42501")
    finally:
        db.sql("DROP ROLE exporter")

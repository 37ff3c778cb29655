"""What a worker logs about its rounds at debug1 and about its decisions at debug2, and what it never logs."""

import re

import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import OK, SECRET, status


class Decisions:
    """The lines that the workers of one server log from now on."""

    def __init__(self, pg):
        self._pg, self._start = pg, pg.log.stat().st_size

    def text(self) -> str:
        return self._pg.logged(self._start)

    def rounds(self) -> list[dict[str, str]]:
        """Each round with its counts by name, and the reason why it waits."""
        return [dict((name, number) for name, number in re.findall(r"(\w+(?: \w+)?) (\d+)", line)) | {"waits for": line.partition(" ms for ")[2]}
                for line in re.findall(r"DEBUG:  outbox round: (.*)", self.text())]

    def count(self, name: str) -> int:
        return sum(int(each[name]) for each in self.rounds())

    def of(self, position: int) -> list[str]:
        return re.findall(rf"DEBUG:  outbox event {position} of sink (.*)", self.text())


@pytest.fixture
def decisions(pg, setting):
    """decisions(level): the lines from now on, at this level."""
    def at(level: str) -> Decisions:
        setting("log_min_messages", level)
        return Decisions(pg)
    return at


def positions(db, *keys: str) -> list[int]:
    """Enqueues an event of each key in one transaction. Returns their positions."""
    with db.connect() as connection, connection.transaction():
        for key in keys:
            connection.execute("SELECT outbox.enqueue('Order', %s, 'order.created', '{\"card\": \"sesame-4711\"}', headers => '{\"token\": \"sesame-0815\"}')", [key])
        return [row[0] for row in connection.execute("SELECT position FROM outbox.events WHERE xact = pg_current_xact_id() ORDER BY position")]


def test_a_round_is_one_line(db, receiver, decisions):
    log = decisions("debug1")
    db.webhook_sink("crm", receiver, SECRET)
    positions(db, "a", "b", "c")
    wait_until(lambda: db.pending() == 0, 10, "the events to leave")
    wait_until(lambda: log.count("delivered") == 3, 10, log.rounds)
    assert log.count("claimed") == 3 and log.count("recorded") == 3 and log.count("failed") == log.count("dead") == 0
    wait_until(lambda: log.rounds()[-1]["waits for"] == "a commit", 10, log.rounds)
    assert "outcomes" in [each["waits for"] for each in log.rounds()]
    assert "outbox event" not in log.text()


def test_each_decision_is_told_with_its_reason(db, receiver, decisions):
    log = decisions("debug2")
    receiver.mode = lambda delivery: status(400) if b'"bad"' in delivery.body else OK
    db.webhook_sink("crm", receiver, SECRET, retry="10min*5", body='{"key": ${aggregate_id}}')
    head, behind, other = positions(db, "bad", "bad", "good")
    wait_until(lambda: db.sql("SELECT position FROM outbox.events WHERE blocked_by = %s", head) == [(behind,)], 10, "the second one to wait")
    wait_until(lambda: log.of(other)[-1:] == ['"crm": delivered'], 10, lambda: log.of(other))
    assert '"crm": claimed' in log.of(head) and '"crm": failed' in log.of(head)
    assert f'"crm": blocked by event {head}: its key is blocked' in log.of(behind), log.of(behind)
    (later,) = positions(db, "bad")
    wait_until(lambda: any("blocked by" in line for line in log.of(later)), 10, lambda: log.of(later))

    db.sql("SELECT outbox.enqueue('Order', 'x', 'order.created', '{}', available_at => now() + '1h')")
    scheduled = db.value("SELECT max(position) FROM outbox.events")
    wait_until(lambda: '"crm": passed: it is not due' in log.of(scheduled), 10, lambda: log.of(scheduled))


def test_what_is_recorded_is_told(db, receiver, decisions):
    log = decisions("debug2")
    receiver.mode = status(400)
    db.webhook_sink("crm", receiver, SECRET, max_attempts="1")
    (dead,) = positions(db, "a")
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events_failed") == 1, 10, "the dead letter")
    wait_until(lambda: '"crm": dead' in log.of(dead), 10, lambda: log.of(dead))
    wait_until(lambda: log.count("dead") == 1, 10, log.rounds)


def test_neither_payload_nor_header_nor_key_is_told(db, receiver, decisions):
    """Checks all lines at debug2, also PostgreSQL's own of the worker."""
    log = decisions("debug2")
    receiver.mode = lambda delivery: status(500, body=b"not sesame-4711!")
    db.webhook_sink("crm", receiver, SECRET, retry="100ms*2", max_attempts="2", headers='{"X-Tenant": "sesame"}')
    (position,) = positions(db, "customer-sesame-1")
    wait_until(lambda: '"crm": dead' in log.of(position), 10, lambda: log.of(position))
    told = [line for line in log.text().splitlines() if "DEBUG:  outbox" in line]
    assert len(told) > 4 and [line for line in told if "sesame" in line or SECRET in line] == []


def test_nothing_is_told_by_default(pg, db, receiver):
    log = Decisions(pg)
    db.webhook_sink("crm", receiver, SECRET)
    positions(db, "a")
    wait_until(lambda: db.pending() == 0, 10, "the event to leave")
    assert "outbox round" not in log.text() and "outbox event" not in log.text()

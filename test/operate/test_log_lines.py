"""What the server logs during an outage: a few lines."""

import re
import time
from collections import Counter

import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import OK, SECRET, status
from outbox_rig.writers import Writers


class Log:
    """The lines that the server logs from now on."""

    def __init__(self, pg):
        self._pg, self._start, self._began = pg, pg.log.stat().st_size, time.monotonic()

    def text(self) -> str:
        return self._pg.logged(self._start)

    def lines(self, words: str = "outbox") -> list[str]:
        """The messages with their levels."""
        return [found[1] for line in self.text().splitlines() if (found := re.search(r"outbox \w+  ((?:LOG|WARNING|ERROR|FATAL):  .*)", line)) and words in line]

    def few(self, count: int) -> int:
        """That many, and as many again for each minute since: the worker repeats itself after a minute."""
        return count * (1 + int((time.monotonic() - self._began) / 60))


@pytest.fixture
def log(pg):
    return Log(pg)


class Orders(Writers):
    """Commits one transaction after another."""

    def __init__(self, db, aggregate: str = "Order"):
        super().__init__(2)
        self.db, self.aggregate, self.committed = db, aggregate, 0

    def write(self, number: int) -> None:
        with self.db.connect() as connection:
            while not self.stopping.is_set():
                connection.execute("SELECT outbox.enqueue(%s, (n %% 50)::text, 'order.created', '{}') FROM generate_series(1, 100) AS n", [self.aggregate])
                self.committed += 100


def test_an_outage_is_a_few_lines(db, receiver, log):
    """Thousands of events in flight to an endpoint that goes down: one line when it goes down, and one when it is
    back."""
    db.webhook_sink("crm", receiver, SECRET)
    with Orders(db) as orders:
        wait_until(lambda: len(receiver.deliveries) > 200, 10, "traffic")
        receiver.stop()
        wait_until(lambda: db.sink("state") == ("circuit open",), 10, "an open circuit")
        before = orders.committed
        wait_until(lambda: orders.committed > before + 2000, 20, "traffic meanwhile")
        receiver.start()
        wait_until(lambda: any("circuit closed" in line for line in log.lines('"crm"')), 20, "the circuit to close")
    lines = log.lines('"crm"')
    assert sum("circuit opened" in line for line in lines) == sum("circuit closed" in line for line in lines) == 1, lines
    assert len(lines) <= log.few(4), lines
    opened = rf'WARNING:  outbox sink "crm": circuit opened: .*{receiver.port}.* \(Connection refused\)'
    assert any(re.match(opened, line) for line in lines), lines


def test_an_outage_of_the_broker_is_a_few_lines(db, rig, log):
    with rig.kafka(partitions=2) as kafka:
        db.kafka_sink("main", kafka)
        with Orders(db) as orders:
            wait_until(lambda: db.sink("delivered", "main")[0] > 200, 30, "traffic")
            kafka.stop()
            wait_until(lambda: db.sink("state", "main") == ("circuit open",), 30, "an open circuit")
            before = orders.committed
            wait_until(lambda: orders.committed > before + 5000, 20, "traffic meanwhile")
        lines = log.lines('"main"')
        assert sum("circuit opened" in line for line in lines) == 1, lines
        assert len(lines) <= log.few(10), lines


@pytest.mark.slow
def test_a_storm_of_dead_letters_is_told_in_sums(db, receiver, log):
    """A line has their number, the id of one, and what to do; the same for failures that are retried."""
    db.webhook_sink("crm", receiver, SECRET, retry="1ms", max_attempts="2", ordered="false")
    db.webhook_sink("erp", receiver, SECRET, retry="1h", max_attempts="2", events="later")
    receiver.mode = status(422, body=b"no such customer")
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload)"
           " SELECT 'Order', n::text, 'now', '{}' FROM generate_series(1, 2000) AS n")
    wait_until(lambda: db.sink("dead") == (2000,), 30, lambda: db.sink("dead"))
    event = db.enqueue("Order", "1", "later")
    wait_until(lambda: any('"erp"' in line for line in log.lines()), 10, "the line about it")
    assert [line for line in log.lines('"erp"')] == [f'LOG:  outbox sink "erp": event {event} failed (attempt 1) and is tried again: HTTP 422: no such customer']
    lines = log.lines('"crm"')
    dead = [line for line in lines if "dead letter" in line]
    assert 1 <= len(dead) <= log.few(3) and len(lines) <= log.few(6), lines
    found = re.match(r'WARNING:  outbox sink "crm": (\d+ times, such as: )?event (\S+) is a dead letter after 2 attempts: ', dead[0])
    assert found and dead[0].endswith("HTTP 422: no such customer"), dead
    wait_until(lambda: db.sql("SELECT status, sink FROM outbox.events WHERE id = %s AND sink = 'crm'", found[2]) == [("FAILED", "crm")], 10, "the example")
    # Withheld counts are logged before the worker exits: nothing is lost, and the sums are correct.
    db.sql("SELECT pg_terminate_backend(pid) FROM outbox.workers WHERE database = current_database()")

    def told() -> int:
        return sum(int(count[1]) if (count := re.search(r"(\d+) times, such as: ", line)) else 1
                   for line in log.lines('"crm"') if "dead letter" in line)

    wait_until(lambda: told() >= 2000, 10, lambda: f"2001 dead letters to be told: {log.lines()}")
    receiver.mode = OK


def test_the_first_dead_letters_are_told_when_they_happen(db, receiver, log):
    """Further ones are counted, and the line before them says so. Retried failures of the same sink do not use up
    their lines."""
    answers = {n: status(n, body=f"customer {n}".encode()) for n in (400, 422)}
    receiver.mode = lambda d: answers[d.json()["data"]]
    db.webhook_sink("crm", receiver, SECRET, max_attempts="2", retry="1h", ordered="false")
    for n in range(5):
        db.enqueue("Order", "1", payload="422")
        wait_until(lambda: db.sink("retried") == (n + 1,), 20, lambda: db.sink("*"))
    db.sql("ALTER SERVER crm OPTIONS (SET max_attempts '1')")

    def die(answer: int) -> str:
        event = db.enqueue("Order", "1", payload=str(answer))
        wait_until(lambda: db.sql("SELECT FROM outbox.events WHERE status = 'FAILED' AND id = %s", event), 20, "the dead letter")
        return event

    def told() -> list[str]:
        return [found[1] for line in log.lines('"crm"') if (found := re.search(r"event (\S+) is a dead letter", line))]

    first = []
    for answer in (422, 422, 400):
        first.append(die(answer))
        wait_until(lambda: told() == first, 10, log.lines)
    assert "Further ones are counted, and told once a minute." in log.text()
    [example, _] = [die(422), die(400)]
    assert told() == first
    # Before the worker exits, it logs its counts.
    db.sql("SELECT pg_terminate_backend(pid) FROM outbox.workers WHERE database = current_database()")
    wait_until(lambda: told() == [*first, example], 10, log.lines)
    assert re.search(r'"crm": 2 times, such as: event .*\n.*Counted from \d{4}-\d\d-\d\d \d\d:\d\d:\d\d.* to \d{4}-\d\d-\d\d \d\d:\d\d:\d\d', log.text()), log.text()


@pytest.mark.slow
def test_a_flapping_endpoint_is_told_once_a_minute(db, receiver, log):
    """Its circuit opens and closes all the time."""
    db.webhook_sink("crm", receiver, SECRET)
    turns, started = 12, time.monotonic()
    for turn in range(turns):
        receiver.stop()
        db.enqueue("Order", str(turn))
        wait_until(lambda: db.sink("state") == ("circuit open",), 10, "an open circuit")
        receiver.start()
        wait_until(lambda: db.sink("state, pending") == ("idle", 0), 10, "the circuit to close")
    # Three lines of each kind, then one per minute.
    opened = Counter(re.sub(r"\d|\(.*", "", line) for line in log.lines('"crm"') if "circuit opened" in line)
    assert 3 <= max(opened.values()) <= 3 + (time.monotonic() - started) // 60 and opened.total() < turns, opened
    db.sql("SELECT pg_terminate_backend(pid) FROM outbox.workers WHERE database = current_database()")
    wait_until(lambda: len([line for line in log.lines('"crm"') if "circuit closed" in line]) >= 4, 10, lambda: f"the last one: {log.lines()}")


def test_each_line_names_its_database(db, pg, receiver, log):
    """Two databases have a sink of the same name, and %d of log_line_prefix is empty for a worker."""
    receiver.stop()
    other = Database(pg, "other").create()
    for each in (db, other):
        each.webhook_sink("main", receiver, SECRET)
        each.enqueue("Order", "1")

    def named() -> list[str]:
        """The databases of the lines about an open circuit."""
        lines = log.text().splitlines()
        opened = [n for n, line in enumerate(lines) if 'outbox sink "main": circuit opened' in line]
        contexts = ["".join(lines[n + 1:]).partition('CONTEXT:  outbox worker of database "')[2] for n in opened]
        return sorted(context.partition('"')[0] for context in contexts)

    try:
        wait_until(lambda: log.text().count('outbox sink "main": circuit opened') == 2, 20, log.text)
        wait_until(lambda: named() == sorted([db.name, "other"]), 2, log.text)
    finally:
        receiver.start()
        other.drop()


def test_what_the_worker_does_is_seen(db, pg, receiver):
    """pg_stat_activity shows the worker's database, its activity and its wait event."""
    db.webhook_sink("crm", receiver, SECRET)
    seen = set()
    activity = ("SELECT backend_type, application_name, state, query, wait_event_type FROM pg_stat_activity"
                " WHERE backend_type = 'outbox worker' AND datname = current_database() AND state IS NOT NULL")

    def look(what: str) -> bool:
        seen.update(db.sql(activity))
        return any(what in row[3] for row in seen)

    wait_until(lambda: look("waiting for events"), 10, "an idle worker")
    with Orders(db):
        for what in ("claiming events", "recording deliveries", "delivering"):
            wait_until(lambda: look(what), 30, lambda: f"{what}: {seen}", interval=0.0005)
    assert {row[:2] for row in seen} == {("outbox worker", "outbox worker")}
    assert {row[2] for row in seen} == {"idle", "active"}
    assert ("outbox worker", "outbox worker", "idle", "waiting for events", "Extension") in seen
    assert db.sql("SELECT query FROM pg_stat_activity WHERE backend_type = 'outbox launcher'") == [("waiting for databases that need a worker",)]
    if pg_version(pg) >= 17:
        assert db.value("SELECT count(*) FROM pg_wait_events WHERE name IN ('OutboxWaitForEvents', 'OutboxWaitForSinks', 'OutboxLauncherMain')") == 3


def pg_version(pg) -> int:
    with pg.connect() as connection:
        return connection.info.server_version // 10000

"""docs/operations.md is followed from a symptom to its cure, as an operator would who knows nothing but the page: the statements of the
section are pasted. The doctor's first row, or else the first row of the section's table whose text they show, must name the failure that was
made, and its cure makes the events move."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import doctor
import pytest
from failures import Stage
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.paths import ROOT
from outbox_rig.receiver import OK, SECRET, status

PAGE = (ROOT / "docs/operations.md").read_text()
EVENT = "018f0000-0000-7000-8000-000000000000"  # as on the page, and the sink is crm there too
SQL = re.compile(r"`((?:SELECT|UPDATE|DELETE|ALTER)\b[^`…]*)`")


@dataclass
class Row:
    shows: list[str]
    cure: str
    check: str | None = None  # of the doctor


def causes() -> list[Row]:
    """The rows of the tables made from doctor_causes.toml; where the row of the doctor says all, the hint is the cure."""
    groups = doctor.groups()
    return ([Row(cause.says, cause.cure, cause.check) for group in groups for cause in group.cause if cause.says]
            + [Row([text], "the hint") for group in groups for text in group.complete])


class Section:
    def __init__(self, heading: str):
        text = re.search(rf"^## {heading}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)[1]
        statements = re.findall(r"\w[^;]*;", "".join(re.findall(r"^```sql\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)))
        self.doctor = "".join(one for one in statements if "outbox.doctor(" in one)
        self.others = "".join(one for one in statements if "outbox.doctor(" not in one)
        self.checks = self.doctor + self.others
        cells = [line.strip("| \n").split(" | ") for line in text.splitlines() if line.startswith("|")][2:]
        # A row that has only a link says in which table its texts are.
        self.rows = [Row(re.findall(r"`([^`]+)`", shows), next(iter(more), "")) for shows, _, *more in cells]
        self.table_first = "Begin with the table" in text

    def row(self, db: Database) -> Row | None:
        """The row that the reader finds."""
        if self.doctor and not self.table_first:
            first = db.paste(self.doctor).splitlines()[2]  # below the names of the columns
            if first != "(0 rows)":
                return next((row for row in causes() if any(text in first for text in row.shows)), None)
        result = db.paste(self.checks if self.table_first else self.others)
        row = next((row for row in self.rows if any(text in result for text in row.shows)), None)
        if row is None or row.cure:
            return row
        shown = next(text for text in row.shows if text in result)
        return next(cause for cause in causes() if shown in cause.shows)


SECTIONS = {heading: Section(heading) for heading in re.findall(r"^## (.*)$", PAGE.partition("## What the doctor finds")[0], re.MULTILINE)}


# ---- what else goes wrong, beside failures.py --------------------------------------------------------------------------

def no_sink_takes_it(stage: Stage, name: str) -> Database:
    return stage.webhook(name, OK, events="order.*")


def transaction_stays_open(stage: Stage, name: str) -> Database:
    return stage.webhook(name, OK)


def event_is_scheduled_in_milliseconds(stage: Stage, name: str) -> Database:
    db = stage.webhook(name, OK)
    db.sql("SELECT outbox.enqueue('Order', 'late', 'order.created', '{}', available_at => to_timestamp(extract(epoch FROM now()) * 1000))")
    return db


def event_fails(stage: Stage, name: str) -> Database:
    return stage.webhook(name, lambda delivery: status(400 if b"poison" in delivery.body else 200), retry="1h")


def trigger_refuses_recordings(stage: Stage, name: str) -> Database:
    db = stage.webhook(name, OK)
    db.sql("CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'is kept'; END $$; "
           "CREATE TRIGGER keep BEFORE DELETE ON outbox.events_pending FOR EACH ROW EXECUTE FUNCTION keep()")
    return db


def sink_is_paused_and_others_fail(stage: Stage, name: str) -> Database:
    """The doctor has a row for each: an event that no sink takes, a sink that is down, and a transaction that is open."""
    db = stage.sink_is_paused(name)
    db.webhook_sink("other", "http://127.0.0.1:9/", SECRET, events="other.*")
    db.sql("ALTER SERVER crm OPTIONS (ADD events 'order.*')")
    db.sql("SELECT outbox.enqueue('Order', 'apart', 'refund.created', '{}'), outbox.enqueue('Order', 'down', 'other.created', '{}')")
    writer = db.connect(autocommit=False)
    writer.execute("SELECT outbox.enqueue('Order', 'late', 'other.created', '{}')")
    stage.undo.append(writer.close)
    wait_until(lambda: db.sink("state", "other") == ("circuit open",), 30, "the other sink to be down")
    return db


def only_the_sink_is_paused(db: Database) -> None:
    db.sql("DROP SERVER other CASCADE; DELETE FROM outbox.events WHERE event_type <> 'order.created'; SELECT outbox.resume('crm')")


def transaction_stays_open_beside_others(stage: Stage, name: str) -> Database:
    db = stage.webhook(name, OK, events="order.*")
    db.sql("SELECT outbox.enqueue('Order', 'apart', 'refund.created', '{}')")
    return db


def events_are_of_another_cluster(stage: Stage, db: Database) -> None:
    db.sql("UPDATE outbox.events SET origin = 42; SELECT outbox.resume('crm')")


def snapshot_is_old(stage: Stage, name: str) -> Database:
    db = stage.webhook(name, OK)
    holder = db.connect(autocommit=False)
    holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    holder.execute("SELECT count(*) FROM outbox.events")
    stage.undo.append(holder.close)
    return db


def lock_the_tables(stage: Stage, db: Database) -> None:
    holder = db.connect(autocommit=False)
    holder.execute("LOCK TABLE outbox.events IN SHARE MODE")  # as CREATE INDEX does
    stage.undo.append(holder.close)
    db.sql("SELECT outbox.resume('crm')")


def delivery_is_off(stage: Stage, name: str) -> Database:
    db = stage.webhook(name, OK)
    db.sql("ALTER SYSTEM SET outbox.enabled = off")
    db.sql("SELECT pg_reload_conf()")
    wait_until(lambda: not db.sql("TABLE outbox.workers"), 30, "the workers to end")
    return db


@dataclass
class Symptom:
    section: str
    shows: str  # the text of the page's row
    make: Callable[[Stage, str], Database] | str  # a function, or a failure of Stage
    keys: tuple[str, ...] = ("0", "1", "2", "3")  # of the events that are enqueued; the first one is EVENT
    then: Callable[[Stage, Database], object] | None = None  # happens when they are committed
    repair: Callable[[Database], object] | None = None  # the part of the cure that is not on the page
    event_type: str = "order.created"


SYMPTOMS = (
    Symptom("An event is missing", "FAILED", "one_event_is_refused"),
    Symptom("An event is missing", "a sink that takes it", no_sink_takes_it, event_type="refund.created"),
    Symptom("An event is missing", "enqueued in another", "sink_is_paused", then=events_are_of_another_cluster),
    Symptom("An event is missing", "PENDING", sink_is_paused_and_others_fail, repair=only_the_sink_is_paused),
    Symptom("An event is missing", "that has written events or is about to", transaction_stays_open),
    Symptom("An event is missing", "that has written events or is about to", transaction_stays_open_beside_others,
            repair=lambda db: db.sql("DELETE FROM outbox.events WHERE event_type = 'refund.created'")),
    Symptom("Events are late", "has been paused", "sink_is_paused"),
    Symptom("Events are late", "has been paused", sink_is_paused_and_others_fail, repair=only_the_sink_is_paused),
    Symptom("Events are late", "has locked", "row_is_locked"),
    Symptom("Events are late", "scheduled for more than a year ahead", event_is_scheduled_in_milliseconds),
    Symptom("Events are late", "tried again at", event_fails),
    Symptom("Events arrive twice", "Delivered and not recorded", trigger_refuses_recordings,
            repair=lambda db: db.sql("DROP TRIGGER keep ON outbox.events_pending")),
    Symptom("Events arrive out of order", "passed by a later event", "one_event_is_refused", keys=("0", "0", "1")),
    Symptom("The disk is growing", "held a snapshot or a transaction id", snapshot_is_old),
    Symptom("The database is slow", "producers wait", "sink_is_paused", then=lock_the_tables),
    Symptom("The worker is gone", "outbox.enabled is off", delivery_is_off),
    Symptom("A sink is down", "has been disabled", "endpoint_answers_410"),
    Symptom("A sink is down", "circuit open", "endpoint_answers_401"),
)


@pytest.fixture(scope="module")
def stage(rig):
    stage = Stage(rig)
    yield stage
    for undo in stage.undo:
        undo()
    stage.pg.close()


def hint(db: Database, row: Row, shows: str) -> str:
    """Of the doctor's row with the text. A text that the story shows has its hint in the row of the check."""
    hints = "SELECT hint FROM outbox.doctor('5 seconds') WHERE "
    found = db.sql(hints + "position(%s in detail) > 0", shows) or db.sql(hints + "status <> 'ok' AND \"check\" = %s", row.check)
    return found[0][0]


@pytest.mark.kills_server  # a trigger's errors are logged on purpose
@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda symptom: f"{symptom.section}: {symptom.shows}")
def test_from_a_symptom_to_its_cure(stage, symptom):
    name, section = f"symptom{SYMPTOMS.index(symptom)}", SECTIONS[symptom.section]
    db = getattr(stage, symptom.make)(name) if isinstance(symptom.make, str) else symptom.make(stage, name)
    receiver = stage.receivers[name]
    producer = db.connect(autocommit=False)
    for n, key in enumerate(symptom.keys):
        producer.execute("SELECT outbox.enqueue('Order', %s, %s, %s, id => %s)",
                         (key, symptom.event_type, '{"poison": true}' if n == 0 else "{}", EVENT if n == 0 else None))
    stays_open = symptom.make in (transaction_stays_open, transaction_stays_open_beside_others)
    if not stays_open:
        producer.commit()
    if symptom.then:
        symptom.then(stage, db)

    row = wait_until(lambda: (found := section.row(db)) and symptom.shows in found.shows and found, 60,
                     lambda: f"{symptom.shows}; the checks show:\n{db.paste(section.checks)}")

    receiver.mode = OK  # whatever the page says about endpoints
    if stays_open:
        assert row.cure.startswith("let the application commit")
        producer.commit()
    else:
        if "the hint" in row.cure and not (text := hint(db, row, symptom.shows)).startswith("--"):
            shown = db.paste(text)
            assert symptom.make is not trigger_refuses_recordings or "keep" in shown, "the hint shows the trigger"
        for statement in SQL.findall(row.cure):
            db.paste(f"{statement};")
    if symptom.repair:
        symptom.repair(db)
    wait_until(lambda: db.pending() == 0 and EVENT in {delivery.id for delivery in receiver.accepted()}, 150, lambda: db.paste(section.checks))
    wait_until(lambda: section.row(db) is not row, 30, lambda: db.paste(section.checks))
    producer.close()
    db.sql("ALTER SYSTEM RESET outbox.enabled")


def test_dead_letters_are_no_cause_of_lateness(stage):
    """The doctor's row of the sink is a warning then, and would be the first that a reader looks up."""
    db = stage.webhook("dead", status(400), max_attempts="1")
    db.enqueue("Order", "1")
    wait_until(lambda: db.sink("dead", "crm") == (1,), 30, "the dead letter")
    assert db.doctor("sink crm")[0] == "warning"
    assert "sink crm" not in db.paste(SECTIONS["Events are late"].checks)


def test_no_symptom_is_seen_where_there_is_none(stage):
    """A text that a healthy server shows as well would lead every reader to the same row. The event was delivered: it is not in the table."""
    db = stage.webhook("healthy", OK)
    stage.enqueue_and_wait(db)
    expected = {"An event is missing": "(0 rows)", "The worker is gone": "Nothing is due"}
    for heading, section in SECTIONS.items():
        row = section.row(db)
        assert row is None or expected.get(heading) in row.shows or heading == "Events are late" and row is section.rows[-1], heading
    assert len(SECTIONS) == 8 and all(section.rows or section.doctor for section in SECTIONS.values())


def test_the_texts_of_the_page_are_those_of_the_server():
    sources = "".join(path.read_text() for pattern in ("extension/*.sql", "server/**/*.cpp") for path in (ROOT / "src").glob(pattern))
    texts = {text: section for section in SECTIONS.values() for row in section.rows for text in row.shows}
    assert len(texts) > 20
    assert [text for text, section in texts.items() if text not in sources + section.checks and text != "(0 rows)"] == []

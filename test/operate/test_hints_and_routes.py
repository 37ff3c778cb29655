"""A pasted hint never changes where events go. A database with seven sinks, tenants and a dropped sink shows all that
the doctor and errors say there; each hint that is a statement is pasted whole, and must succeed."""

import json
import re

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.paths import ROOT
from outbox_rig.receiver import status

STATEMENT = re.compile(r"(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|GRANT|REVOKE|CALL|DO|ROLLBACK|COMMIT|VACUUM|SET|BEGIN)\b")
NOWHERE = "http://127.0.0.1:1/"


def is_statement(hint: str) -> bool:
    return bool(STATEMENT.match(hint))


def routes(db) -> list:
    """All that decides where events go, and where those go that are there."""
    return (db.sql("SELECT srvname::text, srvoptions FROM pg_foreign_server ORDER BY 1")
            + db.sql("SELECT id::text, sink, origin FROM outbox.events ORDER BY 1, 2"))


@pytest.fixture
def seven(db, rig, kafka):
    """Sinks of three tenants, one for all orders, a Kafka sink for invoices, an archive of both, and a manual one; and
    the events of a dropped sink, of another origin, of an unknown tenant, and of an unknown type."""
    with rig.receiver() as refuses:
        refuses.mode = status(400)
        db.webhook_sink("archive", NOWHERE, events="order.*, invoice.paid", aggregates="Order, Invoice")
        for tenant in ("42", "43", "44"):
            db.webhook_sink(f"tenant {tenant}", NOWHERE, events="order.*", match=json.dumps({"tenant": tenant}))
        db.kafka_sink("lake", kafka, events="invoice.paid")
        db.webhook_sink("orders", refuses, events="order.*", max_attempts="1", on_dead_letter="block")
        db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER mail FOREIGN DATA WRAPPER outbox_manual OPTIONS (events 'mail.*')")
        db.webhook_sink("lost", NOWHERE, events="lost")
        db.sql("SELECT outbox.pause('archive')")
        db.sql("INSERT INTO outbox.stopped_sinks (sink, state, reason) VALUES ('tenant 43', 'disabled', '410')")
        db.enqueue("Thing", "1", "nosuch.type")
        db.enqueue("Invoice", "1", "invoice.sent", headers='{"tenant": "99"}')
        db.enqueue("Lost", "1", "lost")
        for _ in range(2):
            db.enqueue("Order", "1", "order.created", headers='{"tenant": "42"}')
        wait_until(lambda: db.sql("SELECT FROM outbox.events_failed WHERE sink = 'orders'"), 20, lambda: str(db.sql("SELECT * FROM outbox.sinks")))
        wait_until(lambda: db.state("tenant 42") == "circuit open", 20, lambda: db.state("tenant 42"))
        db.sql("DROP SERVER lost CASCADE")
        db.sql("INSERT INTO outbox.events (id, aggregate_type, event_type, position, sink, origin)"
               " SELECT gen_random_uuid(), 'Order', 'order.old', nextval('outbox.events_position'), 'tenant 44', 42")
        yield db


def paste_all(db, hints: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pastes each hint, and returns those that change a route, or that look like a statement and fail, with what
    happened."""
    bad, before = [], routes(db)
    for name, hint in hints:
        try:
            db.paste(hint)
        except AssertionError as error:
            if is_statement(hint):
                bad.append((name, str(error)))
        after = routes(db)
        if after != before:
            bad.append((name, f"{hint}: {[row for row in after if row not in before]}"))
        before = routes(db)
    return bad


def test_no_hint_of_the_doctor_changes_where_events_go(seven):
    db = seven
    rows = db.sql("SELECT \"check\", hint FROM outbox.doctor('0 seconds') WHERE hint IS NOT NULL")
    assert {"routes", "lost sink", "origin", "dead letters", "sink archive", "sink tenant 42", "sink tenant 43", "sink orders", "advice orders signature"} <= {check for check, _ in rows}, rows
    assert paste_all(db, rows) == []


def test_the_routes_hint_lists_every_candidate_and_its_effect(seven):
    db = seven
    hint = db.doctor("routes")[2]
    assert hint.startswith("-- ") and "\n" not in hint
    assert "ALTER SERVER lake OPTIONS (SET events 'invoice.paid, nosuch.type');" in hint
    assert "ALTER SERVER archive OPTIONS (SET events 'order.*, invoice.paid, nosuch.type', SET aggregates 'Order, Invoice, Thing');" in hint
    assert "ALTER SERVER mail" in hint and "ALTER SERVER orders" in hint and "CREATE SERVER" in hint
    assert 'tenant 42 ({"tenant": "42"})' in hint and 'ALTER SERVER "tenant 42"' not in hint


@pytest.mark.parametrize("check", ["routes", "sinks"])
def test_without_a_sink_no_hint_makes_one_that_takes_all(db, check):
    db.enqueue("Customer", "1", "customer.created")
    hint = db.doctor(check)[2]
    assert "CREATE SERVER" in hint
    assert paste_all(db, [(check, hint)]) == []


def test_a_new_sink_as_the_hint_shows_it_takes_only_these_events(db):
    db.enqueue("Customer", "1", "customer.created")
    [statement] = re.findall(r"CREATE SERVER .*?\);", db.doctor("routes")[2])
    db.enqueue("Order", "1", "order.created")
    db.paste(statement)
    wait_until(lambda: db.sql("SELECT event_type FROM outbox.events WHERE sink IS NOT NULL") == [("customer.created",)], 10, lambda: str(db.sql("SELECT event_type, sink FROM outbox.events")))


def test_no_hint_of_an_error_changes_where_events_go(seven):
    db, told = seven, []
    dead = db.value("SELECT id FROM outbox.events_failed")
    pending = db.value("SELECT id FROM outbox.events_pending WHERE sink = 'tenant 42' LIMIT 1")
    lost = "INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, sink, status, attempts) VALUES ('Order', '1', 'lost', 'lost', 'FAILED', 1) RETURNING id"
    with db.role("app"), db.connect(autocommit=False) as session:
        session.add_notice_handler(lambda notice: told.append((statement, notice.message_hint)))
        db.sql("CREATE EXTENSION outbox_inbox")
        db.sql("GRANT USAGE ON SCHEMA outbox TO app; GRANT INSERT ON outbox.events TO app; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA outbox TO app")
        for statement in [
                "SELECT outbox.enqueue('Order', '1', 'x', '{}', sink => 'nosuch')", "SELECT outbox.enqueue('Order', '1', 'x', 1)", "SELECT outbox.enqueue('Order', '1', 'x', now())",
                "SELECT outbox.enqueue('Order', '1', 'x', '\\x00'::bytea)", "SELECT outbox.enqueue('', '1', 'x', '{}')", "SELECT outbox.enqueue('Order', NULL::text, 'x', '{}')",
                "SET LOCAL ROLE app; SELECT outbox.enqueue('Order', '1', 'x', '{}', sink => 'lake')", "SET LOCAL ROLE app; SELECT outbox.replay('lake', now())",
                "SET LOCAL ROLE app; SELECT outbox.claim('mail', 1)", "SELECT outbox.claim('lake', 1)", "SELECT outbox.claim(NULL, 1)", "SELECT outbox.ack(NULL, NULL)", "SELECT outbox.nack(NULL, NULL, NULL)",
                "SELECT outbox.replay(NULL, now())", "SELECT outbox.replay('lake', now())", "SELECT outbox.replay('lake', now() - interval '1 year')", "SELECT outbox.replay('lake', event => NULL)",
                f"SELECT outbox.replay('tenant 42', event => '{pending}')", f"SELECT outbox.replay('orders', event => '{dead}')", f"SELECT outbox.replay('lake', event => '{dead}')",
                f"SELECT outbox.redrive('{pending}')", f"SELECT outbox.redrive('{db.value(lost)}')", "SELECT outbox.redrive(gen_random_uuid())",
                "SELECT outbox.pause('nosuch')", "SELECT outbox.pause(NULL)", "SELECT outbox.resume('lake')", "SELECT * FROM outbox.probe(NULL)", "SELECT * FROM outbox.probe('mail')",
                "SELECT outbox.preview(gen_random_uuid())", "SELECT outbox.preview(NULL)", f"SELECT outbox.preview('{dead}', 'nosuch')", "CALL outbox.wait_delivered(NULL)",
                f"CALL outbox.wait_delivered('{pending}')", "SELECT outbox_inbox.mark_processed(NULL, 'h')", "ALTER SERVER lake RENAME TO lost", "DROP SERVER \"tenant 42\" CASCADE",
                "CREATE USER MAPPING FOR app SERVER lake", "ALTER SERVER lake OPTIONS (ADD sasl_password 'x')", "ALTER SERVER orders OPTIONS (ADD secret 'x')",
                "ALTER SEQUENCE outbox.events_position INCREMENT 1", "GRANT ALL ON outbox.events TO app"]:
            try:
                session.execute(statement)
            except psycopg.Error as error:
                told.append((statement, error.diag.message_hint))
            session.rollback()
        hints = [(statement, hint) for statement, hint in told if hint]
        assert len(hints) > 25, hints
        assert paste_all(db, hints) == []


def test_a_hint_that_begins_as_a_statement_is_one():
    """Also those that no test provokes: nothing follows the statement except a comment, and no part is left to fill in."""
    sources = [*(ROOT / "src/server").rglob("*.cpp"), *(ROOT / "src/delivery").rglob("*.cpp"), *(ROOT / "src/extension").rglob("*.sql")]
    found = []
    for source in sources:
        text = re.sub(r"""(["'])\s*\n\s*\1""", "", source.read_text())
        hints = re.findall(r'errhint(?:_plural)?\("((?:[^"\\]|\\.)*)"', text) if source.suffix == ".cpp" else \
            [hint.replace("''", "'") for hint in re.findall(r"HINT = (?:format\()?'((?:[^']|'')*)'", text)]
        found += [(source.name, hint) for hint in hints if is_statement(hint)]
    assert len(found) > 8, found
    assert [(name, hint) for name, hint in found if not re.fullmatch(r".*;( -- .*)?", hint) or "..." in hint.split(" -- ")[0]] == []

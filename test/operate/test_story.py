"""outbox.story(): the way of one event, as a person reads it."""

import os
import re

import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import SECRET, Status, status

QUICK = {"retry": "50ms", "max_attempts": "3"}


def story(db, event: str) -> list[tuple[str | None, str, str]]:
    times = [row[0] for row in db.sql("SELECT at FROM outbox.story(%s)", event)]
    assert times == sorted(times)
    return [tuple(row) for row in db.sql("SELECT sink, what, detail FROM outbox.story(%s)", event)]


def steps(db, event: str, sink: str = "crm") -> list[str]:
    return [what for name, what, _ in story(db, event) if name == sink]


def details(db, event: str, what: str) -> list[str]:
    return [detail for _, step, detail in story(db, event) if step == what]


@pytest.fixture
def keeps(setting):
    setting("outbox.retention", "1d")


def refuse(receiver, bad: set[str], code: int) -> None:
    receiver.mode = lambda d: Status(code, body=b"no such customer") if d.id in bad else Status(202, {"X-Request-Id": "r-7"})


def test_failed_twice_blocked_and_redriven(db, receiver, keeps):
    """The first event of a key fails until it is a dead letter, the second waits for it; then the first is redriven."""
    bad: set[str] = set()
    refuse(receiver, bad, 503)
    db.webhook_sink("crm", receiver, SECRET, on_dead_letter="block", **QUICK)
    db.webhook_sink("other", receiver, SECRET, events="invoice.*")
    with db.connect(autocommit=False) as session:
        session.execute("SET application_name = 'shop'")
        first, second = (str(session.execute("SELECT outbox.enqueue('Order', '42', 'order.paid', '{}')").fetchone()[0]) for _ in range(2))
        bad.add(first)
        transaction = session.execute("SELECT pg_current_xact_id()::text").fetchone()[0]
    wait_until(lambda: "dead letter" in steps(db, first), 20, lambda: str(story(db, first)))
    assert steps(db, first) == ["routed", "attempt 1 failed", "attempt 2 failed", "attempt 3 failed", "dead letter"]
    assert details(db, first, "enqueued") == [f'order.paid, Order 42, by transaction {transaction} of application "shop"']
    assert details(db, first, "not routed") == ["its option events is 'invoice.*'"]
    (failure,) = details(db, first, "attempt 2 failed")
    assert re.fullmatch(r"after \d+ ms, worker 0: .*503.*no such customer.*", failure)
    wait_until(lambda: "a dead letter" in "".join(details(db, second, "waits")), 20, lambda: str(story(db, second)))
    assert f"for event {first} of the same key, a dead letter: " in details(db, second, "waits")[0]

    bad.clear()
    db.sql("SELECT outbox.redrive(%s)", first)
    wait_until(lambda: db.pending() == 0, 20, lambda: str(story(db, first)))
    assert steps(db, first)[-4:] == ["attempt 3 failed", "dead letter", "redriven", "delivered"] and steps(db, second) == ["routed", "was blocked", "delivered"]
    assert details(db, second, "was blocked")[0].startswith(f"by event {first} of the same key, at least until ")
    for event in (first, second):
        (delivered,) = details(db, event, "delivered")
        assert re.fullmatch(r"HTTP 202, X-Request-Id r-7 \(\d+ ms, worker 0\)", delivered), delivered


def test_was_blocked(db, receiver, keeps):
    """Only by a failing event of the same key and an ordered sink that is tried again."""
    bad: set[str] = set()
    refuse(receiver, bad, 503)
    db.webhook_sink("crm", receiver, SECRET, retry="300ms", max_attempts="2")
    db.webhook_sink("heap", receiver, SECRET, retry="300ms", max_attempts="2", ordered="false")
    with db.connect(autocommit=False) as session:
        first, second, other = (str(session.execute("SELECT outbox.enqueue('Order', %s, 'order.paid', '{}')", [key]).fetchone()[0]) for key in "112")
        bad.add(first)
    wait_until(lambda: "attempt 1 failed" in steps(db, first), 20, lambda: str(story(db, first)))
    bad.clear()
    wait_until(lambda: db.pending() == 0, 20, lambda: str(story(db, first)))
    assert steps(db, second) == ["routed", "was blocked", "delivered"], story(db, second)
    assert details(db, second, "was blocked")[0].startswith(f"by event {first} of the same key, at least until ")
    for event in (first, other):
        assert details(db, event, "was blocked") == []
    assert steps(db, second, "heap") == ["routed", "delivered"]
    late = db.enqueue("Order", "1")
    wait_until(lambda: db.pending() == 0, 20, lambda: str(story(db, late)))
    assert details(db, late, "was blocked") == []


def test_a_dead_letter_that_does_not_block(db, receiver, keeps):
    bad: set[str] = set()
    refuse(receiver, bad, 400)
    db.webhook_sink("crm", receiver, SECRET, max_attempts="1")
    with db.connect(autocommit=False) as session:
        first, second = (str(session.execute("SELECT outbox.enqueue('Order', '1', 'order.paid', '{}')").fetchone()[0]) for _ in range(2))
        bad.add(first)
    wait_until(lambda: "delivered" in steps(db, second), 20, lambda: str(story(db, second)))
    bad.clear()
    db.sql("SELECT outbox.redrive(%s, force => true)", first)
    wait_until(lambda: "delivered" in steps(db, first), 20, lambda: str(story(db, first)))
    assert steps(db, second) == ["routed", "delivered"]


REDRIVES = {"redrive": "SELECT outbox.redrive(id) FROM outbox.events WHERE status = 'FAILED'",
            "update": "UPDATE outbox.events SET status = 'PENDING' WHERE status = 'FAILED'"}


@pytest.mark.parametrize("retention", ["1d", "0"])
@pytest.mark.parametrize("redrive", REDRIVES)
def test_a_redrive_is_told_after_the_delivery(db, receiver, setting, redrive, retention):
    setting("outbox.retention", retention)
    receiver.mode = status(400, body=b"no such customer")
    db.webhook_sink("crm", receiver, SECRET, retry="50ms", max_attempts="2")
    event = db.enqueue("Order", "1")
    wait_until(lambda: "dead letter" in steps(db, event), 20, lambda: str(story(db, event)))
    letter = db.sql("SELECT at, sink, what, detail FROM outbox.story(%s) WHERE what = 'dead letter'", event)
    assert letter[0][3].startswith("after 2 attempts: ") and "no such customer" in letter[0][3]
    db.sql("SELECT outbox.pause('crm')")
    with db.role("support") as role, db.connect() as session:
        db.sql(f"GRANT USAGE ON SCHEMA outbox TO {role}; GRANT SELECT, UPDATE ON outbox.events TO {role}; GRANT EXECUTE ON FUNCTION outbox.redrive TO {role}")
        session.execute(f"SET ROLE {role}")
        session.execute(REDRIVES[redrive])
    assert steps(db, event)[-3:] == ["dead letter", "redriven", "waits"]
    receiver.mode = status(200)
    db.sql("SELECT outbox.resume('crm')")
    wait_until(lambda: db.pending() == 0, 20, lambda: str(story(db, event)))
    assert details(db, event, "redriven") == ['by role "support"']
    assert db.sql("SELECT at, sink, what, detail FROM outbox.story(%s) WHERE what = 'dead letter'", event) == letter
    told = [what for _, what, _ in story(db, event) if "attempt" not in what]
    assert told == (["enqueued", "routed", "dead letter", "redriven", "delivered"] if retention == "1d" else ["dead letter", "redriven", "gone"])


def test_a_refused_redrive_is_none(db, receiver):
    """A later event of the key was delivered: the dead letter stays, and nobody has redriven it."""
    receiver.mode = status(400)
    db.webhook_sink("crm", receiver, SECRET, retry="50ms", max_attempts="1")
    event = db.enqueue("Order", "1")
    wait_until(lambda: "dead letter" in steps(db, event), 20, lambda: str(story(db, event)))
    receiver.mode = status(200)
    db.enqueue("Order", "1")
    wait_until(lambda: "was delivered meanwhile" in "".join(details(db, event, "dead letter")), 20, lambda: str(story(db, event)))
    assert db.value("SELECT outbox.redrive(%s)", event) is False
    assert steps(db, event) == ["routed", "attempt 1 failed", "dead letter"]


def test_a_redrive_does_not_hide_the_transaction_of_another(db, receiver, keeps):
    """A redriven row has the transaction of the redrive, which did not enqueue the event."""
    receiver.mode = status(400)
    db.webhook_sink("crm", receiver, SECRET, retry="50ms", max_attempts="1")
    event = db.enqueue("Order", "1")
    wait_until(lambda: "dead letter" in steps(db, event), 20, lambda: str(story(db, event)))
    assert re.search(r"by transaction \d+$", details(db, event, "enqueued")[0])
    receiver.mode = status(200)
    db.sql("SELECT outbox.redrive(%s)", event)
    wait_until(lambda: "delivered" in steps(db, event), 20, lambda: str(story(db, event)))
    assert re.search("by a transaction$", details(db, event, "enqueued")[0])


def test_sent_again(db, receiver, keeps):
    receiver.mode = status(200)
    db.webhook_sink("crm", receiver, SECRET)
    event = db.enqueue("Order", "1")
    for n in range(1, 3):
        wait_until(lambda: steps(db, event).count("delivered") == n, 20, lambda: str(story(db, event)))
        if n == 1:
            db.sql("SELECT outbox.replay('crm', event => %s)", event)
    assert steps(db, event) == ["routed", "delivered", "sent again", "delivered"]
    receiver.mode = status(503)
    db.webhook_sink("other", receiver, SECRET, retry="1h")
    db.sql("SELECT outbox.replay('other', event => %s)", event)
    wait_until(lambda: len(steps(db, event, "other")) == 3, 20, lambda: str(story(db, event)))
    assert steps(db, event, "other") == ["sent again", "attempt 1 failed", "waits"]
    assert steps(db, event) == ["routed", "delivered", "sent again", "delivered"]


def test_a_dead_letter_by_a_user(db):
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER crm FOREIGN DATA WRAPPER outbox_manual")
    event = db.enqueue("Order", "1")
    db.sql("UPDATE outbox.events SET status = 'FAILED' WHERE id = %s", event)
    assert story(db, event)[-1][1:] == ("dead letter", "after 0 attempts: a user set its status")


def test_waits_for_sessions_that_have_locked_its_row(db, pg, receiver):
    """Two of them share the lock, one in a savepoint. The statement finds both."""
    receiver.mode = status(200)
    db.webhook_sink("crm", receiver, SECRET)
    db.sql("SELECT outbox.pause('crm')")
    event = db.enqueue("Order", "1")
    pids = set()
    with db.connect(autocommit=False) as one, db.connect(autocommit=False) as other:
        other.execute("SAVEPOINT s")
        for session in (one, other):
            session.execute("SELECT FROM outbox.events WHERE id = %s FOR SHARE", [event])
            pids.add(str(session.info.backend_pid))
        db.sql("SELECT outbox.resume('crm')")
        wait_until(lambda: "which has locked its row" in details(db, event, "waits")[0], 20, lambda: str(story(db, event)))
        statement = details(db, event, "waits")[0].split(": ", 1)[1].split(";")[0]
        assert pids <= set(re.findall(r"\d+", db.paste(statement + ";")))
    wait_until(lambda: db.pending() == 0, 30, lambda: str(story(db, event)))


def test_a_sink_that_is_dropped_meanwhile(db):
    """The snapshot of the story still shows it, the catalog does not."""
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER crm FOREIGN DATA WRAPPER outbox_manual; CREATE SERVER other FOREIGN DATA WRAPPER outbox_manual OPTIONS (events 'none')")
    event = db.enqueue("Order", "1")
    with db.connect(autocommit=False) as session:
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.execute("SELECT FROM outbox.events")
        db.sql("DROP SERVER other")
        rows = session.execute("SELECT sink, detail FROM outbox.story(%s) WHERE what = 'not routed'", [event]).fetchall()
    assert rows == [("other", "it has just been dropped or renamed")]


def test_a_delivered_event_of_which_no_row_is_kept(db, receiver):
    """Not "not routed": the sink takes it, and has delivered it."""
    db.webhook_sink("crm", receiver, SECRET, events="order.*")
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER program FOREIGN DATA WRAPPER outbox_manual")
    event = db.enqueue("Order", "1", "order.paid")
    wait_until(lambda: [d.id for d in receiver.accepted()] == [event], 20, "delivery")
    wait_until(lambda: db.sql("SELECT sink FROM outbox.events") == [("program",)], 20, "the row to leave")
    [(detail,)] = db.sql("SELECT detail FROM outbox.story(%s) WHERE sink = 'crm' AND what = 'no row is kept'", event)
    assert "delivered there and is not kept" in detail and details(db, event, "not routed") == []


def test_a_sink_that_was_dropped(db):
    """Of an event that waits for it, and of later ones that no sink takes any more. A renamed or a new sink is no dropped one."""
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual")
    db.sql("""CREATE SERVER invoices FOREIGN DATA WRAPPER outbox_manual OPTIONS (events 'order.*, invoice.*', match '{"tenant": "42"}')""")
    db.sql("ALTER SERVER invoices RENAME TO billing")
    before = db.enqueue("Order", "1", "order.paid", headers='{"tenant": 42}')
    with db.role("cleaner") as role, db.connect() as session:
        db.sql(f"ALTER SERVER billing OWNER TO {role}")
        session.execute(f"SET ROLE {role}; DROP SERVER billing; RESET ROLE")
    assert details(db, before, "sink dropped") == ['by role "cleaner"']
    later, other = (db.enqueue("Order", "1", "order.paid", headers=headers) for headers in ('{"tenant": 42}', '{"tenant": 43}'))
    [told] = details(db, later, "sink dropped")
    assert re.fullmatch('such events went there until 20.* when role "cleaner" dropped it', told) and details(db, other, "sink dropped") == []
    was = r'of kind manual, with events \'order\.\*, invoice\.\*\', match \'\{"tenant": "42"\}\', dropped at 20.* by role "cleaner"'
    assert re.search(rf'sink "billing", which does not exist any more \({was}\)', db.doctor("lost sink")[1])
    assert re.search(rf'Before, such events went to sink "billing", {was}\.$', db.doctor("routes")[1])
    db.sql("CREATE SERVER billing FOREIGN DATA WRAPPER outbox_manual OPTIONS (events 'none')")
    assert db.sql("SELECT name FROM outbox_internal.dropped_sinks WHERE name = 'billing'") == []
    assert details(db, later, "sink dropped") == [] and "went to" not in db.doctor("routes")[1]


def test_the_dropped_sinks_that_are_known_are_few(db):
    db.sql("CREATE EXTENSION outbox_manual")
    db.sql("DO $$ BEGIN FOR n IN 1..120 LOOP EXECUTE format('CREATE SERVER %I FOREIGN DATA WRAPPER outbox_manual; DROP SERVER %1$I', 's' || n); END LOOP; END $$")
    kept = [name for name, in db.sql("SELECT name FROM outbox_internal.dropped_sinks ORDER BY dropped_at")]
    assert kept == [f"s{n}" for n in range(21, 121)]


def test_waits_for_an_open_circuit(db, receiver):
    receiver.mode = status(503, body=b"maintenance")
    db.webhook_sink("crm", receiver, SECRET, retry="1h")
    db.sql("SELECT count(outbox.enqueue('Order', n::text, 'order.paid', '{}')) FROM generate_series(1, 50) n")
    wait_until(lambda: db.state() == "circuit open", 30, "the circuit to open")
    event = db.enqueue("Order", "another")
    wait_until(lambda: "circuit open" in details(db, event, "waits")[0], 20, lambda: str(story(db, event)))
    assert re.fullmatch('for its sink, which is in the state "circuit open": .*503.*', details(db, event, "waits")[0])


def test_waits_for_a_failing_event_of_its_key(db, receiver):
    receiver.mode = status(500, body=b"no such customer")
    db.webhook_sink("crm", receiver, SECRET, retry="1h")
    first, second = db.enqueue("Order", "1"), db.enqueue("Order", "1")
    wait_until(lambda: "which has failed" in details(db, second, "waits")[0], 20, lambda: str(story(db, second)))
    assert re.fullmatch(f"for event {first} of the same key, which has failed 1 time: .*500.*no such customer.*", details(db, second, "waits")[0])
    assert details(db, first, "waits")[0].startswith("for its next attempt at ")


def test_waits_for_the_worker_of_its_shard(db, pg, receiver, setting):
    """One of two workers dies at each start. The other keeps its shards, and does not take those of the missing one."""
    setting("outbox.workers", "2")
    receiver.mode = status(200)
    db.webhook_sink("crm", receiver, SECRET)
    workers = "SELECT worker, shards FROM outbox.workers WHERE database = current_database() ORDER BY worker"
    wait_until(lambda: db.sql(workers) == [(0, 128), (1, 128)], 20, "two workers")
    key = next(str(n) for n in range(100) if db.value("SELECT hashtextextended(%s, 0) & 1", str(n)) == 1)
    folder = pg.data / "base" / str(db.value("SELECT oid FROM pg_database WHERE datname = current_database()"))
    os.rename(folder / "PG_VERSION", folder / "away")  # no process can connect to the database
    try:
        db.sql("SELECT pg_terminate_backend(pid) FROM outbox.workers WHERE database = current_database() AND worker = 1")
        wait_until(lambda: db.value("SELECT failures FROM outbox_internal.worker_health()") > 1, 20, "the next ones to die")
        event = db.enqueue("Order", key)
        missing = "for worker 1 of 2, which serves its shard and does not run: outbox.doctor() says why"
        wait_until(lambda: details(db, event, "waits") == [missing], 10, lambda: str(story(db, event)))
        assert db.doctor("worker")[0] == "error"
    finally:
        os.rename(folder / "away", folder / "PG_VERSION")
    wait_until(lambda: db.pending() == 0, 90, lambda: str(story(db, event)))


def bound_failures(db, size: int) -> None:
    """Of a day so many bytes are kept from now on, instead of a gigabyte."""
    source = db.value("SELECT pg_get_functiondef('outbox_internal.has_room_for_failures'::regproc)")
    assert source.count("1073741824") == 1
    db.sql(source.replace("1073741824", str(size)))


def test_long_errors_count_by_their_bytes(db):
    """A thousand characters of Chinese are 3 kB, and stand in the TOAST table."""
    bound_failures(db, 3_000_000)
    assert db.value("SELECT outbox_internal.has_room_for_failures()")
    db.sql("INSERT INTO outbox_internal.failed_attempts (day, event_id, position, sink, ended_at, error) "
           "SELECT outbox_internal.failure_day(clock_timestamp()), gen_random_uuid(), n, 'crm', clock_timestamp(), "
           "(SELECT string_agg(chr(19968 + (random() * 20000)::integer + 0 * n * c), '') FROM generate_series(1, 1000) AS c) FROM generate_series(1, 1000) AS n")
    assert db.value("SELECT sum(pg_relation_size(i.inhrelid)) FROM pg_inherits AS i WHERE i.inhparent = 'outbox_internal.failed_attempts'::regclass") < 300_000
    assert not db.value("SELECT outbox_internal.has_room_for_failures()")


def test_failures_that_were_not_kept(db, receiver, keeps):
    """Of a day only so many bytes are kept. The story of an event that lived on afterwards says it."""
    bound_failures(db, db.value("SELECT pg_total_relation_size('outbox_internal.failed_attempts_0')") + 8192)
    db.webhook_sink("crm", receiver, SECRET, **QUICK)
    early = db.enqueue("Order", "early")
    wait_until(lambda: steps(db, early) == ["routed", "delivered"], 20, lambda: str(story(db, early)))
    receiver.mode = status(400)
    late = db.enqueue("Order", "late")
    wait_until(lambda: "dead letter" in steps(db, late), 20, lambda: str(story(db, late)))
    assert steps(db, late) == ["routed", "attempt 1 failed", "dead letter"], "the first page is full as soon as it exists"
    assert details(db, late, "not all kept") == ["of this UTC day no further failed attempts and redrives are kept: they take a gigabyte"]
    assert details(db, early, "not all kept") == []
    assert db.value("SELECT count(*) FROM outbox.story(%s) WHERE what = 'not all kept' AND at <= clock_timestamp()", late) == 1


def test_what_an_event_waits_for(db, receiver):
    unknown = "00000000-0000-7000-8000-000000000000"
    assert [what for _, what, _ in story(db, unknown)] == ["unknown"]
    event = db.enqueue("Order", "1")
    assert details(db, event, "waits") == ["for a sink that takes it"]
    db.webhook_sink("crm", receiver, SECRET, events="none")
    assert details(db, event, "not routed") == ["its option events is 'none'"]
    db.sql("SELECT outbox.pause('crm')")
    db.set_sink("crm", events="*")
    wait_until(lambda: "routed" in steps(db, event), 20, lambda: str(story(db, event)))
    assert details(db, event, "waits") == ['for its sink, which is in the state "paused"']
    later = str(db.value("SELECT outbox.enqueue('Order', '2', 'order.paid', '{}', available_at => now() + interval '1 hour')"))
    db.sql("SELECT outbox.resume('crm')")
    wait_until(lambda: db.pending() == 1, 20, "delivery")
    assert "the time for which it is scheduled" in details(db, later, "waits")[0]
    assert [what for _, what, _ in story(db, event)] == ["unknown"], "it is delivered and not kept"


def test_a_failure_outlives_the_event(db, receiver):
    """Delivered and not kept: its failures are still told."""
    bad: set[str] = set()
    refuse(receiver, bad, 503)
    receiver.mode = lambda d: Status(503) if len(receiver.deliveries) < 2 else Status(200)
    db.webhook_sink("crm", receiver, SECRET, **QUICK)
    event = db.enqueue("Order", "1")
    wait_until(lambda: db.pending() == 0, 20, lambda: str(story(db, event)))
    assert [what for _, what, _ in story(db, event)] == ["attempt 1 failed", "gone"]


def test_kafka_acknowledges_by_partition_and_offset(db, kafka, aggregate, keeps):
    db.kafka_sink("crm", kafka)
    events = [db.enqueue(aggregate, "7") for _ in range(3)]
    wait_until(lambda: db.pending() == 0, 30, "delivery")
    places = [re.fullmatch(r"partition (\d+), offset (\d+) \(\d+ ms, worker 0\)", details(db, event, "delivered")[0]).groups() for event in events]
    assert len({partition for partition, _ in places}) == 1
    assert [int(offset) - int(places[0][1]) for _, offset in places] == [0, 1, 2]


def test_a_program_that_claims(db):
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER crm FOREIGN DATA WRAPPER outbox_manual OPTIONS (retry '1h')")
    event = db.enqueue("Order", "1")
    assert details(db, event, "waits") == ["for a program that claims it"]
    ((token,),) = db.sql("SELECT token FROM outbox.claim('crm')")
    assert details(db, event, "waits")[0].startswith("for the program that has claimed it until ")
    db.sql("SELECT outbox.nack(%s, %s, 'no paper')", token, event)
    assert details(db, event, "attempt 1 failed") == ["outbox.nack(): no paper"]
    assert "for its next attempt at " in details(db, event, "waits")[0]


def test_a_program_waits_behind_an_event_of_the_key(db):
    """The story, the doctor and outbox.sinks say for which event a manual sink gives out nothing."""
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER crm FOREIGN DATA WRAPPER outbox_manual OPTIONS (on_dead_letter 'block', max_attempts '2')")
    first, second, third = db.enqueue("Order", "1"), db.enqueue("Order", "1"), db.enqueue("Order", "2")
    ((token,),) = db.sql("SELECT token FROM outbox.claim('crm', 1)")
    assert details(db, second, "waits")[0].startswith("for the program that has claimed other events of the same key until ")
    db.sql("SELECT outbox.nack(%s, %s, 'no paper', retry_in => '1 day')", token, first)
    assert details(db, second, "waits") == [f"for event {first} of the same key, which has failed 1 time: no paper"]
    assert db.sink("due, blocked, failing") == (1, 1, 1) and "1 is failing and 1 waits behind" in db.doctor("sink crm")[1]
    assert details(db, third, "waits") == ["for a program that claims it"]
    db.sql("UPDATE outbox.events SET available_at = now(), created_at = now() - interval '1 hour' WHERE status = 'PENDING' AND id = %s", first)
    assert db.sink("due, blocked, failing") == (3, 0, 0)
    assert db.value("SELECT outbox.nack(token, id, 'no ink', give_up => true) FROM outbox.claim('crm') LIMIT 1") == "FAILED"
    db.sql("SELECT outbox.ack(token) FROM outbox.leases")
    db.sql("UPDATE outbox.events SET created_at = now() - interval '1 hour' WHERE status = 'PENDING'")
    assert details(db, second, "waits") == [f"for event {first} of the same key, a dead letter: no ink"]
    assert db.sink("pending, due, blocked, dead, oldest_due_age") == (1, 0, 1, 1, None)
    state, detail, hint = db.doctor("sink crm")
    assert state == "warning" and "1 waits behind" in detail
    db.paste(hint)
    assert details(db, second, "waits") == ["for a program that claims it"] and db.sink("due, blocked") == (2, 0)


def test_a_program_waits_for_leases_of_another_order(db):
    """After ALTER SERVER ... ordered, outbox.claim() gives out nothing before the leases that it has given have
    ended."""
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER crm FOREIGN DATA WRAPPER outbox_manual")
    db.enqueue("Order", "1")
    ((token,),) = db.sql("SELECT token FROM outbox.claim('crm', lease => '1 day')")
    db.sql("ALTER SERVER crm OPTIONS (ADD ordered 'false')")
    event = db.enqueue("Order", "2")
    with db.connect() as program:
        notices = []
        program.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        assert program.execute("SELECT * FROM outbox.claim('crm')").fetchall() == []
    assert notices == ['sink "crm" gives out nothing while earlier leases last']
    assert details(db, event, "waits")[0].startswith("for the end of leases, at ")
    state, detail, hint = db.doctor("sink crm")
    assert state == "warning" and "It gives out nothing before " in detail
    assert str(token) in db.paste(hint)
    db.sql("SELECT outbox.ack(%s)", token)
    assert db.doctor("sink crm")[0] == "ok" and details(db, event, "waits") == ["for a program that claims it"]
    assert len(db.sql("SELECT FROM outbox.claim('crm')")) == 1


def test_a_program_blocks_a_key(db, keeps):
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER crm FOREIGN DATA WRAPPER outbox_manual")
    first, second = db.enqueue("Order", "1"), db.enqueue("Order", "1")
    ((token,),) = db.sql("SELECT DISTINCT token FROM outbox.claim('crm')")
    db.sql("SELECT outbox.nack(%s, %s, 'no paper', retry_in => '100 ms')", token, first)
    taken = wait_until(lambda: db.sql("SELECT token, id::text FROM outbox.claim('crm')"), 20, "the retry")
    assert [event for _, event in taken] == [first, second]
    db.sql("SELECT outbox.ack(%s)", taken[0][0])
    assert steps(db, second) == ["routed", "was blocked", "delivered"] and steps(db, first) == ["routed", "attempt 1 failed", "delivered"]


def test_failures_of_a_week_ago_leave(db, receiver):
    db.sql("""INSERT INTO outbox_internal.failed_attempts (day, event_id, position, sink, attempt, ended_at, error)
              SELECT outbox_internal.failure_day(now() + n * interval '1 day'), gen_random_uuid(), 1, 'crm', 1, now() - n * interval '7 days', 'x' FROM generate_series(0, 1) AS n""")
    db.sql("SELECT outbox.run_maintenance()")
    assert db.value("SELECT count(*) FROM outbox_internal.failed_attempts") == 1, "only tomorrow's table is emptied"

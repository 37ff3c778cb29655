"""Events that are larger than their sink takes and are in the table all the same: restored, enqueued before the sink, or before a change of its
options. No process makes their text: they are dead letters, and what is behind them is delivered."""

from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import SECRET, Receiver

NUMBERS = "(SELECT jsonb_agg('1e131071'::jsonb) FROM generate_series(1, {}))"  # 12 bytes each, and 131,074 as text
NESTED = "(repeat('[', {0}) || repeat(']', {0}))::jsonb"
HEADERS = "(SELECT jsonb_object_agg(n::text, '1e131071'::jsonb) FROM generate_series(1, 5000) AS n)"
WORKER = "SELECT pid FROM outbox.workers WHERE database = current_database()"
ODD = {"numbers": ("payload", NUMBERS.format(7000)), "deep": ("payload", NESTED.format(5000)), "headers": ("headers", HEADERS),
       "bytes": ("payload_bytes", "decode(repeat('00', 20000000), 'hex')")}
REASONS = {"numbers": "payload of the event is too large: As it is sent, it has more than the 16777216 bytes that are allowed.",
           "deep": "JSON of the event is nested too deeply: At most 1000 levels of arrays and objects are allowed.",
           "headers": "headers, names and keys of the event are too large: Together they have more than the 1048576 bytes that are allowed.",
           "bytes": "payload of the event is too large: As it is sent, it has 20000000 bytes, and at most 16777216 are allowed."}


def peak_memory(pid: int) -> int:
    """In MB, since the process started or reset it."""
    return next(int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith("VmHWM")) // 1024


def own_memory(pid: int) -> int:
    """In MB, without what the server's processes share."""
    return next(int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith("RssAnon")) // 1024


def restore(db: Database, key: str, column: str, value: str, sink: str = "'crm'") -> None:
    """As a dump does it: the row has its position and its sink, and is not checked."""
    db.sql(f"INSERT INTO outbox.events (aggregate_type, aggregate_id, partition_key, event_type, position, sink, origin, {column}) "
           f"SELECT 'Order', %s, %s, 'odd', nextval('outbox.events_position'), {sink}, origin, {value} FROM outbox_internal.library()", key, key)


def failed(db: Database) -> dict[str, str]:
    return dict(db.sql("SELECT aggregate_id, last_error FROM outbox.events WHERE status = 'FAILED'"))


def behind_each_is_delivered(db: Database, receiver: Receiver) -> None:
    wait_until(lambda: db.pending() == 0, 30, lambda: f"the others: {db.sql('SELECT aggregate_id, status, last_error FROM outbox.events')}")
    assert failed(db) == REASONS
    assert sorted(receiver.payloads()) == sorted(ODD)


def test_rows_that_no_process_could_render_are_dead_letters(db, receiver):
    db.webhook_sink("crm", receiver, SECRET)
    db.send("warm", 0)
    wait_until(lambda: db.pending() == 0, 20, "a first event")
    receiver.clear()
    db.sql("SELECT outbox.pause('crm')")
    for key, (column, value) in ODD.items():
        restore(db, key, column, value)
        db.enqueue("Order", key, payload=f'"{key}"')
    worker = db.value(WORKER)
    before = peak_memory(worker)
    db.sql("SELECT outbox.resume('crm')")
    behind_each_is_delivered(db, receiver)
    assert db.value(WORKER) == worker and peak_memory(worker) < before + 200
    assert {attempts for (attempts,) in db.sql("SELECT attempts FROM outbox.events")} == {1}
    assert db.value("SELECT publish_failures_total FROM outbox.failure_metrics WHERE sink = 'crm' AND reason = 'too_large'") == len(ODD)


def test_rows_that_no_session_could_render_do_not_stop_a_claim(db):
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER own FOREIGN DATA WRAPPER outbox_manual")
    for key, (column, value) in ODD.items():
        restore(db, key, column, value, "'own'")
        db.enqueue("Order", key, payload=f'"{key}"')
    db.enqueue("Order", "other", payload='"other"')
    with db.connect() as session:
        session.execute("SET client_encoding = LATIN1")  # the server converts each text before it returns the first
        claimed = session.execute("SELECT aggregate_id, payload FROM outbox.claim('own') ORDER BY 1").fetchall()
        pid = session.info.backend_pid
        assert claimed == [(key, key) for key in sorted([*ODD, "other"])]
        assert peak_memory(pid) < 300
    assert failed(db) == REASONS
    assert db.value("SELECT count(*) FROM outbox.story((SELECT id FROM outbox.events WHERE aggregate_id = 'deep' AND status = 'FAILED')) "
                    "WHERE detail LIKE '%%nested too deeply%%'") > 0


def test_an_event_that_the_sink_takes_by_a_new_option_is_redriven(db, receiver):
    db.webhook_sink("crm", receiver, SECRET, max_payload="1MB", on_dead_letter="block")
    db.sql("SELECT outbox.pause('crm')")
    db.sql("SELECT outbox.enqueue('Order', '1', 'large', to_jsonb(repeat('x', 1000000)))")
    db.enqueue("Order", "1", payload='"behind"')
    db.set_sink("crm", max_payload="500kB")
    db.sql("SELECT outbox.resume('crm')")
    wait_until(lambda: db.sink("pending, blocked, dead") == (1, 1, 1), 20, lambda: f"a dead letter and what it holds: {db.sql('TABLE outbox.sinks')}")
    db.set_sink("crm", max_payload="1000002")
    assert db.value("SELECT outbox.redrive(id) FROM outbox.events WHERE status = 'FAILED'")
    wait_until(lambda: db.pending() == 0, 20, "both")
    assert receiver.payloads() == ["x" * 1000000, "behind"]


def test_an_event_that_waited_for_its_sink(db, receiver):
    """Without a sink, a payload may be as large as any sink takes."""
    db.sql(f"SELECT outbox.enqueue('Order', '1', 'large', {NUMBERS.format(200)})")
    db.enqueue("Order", "1", payload='"behind"')
    db.webhook_sink("crm", receiver, SECRET)
    wait_until(lambda: db.pending() == 0, 20, lambda: f"the other: {db.sql('SELECT aggregate_id, status, sink, last_error FROM outbox.events')}")
    assert failed(db) == {"1": REASONS["numbers"]}
    assert receiver.payloads() == ["behind"]


def test_headers_that_are_too_large_to_be_compared(db, receiver):
    """An event that waits for a sink is routed by its headers: those that are too large match nothing."""
    restore(db, "headers", *ODD["headers"], sink="NULL")
    db.webhook_sink("tenant", receiver, SECRET, match='{"1": "x"}')
    db.send("other", 1)
    db.webhook_sink("crm", receiver, SECRET)
    wait_until(lambda: db.pending() == 0, 20, lambda: f"the other: {db.sql('SELECT aggregate_id, status, sink, last_error FROM outbox.events')}")
    assert failed(db) == {"headers": REASONS["headers"]}


def test_memory_of_a_large_event_is_given_back(db, receiver):
    db.webhook_sink("crm", receiver, SECRET, max_payload="100MB", format="raw")
    db.send("warm", 0)
    wait_until(lambda: db.pending() == 0, 20, "a first event")
    worker = db.value(WORKER)
    before = own_memory(worker)
    for call in ("enqueue_bytes('Order', '1', 'x', to_jsonb(repeat('x', 60000000))::text::bytea, 'application/json')", "enqueue('Order', '2', 'x', to_jsonb(repeat('x', 60000000)))"):
        db.sql(f"SELECT outbox.{call}")
        wait_until(lambda: db.pending() == 0, 30, "the event")
        wait_until(lambda: own_memory(worker) < before + 30, 10, lambda: f"its memory: {own_memory(worker)} MB, and {before} MB before")
    assert db.value(WORKER) == worker

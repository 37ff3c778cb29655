"""Dead letters: their effect on their keys, and redrives."""

import time
from pathlib import Path

import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import HANG, OK, SECRET, Status, status

MORTAL = {"retry": "50ms", "max_attempts": "2"}
HOLD = MORTAL | {"on_dead_letter": "block"}


class Endpoint:
    """The receiver, which refuses the events (key, n) in `bad`; it answers those in `slow` when it is told to."""

    def __init__(self, receiver):
        self.receiver, self.bad, self.slow = receiver, set(), set()
        receiver.mode = lambda delivery: HANG if event_of(delivery) in self.slow else self.judge(delivery)

    def judge(self, delivery) -> Status:
        return Status(400 if event_of(delivery) in self.bad else 200)

    def answer_slow(self) -> None:
        self.receiver.release(self.judge)

    def numbers(self, key: str) -> list[int]:
        return self.receiver.numbers(key)


def event_of(delivery) -> tuple[str, int]:
    data = delivery.json()["data"]
    return data["key"], data["n"]


@pytest.fixture
def endpoint(receiver):
    return Endpoint(receiver)


def failed(db) -> int:
    return db.value("SELECT count(*) FROM outbox.events_failed")


def wait_failed(db, count: int = 1) -> None:
    wait_until(lambda: failed(db) == count, 20, lambda: f"{count} dead letters: {db.sql('SELECT status, last_error FROM outbox.events')}")


def wait_recorded(db) -> None:
    db.wait_empty()


def wait_numbers(endpoint, key: str, numbers: list[int]) -> None:
    wait_until(lambda: len(endpoint.numbers(key)) >= len(numbers), 20, lambda: f"{numbers}, got {endpoint.numbers(key)}")
    assert endpoint.numbers(key) == numbers


def stays_so(db) -> None:
    """Waits longer than the safety poll, which looks at every key."""
    polled = db.value("SELECT clock_timestamp()")
    time.sleep(1.2)
    wait_until(lambda: db.value("SELECT last_loop_at > %s + interval '1.1 s' FROM outbox.workers WHERE database = current_database()",
                                polled), 20, "the worker to look again")


def redrive(db, event: str, *more) -> tuple[bool, str]:
    """The result of a redrive, and the text of its warning."""
    notices = []
    with db.connect() as connection:
        connection.add_notice_handler(lambda d: notices.append(f"{d.message_primary} {d.message_detail} {d.message_hint}"))
        done = connection.execute(f"SELECT outbox.redrive(%s{', %s' * len(more)})", [event, *more]).fetchone()[0]
    return done, " ".join(notices)


# ---- on_dead_letter 'block' -------------------------------------------------------------------------------------------


@pytest.fixture
def held(db, endpoint):
    """The first event of key k is a dead letter and blocks events 2 and 3. Returns its id."""
    db.webhook_sink("crm", endpoint.receiver, SECRET, **HOLD)
    endpoint.bad = {("k", 1)}
    first = db.send("k", 1)
    db.send("k", 2)
    db.send("k", 3)
    wait_failed(db)
    endpoint.bad = set()
    wait_until(lambda: db.sql("SELECT pending, blocked, dead FROM outbox.sinks") == [(2, 2, 1)], 20, "held rows")
    return first


def test_hold_blocks_its_key_alone_also_after_a_restart_and_redrive_restores_the_order(db, pg, endpoint, held):
    db.send("other", 1)
    wait_numbers(endpoint, "other", [1])
    [(status, detail, hint)] = db.sql("""SELECT status, detail, hint FROM outbox.doctor() WHERE "check" = 'sink crm'""")
    assert status == "warning" and "2 wait" in detail
    db.disconnect()
    pg.restart()
    db.send("k", 4)
    db.send("other", 2)
    wait_numbers(endpoint, "other", [1, 2])
    stays_so(db)
    assert endpoint.numbers("k") == []

    db.paste(hint)  # the hint of outbox.doctor()
    wait_numbers(endpoint, "k", [1, 2, 3, 4])
    wait_recorded(db)
    assert failed(db) == 0
    assert db.value("SELECT redriven_late FROM outbox.sinks") == 0


def test_hold_of_keys_with_nothing_behind_the_dead_letter(db, pg, endpoint):
    """No marked row shows these dead letters: key a gets its next event after the failure, key b after a restart."""
    db.webhook_sink("crm", endpoint.receiver, SECRET, **HOLD | {"max_attempts": "1"})
    endpoint.bad = {("a", 1), ("b", 1)}
    for key in "ab":
        db.send(key, 1)
    wait_failed(db, 2)
    db.send("a", 2)
    db.send("other", 1)
    wait_numbers(endpoint, "other", [1])
    db.disconnect()
    pg.restart()
    db.send("b", 2)
    db.send("other", 2)
    wait_numbers(endpoint, "other", [1, 2])
    wait_until(lambda: db.sql("SELECT blocked FROM outbox.sinks") == [(2,)], 20, "both to be held")
    assert endpoint.numbers("a") == endpoint.numbers("b") == []
    db.sql("DELETE FROM outbox.events WHERE status = 'FAILED'")
    wait_numbers(endpoint, "a", [2])
    wait_numbers(endpoint, "b", [2])


def dead_letters(db, count: int) -> None:
    """As a restore inserts them: number 1 of the keys k1, k2, …"""
    db.sql(f"""INSERT INTO outbox.events (aggregate_type, aggregate_id, partition_key, event_type, payload, position, sink, origin, attempts,
                                          last_attempt_at, last_error, status)
               SELECT 'Order', key, key, 'order.changed', jsonb_build_object('key', key, 'n', 1), nextval('outbox.events_position'), 'crm',
                      (SELECT origin FROM outbox.events_pending LIMIT 1), 1, now(), 'HTTP 422', 'FAILED'
               FROM generate_series(1, {count}) AS n CROSS JOIN LATERAL (SELECT 'k' || n AS key) AS k""")


@pytest.fixture
def switch(db, pg):
    """Stops the worker, or starts it and returns its process id."""
    def set_enabled(statement: str) -> None:
        with db.connect() as admin:
            admin.execute(statement)
        pg.reload()

    def workers() -> list[tuple[int]]:
        return db.sql("SELECT pid FROM outbox.workers WHERE database = current_database()")

    def switch(on: bool) -> int | None:
        if on:
            set_enabled("ALTER SYSTEM RESET outbox.enabled")
            return wait_until(workers, 20, "the worker", interval=0.002)[0][0]
        set_enabled("ALTER SYSTEM SET outbox.enabled = off")
        wait_until(lambda: not workers(), 20, "the worker to end")
    yield switch
    set_enabled("ALTER SYSTEM RESET outbox.enabled")


@pytest.fixture
def many_held(db, endpoint, switch):
    """No worker runs, and there are so many dead letters, of which the next one has no other trace."""
    def make(count: int) -> None:
        db.webhook_sink("crm", endpoint.receiver, SECRET, **HOLD)
        switch(False)
        db.send("other", 1)
        dead_letters(db, count)
    return make


def test_hold_of_more_dead_letters_than_a_round_reads(db, endpoint, many_held, switch):
    """Events of their keys wait from the first round on, wherever in the table the dead letter is, and also when it is redriven at once."""
    many_held(9000)
    keys = ("k1", "k4500", "k8999", "k9000")
    for key in keys:
        db.send(key, 2)
    switch(True)
    db.sql("SELECT outbox.redrive(id) FROM outbox.events WHERE status = 'FAILED' AND partition_key = 'k8999'")
    wait_numbers(endpoint, "k8999", [1, 2])
    wait_numbers(endpoint, "other", [1])
    wait_until(lambda: db.sql("SELECT blocked FROM outbox.sinks") == [(3,)], 20, "the others to be held")
    stays_so(db)
    assert [endpoint.numbers(key) for key in keys] == [[], [], [1, 2], []]
    db.sql("SELECT outbox.redrive(id) FROM outbox.events WHERE status = 'FAILED' AND partition_key = ANY (%s)", list(keys))
    for key in keys:
        wait_numbers(endpoint, key, [1, 2])
    wait_recorded(db)
    assert failed(db) == 9000 - len(keys)


def test_hold_lets_the_events_before_the_dead_letter_go(db, endpoint, many_held, switch):
    """They are marked, because they waited for an event that is gone, and the dead letter is known before they are read."""
    many_held(1)
    for state, n in (("PENDING", 0), ("FAILED", 2), ("PENDING", 3)):
        db.sql("""INSERT INTO outbox.events (aggregate_type, aggregate_id, partition_key, event_type, payload, position, sink, origin, attempts,
                                             last_error, status, blocked_by)
                  SELECT 'Order', 'm', 'm', 'order.changed', jsonb_build_object('key', 'm', 'n', %s::int), nextval('outbox.events_position'), 'crm',
                         (SELECT origin FROM outbox.events_pending LIMIT 1), CASE %s WHEN 'FAILED' THEN 1 ELSE 0 END,
                         CASE %s WHEN 'FAILED' THEN 'HTTP 422' END, %s, CASE %s WHEN 'PENDING' THEN 1 END""", n, state, state, state, state)
    switch(True)
    wait_numbers(endpoint, "m", [0])
    stays_so(db)
    assert endpoint.numbers("m") == [0]
    db.sql("SELECT outbox.redrive(id) FROM outbox.events WHERE status = 'FAILED' AND partition_key = 'm'")
    wait_numbers(endpoint, "m", [0, 2, 3])


def sends_before_all_is_read(db, endpoint, switch) -> None:
    """A worker that starts delivers a first event by less than half of the CPU that it needs until it rests."""
    def spent(worker: int) -> int:
        """The CPU of the worker's main thread, in nanoseconds."""
        return int(Path(f"/proc/{worker}/task/{worker}/schedstat").read_text().split()[0])

    def wait_for_rest(worker: int) -> int:
        wait_until(lambda: db.value("SELECT count(*) FROM outbox_internal.rescan_queue") == 0, 60, "the inserted rows to be looked at")
        ends = []
        wait_until(lambda: ends.append(spent(worker)) or (len(ends) > 1 and ends[-1] - ends[-2] < 20e6), 60, "the worker to rest", interval=0.5)
        return ends[-1]

    wait_for_rest(switch(True))  # the next one reads the table alone
    switch(False)
    db.send("other", 2)
    worker = switch(True)
    wait_until(lambda: 2 in endpoint.numbers("other"), 60, "the event", interval=0.002)
    first = spent(worker)
    assert first < wait_for_rest(worker) / 2


@pytest.mark.timing
def test_a_start_does_not_wait_until_all_dead_letters_are_read(db, endpoint, many_held, switch):
    many_held(200_000)
    sends_before_all_is_read(db, endpoint, switch)


def test_hold_again_when_the_redriven_one_fails_again(db, endpoint, held):
    endpoint.bad = {("k", 1)}
    tries = len(endpoint.receiver.deliveries)
    assert redrive(db, held) == (True, "")
    wait_until(lambda: len(endpoint.receiver.deliveries) == tries + 2, 20, "two more attempts")
    wait_failed(db)
    assert db.value("SELECT attempts FROM outbox.events_failed") == 2
    stays_so(db)
    assert endpoint.numbers("k") == []


@pytest.mark.parametrize("act", [
    "DELETE FROM outbox.events WHERE status = 'FAILED'",
    "UPDATE outbox.events SET status = 'SENT' WHERE status = 'FAILED'",
    "UPDATE outbox.events SET partition_key = 'elsewhere' WHERE status = 'FAILED'",
    "TRUNCATE outbox.events_failed",
    "ALTER SERVER crm OPTIONS (SET on_dead_letter 'continue')",
])
def test_what_releases_a_held_key(db, endpoint, held, act):
    wait_until(lambda: db.value("SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox.events_sent'::regclass") > 3, 20, "days")
    db.sql(act)
    wait_numbers(endpoint, "k", [2, 3])
    db.send("k", 4)
    wait_numbers(endpoint, "k", [2, 3, 4])


def test_hold_begins_with_alter_server(db, endpoint):
    db.webhook_sink("crm", endpoint.receiver, SECRET, **MORTAL)
    endpoint.bad = {("k", 1)}
    db.send("k", 1)
    wait_failed(db)
    db.sql("ALTER SERVER crm OPTIONS (ADD on_dead_letter 'block')")
    db.send("k", 2)
    db.send("other", 1)
    wait_numbers(endpoint, "other", [1])
    wait_until(lambda: db.sql("SELECT blocked FROM outbox.sinks") == [(1,)], 20, "the key to be held")
    stays_so(db)
    assert endpoint.numbers("k") == []


def test_hold_with_two_dead_letters_of_one_key(db, endpoint, held):
    """The second dead letter of a key, made by a user, blocks the later events when the first has been delivered."""
    db.sql("UPDATE outbox.events SET status = 'FAILED' WHERE payload->>'n' = '3'")
    db.send("k", 4)
    assert redrive(db, held)[0]
    wait_numbers(endpoint, "k", [1, 2])
    stays_so(db)
    assert endpoint.numbers("k") == [1, 2]
    db.sql("DELETE FROM outbox.events WHERE status = 'FAILED'")
    wait_numbers(endpoint, "k", [1, 2, 4])
    wait_recorded(db)


def test_hold_and_redrive_with_kafka(db, kafka, consume, endpoint, aggregate):
    """An event that is too large for Kafka but not for the other sink: a dead letter in the Kafka sink, corrected
    and redriven."""
    db.kafka_sink("main", kafka, on_dead_letter="block")
    db.webhook_sink("crm", endpoint.receiver, SECRET)
    consumer = consume(f"outbox.event.{aggregate}")
    first = db.enqueue(aggregate, "k", "e", '{"key": "k", "n": 1, "text": "' + "x" * 1_100_000 + '"}')
    wait_failed(db)
    second = db.enqueue(aggregate, "k", "e", '{"key": "k", "n": 2}')
    other = db.enqueue(aggregate, "other", "e", '{"key": "other", "n": 1}')
    assert [record.id for record in consumer.take(1)] == [other]
    wait_until(lambda: db.sql("SELECT sink FROM outbox.events_pending WHERE blocked_by IS NOT NULL") == [("main",)], 20, "a held row")
    wait_numbers(endpoint, "k", [1, 2])
    db.sql("UPDATE outbox.events SET payload = payload - 'text' WHERE status = 'FAILED'")
    assert redrive(db, first) == (True, "")
    assert [record.id for record in consumer.take(2)] == [first, second]
    wait_recorded(db)
    wait_numbers(endpoint, "k", [1, 2])


# ---- redrive -----------------------------------------------------------------------------------------------------


@pytest.fixture
def dead(db, endpoint):
    """The first event of key k is a dead letter, and its key continues. Returns its id."""
    db.webhook_sink("crm", endpoint.receiver, SECRET, **MORTAL)
    endpoint.bad = {("k", 1)}
    first = db.send("k", 1)
    wait_failed(db)
    endpoint.bad = set()
    return first


def test_redrive_goes_before_what_has_not_gone(db, endpoint, dead):
    """Events 2 and 3 are pending because the endpoint is down."""
    endpoint.receiver.stop()
    db.send("k", 2)
    wait_until(lambda: db.value("SELECT state FROM outbox.sinks") == "circuit open", 20, "an open circuit")
    db.send("k", 3)
    created = db.value("SELECT created_at FROM outbox.events_failed")
    assert redrive(db, dead) == (True, "")
    assert db.sql("SELECT attempts, last_error, created_at FROM outbox.events WHERE id = %s", dead) == [(0, "HTTP 400", created)]
    endpoint.receiver.start()
    wait_numbers(endpoint, "k", [1, 2, 3])
    wait_recorded(db)


def test_redrive_after_the_sink_was_renamed(db, endpoint, dead):
    db.sql("ALTER SERVER crm RENAME TO sales")
    db.sql("SELECT outbox.pause('sales')")
    db.sql("SELECT outbox.enqueue('Order', 'k', 'e', '{}', sink => 'sales', id => %s)", dead)
    done, warning = redrive(db, dead, "sales")
    assert not done and "another one with its id is pending" in warning
    db.sql("DELETE FROM outbox.events WHERE status = 'PENDING'")
    assert redrive(db, dead, "sales") == (True, "")
    assert db.sql("SELECT sink FROM outbox.events") == [("sales",)]
    db.sql("SELECT outbox.resume('sales')")
    wait_numbers(endpoint, "k", [1])
    wait_recorded(db)


def test_redrive_after_later_ones_needs_force(db, pg, endpoint, dead):
    """After a restart the mark is still there, and the worker still knows that there are dead letters to mark."""
    db.disconnect()
    pg.restart()
    db.send("k", 2)
    db.send("k", 3)
    wait_numbers(endpoint, "k", [2, 3])
    wait_recorded(db)
    assert db.value("SELECT (f.overtaken_by - f.position) / seqincrement FROM outbox.events_failed f, pg_sequence WHERE seqrelid = 'outbox.events_position'::regclass") == 1
    done, warning = redrive(db, dead)
    assert not done and "later events of its key have been delivered" in warning
    force = warning[warning.index("SELECT"):]
    assert force == f"SELECT outbox.redrive('{dead}', 'crm', force => true);"
    assert failed(db) == 1

    assert db.sql(force) == [(True,)]
    wait_numbers(endpoint, "k", [2, 3, 1])
    wait_recorded(db)
    wait_until(lambda: db.sql("SELECT redriven_late, delivered FROM outbox.sinks") == [(1, 3)], 20, "it to be counted")


def test_redrive_by_hand_goes_late(db, endpoint, dead):
    db.send("k", 2)
    wait_numbers(endpoint, "k", [2])
    wait_recorded(db)
    db.sql("UPDATE outbox.events SET status = 'PENDING', attempts = 0 WHERE status = 'FAILED'")
    wait_numbers(endpoint, "k", [2, 1])
    wait_until(lambda: db.value("SELECT redriven_late FROM outbox.sinks") == 1, 20, "it to be counted")


def test_redrive_while_a_later_one_is_in_the_air_and_arrives(db, endpoint, dead):
    """The redriven event is too late: it becomes a dead letter again, with the reason, and is never sent out of
    order."""
    endpoint.slow = {("k", 2)}
    db.send("k", 2)
    wait_until(lambda: endpoint.receiver.open_requests, 20, "the later one to be in the air")
    assert redrive(db, dead) == (True, "")
    db.send("k", 3)
    endpoint.answer_slow()
    wait_numbers(endpoint, "k", [2, 3])
    wait_failed(db)
    wait_recorded(db)
    stays_so(db)
    assert endpoint.numbers("k") == [2, 3]
    [(error, attempts)] = db.sql("SELECT last_error, attempts FROM outbox.events_failed")
    assert error.startswith("redriven too late: the later event of its key") and error.endswith("before that: HTTP 400")
    assert attempts == 0
    assert not redrive(db, dead)[0]
    assert redrive(db, dead, "crm", True)[0]
    wait_numbers(endpoint, "k", [2, 3, 1])


def test_redrive_while_a_later_one_is_in_the_air_and_fails(db, endpoint, dead):
    """The redriven event is sent first."""
    endpoint.slow = endpoint.bad = {("k", 2)}
    db.send("k", 2)
    wait_until(lambda: endpoint.receiver.open_requests, 20, "the later one to be in the air")
    assert redrive(db, dead) == (True, "")
    wait_until(lambda: db.value("SELECT count(*) FROM outbox_internal.rescan_queue") == 0, 20, "the worker to have seen it")
    endpoint.answer_slow()
    endpoint.bad = endpoint.slow = set()
    wait_numbers(endpoint, "k", [1, 2])
    wait_recorded(db)


def test_redrive_in_a_transaction_that_lasts_longer_than_a_delivery(db, endpoint, dead):
    """No delivery waits for the transaction, and no event that is delivered meanwhile is forgotten."""
    with db.connect(autocommit=False) as person:
        assert person.execute("SELECT outbox.redrive(%s)", [dead]).fetchone()[0]
        db.send("k", 2)
        db.send("other", 1)
        wait_numbers(endpoint, "k", [2])
        wait_until(lambda: db.sql("SELECT partition_key FROM outbox.events_pending") == [("k",)], 20, "the other to be recorded")
        person.commit()
    wait_recorded(db)
    wait_failed(db)
    stays_so(db)
    assert endpoint.numbers("k") == [2]
    assert "redriven too late" in db.value("SELECT last_error FROM outbox.events_failed")


def test_redrive_many(db, endpoint):
    """Events that cannot be sent do not stop the others. Of ten keys that are refused in a row, the sink would be to blame."""
    db.webhook_sink("crm", endpoint.receiver, SECRET, **MORTAL)
    keys = [f"k{i}" for i in range(9)]
    endpoint.bad = {(key, n) for key in keys for n in (1, 2)}
    for n in (1, 2):
        for key in keys:
            db.send(key, n)
    wait_failed(db, 18)
    for key in keys[:4]:
        db.send(key, 3)
    wait_until(lambda: all(endpoint.numbers(key) == [3] for key in keys[:4]), 20, "the late ones' keys to go on")
    wait_recorded(db)
    endpoint.bad = set()
    results = db.sql("SELECT partition_key, outbox.redrive(id, sink) FROM outbox.events WHERE status = 'FAILED' ORDER BY id DESC")
    assert {key for key, done in results if not done} == set(keys[:4]) and len(results) == 18
    wait_until(lambda: all(len(endpoint.numbers(key)) == 2 for key in keys[4:]), 20, "the others")
    assert all(endpoint.numbers(key) == [1, 2] for key in keys[4:])
    wait_recorded(db)
    assert failed(db) == 8


def test_redrive_finds_each_event_by_an_index(db):
    """Its statements are planned while no event is pending, and the plan serves for all events of the session."""
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER mine FOREIGN DATA WRAPPER outbox_manual")
    db.sql("VACUUM outbox.events_pending")
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, sink, status, attempts, last_error, last_attempt_at)"
           " SELECT 'Order', n, 'e', 'mine', 'FAILED', 3, 'no', now() FROM generate_series(1, 500) n")
    letters = [row[0] for row in db.sql("SELECT id FROM outbox.events WHERE status = 'FAILED'")]
    with db._connected().transaction():
        assert db.value("SELECT count(*) FILTER (WHERE outbox.redrive(id)) FROM unnest(%s::uuid[]) AS id", letters) == 500
        assert db.sql("SELECT relname, seq_scan, seq_tup_read FROM pg_stat_xact_all_tables"
                      " WHERE schemaname LIKE 'outbox%' AND seq_tup_read > 1000") == []


def test_redrive_of_one_row_of_a_fan_out(db, other, endpoint):
    """Each sink's row is redriven and fails independently."""
    other.mode = status(400)
    db.webhook_sink("crm", endpoint.receiver, SECRET, **MORTAL)
    db.webhook_sink("other", other, SECRET, **HOLD)
    event = db.send("k", 1)
    later = db.send("k", 2)
    wait_numbers(endpoint, "k", [1, 2])
    wait_failed(db)
    assert db.sql("SELECT sink, id::text, overtaken_by FROM outbox.events_failed") == [("other", event, None)]
    done, warning = redrive(db, event, "crm")
    assert not done and "no dead letter" in warning
    other.mode = OK
    assert redrive(db, event) == (True, "")
    wait_until(lambda: len(other.accepted()) == 2, 20, "both")
    assert [d.id for d in other.accepted()] == [event, later]
    wait_recorded(db)
    assert endpoint.numbers("k") == [1, 2]

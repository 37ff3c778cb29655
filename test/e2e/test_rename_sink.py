"""ALTER SERVER … RENAME: each event reaches the server for which it was routed, in order, whatever the servers are
called meanwhile."""

import threading

import psycopg
import pytest
from outbox_rig import patient, wait_until
from outbox_rig.receiver import HANG, OK, SECRET, Status

MORTAL = {"retry": "50ms", "max_attempts": "2"}


class Endpoint:
    """The receiver, which refuses the numbers in `bad`."""

    def __init__(self, receiver):
        self.receiver, self.bad = receiver, set()
        receiver.mode = lambda delivery: Status(400 if delivery.json()["data"] in self.bad else 200)

    def got(self) -> list[int]:
        return numbers(self.receiver)


def numbers(receiver) -> list[int]:
    return [delivery.json()["data"] for delivery in receiver.accepted()]


def by_path(receiver) -> dict[str, list]:
    got: dict[str, list] = {}
    for delivery in receiver.accepted():
        got.setdefault(delivery.path, []).append(delivery.json()["data"])
    return got


def enqueue(db, n: int, sink: str | None = None) -> str:
    return db.value("SELECT outbox.enqueue('Order', 'k', 'e', to_jsonb(%s::int), sink => %s)", n, sink)


def sink_at(db, receiver, name: str, path: str, **options) -> None:
    db.webhook_sink(name, receiver.url.replace("/hook", path), SECRET, **options)


def run(db, *statements: str) -> None:
    for statement in statements:
        db.sql(statement)


def in_one_transaction(db, *statements: str) -> None:
    with db.connect(autocommit=False) as session:
        for statement in statements:
            session.execute(statement)
        session.commit()


def wait_dead(db, n: int = 1) -> None:
    wait_until(lambda: db.value("SELECT count(*) FROM outbox.events_failed") == n, 20, lambda: db.sql("TABLE outbox.events"))


@pytest.fixture
def endpoint(receiver):
    return Endpoint(receiver)


def test_a_dead_letter_goes_on_blocking_its_key(db, pg, endpoint):
    """Of two dead letters the first is redriven: its key goes on as far as the second, also for a new worker."""
    db.webhook_sink("crm", endpoint.receiver, SECRET, on_dead_letter="continue", **MORTAL)
    endpoint.bad |= {1, 2}
    first, second = enqueue(db, 1), enqueue(db, 2)
    wait_dead(db, 2)
    db.set_sink("crm", on_dead_letter="block")
    db.sql("ALTER SERVER crm RENAME TO sales")
    enqueue(db, 3)
    wait_until(lambda: db.sink("blocked", "sales") == (1,), 20, lambda: db.sql("TABLE outbox.events"))
    endpoint.bad = {2}
    assert db.value("SELECT outbox.redrive(%s)", first)
    wait_until(lambda: db.sink("delivered", "sales") == (1,), 20, lambda: db.sql("TABLE outbox.events"))
    db.sql("SELECT outbox.enqueue('Order', 'other', 'e', '9')")
    wait_until(lambda: db.sink("delivered", "sales") == (2,), 20, lambda: db.sql("TABLE outbox.events"))
    assert endpoint.got() == [1, 9] and db.sink("blocked", "sales") == (1,)
    db.disconnect()
    pg.restart()
    enqueue(db, 4)
    wait_until(lambda: db.sink("blocked", "sales") == (2,), 20, lambda: f"{endpoint.got()}, {db.sql('TABLE outbox.events')}")
    endpoint.bad.clear()
    assert db.value("SELECT outbox.redrive(%s)", second)
    db.wait_empty()
    assert endpoint.got() == [1, 9, 2, 3, 4]


def test_what_overtook_a_dead_letter_is_known(db, endpoint):
    db.webhook_sink("crm", endpoint.receiver, SECRET, **MORTAL)
    endpoint.bad.add(1)
    dead = enqueue(db, 1)
    wait_dead(db)
    db.sql("ALTER SERVER crm RENAME TO sales")
    enqueue(db, 2)
    db.wait_empty()
    assert db.sql("SELECT sink, (overtaken_by - position) / seqincrement FROM outbox.events_failed, pg_sequence"
                  " WHERE seqrelid = 'outbox.events_position'::regclass") == [("sales", 1)]
    said = []
    with db.connect() as session:
        session.add_notice_handler(lambda notice: said.append((notice.message_primary, notice.message_hint)))
        assert session.execute("SELECT outbox.redrive(%s)", [dead]).fetchone() == (False,)
    [(what, hint)] = said
    assert "later events of its key have been delivered" in what
    endpoint.bad.clear()
    assert db.sql(hint[hint.index("SELECT"):]) == [(True,)]
    db.wait_empty()
    assert endpoint.got() == [2, 1]


def test_two_sinks_that_swap_their_names_keep_their_events(db, receiver):
    """In one transaction, while requests of both are in flight and events wait behind them."""
    receiver.mode = HANG
    for name in ("a", "b"):
        sink_at(db, receiver, name, f"/{name}", events="none")
    for n, sink in enumerate("abab"):
        enqueue(db, n, sink)
    wait_until(lambda: receiver.open_requests == 2, 20, "a request of each")
    in_one_transaction(db, "ALTER SERVER a RENAME TO c", "ALTER SERVER b RENAME TO a", "ALTER SERVER c RENAME TO b")
    enqueue(db, 4, "b")
    enqueue(db, 5, "a")
    receiver.mode = OK
    receiver.release()
    db.wait_empty()
    assert {path: list(dict.fromkeys(got)) for path, got in by_path(receiver).items()} == {"/a": [0, 2, 4], "/b": [1, 3, 5]}


@pytest.mark.parametrize("together", [True, False])
def test_a_new_sink_of_the_old_name_gets_nothing_of_the_renamed_one(db, rig, receiver, together):
    db.webhook_sink("crm", receiver, SECRET, events="none")
    db.sql("SELECT outbox.pause('crm')")
    enqueue(db, 1, "crm")
    other = rig.receiver()
    create = f"CREATE SERVER crm FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url '{other.url}', allow_http 'true', allow_networks '127.0.0.0/8', events 'none')"
    statements = ["ALTER SERVER crm RENAME TO crm_v1", create]
    try:
        (in_one_transaction if together else run)(db, *statements)
        enqueue(db, 2, "crm")
        wait_until(lambda: numbers(other) == [2], 20, lambda: (numbers(other), numbers(receiver)))
        db.sql("SELECT outbox.resume('crm_v1')")
        db.wait_empty()
        assert (numbers(other), numbers(receiver)) == ([2], [1])
    finally:
        other.stop()


def test_who_may_only_create_sinks_takes_no_backlog(db, receiver):
    sink_at(db, receiver, "crm", "/old", events="none")
    db.sql("SELECT outbox.pause('crm')")
    enqueue(db, 1, "crm")
    db.sql("CREATE EXTENSION outbox_manual")
    run(db, "ALTER SERVER crm RENAME TO crm_v1", "CREATE ROLE outbox_rename_maker", "GRANT USAGE ON FOREIGN DATA WRAPPER outbox_manual TO outbox_rename_maker",
           "GRANT USAGE ON SCHEMA outbox TO outbox_rename_maker", "GRANT EXECUTE ON FUNCTION outbox.claim TO outbox_rename_maker")
    try:
        with db.connect() as session:
            session.execute("SET ROLE outbox_rename_maker")
            session.execute("CREATE SERVER crm FOREIGN DATA WRAPPER outbox_manual OPTIONS (events 'none')")
            assert session.execute("SELECT id FROM outbox.claim('crm')").fetchall() == []
        db.sql("SELECT outbox.resume('crm_v1')")
        db.wait_empty()
        assert by_path(receiver) == {"/old": [1]}
    finally:
        run(db, "DROP SERVER IF EXISTS crm", "DROP OWNED BY outbox_rename_maker", "DROP ROLE outbox_rename_maker")


def test_an_event_in_flight_is_recorded_and_not_sent_again(db, receiver, other):
    """The worker has the answer while the RENAME is open: it leaves this row, and goes on with others."""
    receiver.mode = HANG
    db.webhook_sink("crm", receiver, SECRET, retention="1d", events="e")
    db.webhook_sink("other", other, SECRET, events="f")
    enqueue(db, 1)
    wait_until(lambda: receiver.open_requests == 1, 20, "a request in flight")
    enqueue(db, 2)
    db.sql("SET lock_timeout = '5s'")
    with db.connect(autocommit=False) as session:
        session.execute("ALTER SERVER crm RENAME TO sales")
        receiver.mode = OK
        receiver.release()
        for n in range(3):
            db.enqueue("Order", "k", "f")
            wait_until(lambda: len(other.accepted()) == n + 1, 20, "an event of the other sink")
        session.commit()
    db.wait_empty()
    assert numbers(receiver) == [1, 2] and len(receiver.deliveries) == 2
    assert db.sql("SELECT sink, status, attempts FROM outbox.events") == [("sales", "SENT", 0)] * 2
    assert db.sink("delivered, pending", "sales") == (2, 0)


def waits(db, pid: int) -> bool:
    return db.value("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s", pid)


class Running:
    """A statement that runs in a session of its own."""

    def __init__(self, db, statement: str):
        self.session = db.connect()
        self.pid = self.session.info.backend_pid
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._run, args=(statement,))
        self.thread.start()
        wait_until(lambda: waits(db, self.pid), 20, f"{statement} to wait")

    def _run(self, statement: str) -> None:
        try:
            self.session.execute(statement)
        except Exception as error:
            self.error = error

    def end(self) -> None:
        self.thread.join(patient(20))
        assert not self.thread.is_alive()
        self.session.close()
        if self.error:
            raise self.error


def test_an_event_of_an_open_transaction_reaches_the_renamed_sink(db, receiver):
    """The RENAME waits for the transactions that have enqueued, and those that are about to wait for the RENAME."""
    sink_at(db, receiver, "crm", "/crm")
    sink_at(db, receiver, "other", "/other", events="none")
    with db.connect(autocommit=False) as late:
        late.execute("SELECT outbox.enqueue('Order', 'k', 'e', '1')")
        rename = Running(db, "ALTER SERVER crm RENAME TO sales; ALTER SERVER other RENAME TO crm")
        later = Running(db, "SELECT outbox.enqueue('Order', 'k', 'e', '2')")
        late.execute("SELECT outbox.enqueue('Order', 'k', 'e', '0', sink => 'crm')")  # it goes on
        late.commit()
    rename.end()
    later.end()
    db.wait_empty()
    assert {path: sorted(got) for path, got in by_path(receiver).items()} == {"/crm": [0, 1, 2]}


def test_a_rename_that_waits_for_one_table_blocks_not_the_other(db, receiver):
    """Others lock both in either order: a deadlock would end one of them."""
    db.webhook_sink("crm", receiver, SECRET)
    with db.connect(autocommit=False) as session:
        session.execute("SELECT FROM outbox.events_failed FOR UPDATE")
        rename = Running(db, "ALTER SERVER crm RENAME TO sales")
        session.execute("SELECT outbox.enqueue('Order', 'k', 'e', '1')")
        session.commit()
    rename.end()
    assert db.sql("SELECT name FROM outbox.sinks") == [("sales",)]
    db.wait_empty()


def test_nobody_waits_for_as_long_as_a_rename_does(db, receiver):
    """While it waits for an open transaction, it asks for the tables again and again, each time for 100 ms."""
    db.webhook_sink("crm", receiver, SECRET)
    with db.connect(autocommit=False) as late, db.connect() as producer:
        late.execute("SELECT outbox.enqueue('Order', 'k', 'e', '1')")
        rename = Running(db, "SET lock_timeout = '5min'; ALTER SERVER crm RENAME TO sales")
        producer.execute(f"SET lock_timeout = '{patient(5):.0f} s'")
        for _ in range(5):
            producer.execute("SELECT outbox.enqueue('Order', 'k', 'e', '2')")
        late.commit()
    rename.end()
    db.wait_empty()


@pytest.mark.parametrize("statement", ["SELECT outbox.enqueue('Order', 'k', 'e', '1', sink => 'crm')", "SELECT outbox.replay('crm', '1 hour')",
                                       "SELECT outbox.claim('crm')"])
def test_a_name_means_its_owner_until_the_swap_is_committed(db, receiver, statement):
    """A session may do there what its rights on that server say. Its event stays with that server."""
    for name in ("mine", "crm"):
        db.sql(f"CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER {name} FOREIGN DATA WRAPPER outbox_manual OPTIONS (events 'none')")
    run(db, "CREATE ROLE outbox_rename_user LOGIN", "GRANT USAGE ON SCHEMA outbox TO outbox_rename_user", "GRANT INSERT ON outbox.events TO outbox_rename_user",
           "GRANT USAGE ON FOREIGN SERVER crm TO outbox_rename_user",
           "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA outbox TO outbox_rename_user")
    try:
        with db.connect(autocommit=False) as session, db.connect() as user:
            user.execute("SET ROLE outbox_rename_user; SET lock_timeout = '5s'")
            for old, new in (("crm", "third"), ("mine", "crm"), ("third", "mine")):
                session.execute(f"ALTER SERVER {old} RENAME TO {new}")
                user.execute(statement)
            session.commit()
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                user.execute(statement)
        assert db.sql("SELECT DISTINCT sink FROM outbox.events") == ([("mine",)] if "enqueue" in statement else [])
    finally:
        run(db, "DROP OWNED BY outbox_rename_user", "DROP ROLE outbox_rename_user")


def test_events_that_come_during_a_swap_reach_the_server_for_which_they_were_enqueued(db, receiver):
    """Its transaction sees its own names, all others the former ones until it is committed."""
    for name in ("a", "b"):
        sink_at(db, receiver, name, f"/{name}", events="none")
        db.sql("SELECT outbox.pause(%s)", name)
    db.sql("SET lock_timeout = '5s'")
    with db.connect(autocommit=False) as session:
        numbers_of = {"a": [], "b": []}
        n, called = 0, {"a": "a", "b": "b"}  # how the transaction calls the server at this path

        def enqueue_everywhere() -> None:
            nonlocal n
            for path in ("a", "b"):
                enqueue(db, n, path)
                session.execute("SELECT outbox.enqueue('Order', 'k', 'e', to_jsonb(%s::int), sink => %s)", [n + 1, called[path]])
                numbers_of[path] += [n, n + 1]
                n += 2

        enqueue_everywhere()
        for path, new in (("a", "c"), ("b", "a"), ("a", "b")):
            session.execute(f"ALTER SERVER {called[path]} RENAME TO {new}")
            called[path] = new
            enqueue_everywhere()
        session.execute("SAVEPOINT one")
        session.execute("ALTER SERVER a RENAME TO x")
        session.execute("ROLLBACK TO one")
        enqueue_everywhere()
        session.commit()
    assert sorted(db.sql("SELECT sink, count(*) FROM outbox.events GROUP BY 1")) == [("a", n // 2), ("b", n // 2)]
    run(db, "SELECT outbox.resume('a')", "SELECT outbox.resume('b')")
    db.wait_empty()
    assert {path: sorted(got) for path, got in by_path(receiver).items()} == {f"/{path}": got for path, got in numbers_of.items()}


@pytest.mark.parametrize("after", [1, 2, 3])
def test_an_event_for_both_that_comes_during_a_swap_reaches_both(db, receiver, after):
    """Its transaction has written a row for each: neither gets the name that the other one still has."""
    for name in ("a", "b"):
        sink_at(db, receiver, name, f"/{name}", events="e")
        db.sql("SELECT outbox.pause(%s)", name)
    with db.connect(autocommit=False) as session:
        for n, (old, new) in enumerate((("a", "c"), ("b", "a"), ("c", "b")), 1):
            session.execute(f"ALTER SERVER {old} RENAME TO {new}")
            if n == after:
                db.sql("SELECT outbox.enqueue('Order', 'k', 'e', '1')")
                db.sql("SELECT outbox.enqueue('Order', 'k', 'e', '2')")
        session.commit()
    assert sorted(db.sql("SELECT sink, payload FROM outbox.events")) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    run(db, "SELECT outbox.resume('a')", "SELECT outbox.resume('b')")
    db.wait_empty()
    assert by_path(receiver) == {"/a": [1, 2], "/b": [1, 2]}


def test_an_event_that_gets_its_second_sink_during_a_swap_reaches_both(db, receiver):
    """The row that the swap has rewritten waits for the name that another transaction's row has."""
    for name in ("a", "b"):
        sink_at(db, receiver, name, f"/{name}", events="none")
        db.sql("SELECT outbox.pause(%s)", name)
    [(id,)] = db.sql("SELECT outbox.enqueue('Order', 'k', 'e', '1', sink => 'a')")
    with db.connect(autocommit=False) as session:
        session.execute("ALTER SERVER a RENAME TO c")
        session.execute("ALTER SERVER b RENAME TO a")
        db.sql("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload, sink) VALUES (%s, 'Order', 'k', 'e', '1', 'b')", id)
        session.execute("ALTER SERVER c RENAME TO b")
        session.commit()
    assert sorted(db.sql("SELECT sink FROM outbox.events")) == [("a",), ("b",)]
    run(db, "SELECT outbox.resume('a')", "SELECT outbox.resume('b')")
    db.wait_empty()
    assert by_path(receiver) == {"/a": [1], "/b": [1]}


def test_an_open_rename_stops_nobody(db, receiver, other):
    """A role with USAGE on one wrapper may leave one open for as long as it likes, also one that is refused."""
    sink_at(db, receiver, "crm", "/crm", events="e")
    with db.role("tenant") as tenant, db.connect(autocommit=False, user=tenant) as session, db.connect() as producer:
        db.sql(f"GRANT USAGE ON FOREIGN DATA WRAPPER outbox_webhook TO {tenant}; GRANT USAGE ON SCHEMA outbox TO {tenant}")
        session.execute("CREATE SERVER mine FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://example.com/', events 'mine')")
        session.commit()
        db.sql("SELECT outbox.pause('mine')")
        producer.execute("SET lock_timeout = '2s'")
        sent = 0

        def nobody_waits() -> None:
            nonlocal sent
            producer.execute("SELECT outbox.enqueue('Order', 'k', 'e', to_jsonb(%s::int)), outbox.enqueue('Order', 'k', 'mine', '1')", [sent])
            producer.execute("SELECT outbox.enqueue('Order', 'k', 'e', to_jsonb(%s::int), sink => 'crm')", [sent + 1])
            producer.execute("SELECT outbox.pause('crm'), outbox.resume('crm')")
            sent += 2
            wait_until(lambda: numbers(receiver) == [*range(sent)], 20, lambda: (numbers(receiver), db.sql("SELECT name, state FROM outbox.sinks")))

        session.execute("ALTER SERVER mine RENAME TO yours")
        nobody_waits()
        session.execute("ALTER SERVER yours RENAME TO ours")
        nobody_waits()
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="cannot PREPARE a transaction that has renamed a sink"):
            session.execute("PREPARE TRANSACTION 'outbox_rename'")
        session.rollback()
        db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER lost FOREIGN DATA WRAPPER outbox_manual OPTIONS (events 'none')")
        db.sql("SELECT outbox.enqueue('Order', 'k', 'e', '1', sink => 'lost')")
        db.sql("DROP SERVER lost")
        session.execute("SAVEPOINT one")
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            session.execute("ALTER SERVER mine RENAME TO lost")
        nobody_waits()
        session.rollback()
        nobody_waits()
        session.execute("ALTER SERVER mine RENAME TO ours")
        nobody_waits()
        session.commit()
    left = [("lost", 1), ("ours", 5)]  # the others are recorded shortly after they arrive
    wait_until(lambda: sorted(db.sql("SELECT sink, count(*) FROM outbox.events WHERE status = 'PENDING' GROUP BY 1")) == left, 20,
               lambda: db.sql("SELECT sink, status, last_error FROM outbox.events"))


def test_a_rename_gives_up_when_a_row_is_locked(db):
    """At the statement, and at the commit, where the row was added meanwhile."""
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER crm FOREIGN DATA WRAPPER outbox_manual")
    for first in (True, False):
        with db.connect(autocommit=False) as person, db.connect(autocommit=False) as session:
            session.execute("SET lock_timeout = '50ms'")
            session.commit()
            if not first:
                db.sql("DELETE FROM outbox.events")
                session.execute("ALTER SERVER crm RENAME TO sales")
            enqueue(db, 1)
            person.execute("SELECT FROM outbox.events FOR UPDATE")
            with pytest.raises(psycopg.errors.LockNotAvailable, match='sink "crm" cannot be renamed now'):
                session.execute("ALTER SERVER crm RENAME TO sales") if first else session.commit()
            session.rollback()
            person.rollback()
    db.sql("ALTER SERVER crm RENAME TO sales")
    assert db.sql("SELECT sink FROM outbox.events") == [("sales",)]


def test_a_rename_gives_up_after_its_lock_timeout(db, receiver):
    """Behind a prepared transaction that has enqueued it would wait forever, and all that enqueue with it."""
    db.webhook_sink("crm", receiver, SECRET)
    with db.connect(autocommit=False) as session:
        session.execute("SELECT outbox.enqueue('Order', 'k', 'e', '1')")
        session.execute("PREPARE TRANSACTION 'outbox_rename'")
    try:
        with db.connect() as session:
            session.execute("SET lock_timeout = '50ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable) as error:
                session.execute("ALTER SERVER crm RENAME TO sales")
        assert error.value.diag.message_primary == 'sink "crm" cannot be renamed now'
        assert "pg_prepared_xacts" in error.value.diag.message_hint
    finally:
        db.sql("COMMIT PREPARED 'outbox_rename'")
    db.sql("ALTER SERVER crm RENAME TO sales")
    db.wait_empty()


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_rename_sees_all_rows_whatever_its_snapshot(db, receiver, isolation):
    db.webhook_sink("crm", receiver, SECRET)
    db.sql("SELECT outbox.pause('crm')")
    with db.connect(autocommit=False) as session:
        session.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
        session.execute("SELECT count(*) FROM outbox.events")
        enqueue(db, 1)
        session.execute("SELECT outbox.enqueue('Order', 'k', 'e', '2')")
        session.execute("ALTER SERVER crm RENAME TO sales")
        session.commit()
    assert db.sql("SELECT DISTINCT sink FROM outbox.events") == [("sales",)]
    db.sql("SELECT outbox.resume('sales')")
    db.wait_empty()
    assert numbers(receiver) == [1, 2]


def test_a_rename_that_is_rolled_back_changes_nothing(db, receiver):
    db.webhook_sink("crm", receiver, SECRET)
    db.sql("SELECT outbox.pause('crm')")
    enqueue(db, 1)
    with db.connect(autocommit=False) as session:
        session.execute("SAVEPOINT one")
        session.execute("ALTER SERVER crm RENAME TO sales")
        session.execute("ROLLBACK TO one")
        session.commit()
    db.sql("SELECT outbox.resume('crm')")
    db.wait_empty()
    assert numbers(receiver) == [1]


def test_a_claim_goes_on_after_a_rename(db):
    """Its lease names the server, and its events have the new name."""
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_manual; CREATE SERVER mine FOREIGN DATA WRAPPER outbox_manual OPTIONS (retry '0s*3', on_dead_letter 'block')")
    for n in range(3):
        enqueue(db, n)
    [(token, first), (_, second), _] = db.sql("SELECT token, id FROM outbox.claim('mine', 3, '1 hour')")
    run(db, "ALTER SERVER mine RENAME TO yours", "CREATE SERVER mine FOREIGN DATA WRAPPER outbox_manual OPTIONS (events 'none')")
    assert db.sql("SELECT id FROM outbox.claim('mine')") == db.sql("SELECT id FROM outbox.claim('yours')") == []
    assert db.value("SELECT outbox.ack(%s, ARRAY[%s]::uuid[])", token, first) == 1
    assert db.value("SELECT outbox.nack(%s, %s, 'no', give_up => true)", token, second) == "FAILED"
    assert db.sql("SELECT id FROM outbox.claim('yours')") == [], "the dead letter blocks its key"
    assert db.value("SELECT outbox.redrive(%s, 'yours')", second)
    assert [payload for (payload,) in db.sql("SELECT payload FROM outbox.claim('yours')")] == [1, 2]

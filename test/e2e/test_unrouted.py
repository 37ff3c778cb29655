"""Events that no sink matches wait; when they are routed again, and what they block meanwhile."""

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from outbox_rig import wait_until
from outbox_rig.receiver import SECRET

SOON = 20


@pytest.fixture
def got(db, rig):
    """got("name", events="glob"): creates a sink; got["name"]() then returns the events that arrived there."""
    class Got(dict):
        keys: dict = {}

        def by_key(self, name: str, last: str | None = None) -> dict[int, list[str]]:
            """The types that arrived at the sink, by key; with `last` only of keys where that type has arrived."""
            found: dict[int, list[str]] = {}
            for key, event_type in self.keys[name]():
                found.setdefault(key, []).append(event_type)
            return {key: types for key, types in found.items() if last is None or last in types}

        def __call__(self, name: str, **options: str) -> None:
            receiver = rig.receiver(secret=SECRET)
            receivers.append(receiver)
            self.keys[name] = lambda: [(d.json()["data"], d.json()["type"]) for d in receiver.accepted()]
            self[name] = lambda: [d.json()["type"] for d in receiver.accepted()]
            db.webhook_sink(name, receiver, SECRET, **options)

        def a_and_b(self, **options: str) -> None:
            """Creates two sinks in one transaction."""
            db.sql("BEGIN")
            self("a", **options)
            self("b", **options)
            db.sql("COMMIT")

    receivers: list = []
    yield Got()
    for receiver in receivers:
        receiver.stop()


def deliver(db, event_type: str) -> None:
    db.sql("CALL outbox.wait_delivered(%s)", db.enqueue("Order", str(uuid.uuid4()), event_type))


def worker_pids(db) -> set[int]:
    return {row[0] for row in db.sql("SELECT pid FROM outbox.workers WHERE database = current_database()")}


def restart_worker(db) -> None:
    before = worker_pids(db)
    db.sql("SELECT pg_terminate_backend(pid) FROM unnest(%s) AS pid", list(before))
    wait_until(lambda: len(worker_pids(db) - before) == len(before), SOON, "another worker")


def test_events_are_routed_again_only_when_routes_have_changed(db, got, setting):
    """Counts the calls of the function that routes waiting events."""
    setting("track_functions", "all")
    calls = "SELECT calls FROM pg_stat_user_functions WHERE funcname = 'route_waiting'"
    got("crm", events="order.*")
    db.sql("SELECT outbox.enqueue('Order', n::text, 'invoice.created', '{}') FROM generate_series(1, 100) AS n")
    deliver(db, "order.first")
    db.sql("ALTER SERVER crm OPTIONS (SET events 'order.*, none')")
    wait_until(lambda: db.value(calls), SOON, "the routes to be looked at")
    deliver(db, "order.second")
    # A delayed count is reported with the next event's.
    db.sql("ALTER SERVER crm OPTIONS (SET events 'order.*, never')")
    before = db.value(calls)
    wait_until(lambda: db.value(calls) > before, SOON, "the routes to be looked at")
    before = db.value(calls)

    with db.role(f"bystander_{db.name}", "NOLOGIN") as role:
        for change in (f"ALTER ROLE {role} CONNECTION LIMIT 5", "ALTER SERVER crm OPTIONS (ADD timeout '7s')", "ALTER USER MAPPING FOR PUBLIC SERVER crm OPTIONS (ADD headers '{\"a\": \"b\"}')", "SELECT outbox.pause('crm')", "SELECT outbox.resume('crm')",
                       f"GRANT USAGE ON FOREIGN SERVER crm TO {role}", f"REVOKE USAGE ON FOREIGN SERVER crm FROM {role}", f"ALTER ROLE {role} LOGIN"):
            db.sql(change)
            if "pause" not in change:
                deliver(db, "order.next")
    db.sql("ALTER SERVER crm OPTIONS (SET events 'order.*')")
    wait_until(lambda: db.value(calls) > before, SOON, "the routes to be looked at")
    deliver(db, "order.last")
    assert db.value(calls) == before + 1
    # When routes change, they are routed.
    db.sql("ALTER SERVER crm OPTIONS (SET events '*')")
    wait_until(lambda: got["crm"]().count("invoice.created") == 100, SOON, "what waited")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_locked_event_holds_up_the_sinks_that_would_take_it_and_no_other(db, got, setting, workers):
    setting("outbox.workers", str(workers))
    wait_until(lambda: len(worker_pids(db)) == workers, SOON, "the workers")
    got("orders", events="order.*, invoice.*")
    got("others", events="other.*")
    deliver(db, "order.before")
    db.sql("ALTER SERVER orders OPTIONS (SET events 'order.*')")
    event = db.enqueue("Order", "k", "invoice.created")
    deliver(db, "other.before")
    with db.connect(autocommit=False) as holder:
        holder.execute("SELECT FROM outbox.events WHERE id = %s FOR KEY SHARE", [event])
        pid = holder.info.backend_pid
        db.sql("ALTER SERVER orders OPTIONS (SET events 'order.*, invoice.*')")
        restart_worker(db)
        db.enqueue("Order", "k", "order.after")
        db.enqueue("Order", "k", "other.after")
        wait_until(lambda: got["others"]() == ["other.before", "other.after"], SOON, lambda: f"the other sink: {got['others']()}")
        deliver(db, "other.again")
        assert got["orders"]() == ["order.before"]

        status, detail, _ = db.doctor("routes", "0 seconds")
        assert status == "warning" and detail.startswith("1 event that a sink takes is not routed yet, since "), (status, detail)
        status, detail, hint = db.doctor("row locks", "0 seconds")
        assert status == "warning" and f"Session {pid} (" in detail and "1 waiting event" in detail, (status, detail)
        assert hint.startswith(f"SELECT pg_terminate_backend({pid});"), hint
    wait_until(lambda: got["orders"]() == ["order.before", "invoice.created", "order.after"], SOON, lambda: f"what was locked: {got['orders']()}")
    assert db.doctor("row locks", "0 seconds")[0] == "ok"


def test_a_page_of_locked_events_leaves_those_behind_it_to_be_routed(db, got):
    """1,000 events are routed at once; exactly as many locked ones come first."""
    db.sql("SELECT outbox.enqueue('Order', n::text, 'order.locked', '{}') FROM generate_series(1, 1500) AS n")
    db.enqueue("Order", "free", "other.free")
    with db.connect(autocommit=False) as holder:
        holder.execute("SELECT FROM outbox.events WHERE event_type = 'order.locked' FOR UPDATE")
        got("orders", events="order.*")
        got("others", events="other.*")
        wait_until(lambda: got["others"]() == ["other.free"], SOON, "the event behind those that are locked")
        assert got["orders"]() == []
    wait_until(lambda: len(got["orders"]()) == 1500, SOON, lambda: f"those that were locked: {len(got['orders']())}")


@pytest.mark.parametrize("workers", [1, 2])
def test_each_sink_gets_what_waited_before_what_was_enqueued_since(db, got, setting, workers):
    """The events that wait are locked until later ones of their keys are enqueued, and a third sink comes meanwhile."""
    setting("outbox.workers", str(workers))
    wait_until(lambda: len(worker_pids(db)) == workers, SOON, "the workers")
    keys = "SELECT outbox.enqueue('Order', n::text, %s, to_jsonb(n)) FROM generate_series(1, 40) AS n"
    db.sql(keys, "x.1")
    with db.connect(autocommit=False) as holder:
        holder.execute("SELECT FROM outbox.events FOR UPDATE")
        got.a_and_b()
        db.sql(keys, "x.2")
        got("c")
        db.sql(keys, "x.3")
    types = {"a": ["x.1", "x.2", "x.3"], "b": ["x.1", "x.2", "x.3"], "c": ["x.1", "x.3"]}
    for sink, expected in types.items():
        wait_until(lambda: len(got.by_key(sink, "x.3")) == 40, SOON, lambda: f"sink {sink}: {got[sink]()}")
        wrong = {key: found for key, found in got.by_key(sink).items() if found != expected}
        assert not wrong, (sink, wrong)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_lock_that_stops_the_routing_stops_the_sinks_that_wait_for_it(db, got, setting, workers):
    """SHARE is what CREATE INDEX takes. Other sinks go on, and the doctor says what is wrong."""
    setting("outbox.workers", str(workers))
    wait_until(lambda: len(worker_pids(db)) == workers, SOON, "the workers")
    got("others", events="other.*")
    keys = "SELECT outbox.enqueue('Order', n::text, %s, to_jsonb(n)) FROM generate_series(1, 2) AS n"
    db.sql(keys, "x.1")
    with db.connect(autocommit=False) as holder:
        holder.execute("LOCK TABLE outbox_internal.rescan_queue IN SHARE MODE")
        got.a_and_b(events="x.*")
        db.sql(keys, "x.2")
        found = wait_until(lambda: (found := db.doctor("routes", "0 seconds"))[0] == "error" and found, SOON,
                           lambda: f"the doctor: {db.doctor('routes', '0 seconds')}; a: {got['a']()}, b: {got['b']()}")
        assert "2 events that a sink takes are not routed yet, since " in found[1] and "lock timeout" in found[1], found
        restart_worker(db)
        deliver(db, "other.one")
        deliver(db, "other.two")
        assert got["a"]() == got["b"]() == []
    for sink in "ab":
        wait_until(lambda: len(got[sink]()) == 4, SOON, lambda: f"sink {sink}: {got[sink]()}")
        assert got.by_key(sink) == {1: ["x.1", "x.2"], 2: ["x.1", "x.2"]}
    wait_until(lambda: db.doctor("routes", "0 seconds")[0] == "ok", SOON, lambda: f"the doctor: {db.doctor('routes', '0 seconds')}")


def test_a_vacuum_of_the_rescan_queue_does_not_stop_the_routing(db, got):
    """SHARE UPDATE EXCLUSIVE is what VACUUM, ANALYZE and REINDEX CONCURRENTLY take."""
    db.enqueue("Order", "k", "x.1")
    with db.connect(autocommit=False) as holder:
        holder.execute("LOCK TABLE outbox_internal.rescan_queue, outbox.events_pending IN SHARE UPDATE EXCLUSIVE MODE")
        got("a")
        db.enqueue("Order", "k", "x.2")
        wait_until(lambda: got["a"]() == ["x.1", "x.2"], SOON, lambda: f"what arrived: {got['a']()}")


def test_a_sink_that_changes_while_a_round_begins_gets_what_waited_first(db, got):
    """The lock holds the worker between its look at the sinks and its snapshot, at the dead letters of a sink that they block."""
    waiting = "SELECT count(*) FROM pg_locks WHERE relation = 'outbox.events_failed'::regclass AND NOT granted"
    got("a", events="none")
    got("c", events="other.*", on_dead_letter="block")
    db.enqueue("Order", "k", "x.1")
    deliver(db, "other.one")
    with db.connect(autocommit=False) as holder:
        holder.execute("LOCK TABLE outbox.events_failed IN ACCESS EXCLUSIVE MODE")
        db.sql("ALTER SERVER c OPTIONS (ADD timeout '7s')")
        wait_until(lambda: db.value(waiting), SOON, "the worker to wait for the lock", interval=0.001)
        db.sql("ALTER SERVER a OPTIONS (SET events 'x.*')")
        db.enqueue("Order", "k", "x.2")
    wait_until(lambda: len(got["a"]()) == 2, SOON, lambda: f"what arrived: {got['a']()}")
    assert got["a"]() == ["x.1", "x.2"]


@pytest.mark.parametrize("refused", ["sink = 'a'", "sink = 'b'"])
def test_an_event_that_cannot_be_routed_stops_no_other(db, got, refused):
    """A constraint of a user refuses one row in the middle, that of the first sink or that of the second."""
    db.sql("SELECT outbox.enqueue('Order', n::text, CASE n WHEN 50 THEN 'x.bad' ELSE 'x.1' END, '{}') FROM generate_series(1, 100) AS n")
    db.sql(f"ALTER TABLE outbox.events_pending ADD CONSTRAINT mine CHECK ({refused} IS NOT TRUE OR event_type <> 'x.bad') NOT VALID")
    got.a_and_b()
    db.enqueue("Order", "50", "x.2")
    for sink in "ab":
        wait_until(lambda: len(got[sink]()) == 100, SOON, lambda: f"sink {sink}: {len(got[sink]())}")
        assert got[sink]().count("x.1") == 99 and "x.bad" not in got[sink]()
    error = db.value("SELECT last_error FROM outbox.events WHERE event_type = 'x.bad' AND sink IS NULL")
    assert error.startswith("the event cannot be routed: ") and '"mine"' in error, error
    status, detail, hint = db.doctor("routes", "0 seconds")
    assert status == "error" and "1 event that a sink takes cannot be routed" in detail and error in detail, (status, detail)
    db.sql("ALTER TABLE outbox.events_pending DROP CONSTRAINT mine")
    db.paste(hint)
    for sink in "ab":
        wait_until(lambda: "x.bad" in got[sink](), SOON, lambda: f"the event after the repair: {got[sink]()}")
    assert db.doctor("routes", "0 seconds")[0] == "ok"


@pytest.mark.parametrize("waiting", [1, 3])
@pytest.mark.parametrize("code", ["40001", "53200"])
@pytest.mark.kills_server  # a trigger's errors are logged on purpose
def test_an_error_that_is_not_of_the_event_stops_the_sinks_that_take_it(db, got, code, waiting):
    """A serialization failure and a lack of memory pass: to leave out the event would let its key's next one overtake it."""
    got("others", events="other.*")
    db.sql("SELECT outbox.enqueue('Order', n::text, 'x.1', to_jsonb(n)) FROM generate_series(1, %s) AS n", waiting)
    db.sql(f"""CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
               RAISE EXCEPTION USING ERRCODE = '{code}', MESSAGE = 'not now';
           END$$; CREATE TRIGGER mine BEFORE UPDATE ON outbox.events_pending FOR EACH ROW
           WHEN (OLD.sink IS NULL AND NEW.sink IS NOT NULL AND NEW.payload = '1') EXECUTE FUNCTION public.refuse()""")
    got.a_and_b(events="x.*")
    db.sql("SELECT outbox.enqueue('Order', n::text, 'x.2', to_jsonb(n)) FROM generate_series(1, %s) AS n", waiting)
    deliver(db, "other.one")
    found = wait_until(lambda: (found := db.doctor("routes", "0 seconds"))[0] == "error" and found, SOON,
                       lambda: f"the doctor: {db.doctor('routes', '0 seconds')}; a: {got['a']()}, b: {got['b']()}")
    assert "not routed yet, since " in found[1] and "not now" in found[1], found
    restart_worker(db)
    deliver(db, "other.two")
    assert got["a"]() == got["b"]() == []
    db.sql("DROP TRIGGER mine ON outbox.events_pending")
    for sink in "ab":
        wait_until(lambda: len(got[sink]()) == 2 * waiting, SOON, lambda: f"sink {sink}: {got[sink]()}")
        assert got.by_key(sink) == {n: ["x.1", "x.2"] for n in range(1, waiting + 1)}
    wait_until(lambda: db.doctor("routes", "0 seconds")[0] == "ok", SOON, lambda: f"the doctor: {db.doctor('routes', '0 seconds')}")


def test_a_lock_of_the_table_stops_the_routing_and_lets_nothing_overtake(db, got):
    """CREATE INDEX takes SHARE too. The later events are enqueued while it is held, and are committed as soon as it ends."""
    waiting = "SELECT count(*) FROM pg_locks WHERE relation = 'outbox.events_pending'::regclass AND NOT granted AND pid = %s"
    keys = "SELECT outbox.enqueue('Order', n::text, %s, to_jsonb(n)) FROM generate_series(1, 40) AS n"
    db.sql(keys, "x.1")
    with db.connect() as later, ThreadPoolExecutor() as pool:
        with db.connect(autocommit=False) as holder:
            holder.execute("LOCK TABLE outbox.events_pending IN SHARE MODE")
            got.a_and_b(events="x.*")
            enqueued = pool.submit(later.execute, keys, ["x.2"])
            wait_until(lambda: db.value(waiting, later.info.backend_pid), SOON, "the later events to wait for the lock")
            found = wait_until(lambda: (found := db.doctor("routes", "0 seconds"))[0] == "error" and found, SOON,
                               lambda: f"the doctor: {db.doctor('routes', '0 seconds')}")
            assert "40 events that a sink takes are not routed yet, since " in found[1] and "lock timeout" in found[1], found
        enqueued.result()
    for sink in "ab":
        wait_until(lambda: len(got[sink]()) == 80, SOON, lambda: f"sink {sink}: {got[sink]()}")
        assert got.by_key(sink) == {n: ["x.1", "x.2"] for n in range(1, 41)}


def test_the_doctor_names_who_has_locked_an_event(db, got):
    """A session in a savepoint, a prepared transaction, and both at once."""
    got("crm")
    db.sql("SELECT outbox.pause('crm')")
    first, second = (db.enqueue("Order", key, "order.created") for key in "ab")
    gid = f"held by '{db.name}'\nCREATE TABLE public.hacked ();--"
    with db.connect(autocommit=False) as holder, db.connect(autocommit=False) as other:
        holder.execute("SAVEPOINT s")
        holder.execute("SELECT FROM outbox.events WHERE id = %s FOR SHARE", [first])
        other.execute("SELECT FROM outbox.events WHERE id = ANY (%s) FOR SHARE", [[first, second]])
        quoted = "'" + gid.replace("'", "''") + "'"
        other.execute(f"PREPARE TRANSACTION {quoted}")
        other.autocommit = True
        try:
            found = db.sql("SELECT status, detail, hint FROM outbox.doctor('0 seconds') WHERE \"check\" = 'row locks' ORDER BY hint")
            assert len(found) == 2 and {row[0] for row in found} == {"warning"}, found
            assert "The prepared transaction" in found[0][1] and "2 waiting events" in found[0][1] and found[0][2].startswith("ROLLBACK PREPARED ")
            assert f"Session {holder.info.backend_pid} (" in found[1][1] and "1 waiting event" in found[1][1]
            db.paste(found[0][2])
            assert db.value("SELECT to_regclass('public.hacked')") is None
        finally:
            for (left,) in db.sql("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"):
                assert left == gid
                db.sql(f"ROLLBACK PREPARED {quoted}")
    assert db.doctor("row locks", "0 seconds")[0] == "ok"


def test_what_is_adopted_is_routed_in_its_order(db, receiver):
    """The first event of the key was restored without a sink, the later ones with one."""
    db.webhook_sink("crm", receiver, SECRET)
    for n in range(20):
        db.sql("INSERT INTO outbox.events (id, aggregate_type, event_type, payload, partition_key, sink, position, origin) VALUES"
               " (gen_random_uuid(), 'Order', 'x', %s, 'k', %s, nextval('outbox.events_position'), 4711)", str(n), None if n % 2 == 0 else "crm")
    deliver(db, "later")  # the worker has passed the rows
    receiver.clear()
    assert db.value("SELECT outbox.adopt()") == 20
    wait_until(lambda: len(receiver.accepted()) == 20, 20, "all events")
    assert receiver.payloads() == list(range(20))

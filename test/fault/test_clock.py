"""The server's wall clock is set forwards or backwards: events with a due time do not wait longer."""

import threading
from contextlib import contextmanager

import pytest
from outbox_rig import patient, wait_until
from outbox_rig.clock import Clock
from outbox_rig.database import Database
from outbox_rig.receiver import SECRET, status

pytestmark = pytest.mark.slow

SOON = 10  # seconds; the clock is set by more than this, and by less than the 300 s that a receiver tolerates
STEP = 120
WORKER = "SELECT pid FROM outbox.workers WHERE database = current_database()"


@pytest.fixture(scope="module")
def clocked(rig):
    """A server with a clock of its own."""
    clock = Clock(rig.dir / "clock")
    pg = rig.postgres(settings={"outbox.poll_interval": "2s"}, env=clock.env())
    pg.clock = clock
    yield pg
    pg.stop()


@pytest.fixture
def clock(clocked):
    yield clocked.clock
    clocked.clock.set(0)


@pytest.fixture
def there(clocked, clock):
    """A database of that server."""
    database = Database(clocked, "clock").create()
    yield database
    database.drop()


@contextmanager
def load(there):
    """A session that commits thousands of events per second. (pg_sleep() would use the clock that is set.)"""
    stop = threading.Event()

    def run() -> None:
        with there.connect() as connection:
            connection.execute("SET synchronous_commit = off")
            while not stop.wait(0.002):
                connection.execute("SELECT outbox.enqueue('Order', 'k' || n % 500, 'e', to_jsonb(n)) FROM generate_series(1, 40) n")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(patient(20))


def delivered(there) -> int:
    return there.value("SELECT delivered FROM outbox.sinks")


@pytest.mark.parametrize("step", [-STEP, STEP])
def test_under_load(there, kafka, clock, step):
    """Above 2,000 events/s the worker lingers for some milliseconds; this must not depend on the wall clock."""
    there.kafka_sink("main", kafka)
    with load(there):
        for _ in range(3):
            before = delivered(there)
            wait_until(lambda: delivered(there) > before + 6000, 60, "a load")
        clock.step(step)
        for _ in range(3):
            before = delivered(there)
            wait_until(lambda: delivered(there) > before + 2000, SOON, "events that are delivered after it")
    wait_until(lambda: there.pending() == 0, 60, lambda: f"{there.pending()} events to leave")


@pytest.mark.librdkafka
def test_kafka_is_back_after_the_clock_went_back(there, kafka, clock):
    """The threads of librdkafka wait for wall-clock times between two attempts to connect."""
    there.kafka_sink("main", kafka)
    there.enqueue("Order", "k")
    wait_until(lambda: there.pending() == 0, 30, "a first event")
    kafka.kill()
    try:
        there.enqueue("Order", "k")
        wait_until(lambda: there.value("SELECT state = 'circuit open' AND in_flight > 0 FROM outbox.sinks WHERE name = 'main'"), 60, "a probe of the circuit")
        clock.step(-STEP)
    finally:
        kafka.start()
    wait_until(lambda: there.pending() == 0, 3 * SOON, "the other event to leave", exactly=True)


def test_idle(there, rig, receiver, clock):
    """Wake-ups take effect at once, even when the clock has gone back."""
    there.webhook_sink("crm", receiver, SECRET)
    there.enqueue("Order", "k", payload="1")
    wait_until(lambda: receiver.payloads() == [1], 20, "a first event")
    for n in (2, 3):
        with rig.receiver(secret=SECRET) as other:
            clock.step(-STEP)
            there.sql(f"ALTER SERVER crm OPTIONS (SET url '{other.url}')")
            there.enqueue("Order", "k", payload=str(n))
            wait_until(lambda: other.payloads() == [n], SOON, "ALTER SERVER, and an event to the new url")


@pytest.mark.parametrize("step", [-STEP, STEP])
def test_an_idle_worker_has_just_looked(there, clock, step):
    """outbox.workers shows how long ago the worker looked."""
    wait_until(lambda: there.value("SELECT state FROM outbox.workers WHERE database = current_database()") == "no sink", 20, "the worker")
    clock.step(step)
    ago = there.value("SELECT extract(epoch FROM clock_timestamp() - last_loop_at)::float8 FROM outbox.workers WHERE database = current_database()")
    assert -1 < ago < STEP / 2


def test_a_scheduled_event_is_due_when_the_clock_says_so(there, receiver, clock):
    there.webhook_sink("crm", receiver, SECRET)
    there.enqueue("Order", "k", payload="1", available_at=there.value("SELECT clock_timestamp() + interval '110 s'"))
    there.enqueue("Order", "k", payload="0")
    wait_until(lambda: receiver.payloads() == [0], 20, "the other one")
    clock.step(STEP)
    wait_until(lambda: receiver.payloads() == [0, 1], SOON, "it to be due")
    # Due times are recomputed: earlier than the events that were sent.
    clock.step(-STEP)
    there.enqueue("Order", "k", payload="2", available_at=there.value("SELECT clock_timestamp() + interval '6 s'"))
    wait_until(lambda: receiver.payloads() == [0, 1, 2], SOON + 6, "one that is due after the clock went back")


def test_a_retry_while_the_clock_goes_back(there, receiver, clock):
    """The time is in the row. All other events are sent, and so is this one when its time has come."""
    there.webhook_sink("crm", receiver, SECRET, retry="200ms..300ms", max_attempts="1000")
    receiver.mode = status(500)
    there.enqueue("Order", "k", payload="1")
    wait_until(lambda: there.value("SELECT max(attempts) FROM outbox.events") >= 2, 20, "failures")
    clock.step(-STEP)
    receiver.mode = status(200)
    there.enqueue("Order", "other", payload="2")
    wait_until(lambda: 2 in receiver.payloads(), SOON, lambda: f"another key, got {receiver.payloads()}")
    clock.step(STEP)
    wait_until(lambda: sorted(receiver.payloads()) == [1, 2], SOON, "the failed one")


def test_at_rest(clocked, there, receiver, clock):
    """The waits of the launcher, and of a worker that exits and returns."""
    there.sql("ALTER SYSTEM SET outbox.worker_idle_timeout = '100ms'")
    there.sql("SELECT pg_reload_conf()")
    try:
        there.webhook_sink("crm", receiver, SECRET)
        for n, step in enumerate([-STEP, STEP, -STEP]):
            wait_until(lambda: there.value("SELECT idle FROM outbox_internal.library()") and there.value(WORKER) is None, 20, "the worker to leave")
            clock.step(step)
            there.enqueue("Order", "k", payload=str(n))
            wait_until(lambda: receiver.payloads() == list(range(n + 1)), SOON, "an event")
        there.enqueue("Order", "k", payload="3", available_at=there.value("SELECT clock_timestamp() + interval '110 s'"))
        wait_until(lambda: there.value("SELECT idle FROM outbox_internal.library()") and there.value(WORKER) is None, 20, "the worker to leave")
        clock.step(STEP)
        wait_until(lambda: receiver.payloads() == [0, 1, 2, 3], SOON + 10, "a scheduled event", exactly=True)
    finally:
        there.sql("ALTER SYSTEM RESET outbox.worker_idle_timeout")
        there.sql("SELECT pg_reload_conf()")


def test_a_worker_that_dies(clocked, there, receiver, clock):
    """A worker that died is restarted after its pause, not later."""
    there.webhook_sink("crm", receiver, SECRET)
    for n, step in enumerate([-STEP, STEP]):
        old = wait_until(lambda: there.value(WORKER), 20, "the worker")
        there.sql("SELECT pg_terminate_backend(%s, 5000)", old)
        clock.step(step)
        there.enqueue("Order", "k", payload=str(n))
        wait_until(lambda: receiver.payloads() == list(range(n + 1)), SOON, "the next worker, and an event")


def test_wait_delivered(there, clock):
    """A caller's timeout has its real length."""
    id = there.enqueue("Order", "k")

    def wait() -> str:
        try:
            with there.connect() as connection:
                connection.execute("CALL outbox.wait_delivered(%s, '3 s')", [id])
        except Exception as e:
            return str(e)
        return "delivered"

    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(wait()))
    thread.start()
    wait_until(lambda: there.value("SELECT count(*) FROM pg_stat_activity WHERE query ~ '^CALL outbox.wait_delivered' AND pid <> pg_backend_pid()"), 10, "the call")
    clock.step(-STEP)
    thread.join(SOON + 3)
    assert answers and "was not delivered within" in answers[0]

"""What a real worker does with the events of a key, while a user redrives some of them, is an execution of redrive.pml."""

from copy import deepcopy

import pytest
import trace
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import SECRET, Delivery, Mode, slow, status

ANSWER_S = 0.8  # of an event that the user is to redrive an earlier one beside
KEYS = 4


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return trace.Model(tmp_path_factory.mktemp("model"), "redrive")


class Key:
    """Three events; the first one is refused until it is redriven, and the second one is answered late."""

    def __init__(self, db: Database, name: str):
        self.name, self.db = name, db
        self.user: list[trace.Step] = []
        with db.connect() as connection, connection.transaction():
            for n in range(3):
                connection.execute("SELECT outbox.enqueue('Order', %s, 'order.created', jsonb_build_object('key', %s::text, 'n', %s::int))", [name, name, n])
            self.rows = connection.execute("SELECT position, id FROM outbox.events WHERE xact = pg_current_xact_id() ORDER BY position").fetchall()

    def first_is_dead(self) -> bool:
        return self.db.value("SELECT count(*) FROM outbox.events WHERE position = %s AND status = 'FAILED'", self.rows[0][0]) == 1

    def redrive(self, force: bool, then) -> None:
        """In a transaction that goes on until `then` has ended."""
        with self.db.connect() as connection, connection.transaction():
            if connection.execute("SELECT outbox.redrive(%s, force => %s)", [self.rows[0][1], force]).fetchone()[0]:
                self.user += [trace.Step("LOCKS", 0, int(force), 0), trace.Step("COMMITS", 0, int(force), 0)]
            then()

    def trace(self, log) -> trace.Trace:
        return trace.read_key(log, "crm", [position for position, _ in self.rows], self.user)


@pytest.fixture(scope="module")
def server(rig):
    return rig.postgres(settings={"log_min_messages": "debug2", "outbox.poll_interval": "1s"})


@pytest.fixture(scope="module")
def keys(rig, server):
    answered: set[str] = set()  # keys whose first event was refused

    def answer(delivery: Delivery) -> Mode:
        data = delivery.json()["data"]
        key, n = data["key"], data["n"]
        if n == 0 and key not in answered:
            answered.add(key)
            return status(400)
        return slow(ANSWER_S) if n == 1 else slow(0)

    receiver = rig.receiver(secret=SECRET, mode=answer)
    db = Database(server, "redrives")
    db.create()
    db.webhook_sink("crm", receiver, SECRET, max_attempts="1")
    found = []
    for n in range(KEYS):
        key = Key(db, f"{'late' if n % 2 else 'beside'}-{n}")
        found.append(key)
        wait_until(key.first_is_dead, 30, "the first event to be dead")
        if n % 2:  # after the others, with force
            wait_until(lambda: db.pending() == 0, 30, "the later events to leave")
            key.redrive(False, lambda: None)
            key.redrive(True, lambda: None)
        else:  # while the second event is answered, and its row is locked when the answer is to be recorded
            sent = len(receiver.accepted())
            key.redrive(False, lambda: wait_until(lambda: n == 0 or len(receiver.accepted()) > sent, 30, "the answer to the second event"))
        wait_until(lambda: db.pending() == 0, 30, "the key to be done")
    wait_until(lambda: all("ENDS" in [step.name for step in key.trace(server.log).steps] for key in found), 10, "the lines")
    return found


def test_redrives_are_an_execution_of_the_model(model, server, keys):
    for key in keys:
        traced = key.trace(server.log)
        print(key.name, [(step.name, step.worker) for step in traced.steps])
        assert key.user, "nothing was redriven"
        assert model.refuses(traced) is None, [(step.name, step.worker) for step in traced.steps]


def test_a_redrive_without_force_after_later_events_is_refused(model, server, keys):
    copy = deepcopy(keys[1].trace(server.log))
    for step in copy.steps:
        step.value = 0
    assert model.refuses(copy) is not None


@pytest.mark.parametrize("name", ["CLAIMS", "DIES", "ENDS", "LOCKS"])
def test_a_trace_without_a_step_is_refused(model, server, keys, name):
    copy = deepcopy(keys[1].trace(server.log))
    del copy.steps[next(n for n, step in enumerate(copy.steps) if step.name == name)]
    assert model.refuses(copy) is not None

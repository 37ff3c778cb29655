"""An endpoint per customer: the option match sends each its own events, while endpoints are created, dropped and
changed."""

import json
import random
from collections import defaultdict

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.traffic import check
from outbox_rig.writers import Writers

pytestmark = pytest.mark.slow

TENANTS, BUSY, EVENTS, SESSIONS = 1000, 50, 5000, 4
MAKE = """
    DO $$
    BEGIN
      FOR tenant IN {first}..{last} LOOP
        EXECUTE format('CREATE SERVER customer_%s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (
                          url %L, match %L, allow_http ''true'', allow_networks ''127.0.0.0/8'', concurrency ''2'',
                          forward_headers ''trace'')',
                       tenant, '{url}/' || tenant, jsonb_build_object('kind', 'order', 'tenant', tenant));
      END LOOP;
    END $$"""


class Sessions(Writers):
    """Each session enqueues its share in short transactions, one in ten of which is rolled back, with
    outbox.enqueue() or INSERT, and with the tenant as a number or as text. A key belongs to one tenant and one
    session, and its events are numbered."""

    def __init__(self, db):
        super().__init__(SESSIONS)
        self.db, self.committed = db, []

    def at_work(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def go_on(self, events: int) -> None:
        """Returns when this many more events are committed, or all."""
        before = len(self.committed)
        wait_until(lambda: len(self.committed) >= before + events or not self.at_work(), 30, "the sessions to go on", interval=0.002)

    def write(self, writer: int) -> None:
        dice, numbers, left = random.Random(writer), defaultdict(int), EVENTS // SESSIONS
        with self.db.connect(autocommit=False) as connection:
            while left > 0:
                events = [self._event(connection, writer, dice, numbers) for _ in range(min(dice.randint(1, 5), left))]
                if dice.random() < 0.1:
                    connection.rollback()
                    continue
                connection.commit()
                left -= len(events)
                self.committed += events

    def _event(self, connection: psycopg.Connection, writer: int, dice: random.Random, numbers: dict) -> tuple[str, int]:
        tenant = dice.randint(1, BUSY if dice.random() < 0.5 else TENANTS)
        key = f"{tenant}-{writer}"
        numbers[key] += 1
        headers = {"tenant": dice.choice([tenant, str(tenant)]), "kind": "order", "trace": key}
        statement = dice.choice(["SELECT outbox.enqueue('Order', %s::text, 'order.changed', %s::jsonb, headers => %s::jsonb)",
                                 "INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, headers) "
                                 "VALUES ('Order', %s, 'order.changed', %s, %s)"])
        connection.execute(statement, [key, json.dumps({"key": key, "n": numbers[key]}), json.dumps(headers)])
        return key, numbers[key]


def change_endpoint(db, url: str, sessions: Sessions, dice: random.Random) -> None:
    """Drops one endpoint and creates it again, takes its customer away and gives it back, or changes an unrelated
    option. Its events wait meanwhile."""
    tenant = dice.randint(1, BUSY)
    server = f"customer_{tenant}"
    match dice.randrange(3):
        case 0:
            db.sql(f"DROP SERVER {server}")
            sessions.go_on(30)
            db.sql(MAKE.format(first=tenant, last=tenant, url=url))
        case 1:
            db.set_sink(server, match='{"kind": "order", "tenant": "nobody"}')
            sessions.go_on(30)
            db.set_sink(server, match=json.dumps({"tenant": tenant, "kind": "order"}))
        case 2:
            db.set_sink(server, concurrency=str(dice.randint(1, 5)))


def test_each_customer_gets_its_own_events(db, rig):
    receiver, dice, late = rig.receiver(), random.Random(0), 20
    try:
        db.sql(MAKE.format(first=1, last=TENANTS - late, url=receiver.url))
        changes = 0
        with Sessions(db) as sessions:
            while sessions.at_work():
                change_endpoint(db, receiver.url, sessions, dice)
                changes += 1
        # Only the events of customers without an endpoint wait; then the endpoints are created.
        wait_until(lambda: db.value("SELECT min((headers ->> 'tenant')::int) FROM outbox.events") > TENANTS - late, 30,
                   lambda: db.sql("SELECT name, state, pending, last_error FROM outbox.sinks WHERE pending > 0"))
        assert db.value("SELECT count(*) FROM outbox.events WHERE sink IS NOT NULL") == 0
        db.sql(MAKE.format(first=TENANTS - late + 1, last=TENANTS, url=receiver.url))
        wait_until(lambda: db.pending() == 0, 30, lambda: db.sql("SELECT sink, count(*) FROM outbox.events GROUP BY 1 LIMIT 5"))

        arrived = [(delivery, delivery.json()["data"]) for delivery in receiver.accepted()]
        for delivery, data in arrived:
            assert delivery.path.rpartition("/")[2] == data["key"].partition("-")[0], "sent to another customer"
            assert delivery.headers["trace"] == data["key"]
        check(dict.fromkeys(sessions.committed), ((delivery.id, (data["key"], data["n"])) for delivery, data in arrived))
        assert len(sessions.committed) == EVENTS
        assert db.value("SELECT sum(dead_total) FROM outbox.sinks") == 0
        assert changes > 10
    finally:
        receiver.stop()


def test_a_waiting_event_that_is_corrected(db, rig):
    """A change of any column that sinks match reaches the worker without a change of a sink."""
    with rig.receiver() as receiver:
        db.webhook_sink("main", receiver, match='{"tenant": "1"}', events="order.*", aggregates="Order")
        corrections = {"headers": '{"tenant": 1}', "event_type": "order.created", "aggregate_type": "Order"}
        for column, right in corrections.items():
            given = corrections | {column: '{"tenant": 2}' if column == "headers" else "wrong"}
            event = db.enqueue(given["aggregate_type"], column, given["event_type"], headers=given["headers"])
            wait_until(lambda: db.value("SELECT state = 'idle' FROM outbox.sinks"), 20, "the sink to be open")
            assert db.value("SELECT sink FROM outbox.events WHERE id = %s", event) is None
            db.sql(f"UPDATE outbox.events SET {column} = '{right}' WHERE id = %s", event)
            wait_until(lambda: [d.id for d in receiver.accepted()][-1:] == [event], 20, lambda: db.sql("SELECT * FROM outbox_internal.rescan_queue"))

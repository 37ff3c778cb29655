"""Testing an application that enqueues events: pytest and psycopg 3."""

import os

import psycopg
import pytest

# What the transaction would publish: one row per event, whichever sinks take it.
WOULD_PUBLISH = """
    SELECT event_type, aggregate_id, payload FROM (
      SELECT DISTINCT ON (id) * FROM outbox.events WHERE status = 'PENDING' AND xact = pg_current_xact_id() ORDER BY id, position) AS e
    ORDER BY position"""


def place_order(connection: psycopg.Connection, total: str) -> tuple[int, str]:
    """The code under test, within a transaction of the caller. Returns the order's id and that of its event."""
    order = connection.execute("INSERT INTO orders (total) VALUES (%s) RETURNING id", [total]).fetchone()[0]
    event = connection.execute("SELECT outbox.enqueue('Order', %s::text, 'order.placed', jsonb_build_object('total', %s::text))", [order, total]).fetchone()[0]
    return order, str(event)


@pytest.fixture
def connection():
    """A transaction that is rolled back: nothing that the test enqueues leaves the database."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        yield connection
        connection.rollback()


def test_an_order_would_publish_one_event(connection):
    order, _ = place_order(connection, "99.50")
    assert connection.execute(WOULD_PUBLISH).fetchall() == [("order.placed", str(order), {"total": "99.50"})]


def test_an_order_arrives():
    """Through the worker and the sinks of the test's database."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        with connection.transaction():  # both rows, or neither
            _, event = place_order(connection, "10.00")
        connection.execute("CALL outbox.wait_delivered(%s, timeout => '1 minute')", [event])

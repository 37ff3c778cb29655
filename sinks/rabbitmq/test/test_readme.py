"""The page's five minutes, and the example of a consumer."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from outbox_rig import wait_until

from queues import Queue
from test_delivery import sinks

HERE = Path(__file__).parents[1]
PAGE = (HERE / "README.md").read_text()


def test_the_five_minutes(db, broker):
    """The page's SQL, with this broker's port; its rabbitmqadmin and consumer are done by AMQP here."""
    queue = Queue(broker, "events", name="orders", key="Order.#")
    for step in re.findall(r"<!-- step -->\n```sql\n(.*?)```", PAGE, re.DOTALL):
        if "CREATE EXTENSION" not in step:  # the fixture has done that
            db.paste(step.replace("localhost:5672", f"127.0.0.1:{broker.port}"))
    [(method, properties, body)] = queue.read(1)
    assert (method.routing_key, json.loads(body), properties.type) == ("Order.order.created", {"total": 10}, "order.created")
    assert all(ok for _, ok, *_ in db.sql("SELECT step, ok FROM outbox.probe('rabbit')"))


@pytest.fixture
def consumer(db, broker):
    db.sql("CREATE TABLE mails (event_type text, payload jsonb)")
    running = []

    def start(queue: str) -> subprocess.Popen:
        running.append(subprocess.Popen([sys.executable, HERE / "example/consumer.py", f"amqp://guest:guest@127.0.0.1:{broker.port}/%2F", db.dsn, queue]))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


def test_the_consumer_works_once_per_event(db, broker, exchange, consumer):
    queue = Queue(broker, exchange, arguments={"x-queue-type": "quorum"})
    db.rabbit_sink("rabbit", broker, exchange=exchange)
    db.sql("SELECT outbox.enqueue('Order', (n % 50)::text, 'order.made', jsonb_build_object('n', n)) FROM generate_series(1, 2000) AS n")
    first = consumer(queue.name)
    wait_until(lambda: db.value("SELECT count(*) FROM mails") > 300, 60, sinks(db))
    first.kill()  # what it had not acknowledged comes again
    consumer(queue.name)
    wait_until(lambda: db.value("SELECT count(*) FROM mails") >= 2000, 60, sinks(db))
    wait_until(lambda: queue.count() == 0, 30, "the queue to be empty")
    assert db.sql("SELECT count(*), count(DISTINCT payload->>'n') FROM mails") == [(2000, 2000)]

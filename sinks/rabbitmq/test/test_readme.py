"""The page's five minutes, and the example of a consumer."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from outbox_rig import wait_until
from outbox_rig.process import free_port
from outbox_rig.wait import patient

from queues import Queue
from test_delivery import sinks

HERE = Path(__file__).parents[1]
PAGE = (HERE / "README.md").read_text()


def test_the_five_minutes(db, make_broker, tmp_path):
    """The page's commands and SQL, with the ports of a broker that has its plugin from the beginning."""
    port = free_port()
    broker = make_broker(plugins="rabbitmq_management", settings={"management.tcp.ip": "127.0.0.1", "management.tcp.port": str(port)})
    page = PAGE.replace("localhost:15672", f"127.0.0.1:{port}").replace("python3 rabbitmqadmin", f"{sys.executable} rabbitmqadmin --port {port}")
    *prepare, get = re.findall(r"^(?:rabbitmq-plugins .* && )?((?:curl|\S+ rabbitmqadmin) .*)$", page, re.MULTILINE)

    def run(*commands: str) -> str:
        return subprocess.run(["bash", "-ec", "\n".join(commands)], cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True, timeout=patient(60)).stdout

    run(*prepare)
    for step in re.findall(r"<!-- step -->\n```sql\n(.*?)```", page, re.DOTALL):
        if "CREATE EXTENSION" not in step:  # the fixture has done that
            db.paste(step.replace("localhost:5672", f"127.0.0.1:{broker.port}"))
    wait_until(lambda: db.pending() == 0, 60, sinks(db))
    shown = run(get)
    assert "Order.order.created" in shown and '{"total": 10}' in shown, shown
    assert all(ok for _, ok, *_ in db.sql("SELECT step, ok FROM outbox.probe('rabbit')"))


def test_the_mark_of_a_probe_is_named():
    """By which consumers skip it."""
    assert "`outbox-probe`" in PAGE.split("## The message\n")[1].split("\n## ")[0]


@pytest.fixture
def consumer(db, broker, start_program):
    db.sql("CREATE TABLE mails (event_type text, payload jsonb)")
    db.sql("CREATE EXTENSION outbox_inbox")
    return lambda queue: start_program(HERE / "example/consumer.py", f"amqp://guest:guest@127.0.0.1:{broker.port}/%2F", db.dsn, queue)


def test_the_consumer_works_once_per_event(db, broker, exchange, consumer):
    queue = Queue(broker, exchange, arguments={"x-queue-type": "quorum"})
    db.rabbit_sink("rabbit", broker, exchange=exchange)
    assert all(ok for _, ok, *_ in db.sql("SELECT step, ok FROM outbox.probe('rabbit', send => true)"))
    db.sql("SELECT outbox.enqueue('Order', (n % 50)::text, 'order.made', jsonb_build_object('n', n)) FROM generate_series(1, 2000) AS n")
    first = consumer(queue.name)
    wait_until(lambda: db.value("SELECT count(*) FROM mails") > 300, 60, sinks(db))
    first.kill()  # what it had not acknowledged comes again
    consumer(queue.name)
    wait_until(lambda: db.value("SELECT count(*) FROM mails") >= 2000, 60, sinks(db))
    wait_until(lambda: queue.count() == 0, 30, "the queue to be empty")
    assert db.sql("SELECT count(*), count(DISTINCT payload->>'n') FROM mails") == [(2000, 2000)]

"""The page's five minutes, and the example of a consumer."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from outbox_rig import wait_until

from redis_server import Stream
from test_delivery import sinks

HERE = Path(__file__).parents[1]
PAGE = (HERE / "README.md").read_text()


def test_the_five_minutes(db, server):
    """The page's SQL and redis-cli, with this server's port."""
    for step in re.findall(r"<!-- step -->\n```sql\n(.*?)```", PAGE, re.DOTALL):
        if "CREATE EXTENSION" not in step:  # the fixture has done that
            db.paste(step.replace("localhost:6379", f"127.0.0.1:{server.port}"))
    [entry] = Stream(server, "outbox.event.Order").read(1)
    assert (entry["type"], json.loads(entry["payload"])) == ("order.created", {"total": 10})
    [command] = re.findall(r"^redis-cli (XRANGE .*)$", PAGE, re.MULTILINE)
    shown = subprocess.run(["redis-cli", "-p", str(server.port), *command.split()], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert entry["id"] in shown
    assert all(ok for _, ok, *_ in db.sql("SELECT step, ok FROM outbox.probe('redis')"))


def test_the_table_of_fields_is_complete(db, server, stream):
    db.redis_sink("redis", server, stream=stream.name)
    db.enqueue("Order", "1", headers='{"tenant": "eu"}')
    [entry] = stream.read(1)
    table = [name for line in PAGE.split("## The entry")[1].split("\n## ")[0].splitlines() if line.startswith("| `") for name in re.findall(r"`([a-z_.A-Z]+)`", line.split("|")[1])]
    assert [name.replace("tenant", "NAME") for name in entry] == table


def test_the_mark_of_a_probe_is_named():
    """By which consumers skip it."""
    assert "`header.outbox-probe`" in PAGE.split("## The entry\n")[1].split("\n## ")[0]


@pytest.fixture
def consumer(db, server, start_program):
    db.sql("CREATE TABLE mails (event_type text, payload jsonb)")
    db.sql("CREATE EXTENSION outbox_inbox")
    return lambda stream: start_program(HERE / "example/consumer.py", f"redis://127.0.0.1:{server.port}/0", db.dsn, stream)


def test_the_consumer_works_once_per_event(db, server, stream, consumer):
    db.redis_sink("redis", server, stream=stream.name)
    assert all(ok for _, ok, *_ in db.sql("SELECT step, ok FROM outbox.probe('redis', send => true)"))
    db.sql("SELECT outbox.enqueue('Order', (n % 50)::text, 'order.made', jsonb_build_object('n', n)) FROM generate_series(1, 2000) AS n")
    first = consumer(stream.name)
    wait_until(lambda: db.value("SELECT count(*) FROM mails") > 300, 60, sinks(db))
    first.kill()  # what it had not acknowledged comes again
    consumer(stream.name)
    wait_until(lambda: db.value("SELECT count(*) FROM mails") >= 2000, 60, sinks(db))
    wait_until(lambda: server.client().xpending(stream.name, "mail")["pending"] == 0, 30, "all entries to be acknowledged")
    assert db.sql("SELECT count(*), count(DISTINCT payload->>'n') FROM mails") == [(2000, 2000)]

"""The page's five minutes, and the example of a consumer."""

import importlib.metadata
import os
import re
import shlex
import socket
import subprocess
import sysconfig
from pathlib import Path

import pytest
from outbox_rig import wait_until
from outbox_rig.process import free_port

from nats_server import PROGRAM
from streams import Stream
from test_delivery import sinks

HERE = Path(__file__).parents[1]
PAGE = (HERE / "README.md").read_text()
READ = """
import asyncio, nats

async def main():
    client = await nats.connect("nats://localhost:4222")
    messages = await client.jetstream().pull_subscribe("", durable="reader", stream="ORDERS")
    for message in await messages.fetch(10, timeout=5):
        print(message.subject, message.data.decode())
        await message.ack()
    await client.close()

asyncio.run(main())
"""


@pytest.fixture
def page_server(tmp_path):
    """The page's server, with another port and folder; returns its address."""
    [command] = re.findall(r"^nats-server (.*) &$", PAGE, re.MULTILINE)
    port = free_port()
    server = subprocess.Popen([PROGRAM, *shlex.split(command.replace("/var/tmp/nats", str(tmp_path / "nats"))), "-a", "127.0.0.1", "-p", str(port)])

    def listens() -> bool:
        with socket.socket() as peer:
            return peer.connect_ex(("127.0.0.1", port)) == 0

    wait_until(listens, 30, "nats-server to start")
    yield f"127.0.0.1:{port}"
    server.kill()
    server.wait()


def test_the_five_minutes(db, page_server, tmp_path):
    """The page's commands, programs and SQL, with the tests' Python packages in the page's virtual environment."""
    def here(text: str) -> str:
        return text.replace("localhost:4222", page_server)

    [(make_venv, package)] = re.findall(r"^(\S+ -m venv \S+) && venv/bin/pip install (\S+)$", PAGE, re.MULTILINE)
    assert importlib.metadata.version(package)
    subprocess.run(shlex.split(make_venv), cwd=tmp_path, check=True)
    env = os.environ | {"PYTHONPATH": sysconfig.get_path("purelib")}

    def run(program: str) -> str:
        done = subprocess.run(["venv/bin/python", "-c", here(program)], cwd=tmp_path, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        assert done.returncode == 0, done.stdout
        return done.stdout

    [create] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    run(create)
    for step in re.findall(r"<!-- step -->\n```sql\n(.*?)```", PAGE, re.DOTALL):
        if "CREATE EXTENSION" not in step:  # the fixture has done that
            db.paste(here(step))
    assert run(READ) == 'orders.order.created {"total": 10}\n'
    assert all(ok for _, ok, *_ in db.sql("SELECT step, ok FROM outbox.probe('nats')"))


def test_the_mark_of_a_probe_is_named():
    """By which consumers skip it."""
    assert "`outbox-probe`" in PAGE.split("## The message\n")[1].split("\n## ")[0]


@pytest.fixture
def consumer(db, server, start_program):
    db.sql("CREATE TABLE mails (event_type text, payload jsonb)")
    db.sql("CREATE EXTENSION outbox_inbox")
    return lambda stream: start_program(HERE / "example/consumer.py", f"nats://127.0.0.1:{server.port}", db.dsn, stream)


def test_the_consumer_works_once_per_event(db, server, name, consumer):
    stream = Stream(server, name)
    db.nats_sink("nats", server, subject=f"{name}.${{event_type}}")
    assert all(ok for _, ok, *_ in db.sql("SELECT step, ok FROM outbox.probe('nats', send => true)"))
    db.sql("SELECT outbox.enqueue('Order', (n % 50)::text, 'order.made', jsonb_build_object('n', n)) FROM generate_series(1, 1000) AS n")
    first = consumer(stream.name)
    wait_until(lambda: db.value("SELECT count(*) FROM mails") > 100, 60, sinks(db))
    first.kill()  # what it had not acknowledged comes again
    consumer(stream.name)
    wait_until(lambda: db.value("SELECT count(*) FROM mails") >= 1000, 120, sinks(db))
    assert db.sql("SELECT count(*), count(DISTINCT payload->>'n') FROM mails") == [(1000, 1000)]

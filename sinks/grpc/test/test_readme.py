"""The page's five minutes, and the example of a server."""

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import grpc
import pytest
from outbox_rig import wait_until
from outbox_rig.process import free_port

import stubs
from test_delivery import sinks

HERE = Path(__file__).parents[1]
PAGE = (HERE / "README.md").read_text()


@pytest.fixture
def example(db):
    """Starts the example's server; returns its address."""
    db.sql("CREATE TABLE mails (event_type text, payload jsonb)")
    db.sql("CREATE EXTENSION outbox_inbox")
    running = []

    def start(address: str = "") -> tuple[str, subprocess.Popen]:
        address = address or f"127.0.0.1:{free_port()}"
        running.append(subprocess.Popen([sys.executable, HERE / "example/server.py", address, db.dsn], env=os.environ | {"PYTHONPATH": str(stubs.FOLDER)}))
        grpc.channel_ready_future(grpc.insecure_channel(address)).result(30)
        return address, running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


@pytest.fixture
def page_server(db, tmp_path):
    """The page's server, by its commands: with this server's port and database, and the tests' Python packages in the page's virtual environment."""
    [commands] = re.findall(r"^cd sinks/grpc/example\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    venv, *prepare, start = commands.splitlines()
    make_venv, _, install = venv.partition(" && ")
    assert {re.sub(r"\[.*", "", package) for package in shlex.split(install)[2:]} <= {found.name for found in importlib.metadata.distributions()}
    folder = shutil.copytree(HERE / "example", tmp_path / "example", ignore=shutil.ignore_patterns("venv", "*_pb2*"))
    shutil.copy(HERE / "sink.proto", tmp_path)
    env = os.environ | {"PYTHONPATH": sysconfig.get_path("purelib")}
    for command in make_venv, *prepare:
        subprocess.run(shlex.split(command), cwd=folder, env=env, check=True)
    address = f"127.0.0.1:{free_port()}"
    db.sql("CREATE EXTENSION outbox_inbox")
    server = subprocess.Popen(shlex.split(start.replace("127.0.0.1:50051", address).replace("dbname=shop", db.dsn)), cwd=folder, env=env)
    yield address
    server.kill()
    server.wait()


def test_the_five_minutes(db, page_server):
    """The page's SQL, with this server's port."""
    for step in re.findall(r"<!-- step -->\n```sql\n(.*?)```", PAGE, re.DOTALL):
        if "CREATE EXTENSION" not in step:  # the fixture has done that
            db.paste(step.replace("127.0.0.1:50051", page_server))
    wait_until(lambda: db.sql("SELECT event_type, payload->>'total' FROM mails") == [("order.created", "10")], 30, sinks(db))
    steps = db.sql("SELECT step, ok, message FROM outbox.probe('grpc', send => true, timeout => '30s')")
    assert all(ok for _, ok, _ in steps), steps


def test_the_example_works_once_per_event(db, example):
    address, first = example()
    db.sql(f"CREATE SERVER grpc FOREIGN DATA WRAPPER outbox_grpc OPTIONS (url 'http://{address}', allow_http 'true', allow_networks '127.0.0.0/8', retry '100ms', max_attempts '1000')")
    db.sql("SELECT outbox.enqueue('Order', (n % 50)::text, 'order.made', jsonb_build_object('n', n)) FROM generate_series(1, 1000) AS n")
    wait_until(lambda: db.value("SELECT count(*) FROM mails") > 200, 60, sinks(db))
    assert all(ok for _, ok, *_ in db.sql("SELECT step, ok FROM outbox.probe('grpc', send => true)"))
    first.kill()  # what it had not answered comes again
    first.wait()
    example(address)
    wait_until(lambda: db.pending() == 0, 60, sinks(db))
    assert db.sql("SELECT count(*), count(DISTINCT payload->>'n') FROM mails") == [(1000, 1000)]

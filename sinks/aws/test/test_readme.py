"""The page's five minutes, and the example of a consumer."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from outbox_rig import wait_until
from outbox_rig.wait import patient

from moto import KEYS, REGION
from test_delivery import sinks

HERE = Path(__file__).parents[1]
PAGE = (HERE / "README.md").read_text()


def test_the_five_minutes(db, moto):
    """The page's commands and SQL, with this moto's port and the tests' awscli."""
    page = PAGE.replace("localhost:5000", f"localhost:{moto.port}").replace("aws/bin/", f"{Path(sys.executable).parent}/")
    exports, create, receive = re.findall(r"^(?:export|\S+/aws) .*$", page, re.MULTILINE)

    def aws(command: str) -> str:
        return subprocess.run(["bash", "-c", f"{exports}; {command}"], stdout=subprocess.PIPE, text=True, check=True, timeout=patient(60)).stdout

    aws(create)
    for step in re.findall(r"<!-- step -->\n```sql\n(.*?)```", page, re.DOTALL):
        if "CREATE EXTENSION" not in step:  # the fixture has done that
            db.paste(step)
    wait_until(lambda: db.pending() == 0, 60, sinks(db))
    [message] = json.loads(aws(receive))["Messages"]
    assert json.loads(message["Body"]) == {"total": 10}
    assert all(ok for _, ok, *_ in db.sql("SELECT step, ok FROM outbox.probe('orders')"))


def test_the_policys_statements_are_those_that_the_probe_names():
    policy = json.loads((HERE / "example/policy.json").read_text())
    actions = [action for statement in policy["Statement"] for action in statement["Action"]]
    source = (HERE / "target.cpp").read_text()
    assert len(actions) == 6 and [action for action in actions if f'"{action}"' not in source] == []


def test_the_mark_of_a_probe_is_named():
    """By which consumers skip it."""
    assert "`outbox-probe`" in PAGE.split("## The message\n")[1].split("\n## ")[0]


@pytest.fixture
def consumer(db, moto, start_program):
    db.sql("CREATE TABLE mails (payload jsonb)")
    env = os.environ | {"AWS_ENDPOINT_URL": moto.url, "AWS_DEFAULT_REGION": REGION, "AWS_ACCESS_KEY_ID": KEYS["aws_access_key_id"], "AWS_SECRET_ACCESS_KEY": KEYS["aws_secret_access_key"]}
    db.sql("CREATE EXTENSION outbox_inbox")
    return lambda queue: start_program(HERE / "example/consumer.py", queue, db.dsn, env=env)


def test_the_consumer_works_once_per_event(db, moto, name, consumer):
    queue = moto.queue(name)
    moto.sqs.set_queue_attributes(QueueUrl=queue.url, Attributes={"VisibilityTimeout": "3"})
    db.aws_sink("aws", moto.url, target=queue.url)
    assert all(ok for _, ok, *_ in db.sql("SELECT step, ok FROM outbox.probe('aws', send => true)"))
    db.sql("SELECT outbox.enqueue('Order', (n % 50)::text, 'order.made', jsonb_build_object('n', n)) FROM generate_series(1, 200) AS n")
    first = consumer(queue.url)
    wait_until(lambda: db.value("SELECT count(*) FROM mails") > 30, 60, sinks(db))
    first.kill()  # what it had not deleted comes again
    consumer(queue.url)
    wait_until(lambda: db.value("SELECT count(*) FROM mails") >= 200, 90, sinks(db))
    counts = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    wait_until(lambda: set(moto.sqs.get_queue_attributes(QueueUrl=queue.url, AttributeNames=counts)["Attributes"].values()) == {"0"}, 30, "the queue to be empty")
    assert db.sql("SELECT count(*), count(DISTINCT payload->>'n') FROM mails") == [(200, 200)]

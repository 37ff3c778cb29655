"""Amazon SQS, SNS and EventBridge as moto serves them, on a port of its own. It keeps nothing: a restart loses queues and messages."""

import json
import signal
import sys
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from outbox_rig.paths import BUILD
from outbox_rig.process import Process, free_port
from outbox_rig.wait import wait_until

REGION = "eu-central-1"
KEYS = {"aws_access_key_id": "AKIAIOSFODNN7EXAMPLE", "aws_secret_access_key": "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"}


def client(service: str, url: str, **more):
    return boto3.client(service, region_name=REGION, endpoint_url=url, aws_access_key_id=KEYS["aws_access_key_id"], aws_secret_access_key=KEYS["aws_secret_access_key"],
                        config=Config(retries={"max_attempts": 1}, read_timeout=30, **more))


class Moto:
    def __init__(self, name: str, directory: Path, log: Path):
        self.name, self.log, self.port = name, log, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: Process | None = None
        self.sqs, self.sns, self.events = (client(service, self.url) for service in ("sqs", "sns", "events"))

    # ---- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        server = Path(sys.executable).parent / "moto_server"
        self._process = Process(self.name, [str(server), "-H", "127.0.0.1", "-p", str(self.port)], self.log, pid_file=BUILD / "run" / f"{self.name}.pid",
                                env={"PYTHONUNBUFFERED": "1"})
        wait_until(self._answers, 60, lambda: f"moto to start; {self.log} ends:\n{self._process.tail()}", interval=0.1)

    def _answers(self) -> bool:
        self._process.must_run()
        try:
            self.sqs.list_queues()
            return True
        except BotoCoreError:
            return False

    def kill(self) -> None:
        self._process.signal(signal.SIGKILL)
        self._process.wait(20)

    def freeze(self) -> None:
        self._process.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process:
            self.thaw()
            self._process.stop(10)

    close = stop

    # ---- use -------------------------------------------------------------------------------------------------

    def queue(self, name: str) -> "Queue":
        return Queue(self, name)

    def topic(self, name: str, queue: "Queue", raw: bool = True) -> str:
        """A topic with this queue as its subscriber; returns its ARN."""
        arn = self.sns.create_topic(Name=name, Attributes={"FifoTopic": "true"} if name.endswith(".fifo") else {})["TopicArn"]
        self.sns.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=queue.arn, Attributes={"RawMessageDelivery": str(raw).lower()})
        return arn

    def bus(self, name: str, queue: "Queue") -> str:
        """An event bus with a rule that sends all events to this queue; returns its ARN."""
        arn = self.events.create_event_bus(Name=name)["EventBusArn"]
        self.events.put_rule(Name="all", EventBusName=name, EventPattern=json.dumps({"detail-type": [{"exists": True}]}))
        self.events.put_targets(Rule="all", EventBusName=name, Targets=[{"Id": "1", "Arn": queue.arn}])
        return arn


class Queue:
    def __init__(self, moto: Moto, name: str):
        self.moto, self.name, self.messages = moto, name, []
        self.url = moto.sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"} if name.endswith(".fifo") else {})["QueueUrl"]
        self.arn = moto.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]

    def take(self) -> list[dict]:
        """Returns the messages that are there now."""
        found = []
        while True:
            batch = self.moto.sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10, MessageAttributeNames=["All"], AttributeNames=["All"]).get("Messages", [])
            if not batch:
                return found
            found += batch
            self.moto.sqs.delete_message_batch(QueueUrl=self.url, Entries=[{"Id": str(i), "ReceiptHandle": message["ReceiptHandle"]} for i, message in enumerate(batch)])

    def read(self, n: int, seconds: float = 60) -> list[dict]:
        """Waits until this queue has had `n` messages; returns all that it had."""
        def enough() -> bool:
            self.messages += self.take()
            return len(self.messages) >= n
        wait_until(enough, seconds, lambda: f"{n} messages in {self.name}; there are {len(self.messages)}", interval=0.05)
        return self.messages

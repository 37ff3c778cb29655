"""make bench: a queue, topic or bus (--service) that moto serves, beside boto3 alone, which sends the same batches from as many threads as the sink
has requests in flight. What reaches a topic or bus is counted in a queue behind it. moto is a program in Python and slower than both, and slows
down as its queue grows: the figures are moto's, and only say that the sink is about as fast."""

import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "test"), str(HERE.parents[1] / "bench")]

from beside_library import BesideLibrary  # noqa: E402
from moto import KEYS, REGION, Moto, client  # noqa: E402

BATCH, REQUESTS = 10, 8


def attributes() -> dict:
    return {"id": {"DataType": "String", "StringValue": str(uuid.uuid4())}}


class Aws(BesideLibrary):
    kind, library, events = "aws", "boto3", 500

    def start(self, rig):
        self.moto = rig._add(Moto(*rig._place("moto")))
        self.queue = self.moto.queue("bench")
        self.target, self.publish = {"sqs": self.to_queue, "sns": self.to_topic, "eventbridge": self.to_bus}[self.given.service]()

    def add_arguments(self, parser):
        parser.add_argument("--service", choices=["sqs", "sns", "eventbridge"], default="sqs")

    # Each returns the option that names the target, and a function that sends a batch and returns how many were refused.

    def to_queue(self):
        sqs = self.client("sqs")
        return f"target '{self.queue.url}'", lambda bodies: len(sqs.send_message_batch(QueueUrl=self.queue.url, Entries=[
            {"Id": str(n), "MessageBody": body, "MessageGroupId": str(n), "MessageAttributes": attributes()} for n, body in enumerate(bodies)]).get("Failed", []))

    def to_topic(self):
        sns, topic = self.client("sns"), self.moto.topic("bench", self.queue)
        return f"target '{topic}'", lambda bodies: len(sns.publish_batch(TopicArn=topic, PublishBatchRequestEntries=[
            {"Id": str(n), "Message": body, "MessageAttributes": attributes()} for n, body in enumerate(bodies)]).get("Failed", []))

    def to_bus(self):
        events, bus = self.client("events"), self.moto.bus("bench", self.queue)
        return f"target '{bus}'", lambda bodies: events.put_events(Entries=[
            {"EventBusName": bus, "Source": "bench", "DetailType": "order.made", "Detail": body} for body in bodies])["FailedEntryCount"]

    def client(self, service):
        return client(service, self.far_url(), max_pool_connections=REQUESTS)

    def far_url(self):
        return self.moto.url.replace(str(self.moto.port), str(self.reach(self.moto.port)))

    def options(self):
        return f"endpoint '{self.far_url()}', allow_http 'true', allow_networks '127.0.0.1', aws_region '{REGION}', {self.target}, concurrency '{REQUESTS}'"

    def mapping(self):
        return ", ".join(f"{name} '{value}'" for name, value in KEYS.items())

    def empty(self):
        self.moto.sqs.delete_queue(QueueUrl=self.queue.url)  # it may be purged once a minute
        self.queue = self.moto.queue("bench")

    def count(self):
        found = self.moto.sqs.get_queue_attributes(QueueUrl=self.queue.url, AttributeNames=["ApproximateNumberOfMessages"])
        return int(found["Attributes"]["ApproximateNumberOfMessages"])

    def library_seconds(self, events):
        body = '{"x": "' + "x" * (self.payload - 9) + '"}'

        def send(first: int) -> None:
            assert self.publish([body] * min(BATCH, events - first)) == 0

        began = time.monotonic()
        with ThreadPoolExecutor(REQUESTS) as threads:
            list(threads.map(send, range(0, events, BATCH)))
        return time.monotonic() - began


if __name__ == "__main__":
    Aws().main()

"""make bench: an SQS queue that moto serves, beside boto3 alone, which sends the same batches from as many threads as the sink has
requests in flight. moto is a program in Python and slower than both, and slows down as its queue grows: the figures are moto's, and only
say that the sink is about as fast."""

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


class Aws(BesideLibrary):
    kind, library, events = "aws", "boto3", 500

    def start(self, rig):
        self.moto = rig._add(Moto(*rig._place("moto")))
        self.queue = self.moto.queue("bench")

    def options(self):
        return (f"endpoint '{self.moto.url}', allow_http 'true', allow_networks '127.0.0.1', region '{REGION}', queue_url '{self.queue.url}',"
                f" concurrency '{REQUESTS}'")

    def mapping(self):
        return ", ".join(f"{name} '{value}'" for name, value in KEYS.items())

    def empty(self):
        self.moto.sqs.delete_queue(QueueUrl=self.queue.url)  # it may be purged once a minute
        self.queue = self.moto.queue("bench")

    def count(self):
        found = self.moto.sqs.get_queue_attributes(QueueUrl=self.queue.url, AttributeNames=["ApproximateNumberOfMessages"])
        return int(found["Attributes"]["ApproximateNumberOfMessages"])

    def library_seconds(self, events):
        body, sqs = '{"x": "' + "x" * (self.payload - 9) + '"}', client("sqs", self.moto.url, max_pool_connections=REQUESTS)

        def send(first: int) -> None:
            entries = [{"Id": str(n), "MessageBody": body, "MessageGroupId": str(n),
                        "MessageAttributes": {"id": {"DataType": "String", "StringValue": str(uuid.uuid4())}}}
                       for n in range(first, min(first + BATCH, events))]
            assert len(sqs.send_message_batch(QueueUrl=self.queue.url, Entries=entries)["Successful"]) == len(entries)

        began = time.monotonic()
        with ThreadPoolExecutor(REQUESTS) as threads:
            list(threads.map(send, range(0, events, BATCH)))
        return time.monotonic() - began


if __name__ == "__main__":
    Aws().main()

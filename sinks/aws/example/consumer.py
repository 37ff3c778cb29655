"""A consumer that works once per event, although an event may arrive twice.

  python3 -m venv venv && venv/bin/pip install boto3 'psycopg[binary]'
  venv/bin/python consumer.py https://sqs.eu-central-1.amazonaws.com/123456789012/orders 'dbname=shop'

boto3 finds region and credentials as usual (AWS_DEFAULT_REGION, AWS_ACCESS_KEY_ID, ...; AWS_ENDPOINT_URL for a local
server). The work and the note that it is done are one transaction in the consumer's database, which has
the extension outbox_inbox. A message is deleted after that transaction; if the consumer dies in
between, the message comes again, and mark_processed() returns false for it.
"""

import json
import sys

import boto3
import psycopg


def work(database: psycopg.Connection, payload: dict) -> None:
    """Yours: here each event adds a line to a table."""
    database.execute("INSERT INTO mails (payload) VALUES (%s)", [json.dumps(payload)])


def main(queue: str, dsn: str) -> None:
    sqs = boto3.client("sqs")
    with psycopg.connect(dsn, autocommit=True) as database:
        while True:
            answer = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=20, MessageAttributeNames=["id", "outbox-probe"])
            for message in answer.get("Messages", []):
                attributes = message["MessageAttributes"]
                if "outbox-probe" not in attributes:  # the test message of outbox.probe(..., send => true)
                    with database.transaction():
                        first_time = database.execute("SELECT outbox_inbox.mark_processed(%s, 'mail')", [attributes["id"]["StringValue"]]).fetchone()[0]
                        if first_time:
                            work(database, json.loads(message["Body"]))
                sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])


if __name__ == "__main__":
    main(*sys.argv[1:])

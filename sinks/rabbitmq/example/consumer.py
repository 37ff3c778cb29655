"""A consumer that works once per event, although an event may arrive twice.

  python3 -m venv venv && venv/bin/pip install pika 'psycopg[binary]'
  venv/bin/python consumer.py amqp://guest:guest@localhost:5672/%2F 'dbname=shop' orders

`orders` is the queue. The work and the note that it is done are one transaction in the consumer's database, which has
the extension outbox_inbox. A message is acknowledged after that transaction; if the consumer dies in
between, the message comes again, and mark_processed() returns false for it.
"""

import json
import sys

import pika
import psycopg


def work(database: psycopg.Connection, event_type: str, payload: dict) -> None:
    """Yours: here each event adds a line to a table."""
    database.execute("INSERT INTO mails (event_type, payload) VALUES (%s, %s)", [event_type, json.dumps(payload)])


def main(url: str, dsn: str, queue: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as database, pika.BlockingConnection(pika.URLParameters(url)) as broker:
        channel = broker.channel()
        channel.basic_qos(prefetch_count=100)
        for method, properties, body in channel.consume(queue):
            if "outbox-probe" not in (properties.headers or {}):  # the test message of outbox.probe(..., send => true)
                with database.transaction():
                    first_time = database.execute("SELECT outbox_inbox.mark_processed(%s, 'mail')", [properties.message_id]).fetchone()[0]
                    if first_time:
                        work(database, properties.type, json.loads(body))
            channel.basic_ack(method.delivery_tag)


if __name__ == "__main__":
    main(*sys.argv[1:])

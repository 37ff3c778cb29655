"""A consumer that works once per event, although an event may arrive twice.

  python3 -m venv venv && venv/bin/pip install nats-py 'psycopg[binary]'
  venv/bin/python consumer.py nats://localhost:4222 'dbname=shop' ORDERS

`ORDERS` is the stream. The work and the note that it is done are one transaction in the consumer's database, which has
the extension outbox_inbox. A message is acknowledged after that transaction; if the consumer dies in
between, the message comes again, and mark_processed() returns false for it.
"""

import asyncio
import json
import sys

import nats
import psycopg
from nats.js.api import ConsumerConfig


async def work(database: psycopg.AsyncConnection, subject: str, payload: dict) -> None:
    """Yours: here each event adds a line to a table."""
    await database.execute("INSERT INTO mails (event_type, payload) VALUES (%s, %s)", [subject, json.dumps(payload)])


async def main(url: str, dsn: str, stream: str) -> None:
    client = await nats.connect(url)
    # Another consumer of this name shares its work. One message at a time keeps the order of the events.
    messages = await client.jetstream().pull_subscribe("", durable="mail", stream=stream, config=ConsumerConfig(ack_wait=5, max_ack_pending=1))
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as database:
        while True:
            try:
                [message] = await messages.fetch(1, timeout=5)
            except asyncio.TimeoutError:
                continue
            if "outbox-probe" not in message.headers:  # the test message of outbox.probe(..., send => true)
                async with database.transaction():
                    row = await (await database.execute("SELECT outbox_inbox.mark_processed(%s, 'mail')", [message.headers["id"]])).fetchone()
                    if row[0]:
                        await work(database, message.subject, json.loads(message.data))
            await message.ack()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

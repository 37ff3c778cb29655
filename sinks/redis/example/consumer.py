"""A consumer that works once per event, although an event may arrive twice.

  python3 -m venv venv && venv/bin/pip install redis 'psycopg[binary]'
  venv/bin/python consumer.py redis://localhost:6379/0 'dbname=shop' outbox.event.Order

The last argument is the stream. The work and the note that it is done are one transaction in the consumer's database,
which has the extension outbox_inbox. An entry is acknowledged after that transaction; if the consumer
dies in between, it gets the entry again at its next start, and mark_processed() returns false for it.

One consumer of a group gets the entries in their order. Several share them, and then two entries of one key may be
worked on at the same time.
"""

import json
import sys

import psycopg
import redis

GROUP, NAME = "mail", "consumer1"


def work(database: psycopg.Connection, event_type: str, payload: dict) -> None:
    """Yours: here each event adds a line to a table."""
    database.execute("INSERT INTO mails (event_type, payload) VALUES (%s, %s)", [event_type, json.dumps(payload)])


def main(url: str, dsn: str, stream: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as database, redis.Redis.from_url(url, decode_responses=True) as server:
        try:
            server.xgroup_create(stream, GROUP, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):  # the group exists
                raise
        start = "0"  # first the entries that it got before, and has not acknowledged
        while True:
            entries = [entry for _, found in server.xreadgroup(GROUP, NAME, {stream: start}, count=100, block=1000) for entry in found]
            if not entries:
                start = ">"
            for entry_id, event in entries:
                if event and "header.outbox-probe" not in event:  # empty: the stream was trimmed; the other one: outbox.probe(..., send => true)
                    with database.transaction():
                        if database.execute("SELECT outbox_inbox.mark_processed(%s, 'mail')", [event["id"]]).fetchone()[0]:
                            work(database, event["type"], json.loads(event["payload"]))
                server.xack(stream, GROUP, entry_id)


if __name__ == "__main__":
    main(*sys.argv[1:])

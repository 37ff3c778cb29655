"""Debezium: reads the write-ahead log, with its outbox event router

Debezium streams the table outbox of this database, whose columns are those of its documentation, to Kafka at $KAFKA.
"""

import os
import threading

import confluent_kafka
import psycopg


class Relay:
    def __init__(self, dsn: str):
        self._delivered: list[str] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._consumer = confluent_kafka.Consumer({"bootstrap.servers": os.environ["KAFKA"], "group.id": f"conformance-{os.getpid()}",
                                                   "auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 500,
                                                   "allow.auto.create.topics": True})

    def start(self) -> None:
        self._consumer.subscribe(["outbox.event.conformance"])
        self._thread.start()

    def enqueue(self, connection: psycopg.Connection, event: str) -> None:
        connection.execute("INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('conformance', %s, 'conformance', to_jsonb(%s::text))",
                           [event, event])

    def delivered(self) -> list[str]:
        return list(self._delivered)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._stopped.is_set():
            message = self._consumer.poll(0.1)
            if message and not message.error():
                self._delivered.append(message.key().decode())

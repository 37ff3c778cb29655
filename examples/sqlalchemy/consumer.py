"""Ships what was ordered: each event once, however often Kafka hands it over."""

import json
import os
import socket
from decimal import Decimal
from uuid import UUID

from confluent_kafka import Consumer, KafkaException, Message
from sqlalchemy import func, select

from models import Session, Shipment


def handle(message: Message) -> None:
    event_id = UUID(dict(message.headers())["id"].decode())
    with Session.begin() as session:
        if session.scalar(select(func.outbox_inbox.mark_processed(event_id, "shipping"))):
            order = json.loads(message.value())
            session.add(Shipment(order_id=UUID(order["id"]), customer=order["customer"], total=Decimal(order["total"])))


def main() -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "group.id": "shipping",
            "group.instance.id": socket.gethostname(),  # a restarted process has its partitions back at once
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 1000,  # the first event makes the topic
        }
    )
    consumer.subscribe(["outbox.event.Order"])
    try:
        while True:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if error := message.error():  # a broker that is away, a topic that is not yet there: librdkafka goes on by itself
                if error.fatal():
                    raise KafkaException(error)
                print(error)
                continue
            # Whatever is raised here ends the process, and its supervisor starts it again where the offset was committed.
            handle(message)
            consumer.commit(message, asynchronous=False)  # after the transaction's commit, never before
    finally:
        consumer.close()


main()

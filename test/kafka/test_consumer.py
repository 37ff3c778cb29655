"""The tests' own consumer: a record that it reads again is no duplicate, and a record that was sent twice is one."""

import confluent_kafka


def test_what_is_read_again_is_not_returned_again(kafka, consume, aggregate):
    kafka.create_topic(aggregate, 2)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap})

    def send(*values: str) -> None:
        for value in values:
            producer.produce(aggregate, value, partition=int(value) % 2)
        assert producer.flush(30) == 0

    send("0", "1", "2", "3", "2")
    consumer = consume(aggregate)
    assert sorted(record.value for record in consumer.take(5)) == [b"0", b"1", b"2", b"2", b"3"]
    for again in range(3):
        for partition in range(2):  # as after an outage, when the broker knows no offset of the group
            consumer._consumer.seek(confluent_kafka.TopicPartition(aggregate, partition, 0))
        send("4", "5")
        records = consumer.take(2)
        assert sorted((record.value, record.offset) for record in records) == [(b"4", 3 + again), (b"5", 2 + again)]
        assert consumer.quiet(0.5) == [] and consumer.at_end()

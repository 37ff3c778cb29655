"""A payload arrives byte for byte as PostgreSQL prints it, whatever it contains."""

import json

from outbox_rig.documents import Documents


def large() -> list[str]:
    """Documents that are long, deep, or have a character to escape at the end of a block that is copied at once."""
    around = [json.dumps("x" * before + escaped + "y" * after) for before in (*range(18), *range(1015, 1034), 65535, 65536)
              for escaped in ('"', "\\", "\n", "\x01", "ä") for after in (0, 9)]
    return around + [
        json.dumps("\x02" * 70_000), json.dumps("€😀" * 20_000), json.dumps({"a": "z" * 200_000, "b": ["\t" * 3000]}),
        "[" * 1000 + "]" * 1000, '{"a":' * 1000 + "1" + "}" * 1000,
        json.dumps({f"key {n}": n for n in range(2000)}), json.dumps([[], {}, [[]], [{}], {"": {}}]),
        '{"a": 1, "a": 2, "b": 3, "a": 4}', '""', "[]", "{}", "1.00", "true", "null", '"text"',
    ]


def test_any_document(db, kafka, consume, aggregate):
    db.kafka_sink("main", kafka)
    documents = Documents(seed=5)
    texts = large() + [documents.value(4) for _ in range(3000)]
    db.sql("CREATE TABLE documents (n int PRIMARY KEY, document jsonb)")
    with db.connect() as connection, connection.cursor().copy("COPY documents FROM STDIN") as copy:
        for row in enumerate(texts):
            copy.write_row(row)
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) SELECT %s, n, 'order.created', document FROM documents", aggregate)
    expected = {str(n): text.encode() for n, text in db.sql("SELECT n, document::text FROM documents")}
    for record in consume(f"outbox.event.{aggregate}").take(len(texts)):
        assert record.value == expected.pop(record.key), f"document {record.key}: {texts[int(record.key)]:.200}"
    assert not expected

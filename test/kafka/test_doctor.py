"""What outbox.doctor() reports about brokers, and that its hint ends the stall."""

import re

from outbox_rig import wait_until

from ways import password, sasl


def says(db, words):
    return wait_until(lambda: (said := db.doctor("sink k")) and words in said[1] and said, 30, lambda: str(db.doctor("sink k")))


def gone(db):
    wait_until(lambda: db.pending() == 0, 60, lambda: f"delivery: {db.complaints()}")
    wait_until(lambda: db.complaints() == [], 10, lambda: str(db.complaints()))


def test_a_wrong_password(db, kafka, security, aggregate):
    right = password(security)
    options = sasl(security, "PLAIN") | {"bootstrap_servers": security.bootstrap("SASL_SSL")}
    db.kafka_sink("k", kafka, mapping=right | {"sasl_password": "not this one"}, **options)
    db.enqueue(aggregate, "1")
    state, detail, hint = says(db, "SASL authentication failed for user")
    assert state == "error" and "not this one" not in detail + hint
    [statement] = re.findall("ALTER USER MAPPING .*?;", hint)
    db.paste(statement.replace("...", right["sasl_password"]))
    gone(db)


def test_an_unknown_topic(db, kafka, aggregate):
    db.kafka_sink("k", kafka, allow_auto_create_topics="false")
    db.enqueue(aggregate, "1")
    state, detail, hint = says(db, f'topic "outbox.event.{aggregate}" does not exist')
    assert state == "warning"
    db.paste(hint)
    gone(db)

"""outbox.probe(): its findings about a sink, and that it changes nothing."""

import re
import socket
import time

import psycopg
import pytest
from confluent_kafka.admin import (AclBinding, AclOperation, AclPermissionType, ResourcePatternType,
                                   ResourceType)
from outbox_rig import Consumer, patient, wait_until
from outbox_rig.paths import ROOT


def probe(db, sink: str, timeout: str = "10 s") -> dict[str, tuple]:
    """step -> (ok, message, hint), in order."""
    return {step: (ok, message, hint) for step, ok, message, hint in
            db.sql("SELECT step, ok, message, hint FROM outbox.probe(%s, %s::interval)", sink, timeout)}


def assert_ok(steps: dict[str, tuple]) -> None:
    assert steps and all(ok for ok, _, _ in steps.values()), steps


def assert_fails(steps: dict[str, tuple], step: str, pattern: str) -> None:
    """The probe ends with this failed step."""
    ok, message, hint = steps[step]
    assert not ok and re.search(pattern, message) and hint, steps
    assert list(steps)[-1] == step, steps


@pytest.fixture(scope="module")
def strict(rig):
    """A broker that does not create topics; tests may stop it."""
    with rig.kafka(partitions=1, jit=False, properties={"auto.create.topics.enable": "false"}) as broker:
        yield broker


@pytest.fixture
def black_hole():
    """The port of a socket that accepts connections and never sends anything."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(128)
        yield s.getsockname()[1]


def sasl(security, **more) -> dict[str, str]:
    return {"bootstrap_servers": security.bootstrap("SASL_SSL"), "security_protocol": "sasl_ssl", "ssl_ca_pem": security.ca_pem,
            "sasl_mechanism": "PLAIN"} | more


def outbox_user(security) -> dict[str, str]:
    return {"sasl_username": "outbox", "sasl_password": security.users["outbox"]}


# ---- Kafka ---------------------------------------------------------------------------------------------------

def test_all_is_well(db, kafka, security, aggregate):
    topic = f"outbox.event.{aggregate}"
    kafka.create_topic(topic, 3)
    db.kafka_sink("k", kafka, outbox_user(security), **sasl(security, topic=topic))
    steps = probe(db, "k")
    assert_ok(steps)
    assert list(steps) == ["connect", "TLS", "authenticate", "cluster", "producer id", "topic", "brokers"]
    assert steps["authenticate"][1] == 'PLAIN, user "outbox"'
    assert steps["topic"][1].startswith(f'topic "{topic}" has 3 partitions')
    assert db.value("SELECT bool_and(ok AND milliseconds >= 0 AND milliseconds < 10000) FROM outbox.probe('k')")


def test_a_test_event_on_request(db, kafka, security, aggregate):
    """A producer of the probe's own delivers it, also while the sink is paused."""
    topic = f"outbox.event.{aggregate}"
    kafka.create_topic(topic, 1)
    db.kafka_sink("k", kafka, outbox_user(security), **sasl(security, topic=topic))
    db.sql("SELECT outbox.pause('k')")
    assert "send" not in probe(db, "k")
    [(*_, ok, message)] = db.sql("SELECT step, ok, message FROM outbox.probe('k', send => true) WHERE step = 'send'")
    assert ok and message == "a test event of type outbox.probe is delivered: partition 0, offset 0"
    with Consumer(kafka.bootstrap, [topic]) as consumer:
        [record] = consumer.take(1)
    assert dict(record.headers)["outbox-probe"] == b"true" and record.value == b'{"test": true}'
    assert db.sql("SELECT (SELECT count(*) FROM outbox.events), delivered, dead_total FROM outbox.sinks") == [(0, 0, 0)]


def test_a_test_event_that_the_broker_refuses(db, kafka, security, aggregate):
    topic = f"outbox.event.{aggregate}"
    kafka.create_topic(topic, 1, config={"max.message.bytes": "20"})
    db.kafka_sink("k", kafka, outbox_user(security), **sasl(security, topic=topic))
    [(ok, message)] = db.sql("SELECT ok, message FROM outbox.probe('k', send => true) WHERE step = 'send'")
    assert not ok and "too large" in message, message


def test_topics_by_template(db, kafka, aggregate):
    kafka.create_topic(f"{aggregate}.a.x", 1)
    db.kafka_sink("k", kafka, topic=aggregate + ".${aggregate_type}.x")
    steps = probe(db, "k")
    assert_ok(steps)
    assert steps["topics"][1].startswith(f'1 fit "{aggregate}.*.x": {aggregate}.a.x')


@pytest.mark.parametrize("secret", ["wrong", "outbox"])
def test_wrong_password(db, kafka, security, secret):
    db.kafka_sink("k", kafka, {"sasl_username": "outbox", "sasl_password": secret}, **sasl(security))
    steps = probe(db, "k")
    assert_fails(steps, "authenticate", 'SASL authentication failed for user "outbox"')
    db.set_mapping("k", sasl_password=security.users["outbox"])
    assert_ok(probe(db, "k"))
    assert security.users["outbox"] not in str(db.sql("SELECT * FROM outbox.probe('k')"))


@pytest.mark.parametrize("listener, words", [("EXPIRED", "certificate .*has expired"), ("MISNAMED", "not made out to that host")])
def test_a_bad_certificate(db, kafka, security, listener, words):
    db.kafka_sink("k", kafka, bootstrap_servers=security.bootstrap(listener), security_protocol="ssl", ssl_ca_pem=security.ca_pem)
    steps = probe(db, "k")
    assert steps["connect"][0]
    assert_fails(steps, "TLS", words)


def test_an_unknown_authority(db, kafka, security):
    db.kafka_sink("k", kafka, bootstrap_servers=security.bootstrap("SSL"), security_protocol="ssl",
                  ssl_ca_pem=security.stranger.certificate)
    assert_fails(probe(db, "k"), "TLS", "authority that is not trusted")


def test_a_client_certificate_is_wanted(db, kafka, security):
    db.kafka_sink("k", kafka, bootstrap_servers=security.bootstrap("MTLS"), security_protocol="ssl", ssl_ca_pem=security.ca_pem)
    steps = probe(db, "k")
    assert not all(ok for ok, _, _ in steps.values()), steps


def test_plain_text_to_a_tls_listener(db, kafka, security):
    db.kafka_sink("k", kafka, bootstrap_servers=security.bootstrap("SSL"))
    assert_fails(probe(db, "k", "3 s"), "answer", "security_protocol|did not answer")


def test_no_right_to_a_topic(db, kafka, security, aggregate):
    """An ACL on the topic for another user leaves this user without permission."""
    topic = f"outbox.event.{aggregate}"
    kafka.create_topic(topic, 1)
    db.kafka_sink("k", kafka, outbox_user(security), **sasl(security, topic=topic))
    assert_ok(probe(db, "k"))

    def allow(user: str, operation: AclOperation) -> None:
        acl = AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        admin = kafka.admin()
        for done in admin.create_acls([acl]).values():
            done.result(patient(20))
    allow("second", AclOperation.WRITE)
    refused = f'user "outbox" is not allowed to write to topic "{topic}"'
    wait_until(lambda: refused in probe(db, "k")["topic"][1], 10, "the refusal")
    allow("outbox", AclOperation.DESCRIBE)
    words = (refused, "whether writing is allowed shows with the first event")  # decided by the librdkafka that it was built with
    wait_until(lambda: any(text in probe(db, "k")["topic"][1] for text in words), 10, lambda: f"{words} in {probe(db, 'k')}")
    allow("outbox", AclOperation.WRITE)
    wait_until(lambda: all(ok for ok, _, _ in probe(db, "k").values()), 10, "the right")


def test_a_missing_topic_is_not_made(db, kafka, aggregate):
    db.kafka_sink("k", kafka, topic=aggregate)
    for _ in range(3):
        steps = probe(db, "k")
        assert_ok(steps)
        assert steps["topic"][1] == f'topic "{aggregate}" does not exist; the broker creates it with the first event'
    assert aggregate not in kafka.admin().list_topics(timeout=patient(10)).topics
    db.enqueue("Order", "1")
    wait_until(lambda: db.pending() == 0, 20, "the event")
    assert f'topic "{aggregate}" has 12 partitions' in probe(db, "k")["topic"][1]


def test_a_topic_that_nobody_makes(db, strict, aggregate):
    db.kafka_sink("k", strict, topic=aggregate)
    ok, message, hint = probe(db, "k")["topic"]
    assert (ok, message) == (False, f'topic "{aggregate}" does not exist and the broker does not create topics') and hint
    strict.create_topic(aggregate, 1)
    assert_ok(probe(db, "k"))


def test_a_topic_that_the_sink_keeps_the_broker_from_making(db, kafka, aggregate):
    db.kafka_sink("k", kafka, topic=aggregate, allow_auto_create_topics="false")
    ok, message, hint = probe(db, "k")["topic"]
    assert not ok and message.startswith(f'topic "{aggregate}" does not exist, and option allow_auto_create_topics') and hint


def test_topics_of_pending_events_that_the_broker_makes(db, kafka, aggregate):
    """However many; a header names each."""
    kafka.create_topic(f"{aggregate}.0", 1)
    db.kafka_sink("k", kafka, topic=aggregate + ".${header.tenant}")
    db.sql("SELECT outbox.pause('k')")
    for tenant in range(8):
        db.enqueue("Order", "1", headers=f'{{"tenant": "{tenant}"}}')
    steps = probe(db, "k")
    assert_ok(steps)
    assert f'topic "{aggregate}.' in steps["topic"][1] and "6 more do not exist; the broker creates them" in steps["topic"][1]
    assert steps["topics"][1].startswith(f'1 fit "{aggregate}.*"')


def test_a_topic_that_only_pending_events_name(db, strict, aggregate):
    """The option topic has variables: the doctor's hint leads to the topic that the cluster lacks, whatever waits before
    it."""
    strict.create_topic(f"outbox.event.{aggregate}", 1)
    db.kafka_sink("k", strict)
    db.enqueue(aggregate, "1")
    wait_until(lambda: db.pending() == 0, 20, "the event to be sent")
    assert_ok(probe(db, "k"))
    db.sql("SELECT outbox.pause('k')")
    db.sql("SELECT outbox.enqueue(%s, n::text, 'e', '{}') FROM generate_series(1, 300) AS n", aggregate)
    db.enqueue("Missing" + aggregate, "1")
    db.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, sink, status) VALUES ('No topic/at all', '1', 'e', 'k', 'FAILED')")
    missing = f'topic "outbox.event.Missing{aggregate}" does not exist and the broker does not create topics'
    assert probe(db, "k")["topic"][:2] == (False, missing)
    db.sql("SELECT outbox.resume('k')")
    hint = wait_until(lambda: (said := db.doctor("sink k")) and "does not exist" in said[1] and said[2], 30, lambda: str(db.doctor("sink k")))
    assert [message for _, ok, _, message, _ in db.sql(hint) if not ok] == [missing]
    strict.create_topic(f"outbox.event.Missing{aggregate}", 1)
    wait_until(lambda: db.pending() == 0, 60, lambda: str(db.complaints()))
    assert_ok(probe(db, "k"))


def test_a_stopped_broker(db, strict):
    """The sink's circuit opens meanwhile, which does not affect the probe."""
    db.kafka_sink("k", strict, topic="t")
    strict.stop()
    db.enqueue("Order", "1")
    wait_until(lambda: db.value("SELECT state FROM outbox.sinks") == "circuit open", 20, "the circuit to open")
    steps = probe(db, "k")
    assert_fails(steps, "connect", f"connection refused: .*{re.escape(strict.bootstrap)}")
    assert len(steps) == 1
    [(hint,)] = db.sql("SELECT hint FROM outbox.doctor() WHERE \"check\" = 'sink k'")
    assert "SELECT * FROM outbox.probe('k')" in hint
    strict.start()
    strict.create_topic("t", 1)
    assert_ok(probe(db, "k"))
    wait_until(lambda: db.pending() == 0, 20, "the event")


def test_a_black_hole(db, kafka, black_hole):
    db.kafka_sink("k", kafka, bootstrap_servers=f"127.0.0.1:{black_hole}")
    start = time.monotonic()
    steps = probe(db, "k", "1.5 s")
    assert 1.5 <= time.monotonic() - start < 9, "not the default of 10 s"
    assert_fails(steps, "answer", f"127.0.0.1:{black_hole} accepts the connection and did not answer within [0-9]{{3,4}} ms$")


# ---- who may ask, and for what -------------------------------------------------------------------------------

def test_what_is_refused(db, kafka):
    db.kafka_sink("orders", kafka)
    with pytest.raises(psycopg.errors.UndefinedObject) as unknown:
        probe(db, "order")
    assert unknown.value.diag.message_hint == 'Perhaps you meant the sink "orders".'
    for timeout in ("1 ms", "1 hour", "-5 s"):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            probe(db, "orders", timeout)
    with pytest.raises(psycopg.errors.NullValueNotAllowed):
        db.sql("SELECT * FROM outbox.probe(NULL)")
    with db.connect() as connection:
        connection.autocommit = False
        connection.execute("CREATE SERVER fresh FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:1')")
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match='the worker finds no sink "fresh"'):
            connection.execute("SELECT * FROM outbox.probe('fresh')")


def test_rights(db, kafka):
    db.kafka_sink("k", kafka)
    with db.role("watcher"):
        db.sql("GRANT USAGE ON SCHEMA outbox TO watcher")
        with db.connect() as connection:
            connection.execute("SET ROLE watcher")
            for grant in ("GRANT EXECUTE ON FUNCTION outbox.probe TO watcher", "GRANT USAGE ON FOREIGN SERVER k TO watcher"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute("SELECT * FROM outbox.probe('k')")
                db.sql(grant)
            assert all(ok for (ok,) in connection.execute("SELECT ok FROM outbox.probe('k')"))


def test_an_operator_sees_that_a_topic_is_missing(db, strict, aggregate):
    """The role of docs/security.md reads columns of the events, not the table. A topic is named to a role that may read
    what its name is made of, and otherwise the probe does not count as passed."""
    page = re.findall(r"^```sql\n(.*?)^```$", (ROOT / "docs/security.md").read_text(), re.MULTILINE | re.DOTALL)
    db.kafka_sink("crm", strict)
    db.kafka_sink("tenants", strict, topic="events.${header.tenant}." + aggregate)
    db.sql("SELECT outbox.pause('crm'), outbox.pause('tenants')")
    db.enqueue("Missing" + aggregate, "1", headers='{"tenant": "blue"}')
    asked = "SELECT ok, message, hint FROM outbox.probe('{}') WHERE ok IS NOT TRUE"
    with db.role("operator"):
        for block in page:
            if block.startswith(("GRANT pg_monitor", "GRANT EXECUTE ON FUNCTION outbox.probe")):
                db.sql(block)
        db.sql("GRANT USAGE ON FOREIGN SERVER tenants TO operator")
        with db.connect(user="operator") as operator:
            [(ok, message, _)] = operator.execute(asked.format("crm")).fetchall()
            assert (ok, message) == (False, f'topic "outbox.event.Missing{aggregate}" does not exist and the broker does not create topics')
            [(ok, message, hint)] = operator.execute(asked.format("tenants")).fetchall()
            assert (ok, message) == (None, "topics of pending events were not looked for: operator may not read headers of outbox.events")
            db.sql(hint)
            [(ok, message, _)] = operator.execute(asked.format("tenants")).fetchall()
            assert not ok and f'topic "events.blue.{aggregate}" does not exist' in message
        with db.connect(autocommit=False) as holder:
            holder.execute("LOCK TABLE outbox.events IN ACCESS EXCLUSIVE MODE")
            why = db.value("SELECT unseen FROM pg_foreign_server, outbox_internal.probe_topics(oid, 'operator'::regrole) WHERE srvname = 'crm'")
            assert why == "topics of pending events were not looked for: canceling statement due to lock timeout"


def test_no_worker(db, kafka, setting):
    db.kafka_sink("k", kafka)
    setting("outbox.enabled", "off")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as off:
        probe(db, "k")
    assert off.value.diag.message_detail == "outbox.enabled is off." and off.value.diag.message_hint


def test_options_that_do_not_go_together(db, kafka, security):
    """Each option alone is valid, so CREATE SERVER accepts them."""
    db.kafka_sink("k", kafka, security_protocol="ssl", ssl_cipher_suites="none")
    wait_until(lambda: db.value("SELECT state FROM outbox.sinks") == "misconfigured", 10, "the worker's look at it")
    ok, message, _ = probe(db, "k")["options"]
    assert not ok and "librdkafka refuses the options" in message

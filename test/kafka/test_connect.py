"""Every way to connect, each with a listener of the real broker: one event is delivered."""

import pytest
from outbox_rig import wait_until

from ways import client_key, client_secret, nothing, oidc, password, sasl, sasl_plaintext, tls

pytestmark = pytest.mark.librdkafka

# listener, options of the server, user mapping
WAYS = {
    "plaintext": ("PLAINTEXT", nothing, nothing),
    "tls": ("SSL", tls, nothing),
    "mutual-tls": ("MTLS", tls, lambda s: client_key(s.client_authority)),
    "plain-without-tls": ("SASL_PLAINTEXT", sasl_plaintext, password),
    "plain": ("SASL_SSL", lambda s: sasl(s, "PLAIN"), password),
    "scram-256": ("SASL_SSL", lambda s: sasl(s, "SCRAM-SHA-256"), password),
    "scram-512": ("SASL_SSL", lambda s: sasl(s, "SCRAM-SHA-512"), password),
    "oidc": ("SASL_SSL", oidc, client_secret),
}


def create(db, kafka, way):
    listener, options, mapping = WAYS[way]
    security = kafka.security
    db.kafka_sink("k", kafka, mapping(security), **{"bootstrap_servers": security.bootstrap(listener)} | options(security))


def state(db):
    [row] = db.sql("SELECT state, last_error FROM outbox.sinks")
    return row


@pytest.mark.parametrize("way", WAYS)
def test_an_event_goes_through(db, kafka, security, consume, aggregate, librdkafka, way):
    """If the library lacks a feature, an error says so at once or in the sink's state."""
    security.tokens.start()
    create(db, kafka, way)
    event = db.enqueue(aggregate, "1")
    if way.startswith("scram") and librdkafka < (2, 6, 1):
        words = f"if the broker is Kafka 4 or later, librdkafka {'.'.join(map(str, librdkafka))} cannot use SCRAM with it: librdkafka 2.6.1"
        wait_until(lambda: state(db)[0] == "circuit open" and words in state(db)[1], 10, lambda: f"{words} in {state(db)}")
        assert db.pending() == 1
        return
    wait_until(lambda: db.pending() == 0, 20, lambda: f"delivery: {state(db)}")
    assert [record.id for record in consume(f"outbox.event.{aggregate}").take(1)] == [event]

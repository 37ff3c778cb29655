"""Every way to connect, each against a listener of the real broker: one event goes through."""

import pytest
from outbox_rig import wait_until


def tls(security, **more):
    return {"security_protocol": "ssl", "ssl_ca_pem": security.ca_pem} | more


def sasl(security, mechanism, **more):
    return {"security_protocol": "sasl_ssl", "ssl_ca_pem": security.ca_pem, "sasl_mechanism": mechanism} | more


def password(security, user="outbox"):
    return {"sasl_username": user, "sasl_password": security.users[user]}


def client_key(security, secret=None):
    issued = security.client_authority.issue("client", password=secret)
    return {"ssl_key_pem": issued.key, "ssl_certificate_pem": issued.certificate} | ({"ssl_key_password": secret} if secret else {})


def oidc(security):
    return {"sasl_oauthbearer_method": "oidc", "sasl_oauthbearer_client_id": "outbox",
            "sasl_oauthbearer_token_endpoint_url": security.tokens.url}


# listener, options of the server, user mapping
WAYS = {
    "plaintext": ("PLAINTEXT", lambda s: {}, lambda s: {}),
    "tls": ("SSL", tls, lambda s: {}),
    "mutual-tls": ("MTLS", tls, client_key),
    "mutual-tls-encrypted-key": ("MTLS", tls, lambda s: client_key(s, "of the key")),
    "plain-without-tls": ("SASL_PLAINTEXT", lambda s: {"security_protocol": "sasl_plaintext", "sasl_mechanism": "PLAIN"}, password),
    "plain": ("SASL_SSL", lambda s: sasl(s, "PLAIN"), password),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_event_goes_through(db, kafka, security, consume, aggregate, way):
    listener, options, mapping = WAYS[way]
    where = {"bootstrap_servers": security.bootstrap(listener)} if listener != "PLAINTEXT" else {}
    security.tokens.start()
    db.kafka_sink("k", kafka, mapping(security), **where | options(security))
    event = db.enqueue(aggregate, "1")
    wait_until(lambda: db.pending() == 0, 5, lambda: f"delivery: {db.sql('SELECT state, last_error FROM outbox.sinks')}")
    assert [record.id for record in consume(f"outbox.event.{aggregate}").take(1)] == [event]

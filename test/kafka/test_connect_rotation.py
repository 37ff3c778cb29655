"""Credentials are changed under traffic: no restart, no lost event, order kept."""

import re

import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from outbox_rig import wait_until
from outbox_rig.certificates import Authority
from outbox_rig.kafka_security import password as new_password
from outbox_rig.traffic import Traffic

from ways import client_key, client_secret, oidc, password, sasl, tls

pytestmark = pytest.mark.slow


@pytest.fixture
def traffic(db, aggregate):
    """Start it when all sinks exist: each event goes to the sinks that its INSERT matches."""
    traffic = Traffic(db, aggregate)
    yield traffic
    traffic.stop()


def wait_for_more(db, traffic, *names: str, timeout: float = 20) -> None:
    """Every sink delivers the events that are written from now on."""
    written = len(traffic.expected())
    before = {name: max(written, db.sink("delivered", name)[0]) for name in names}
    for name, count in before.items():
        wait_until(lambda: db.sink("delivered", name)[0] > count, timeout, lambda: f"{name}: {db.sink('last_error', name)[0]}")


def check_books(db, traffic, consume, topic: str, bound: int) -> None:
    """All events arrived, first deliveries in order, and at most `bound` of them twice."""
    traffic.stop()
    traffic.drain()
    assert db.value("SELECT count(*) FROM outbox.events WHERE status = 'FAILED'") == 0
    traffic.check(consume(topic).take_rest(), bound)


@pytest.mark.timeout(180)
def test_a_password_and_a_client_certificate(db, kafka, security, consume, aggregate, traffic):
    """The broker is reconfigured and restarted: it accepts only the new credentials, and for some time the sinks
    have the old ones."""
    kafka.create_topics([f"{aggregate}.plain", f"{aggregate}.mutual"])  # an event that comes before its topic spends an attempt
    db.kafka_sink("plain", kafka, password(security, "rotated"), bootstrap_servers=security.bootstrap("SASL_SSL"),
                  topic=f"{aggregate}.plain", **sasl(security, "PLAIN"))
    db.kafka_sink("mutual", kafka, client_key(security.client_authority), bootstrap_servers=security.bootstrap("MTLS"),
                  topic=f"{aggregate}.mutual", **tls(security))
    traffic.start()
    wait_for_more(db, traffic, "plain", "mutual")

    kafka.stop()
    security.users["rotated"] = new_password()
    security.trust_clients_of(Authority("next client CA"))
    kafka.start()
    for name, words in (("plain", 'SASL authentication failed for user "rotated"'), ("mutual", "is not accepted by the broker")):
        wait_until(lambda: db.state(name) == "circuit open" and words in db.sink("last_error", name)[0], 20,
                   lambda: f"{words} in {db.sink('last_error', name)[0]}")
    assert db.value("SELECT max(attempts) FROM outbox.events WHERE status = 'PENDING'") == 0

    workers = db.sql("SELECT pid FROM outbox.workers WHERE database = current_database()")
    db.set_mapping("plain", **{"sasl_password": security.users["rotated"]})
    db.set_mapping("mutual", **client_key(security.client_authority))
    wait_for_more(db, traffic, "plain", "mutual")
    assert db.sql("SELECT pid FROM outbox.workers WHERE database = current_database()") == workers
    check_books(db, traffic, consume, f"{aggregate}.plain", bound=1000)
    check_books(db, traffic, consume, f"{aggregate}.mutual", bound=1000)


def test_a_password_that_the_broker_does_not_know_yet(db, kafka, security, consume, aggregate, traffic, librdkafka):
    """The other order: the user mapping has the new password first."""
    if librdkafka < (2, 6, 1):
        pytest.skip("only SCRAM's passwords can be changed in a running broker, and this librdkafka has no SCRAM with Kafka 4")
    db.kafka_sink("scram", kafka, password(security, "scrammed"), bootstrap_servers=security.bootstrap("SASL_SSL"), topic=aggregate,
                  **sasl(security, "SCRAM-SHA-512"))
    traffic.start()
    wait_for_more(db, traffic, "scram")
    security.users["scrammed"] = new_password()
    db.set_mapping("scram", sasl_password=security.users["scrammed"])
    wait_until(lambda: db.state("scram") == "circuit open", 20, "the refusal")
    change = UserScramCredentialUpsertion("scrammed", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096),
                                          security.users["scrammed"].encode())
    admin = kafka.admin()
    for done in admin.alter_user_scram_credentials([change]).values():
        done.result(20)
    wait_for_more(db, traffic, "scram")
    check_books(db, traffic, consume, aggregate, bound=1000)


def test_a_token_endpoint_that_is_down_and_a_wrong_secret(db, kafka, security, consume, aggregate):
    security.tokens.stop()
    db.kafka_sink("oidc", kafka, {"sasl_oauthbearer_client_secret": "not this one"}, bootstrap_servers=security.bootstrap("SASL_SSL"),
                  **oidc(security))
    event = db.enqueue(aggregate, "1")

    def refused() -> bool:
        return db.state("oidc") == "circuit open" and \
            f'no token from the token endpoint {security.tokens.url} for client "outbox"' in db.sink("last_error", "oidc")[0]
    wait_until(refused, 20, lambda: f"the reason: {db.sink('last_error', 'oidc')[0]}")
    assert db.value("SELECT attempts FROM outbox.events") == 0
    security.tokens.start()
    wait_until(lambda: "wrong secret" in db.sink("last_error", "oidc")[0], 30, lambda: f"the next: {db.sink('last_error', 'oidc')[0]}")
    db.set_mapping("oidc", **client_secret(security))
    assert [record.id for record in consume(f"outbox.event.{aggregate}").take(1)] == [event]
    assert security.tokens.secret not in db.sink("last_error", "oidc")[0]


@pytest.fixture
def short_tokens(security):
    """Tokens that end while a test runs; the broker ends the connections that were opened with them."""
    lifetime, security.tokens.lifetime = security.tokens.lifetime, 12
    security.tokens.start()
    yield security.tokens
    security.tokens.lifetime = lifetime
    security.tokens.start()


def test_tokens_that_end_under_traffic(db, pg, kafka, security, consume, aggregate, traffic, short_tokens):
    """The broker ends a connection whose token has ended, and that is no outage."""
    kafka.create_topic(aggregate)
    db.kafka_sink("oidc", kafka, client_secret(security), bootstrap_servers=security.bootstrap("SASL_SSL"), topic=aggregate,
                  **oidc(security))
    traffic.start()
    wait_for_more(db, traffic, "oidc")
    before, log_start = len(short_tokens.tokens), pg.log.stat().st_size
    wait_until(lambda: len(short_tokens.tokens) >= before + 4, 60, "three renewals")
    wait_for_more(db, traffic, "oidc")
    assert not re.findall(r".*(?:WARNING|circuit).*", pg.logged(log_start))

    short_tokens.stop()  # while the sink has a token
    wait_until(lambda: db.state("oidc") == "circuit open" and "no token from the token endpoint" in db.sink("last_error", "oidc")[0], 60,
               lambda: f"the outage: {db.state('oidc')}, {db.sink('last_error', 'oidc')[0]}")
    short_tokens.start()
    wait_for_more(db, traffic, "oidc", timeout=40)
    assert db.value("SELECT coalesce(max(attempts), 0) FROM outbox.events WHERE status = 'PENDING'") == 0
    check_books(db, traffic, consume, aggregate, bound=5000)


def test_the_probe_gets_a_token(db, kafka, security, aggregate):
    security.tokens.start()
    kafka.create_topic(aggregate, 1)
    db.kafka_sink("oidc", kafka, client_secret(security), bootstrap_servers=security.bootstrap("SASL_SSL"), topic=aggregate,
                  **oidc(security))
    steps = db.sql("SELECT step, ok, message FROM outbox.probe('oidc')")
    assert all(ok for _, ok, _ in steps), steps
    assert steps[0][0] == "token" and steps[0][2].startswith('there is one for client "outbox", valid for '), steps
    assert ("authenticate", True, 'OAUTHBEARER, client "outbox"') in steps
    db.set_mapping("oidc", sasl_oauthbearer_client_secret="not this one")
    [(step, ok, message, hint)] = db.sql("SELECT step, ok, message, hint FROM outbox.probe('oidc')")
    assert step == "token" and not ok and "HTTP 401 invalid_client" in message and hint, message

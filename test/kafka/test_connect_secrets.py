"""No log, view or error contains a secret, whatever librdkafka logs; and who may set an option with a file path."""

import psycopg
import pytest
from outbox_rig import wait_until

from ways import client_key, client_secret, oidc, password, sasl, sasl_plaintext, tls


def lines_of(pem: str) -> list[str]:
    return [line for line in pem.splitlines() if not line.startswith("-----") and len(line) > 30]


def test_no_secret_is_told(pg, db, kafka, security, setting, aggregate):
    """Sinks that deliver and sinks that are refused, all with librdkafka's debug output in the server's log."""
    setting("log_min_messages", "debug1")
    start = pg.log.stat().st_size
    mutual = client_key(security.client_authority)
    wrong = {"sasl_username": "outbox", "sasl_password": "wrong-and-secret-too"}
    sinks = {
        "plain": ("SASL_SSL", sasl(security, "PLAIN"), password(security)),
        "refused": ("SASL_SSL", sasl(security, "PLAIN"), wrong),
        "scram": ("SASL_SSL", sasl(security, "SCRAM-SHA-256"), password(security, "second")),
        "mutual": ("MTLS", tls(security), mutual),
        "oidc": ("SASL_SSL", oidc(security), client_secret(security)),
    }
    security.tokens.start()
    for name, (listener, options, mapping) in sinks.items():
        db.kafka_sink(name, kafka, mapping, bootstrap_servers=security.bootstrap(listener), debug="all", **options)
    db.enqueue(aggregate, "1")
    wait_until(lambda: {"plain", "mutual", "oidc"}.isdisjoint(name for name, in db.sql("SELECT sink FROM outbox.events_pending")), 20, "delivery")
    wait_until(lambda: db.value("SELECT state FROM outbox.sinks WHERE name = 'refused'") == "circuit open", 20, "the refusal")
    with pytest.raises(psycopg.Error) as refusal:
        db.set_mapping("mutual", ssl_key_password="password-of-the-key")

    told = pg.log.read_bytes()[start:].decode(errors="replace")
    assert "librdkafka SASL" in told and "librdkafka CONNECTED" in told, "the debug output is there"
    told = "\n".join(line for line in told.splitlines() if "STATEMENT" not in line)  # PostgreSQL's log of a failed statement
    told += str(db.sql("SELECT * FROM outbox.sinks")) + str(db.sql("SELECT last_error FROM outbox.events")) + str(refusal.value)
    told += str(db.sql("SELECT query FROM pg_stat_activity WHERE backend_type = 'outbox worker'"))
    secrets = [*security.users.values(), wrong["sasl_password"], "password-of-the-key", security.tokens.secret, *security.tokens.tokens,
               *lines_of(mutual["ssl_key_pem"])]
    assert [secret for secret in secrets if secret in told] == []


@pytest.fixture
def owner(pg, db):
    """A session of a role that may create sinks."""
    db.sql("CREATE ROLE sink_owner LOGIN")
    db.sql("GRANT USAGE ON FOREIGN DATA WRAPPER outbox_kafka TO sink_owner")
    with db.connect(user="sink_owner") as session:
        yield session
    db.sql("DROP OWNED BY sink_owner")
    db.sql("DROP ROLE sink_owner")


def refused(session, statement: str) -> str:
    with pytest.raises(psycopg.errors.InsufficientPrivilege) as error:
        session.execute(statement)
    return error.value.diag.message_primary


def test_an_owner_cannot_use_what_a_superuser_lent(db, owner):
    """A server with a superuser-only option can be altered only by superusers; its owner may drop that option, and
    then alter the server."""
    owner.execute("CREATE SERVER k FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'a', security_protocol 'ssl')")
    only = 'only a superuser may set option "ssl_key_location"'
    assert refused(owner, "ALTER SERVER k OPTIONS (ADD ssl_key_location '/etc/ssl/private/server.key')") == only
    db.sql("ALTER SERVER k OPTIONS (ADD ssl_key_location '/etc/ssl/private/server.key')")
    assert refused(owner, "ALTER SERVER k OPTIONS (SET bootstrap_servers 'mine')") == only
    assert refused(owner, "ALTER SERVER k OPTIONS (SET ssl_key_location '/etc/passwd')") == only
    owner.execute("ALTER SERVER k OPTIONS (DROP ssl_key_location, SET bootstrap_servers 'mine')")
    owner.execute("ALTER SERVER k OPTIONS (SET bootstrap_servers 'b')")

    db.sql("CREATE SERVER lent FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'a', security_protocol 'ssl',"
           " ssl_ca_location '/etc/ssl/certs/ca-certificates.crt')")
    db.sql("ALTER SERVER lent OWNER TO sink_owner")
    assert refused(owner, "ALTER SERVER lent OPTIONS (SET bootstrap_servers 'mine')") == 'only a superuser may set option "ssl_ca_location"'
    owner.execute("ALTER SERVER lent OPTIONS (DROP ssl_ca_location, SET bootstrap_servers 'mine')")


def test_half_of_the_credentials_is_told(db, kafka, security, consume, aggregate):
    """DDL on the server alone cannot detect it; the sink's state shows it, and adding the missing half starts the
    sink."""
    db.kafka_sink("k", kafka, bootstrap_servers=security.bootstrap("SASL_PLAINTEXT"), **sasl_plaintext())
    event = db.enqueue(aggregate, "1")
    wait_until(lambda: db.sql("SELECT state, last_error FROM outbox.sinks") == [(
        "misconfigured", 'option "sasl_username" is required with sasl_mechanism "PLAIN": The user mapping for PUBLIC does not have it.')],
        10, lambda: f"the state: {db.sql('SELECT state, last_error FROM outbox.sinks')}")
    db.create_mapping("k", password(security))
    assert [record.id for record in consume(f"outbox.event.{aggregate}").take(1)] == [event]

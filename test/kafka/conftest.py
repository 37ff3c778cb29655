"""One broker for this suite, with a listener for every way to connect."""

import re

import psycopg
import pytest


@pytest.fixture(scope="session")
def kafka(rig):
    """As in other suites, with `kafka.security` in addition."""
    return rig.kafka(partitions=12, secured=True)


@pytest.fixture(scope="session")
def security(kafka):
    """Its listeners, users, certificates and tokens."""
    return kafka.security


@pytest.fixture(scope="session")
def debezium(rig, kafka):
    """Kafka Connect with a server and a database of its own, for the tests of the pages on Debezium. It confirms the
    slot's position at once."""
    pg = rig.postgres(settings={"outbox.poll_interval": "1s", "wal_level": "logical"}, tcp=True)
    debezium = rig.debezium(pg=pg, dbname="moving", kafka=kafka, jit=False, worker={"offset.flush.interval.ms": "300"})
    yield debezium
    debezium.stop()
    pg.stop()


@pytest.fixture
def librdkafka(db):
    """The version that the server has loaded: (2, 0, 2)."""
    return tuple(map(int, re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", db.value("SELECT libraries FROM outbox.library()")).groups()))


@pytest.fixture
def without_oidc(db) -> str | None:
    """Why the server's librdkafka has no OIDC, if it has none."""
    try:
        with db.connect() as session, session.transaction(force_rollback=True):
            session.execute("CREATE SERVER no_oidc FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'a',"
                            " security_protocol 'sasl_ssl', sasl_mechanism 'OAUTHBEARER', sasl_oauthbearer_method 'oidc')")
    except psycopg.Error as error:
        return f"{error.diag.message_primary}: {error.diag.message_detail}"
    return None

"""docs/logical-replication.md with two servers; the publisher has neither the extension nor the preload."""

import json
from contextlib import suppress

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.guide import Guide
from outbox_rig.paths import ROOT
from outbox_rig.postgres import Postgres
from outbox_rig.receiver import SECRET
from outbox_rig.traffic import Applications, Number, check

PAGE = "docs/logical-replication.md"
KEYS = [f"key{n}" for n in range(6)]
CONNECTION = "host=publisher.example dbname=shop user=outbox_replication password=''change me'' sslmode=verify-full sslrootcert=system"
KAFKA = "CREATE SERVER main FOREIGN DATA WRAPPER outbox_kafka\n  OPTIONS (bootstrap_servers 'localhost:9092');"


@pytest.fixture
def network(rig):
    network = rig.namespace()
    yield network
    network.mend()


@pytest.fixture
def managed(rig, network):
    """The publisher: a stock server in a network of its own."""
    pg = rig.postgres(settings={"shared_preload_libraries": "", "wal_level": "logical", "listen_addresses": network.address, "wal_sender_timeout": "2s"},
                      namespace=network)
    with open(pg.data / "pg_hba.conf", "a") as rules:
        rules.write("host all outbox_replication samenet trust\n")
    pg.reload()
    with pg.connect() as admin:
        admin.execute("CREATE DATABASE shop")
        admin.execute("CREATE ROLE app LOGIN")
    yield Database(pg, "shop")
    pg.close()


@pytest.fixture
def subscriber(pg):
    database = Database(pg, "managed")
    with pg.connect() as admin:
        admin.execute("CREATE DATABASE managed")
        admin.execute("ALTER DATABASE managed SET outbox.retention = '2d'")
    pg.set("wal_receiver_timeout", "2s")
    yield database
    pg.wait_ready()
    if database.value("SELECT count(*) FROM pg_subscription WHERE subname = 'outbox'"):
        database.sql("ALTER SUBSCRIPTION outbox DISABLE")
        database.sql("ALTER SUBSCRIPTION outbox SET (slot_name = NONE)")
        database.sql("DROP SUBSCRIPTION outbox")
    database.drop()
    pg.reset("wal_receiver_timeout")


def arrived(receiver) -> list[tuple[str, Number]]:
    """What the endpoint accepted: the id, the key, and the number within the key."""
    return [(delivery.id, (data["key"], data["n"])) for delivery in receiver.accepted() for data in [delivery.json()["data"]]]


def all_arrive(receiver, written: dict[str, int]) -> int:
    """Waits for these keys' events, up to the last number of each. Returns the number of duplicates."""
    wanted = {(key, n): None for key, last in written.items() for n in range(1, last + 1)}
    with suppress(TimeoutError):  # the check says what is lost
        wait_until(lambda: {number for _, number in arrived(receiver)} >= wanted.keys(), 60)
    return check(wanted, arrived(receiver))


def insert(cursor, key: str, n: int) -> None:
    cursor.execute("SELECT outbox.enqueue('Order', %s, 'order.changed', %s)", (key, json.dumps({"key": key, "n": n})))


def refuses(db: Database, statement: str, *parameters) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        db.sql(statement, *parameters)


def test_cleaning_deletes_only_what_the_slot_has_confirmed(managed):
    """Regardless of the events' age and created_at."""
    managed.paste((ROOT / "docs/publisher.sql").read_text())

    insert_old = "INSERT INTO outbox.events (aggregate_type, event_type, created_at) VALUES ('Order', %s, '2020-01-01')"

    def names() -> list[str]:
        return [name for (name,) in managed.sql("SELECT event_type FROM outbox.events ORDER BY seq")]

    def clean(keep: str = "0s") -> tuple[int, str]:
        notices: list[str] = []
        with managed.connect() as connection:
            connection.add_notice_handler(lambda notice: notices.append(f"{notice.severity}: {notice.message_primary}"))
            [(cleaned,)] = connection.execute("SELECT outbox.clean(%s)", [keep]).fetchall()
        return cleaned, "".join(notices)

    def confirm(upto: str | None = None) -> None:
        """Confirms WAL as the subscriber does."""
        managed.sql("CREATE TABLE IF NOT EXISTS public.wal (); DROP TABLE public.wal")  # a WAL record after the position to confirm
        managed.sql("SELECT pg_replication_slot_advance('outbox', coalesce(%s::pg_lsn, pg_current_wal_flush_lsn()))", upto)

    def make_slot() -> None:
        managed.sql("SELECT pg_create_logical_replication_slot('outbox', 'pgoutput')")

    no_slot = (0, 'WARNING: nothing is cleaned: replication slot "outbox" does not exist')
    managed.sql(insert_old, "before")
    assert clean() == no_slot and clean() == no_slot and names() == ["before"]

    make_slot()
    with managed.connect(autocommit=False) as writer:
        writer.execute(insert_old, ["late"])  # begins before a run, and commits after it
        assert clean() == (0, "")
        managed.sql(insert_old, "early")
        assert clean() == (0, "") and clean() == (0, ""), "nothing is confirmed"
        managed.sql("CREATE TABLE public.wal (); DROP TABLE public.wal")
        here = managed.value("SELECT pg_current_wal_flush_lsn()::text")
        writer.commit()
    confirm(here)
    assert clean() == (1, "") and names() == ["late", "early"], "a transaction was open in each run that is confirmed"
    assert clean("1 day") == (0, "")
    confirm()
    assert clean("1 day") == (0, "") and names() == ["late", "early"]
    assert clean() == (2, "") and names() == [], "now it is confirmed"

    # A new slot has confirmed none of the events that the lost slot was to carry.
    managed.sql(insert_old, "lost")
    assert clean() == (0, "")
    managed.sql("SELECT pg_drop_replication_slot('outbox')")
    assert clean() == no_slot
    make_slot()
    assert clean() == (0, "") and names() == ["lost"]
    confirm()
    assert clean() == (1, "") and names() == []


@pytest.mark.slow
@pytest.mark.kills_server
def test_a_plain_table_is_delivered_from_elsewhere(pg, managed, subscriber, network, receiver):
    stock: Postgres = managed.pg
    there = Guide(managed, {}, PAGE)
    here = Guide(subscriber, {CONNECTION: f"host={network.address} dbname=shop user=outbox_replication",
                              KAFKA: f"BEGIN; CREATE SERVER main FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url '{receiver.url}', allow_http 'true',"
                                     f" allow_networks '127.0.0.0/8'); CREATE USER MAPPING FOR PUBLIC SERVER main OPTIONS (secret '{SECRET}'); COMMIT;"}, PAGE)
    managed.paste((ROOT / "docs/publisher.sql").read_text())
    there.follow("managed roles")
    here.follow("managed subscriber")
    assert managed.sql("SELECT FROM pg_extension WHERE extname = 'outbox'") == [] and managed.value("SHOW shared_preload_libraries") == ""

    with Applications(managed, KEYS, insert, writers=3) as applications:
        applications.more(60)
        managed.sql("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")
        applications.more(40)
        network.cut()
        applications.more(40)
        network.mend()
        subscriber.disconnect()
        pg.kill()
        applications.more(40)
        pg.start()
        applications.more(40)
        wait_until(lambda: len(receiver.accepted()) > 120, 60, "delivery to go on")
        there.follow("managed clean")
        managed.sql("SELECT outbox.clean('0s')")  # events that are no longer there are delivered all the same
    managed.disconnect()
    stock.kill()
    stock.start()
    assert all_arrive(receiver, applications.written()) <= 60, "only the events in flight at the kill come twice"

    # Events that the subscriber could not store are refused when they are enqueued; the replication continues.
    enqueue = "SELECT outbox.enqueue(%s, 'k', %s, %s, %s::jsonb, %s)"
    for bad in (("Or der", "e", "{}", None, None), ("", "e", "{}", None, None), ("Order", "", "{}", None, None), ("Order", "e\ne", "{}", None, None),
                ("Order", "e", json.dumps("x" * 900_000), None, None), ("Order", "e", "{}", "[]", None), ("Order", "e", "{}", '{"a": {"b": 1}}', None),
                ("Order", "e", "{}", '{"a": null}', None), ("Order", "e", "{}", '{"": 1}', None), ("Order", "e", "{}", '{"a": "x\\r\\ny"}', None),
                ("Order", "e", "{}", None, "a\nb")):
        refuses(managed, enqueue, *bad)
    receiver.clear()
    first, second = (managed.value("SELECT outbox.enqueue('Order', 'd', 'e', '{\"key\": \"d\", \"n\": 1}', '{\"a\": 1, \"b\": true}', dedup_key => 'once')")
                     for _ in range(2))
    managed.sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', 'd', 'e', '{\"key\": \"d\", \"n\": 2}')")
    assert all_arrive(receiver, {"d": 2}) == 0
    assert first == second and receiver.accepted()[0].id == str(first)
    [(active, behind, wal_status)] = there.rows("managed lag")
    assert active and behind >= 0 and wal_status == "reserved"
    assert there.rows("managed lag") and here.rows("managed errors")[0][1] is True

    repair(pg, managed, subscriber, there, here, receiver)


def repair(pg, managed, subscriber, there: Guide, here: Guide, receiver) -> None:
    """The publisher came back without the slot, and applications continued."""
    receiver.clear()
    managed.sql("SELECT outbox.clean('0s')")
    keys = [f"again{n}" for n in range(4)]
    with Applications(managed, keys, insert, writers=2) as applications:
        applications.more(40)
        subscriber.sql("ALTER SUBSCRIPTION outbox DISABLE")
        wait_until(lambda: not managed.value("SELECT active FROM pg_replication_slots"), 20, "the slot to be free")
        there.follow("managed repair, slot")  # as a failover would
        subscriber.sql("ALTER SUBSCRIPTION outbox ENABLE")
        applications.more(40)
        wait_until(lambda: 'replication slot "outbox" does not exist' in pg.log.read_text(errors="replace"), 20, "the subscriber to say so")
        before = len(receiver.accepted())
        here.follow("managed repair, stop")
        there.follow("managed repair, slot")  # nothing left to drop
        here.follow("managed repair, copy")
        here.ask("managed repair, copied")
        applications.more(20)
        here.follow("managed repair, done")
        applications.more(20)
    assert all_arrive(receiver, {key: number for key, number in applications.written().items() if key in keys}) == 0 and before

"""One database with the extension."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql

from .kafka import Kafka
from .paths import pg_config
from .postgres import Postgres
from .receiver import Receiver
from .wait import patient, wait_until


class Database:
    def __init__(self, pg: Postgres, name: str):
        self.pg, self.name = pg, name
        self._connection: psycopg.Connection | None = None

    def create(self, tablespace: str = "pg_default", version: str | None = None) -> "Database":
        self.pg.wait_ready()  # an earlier test may have ended with a crash
        with self.pg.connect() as admin:
            admin.execute(sql.SQL("CREATE DATABASE {} TABLESPACE {}").format(sql.Identifier(self.name), sql.Identifier(tablespace)))
        self.sql("CREATE EXTENSION outbox" + (f" VERSION '{version}'" if version else ""))
        return self

    def drop(self) -> None:
        """Drops the database, which also shows that the worker disconnects at once."""
        self.disconnect()
        self.pg.wait_ready()
        with self.pg.connect() as admin:
            admin.execute(f"SET statement_timeout = '{patient(60):g}s'")
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(self.name)))

    @property
    def dsn(self) -> str:
        """A connection string for PostgreSQL's own programs."""
        return self.pg.dsn(self.name)

    def connect(self, **options) -> psycopg.Connection:
        """Opens a new connection, for transactions."""
        return self.pg.connect(self.name, **options)

    def disconnect(self) -> None:
        if self._connection:
            self._connection.close()
        self._connection = None

    def sql(self, query: str, *parameters: Any) -> list[tuple]:
        """Runs a statement in autocommit mode and returns the rows; reconnects if the server was restarted."""
        cursor = self._connected().execute(query, parameters or None)
        return cursor.fetchall() if cursor.description is not None else []  # SELECT FROM returns rows without columns

    def _connected(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = self.connect()
        return self._connection

    def value(self, query: str, *parameters: Any) -> Any:
        rows = self.sql(query, *parameters)
        return rows[0][0] if rows else None

    def refuses(self, statement: str, *parts: str, args: Sequence = ()) -> None:
        """The statement fails, and these parts stand in the error's message, detail or hint."""
        with pytest.raises(psycopg.Error) as error:
            self.sql(statement, *args)
        text = f"{error.value.diag.message_primary} | {error.value.diag.message_detail} | {error.value.diag.message_hint}"
        assert all(part in text for part in parts), text

    def paste(self, script: str) -> str:
        """Runs SQL in psql, as a user would, and returns what psql prints."""
        done = subprocess.run([pg_config("bindir") / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.pg.dsn(self.name)],
                              input=script, capture_output=True, text=True, timeout=patient(60))
        assert done.returncode == 0, f"{script}\n{done.stderr}"
        return done.stdout

    def enqueue(self, aggregate_type: str, aggregate_id: str, event_type: str = "order.created",
                payload: str = '{"a": 1}', **more: Any) -> str:
        """Calls outbox.enqueue() in a transaction of its own and returns the event's id."""
        names = "".join(f", {name} => %s" for name in more)
        return str(self.value(f"SELECT outbox.enqueue(%s, %s::text, %s, %s::jsonb{names})", aggregate_type, aggregate_id,
                              event_type, payload, *more.values()))

    def send(self, key: str, n: int, **more: Any) -> str:
        """Enqueues the event of this number for a key."""
        return self.enqueue("Order", key, "order.changed", f'{{"key": "{key}", "n": {n}}}', **more)

    def create_contrib(self, name: str) -> None:
        """Creates an extension of PostgreSQL's contrib. Skips the test if the server was built without it (16 from
        PyPI)."""
        if not self.sql("SELECT FROM pg_available_extensions WHERE name = %s", name):
            pytest.skip(f"this server has no extension {name}")
        self.sql(f"CREATE EXTENSION IF NOT EXISTS {name}")

    @contextmanager
    def role(self, name: str, attributes: str = "LOGIN") -> Iterator[str]:
        """A role for the duration of a block, and what it owns."""
        self.sql(f"CREATE ROLE {name} {attributes}")
        try:
            yield name
        finally:
            self.sql(f"DROP OWNED BY {name}; DROP ROLE {name}")

    @contextmanager
    def restored(self, name: str) -> Iterator["Database"]:
        """Another database of the server, restored from a dump of this one."""
        copy = Database(self.pg, name)
        dump = subprocess.run([pg_config("bindir") / "pg_dump", self.dsn], capture_output=True, text=True, check=True).stdout
        self.sql(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            copy.paste(dump)
            yield copy
        finally:
            copy.drop()

    def kafka_sink(self, name: str, kafka: Kafka, mapping: dict[str, str] = {}, **options: str) -> None:
        with self._connected().transaction():
            self._create_server(name, "outbox_kafka", {"bootstrap_servers": kafka.bootstrap} | options)
            if mapping:
                self.create_mapping(name, mapping)

    def webhook_sink(self, name: str, receiver: Receiver | str, secret: str | None = None, **options: str) -> None:
        url = receiver if isinstance(receiver, str) else receiver.url
        with self._connected().transaction():  # otherwise pending events could be sent unsigned, before the secret is set
            self._create_server(name, "outbox_webhook", {"url": url, "allow_http": "true", "allow_networks": "127.0.0.0/8"} | options)
            if secret:
                self.create_mapping(name, {"secret": secret})

    def _create_server(self, name: str, wrapper: str, options: dict[str, str]) -> None:
        self.sql(sql.SQL("CREATE SERVER {} FOREIGN DATA WRAPPER {} OPTIONS ({})")
                 .format(sql.Identifier(name), sql.Identifier(wrapper), _pairs("", options)))

    def create_mapping(self, name: str, options: dict[str, str]) -> None:
        self.sql(sql.SQL("CREATE USER MAPPING FOR PUBLIC SERVER {} OPTIONS ({})").format(sql.Identifier(name), _pairs("", options)))

    def set_sink(self, name: str, **options: str) -> None:
        """ALTER SERVER: changes options that are already set."""
        self.sql(sql.SQL("ALTER SERVER {} OPTIONS ({})").format(sql.Identifier(name), _pairs("SET", options)))

    def set_mapping(self, name: str, **options: str) -> None:
        """ALTER USER MAPPING: changes options that are already set."""
        self.sql(sql.SQL("ALTER USER MAPPING FOR PUBLIC SERVER {} OPTIONS ({})").format(sql.Identifier(name), _pairs("SET", options)))

    def sink(self, columns: str, name: str = "crm") -> tuple:
        """Columns of outbox.sinks."""
        return self.sql(f"SELECT {columns} FROM outbox.sinks WHERE name = '{name}'")[0]

    def state(self, name: str = "crm") -> str:
        return self.sink("state", name)[0]

    def libraries(self) -> str:
        """The client libraries of the kinds of sink: "librdkafka 2.0.2, libcurl 7.88.1, OpenSSL 3.0.15"."""
        return self.value("SELECT string_agg(c.versions, ', ' ORDER BY w.kind) FROM outbox_internal.wrappers AS w, LATERAL outbox_internal.client_library(w.oid) AS c")

    def doctor(self, check: str, *patience: str) -> tuple | None:
        """(status, detail, hint) of a check of outbox.doctor(), or None."""
        rows = self.sql(f'SELECT status, detail, hint FROM outbox.doctor({"%s" * len(patience)}) WHERE "check" = %s', *patience, check)
        return rows[0] if rows else None

    def complaints(self, *patience: str) -> list[tuple]:
        """The checks of outbox.doctor() that are not ok."""
        return self.sql(f"SELECT * FROM outbox.doctor({'%s' * len(patience)}) WHERE status <> 'ok'", *patience)

    def transactions(self) -> int:
        """How many were committed, as far as sessions have reported them."""
        return self.value("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")

    def pending(self) -> int:
        return self.value("SELECT count(*) FROM outbox.events WHERE status = 'PENDING'")

    def wait_empty(self, timeout: float = 20) -> None:
        """Waits until every event is delivered or a dead letter, and that is recorded."""
        wait_until(lambda: self.pending() == 0, timeout,
                   lambda: f"{self.pending()} events to leave: {self.sql('SELECT name, state, last_error, pending, in_flight FROM outbox.sinks')} "
                           f"{self.sql('SELECT position, sink, partition_key, attempts, blocked_by, available_at - now(), last_error FROM outbox.events_pending ORDER BY 1 LIMIT 9')}")


@pytest.fixture(scope="module")
def module_db(pg, request):
    """A database with the extension for all tests of a module that says `db = module_db`."""
    database = Database(pg, request.module.__name__).create()
    yield database
    database.drop()


def _pairs(verb: str, options: dict[str, str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.SQL(verb + " {} {}").format(sql.Identifier(key), sql.Literal(value)) for key, value in options.items())

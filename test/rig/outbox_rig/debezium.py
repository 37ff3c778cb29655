"""Debezium's outbox event router on a standalone Kafka Connect, from the jars under build/debezium: compared with
outbox in benchmarks and record by record."""

import json
import secrets
import urllib.error
import urllib.request
from pathlib import Path

from psycopg import sql

from .kafka import Kafka
from .paths import BUILD
from .postgres import Postgres
from .process import Process, free_port
from .wait import patient, wait_until

# The options of Kafka's own connect-standalone.sh.
FAST = ["-server", "-Xms256M", "-Xmx2G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
        "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15"]
SOON = ["-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
MAIN = ["-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{BUILD}/debezium/*", "org.apache.kafka.connect.cli.ConnectStandalone"]
ROUTER = "io.debezium.transforms.outbox.EventRouter"
# The table of Debezium's documentation, and the publication that Debezium would create if it owned the table.
COLUMNS = """id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL,
             type varchar(255) NOT NULL, payload jsonb"""
TABLE = """
    CREATE TABLE outbox ({});
    CREATE PUBLICATION dbz_publication FOR TABLE outbox;
    GRANT SELECT ON outbox TO debezium"""


class Debezium:
    def __init__(self, name: str, directory: Path, log: Path, pg: Postgres, dbname: str, kafka: Kafka, producer: dict[str, str] = {},
                 columns: str = COLUMNS, jit: bool = True, worker: dict[str, str] = {}):
        """`pg`: accepts TCP connections and has wal_level = logical. `dbname`: a new database of this name.
        `producer`: properties of the Kafka producer. `columns`: columns of its table. `jit`: False turns off the
        optimizing compiler, for a quick start. `worker`: properties of Kafka Connect."""
        self.name, self.dir, self.log, self.pg, self.dbname = name, directory, log, pg, dbname
        self._process: Process | None = None
        self._java = ["java", *(FAST if jit else SOON), *MAIN]
        self._port = free_port()
        self._number = 0  # properties of the connector
        directory.mkdir(parents=True)
        password = secrets.token_hex(16)
        with pg.connect() as admin:
            admin.execute(f"CREATE ROLE debezium LOGIN REPLICATION PASSWORD '{password}'")
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(dbname)))
        with pg.connect(dbname) as connection:
            connection.execute(TABLE.format(columns))
        self._connector = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "tasks.max": "1",
            "database.hostname": "127.0.0.1", "database.port": str(pg.port), "database.dbname": dbname,
            "database.user": "debezium", "database.password": password, "plugin.name": "pgoutput",
            "publication.autocreate.mode": "disabled", "table.include.list": "public.outbox", "snapshot.mode": "no_data",
            "transforms": "outbox", "transforms.outbox.type": ROUTER,
        }
        properties = {
            "bootstrap.servers": kafka.bootstrap, "listeners": f"http://127.0.0.1:{self._port}", "plugin.discovery": "only_scan" if jit else "service_load",
            "offset.storage.file.filename": str(directory / "offsets"),
            "key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        } | {f"producer.{key}": value for key, value in producer.items()} | worker
        self._properties = directory / "worker.properties"
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    # ---- life ------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def walsender_pid(self) -> int:
        return self._walsender(self._name)

    def _walsender(self, connector: str) -> int:
        with self.pg.connect() as admin:
            row = admin.execute("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", (connector,)).fetchone()
            return row[0] if row and row[0] else 0

    @property
    def _name(self) -> str:
        """The name of the benchmarks' connector and its slot."""
        return f"outbox{self._number}"

    def start(self) -> None:
        """Starts Kafka Connect without a connector."""
        self._process = Process(self.name, [*self._java, str(self._properties)], self.log, pid_file=BUILD / "run" / f"{self.name}.pid")
        wait_until(self._answers, 180, lambda: f"Kafka Connect to start; {self.log} ends:\n{self._process.tail()}")

    def _answers(self) -> bool:
        self._process.must_run()
        try:
            self._request("GET", "/")
            return True
        except urllib.error.URLError:
            return False

    def stop(self) -> None:
        if self._process:
            self._process.stop(30)

    def kill(self) -> None:
        self._process.kill()

    # ---- use -------------------------------------------------------------------------------------------------

    def configure(self, properties: dict[str, str] = {}) -> None:
        """Replaces the connector by a new one with these properties in addition to ours; returns when it streams.
        The process keeps running, with its compiled code."""
        if self._number:  # a changed connector would restart its task in the middle of a later resume
            self.remove(self._name)
        self._number += 1
        self.add({self._name: properties})

    def add(self, connectors: dict[str, dict[str, str]]) -> None:
        """Adds connectors by name; their slots have the same names. Returns when all of them stream."""
        for name, properties in connectors.items():
            self._put(name, self._connector | {"topic.prefix": name, "slot.name": name} | properties)
        for name in connectors:
            self._until_it_streams(name)

    def add_as_it_is(self, properties: dict[str, str]) -> None:
        """Adds a connector with exactly these properties, named like its slot; returns when it streams."""
        name = properties["slot.name"]
        self._put(name, properties)
        self._until_it_streams(name)

    def _put(self, name: str, properties: dict[str, str]) -> None:
        self._request("PUT", f"/connectors/{name}/config", properties)

    def _until_it_streams(self, name: str) -> None:
        wait_until(lambda: self._is("RUNNING", name) and self._walsender(name), 180,
                   lambda: f"Debezium to stream; {self.log} ends:\n{self._process.tail()}")

    def delete(self, name: str) -> None:
        """Deletes the connector; its slot stays."""
        self._request("DELETE", f"/connectors/{name}")
        wait_until(lambda: not self._walsender(name), 30, "Debezium's connector to end")

    def remove(self, name: str) -> None:
        """Deletes the connector and its slot."""
        self.delete(name)
        with self.pg.connect() as admin:
            admin.execute("SELECT pg_drop_replication_slot(%s)", (name,))

    def pause(self, name: str = "") -> None:
        name = name or self._name
        self._request("PUT", f"/connectors/{name}/pause")
        wait_until(lambda: self._is("PAUSED", name), 60, lambda: f"Debezium to pause; {self.log} ends:\n{self._process.tail()}")

    def resume(self, name: str = "") -> None:
        """Returns without waiting."""
        self._request("PUT", f"/connectors/{name or self._name}/resume")

    def connectors(self) -> list[str]:
        return self._request("GET", "/connectors")

    def options(self, plugin: str) -> list[str]:
        """The names of all properties of a connector, transform or converter."""
        return [option["name"] for option in self._request("GET", f"/connector-plugins/{plugin}/config")]

    def must_run(self) -> None:
        """Raises RuntimeError with the end of the log if the process has ended or a task has failed."""
        self._process.must_run()
        for name in self.connectors():
            if "FAILED" in self.states(name):
                raise RuntimeError(f"Debezium's connector {name} failed; {self.log} ends:\n{self._process.tail()}")

    def _is(self, state: str, name: str) -> bool:
        self.must_run()
        return self.states(name) == [state, state]

    def states(self, name: str) -> list[str]:
        """The states of the connector and its task."""
        try:
            status = self._request("GET", f"/connectors/{name}/status")
        except urllib.error.HTTPError as error:
            if error.code == 404:  # not there yet
                return []
            raise
        return [status["connector"]["state"], *(task["state"] for task in status["tasks"])]

    def _request(self, method: str, path: str, body: dict | None = None):
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}{path}", method=method, headers={"Content-Type": "application/json"},
                                         data=None if body is None else json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=patient(180)) as answer:
            text = answer.read()
        return json.loads(text) if text else None

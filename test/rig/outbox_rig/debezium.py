"""Debezium's outbox event router on Kafka Connect, standalone, from the jars under build/debezium: the benchmarks' rival."""

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
from .wait import wait_until

# As Kafka's own connect-standalone.sh starts it.
JAVA = ["java", "-server", "-Xms256M", "-Xmx2G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
        "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true",
        "-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{BUILD}/debezium/*", "org.apache.kafka.connect.cli.ConnectStandalone"]
# The table of its documentation, and the publication that it would make itself if it owned the table.
TABLE = """
    CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL,
                         type varchar(255) NOT NULL, payload jsonb);
    CREATE PUBLICATION dbz_publication FOR TABLE outbox;
    GRANT SELECT ON outbox TO debezium"""


class Debezium:
    def __init__(self, name: str, directory: Path, log: Path, pg: Postgres, dbname: str, kafka: Kafka, producer: dict[str, str] = {}):
        """`pg`: takes TCP connections and has wal_level = logical. `dbname`: a new database of that name. `producer`: properties
        of its Kafka producer."""
        self.name, self.dir, self.log, self._pg, self.dbname = name, directory, log, pg, dbname
        self._process: Process | None = None
        self._port = free_port()
        self._number = 0  # of the connector
        directory.mkdir(parents=True)
        password = secrets.token_hex(16)
        with pg.connect() as admin:
            admin.execute(f"CREATE ROLE debezium LOGIN REPLICATION PASSWORD '{password}'")
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(dbname)))
        with pg.connect(dbname) as connection:
            connection.execute(TABLE)
        self._connector = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "tasks.max": "1", "topic.prefix": "bench",
            "database.hostname": "127.0.0.1", "database.port": str(pg.port), "database.dbname": dbname,
            "database.user": "debezium", "database.password": password, "plugin.name": "pgoutput",
            "publication.autocreate.mode": "disabled", "table.include.list": "public.outbox", "snapshot.mode": "no_data",
            "transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        }
        worker = {
            "bootstrap.servers": kafka.bootstrap, "listeners": f"http://127.0.0.1:{self._port}", "plugin.discovery": "only_scan",
            "offset.storage.file.filename": str(directory / "offsets"),
            "key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        } | {f"producer.{key}": value for key, value in producer.items()}
        self._properties = directory / "worker.properties"
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in worker.items()))

    # ---- life ------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def walsender_pid(self) -> int:
        with self._pg.connect() as admin:
            row = admin.execute("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", (self._name,)).fetchone()
            return row[0] if row and row[0] else 0

    @property
    def _name(self) -> str:
        """Of the connector and its slot."""
        return f"outbox{self._number}"

    def start(self) -> None:
        self._process = Process(self.name, [*JAVA, str(self._properties)], self.log, pid_file=BUILD / "run" / f"{self.name}.pid")
        wait_until(self._answers, 60, lambda: f"Kafka Connect to start; {self.log} ends:\n{self._process.tail()}")
        self.configure()

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
        """A new connector with these properties on top of ours, in place of the one before; returns when it streams. The process,
        and what its compiler has learnt, stay."""
        if self._number:  # a changed one would restart its task in the middle of a later resume
            self._request("DELETE", f"/connectors/{self._name}")
            wait_until(lambda: not self.walsender_pid, 30, "Debezium's connector to end")
            with self._pg.connect() as admin:
                admin.execute("SELECT pg_drop_replication_slot(%s)", (self._name,))
        self._number += 1
        self._request("PUT", f"/connectors/{self._name}/config", self._connector | properties | {"slot.name": self._name})
        wait_until(lambda: self._is("RUNNING") and self.walsender_pid, 60, lambda: f"Debezium to stream; {self.log} ends:\n{self._process.tail()}")

    def pause(self) -> None:
        self._request("PUT", f"/connectors/{self._name}/pause")
        wait_until(lambda: self._is("PAUSED"), 60, lambda: f"Debezium to pause; {self.log} ends:\n{self._process.tail()}")

    def resume(self) -> None:
        """Returns at once."""
        self._request("PUT", f"/connectors/{self._name}/resume")

    def must_run(self) -> None:
        """RuntimeError with the end of the log when the process has ended or its task has failed."""
        self._process.must_run()
        if "FAILED" in self._states():
            raise RuntimeError(f"Debezium failed; {self.log} ends:\n{self._process.tail()}")

    def _is(self, state: str) -> bool:
        self.must_run()
        return self._states() == [state, state]

    def _states(self) -> list[str]:
        """Of the connector and of its task."""
        try:
            status = self._request("GET", f"/connectors/{self._name}/status")
        except urllib.error.HTTPError as error:
            if error.code == 404:  # not yet
                return []
            raise
        return [status["connector"]["state"], *(task["state"] for task in status["tasks"])]

    def _request(self, method: str, path: str, body: dict | None = None):
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}{path}", method=method, headers={"Content-Type": "application/json"},
                                         data=None if body is None else json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

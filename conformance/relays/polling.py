"""What the relays that poll a table have in common: a thread with a connection of its own, and the list of what it
has delivered."""

import threading
import traceback

import psycopg

INTERVAL_S = 0.01


class PollingRelay:
    table: str
    columns: str

    def __init__(self, dsn: str):
        self._dsn = dsn
        self._delivered: list[str] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        with psycopg.connect(dsn) as connection:
            connection.execute(f"DROP TABLE IF EXISTS {self.table}; CREATE TABLE {self.table} ({self.columns})")

    def start(self) -> None:
        self._thread.start()

    def enqueue(self, connection: psycopg.Connection, event: str) -> None:
        connection.execute(f"INSERT INTO {self.table} (event) VALUES (%s)", [event])

    def delivered(self) -> list[str]:
        return list(self._delivered)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def deliver(self, event: str) -> None:
        self._delivered.append(event)

    def round(self, connection: psycopg.Connection) -> None:
        """One transaction: reads events and delivers them."""
        raise NotImplementedError

    def _run(self) -> None:
        try:
            with psycopg.connect(self._dsn) as connection:
                while not self._stopped.wait(INTERVAL_S):
                    self.round(connection)
                    connection.commit()
        except psycopg.Error:
            traceback.print_exc()

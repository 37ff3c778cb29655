"""A user who works on the table: locks pending rows for a while, changes some, deletes a few."""

import threading
import time

import psycopg
from history import History, Touch
from outbox_rig.database import Database
from plan import Plan

PICK = """SELECT position, id::text, (SELECT s.sink FROM chaos.sinks AS s WHERE s.name = e.sink)
  FROM outbox.events_pending AS e ORDER BY random() LIMIT %s FOR UPDATE OF e SKIP LOCKED"""


class Hands(threading.Thread):
    def __init__(self, db: Database, plan: Plan, history: History):
        super().__init__(name="hands", daemon=True)
        self.error: Exception | None = None
        self._db, self._history = db, history
        self._dice = plan.dice(self.name)
        self._ending = threading.Event()

    def finish(self) -> None:
        self._ending.set()
        self.join()
        if self.error:
            raise self.error

    def run(self) -> None:
        connection = None
        try:
            while not self._ending.wait(self._dice.uniform(0.01, 0.1)):
                try:
                    if connection is None or connection.closed:
                        connection = self._db.connect()
                        connection.execute("SET chaos.by_hand = 'yes'")
                    self._touch(connection)
                except (psycopg.OperationalError, psycopg.InterfaceError):  # the server was lost
                    if connection:
                        connection.close()
        except Exception as e:
            self.error = e
        finally:
            if connection:
                connection.close()

    def _touch(self, connection: psycopg.Connection) -> None:
        action = self._dice.choices(["lock", "change", "delete"], [4, 4, 1])[0]
        many = self._dice.randint(1, 6) if action != "delete" else 1
        hold = self._dice.uniform(0, 0.3)
        connection.execute("BEGIN")
        rows = connection.execute(PICK, [many]).fetchall()
        positions = [position for position, _, _ in rows]
        # Recorded before the statement: whether it took effect, and whether the event was already in flight, is not
        # always known.
        touches = [Touch(sink, event, action, time.time()) for _, event, sink in rows]
        self._history.touches += touches
        if action == "change":
            connection.execute("UPDATE outbox.events SET headers = '{\"touched\": \"1\"}' WHERE status = 'PENDING'"
                               " AND position = ANY (%s)", [positions])
        elif action == "delete":
            connection.execute("DELETE FROM outbox.events WHERE status = 'PENDING' AND position = ANY (%s)", [positions])
        self._ending.wait(hold)
        connection.execute("COMMIT" if self._dice.random() < 0.8 else "ROLLBACK")
        for touch in touches:
            touch.ended = time.time()

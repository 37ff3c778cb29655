"""poller: reads what is not marked, and marks it

The poller of the articles about the transactional outbox. It asks each row and not a number, so a late commit is found
whenever it comes.
"""

from .polling import PollingRelay


class Relay(PollingRelay):
    table = "conformance_poller"
    columns = "id bigserial PRIMARY KEY, event text NOT NULL, processed_at timestamptz"

    def round(self, connection) -> None:
        rows = connection.execute(f"SELECT id, event FROM {self.table} WHERE processed_at IS NULL ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED").fetchall()
        for id, event in rows:
            self.deliver(event)
            connection.execute(f"UPDATE {self.table} SET processed_at = now() WHERE id = %s", [id])

"""last id: reads what is above the highest id that it has seen

The relay of several libraries and of many projects: the events stay in the table, and the relay remembers how far it
has come.
"""

from .polling import PollingRelay


class Relay(PollingRelay):
    table = "conformance_last_id"
    columns = "id bigserial PRIMARY KEY, event text NOT NULL"
    last = 0

    def round(self, connection) -> None:
        for id, event in connection.execute(f"SELECT id, event FROM {self.table} WHERE id > %s ORDER BY id LIMIT 100", [self.last]).fetchall():
            self.deliver(event)
            self.last = id

"""last id below the oldest transaction: reads in the order of transactions, and stops before the oldest that runs

The usual repair of a relay that remembers an id: events have the number of their transaction, and none is read as long
as an earlier transaction runs, of whatever kind. A report that runs for an hour delays each event by an hour.
"""

from .polling import PollingRelay


class Relay(PollingRelay):
    table = "conformance_last_xact"
    columns = "xact xid8 NOT NULL DEFAULT pg_current_xact_id(), id bigserial, event text NOT NULL, PRIMARY KEY (xact, id)"
    last = ("0", 0)

    def round(self, connection) -> None:
        rows = connection.execute(f"SELECT xact::text, id, event FROM {self.table} WHERE (xact, id) > (%s::xid8, %s) AND "
                                  "xact < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY xact, id LIMIT 100", self.last).fetchall()
        for xact, id, event in rows:
            self.deliver(event)
            self.last = (xact, id)

"""Does a backlog drain as fast after an outage of the broker as without one?"""

import threading
import time

from drain import PAYLOAD, load
from outbox_rig import wait_until
from outbox_rig.database import Database
from stage import Failure, Results, Row, Stage, progress

GOAL = 0.8


class Watch:
    """Samples how much is delivered, and tells the rate between a tenth and nine tenths of it."""

    def __init__(self, stage: Stage, db: Database, events: int):
        self.events, self.samples, self._over = events, [], threading.Event()
        self._stage, self._db = stage, Database(db.pg, db.name)
        self._before = stage.delivered(db)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        done = 0
        while done < self.events and not self._over.is_set():
            done = self._stage.delivered(self._db) - self._before
            self.samples.append((time.monotonic(), done))
            time.sleep(0.02)
        self._db.disconnect()

    def rate(self) -> float:
        self._thread.join(180)
        self._over.set()
        if self.samples[-1][1] < self.events:
            raise Failure(f"only {self.samples[-1][1]} of {self.events} events were delivered")
        first, last = (next(sample for sample in self.samples if sample[1] >= self.events * part) for part in (0.1, 0.9))
        return (last[1] - first[1]) / (last[0] - first[0])


def measure(stage: Stage, results: Results, events: int) -> None:
    with stage.database("outage") as db:
        stage.pause(db)
        stage.kafka_sink(db)
        db.sql(PAYLOAD)
        rates = {}
        for name in ("warm", "before", "after"):
            load(db, "Outage", events)
            watch = Watch(stage, db, events)
            if name == "after":
                stage.kafka.stop()
            stage.switch(True)
            if name == "after":
                wait_until(lambda: db.value("SELECT state = 'circuit open' FROM outbox.sinks"), 60, "the circuit to open")
                time.sleep(10)  # long enough for the longest backoff
                attempts = db.value("SELECT max(attempts) FROM outbox.events_pending")
                if attempts:
                    raise Failure(f"the outage has cost {attempts} attempts")
                stage.kafka.start()
            rates[name] = watch.rate()
            progress(f"{name}: {rates[name]:,.0f} events/s")
            wait_until(lambda: db.pending() == 0, 60, "the rows to leave")
            stage.pause(db)
        stage.must_be_done(db)
    results.data["outage"] = rates | {"events": events}
    results.rows.append(Row("drain after an outage", f"{rates['after']:,.0f}/s", f"before: {rates['before']:,.0f}/s",
                            rates["after"] / rates["before"], GOAL))

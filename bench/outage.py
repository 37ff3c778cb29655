"""Does a backlog drain as fast after an outage of the broker as without one?"""

import time

from outbox_rig import wait_until
from results import Failure, Results, Row, ratio_at_least
from stage import Stage, progress
from watch import Watch

def measure(stage: Stage, results: Results, events: int) -> None:
    with stage.database("outage") as db:
        stage.pause(db)
        stage.kafka_sink(db)
        rates = {}
        for name in ("warm", "before", "after"):
            stage.load(db, "fixed", events, f"Outage-{name}")
            watch = Watch(stage, db, events)
            if name == "after":
                stage.kafka.stop()
            stage.switch(True)
            if name == "after":
                wait_until(lambda: db.value("SELECT state = 'circuit open' FROM outbox.sinks"), 60, "the circuit to open")
                time.sleep(10)  # the outage's length: librdkafka's reconnect backoff has reached its maximum
                attempts = db.value("SELECT max(attempts) FROM outbox.events_pending")
                if attempts:
                    raise Failure(f"the outage has cost {attempts} attempts")
                stage.kafka.start()
            watch.finish()
            rates[name] = watch.rate()
            progress(f"{name}: {rates[name]:,.0f} events/s")
            wait_until(lambda: db.pending() == 0, 60, "the rows to leave")
            stage.must_have_arrived(f"outbox.event.Outage-{name}", events)
            stage.pause(db)
        stage.must_be_done(db)
    results.data |= rates
    results.rows.append(Row("drain after an outage", rates["after"], "events/s", rates["before"], "before it", goals=[ratio_at_least(0.8)]))

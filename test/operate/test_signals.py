"""What a person sees during each of twelve failures: outbox.sinks, outbox.doctor(), the metrics and the server's log,
5 s and a minute after it began, and after the worker was replaced. None says that all is well while an event does not
move. SIGNALS=FILE keeps the texts."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from outbox_rig.database import Database

from failures import Stage

# Gauges that are above 0 only if something keeps events from moving.
ALARMS = ("outbox_sink_circuit_open", "outbox_sink_degraded", "outbox_sink_paused", "outbox_sink_disabled", "outbox_sink_misconfigured",
          "outbox_failing_events", "outbox_dead_letter_events", "outbox_not_adopted_events", "outbox_unrecorded_events")
LOOKS = {"5 s": 5, "60 s": 60}


@dataclass
class Look:
    state: str
    complaints: list[tuple]
    metrics: dict[str, float]
    log: list[str]
    text: str

    def tells(self) -> bool:
        """A person who looks at outbox.sinks and calls outbox.doctor() sees it, and so does one who has the metrics."""
        alarm = any(self.metrics.get(name, 0) > 0 for name in ALARMS) or self.metrics["outbox_worker_up"] == 0
        return ((self.state not in ("idle", "delivering") or bool(self.complaints))
                and (alarm or self.metrics["outbox_oldest_due_age_seconds"] > 3))


@dataclass
class Failure:
    name: str
    db: Database
    looks: dict[str, Look] = field(default_factory=dict)

    def look(self, when: str) -> None:
        state, pending, dead, error = self.db.sql("SELECT state, pending, dead, last_error FROM outbox.sinks")[0]
        complaints = self.db.complaints()
        lines = [line for line in self.db.value("SELECT outbox.metrics()").splitlines() if not line.startswith("#") and "_bucket" not in line]
        metrics: dict[str, float] = {}
        for line in lines:
            name, value = line.split("{")[0], float(line.rsplit(" ", 1)[1])
            metrics[name] = metrics.get(name, 0) + value
        log = [line for line in self.db.pg.log.read_text().splitlines() if f'"{self.db.name}"' in line]
        shown = [f"{name} {value:g}" for name, value in metrics.items() if name in ALARMS and value or name in ("outbox_worker_up", "outbox_oldest_due_age_seconds")]
        text = "\n".join([f"  sinks: {state}, {pending} pending, {dead} dead; {error}",
                          *(f"  doctor: {check} {status}: {detail} [{hint}]" for check, status, detail, hint in complaints),
                          f"  metrics: {', '.join(shown)}", *(f"  log: {line}" for line in log[-2:])])
        self.looks[when] = Look(state, complaints, metrics, log, text)


FAILURES = ("broker_is_down", "broker_hangs", "topic_is_missing", "endpoint_answers_500", "endpoint_answers_401", "endpoint_is_silent",
            "one_event_is_refused", "sink_is_paused", "worker_stands_still", "row_is_locked", "database_was_restored", "backlog_grows")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_signal_says_that_all_is_well(rig):
    stage = Stage(rig)
    failures = [Failure(name, getattr(stage, name)(name)) for name in FAILURES]
    began = time.monotonic()
    for failure in failures:
        for n in range(5):
            failure.db.enqueue("Order", str(n), payload='{"poison": true}' if n == 0 else "{}")
    try:
        for when, seconds in LOOKS.items():
            time.sleep(max(0.0, began + seconds - time.monotonic()))
            for failure in failures:
                failure.look(when)
        for failure in failures:
            failure.db.sql("SELECT pg_terminate_backend(%s)", stage.worker(failure.db))
        time.sleep(10)
        for failure in failures:
            failure.look("another worker")
    finally:
        for undo in stage.undo:
            undo()
    report = "\n".join(f"{failure.name}, {when}:\n{look.text}" for failure in failures for when, look in failure.looks.items())
    if file := os.environ.get("SIGNALS"):
        Path(file).write_text(report)
    silent = {(failure.name, when) for failure in failures for when, look in failure.looks.items() if not look.tells()}
    assert silent <= {("broker_hangs", "5 s")}, report  # a broker may take so long to answer

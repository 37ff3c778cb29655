"""Two workers with many keys, compared with one."""

from drain import ours
from measure import median
from outbox_rig import wait_until
from results import Results, Row, ratio_at_least
from stage import Stage, progress

KIND = "wide"


def measure(stage: Stage, results: Results, events: int, rounds: int) -> None:
    found: dict[int, list[dict]] = {1: [], 2: []}
    with stage.database("workers") as db:
        stage.kafka_sink(db)
        ours(stage, db, "Workers-warm", KIND, events)
        for turn in range(rounds):
            for workers in found:
                stage.pause(db)
                stage.set("outbox.workers", workers)
                wait_until(lambda: db.value("SELECT current_setting('outbox.workers')::int") == workers, 10, "the setting")
                found[workers].append(ours(stage, db, f"Workers{workers}-{turn}", KIND, events, workers))
        stage.set("outbox.workers", 1)
    one, two = (median([run["rate"] for run in runs]) for runs in found.values())
    progress(f"{two:,.0f} events/s by two workers, {one:,.0f} by one")
    results.data |= {"one": found[1], "two": found[2]}
    results.rows.append(Row(f"drain of {events:,} events of 10,000 keys, two workers", two, "events/s", one, "one worker",
                            median([b["rate"] / a["rate"] for a, b in zip(*found.values())]), [ratio_at_least(1)], limit=found[2][-1]["limit"]))

"""Does a large backlog drain as fast as a small one?"""

from measure import Cpu, in_words, median, sizes
from outbox_rig import wait_until
from results import Results, Row, ratio_at_least
from stage import PARTITIONS, Stage, progress
from watch import Watch

SMALL = 100_000
PIECE = 500_000  # loaded at once; a failed statement then leaves little to roll back


def measure(stage: Stage, results: Results, events: int, rounds: int) -> None:
    """Two servers that can be switched on and off independently: the first SMALL events of each, alternating; then
    the rest of the large backlog."""
    small, large = [], []
    with stage.server() as other, other.database("large") as big, stage.database("small") as db:
        for at, database in ((other, big), (stage, db)):
            at.kafka_sink(database)
            at.pause(database)
        stage.kafka.create_topic("outbox.event.Large", PARTITIONS)
        for first in range(1, events + 1, PIECE):
            other.load(big, "small", min(PIECE, events + 1 - first), "Large", first)
        waiting = big.pending()
        progress(f"{waiting:,} events wait")
        for turn in range(rounds + 1):
            stage.kafka.create_topic(f"outbox.event.Small{turn}", PARTITIONS)
            stage.load(db, "small", SMALL, f"Small{turn}")
            for at, database, rates in ((stage, db, small), (other, big, large)):
                watch = Watch(at, database, SMALL, interval=0.005)
                at.switch(True)
                watch.finish()
                at.pause(database)
                if turn:  # the first drain of each warms up worker and broker
                    rates.append(watch.rate(0.1, 0.9))
            stage.must_be_done(db)
            stage.must_have_arrived(f"outbox.event.Small{turn}", SMALL)
        left = big.pending()
        watch = Watch(other, big, left)
        other.switch(True)
        worker, found = other.wait_for_worker(big), sizes(other, big)
        before = Cpu.now(worker, stage.broker_pid)
        watch.finish(600)
        found["worker"] = watch.memory / 2**20
        cpu = Cpu.now(worker, stage.broker_pid).since(before)
        wait_until(lambda: not big.pending(), 60, "an empty table")
        other.must_be_done(big)
        other.must_have_arrived("outbox.event.Large", events)
    progress(f"{median(large):,.0f} events/s with {waiting:,} waiting, {median(small):,.0f} with {SMALL:,}")
    results.data |= {"small": small, "large": large, "sizes": found, "curve": [(left - done, rate) for _, done, rate in watch.curve()]}
    results.rows.append(Row(f"drain rate at a backlog of {events:,}", median(large), "events/s", median(small), f"at {SMALL:,}",
                            median([one / two for one, two in zip(large, small)]), [ratio_at_least(0.9)], limit=f"{cpu.limit()}; {in_words(found)}"))

"""The progress of deliveries over time."""

import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path

from measure import private_memory
from outbox_rig.database import Database
from results import Failure
from stage import Stage, progress


class Sampler(threading.Thread, ABC):
    """Counts deliveries until there are enough, and measures the memory of the delivering processes."""

    def __init__(self, events: int, interval: float):
        super().__init__(daemon=True)
        self.events, self.samples, self.memory, self._interval, self._over = events, [], 0, interval, threading.Event()
        self.start()

    @abstractmethod
    def count(self) -> int: ...

    @abstractmethod
    def carriers(self) -> list[int]: ...

    @abstractmethod
    def log(self) -> Path:
        """The log to read if the deliveries do not arrive."""

    @abstractmethod
    def close(self) -> None: ...

    def run(self) -> None:
        done, said = 0, time.monotonic()
        while done < self.events and not self._over.wait(self._interval):
            done = self.count()
            now = time.monotonic()
            self.samples.append((now, done))
            for pid in self.carriers() if len(self.samples) % 10 == 1 else []:
                try:
                    self.memory = max(self.memory, private_memory(pid))
                except (OSError, TypeError):
                    pass  # it has just ended
            if now - said > 5:
                said = now
                progress(f"{done:>9,} of {self.events:,} delivered")
        self.close()

    def done(self) -> int:
        return self.samples[-1][1] if self.samples else 0

    def finish(self, timeout: float = 180) -> None:
        """Waits for the last delivery; raises Failure if it does not come."""
        self.join(timeout)
        self.stop()
        if self.done() < self.events:
            raise Failure(f"only {self.done()} of {self.events} events were delivered within {timeout:g} s; see {self.log()}")

    def stop(self) -> None:
        self._over.set()
        self.join(20)

    def at(self, events: float) -> tuple[float, int]:
        """The first sample with at least this many."""
        return next(sample for sample in self.samples if sample[1] >= events)

    def rate(self, first: float = 0.1, last: float = 0.9) -> float:
        """Events per second between these fractions of them: neither the start nor the end counts."""
        (begun, few), (ended, many) = self.at(self.events * first), self.at(self.events * last)
        if ended == begun:
            raise Failure(f"{self.events} events are too few to tell a rate")
        return (many - few) / (ended - begun)

    def curve(self, points: int = 80) -> list[tuple[float, int, float]]:
        """Seconds since the first sample, events until then, and events per second since the previous point."""
        start, end = self.samples[0][0], self.samples[-1][0]
        width = max(0.25, (end - start) / points)  # deliveries are recorded in batches
        found, last = [], self.samples[0]
        for sample in self.samples[1:]:
            if sample[0] - last[0] >= width or sample is self.samples[-1]:
                if sample[0] > last[0]:
                    found.append((round(sample[0] - start, 3), sample[1], round((sample[1] - last[1]) / (sample[0] - last[0]))))
                last = sample
        return found


class Watch(Sampler):
    """Watches recorded deliveries on a connection of its own; those of the sink `but` do not count."""

    def __init__(self, stage: Stage, db: Database, events: int, interval: float = 0.02, but: str = ""):
        self._stage, self._db, self._but = stage, Database(db.pg, db.name), but
        self._before = stage.delivered(db, but)
        super().__init__(events, interval)

    def count(self) -> int:
        return self._stage.delivered(self._db, self._but) - self._before

    def carriers(self) -> list[int]:
        return self._stage.workers(self._db)

    def close(self) -> None:
        self._db.disconnect()

    def log(self) -> Path:
        return self._stage.pg.log

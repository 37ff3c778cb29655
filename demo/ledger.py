"""Compares what was committed with what arrived, for each way to publish."""

import threading
from collections import defaultdict
from dataclasses import dataclass, field

from outbox_rig import Consumer


@dataclass
class Arrivals:
    """What one consumer saw: ids in order of arrival, and for each key the numbers of first arrivals."""

    ids: set[str] = field(default_factory=set)
    duplicates: int = 0
    numbers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def add(self, id: str, key: str, number: int) -> None:
        if id in self.ids:
            self.duplicates += 1  # a consumer drops a duplicate by its id
            return
        self.ids.add(id)
        self.numbers[key].append(number)

    def keys_out_of_order(self) -> int:
        return sum(numbers != sorted(numbers) for numbers in self.numbers.values())


@dataclass
class Ledger:
    committed: set[str]
    arrivals: Arrivals

    @property
    def lost(self) -> int:
        return len(self.committed - self.arrivals.ids)

    @property
    def phantom(self) -> int:
        return len(self.arrivals.ids - self.committed)

    def clean(self) -> bool:
        return not self.lost and not self.phantom and not self.arrivals.keys_out_of_order()

    def __str__(self) -> str:
        wrong = self.arrivals.keys_out_of_order()
        order = f"{wrong:,} keys out of order" if wrong else "in order"
        text = (f"{len(self.committed):,} committed, {len(self.arrivals.ids):,} received, {self.lost:,} lost, "
                f"{self.phantom:,} phantom, {order}")
        if self.arrivals.duplicates:
            text += f" ({self.arrivals.duplicates:,} duplicate{'s' * (self.arrivals.duplicates > 1)} dropped by id)"
        return text


class Listener(threading.Thread):
    """Consumes topics until it is stopped, and passes each record to `on_record`."""

    def __init__(self, bootstrap: str, topics: list[str], on_record):
        super().__init__(daemon=True)
        self._consumer = Consumer(bootstrap, topics)
        self._on_record = on_record
        self._ending = threading.Event()

    def run(self) -> None:
        while not self._ending.is_set():
            record = self._consumer.poll(0.2)
            if record:
                self._on_record(record)
        # Reads to the end of the topics: every record counts.
        while (record := self._consumer.poll(0.2)) or not self._consumer.at_end():
            if record:
                self._on_record(record)
        self._consumer.close()

    def finish(self) -> None:
        self._ending.set()
        self.join()

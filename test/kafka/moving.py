"""Shared by the tests of docs/migration.md: the events that arrived."""

from collections import defaultdict
from collections.abc import Callable

from outbox_rig.consumer import Consumer, Record


class Arrived:
    """Records the events that a consumer receives."""

    def __init__(self, consumer: Consumer, number: Callable[[Record], int]):
        self._consumer, self._number = consumer, number
        self.records: list[Record] = []

    def until(self, written: dict[str, int], timeout: float = 30) -> None:
        """Waits until the last event of each key has arrived, and a little longer, for events that should not
        arrive."""
        last: dict[str, int] = defaultdict(int)

        def enough(got: list[Record]) -> bool:
            for record in got[len(last_seen):]:
                last_seen.append(record)
                last[record.key] = max(last[record.key], self._number(record))
            return all(last[key] >= number for key, number in written.items())

        last_seen: list[Record] = []
        try:
            self.records += self._consumer.take_until(enough, timeout, f"the last of each key's events: {written}")
        except TimeoutError:
            raise AssertionError(f"the last events of some keys are lost: {[(key, last[key], number) for key, number in written.items() if last[key] < number]}") from None
        self.records += self._consumer.quiet(1)

    def check(self, written: dict[str, int], unordered: set[str] = set()) -> None:
        """Each key's events arrived once and in order, except those of some keys."""
        got = defaultdict(list)
        for record in self.records:
            got[record.key].append(self._number(record))
        for key, number in written.items():
            wanted = list(range(1, number + 1))
            assert set(got[key]) == set(wanted), f"lost: key {key}, {sorted(set(wanted) - set(got[key]))}"
            assert len(got[key]) == len(wanted), f"twice: key {key}, {sorted(n for n in set(got[key]) if got[key].count(n) > 1)}"
            assert got[key] == wanted or key in unordered, f"out of order: key {key}, {[(a, b) for a, b in zip(got[key], got[key][1:]) if b < a]}"
        ids = [record.id for record in self.records]
        assert len(ids) == len(set(ids))

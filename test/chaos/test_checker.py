"""Tests of the checker: wrong histories for each kind of finding, and correct histories that look suspicious."""

from dataclasses import replace

import pytest
from checker import check
from history import Arrival, Event, Fault, History, Touch, Transaction

SINKS = ("kafka", "crm")
PLAIN = Transaction("1.1", "plain", outcome="committed")
UNKNOWN = Transaction("1.2", "plain", outcome="unknown")
ROLLED_BACK = Transaction("1.1", "plain", outcome="rolled back")
ASYNCHRONOUS = Transaction("1.2", "plain", asynchronous=True, outcome="committed")
ALL = ("e1", "e2", "e3")
OTHER = (("type", b"other"),)


class Story:
    """Builds a history: events e1, e2, ... of key k, all committed unless stated otherwise, and their arrivals in
    the order of the calls."""

    def __init__(self, events: int = 3, transaction: Transaction = PLAIN):
        self.history = History(1)
        self.clock = 0.0
        for n in range(1, events + 1):
            self.event(f"e{n}", "k", n, transaction)

    def event(self, id: str, key: str, n: int, transaction: Transaction = PLAIN, committed: bool = True, undone: bool = False) -> "Story":
        self.history.add(Event(id, key, transaction, undone, committed, n if committed else None))
        return self

    def only_for(self, id: str, *sinks: str) -> "Story":
        self.history.events[id].sinks = sinks
        return self

    def arrive(self, *ids: str, sinks: tuple[str, ...] = SINKS, accepted: bool = True) -> "Story":
        for id in ids:
            self.clock += 1
            event = self.history.events.get(id)
            for sink in sinks:
                self.history.arrivals.append(Arrival(sink, id, event.key if event else "?", event.n if event else 0, id, self.clock,
                                                     accepted, f"arrival at {self.clock:g}"))
        return self

    def otherwise(self, **contents: object) -> "Story":
        """The last arrival has these contents."""
        self.history.arrivals[-1] = replace(self.history.arrivals[-1], **contents)
        return self

    def changed(self, id: str, sink: str | None, at: float) -> "Story":
        self.history.touches.append(Touch(sink, id, "change", at))
        return self

    def locked(self, id: str, sink: str, at: float) -> "Story":
        self.history.touches.append(Touch(sink, id, "lock", at))
        return self

    def fault(self, begun: float, ended: float, bound: int = 10, name: str = "kill_server") -> "Story":
        self.history.faults.append(Fault(name, begun, ended, bound))
        return self

    def left(self, id: str, sink: str | None, status: str) -> "Story":
        self.history.waiting[id, sink] = status
        return self

    def redriven(self, sink: str) -> "Story":
        self.history.redriven = (sink,)
        return self

    def deleted(self, id: str, sink: str | None, at: float) -> "Story":
        self.history.touches.append(Touch(sink, id, "delete", at))
        return self

    def with_ids(self, where: str, id: str | None, body_id: str) -> "Story":
        """One more arrival, of the last event of the key."""
        self.history.arrivals.append(Arrival("kafka", id, "k", 3, body_id, 9, True, where))
        return self

    def kinds(self) -> list[str]:
        return [finding.kind for finding in check(self.history, SINKS)]


RIGHT = {
    "all is well": Story().arrive(*ALL),
    "another key goes first": Story(2).event("other", "another key", 1).arrive("other", "e1", "e2"),
    "another key goes last": Story(2).event("other", "another key", 1).arrive("e1", "e2", "other"),
    "sinks keep their own pace": Story().arrive(*ALL, sinks=("kafka",)).arrive(*ALL, sinks=("crm",)),
    "a duplicate after a fault": Story().arrive("e1", "e2").fault(2.1, 2.5).arrive("e2", "e3"),
    # The first deliveries were in order; a second delivery of e1 after e3 is a duplicate, not a disorder.
    "a batch that comes again": Story().arrive(*ALL).fault(3.1, 3.2).arrive(*ALL),
    "a request that was refused comes again": Story().arrive("e1", sinks=("crm",), accepted=False).arrive(*ALL),
    "an unknown commit that took place": Story(2, UNKNOWN).arrive("e1", "e2"),
    "an unknown commit that did not": Story().event("never", "k", 4, UNKNOWN, committed=False).arrive(*ALL),
    "an asynchronous commit that a crash took back": Story().event("gone", "k", 4, ASYNCHRONOUS, committed=False).arrive(*ALL),
    "a number that was rolled back is used again": Story().event("undone", "k", 3, undone=True, committed=False).arrive(*ALL),
    "a dead letter lets its key go on": Story().arrive("e1").arrive("e2", sinks=("kafka",)).arrive("e2", sinks=("crm",), accepted=False).arrive("e3")
    .left("e2", "crm", "FAILED"),
    "an event that is not for all sinks": Story().only_for("e2", "kafka").arrive("e1").arrive("e2", sinks=("kafka",)).arrive("e3"),
    "a deleted event may stay away": Story().arrive("e1").arrive("e2", sinks=("kafka",)).arrive("e3").deleted("e2", "crm", 1.5),
    "an event that was deleted while it waited for a sink": Story().arrive("e1", "e3").deleted("e2", None, 1.5),
    "as many duplicates as the bound": Story().arrive("e1", "e2").fault(2.1, 2.2, bound=4).arrive(*ALL),
    "two faults, two bounds": Story().arrive("e1", "e2").fault(2.1, 2.2, bound=4).arrive("e1", "e2").fault(4.1, 4.2, bound=4).arrive(*ALL),
    # The endpoint answered a worker that had already exited.
    "a run that a fault ends, and another one": Story().arrive(*ALL).fault(3.1, 3.2).arrive("e2").fault(4.1, 4.2).arrive("e1", "e2", "e3"),
    "a run goes on with new events": Story(4).arrive("e1", "e2").fault(2.1, 2.2).arrive("e2", "e3", "e4"),
    "a run without what was given up": Story(4).arrive("e1").arrive("e2", sinks=("kafka",)).arrive("e2", sinks=("crm",), accepted=False).arrive("e3").fault(4.1, 4.2)
    .left("e2", "crm", "FAILED").arrive("e1", sinks=("crm",)).arrive("e3", sinks=("crm",)).arrive("e4"),
    "an event alone whose row was locked": Story().arrive(*ALL).locked("e1", "crm", 0.5).fault(3.1, 3.2).arrive("e1", sinks=("crm",)),
    "a request that was held up on its way": Story().arrive(*ALL).fault(3.1, 4.2, name="cut_endpoint").arrive("e1", sinks=("crm",)),
    "headers that a user changed": Story(1).arrive("e1").changed("e1", "crm", 0.5).fault(1.1, 1.2).arrive("e1").otherwise(headers=OTHER),
    "headers that a user changed before the event was routed": Story(1).changed("e1", None, 0.5).arrive("e1").fault(1.1, 1.2).arrive("e1").otherwise(headers=OTHER),
    "a request that hung through the fault": Story().fault(0.1, 0.5).arrive("e1", "e1", "e2", "e3"),
}

WRONG = {
    "lost": (Story().arrive("e1", "e3"), ["lost"] * 2),
    "lost at one sink": (Story().arrive("e1", "e2").arrive("e3", sinks=("crm",)), ["lost"]),
    "a refused request is no delivery": (Story(1).arrive("e1", sinks=("kafka",)).arrive("e1", sinks=("crm",), accepted=False), ["lost"]),
    "stuck": (Story().arrive("e1", "e2").arrive("e3", sinks=("crm",)).left("e3", "kafka", "PENDING"), ["stuck"]),
    "stuck without a sink": (Story().arrive("e1", "e2").left("e3", None, "PENDING"), ["stuck"] * 2),
    "a dead letter of a sink whose dead letters were redriven": (Story().arrive("e1", "e2").arrive("e3", sinks=("kafka",)).left("e3", "crm", "FAILED")
                                                                 .redriven("crm"), ["dead"]),
    "at a sink that does not take it": (Story().only_for("e2", "kafka").arrive(*ALL), ["wrong sink"]),
    "phantom": (Story().event("gone", "k", 4, ASYNCHRONOUS, committed=False).arrive(*ALL).arrive("gone", sinks=("crm",)), ["phantom"]),
    "phantom that was refused": (Story().event("gone", "k", 4, ASYNCHRONOUS, committed=False).arrive(*ALL)
                                 .arrive("gone", sinks=("crm",), accepted=False), ["phantom"]),
    "phantom of a savepoint": (Story().event("undone", "k", 4, undone=True, committed=False).arrive(*ALL).arrive("undone", sinks=("kafka",)), ["phantom"]),
    "phantom that nobody enqueued": (Story().arrive(*ALL).arrive("stranger", sinks=("kafka",)), ["phantom"]),
    "disorder": (Story().arrive("e1", "e3", "e2", sinks=("crm",)).arrive(*ALL, sinks=("kafka",)), ["disorder"]),
    "disorder that a fault does not excuse": (Story().fault(0.1, 9).arrive("e1", "e3", "e2"), ["disorder"] * 2),
    # The second delivery of e2 is in time, the first one was not.
    "disorder hidden by duplicates": (Story().fault(0.1, 9).arrive("e1", "e3", "e2", "e3", sinks=("crm",)).arrive(*ALL, sinks=("kafka",)), ["disorder"]),
    # e2 was sent while the refused e1 was still to be sent again: that e2 was refused too does not excuse it.
    "disorder of a request that was refused": (Story(2).arrive("e1", "e2", sinks=("crm",), accepted=False).arrive("e1", "e2"), ["disorder"]),
    "duplicate without a fault": (Story().arrive("e1", "e2").arrive("e2", sinks=("kafka",)).arrive("e3"), ["duplicate without a fault"]),
    "duplicate before the fault": (Story().arrive("e1", "e1", "e2", "e3").fault(5, 6), ["duplicate without a fault"] * 2),
    "duplicate long after the fault": (Story(9).fault(0.1, 0.2).arrive(*(f"e{n}" for n in range(1, 10)), "e9"), ["duplicate without a fault"] * 2),
    "more duplicates than the bound": (Story().arrive("e1", "e2").fault(2.1, 2.2, bound=3).arrive(*ALL), ["duplicates over the bound"]),
    "the bound of one fault is not lent to another": (Story().arrive("e1", "e2").fault(2.1, 2.2, bound=4).arrive("e3").fault(9, 9.1, bound=100)
                                                      .arrive(*ALL), ["duplicates over the bound"] * 2),
    "a hole": (Story(4).arrive(*ALL).fault(3.1, 3.2).arrive("e1", "e3", "e4"), ["hole"] * 2),
    "a hole while recordings failed": (Story(4).arrive(*ALL).fault(3.1, 3.2, name="drop_day").arrive("e1", "e3", "e4"), []),
    "a hole at the end": (Story().arrive(*ALL).fault(3.1, 3.2).arrive("e1", sinks=("kafka",)), ["hole"]),
    "a hole before a new event": (Story(4).arrive(*ALL).fault(3.1, 3.2).arrive("e2", sinks=("crm",)).arrive("e4"), ["hole"]),
    "other bytes": (Story(1).arrive("e1").fault(1.1, 1.2).arrive("e1").otherwise(body=b"other"), ["other contents"]),
    "another key": (Story(1).arrive("e1").fault(1.1, 1.2).arrive("e1").otherwise(address=b"other"), ["other contents"]),
    "another header": (Story(1).arrive("e1").fault(1.1, 1.2).arrive("e1").otherwise(headers=OTHER), ["other contents"]),
    "another header of an event that a user changed for another sink": (Story(1).arrive("e1").changed("e1", "kafka", 0.5).fault(1.1, 1.2).arrive("e1")
                                                                       .otherwise(headers=OTHER), ["other contents"]),
    "another partition": (Story(1).arrive("e1").fault(1.1, 1.2).arrive("e1", sinks=("crm",)).arrive("e1", sinks=("kafka",)).otherwise(partition=1), ["other contents"]),
    "id missing": (Story().arrive(*ALL).with_ids("offset 9", None, "e3"), ["id missing"]),
    "wrong id": (Story().arrive("e1", "e2").arrive("e3", sinks=("crm",)).with_ids("offset 9", "e3", "e2"), ["wrong id"]),
    "a synchronous commit that is gone": (Story().event("gone", "k", 4, committed=False).arrive(*ALL), ["ledger"]),
    "a rollback that left its ledger row": (Story(1, ROLLED_BACK).arrive("e1"), ["ledger"]),
}


@pytest.mark.parametrize("story, kinds", [(story, []) for story in RIGHT.values()] + list(WRONG.values()), ids=[*RIGHT, *WRONG])
def test_what_the_checker_finds(story, kinds):
    assert story.kinds() == kinds

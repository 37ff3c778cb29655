"""Checks a history. It knows no servers: its only input is what happened."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from history import Arrival, Event, Fault, History

# For this long after the end of a fault its consequences may continue (a hanging request, a sink that closes).
AFTERMATH = 3.0
# During these a delivery may be recorded after later ones of its key.
UNRECORDED = ("recordings_fail", "some_recordings_fail", "long_recordings_fail", "drop_day", "detach_day")


@dataclass(frozen=True)
class Finding:
    kind: str
    text: str
    ids: tuple[str, ...] = ()
    sink: str = ""


def check(history: History, sinks: tuple[str, ...]) -> list[Finding]:
    return [finding for rule in RULES for finding in rule(history, sinks)]


# ---- rules -----------------------------------------------------------------------------------------------------


def ids(history: History, sinks: tuple[str, ...]) -> Iterator[Finding]:
    """Each delivery has the id of its own event."""
    for arrival in history.arrivals:
        if arrival.id is None:
            yield Finding("id missing", f"{arrival.sink} got {arrival.where} without an id", (arrival.body_id or "?",))
        elif arrival.body_id != arrival.id:
            yield Finding("wrong id", f"{arrival.sink} got {arrival.where} with the id {arrival.id} and the body of "
                                      f"{arrival.body_id}", (arrival.id, arrival.body_id or "?"))


def phantoms(history: History, sinks: tuple[str, ...]) -> Iterator[Finding]:
    """Every event that arrives, accepted or not, was committed, and no crash undid its commit."""
    seen = set()
    for arrival in history.arrivals:
        event = history.events.get(arrival.id)
        if arrival.id is None or arrival.id in seen or (event and event.committed):
            continue
        seen.add(arrival.id)
        yield Finding("phantom", f"{arrival.sink} got {arrival.where}, " +
                      ("whose transaction was not committed or was lost" if event else "which no writer enqueued"), (arrival.id,))


def losses(history: History, sinks: tuple[str, ...]) -> Iterator[Finding]:
    """Every committed event arrives at each of its sinks, unless it is a dead letter or a user deleted it."""
    accepted = {(a.sink, a.id) for a in history.arrivals if a.accepted}
    deleted = history.deleted()
    for event in history.events.values():
        for sink in (event.sinks or sinks) if event.committed else ():
            status = history.waiting.get((event.id, sink)) or history.waiting.get((event.id, None))
            if status == "PENDING":
                yield Finding("stuck", f"still pending for {sink}, although all parts are healthy again", (event.id,))
            elif status == "FAILED" and sink in history.redriven:
                yield Finding("dead", f"a dead letter of {sink}, which all were redriven", (event.id,))
            elif status is None and (sink, event.id) not in accepted and not {(event.id, sink), (event.id, None)} & deleted:
                yield Finding("lost", f"committed, never accepted by {sink}, and no longer in the table", (event.id,))


def strangers(history: History, sinks: tuple[str, ...]) -> Iterator[Finding]:
    """No event arrives at a sink that does not take it, whatever the sinks are called meanwhile."""
    for arrival in history.arrivals:
        event = history.events.get(arrival.id)
        if event and arrival.sink not in (event.sinks or sinks):
            yield Finding("wrong sink", f"{arrival.sink} got {arrival.where}, which is not for it", (event.id,))


def order(history: History, sinks: tuple[str, ...]) -> Iterator[Finding]:
    """No event reaches a sink before an earlier event of its key has had its first accepted delivery there, if it
    has one."""
    by_key: dict[tuple[str, str], list[tuple[Arrival, Event]]] = defaultdict(list)
    for arrival in history.arrivals:
        event = history.events.get(arrival.id)
        if event and event.committed:
            by_key[arrival.sink, event.key].append((arrival, event))
    for (sink, key), arrivals in by_key.items():
        first: dict[str, int] = {}  # when each event was accepted for the first time
        for index, (arrival, event) in enumerate(arrivals):
            if arrival.accepted:
                first.setdefault(event.id, index)
        to_come: list[Event | None] = [None] * len(arrivals)  # among the events first accepted after it, the one with the lowest number
        for index in range(len(arrivals) - 1, 0, -1):
            event, least = arrivals[index][1], to_come[index]
            is_first = first.get(event.id) == index
            to_come[index - 1] = event if is_first and (least is None or event.n < least.n) else least
        for (arrival, event), later in zip(arrivals, to_come):
            if later and later.n < event.n:
                yield Finding("disorder", f"{sink} got {arrival.where} (number {event.n} of key {key}) before number {later.n}",
                              (later.id, event.id), sink)
                break


def duplicates(history: History, sinks: tuple[str, ...]) -> Iterator[Finding]:
    """An event arrives again only after a fault between both arrivals, and no fault causes more duplicates than its
    bound."""
    room = {id(fault): fault.bound for fault in history.faults}
    for before, again in repeats(history):
        possible = [f for f in history.faults if f.begun <= again.at and before.at <= f.ended + AFTERMATH]
        text = f"{again.sink} got {again.where}, {again.at - before.at:.3f} s after {before.where}"
        if not possible:
            yield Finding("duplicate without a fault", text, (again.id,))
            continue
        free: list[Fault] = [f for f in possible if room[id(f)] > 0]
        if not free:
            yield Finding("duplicates over the bound", f"{text}: no more than {sum(f.bound for f in possible)} after "
                          f"{', '.join(f.name for f in possible)}", (again.id,))
            continue
        # Prefer faults with the least time left: later faults may still have to explain later duplicates.
        room[id(min(free, key=lambda fault: fault.ended))] -= 1


def runs(history: History, sinks: tuple[str, ...]) -> Iterator[Finding]:
    """After an event that comes again, the events of its key that the sink had accepted follow without a hole, to the
    last one. Not after an event whose row a user had locked or changed, or whose recording had failed, which is recorded
    after later ones; and not where a request of an earlier worker may have been held up on its way (OVERTAKEN). Of the sinks of kinds that are
    extensions nobody knows when an event arrived."""
    by_key: dict[tuple[str, str], list[tuple[Arrival, Event]]] = defaultdict(list)
    for arrival in history.arrivals:
        event = history.events.get(arrival.id)
        if event and event.committed and arrival.accepted and arrival.sink in OVERTAKEN:
            by_key[arrival.sink, event.key].append((arrival, event))
    touched = {(touch.sink, touch.id) for touch in history.touches}
    for (sink, key), arrivals in by_key.items():
        last: dict[int, int] = {}  # number of an event: index of its last arrival so far
        for index, (arrival, event) in enumerate(arrivals):
            before, last[event.n] = last.get(event.n), index
            if before is None or (sink, event.id) in touched or _may_be_overtaken(history, arrival):
                continue
            first = arrivals[before][0].at
            if any(f.name in UNRECORDED and f.begun <= arrival.at and first <= f.ended + AFTERMATH for f in history.faults):
                continue
            follows = arrivals[index + 1][1].n if index + 1 < len(arrivals) else float("inf")
            if skipped := sorted(n for n in last if event.n < n < follows):
                yield Finding("hole", f"{sink} got {arrival.where} (number {event.n} of key {key}) again, and then "
                              f"{'nothing more' if follows == float('inf') else f'number {follows}'}, without number {skipped[0]}", (event.id,), sink)


def contents(history: History, sinks: tuple[str, ...]) -> Iterator[Finding]:
    """What comes again has the same body, key and headers, and comes to the same partition. A user changes the headers of some events."""
    changed = {(touch.id, touch.sink) for touch in history.touches if touch.action == "change"}
    first: dict[tuple[str, str | None], Arrival] = {}
    for arrival in history.arrivals:
        before = first.setdefault((arrival.sink, arrival.id), arrival)
        same = ["body", "partition", "address"] + ["headers"] * (not {(arrival.id, arrival.sink), (arrival.id, None)} & changed)
        if other := [f"{part} {getattr(arrival, part)!r:.300} for {getattr(before, part)!r:.300}" for part in same if getattr(arrival, part) != getattr(before, part)]:
            yield Finding("other contents", f"{arrival.sink} got {arrival.where}, unlike {before.where}: {', '.join(other)}", (arrival.id or "?",))


def ledger(history: History, sinks: tuple[str, ...]) -> Iterator[Finding]:
    """PostgreSQL itself kept every commit that it acknowledged; otherwise no other finding is meaningful."""
    for event in history.events.values():
        t = event.transaction
        if t.outcome == "committed" and not t.asynchronous and not event.undone and not event.committed:
            yield Finding("ledger", f"transaction {t.name} was committed, but its ledger row is missing", (event.id,))
        if event.committed and (event.undone or t.outcome == "rolled back"):
            yield Finding("ledger", f"transaction {t.name} was rolled back, but its ledger row exists", (event.id,))


RULES = [ids, phantoms, losses, strangers, order, duplicates, runs, contents, ledger]


# Faults that hold a request up on its way while another one may be sent, by sink.
AT_ENDPOINT = {"cut_endpoint", "endpoint_hangs", "silent_endpoint"}
OVERTAKEN = {"kafka": {"pause_broker", "cut_broker", "silent_broker"}, "crm": AT_ENDPOINT, "lists": AT_ENDPOINT, "audit": set()}


# ---- helpers ---------------------------------------------------------------------------------------------------


def repeats(history: History) -> list[tuple[Arrival, Arrival]]:
    """Accepted deliveries of an event that the sink had already accepted, each with the previous one; in order of
    time."""
    last: dict[tuple[str, str | None], Arrival] = {}
    found = []
    for arrival in sorted((a for a in history.arrivals if a.accepted and a.id), key=lambda a: a.at):
        if before := last.get((arrival.sink, arrival.id)):
            found.append((before, arrival))
        last[arrival.sink, arrival.id] = arrival
    return found


def _may_be_overtaken(history: History, arrival: Arrival) -> bool:
    return any(fault.name in OVERTAKEN[arrival.sink] and fault.begun <= arrival.at <= fault.ended + AFTERMATH for fault in history.faults)

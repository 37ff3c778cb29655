"""What happened in one cycle: what the writers did, what the sinks received, which faults were injected."""

import time
from dataclasses import dataclass, field


@dataclass
class Transaction:
    name: str
    kind: str
    asynchronous: bool = False  # synchronous_commit = off: a crash may undo it
    # open, committed, rolled back, prepared, or unknown if the connection broke during COMMIT
    outcome: str = "open"
    begun: float = field(default_factory=time.time)
    ended: float | None = None

    def end(self, outcome: str) -> None:
        self.outcome, self.ended = outcome, time.time()


@dataclass
class Event:
    id: str
    key: str
    transaction: Transaction
    undone: bool = False  # rolled back to a savepoint, or caught by an exception block
    # From the ledger, which is written in the event's (sub)transaction and read after all recoveries:
    committed: bool = False
    n: int | None = None  # the event's number within its key, taken under the lock of the key's row
    sinks: tuple[str, ...] = ()  # those that take it; none: all


@dataclass
class Arrival:
    """A record in the topic, or a request at the endpoint; for one sink and key in order of arrival."""

    sink: str
    id: str | None
    key: str | None
    n: int | None
    body_id: str | None  # the event's id according to its payload
    at: float
    accepted: bool  # False: the endpoint returned an error, or nothing
    where: str
    body: bytes = b""
    partition: int = 0  # of the topic
    address: bytes = b""  # the record's key; of a request the path
    headers: tuple[tuple[str, bytes], ...] = ()  # without those that differ with each request


@dataclass
class Fault:
    name: str
    begun: float
    ended: float
    bound: int  # how many duplicates the fault may cause


@dataclass
class Touch:
    """What a user did to a row."""

    sink: str | None  # None: the event waited for a sink
    id: str
    action: str
    begun: float
    ended: float | None = None


@dataclass
class History:
    cycle: int
    events: dict[str, Event] = field(default_factory=dict)
    transactions: list[Transaction] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    waiting: dict[tuple[str, str | None], str] = field(default_factory=dict)  # (id, sink): PENDING or FAILED after the drain
    touches: list[Touch] = field(default_factory=list)
    redriven: tuple[str, ...] = ()  # sinks all of whose dead letters were redriven in the end, and are healthy

    def begin(self, name: str, kind: str, asynchronous: bool = False) -> Transaction:
        transaction = Transaction(name, kind, asynchronous)
        self.transactions.append(transaction)
        return transaction

    def add(self, event: Event) -> None:
        self.events[event.id] = event

    def deleted(self) -> set[tuple[str, str | None]]:
        """The (id, sink) pairs that a user deleted or tried to delete: they may or may not arrive. Without a sink: the event
        waited for one."""
        return {(touch.id, touch.sink) for touch in self.touches if touch.action == "delete"}

    def settle(self, ledger: dict[str, int]) -> None:
        """Sets the events that were committed, from `ledger`: id and number of each event whose transaction
        survived."""
        for event in self.events.values():
            event.committed = event.id in ledger
            event.n = ledger.get(event.id)

"""model.py: what the SQL surface promises, in plain Python, with no database: which event stands where, what each sink has received in which order,
what a call returns, and the SQLSTATE of a bad call. It follows the documentation and not the code: where they differ, one of them is wrong."""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

PENDING, SENT, FAILED = "PENDING", "SENT", "FAILED"
PAST, FUTURE = "past", "future"  # of available_at; None: no time is set


class Refused(Exception):
    """The call fails with this SQLSTATE."""

    def __init__(self, state: str):
        super().__init__(state)
        self.state = state


@dataclass
class Server:
    name: str
    number: int  # in the order of creation
    kind: str
    events: str = "*"
    ordered: bool = True
    block: bool = False  # on_dead_letter
    waits: bool = False  # a failure waits one hour; else it is tried again at once
    attempts: int = 2  # after which an event is a dead letter
    keep: bool = False  # retention
    paused: bool = False
    delivered: int = 0
    retried: int = 0
    became_dead: int = 0
    late: int = 0
    log: list = field(default_factory=list)  # what the endpoint has accepted: (key, id), in order

    def key_of(self, row: "Row"):
        """What is delivered in order: the events of a key, or one event."""
        return row.key if self.ordered and row.key is not None else row.position


@dataclass
class Event:
    id: str
    type: str
    key: str | None
    dedup: str | None = None
    payload: str | None = "{}"  # as the column shows it, of either form
    headers: str | None = None


@dataclass
class Row:
    event: Event
    sink: str | None  # the name under which it was routed
    position: int
    key: str | None
    time: str | None = None
    status: str = PENDING
    attempts: int = 0
    overtaken: bool = False  # a later event of its key was delivered
    late: bool | None = None  # redrive_late
    blocked: bool = False
    foreign: bool = False  # enqueued in another cluster


@dataclass
class Lease:
    """Of the events of one key that one claim has, or of one event."""

    server: int
    ordered: bool
    key: object
    token: str
    rows: list[Row]
    over: bool = False
    acked: int = 0  # the last position that was acknowledged before earlier ones


class Model:
    def __init__(self):
        self.servers: dict[str, Server] = {}
        self.rows: list[Row] = []
        self.dedup: dict[str, str] = {}  # key: id of its first event
        self.processed: set[tuple] = set()
        self.bad: set[str] = set()  # events that every endpoint refuses
        self.leases: list[Lease] = []
        self.position = self.created = 0

    # ---- sinks -------------------------------------------------------------------------------------------------

    def server_of(self, name: str | None) -> Server | None:
        """The sink that delivers rows with this name."""
        return self.servers.get(name)

    def require(self, name: str) -> Server:
        if name not in self.servers:
            raise Refused("42704")
        return self.servers[name]

    def create_sink(self, name: str, kind: str, **options) -> Server:
        if name in self.servers:
            raise Refused("42710")
        server = Server(name, self.created + 1, kind, **options)
        if server.block and not server.ordered:
            raise Refused("22023")
        self.created += 1
        self.servers[name] = server
        return server

    def drop_sink(self, name: str) -> None:
        self.require(name)
        del self.servers[name]

    def alter_sink(self, name: str, **options) -> None:
        server = self.require(name)
        if options["block"] and not options["ordered"]:
            raise Refused("22023")
        for option, value in options.items():
            setattr(server, option, value)

    def rename_sink(self, old: str, new: str) -> None:
        server = self.require(old)
        if new in self.servers:
            raise Refused("42710")
        rows = [row for row in self.rows if row.status != SENT]  # delivered ones are history
        if any(row.sink == new for row in rows):
            raise Refused("55000")
        for row in rows:
            if row.sink == old:
                row.sink = new
        del self.servers[old]
        server.name = new
        self.servers[new] = server

    def pause(self, name: str) -> bool:
        server = self.require(name)
        done, server.paused = not server.paused, True
        return done

    def resume(self, name: str) -> bool:
        server = self.require(name)
        done, server.paused = server.paused, False
        return done

    def takers(self, type: str) -> list[Server]:
        return [s for s in sorted(self.servers.values(), key=lambda s: s.number) if fnmatchcase(type, s.events)]

    # ---- enqueuing ---------------------------------------------------------------------------------------------

    def new_row(self, event: Event, sink: str | None, time: str | None = None) -> Row:
        self.position += 1
        return Row(event, sink, self.position, event.key, time)

    def copy_of(self, row: Row, sink: str) -> Row:
        copy = self.new_row(row.event, sink, row.time)
        copy.key = row.key
        return copy

    def enqueue(self, event: Event, sink: str | None = None, time: str | None = None) -> list[Row]:
        """The rows of an event; they count when their transaction commits: add()."""
        if sink is not None:
            self.require(sink)
        names = [sink] if sink else [s.name for s in self.takers(event.type)] or [None]
        if any(row.event.id == event.id and row.sink in names for row in self.pending()):
            raise Refused("23505")
        return [self.new_row(event, name, time) for name in names]

    def add(self, rows: list[Row]) -> None:
        self.rows += rows
        for row in rows:
            if row.event.dedup is not None:
                self.dedup[row.event.dedup] = row.event.id

    # ---- rows --------------------------------------------------------------------------------------------------

    def pending(self, server: Server | None = None) -> list[Row]:
        rows = (r for r in self.rows if r.status == PENDING and (server is None or self.server_of(r.sink) is server))
        return sorted(rows, key=lambda r: r.position)

    def ours(self, server: Server | None = None) -> list[Row]:
        return [r for r in self.pending(server) if not r.foreign]

    def dead_head(self, server: Server, key) -> int | None:
        """The position of the first dead letter that blocks the key."""
        return min((r.position for r in self.dead(server) if server.block and r.key == key and not r.foreign), default=None)

    def dead(self, server: Server | None = None) -> list[Row]:
        return [r for r in self.rows if r.status == FAILED and (server is None or self.server_of(r.sink) is server)]

    def redrive(self, id: str, sink: str | None = None, force: bool = False) -> bool:
        letters = [r for r in self.dead() if r.event.id == id and sink in (None, r.sink)]
        done = []
        for row in sorted(letters, key=lambda r: r.position):
            server = self.server_of(row.sink)
            again = any(r.event.id == id and r is not row and self.server_of(r.sink) is server for r in self.pending())
            ordered = server is None or server.ordered
            done.append((server is not None or row.sink is None) and not again and (force or not row.overtaken or not ordered))
            if done[-1]:
                row.status, row.attempts, row.time, row.late = PENDING, 0, None, force
                row.overtaken = row.overtaken and ordered
        return bool(done) and all(done)

    # ---- delivery ----------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """What the worker does until nothing moves any more."""
        for row in self.ours():
            if row.sink is None and (takers := self.takers(row.event.type)):
                free = [s.name for s in takers if not any(r.event.id == row.event.id and r.sink == s.name for r in self.pending())]
                if free:
                    row.sink = free[0]
                    self.rows += [self.copy_of(row, name) for name in free[1:]]
                else:
                    row.status, row.sink = FAILED, takers[0].name
        for server in self.servers.values():
            if server.kind == "webhook" and not server.paused:
                self.deliver(server)

    def deliver(self, server: Server) -> None:
        keys: dict[object, list[Row]] = {}
        for row in self.ours(server):
            keys.setdefault(server.key_of(row), []).append(row)
        for key, rows in keys.items():
            head = self.dead_head(server, key)
            for row in rows:
                if row.time == FUTURE and row.attempts == 0:  # it delays no other, and waits for its time alone
                    row.blocked = False
                    continue
                row.blocked = head is not None and head < row.position
                if not row.blocked and (row.time == FUTURE or not self.attempt(server, row)) and (row.status == PENDING or server.block) and server.ordered:
                    head = row.position if head is None else min(head, row.position)

    def attempt(self, server: Server, row: Row) -> bool:
        """Sends the event until it is delivered, waits for its next attempt, or is a dead letter."""
        while row.event.id in self.bad:
            row.attempts += 1
            if row.attempts >= min(server.attempts, 3):  # a 400 is given up early
                row.status, server.became_dead = FAILED, server.became_dead + 1
                return False
            server.retried += 1
            if row.late is False:
                row.late = None
            if server.waits:
                row.time = FUTURE
                return False
            row.time = PAST
        server.log.append((row.key, row.event.id))
        self.delivered(server, row)
        return True

    def delivered(self, server: Server, row: Row) -> None:
        server.delivered += 1
        server.late += row.late is True and row.overtaken
        row.status = SENT
        if not server.keep:
            self.rows.remove(row)
        if server.ordered and row.key is not None:
            for other in self.rows:
                if self.troubled(other) and other.key == row.key and other.position < row.position and self.server_of(other.sink) is server:
                    other.overtaken = True

    @staticmethod
    def troubled(row: Row) -> bool:
        return row.status == FAILED or (row.status == PENDING and (row.attempts > 0 or row.late is not None))

    # ---- what users do with rows ---------------------------------------------------------------------------------

    def delete(self, id: str, status: str) -> int:
        """A DELETE of the event's rows with this status; their number. Deleting a pending event frees its dedup key."""
        gone = [r for r in self.rows if r.event.id == id and r.status == status]
        self.rows = [r for r in self.rows if r not in gone]
        if status == PENDING and gone and self.dedup.get(gone[0].event.dedup) == id and not any(r.event.id == id for r in self.pending()):
            del self.dedup[gone[0].event.dedup]
        return len(gone)

    def move(self, id: str, sink: str) -> int:
        """UPDATE ... SET sink of the pending rows of an event."""
        rows = [r for r in self.pending() if r.event.id == id]
        if any(r.sink != sink for r in rows):
            self.require(sink)
        if len(rows) > 1:
            raise Refused("23505")
        for row in rows:
            row.overtaken = row.overtaken and row.sink == sink
            row.sink = sink
        return len(rows)

    def rekey(self, id: str, key: str | None) -> int:
        rows = [r for r in self.rows if r.event.id == id and r.status != SENT]
        for row in rows:
            row.overtaken = row.overtaken and row.key == key
            row.key = key
        return len(rows)

    def set_time(self, id: str, time: str | None) -> int:
        rows = [r for r in self.pending() if r.event.id == id]
        for row in rows:
            row.time = time
        return len(rows)

    def set_status(self, id: str, before: str, after: str) -> int:
        """UPDATE ... SET status; a dead letter that becomes pending is redriven by force."""
        rows = [r for r in self.rows if r.event.id == id and r.status == before]
        there = [p.sink for p in self.pending() if p.event.id == id and before != PENDING]
        names = there + [r.sink for r in rows]
        if after == PENDING and rows and len(set(names)) < len(names):
            raise Refused("23505")
        for row in rows:
            row.status, row.late = after, True if (before, after) == (FAILED, PENDING) else None
            row.blocked = False
            if row.late:
                row.attempts, row.time = 0, None
        return len(rows)

    def redeliver(self, server: Server, kept: list[Row]) -> int:
        """Enqueues delivered events again for one sink, each id once."""
        ids = {r.event.id for r in self.pending(server) + self.dead(server)}
        once: dict[str, Row] = {}
        for row in kept:
            if row.event.id not in ids:
                once.setdefault(row.event.id, row)
        for row in sorted(once.values(), key=lambda r: r.position):
            self.rows.append(self.new_row(row.event, server.name, PAST))
            self.rows[-1].key = row.key
        return len(once)

    def sent(self) -> list[Row]:
        return sorted((r for r in self.rows if r.status == SENT), key=lambda r: r.position)

    def replay(self, name: str, globs: str) -> int:
        server = self.require(name)
        own = [r for r in self.sent() if self.server_of(r.sink) is server]
        had = {r.event.id for r in own}
        others = [r for r in self.sent() if r not in own and r.event.id not in had and fnmatchcase(r.event.type, server.events)]
        return self.redeliver(server, [r for r in own + others if fnmatchcase(r.event.type, globs)])

    def replay_one(self, id: str, name: str) -> int:
        server = self.require(name)
        kept = [r for r in reversed(self.sent()) if r.event.id == id]
        return self.redeliver(server, [r for r in kept if self.server_of(r.sink) is server] + kept)

    def adopt(self) -> int:
        rows = [r for r in self.rows if r.foreign and r.status in (PENDING, FAILED)]
        for row in rows:
            row.foreign = False
        return sum(r.status == PENDING for r in rows)

    def wait_delivered(self, id: str, in_transaction: bool) -> None:
        if in_transaction:
            raise Refused("25001")
        if any(r.event.id == id for r in self.dead()):
            raise Refused("OB001")
        if any(r.event.id == id for r in self.pending()):
            raise Refused("OB002")

    def mark_processed(self, event: object, handler: str) -> bool:
        known = (event, handler) in self.processed
        self.processed.add((event, handler))
        return not known

    def reset_stats(self, name: str | None) -> None:
        for server in [self.require(name)] if name else self.servers.values():
            server.delivered = server.retried = server.became_dead = server.late = 0

    # ---- sinks of kind outbox_manual -----------------------------------------------------------------------------

    def claim(self, name: str, limit: int, over: bool) -> list[str] | None:
        """The ids that a claim returns, in order. Its token is "new"; `over`: its lease ends at once."""
        server = self.require(name)
        if server.kind != "manual":
            raise Refused("42809")
        running = [lease for lease in self.leases if lease.server == server.number and not lease.over]
        if server.paused or any(lease.ordered != server.ordered for lease in running):
            return None
        taken, given = {lease.key for lease in running}, []
        heads: dict[object, int] = {}  # the first event of each key for which later ones wait
        for row in self.ours(server):
            key = server.key_of(row)
            if server.ordered and row.key is not None:
                dead = self.dead_head(server, key)
                if row.time == FUTURE and self.troubled(row):
                    heads.setdefault(key, row.position)
                if dead is not None:
                    heads[key] = min(dead, heads.get(key, dead))
            if row.time != FUTURE and key not in taken and row.position < heads.get(key, row.position + 1):
                given.append(row)
        for row in given[:limit]:
            key = server.key_of(row)
            lease = next((one for one in self.leases if one.token == "new" and one.key == key), None)
            if lease is None:
                self.leases = [one for one in self.leases if (one.server, one.key) != (server.number, key)]
                lease = Lease(server.number, server.ordered, key, "new", [], over)
                self.leases.append(lease)
            lease.rows.append(row)
        return [row.event.id for row in given[:limit]] or None

    def claimed(self, token: str) -> tuple[Server | None, list[Lease]]:
        leases = [lease for lease in self.leases if lease.token == token]
        return next((s for s in self.servers.values() if leases and s.number == leases[0].server), None), leases

    def here(self, row: Row, server: Server) -> bool:
        return row in self.rows and row.status == PENDING and self.server_of(row.sink) is server

    def ack(self, token: str, ids: list[str] | None) -> int:
        server, leases = self.claimed(token)
        done = 0
        if server is None:
            return 0
        for lease in leases:
            ended = [r for r in lease.rows if ids is None or r.event.id in ids]
            lease.rows = [r for r in lease.rows if r not in ended]
            if ended and server.ordered and lease.ordered:
                lease.acked = max(lease.acked, max(r.position for r in ended))
            for row in [r for r in ended if self.here(r, server)]:
                done += 1
                self.delivered(server, row)
        claimed = [r for lease in leases for r in lease.rows]
        for row in [r for r in self.ours(server) if r.late is False and r.overtaken and r not in claimed]:
            row.status, row.late = FAILED, None  # redriven, and now too late
        self.leases = [lease for lease in self.leases if lease.rows]
        return done

    def nack(self, token: str, id: str, later: bool, give_up: bool) -> str | None:
        server, leases = self.claimed(token)
        found = [(lease, row) for lease in leases for row in lease.rows if row.event.id == id]
        if server is None or not found:
            return None
        lease, row = found[0]
        at, status = lease.rows.index(row), None
        if self.here(row, server):
            row.attempts += 1
            row.overtaken = row.overtaken or lease.acked > row.position
            dead = give_up or row.attempts >= server.attempts
            if dead:
                row.status, server.became_dead = FAILED, server.became_dead + 1
            else:
                row.time, server.retried = FUTURE if later else PAST, server.retried + 1
            row.late = row.late or None if not dead else None
            status = row.status
            if lease.ordered and row.key is not None and (not dead or server.block):
                del lease.rows[at + 1:]
        del lease.rows[at]
        self.leases = [lease for lease in self.leases if lease.rows]
        return status

    def waits(self, server: Server) -> int:
        """The number of events behind a failing one or a dead letter of their key; rows have blocked_by only in other
        sinks."""
        if server.kind != "manual" or not server.ordered:
            return 0
        rows = [r for r in self.ours(server) if r.key is not None]
        heads = [r for r in rows if r.time == FUTURE and self.troubled(r)]
        heads += [r for r in self.dead(server) if server.block and not r.foreign]
        return sum(r.time != FUTURE and not r.blocked and any(h.key == r.key and h.position < r.position for h in heads) for r in rows)

    # ---- what the views show -----------------------------------------------------------------------------------

    def table(self) -> list[tuple]:
        """As machine.py reads outbox.events."""
        return sorted((r.event.id, r.sink or "", r.status, "(none)" if r.key is None else r.key, r.attempts if r.status != SENT else -1, r.time == FUTURE and r.status == PENDING,
                       r.overtaken and r.status != SENT, r.event.payload or "", r.event.headers or "") for r in self.rows)

    def sinks(self) -> list[tuple]:
        """As machine.py reads outbox.sinks."""
        shown = []
        for server in self.servers.values():
            rows = self.pending(server)
            paused = server.paused
            shown.append((server.name, "paused" if paused else "", len(rows), sum(r.time == FUTURE and r.attempts == 0 for r in rows),
                          sum(r.time == FUTURE and r.attempts > 0 and not r.blocked for r in rows),
                          sum(r.blocked for r in rows) + self.waits(server),
                          len(self.dead(server)), server.delivered, server.retried, server.became_dead, server.late,
                          sum(len(lease.rows) for lease in self.leases if lease.server == server.number and not lease.over)))
        gone: dict[str, list[Row]] = {}
        for row in self.rows:
            if row.sink is not None and row.status != SENT and not self.server_of(row.sink):
                gone.setdefault(row.sink, []).append(row)
        for name, rows in gone.items():
            rest = [r for r in rows if r.status == PENDING]
            shown.append((name, "dropped", len(rest), sum(r.time == FUTURE and r.attempts == 0 for r in rest),
                          sum(r.time == FUTURE and r.attempts > 0 and not r.blocked for r in rest), sum(r.blocked for r in rest), len(rows) - len(rest), 0, 0, 0, 0, 0))
        return sorted(shown)

    def doctor(self) -> dict[str, str]:
        unrouted = any(r.sink is None and not self.takers(r.event.type) for r in self.ours())
        lost = any(r.sink is not None and not self.server_of(r.sink) for r in self.pending())
        checks = {"routes": "warning" if unrouted else "ok", "lost sink": "error" if lost else "ok", "clock": "ok", "positions": "ok",
                  "origin": "warning" if any(r.foreign for r in self.pending() + self.dead()) else "ok", "dead letters": "warning" if self.dead() else "ok"}
        for server in self.servers.values():
            failing = any(r.attempts > 0 for r in self.pending(server))
            blocking = any(r.blocked for r in self.pending(server))
            other = self.pending(server) and any(one.server == server.number and one.ordered != server.ordered and not one.over for one in self.leases)
            checks[f"sink {server.name}"] = "warning" if server.paused or failing or blocking or other or self.dead(server) else "ok"
        return checks if self.servers else checks | {"sinks": "warning"}

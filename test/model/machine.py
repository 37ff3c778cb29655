"""machine.py: the steps. Each calls the server and the model, compares what they return, and then waits until the tables, the views and the endpoint
show what the model says."""

import copy
import uuid

import psycopg
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from forms import FORMS, headers_of, is_function, payload_of
from model import FAILED, FUTURE, PAST, PENDING, SENT, Event, Model, Refused
from world import READ_ROWS, READ_SINKS, World, until

NUMBER = st.integers(0, 11)
NAMES = ["a", "b", "c", "d"]
TYPES = ["x.1", "x.2", "y.1"]
GLOBS = ["*", "x.*", "*.1", "y.*"]
KEYS = ["k", "k", "l", None]
TIMES = {None: "NULL", PAST: "now() - interval '1 hour'", FUTURE: "now() + interval '1 hour'"}
ISOLATION = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
# What the transaction of a step comes to, and whether its changes count.
ENDINGS = {"autocommit": True, "commit": True, "rollback": False, "savepoint released": True, "savepoint rolled back": False,
           "prepared": True, "prepared, rolled back": False}
ENDING = st.sampled_from(["autocommit"] * 5 + list(ENDINGS))
UNPREPARED = [ending for ending in ENDINGS if not ending.startswith("prepared")]
COUNTED = [ending for ending in ENDINGS if ending != "prepared"]  # no session that counts is there at COMMIT PREPARED
SETTLE = 10.0


class Machine(RuleBasedStateMachine):
    world: World

    def __init__(self):
        super().__init__()
        self.world.examples += 1
        self.world.clear()
        self.model = Model()
        self.model.bad = self.world.bad
        self.n = 0
        self.open: dict[int, list] = {}  # rows of open transactions
        self.kept: dict[int, list[int]] = {}  # their savepoints: how many of these rows came before each

    # ---- parts of steps ----------------------------------------------------------------------------------------

    def call(self, session: psycopg.Connection, statement: str, *values):
        """The first row (its value, if there is only one), or the SQLSTATE of the error."""
        try:
            cursor = session.execute(statement, values)
            row = cursor.fetchone() if cursor.description else (cursor.rowcount,) if statement.startswith(("UPDATE", "DELETE")) else (None,)
            return row if row and len(row) > 1 else row[0] if row else None
        except psycopg.Error as error:
            return f"error {error.sqlstate}"

    def expect(self, said, wanted) -> None:
        assert said == wanted, f"the server returned {said!r}, the model {wanted!r}"

    def step(self, change, statement: str, *values, ending: str = "autocommit", isolation: str = ISOLATION[0], check: bool = True):
        """One statement in a transaction of its own. `change` does the same in the model, and returns what the statement returns."""
        model = copy.deepcopy(self.model)
        model.bad = self.world.bad
        try:
            wanted = change(model)  # before the worker sees it
        except Refused as refused:
            wanted = f"error {refused.state}"
        session = self.world.admin
        gid = f"step {self.n}"
        if ending != "autocommit":
            session.execute(f"BEGIN ISOLATION LEVEL {isolation}")
        if ending.startswith("savepoint"):
            session.execute("SAVEPOINT s")
        said = self.call(session, statement, *values)
        failed = isinstance(said, str) and said.startswith("error")
        if ending == "savepoint released":
            session.execute("ROLLBACK TO s" if failed else "RELEASE s")
        elif ending == "savepoint rolled back":
            session.execute("ROLLBACK TO s")
        if ending.startswith("prepared"):
            session.execute("ROLLBACK" if failed else f"PREPARE TRANSACTION '{gid}'")
            if not failed:
                session.execute(f"{'ROLLBACK' if 'rolled' in ending else 'COMMIT'} PREPARED '{gid}'")
        elif ending != "autocommit":
            session.execute("ROLLBACK" if ending == "rollback" else "COMMIT")
        self.world.count(statement, failed)
        if check:
            self.expect(said, wanted)
        if ENDINGS[ending] and not failed:
            self.model = model
        self.settled()
        return said

    def settled(self) -> None:
        """Waits until the server shows what the model says."""
        self.world.steps += 1
        self.model.settle()
        hidden = {name for name, server in self.model.servers.items() if server.paused}  # no worker marks their rows

        def shown(sinks):
            return sorted((*row[:5], -1 if row[0] in hidden or row[1] == "dropped" else row[5], *row[6:]) for row in sinks)

        def reading():
            return (sorted(self.world.admin.execute(READ_ROWS).fetchall()), shown(self.world.admin.execute(READ_SINKS).fetchall()), self.logs())

        wanted = (self.model.table(), shown(self.model.sinks()), {s.number: by_key(s.log, s.ordered) for s in self.model.servers.values()})
        seen = until(reading, wanted, SETTLE)
        for what, one, other in zip(("outbox.events", "outbox.sinks", "the endpoint"), seen, wanted):
            assert one == other, f"{what} shows\n  {one}\nand the model says\n  {other}"

    def logs(self) -> dict:
        """The n-th delivery of an id had the key of its n-th delivery in the model."""
        logs = {}
        for server in self.model.servers.values():
            keys: dict[str, list] = {}
            for key, id in server.log:
                keys.setdefault(id, []).append(key)
            logs[server.number] = by_key([(keys[id].pop(0) if keys.get(id) else "?", id) for id in self.world.log(server.number)], server.ordered)
        return logs

    def pick(self, things, number: int):
        things = list(things)
        return things[number % len(things)]

    def name(self, number: int) -> str:
        """Mostly of a sink that exists."""
        return self.pick(sorted(self.model.servers) * 3 + NAMES, number)

    def new_id(self) -> str:
        self.n += 1
        return str(uuid.UUID(int=self.world.examples << 64 | self.n))

    def teardown(self) -> None:
        self.world.clear()

    # ---- sinks -------------------------------------------------------------------------------------------------

    @initialize(events=st.sampled_from(GLOBS), ordered=st.sampled_from([True, True, False]), block=st.booleans(), waits=st.booleans(), keep=st.booleans(),
                second=st.sampled_from([None, "webhook", "manual", "manual"]),
                given=st.lists(st.tuples(NUMBER, st.sampled_from(TYPES), st.sampled_from([False, True])), max_size=5))
    def begin(self, events, ordered, block, waits, keep, second, given):
        self.create_sink("a", "*" if second is None else events, ordered or block, block, waits, keep, "autocommit")
        if second:
            self.create_sink("b", "*", ordered or block, waits, block, keep, "autocommit", second)
        for number, type, bad in given:
            self.enqueue(number, type, bad, "autocommit", ISOLATION[0], None, None, "jsonb", 0, None, False)

    @rule(name=st.sampled_from(NAMES), events=st.sampled_from(GLOBS), ordered=st.sampled_from([True, True, False]), block=st.booleans(), waits=st.booleans(),
          keep=st.booleans(), ending=ENDING, kind=st.sampled_from(["webhook", "webhook", "manual"]))
    def create_sink(self, name, events, ordered, block, waits, keep, ending, kind="webhook"):
        block = block and (ordered or name == "d")
        options = self.options(events, ordered, block, waits, keep)
        if kind == "webhook":
            options |= {"url": self.world.url(self.model.created + 1), "allow_http": "true", "allow_networks": "127.0.0.0/8"}
        given = ", ".join(f"{key} '{value}'" for key, value in options.items())
        self.step(lambda m: void(m.create_sink(name, kind, events=events, ordered=ordered, block=block, waits=waits, attempts=5 if waits else 2, keep=keep)),
                  f"CREATE SERVER {name} FOREIGN DATA WRAPPER outbox_{kind} OPTIONS ({given})", ending=ending)

    def options(self, events, ordered, block, waits, keep) -> dict[str, str]:
        return {"events": events, "ordered": str(ordered).lower(), "on_dead_letter": "block" if block else "continue", "max_attempts": "5" if waits else "2",
                "retry": "1h" if waits else "1ms", "retention": "1d" if keep else "0"}

    @rule(at=NUMBER, events=st.sampled_from(GLOBS), ordered=st.sampled_from([True, True, False]), block=st.booleans(), waits=st.booleans(),
          keep=st.booleans(), ending=ENDING)
    def alter_sink(self, at, events, ordered, block, waits, keep, ending):
        name = self.name(at)
        block = block and (ordered or at == 0)
        given = ", ".join(f"SET {key} '{value}'" for key, value in self.options(events, ordered, block, waits, keep).items())
        self.step(lambda m: void(m.alter_sink(name, events=events, ordered=ordered, block=block, waits=waits, attempts=5 if waits else 2, keep=keep)),
                  f"ALTER SERVER {name} OPTIONS ({given})", ending=ending)

    @rule(at=NUMBER, ending=ENDING)
    def drop_sink(self, at, ending):
        name = self.name(at)
        self.step(lambda m: void(m.drop_sink(name)), f"DROP SERVER {name} CASCADE", ending=ending)

    @precondition(lambda self: not self.open)  # it would wait for them
    @rule(at=NUMBER, to=st.sampled_from(NAMES), ending=st.sampled_from(UNPREPARED))  # PREPARE is refused: test/e2e/test_rename_sink.py
    def rename_sink(self, at, to, ending):
        name = self.name(at)
        self.step(lambda m: void(m.rename_sink(name, to)), f"ALTER SERVER {name} RENAME TO {to}", ending=ending)

    @rule(at=NUMBER, ending=ENDING, resume=st.booleans())
    def pause(self, at, ending, resume):
        name = self.name(at)
        verb = "resume" if resume else "pause"
        self.step(lambda m: getattr(m, verb)(name), f"SELECT outbox.{verb}(%s)", name, ending=ending)

    # ---- enqueuing ---------------------------------------------------------------------------------------------

    def make_event(self, type: str, key: str | None, bad: bool) -> Event:
        event = Event(self.new_id(), type, key)
        if bad:
            self.world.bad.add(event.id)
        return event

    def free_keys(self, session: int) -> list:
        """Without those in which another open transaction has enqueued: applications serialise the events of a key by a row lock."""
        taken = {row.event.key for other, rows in self.open.items() if other != session for row in rows}
        return [key for key in KEYS if key is None or key not in taken]

    @rule(number=NUMBER, type=st.sampled_from(TYPES), bad=st.sampled_from([False, True]), ending=ENDING,
          isolation=st.sampled_from(ISOLATION), time=st.sampled_from([None, None, None, PAST, FUTURE]), sink=st.sampled_from([None] * 8 + NAMES),
          form=st.sampled_from(list(FORMS)), body=NUMBER, dedup=st.sampled_from([None, None, "d1", "d2"]), known=st.sampled_from([False] * 5 + [True]))
    def enqueue(self, number, type, bad, ending, isolation, time, sink, form, body, dedup, known):
        event = self.make_event(type, self.pick(self.free_keys(-1), number), bad and not known)
        if known and self.model.rows:
            event.id = self.pick(sorted({row.event.id for row in self.model.rows}), number)
        given, shown = copy.copy(event), event
        given.dedup = shown.dedup = dedup
        given.payload, shown.payload = payload_of(form, body)
        given.headers, shown.headers = headers_of(form, body)

        def change(model: Model) -> str:
            if is_function(form):
                if sink is not None:
                    model.require(sink)
                if dedup in model.dedup:
                    return model.dedup[dedup]
            elif sink is not None:
                model.require(sink)
            if dedup in model.dedup:
                raise Refused("23505")
            model.add(model.enqueue(shown, sink, time))
            return event.id

        statement, values = FORMS[form](given, sink, TIMES[time])
        self.step(change, statement, *values, ending=ending, isolation=isolation)

    @rule(number=NUMBER, types=st.lists(st.sampled_from(TYPES), min_size=1, max_size=4), ending=st.sampled_from(["commit", "rollback", "savepoint rolled back", "prepared"]),
          copied=st.booleans())
    def enqueue_several(self, number, types, ending, copied):
        """A multi-row INSERT, or COPY."""
        keys = self.free_keys(-1)
        events = [self.make_event(type, self.pick(keys, number + n), False) for n, type in enumerate(types)]
        if copied:
            with self.world.admin.cursor() as cursor, cursor.copy("COPY outbox.events (aggregate_type, event_type, partition_key, id) FROM STDIN") as rows:
                for event in events:
                    rows.write_row(("Order", event.type, event.key or "", event.id))
            for event in events:
                self.model.add(self.model.enqueue(event))
            self.settled()
        else:
            values = [value for event in events for value in (event.type, event.key or "", event.id)]
            self.step(lambda m: [m.add(m.enqueue(event)) for event in events] and events[0].id,
                      "INSERT INTO outbox.events (aggregate_type, event_type, partition_key, id) VALUES " + ", ".join(["('Order', %s, %s, %s)"] * len(events)) + " RETURNING id::text",
                      *values, ending=ending)

    @rule(session=st.integers(0, 2), number=NUMBER, type=st.sampled_from(TYPES), bad=st.sampled_from([False, True]), isolation=st.sampled_from(ISOLATION))
    def enqueue_in_open_transaction(self, session, number, type, bad, isolation):
        event = self.make_event(type, self.pick(self.free_keys(session), number), bad)
        connection = self.world.sessions[session]
        if session not in self.open:
            connection.execute(f"BEGIN ISOLATION LEVEL {isolation}")
            self.open[session], self.kept[session] = [], []
        said = self.call(connection, "SELECT outbox.enqueue('Order', '1', %s, '{}', partition_key => %s, id => %s)::text", type, event.key or "", event.id)
        self.open[session] += self.model.enqueue(event)
        self.expect(said, event.id)
        self.settled()

    @precondition(lambda self: self.open)
    @rule(number=NUMBER)
    def savepoint(self, number):
        session = self.pick(sorted(self.open), number)
        self.world.sessions[session].execute(f"SAVEPOINT s{len(self.kept[session])}")
        self.kept[session].append(len(self.open[session]))

    @precondition(lambda self: any(self.kept.get(session) for session in self.open))
    @rule(number=NUMBER, back=st.booleans())
    def end_savepoint(self, number, back):
        session = self.pick([s for s in sorted(self.open) if self.kept[s]], number)
        level = number % len(self.kept[session])
        self.world.sessions[session].execute(f"{'ROLLBACK TO' if back else 'RELEASE'} s{level}")
        if back:
            del self.open[session][self.kept[session][level]:]
            del self.kept[session][level + 1:]  # the savepoint itself stays
        else:
            del self.kept[session][level:]

    @precondition(lambda self: self.open)
    @rule(number=NUMBER, ending=st.sampled_from(["COMMIT", "COMMIT", "ROLLBACK", "PREPARE", "PREPARE, ROLLBACK"]))
    def end_transaction(self, number, ending):
        session = self.pick(sorted(self.open), number)
        connection, rows = self.world.sessions[session], self.open.pop(session)
        if ending.startswith("PREPARE"):
            connection.execute(f"PREPARE TRANSACTION 'session {session}'")
            self.world.admin.execute(f"{'ROLLBACK' if 'ROLLBACK' in ending else 'COMMIT'} PREPARED 'session {session}'")
        else:
            connection.execute(ending)
        if "ROLLBACK" not in ending:
            self.model.add(rows)
        self.settled()

    # ---- dead letters ------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.bad)
    @rule(number=NUMBER)
    def repair(self, number):
        """The endpoint accepts an event that it refused."""
        self.world.bad.discard(self.pick(sorted(self.world.bad), number))

    @precondition(lambda self: self.model.rows)
    @rule(number=NUMBER, at=NUMBER, force=st.sampled_from([False, False, True]), repaired=st.booleans(), ending=ENDING, isolation=st.sampled_from(ISOLATION))
    def redrive(self, number, at, force, repaired, ending, isolation):
        id = self.pick(sorted({row.event.id for row in self.model.dead()} or {row.event.id for row in self.model.rows}), number)
        sink = None if at % 3 else self.name(at)
        if repaired:
            self.world.bad.discard(id)
        self.step(lambda m: m.redrive(id, sink, force), "SELECT outbox.redrive(%s, %s, %s)", id, sink, force, ending=ending, isolation=isolation)

    @precondition(lambda self: self.model.rows)
    @rule(number=NUMBER, action=st.sampled_from(["delete", "delete", "fail", "mark sent", "redrive", "move", "rekey", "now", "later", "whenever", "send again"]),
          at=NUMBER, key=st.sampled_from(["k", "l", "", None]), status=st.sampled_from([PENDING, FAILED]), ending=ENDING)
    def change_rows(self, number, action, at, key, status, ending):
        """Plain SQL on the rows of one event."""
        name = self.name(at)
        ids = {row.event.id for row in self.model.rows if row.status == (FAILED if action == "redrive" else SENT if action == "send again" else status)}
        id = self.pick(sorted(ids) or [row.event.id for row in self.model.rows], number)
        where = f"WHERE id = '{id}' AND status ="
        statement, change = {
            "delete": (f"DELETE FROM outbox.events {where} '{status}'", lambda m: m.delete(id, status)),
            "fail": (f"UPDATE outbox.events SET status = 'FAILED' {where} 'PENDING'", lambda m: m.set_status(id, PENDING, FAILED)),
            "mark sent": (f"UPDATE outbox.events SET sent_at = now() {where} 'PENDING'", lambda m: m.set_status(id, PENDING, SENT)),
            "redrive": (f"UPDATE outbox.events SET status = 'PENDING' {where} 'FAILED'", lambda m: m.set_status(id, FAILED, PENDING)),
            "send again": (f"UPDATE outbox.events SET status = 'PENDING' {where} 'SENT'", lambda m: m.set_status(id, SENT, PENDING)),
            "move": (f"UPDATE outbox.events SET sink = '{name}' {where} 'PENDING'", lambda m: m.move(id, name)),
            "rekey": (f"UPDATE outbox.events SET partition_key = {'NULL' if key is None else repr(key)} WHERE id = '{id}' AND status <> 'SENT'", lambda m: m.rekey(id, key or None)),
            "now": (f"UPDATE outbox.events SET available_at = now() {where} 'PENDING'", lambda m: m.set_time(id, PAST)),
            "later": (f"UPDATE outbox.events SET available_at = now() + interval '1 hour' {where} 'PENDING'", lambda m: m.set_time(id, FUTURE)),
            "whenever": (f"UPDATE outbox.events SET available_at = NULL {where} 'PENDING'", lambda m: m.set_time(id, None)),
        }[action]
        self.step(change, statement, ending=ending)

    @precondition(lambda self: self.model.sent())
    @rule(at=NUMBER, globs=st.sampled_from(GLOBS), since=st.sampled_from(["'1 hour'", "now() - interval '1 hour'"]), ending=ENDING)
    def replay(self, at, globs, since, ending):
        name = self.name(at)
        self.step(lambda m: m.replay(name, globs), f"SELECT outbox.replay(%s, {since}, until => 'infinity', events => %s)", name, globs, ending=ending)

    @precondition(lambda self: self.model.rows)
    @rule(number=NUMBER, at=NUMBER, ending=ENDING)
    def replay_one(self, number, at, ending):
        name = self.name(at)
        id = self.pick(sorted({row.event.id for row in self.model.sent()} or {row.event.id for row in self.model.rows}), number)
        self.step(lambda m: m.replay_one(id, name), "SELECT outbox.replay(%s, event => %s::uuid)", name, id, ending=ending)

    # ---- events of another cluster -------------------------------------------------------------------------------

    @rule(sink=st.sampled_from([None, *NAMES]), type=st.sampled_from(TYPES), status=st.sampled_from([PENDING, PENDING, FAILED]))
    def restore(self, sink, type, status):
        """A row as pg_restore writes it."""
        event = self.make_event(type, "foreign", False)
        row = self.model.new_row(event, sink)
        row.status, row.foreign = status, True
        self.model.rows.append(row)
        self.world.admin.execute("INSERT INTO outbox.events (id, aggregate_type, event_type, partition_key, sink, status, position, origin)"
                                 " VALUES (%s, 'Order', %s, 'foreign', %s, %s, nextval('outbox.events_position'), 4711)", [event.id, type, sink, status])
        self.settled()

    # ---- claims --------------------------------------------------------------------------------------------------

    @precondition(lambda self: any(server.kind == "manual" for server in self.model.servers.values()))
    @rule(at=NUMBER, limit=st.sampled_from([1, 2, 100]), over=st.booleans(), ending=ENDING, isolation=st.sampled_from(ISOLATION))
    def claim(self, at, limit, over, ending, isolation):
        name = self.pick([name for name, server in sorted(self.model.servers.items()) if server.kind == "manual"] * 5 + NAMES, at)

        def change(model: Model):
            return model.claim(name, limit, over)

        said = self.step(change, f"SELECT array_agg(id::text ORDER BY position) FROM outbox.claim(%s, {limit}, '{'1 ms' if over else '1 hour'}')", name,
                         ending=ending, isolation=isolation)
        if isinstance(said, list) and any(lease.token == "new" for lease in self.model.leases):
            [token] = self.world.admin.execute("SELECT DISTINCT token::text FROM outbox.leases WHERE token::text <> ALL (%s)",
                                               [[lease.token for lease in self.model.leases]]).fetchone()
            for lease in self.model.leases:
                if lease.token == "new":
                    lease.token = token

    @precondition(lambda self: self.model.leases)
    @rule(number=NUMBER, some=st.booleans(), ending=st.sampled_from(COUNTED), isolation=st.sampled_from(ISOLATION))
    def ack(self, number, some, ending, isolation):
        lease = self.pick(self.model.leases, number)
        ids = [self.pick([row.event.id for row in lease.rows], number)] if some else None
        self.step(lambda m: m.ack(lease.token, ids), "SELECT outbox.ack(%s, %s::uuid[])", lease.token, ids, ending=ending, isolation=isolation)

    @precondition(lambda self: self.model.leases)
    @rule(number=NUMBER, later=st.booleans(), give_up=st.booleans(), ending=st.sampled_from(COUNTED), isolation=st.sampled_from(ISOLATION))
    def nack(self, number, later, give_up, ending, isolation):
        lease = self.pick(self.model.leases, number)
        id = self.pick([row.event.id for row in lease.rows], number)
        self.step(lambda m: m.nack(lease.token, id, later, give_up), "SELECT outbox.nack(%s, %s, 'no', %s, %s)", lease.token, id,
                  "1 hour" if later else "0", give_up, ending=ending, isolation=isolation)

    # ---- questions, and what changes nothing -----------------------------------------------------------------------

    @precondition(lambda self: self.model.rows)
    @rule(number=NUMBER, ending=st.sampled_from(["autocommit"] * 3 + ["commit"]))
    def wait_and_status(self, number, ending):
        id = self.pick(sorted({row.event.id for row in self.model.rows}), number)
        self.step(lambda m: m.wait_delivered(id, ending != "autocommit"), "CALL outbox.wait_delivered(%s, '1 ms')", id, ending=ending)
        said = self.world.admin.execute("SELECT coalesce(sink, ''), status, attempts FROM outbox.event_status(%s)", [id]).fetchall()
        self.expect(sorted((sink or "", *rest) for sink, *rest in said),
                    sorted((r.sink or "", r.status, r.attempts) for r in self.model.rows if r.event.id == id and r.status != SENT))
        self.expect(self.world.admin.execute("SELECT count(*) > 0 FROM outbox.story(%s)", [id]).fetchone(), (True,))

    @rule(number=st.integers(0, 200), ending=ENDING)
    def others(self, number, ending):
        """Calls that depend on little else."""
        kind, number = number % 9, number // 9
        if kind == 8:
            self.step(lambda m: m.adopt(), "SELECT outbox.adopt()", ending=ending)
        elif kind == 0:
            call = self.pick(["outbox.run_maintenance() >= 0", "outbox_internal.route_waiting() = 0", "outbox_inbox.run_maintenance() >= 0", "outbox.metrics() > ''",
                              "(SELECT preloaded FROM outbox_internal.library())"], number)
            self.step(lambda m: True, f"SELECT {call}", ending=ending)
        elif kind == 1:
            name = self.pick([None, *sorted(self.model.servers)], number)
            self.step(lambda m: m.reset_stats(name), "SELECT outbox.reset_stats(%s) IS NULL", name, check=False)
        elif kind == 2:
            self.step(lambda m: m.mark_processed(number % 2, "h"), "SELECT outbox_inbox.mark_processed(%s, 'h')", str(uuid.UUID(int=number % 2)), ending=ending)
        elif kind == 3:
            self.world.admin.execute("UPDATE outbox_internal.dedup SET created_at = created_at - interval '10 years'")
            self.model.dedup.clear()
        elif kind < 6:
            said = dict(self.world.admin.execute("""SELECT "check", status FROM outbox.doctor() WHERE "check" IN ('routes', 'lost sink', 'origin', 'clock', 'positions', 'dead letters')
                                                    OR "check" ~ '^sinks?( [a-d])?$'""").fetchall())
            self.expect(said, self.model.doctor())
        else:
            statement, state = BAD_CALLS[number % len(BAD_CALLS)]
            self.step(lambda m: f"error {state}", statement)


NOBODY = "'00000000-0000-0000-0000-00000000ffff'"
BAD_CALLS = [
    ("SELECT outbox.enqueue('Order', NULL::text, 'x.1', '{}')", "22004"), ("SELECT outbox.enqueue(NULL, '1', 'x.1', '{}')", "23502"),
    ("SELECT outbox.enqueue('Order', '1', '', '{}')", "22023"), ("SELECT outbox.enqueue('Order', '1', 'x.1', '{')", "22P02"),
    ("SELECT outbox.enqueue('Order', '1', 'x.1', '{}', headers => '[]')", "22023"), ("SELECT outbox.enqueue('Order', '1', 'x.1', 5)", "42804"),
    ("SELECT outbox.enqueue('Order', '1', 'x.1', '{}', headers => '{\"a\": \"\\n\"}')", "22023"),
    ("SELECT outbox.enqueue('Order', '1', 'x.1', '{}', sink => 'nobody')", "42704"), ("INSERT INTO outbox.events (aggregate_type, event_type, sink) VALUES ('O', 'x.1', 'nobody')", "42704"),
    ("INSERT INTO outbox.events (aggregate_type) VALUES ('Order')", "23502"), ("INSERT INTO outbox.events (aggregate_type, event_type, status) VALUES ('Order', 'x.1', 'NEW')", "23514"),
    ("INSERT INTO outbox.events (aggregate_type, event_type, payload, payload_bytes) VALUES ('Order', 'x.1', '1', 'a')", "22023"),
    ("INSERT INTO outbox.events (aggregate_type, event_type, created_at) VALUES ('Order', 'x.1', 'infinity')", "22008"),
    ("SELECT outbox.pause(NULL)", "22004"), ("SELECT outbox.pause('nobody')", "42704"), ("SELECT outbox.resume('nobody')", "42704"), ("SELECT outbox.reset_stats('nobody')", "42704"),
    ("SELECT outbox.replay('nobody', '1 hour')", "42704"), ("SELECT outbox.replay('a', 'yesterday or so')", "22007"), ("SELECT outbox.replay('a', NULL::interval)", "22004"),
    ("SELECT outbox.replay('a', now(), now() - interval '1 hour')", "22023"), ("SELECT outbox.replay('a', interval '1 hour', events => ',')", "22023"),
    (f"SELECT outbox.replay('nobody', event => {NOBODY})", "42704"), ("SELECT outbox.replay('a', event => NULL)", "22004"), (f"SELECT outbox.replay('a', '1 hour', event => {NOBODY})", "22023"), ("CALL outbox.wait_delivered(NULL)", "22004"),
    ("SELECT FROM outbox.claim('nobody')", "42704"), ("SELECT FROM outbox.claim(NULL)", "22004"),
    ("SELECT FROM outbox.claim('a', 0)", "22023"), ("SELECT FROM outbox.claim('a', 1, '8 days')", "22023"), ("SELECT outbox.ack(NULL)", "22004"),
    (f"SELECT outbox.nack({NOBODY}, {NOBODY}, NULL)", "22004"), (f"SELECT outbox.nack({NOBODY}, {NOBODY}, 'no', '-1 s')", "22023"), (f"SELECT outbox.preview({NOBODY})", "02000"),
    ("SELECT outbox.preview(NULL)", "22004"), ("SELECT outbox.probe('nobody')", "42704"), ("SELECT outbox.metrics('xml')", "22023"), ("SELECT outbox_inbox.mark_processed(NULL, 'h')", "22004"),
    ("SELECT outbox_inbox.mark_processed('00000000-0000-0000-0000-000000000001', '')", "22023"), ("SELECT outbox.create_view('mails', '{}')", "22023"),
]


def by_key(log: list[tuple], ordered: bool) -> dict:
    """The order within each key; events without a key or of an unordered sink have none."""
    keys: dict = {}
    for key, id in log:
        keys.setdefault(key if ordered else None, []).append(id)
    return {key: ids if key is not None else sorted(ids) for key, ids in keys.items()}


def void(_) -> None:
    return None

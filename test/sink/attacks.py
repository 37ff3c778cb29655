"""The table of hostile peers: each attack of hostile.py on each kind of sink, and what must come out, which is the same for all.

While the peer attacks: no event counts as delivered that the peer has not acknowledged; the worker's memory and CPU are bounded; outbox.sinks tells that
nothing gets through, and why; another sink delivers. Then the peer is healthy, and every event arrives or is a dead letter with a cause. Then it attacks
again: a shutdown of the server ends in time, and so does DROP SERVER."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from hostile import ATTACKS, GOOD, HEALTHY, NOTHING, POISON, TAG, Attack, Fake
from server import Server

KEYS = 12  # more than the ten that open a circuit
PATIENCE = float(os.environ.get("PATIENCE", "1"))
LIMIT_S = 45 * PATIENCE  # when to call something hung: longer than the 30 s after which a silent peer is given up
WATCHED_S = 1.5  # for so long a state must stay
MOST_MEMORY = 100_000_000  # bytes more than before
MOST_CPU = 0.5  # of a core, while a peer does not send as much as it can
MOST_CPU_BUSY = 0.9
MOST_DELAY_S = 1 * PATIENCE  # of an event of the sink beside it, from before INSERT to the endpoint
MOST_STOP_S = 10 * PATIENCE  # outbox.shutdown_timeout, and the time to record
OPTIONS = {"retry": "50ms..500ms", "max_attempts": "3"}


def load(path: Path) -> type[Fake]:
    sys.path.append(str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(f"hostile_{path.parent.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Fake) and each is not Fake]
    if not found:
        raise SystemExit(f"{path} has no class that derives from hostile.Fake")
    return found[-1]


class CalmEndpoint:
    """A healthy webhook, which must not notice what happens beside it."""

    def __init__(self):
        self.arrived: dict[str, float] = {}  # when, by tag
        calm = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                for tag in TAG.findall(self.rfile.read(int(self.headers["content-length"]))):
                    calm.arrived[tag.decode()] = time.monotonic()
                self.send_response_only(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclass
class Cell:
    """What came out of one attack on one kind."""
    kind: str
    attack: str
    faults: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    left_out: str = ""

    def line(self) -> str:
        end = f"left out: {self.left_out}" if self.left_out else "FAILED" if self.faults else "ok"
        return "\n".join([f"{self.kind:<9} {self.attack:<22} {end}{'' if self.left_out else '  ' + ', '.join(self.facts)}", *(f"    {fault}" for fault in self.faults)])


class Game:
    """A fake peer of one kind, and a database for each attack on it."""

    def __init__(self, server: Server, kind: str, fake: Fake):
        self.server, self.kind, self.fake, self.calm = server, kind, fake, CalmEndpoint()
        self._tags = iter(range(1, 1_000_000))

    # ---- the database ----

    def sql(self, query: str, *parameters) -> list[tuple]:
        return self.server.sql(query, *parameters)

    def create(self, name: str) -> None:
        with self.server.connect("postgres") as admin:
            admin.execute(f"CREATE DATABASE {name}")
        self.server.database = name
        self.sql("CREATE EXTENSION IF NOT EXISTS outbox")
        if self.fake.extension != "outbox":
            self.sql(f"CREATE EXTENSION IF NOT EXISTS {self.fake.extension}")
        self.sql(f"CREATE SERVER calm FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url '{self.calm.url}', allow_http 'true', allow_networks '127.0.0.0/8',"
                 " events 'calm')")
        self.create_sink()

    def create_sink(self) -> None:
        more = "".join(f", {name} '{value}'" for name, value in (OPTIONS | {"events": "hostile.*"}).items())
        for statement in self.fake.statements(more):
            self.server.sql(statement)

    def drop(self, name: str) -> None:
        self.server.database = "postgres"
        with self.server.connect("postgres") as admin:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def enqueue(self, event_type: str, keys: int, poison: bool = False) -> list[str]:
        """An event for each key, at once; the first one is the poison. Returns their tags."""
        tags = [f"tag-{next(self._tags):06}" for _ in range(keys + poison)]
        payloads = [json.dumps({"tag": tag} | ({"text": POISON.decode()} if poison and not n else {})) for n, tag in enumerate(tags)]
        self.sql("SELECT outbox.enqueue('Order', n::text, %s, payload::jsonb) FROM unnest(%s::text[]) WITH ORDINALITY AS _ (payload, n)", event_type, payloads)
        return tags

    def control(self) -> tuple[list[str], int]:
        """Events with control characters in every column; some are refused when they are enqueued. Returns the tags of the others."""
        text, accepted, refused = "a\r\ninjected: yes\r\n\r\nb\t\x01\x1b\x7f", [], 0
        for column in ("aggregate_type", "aggregate_id", "event_type", "partition_key", "headers", "name", "payload", "content_type"):
            tag = f"tag-{next(self._tags):06}"
            with self.server.connect() as connection:
                given = {"aggregate_type": "Order", "aggregate_id": tag, "event_type": "hostile.control", "headers": "{}", "partition_key": None,
                         "payload": json.dumps({"tag": tag})}
                if column == "headers":
                    given["headers"] = json.dumps({"x-text": text})
                elif column == "name":
                    given["headers"] = json.dumps({text: "x"})
                elif column == "payload":
                    given["payload"] = json.dumps({"tag": tag, "text": text})
                elif column == "event_type":
                    given["event_type"] = "hostile." + text
                elif column != "content_type":
                    given[column] = text
                try:
                    if column == "content_type":
                        connection.execute("SELECT outbox.enqueue_bytes('Order', %s::text, 'hostile.control', %s::bytea, %s)", (tag, tag.encode(), "text/plain" + text))
                    else:
                        connection.execute("SELECT outbox.enqueue(aggregate_type => %(aggregate_type)s, aggregate_id => %(aggregate_id)s::text, event_type =>"
                                           " %(event_type)s, payload => %(payload)s::jsonb, headers => %(headers)s::jsonb, partition_key => %(partition_key)s)", given)
                except Exception as error:  # a refusal says why
                    refused += 1
                    assert str(error), column
                else:
                    accepted.append(tag)
        return accepted, refused

    # ---- what is looked at ----

    def rows(self) -> dict[str, tuple[str, str | None]]:
        """Of the sink's events that are not delivered: status and error, by tag."""
        found = self.sql("SELECT coalesce(payload->>'tag', convert_from(payload_bytes, 'UTF8')), coalesce(status, 'PENDING'), last_error"
                         " FROM outbox.events WHERE event_type LIKE 'hostile.%%' AND status IS DISTINCT FROM 'SENT'")
        return {tag: (status, error) for tag, status, error in found}

    def sink(self) -> tuple[str, str | None]:
        [(state, error)] = self.sql("SELECT state, last_error FROM outbox.sinks WHERE name = 'sut'")
        return state, error

    def usage(self) -> tuple[int, float]:
        """Anonymous memory and seconds of CPU of the worker."""
        pid = self.server.worker()
        memory = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(memory[1]) * 1024, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def wait(condition: Callable[[], object], limit_s: float = LIMIT_S) -> bool:
        until = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    # ---- a cell ----

    def play(self, attack: Attack) -> Cell:
        cell = Cell(self.kind, attack.name, left_out=self.fake.possible(attack))
        if cell.left_out:
            return cell
        database = "cell_" + re.sub(r"\W", "_", f"{self.kind} {attack.name}")
        self.fake.acknowledged.clear()
        self.fake.faults.clear()
        self.fake.play(HEALTHY)
        self.create(database)
        try:
            self._attacked(cell, attack)
            self._stopped(cell, attack)
        except Exception as error:
            cell.faults.append(f"{type(error).__name__}: {error}")
        finally:
            self.fake.play(HEALTHY)
            self.drop(database)
        if cell.faults and attack.name in self.fake.gaps:
            cell.left_out, cell.faults = f"a known gap: {self.fake.gaps[attack.name]}", []
        cell.faults += self.fake.faults + [f"the server's log: {line}" for line in self.server.crashes()]
        return cell

    def _attacked(self, cell: Cell, attack: Attack) -> None:
        fake, passes = self.fake, self.fake.passes.get(attack.name, attack.passes)
        first = self.enqueue("hostile.first", KEYS)
        if not self.wait(lambda: not self.rows() and fake.acknowledged.issuperset(first)):
            cell.faults.append(f"the healthy fake does not get the first events: {self.sink()}")
            return
        old = set(fake.talks)
        fake.play(attack)
        self.wait(lambda: not old & fake.talks and (fake.keeps_idle or fake.talks), 5)  # it has connected again
        self.wait(lambda: self.sink()[0] in ("idle", "circuit open"), 5)
        self.sql("SELECT outbox.reset_stats('sut')")  # last_error
        memory, cpu = self.usage()
        began, most_memory, calm = time.monotonic(), memory, {}

        if attack.events == "control":
            tags, refused = self.control()
            cell.facts.append(f"{len(tags)} events accepted, {refused} refused")
        else:
            tags = self.enqueue("hostile.plain", KEYS, attack.events == "poison")

        def look() -> tuple[str, str | None]:
            nonlocal most_memory
            most_memory = max(most_memory, self.usage()[0])
            enqueued = time.monotonic()
            calm[self.enqueue("calm", 1)[0]] = enqueued
            rows = self.rows()  # before the peer's: what it has acknowledged in between counts
            wrong = [tag for tag in tags if tag not in rows and tag not in fake.acknowledged]
            if wrong and not cell.faults:
                cell.faults.append(f"recorded as delivered, and not acknowledged by the peer: {', '.join(wrong)}")
            return self.sink()

        if passes == NOTHING:
            self._tells(cell, look, began)
        else:
            ended = (lambda: not [1 for status, _ in self.rows().values() if status == "PENDING"])
            if not self.wait(lambda: look() and ended()):
                cell.faults.append(f"events are left: {self.rows()}, sink {self.sink()}")
            cell.facts.append(f"ended after {time.monotonic() - began:.1f} s")
        after, used = self.usage()
        share, bound = (used - cpu) / (time.monotonic() - began), MOST_CPU_BUSY if attack.busy else MOST_CPU
        cell.facts += [f"cpu {share:.2f}", f"memory +{(max(most_memory, after) - memory) // 1_000_000} MB"]
        if share > bound:
            cell.faults.append(f"the worker uses {share:.2f} of a core, and {bound} is allowed")
        if max(most_memory, after) - memory > MOST_MEMORY:
            cell.faults.append(f"the worker's memory grows by {(max(most_memory, after) - memory) // 1_000_000} MB")
        arrived = self.calm.arrived
        if not self.wait(lambda: arrived.keys() >= calm.keys()):
            cell.faults.append(f"the sink beside it got {len(arrived.keys() & calm.keys())} of {len(calm)} events while the peer attacked")
        delay = max((arrived[tag] - enqueued for tag, enqueued in calm.items() if tag in arrived), default=0)
        cell.facts.append(f"beside it {len(calm)}, the slowest in {delay:.2f} s")
        if delay > MOST_DELAY_S:
            cell.faults.append(f"an event of the sink beside it takes {delay:.2f} s, and {MOST_DELAY_S} s is allowed")

        fake.play(HEALTHY)
        if not self.wait(lambda: not [1 for status, _ in self.rows().values() if status == "PENDING"]):
            cell.faults.append(f"events are left although the peer is healthy: {self.rows()}, sink {self.sink()}")
        rows = self.rows()
        cell.faults += [f"lost: {tag}" for tag in tags if tag not in rows and tag not in fake.acknowledged]
        cell.faults += [f"a dead letter without a cause: {tag}" for tag, (status, error) in rows.items() if not error]
        dead = [tag for tag in tags if tag in rows]
        if attack.events == "poison" and passes == GOOD and dead != tags[:1]:
            cell.faults.append(f"dead letters are {dead}, and only the event to which the peer objects should be one: {rows}")
        elif attack.events == "plain" and len(dead) > attack.most_dead:
            cell.faults.append(f"dead letters, although the peer objects to no event: {rows}")
        if dead:
            cell.facts.append(f"dead letters {len(dead)}")

    def _tells(self, cell: Cell, look: Callable[[], tuple[str, str | None]], began: float) -> None:
        """The state says that nothing gets through, and goes on to say it."""
        silent = ("idle", "delivering")
        last = []

        def tells() -> bool:
            last[:] = look()
            return last[0] not in silent and bool(last[1])

        if not self.wait(tells):
            cell.faults.append(f"outbox.sinks does not tell that nothing gets through: {last}")
            return
        cell.facts.append(f'"{last[0]}" after {time.monotonic() - began:.1f} s')
        until = time.monotonic() + WATCHED_S
        while time.monotonic() < until:
            state, error = look()
            if state in silent or not error:
                cell.faults.append(f'outbox.sinks says "{state}", error {error!r}, while nothing gets through')
                return
            time.sleep(0.05)
        cell.facts.append(f"{last[1][:100]!r}")

    def _stopped(self, cell: Cell, attack: Attack) -> None:
        fake = self.fake
        fake.play(attack)
        seen = len(fake.seen)
        self.enqueue("hostile.last", KEYS)
        self.wait(lambda: len(fake.seen) > seen or fake.talks, 5)
        began = time.monotonic()
        try:
            self.server.stop("fast", int(LIMIT_S))
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            cell.faults.append(f"a fast shutdown does not end: {str(error)[:200]}")
            self.server.stop("immediate")
        stopped = time.monotonic() - began
        if stopped > MOST_STOP_S:
            cell.faults.append(f"a fast shutdown takes {stopped:.1f} s, and {MOST_STOP_S} s is allowed")
        self.server.start()
        self.wait(lambda: bool(fake.talks), 5)
        began = time.monotonic()
        self.sql("DROP SERVER IF EXISTS sut CASCADE")
        if not self.wait(lambda: not fake.talks or (fake.keeps_idle and all(talk.settled for talk in list(fake.talks)))):
            cell.faults.append(f"{len(fake.talks)} connections outlive DROP SERVER")
        cell.facts.append(f"stop {stopped:.1f} s, drop {time.monotonic() - began:.1f} s")

    def close(self) -> None:
        self.fake.close()
        self.calm.close()


def kind_of(path: Path) -> str:
    """sinks/nats/test/hostile.py, or test/sink/hostile_webhook.py."""
    return path.stem.removeprefix("hostile_") if path.stem != "hostile" else path.resolve().parents[1].name


def run(paths: list[Path], pg_config: str, only: list[str]) -> int:
    chosen = [ATTACKS[name] for name in only or ATTACKS]
    server, cells = Server(pg_config, 40), []
    try:
        for path in paths:
            game = Game(server, kind_of(path), load(path)())
            try:
                for attack in chosen:
                    cells.append(game.play(attack))
                    print(cells[-1].line(), flush=True)
            finally:
                game.close()
    finally:
        failed = sum(bool(cell.faults) for cell in cells)
        server.close(keep_files=failed > 0)
        if failed:
            print(f"log: {server.log}")
    left_out = sum(bool(cell.left_out) for cell in cells)
    print(f"{len(cells) - failed - left_out} attacks passed, {failed} failed, {left_out} left out")
    return 1 if failed else 0

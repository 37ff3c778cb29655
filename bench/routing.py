"""An endpoint for each of 1,000 customers with the option match, compared with one endpoint: the cost for enqueuing
and for looking at the views. Delivery is off."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import plain
from bulk import insert
from enqueue import limit, pgbench
from measure import median, private_memory, thread_seconds
from outbox_rig.database import Database
from results import Results, Row, at_most, ratio_at_least
from stage import Stage, progress

ENDPOINTS = 1000
MAKE = """
    DO $$
    BEGIN
      FOR tenant IN 1..{endpoints} LOOP
        EXECUTE format('CREATE SERVER customer_%s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url %L, match %L)',
                       tenant, 'https://hooks.example/customers/' || tenant, jsonb_build_object('tenant', tenant));
      END LOOP;
    END $$"""
# The statements are the same for both, and the events too, except for the customer.
ENQUEUE = "SELECT outbox.enqueue('Enqueue', :k::text, 'order.created', :payload::jsonb, headers => jsonb_build_object('tenant', :tenant::int))"
BULK = """INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, headers)
          SELECT aggregate_type, key, event_type, payload, jsonb_build_object('tenant', 1 + n % {endpoints}) FROM source"""
ONE = "SELECT outbox.enqueue('Order', '1', 'order.created', '{}', headers => '{\"tenant\": 1}')"
HARMLESS = "ALTER SERVER customer_1 OPTIONS ({verb} retention{value})"
SESSIONS = 15


def script(stage: Stage, endpoints: int) -> Path:
    path = stage.directory / f"routing{endpoints}.sql"
    path.write_text(f"\\set k :client_id * 125 + random(1, 125)\n\\set tenant random(1, {endpoints})\n{ENQUEUE};\n")
    return path


class Session:
    """A new session: the CPU time in milliseconds of each of its steps."""

    def __init__(self, db: Database, endpoints: int):
        with db.connect() as connection:
            connection.execute("SET synchronous_commit = off")
            pid = connection.info.backend_pid

            def cost(*statements: str) -> float:
                before = thread_seconds(pid)
                for statement in statements:
                    connection.execute(statement)
                return (thread_seconds(pid) - before) * 1000

            memory = private_memory(pid)
            self.first = cost(ONE)
            self.next = cost(*[ONE] * 20) / 20
            self.memory_first = private_memory(pid) - memory
            db.sql(HARMLESS.format(verb="ADD", value=" '1d'"))
            db.sql(HARMLESS.format(verb="DROP", value=""))
            self.altered = cost(ONE)
            connection.execute(f"""SELECT count(outbox.enqueue('Order', '1', 'order.created', '{{}}', headers => jsonb_build_object('tenant', n)))
                                   FROM generate_series(1, {endpoints}) AS n""")
            self.memory_all = private_memory(pid) - memory


def milliseconds(act: Callable[[], object], times: int) -> float:
    took = []
    for _ in range(times):
        started = time.monotonic()
        act()
        took.append((time.monotonic() - started) * 1000)
    return median(took)


def measure(stage: Stage, results: Results, seconds: float, events: int, rounds: int) -> None:
    with ExitStack() as stack:
        databases = {endpoints: stack.enter_context(stage.database(f"routing{endpoints}")) for endpoints in (1, ENDPOINTS)}
        for endpoints, db in databases.items():
            stage.pause(db)
            plain.make(stage, db, "Enqueue", events)
            db.sql(MAKE.format(endpoints=endpoints))
            db.sql("VACUUM ANALYZE pg_foreign_server")
        enqueueing(stage, results, databases, seconds, rounds)
        bulk(results, databases, events, rounds)
        sessions(results, databases)
        looking_on(results, databases[ENDPOINTS], events)


def in_turns(databases: dict[int, Database], rounds: int, run: Callable[[int, Database], dict]) -> dict[int, list[dict]]:
    """The machine's speed drifts, so the first place alternates."""
    runs: dict[int, list[dict]] = {endpoints: [] for endpoints in databases}
    for number in range(rounds):
        for endpoints in sorted(databases, reverse=number % 2 == 1):
            runs[endpoints].append(run(endpoints, databases[endpoints]))
    return runs


def compare(results: Results, what: str, runs: dict[int, list[dict]], figure: str, unit: str, goal: float) -> None:
    one, many = ([run[figure] for run in runs[endpoints]] for endpoints in (1, ENDPOINTS))
    progress(f"{what}: {median(many):,.0f} {unit}, with one {median(one):,.0f}")
    results.data[what] = {str(endpoints): found for endpoints, found in runs.items()}
    results.rows.append(Row(f"{what}, {ENDPOINTS:,} endpoints with match", median(many), unit, median(one), "one endpoint",
                            median([a / b for a, b in zip(many, one)]), [ratio_at_least(goal)], limit=limit(runs[ENDPOINTS])))


def enqueueing(stage: Stage, results: Results, databases: dict[int, Database], seconds: float, rounds: int) -> None:
    def run(endpoints: int, db: Database) -> dict:
        plain.empty(db)
        return pgbench(db, script(stage, endpoints), "off", "-T", f"{seconds:g}")

    compare(results, "enqueue", in_turns(databases, rounds, run), "tps", "TPS", 0.95)


def bulk(results: Results, databases: dict[int, Database], events: int, rounds: int) -> None:
    def run(endpoints: int, db: Database) -> dict:
        return insert(db, BULK.format(endpoints=endpoints), "outbox.events_pending", events)

    compare(results, f"INSERT ... SELECT of {events:,} events", in_turns(databases, rounds, run), "rate", "rows/s", 0.85)  # each row is for another endpoint


def sessions(results: Results, databases: dict[int, Database]) -> None:
    found = {endpoints: [Session(db, endpoints) for _ in range(SESSIONS)] for endpoints, db in databases.items()}
    results.data["sessions"] = {str(endpoints): [vars(session) for session in those] for endpoints, those in found.items()}

    def row(what: str, figure: str, unit: str, scale: float, bound: float) -> None:
        one, many = (median([getattr(session, figure) for session in found[endpoints]]) / scale for endpoints in (1, ENDPOINTS))
        progress(f"{what}: {many:.3f} {unit}, with one {one:.3f}")
        results.rows.append(Row(f"{what}, {ENDPOINTS:,} endpoints with match", many, unit, one, "one endpoint", goals=[at_most(bound)]))

    row("CPU of a session's first enqueue", "first", "ms", 1, 10)
    row("CPU of its next ones", "next", "ms", 1, 1)
    row("CPU of its first one after an ALTER SERVER", "altered", "ms", 1, 5)
    row("memory of a session with its first enqueue", "memory_first", "MB", 2**20, 2)
    row("memory of a session that wrote to each endpoint", "memory_all", "MB", 2**20, 4)


def looking_on(results: Results, db: Database, events: int) -> None:
    """Also the cost of changes, while the views are read."""
    plain.empty(db)
    db.sql(BULK.format(endpoints=ENDPOINTS))
    db.sql("VACUUM ANALYZE outbox.events_pending")
    for what, act, bound in (("outbox.sinks", "SELECT * FROM outbox.sinks", 50), ("outbox.doctor()", "SELECT * FROM outbox.doctor()", 500)):
        took = milliseconds(lambda: db.sql(act), 7)
        progress(f"{what}: {took:.0f} ms")
        results.rows.append(Row(f"{what}, {ENDPOINTS:,} endpoints, {events:,} pending", took, "ms", goals=[at_most(bound)]))
    for what, act in (("CREATE", "CREATE SERVER one_more FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.example/more', match '{\"tenant\": \"more\"}')"),
                      ("DROP", "DROP SERVER one_more")):
        took = milliseconds(lambda: db.sql(act), 1)
        progress(f"{what} SERVER: {took:.1f} ms")
        results.rows.append(Row(f"{what} SERVER, beside {ENDPOINTS:,}", took, "ms", goals=[at_most(50)]))

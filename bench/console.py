"""What the console costs: the SQL of each page with 10,000,000 pending events of 1,000 sinks and no fresh statistics, and a drain while a page is
shown every two seconds."""

import subprocess
import threading

import drain
import httpx2
from measure import median
from outbox_rig import BUILD, ROOT
from outbox_rig.paths import pg_config
from outbox_rig.process import free_port
from results import Results, Row, at_most, ratio_at_least
from stage import Stage, progress

SINKS, DEAD, VISITS = 1000, 5000, 11
BOUND = 50  # ms
DRAIN = 500_000


class Console:
    """A visitor of the console of a database."""

    def __init__(self, stage: Stage, db):
        subprocess.run(["make", "-s", "-C", ROOT / "console", f"PG_CONFIG={pg_config('bindir') / 'pg_config'}", f"CONSOLE_BUILD={BUILD / 'console'}"], check=True)
        self._child = subprocess.Popen([BUILD / "console" / "outbox-console", "--port", str(free_port()), stage.pg.dsn(db.name)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        link = self._child.stdout.readline().strip()
        self._client = httpx2.Client(base_url=link.partition("/enter")[0], follow_redirects=True, timeout=60)
        self._client.get(link).raise_for_status()

    def __enter__(self) -> "Console":
        return self

    def __exit__(self, *_) -> None:
        self._client.close()
        self._child.terminate()
        self._child.wait()

    def sql_ms(self, path: str) -> float:
        """Milliseconds of the page's statements."""
        answer = self._client.get(path)
        answer.raise_for_status()
        return float(answer.headers["server-timing"].partition("dur=")[2])


def pages(stage: Stage, results: Results, events: int) -> None:
    nginx = stage.rig.nginx()
    with stage.database("console") as db:
        stage.pause(db)
        db.sql("ALTER TABLE outbox.events_pending SET (autovacuum_enabled = off)")
        for number in range(SINKS):
            db.webhook_sink(f"s{number}", nginx.url, match=f'{{"tenant": {number}}}')
        db.sql(f"""INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, headers)
                   SELECT 'Order', (n % 100000)::text, 'e' || n % 20, jsonb_build_object('n', n), jsonb_build_object('tenant', n % {SINKS})
                   FROM generate_series(1, {events}) AS n""")
        db.sql(f"""WITH gone AS (DELETE FROM outbox.events WHERE position IN (SELECT position FROM outbox.events_pending ORDER BY position LIMIT {DEAD}) RETURNING *)
                   INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload, status, attempts, last_error, last_attempt_at, sink)
                   SELECT id, aggregate_type, aggregate_id, event_type, payload, 'FAILED', 10, 'HTTP 500: ' || position, now(), sink FROM gone""")
        [(event, sink)] = db.sql("SELECT id, sink FROM outbox.events_pending ORDER BY position LIMIT 1 OFFSET 1000")
        progress(f"{events:,} events wait for {SINKS:,} sinks")
        with Console(stage, db) as console:
            for what, path in {"Now": "/", "a sink": f"/sink?name={sink}", "waiting events": "/events?show=waiting", "those of a sink": f"/events?show=waiting&sink={sink}",
                               "those of a type that is rare": "/events?show=waiting&type=none", "those since a time": "/events?show=waiting&since=2020-01-01", "dead letters": "/events?show=dead",
                               "those with an error": f"/events?show=dead&sink={sink}&error=HTTP", "an event": f"/event?id={event}", "Doctor": "/doctor"}.items():
                took = [console.sql_ms(path) for _ in range(VISITS + 1)][1:]
                results.data[what] = took
                progress(f"  {what}: {median(took):.1f} ms, at most {max(took):.1f}")
                results.rows.append(Row(f"console, {what}", median(took), "ms", goals=[at_most(BOUND)], limit=f"at most {max(took):.0f} ms"))
    nginx.stop()


def beside(stage: Stage, results: Results, rounds: int) -> None:
    rates: dict[bool, list[float]] = {True: [], False: []}
    with stage.database("console_drain") as db:
        stage.kafka_sink(db)
        with Console(stage, db) as console:
            for number in range(2 * rounds + 2):
                over = threading.Event()

                def look(over=over) -> None:
                    while not over.wait(2):
                        console.sql_ms("/")

                looked = number % 2 == 1
                viewer = threading.Thread(target=look, daemon=True)
                if looked:
                    viewer.start()
                found = drain.ours(stage, db, f"Console{number}", "fixed", DRAIN)
                over.set()
                if looked:
                    viewer.join()
                if number >= 2:
                    rates[looked].append(found["rate"])
    ratio = median([one / other for one, other in zip(rates[True], rates[False])])
    results.data["drain"] = {str(key): value for key, value in rates.items()}
    results.rows.append(Row(f"drain of {DRAIN:,} events while the console is shown", median(rates[True]), "events/s", median(rates[False]), "without", ratio, [ratio_at_least(0.99)]))


def measure(stage: Stage, results: Results, events: int, rounds: int) -> None:
    pages(stage, results, events)
    beside(stage, results, rounds)

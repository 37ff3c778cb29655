"""outbox.metrics(): the text for Prometheus, and the meaning of its numbers."""

import os
import re
import signal
import subprocess
from collections import Counter
from pathlib import Path

import psycopg
import pytest
import yaml
from outbox_rig import wait_until
from outbox_rig.asleep import stop_asleep
from outbox_rig.paths import ROOT
from outbox_rig.process import free_port
from outbox_rig.prometheus import QUERIES
from outbox_rig.receiver import OK, SECRET, status
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

LABELS = {"datname", "sink", "reason"}
VIEWS = ("database_metrics", "sink_metrics", "failure_metrics")
BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, float("inf")]


def samples(text: str, parse=parse_prometheus) -> dict[tuple, float]:
    """Samples by name and labels; le as a number, because the formats write it differently."""
    found = {}
    for family in parse(text):
        for sample in family.samples:
            labels = {name: float(value) if name == "le" else value for name, value in sample.labels.items()}
            key = (sample.name, *sorted(labels.items(), key=str))
            assert key not in found, f"{key} twice"
            found[key] = sample.value
    return found


def metric(db, name: str, sink: str | None = None, **labels: str) -> float | None:
    """A value of outbox.metrics(); None if it is missing."""
    labels |= {"datname": db.name} | ({"sink": sink} if sink else {})
    return samples(db.value("SELECT outbox.metrics()")).get((name, *sorted(labels.items(), key=str)))


def metric_columns(db) -> dict[str, tuple[str, str]]:
    """Type and description of each metric, according to the views' columns."""
    rows = db.sql("SELECT a.attname, format_type(a.atttypid, NULL), col_description(a.attrelid, a.attnum) FROM pg_attribute a"
                  " JOIN pg_class c ON c.oid = a.attrelid WHERE c.relnamespace = 'outbox'::regnamespace AND c.relname = ANY (%s) AND a.attnum > 0", list(VIEWS))
    return {f"outbox_{name}": ("histogram" if kind == "double precision[]" else "counter" if name.endswith("_total") else "gauge", meaning)
            for name, kind, meaning in rows if name not in LABELS and not re.search("_(bucket|sum|count)$", name)}


@pytest.fixture
def odd(db, receiver):
    """A sink whose name must be escaped, with a delivered, a retried and a dead event. Only one of them blames the
    sink: two would open its circuit if the others took more than a second."""
    name = 'a "b"\\c'
    db.webhook_sink(name, receiver, SECRET, retry="1h", max_attempts="2")
    answers = {"bad": status(503), "dead": status(400)}
    receiver.mode = lambda d: answers.get(d.json()["data"], OK)
    for key in ("1", "2", "3", "bad", "dead"):
        db.enqueue("Order", key, payload=f'"{key}"')
    wait_until(lambda: db.sink("delivered, retried", name) == (3, 2), 10, lambda: db.sink("*", name))
    db.sql("UPDATE outbox.events SET available_at = now() WHERE aggregate_id = 'dead'")
    wait_until(lambda: db.sink("dead, dead_total", name) == (1, 1), 10, "the dead letter")
    return name


@pytest.mark.slow  # promtool is as large as Prometheus
def test_promtool_finds_nothing_to_complain_of(db, odd):
    text = db.value("SELECT outbox.metrics()")
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_both_formats_say_the_same(db, odd):
    text, open_text = db.sql("SELECT outbox.metrics(), outbox.metrics('openmetrics')")[0]
    assert open_text.endswith("\n# EOF\n") and "# TYPE outbox_retries counter" in open_text
    known = samples(text)
    timed = [key for key in known if key[0] == "outbox_oldest_pending_age_seconds"]
    assert known | dict.fromkeys(timed) == samples(open_text, parse_openmetrics) | dict.fromkeys(timed)

    of_sink = {key[0]: value for key, value in known.items() if ("sink", odd) in key and len(key) == 3}
    assert 0 < of_sink.pop("outbox_oldest_pending_age_seconds") < 60
    total = of_sink.pop("outbox_publish_latency_seconds_sum")
    assert of_sink == {
        "outbox_pending_events": 1, "outbox_pending_events_estimated": 0, "outbox_scheduled_events": 0, "outbox_blocked_events": 0, "outbox_failing_events": 1,
        "outbox_due_events": 0, "outbox_oldest_due_age_seconds": 0,
        "outbox_inflight_events": 0, "outbox_dead_letter_events": 1, "outbox_sink_circuit_open": 0, "outbox_sink_degraded": 0,
        "outbox_sink_paused": 0, "outbox_sink_disabled": 0, "outbox_sink_misconfigured": 0, "outbox_published_events_total": 3,
        "outbox_retries_total": 2, "outbox_dead_letters_total": 1, "outbox_redriven_late_total": 0, "outbox_unanswered_events_total": 0, "outbox_publish_latency_seconds_count": 3,
        "outbox_unrecorded_events": 0}
    assert [metric(db, "outbox_publish_failures_total", odd, reason=reason) for reason in ("http_5xx", "http_4xx")] == [1, 2]
    counts = [metric(db, "outbox_publish_latency_seconds_bucket", odd, le=edge) for edge in BUCKETS]
    assert counts == sorted(counts) and counts[-1] == 3 and 0.0001 < total < 3 * 60
    # Each is in the bucket that matches the sum of their times.
    lowest = sum((n - before) * edge for n, before, edge in zip(counts, [0, *counts], [0, *BUCKETS]))
    highest = sum((n - before) * edge for n, before, edge in zip(counts, [0, *counts], BUCKETS) if n > before)
    assert lowest <= total <= highest

    assert (metric(db, "outbox_worker_up"), metric(db, "outbox_worker_processes"), metric(db, "outbox_unrouted_events")) == (1, 1, 0)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="unknown format of metrics"):
        db.sql("SELECT outbox.metrics('json')")

    db.sql("SELECT outbox.reset_stats(%s)", odd)
    assert [metric(db, "outbox_publish_failures_total", odd, reason=reason) for reason in ("http_5xx", "http_4xx")] == [None, None]
    assert metric(db, "outbox_publish_latency_seconds_bucket", odd, le=float("inf")) == 0 == metric(db, "outbox_published_events_total", odd)


def test_types_and_meanings_come_from_the_views(db, odd):
    """docs/monitoring.md and docker/queries.yaml have the same."""
    columns = metric_columns(db)
    # The library removes _total from a family's name.
    found = {f.name + ("_total" if f.type == "counter" else ""): (f.type, f.documentation) for f in parse_prometheus(db.value("SELECT outbox.metrics()"))}
    assert found == columns and len(columns) > 20

    page = (ROOT / "docs" / "monitoring.md").read_text()
    table = {name: kind for name, kind in re.findall(r"^\| `(outbox_\w+)(?:\{[\w, ]*\})?` \| (\w+) \| .+ \|$", page, re.M)}
    assert table == {name: kind for name, (kind, _) in columns.items()}

    queries = yaml.safe_load(Path(QUERIES).read_text())
    scraped = {}
    for key, query in queries.items():
        for column in query["metrics"]:
            [(name, how)] = column.items()
            if how["usage"] != "LABEL":
                scraped[f"{key}_{name}"] = (how["usage"].lower(), how["description"])
    assert scraped == columns
    # The keys that CloudNativePG knows: it ignores others silently.
    assert all(set(query) <= {"query", "predicate_query", "target_databases", "metrics"} for query in queries.values())
    for query in queries.values():
        assert db.value(query["predicate_query"]) is True
        with db.connect(autocommit=False) as reader:  # as it runs them
            reader.execute("SET TRANSACTION READ ONLY; SET LOCAL search_path = pg_catalog, public, pg_temp")
            assert reader.execute(query["query"]).fetchall()


def test_every_failure_has_its_reason(db, receiver):
    """Including a failure that spends no attempt because the whole sink is down."""
    answers = {"http_5xx": status(500), "http_4xx": status(400), "http_3xx": status(302), "auth": status(401), "rate_limited": status(429),
               "too_large": status(413)}
    receiver.mode = lambda d: answers.get(d.json()["data"], OK)
    db.webhook_sink("answers", receiver, SECRET, retry="1h", aggregates="Answer")
    refused = free_port()
    for reason, url in {"connection": f"http://127.0.0.1:{refused}/", "dns": "http://no-such-host.invalid/", "tls": receiver.url.replace("http:", "https:")}.items():
        db.webhook_sink(reason, url, retry="1h", aggregates=reason)
        db.enqueue(reason, "1")
    db.sql(f"CREATE SERVER broker FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:{refused}', aggregates 'broker')")
    db.sql(f"CREATE SERVER blocked FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url '{receiver.url}', allow_http 'true', aggregates 'blocked')")
    db.enqueue("blocked", "1")
    for reason in answers:
        db.enqueue("Answer", reason, payload=f'"{reason}"')
    expected = {("answers", reason) for reason in answers} | {(reason, reason) for reason in ("connection", "dns", "tls", "blocked")} | {("broker", "connection")}
    wait_until(lambda: set(db.sql("SELECT sink, reason FROM outbox.failure_metrics")) >= expected, 20,
               lambda: expected ^ set(db.sql("SELECT sink, reason FROM outbox.failure_metrics")))
    assert set(db.sql("SELECT sink, reason FROM outbox.failure_metrics")) == expected

    def told() -> dict[str, int]:
        return dict(db.sql("SELECT reason, publish_failures_total FROM outbox.failure_metrics WHERE sink = 'answers'"))

    def answered() -> Counter:  # each once, or more often if the circuit opened before one of them succeeded
        return Counter(d.json()["data"] for d in list(receiver.deliveries) if d.answered)

    wait_until(lambda: told() == answered(), 20, lambda: f"{answered()}, not {told()}")
    assert metric(db, "outbox_sink_circuit_open", "blocked") == 1
    assert db.sink("retried", "blocked") == (0,)


def test_what_waits_for_nobody(db, receiver):
    db.webhook_sink("crm", receiver, SECRET, aggregates="Order")
    db.enqueue("Customer", "1")
    db.sql("SELECT outbox.pause('crm')")
    db.enqueue("Order", "1")
    db.enqueue("Order", "2")
    wait_until(lambda: metric(db, "outbox_sink_paused", "crm") == 1, 10, "the pause")
    db.sql("UPDATE outbox.events SET origin = origin + 1 WHERE aggregate_type = 'Order'")
    assert (metric(db, "outbox_unrouted_events"), metric(db, "outbox_not_adopted_events")) == (1, 2)
    assert metric(db, "outbox_pending_events", "crm") == 2
    db.sql("SELECT outbox.adopt()")
    assert metric(db, "outbox_not_adopted_events") == 0


def test_a_worker_that_is_missing_shows(db, setting):
    wait_until(lambda: metric(db, "outbox_worker_up") == 1, 10, "the worker to come")
    setting("outbox.enabled", "off")
    wait_until(lambda: metric(db, "outbox_worker_up") == 0, 10, "the worker to go")
    assert metric(db, "outbox_worker_processes") == 0


@pytest.mark.slow  # a round may take half a minute
def test_a_worker_that_stands_still_shows(db):
    """Its process is there, and does nothing: the metric says what the doctor says."""
    wait_until(lambda: metric(db, "outbox_worker_up") == 1, 10, "the worker to come")
    worker = stop_asleep(db, "backend_type = 'outbox worker' AND datname = current_database()")
    try:
        wait_until(lambda: metric(db, "outbox_worker_up") == 0, 45, "the metric to fall")
        assert metric(db, "outbox_worker_processes") == 1 and db.doctor("worker")[0] == "error"
    finally:
        os.kill(worker, signal.SIGCONT)
    wait_until(lambda: metric(db, "outbox_worker_up") == 1, 10, "the worker to go on")

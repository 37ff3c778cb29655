"""docker/: the exporter's queries, the alerts and the dashboard, with a real Prometheus and real events."""

import json
import re
import subprocess
import threading

import pytest
import yaml
from outbox_rig import wait_until
from outbox_rig.database import module_db
from outbox_rig.paths import ROOT
from outbox_rig.process import free_port
from outbox_rig.prometheus import PROMETHEUS, QUERIES
from outbox_rig.receiver import OK, SECRET, status

from test_metrics import samples

pytestmark = pytest.mark.slow

RULES = PROMETHEUS / "outbox.rules.yml"
DASHBOARD = json.loads((ROOT / "docker/grafana/dashboards/outbox.json").read_text())
ALERTS = {rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
TARGETS = [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]


db = module_db


@pytest.fixture(scope="module")
def receiver(rig):
    with rig.receiver(secret=SECRET) as receiver:
        yield receiver


@pytest.fixture(scope="module")
def traffic(db, receiver):
    """A sink in each state, all with events, and more events meanwhile."""
    answers = {"dead": status(400), "gone": status(410), "flaky": status(503)}
    receiver.mode = lambda d: answers.get(d.json()["type"], OK)
    for name, options in {"ok": {}, "dead": {"max_attempts": "1"}, "gone": {}, "flaky": {"max_attempts": "50"}, "paused": {}}.items():
        db.webhook_sink(name, receiver, SECRET, events=name, **{"retry": "1h"} | options)
    db.webhook_sink("down", f"http://127.0.0.1:{free_port()}/", SECRET, events="down")
    db.sql("SELECT outbox.pause('paused')")
    for event in ("dead", "gone", "down", "paused", "unrouted", "foreign"):
        db.enqueue("Order", event, event_type=event)
    db.sql("UPDATE outbox.events SET origin = origin + 1 WHERE event_type = 'foreign'")
    db.webhook_sink("dropped", receiver, SECRET, events="dropped")
    db.sql("SELECT outbox.pause('dropped')")
    db.enqueue("Order", "dropped", event_type="dropped")
    db.sql("DROP SERVER dropped CASCADE")
    done = threading.Event()

    def enqueue() -> None:
        with db.connect() as connection:
            while not done.wait(0.1):
                connection.execute("SELECT outbox.enqueue('Order', 'k' || n, t, '1') FROM generate_series(1, 3) n, unnest('{ok,ok,dead,flaky}'::text[]) t")

    thread = threading.Thread(target=enqueue)
    thread.start()
    yield
    done.set()
    thread.join()


@pytest.fixture(scope="module")
def exporter(rig, pg, db, traffic):
    """Runs as a role that may see metrics but no events."""
    db.sql("CREATE ROLE exporter LOGIN IN ROLE pg_monitor")
    with rig.exporter(pg=pg, database=db.name, user="exporter") as exporter:
        yield exporter
    db.sql("DROP ROLE exporter")


@pytest.fixture(scope="module")
def prometheus(rig, exporter):
    prometheus = rig.prometheus(target=exporter.port)
    wait_until(lambda: prometheus.value("count_over_time(outbox_worker_up[1m])"), 30, "the first samples")
    yield prometheus
    prometheus.stop()


def test_the_exporter_tells_what_the_function_tells(db, exporter):
    """Names and labels, with the histogram's buckets; the exporter adds labels about the server."""
    def series(text: str) -> set[tuple]:
        found = samples(re.sub(r'(?<=[{,])server="[^"]*",?', "", text))
        return {key for key in found if key[0].startswith("outbox_")}

    wait_until(lambda: db.value("SELECT count(*) FROM outbox.failure_metrics") >= 4, 20, "all failures")
    scraped = exporter.scrape()
    assert "pg_exporter_last_scrape_error 0" in scraped
    told = series(db.value("SELECT outbox.metrics()"))
    assert len(told) > 200 and series(scraped) == told
    assert "# TYPE outbox_publish_latency_seconds histogram" in scraped and "# TYPE outbox_retries_total counter" in scraped


def test_every_query_of_the_dashboard_has_data(db, prometheus):
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert DASHBOARD["uid"] == "outbox-overview"  # docs/monitoring.md names it
    assert variables["datasource"]["type"] == "datasource" and variables["datasource"]["query"] == "prometheus"
    filled = {}
    for name in ("datname", "sink"):
        match, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variables[name]["query"]["query"]).groups()
        filled[name] = prometheus.label_values(label, match.replace("$datname", ".*"))
    assert filled == {"datname": [db.name], "sink": ["dead", "down", "flaky", "gone", "ok", "paused"]}
    assert len(TARGETS) > 25
    for title, expression in TARGETS:
        for name, value in {"$datname": db.name, "$sink": ".*", "$__rate_interval": "10s"}.items():
            expression = expression.replace(name, value)
        assert "$" not in expression, title
        # Some series appear only after an action: the series must exist, even if the state does not.
        bare = re.sub(r" > 0$", "", expression)
        wait_until(lambda: prometheus.query(bare), 20, f"data for {title}: {bare}")
    for state, sinks in {"circuit_open": {"down"}, "paused": {"paused"}, "disabled": {"gone"}}.items():
        wait_until(lambda: {s["metric"]["sink"] for s in prometheus.query(f"outbox_sink_{state} == 1")} >= sinks, 20, state)
    assert prometheus.value('histogram_quantile(0.5, sum by (le) (rate(outbox_publish_latency_seconds_bucket{sink="ok"}[10s])))') < 300


def test_every_metric_is_on_the_dashboard():
    metrics = {f"{query}_{name}" for query, about in yaml.safe_load(QUERIES.read_text()).items() for each in about["metrics"]
               for name, what in each.items() if what["usage"] != "LABEL"}
    shown = " ".join(expression for _, expression in TARGETS)
    assert {metric for metric in metrics if metric not in shown} == {"outbox_pending_events_estimated"}


def test_alerts_follow_their_causes(db, prometheus):
    """Alerts with a `for` soon become pending; the rules' own tests cover the rest."""
    expected = {"OutboxDeadLetters", "OutboxCircuitOpen", "OutboxSinkDisabled", "OutboxSinkPausedLong", "OutboxNotAdopted", "OutboxUnrouted",
                "OutboxPublishFailing", "OutboxSinkDropped"}
    found: dict[str, dict] = {}

    def all_there() -> bool:
        found.clear()  # a failed scrape interrupts the series
        found.update(prometheus.alerts())
        return set(found) >= expected

    wait_until(all_there, 30, lambda: str(expected - set(found)))
    assert found["OutboxDeadLetters"]["state"] == "firing"
    assert found["OutboxSinkDisabled"]["labels"].items() >= {"datname": db.name, "severity": "warning"}.items()
    assert found["OutboxSinkDisabled"]["annotations"]["description"].startswith("Sinks, ten at most: gone.")
    assert not set(found) & {"OutboxWorkerDown", "OutboxSinkMisconfigured"}
    for name, alert in found.items():
        assert "<error" not in str(alert["annotations"]), alert
        assert set(re.findall(r"\$labels\.(\w+)", str(ALERTS[name]["annotations"]))) <= set(alert["labels"]), name
    for rule in ALERTS.values():  # each one parses, whether or not it finds rows
        prometheus.query(rule["expr"])
    # The SQL in the descriptions is valid.
    for name, alert in found.items():
        statements = re.findall(r"(?:SELECT|DELETE)\b[^;]*;", alert["annotations"]["description"])
        assert statements, name
        for statement in statements:
            db.sql(f"EXPLAIN {statement}")


BASE = "{{ with $externalLabels.outbox_docs }}{{ . }}{{ else }}docs{{ end }}/"


def runbook(name: str, docs: str = "docs") -> str:
    base, page = ALERTS[name]["annotations"]["runbook"][:len(BASE)], ALERTS[name]["annotations"]["runbook"][len(BASE):]
    assert base == BASE, name
    return f"{docs}/{page}"


def test_alerts_have_their_row_in_the_page_and_their_runbook():
    page = (ROOT / "docs" / "monitoring.md").read_text()
    assert re.findall(r"^\| `(Outbox\w+)` \|", page, re.M) == list(ALERTS)
    for name, rule in ALERTS.items():
        assert {"summary", "description", "runbook"} == set(rule["annotations"]) and rule["labels"]["severity"] in ("warning", "critical")
        asked = re.findall(r"query \(printf `([^`]*)` \$labels.datname\)", rule["annotations"]["description"])
        assert all(query.count("%") == 1 for query in asked) and bool(asked) == ("without (sink)" in rule["expr"]), name
        path, anchor = runbook(name).split("#")
        headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(), re.M)
        assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}, name


IN = 'datname="app",sink="crm"'
AT = 'job="outbox",instance="exporter:9187"'
HEALTHY = {f"outbox_{name}{{{IN}}}": "0x120" for name in (
    "due_events", "failing_events", "blocked_events", "oldest_pending_age_seconds", "oldest_due_age_seconds", "dead_letters_total", "sink_circuit_open", "sink_degraded", "sink_paused",
    "sink_disabled", "sink_misconfigured", "unrecorded_events")} | {
    f"outbox_published_events_total{{{IN}}}": "0+60x120", f'outbox_publish_failures_total{{{IN},reason="http_5xx"}}': "0+6x120",
    'outbox_worker_up{datname="app"}': "1x120", 'outbox_not_adopted_events{datname="app"}': "0x120", 'outbox_unrouted_events{datname="app"}': "0x120",
    'outbox_dropped_sink_events{datname="app"}': "0x120",
    f"up{{{AT}}}": "1x120", f"pg_up{{{AT}}}": "1x120", f"pg_exporter_last_scrape_error{{{AT}}}": "0x120"}
LATE, DOWN = {"OutboxOldestEventLate"}, {"OutboxMostSinksDown"}
# Deviations from the healthy state, minute by minute, and which alerts fire when: not earlier, and not for less.
STORIES: list[tuple[dict[str, str | None], dict[int, set[str]]]] = [
    ({}, {60: set(), 120: set()}),
    ({"worker_up": "1x5 0x60"}, {7: set(), 8: {"OutboxWorkerDown"}}),
    ({"worker_up": None}, {4: set(), 5: {"OutboxMetricsAbsent"}}),
    ({"up": "0x60"}, {4: set(), 5: {"OutboxScrapeFailing"}}),
    ({"pg_up": "0x60"}, {4: set(), 5: {"OutboxScrapeFailing"}}),
    ({"pg_exporter_last_scrape_error": "1x60"}, {4: set(), 5: {"OutboxScrapeFailing"}}),
    ({"oldest_due_age_seconds": "60x60"}, {60: set()}),
    ({"oldest_due_age_seconds": "61x60"}, {4: set(), 5: LATE, 60: LATE}),
    ({"oldest_due_age_seconds": "300x60"}, {60: LATE}),
    ({"oldest_due_age_seconds": "301x60"}, {4: set(), 5: LATE | {"OutboxOldestEventVeryLate"}}),
    ({"oldest_due_age_seconds": "999x60", "sink_paused": "1x60", "due_events": "500+10x60", "published_events_total": "1x60",
      "publish_failures_total": "1x60"},
     {59: set(), 60: {"OutboxSinkPausedLong"}}),
    ({"due_events": "0+100x60"}, {16: set(), 17: {"OutboxBacklogGrowing"}}),
    ({"due_events": "0+1x90"}, {90: set()}),
    ({"due_events": "5000x60"}, {60: set()}),
    ({"due_events": "5x60", "published_events_total": "100x60", "publish_failures_total": "1x60"}, {5: set(), 6: {"OutboxNothingPublished"}}),
    # One event fails, is retried occasionally and blocks its key; nothing else is pending.
    ({"failing_events": "1x120", "blocked_events": "7x120", "oldest_pending_age_seconds": "0+60x120", "published_events_total": "100x120",
      "publish_failures_total": "1x30 2x30 3x60"}, {60: set(), 65: set(), 66: {"OutboxFailingLong"}, 120: {"OutboxFailingLong"}}),
    ({"oldest_pending_age_seconds": "9999x60"}, {60: set()}),
    ({"dead_letters_total": "3x10 4x60"}, {10: set(), 11: {"OutboxDeadLetters"}, 30: set()}),
    ({"publish_failures_total": "0+20x60"}, {15: set(), 16: {"OutboxPublishFailing"}}),
    ({"sink_circuit_open": "1x60"}, {4: set(), 5: {"OutboxCircuitOpen"} | DOWN}),
    ({"sink_degraded": "1x60"}, {14: set(), 15: {"OutboxSinkDegraded"}}),
    ({"sink_disabled": "1x60"}, {0: set(), 1: {"OutboxSinkDisabled"}, 5: {"OutboxSinkDisabled"} | DOWN}),
    ({"sink_misconfigured": "1x60"}, {1: set(), 2: {"OutboxSinkMisconfigured"}, 5: {"OutboxSinkMisconfigured"} | DOWN}),
    ({"unrecorded_events": "7x60"}, {1: set(), 2: {"OutboxRecordingFails"}}),
    ({"dropped_sink_events": "7x60"}, {4: set(), 5: {"OutboxSinkDropped"}}),
    ({"not_adopted_events": "7x60"}, {4: set(), 5: {"OutboxNotAdopted"}}),
    ({"unrouted_events": "7x60"}, {14: set(), 15: {"OutboxUnrouted"}}),
]


def promtool(*argv: str) -> None:
    done = subprocess.run(["promtool", *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


def check_rules(tmp_path, tests: list[dict]) -> None:
    file = tmp_path / "rules.test.yml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", str(file))


def firing(minutes: dict[int, set[str]]) -> list[dict]:
    return [{"expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": f"{minute}m",
             "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(alerts)]} for minute, alerts in minutes.items()]


# A typical state of customers' endpoints: some are always down, some fail, most work.
CUSTOMERS = {"well": {}, "down": {"sink_circuit_open": "1x120", "due_events": "0+9x120", "oldest_due_age_seconds": "0+60x120"},
             "gone": {"sink_disabled": "1x120", "due_events": "50x120", "oldest_due_age_seconds": "0+60x120"},
             "failing": {"failing_events": "3x120", "blocked_events": "0+9x120", "oldest_pending_age_seconds": "0+60x120", "publish_failures_total": "0+1x120"},
             "still": {"due_events": "9x120", "oldest_due_age_seconds": "0+60x120", "publish_failures_total": "1x120"}}


def test_one_endpoint_of_many_is_no_emergency(tmp_path):
    """The alerts give the number of sinks and their names; critical are a stop without a known cause, and more than
    half of the sinks."""
    def life(**kinds: int) -> list[dict]:
        series = {name: values for name, values in HEALTHY.items() if "crm" not in name}
        for kind, n in kinds.items():
            for sink in (f"{kind}{i}" for i in range(n)):
                for name, values in HEALTHY.items():
                    if "crm" in name:
                        short = name.split("{")[0].removeprefix("outbox_")
                        series[name.replace("crm", sink)] = CUSTOMERS[kind].get(short, values if kind == "well" or not short.startswith("publish") else "7x120")
        return [{"series": name, "values": values} for name, values in series.items()]

    def alert(name: str, labels: dict[str, str], summary: str, sinks: str, docs: str = "docs") -> dict:
        found = {"exp_labels": {"datname": "app"} | labels, "exp_annotations": {
            "summary": summary, "runbook": runbook(name, docs),
            "description": re.sub(r"\{\{ range.*?end \}\}", sinks, ALERTS[name]["annotations"]["description"])}}
        return {"alertname": name, "eval_time": "30m", "exp_alerts": [found]}

    warnings = {"OutboxCircuitOpen", "OutboxSinkDisabled", "OutboxPublishFailing"}
    check_rules(tmp_path, [
        {"interval": "1m", "input_series": life(well=6, down=3, gone=1, failing=1),
         "promql_expr_test": firing({30: warnings, 100: warnings | {"OutboxFailingLong"}}),
         "alert_rule_test": [
             alert("OutboxCircuitOpen", {"severity": "warning"}, "Database app: sinks that are down: 3", " down0 down1 down2"),
             alert("OutboxSinkDisabled", {"severity": "warning"}, "Database app: sinks that have been disabled: 1", " gone0")]},
        {"interval": "1m", "input_series": life(well=3, down=3), "promql_expr_test": firing({30: {"OutboxCircuitOpen", "OutboxMostSinksDown", "OutboxOldestEventVeryLate"}}),
         "alert_rule_test": [
             alert("OutboxMostSinksDown", {"severity": "critical"}, "Database app: sinks that are down (half of all or more): 3", " down0 down1 down2"),
             alert("OutboxOldestEventVeryLate", {"severity": "critical"}, "Database app: sinks with events late by more than 5 minutes (half of all or more): 3", " down0 down1 down2")]},
        {"interval": "1m", "input_series": life(well=9, still=1), "promql_expr_test": firing({30: {"OutboxNothingPublished", "OutboxOldestEventLate"}}),
         "external_labels": {"outbox_docs": "https://git.example/docs"},  # where the runbooks are
         "alert_rule_test": [alert("OutboxNothingPublished", {"severity": "critical"}, "Database app: sinks that stand still: 1", " still0", "https://git.example/docs")]}])


def test_each_alert_fires_for_its_cause_and_no_other(tmp_path):
    promtool("check", "rules", str(RULES))
    promtool("check", "config", str(PROMETHEUS / "prometheus.yml"))
    tests = []
    for changes, expected in STORIES:
        named = {next(series for series in HEALTHY if series.split("{")[0] in (name, f"outbox_{name}")): values for name, values in changes.items()}
        assert len(named) == len(changes)
        tests.append({
            "interval": "1m",
            "input_series": [{"series": series, "values": values} for series, values in (HEALTHY | named).items() if values],
            "promql_expr_test": firing(expected)})
    check_rules(tmp_path, tests)
    assert set().union(*(alerts for _, expected in STORIES for alerts in expected.values())) == set(ALERTS)


def test_sinks_in_trouble_are_all_that_are(tmp_path):
    """Of the panel: each state in which a sink does not deliver as it should, except a pause, which somebody wanted."""
    [expression] = [expression for title, expression in TARGETS if title == "Sinks in trouble"]
    expression = expression.replace("$datname", ".*").replace("$sink", ".*")
    troubles = [{}, {"sink_paused": "1x120"}] + [{name: "1x120"} for name in (
        "sink_circuit_open", "sink_disabled", "sink_misconfigured", "sink_degraded", "unrecorded_events", "dropped_sink_events")] + [
        {"sink_circuit_open": "1x120", "unrecorded_events": "7x120"}]
    tests = []
    for changes in troubles:
        series = {name: changes.get(name.split("{")[0].removeprefix("outbox_"), values) for name, values in HEALTHY.items()}
        tests.append({"interval": "1m", "input_series": [{"series": name, "values": values} for name, values in series.items()],
                      "promql_expr_test": [{"expr": expression, "eval_time": "30m", "exp_samples": [{"labels": "{}", "value": int(bool(changes) and "sink_paused" not in changes)}]}]})
    lost = [{"series": 'outbox_dropped_sink_events{datname="app"}', "values": "3x120"}]  # of the last sink
    tests.append({"interval": "1m", "input_series": lost, "promql_expr_test": [{"expr": expression, "eval_time": "30m", "exp_samples": [{"labels": "{}", "value": 1}]}]})
    check_rules(tmp_path, tests)

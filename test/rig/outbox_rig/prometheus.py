"""Debian's Prometheus and its exporter for PostgreSQL, on ports of their own."""

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from .paths import ROOT
from .postgres import Postgres
from .service import Service
from .wait import patient, wait_until

PROMETHEUS = ROOT / "docker" / "prometheus"
QUERIES = ROOT / "docker" / "queries.yaml"


def get(url: str) -> str:
    """The body of the response, also for errors: Prometheus explains there what is wrong with a query."""
    try:
        with urllib.request.urlopen(url, timeout=patient(20)) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


class Exporter(Service):
    """Runs docker/queries.yaml in one database as `user`."""

    def __init__(self, name: str, directory: Path, log: Path, pg: Postgres, database: str, user: str):
        program = "/usr/bin/prometheus-postgres-exporter"
        told = subprocess.run([program, "--help"], capture_output=True, text=True)  # each version of the exporter has other collectors
        collectors = re.findall(r"--collector\.(\w+)\s", told.stdout + told.stderr)
        argv = [program, "--web.listen-address=127.0.0.1:{port}", f"--extend.query-path={QUERIES}",
                "--disable-default-metrics", "--disable-settings-metrics", *(f"--no-collector.{name}" for name in collectors)]
        source = f"host={pg.host} port={pg.port} user={user} dbname={database} sslmode=disable"
        super().__init__(name, directory, log, argv, env={"DATA_SOURCE_NAME": source})

    def scrape(self) -> str:
        return get(f"http://127.0.0.1:{self.port}/metrics")


class Prometheus(Service):
    """Uses docker/prometheus as its configuration, except for the target and a shorter interval."""

    def __init__(self, name: str, directory: Path, log: Path, target: int):
        directory.mkdir(parents=True)
        configuration = (PROMETHEUS / "prometheus.yml").read_text()
        for ours, here in ("exporter:9187", f"127.0.0.1:{target}"), ("_interval: 15s", "_interval: 1s"):
            assert ours in configuration
            configuration = configuration.replace(ours, here)
        (directory / "prometheus.yml").write_text(configuration)
        shutil.copy(PROMETHEUS / "outbox.rules.yml", directory)
        super().__init__(name, directory, log, [
            "/usr/bin/prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data",
            "--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=1h", "--log.level=warn"])

    def start(self, *more: str) -> None:
        super().start(*more)
        wait_until(lambda: "is Ready" in get(f"http://127.0.0.1:{self.port}/-/ready"), 30, "Prometheus to be ready")

    def _api(self, path: str, **parameters: str) -> Any:
        answer = json.loads(get(f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))
        if answer["status"] != "success":
            raise ValueError(f"{path} {parameters}: {answer['error']}")
        return answer["data"]

    def query(self, expression: str) -> list[dict]:
        """The series of an instant vector: {"metric": labels, "value": [time, text]}."""
        return self._api("query", query=expression)["result"]

    def over_time(self, expression: str, start: float, end: float, step: float) -> list[dict]:
        """The series between two moments: {"metric": labels, "values": [[time, text], ...]}."""
        return self._api("query_range", query=expression, start=f"{start:.3f}", end=f"{end:.3f}", step=f"{step:g}")["result"]

    def value(self, expression: str) -> float | None:
        """The value of the only series; None if there is none."""
        series = self.query(expression)
        assert len(series) <= 1, series
        return float(series[0]["value"][1]) if series else None

    def label_values(self, label: str, match: str) -> list[str]:
        return self._api(f"label/{label}/values", **{"match[]": match})

    def alerts(self) -> dict[str, dict]:
        """The pending and firing alerts by name."""
        return {alert["labels"]["alertname"]: alert for alert in self._api("alerts")["alerts"]}

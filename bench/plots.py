"""Draws build/bench/*.svg from build/bench/results.json alone: python bench/plots.py."""

import json
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402: the backend is chosen first

# The same figures give the same file; text stays text.
matplotlib.rcParams.update({"svg.hashsalt": "outbox", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
                            "axes.grid": True, "grid.alpha": 0.3, "legend.frameon": False, "path.simplify": True})
NAMES = {"outbox": "outbox", "librdkafka_alone": "librdkafka alone", "debezium": "Debezium", "debezium_defaults": "Debezium's defaults",
         "dispatcher": "polling dispatcher (Python)"}
COLOURS = {"outbox": "#0072b2", "librdkafka_alone": "#666666", "debezium": "#d55e00", "debezium_defaults": "#e69f00",
           "dispatcher": "#cc79a7"}


def of(measures: dict, name: str) -> dict:
    return measures.get(name, {}).get("data", {})


def best(rounds: list[dict]) -> dict:
    return max(rounds, key=lambda one: one["rate"])


def drain(axes, measures: dict) -> bool:
    """Drain rate over time, in the best round of each."""
    data, beside = of(measures, "drain"), of(measures, "peers-drain")
    if not data.get("outbox"):
        return False
    curves = {"outbox": best((beside or data)["outbox"])}
    if beside:
        curves["debezium"] = best(beside["debezium"])
    for name, round in curves.items():
        axes.plot([at for at, _, _ in round["curve"]], [rate / 1000 for _, _, rate in round["curve"]], color=COLOURS[name], drawstyle="steps-pre",
                  label=NAMES[name])
    levels = {"librdkafka_alone": best(data["librdkafka_alone"])["rate"]}
    if dispatcher := of(measures, "peers-dispatcher").get("dispatcher"):
        levels["dispatcher"] = dispatcher["rate"]
    for name, rate in levels.items():
        axes.axhline(rate / 1000, color=COLOURS[name], linestyle="--", label=f"{NAMES[name]}: {rate / 1000:,.0f}")
    events = measures["peers-drain" if beside else "drain"]["sizes"]["events"]
    axes.set(title=f"Draining {events:,} events of 300 B to Kafka", xlabel="seconds since delivery was switched on", ylabel="thousand events per second",
             ylim=(0, None), xlim=(0, None))
    axes.legend(loc="best")
    return True


def latency(axes, measures: dict) -> bool:
    """Distribution of the time from commit to consumer at the higher rate, for all programs that were measured at
    it."""
    found = {}
    for name in ("latency", "peers-latency"):  # the samples that were measured alternating with the others, if there are any
        for who, figures in of(measures, name).get("1000/s", {}).items():
            found[who] = figures.get("percentiles")
    found = {who: percentiles for who, percentiles in found.items() if percentiles}
    if not found:
        return False
    for who, percentiles in found.items():
        axes.plot([ms for _, ms in percentiles], [percent for percent, _ in percentiles], color=COLOURS.get(who), label=NAMES.get(who, who))
    axes.set(title="From COMMIT to the consumer at 1,000 events/s", xlabel="milliseconds", ylabel="per cent of the events within", xscale="log", ylim=(0, 100))
    axes.legend(loc="lower right")
    return True


def claims(axes, measures: dict) -> bool:
    """What an event costs the worker's main thread, against the dead rows that a snapshot keeps."""
    curve = of(measures, "claims").get("curve")
    if not curve:
        return False
    for name, colour, style in (("with", COLOURS["outbox"], "o-"), ("without", COLOURS["librdkafka_alone"], "o--")):
        axes.plot([point["dead"] / 1e6 for point in curve], [point[name]["bulk"] for point in curve], style, color=colour,
                  label={"with": "under a held snapshot", "without": "beside it, none held"}[name])
    axes.set(title="Claims do not wade through dead rows", xlabel="million dead rows", ylabel="µs of CPU per event", ylim=(0, None))
    axes.legend(loc="lower right")
    return True


def backlog(axes, measures: dict) -> bool:
    """Drain rate against the remaining backlog."""
    curve = of(measures, "backlog").get("curve")
    if not curve:
        return False
    axes.plot([left / 1e6 for left, _ in curve], [rate / 1000 for _, rate in curve], ".", color=COLOURS["outbox"])
    axes.set(title="Drain rate against the backlog", xlabel="million events that still wait", ylabel="thousand events per second", ylim=(0, None))
    axes.invert_xaxis()
    return True


PLOTS: dict[str, Callable] = {"drain": drain, "latency": latency, "claims": claims, "backlog": backlog}


def draw(results: Path) -> list[Path]:
    """Draws the plots for which there are figures."""
    measures, drawn = json.loads(results.read_text())["measures"], []
    for name, plot in PLOTS.items():
        figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
        if plot(axes, measures):
            drawn.append(results.parent / f"{name}.svg")
            figure.savefig(drawn[-1], metadata={"Date": None, "Creator": None})
        plt.close(figure)
    return drawn


if __name__ == "__main__":
    for path in draw(Path(__file__).resolve().parents[1] / "build" / "bench" / "results.json"):
        print(path)

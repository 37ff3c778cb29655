"""Draws the plots of docs/performance.md from its table alone, for light and for dark pages: make plots.

Titles are computed, so that they say what the table says. Each plot ends with a checksum of the table."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402: the backend is chosen first

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
# Colours that people with any colour vision tell apart (Okabe and Ito), on a light and on a dark page; ink and faint lines.
THEMES = {"": {"outbox": "#0072b2", "other": "#9aa0a6", "rival": "#d55e00", "ink": "#24292f", "faint": "#d0d7de"},
          "-dark": {"outbox": "#56b4e9", "other": "#8b949e", "rival": "#e69f00", "ink": "#e6edf3", "faint": "#30363d"}}
# Rows of the table, whatever their size.
WHOLE, BESIDE_DEBEZIUM = (rf"^drain of [\d,]+ events \(300 B\) to Kafka{end}" for end in ("$", ", best of"))


class Row(NamedTuple):
    what: str
    figure: float
    printed: str
    beside: float | None
    beside_printed: str
    ratio: float | None  # of the medians, or the median of ratios


class Bar(NamedTuple):
    group: str
    label: str
    value: float
    text: str
    colour: str


def table() -> str:
    return re.search(r"^\| measure .*?(?=\n\n)", PAGE.read_text(), re.MULTILINE | re.DOTALL)[0]


def rows() -> list[Row]:
    def number(cell: str) -> tuple[float | None, str]:
        printed = cell.split(" ")[0]
        return (float(printed.replace(",", "")) if printed else None), printed

    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:5]] for line in table().splitlines()[2:]]
    return [Row(what, *number(outbox), *number(beside), number(ratio)[0]) for what, outbox, beside, ratio in cells if "FAILED" not in outbox]


def find(pattern: str, after: str = "") -> Row:
    """The first row of that name, or the first one that follows a row."""
    found = rows()
    while found and not re.search(after, found[0].what):
        found.pop(0)
    for row in found:
        if re.search(pattern, row.what):
            return row
    raise SystemExit(f"{PAGE.name} has no figure for {after} {pattern}: measure it with bench/run --add --publish, then make plots")


def size(row: Row) -> str:
    return re.search(r"[\d,]+ ", row.what)[0] + "events"


def pair(group: str, row: Row, beside: str, colour: str = "other", scale: float = 1) -> list[Bar]:
    return [Bar(group, "outbox", row.figure / scale, row.printed, "outbox"), Bar(group, beside, row.beside / scale, row.beside_printed, colour)]


def bars(axes, shown: list[Bar], theme: dict, label: str, room: float = 1.13) -> None:
    """Horizontal bars from the top; each has its name before it and its figure behind it."""
    at, places, names, last = 0.0 if shown[0].group else 0.5, [], [], ""
    for bar in shown:
        if bar.group != last:
            at += 1.5
            axes.annotate(bar.group, (0, at - 0.95), xytext=(4, 0), textcoords="offset points", fontweight="bold", va="center")
        axes.barh(at, bar.value, height=0.74, color=theme[bar.colour])
        axes.annotate(bar.text, (bar.value, at), xytext=(4, 0), textcoords="offset points", va="center")
        places.append(at)
        names.append(bar.label)
        at, last = at + 1, bar.group
    axes.set(xlabel=label, ylim=(at - 0.4, -0.1), xlim=(0, max(bar.value for bar in shown) * room))
    axes.set_yticks(places, names)
    bare(axes)


def bare(axes) -> None:
    """Names instead of a scale from top to bottom."""
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)


def drain(figure, theme: dict) -> str:
    whole, debezium = find(WHOLE), find(BESIDE_DEBEZIUM)
    bars(figure.subplots(), [*pair(f"{size(whole)} of 300 B", whole, "librdkafka alone,\nreads no database", scale=1000),
                             *pair(f"{size(debezium)} of 300 B", debezium, "Debezium", "rival", 1000)], theme, "thousand events per second")
    return f"Draining to Kafka: {debezium.ratio} times Debezium, {whole.ratio} of librdkafka alone"


def latency(figure, theme: dict) -> str:
    """From the median (a dot) to the 99th percentile (a bar)."""
    axes, at, names = figure.subplots(), 0, []
    for rate in ("1,000", "10"):
        half, most = (find(rf"commit → consumer at {rate}/s, {percentile}") for percentile in ("p50", "p99"))
        for name, low, high, texts, colour in (("outbox", half.figure, most.figure, (half.printed, most.printed), theme["outbox"]),
                                               ("librdkafka alone", half.beside, most.beside, (half.beside_printed, most.beside_printed), theme["other"])):
            axes.plot([low, high], [at, at], color=colour, linewidth=3, solid_capstyle="butt")
            axes.plot([low], [at], "o", color=colour, markersize=9)
            axes.plot([high], [at], "|", color=colour, markersize=14, markeredgewidth=3)
            axes.text(low, at + 0.47, texts[0], va="center")
            axes.annotate(texts[1], (high, at), xytext=(6, 0), textcoords="offset points", va="center")
            names.append(f"{name}, {rate} events/s")
            at += 1
    axes.set(xlabel="milliseconds: the dot is the median, the bar the 99th percentile", ylim=(at - 0.3, -0.6), xlim=(0, axes.get_xlim()[1] * 1.05))
    axes.set_yticks(range(at), names)
    bare(axes)
    first = find("commit → consumer at 1,000/s, p50")
    return f"From COMMIT to the consumer: median of {first.printed} ms at 1,000 events/s"


def enqueue(figure, theme: dict) -> str:
    shown, ratios = [], []
    for sync, commit in (("on", "synchronous commit"), ("off", "asynchronous commit")):
        idle, busy = (find(f"^enqueue, 8 clients, synchronous_commit {sync}, {state}") for state in ("paused", "delivering"))
        shown += [Bar(commit, "outbox, delivery paused", idle.figure / 1000, idle.printed, "outbox"),
                  Bar(commit, "outbox, delivering", busy.figure / 1000, busy.printed, "outbox"),
                  Bar(commit, "INSERT, plain table", idle.beside / 1000, idle.beside_printed, "other")]
        ratios += [idle.ratio, busy.ratio]
    bars(figure.subplots(), shown, theme, "thousand transactions per second, 8 clients")
    return f"enqueue() has {min(ratios)} to {max(ratios)} of the rate of a plain INSERT"


def webhooks(figure, theme: dict) -> str:
    few, many, slow = find("^webhooks to nginx.* 32$"), find("^webhooks to nginx.* 256$"), find("^webhooks to 99 endpoints")
    one = "one endpoint, 10,000 keys"
    bars(figure.subplots(), [Bar(one, "concurrency 32", few.figure / 1000, few.printed, "outbox"),
                             Bar(one, "concurrency 256", many.figure / 1000, many.printed, "outbox"),
                             *([Bar(one, "wrk alone, 32", few.beside / 1000, few.beside_printed, "other")] if few.beside else []),
                             Bar("99 endpoints", "beside one that takes 1 s", slow.figure / 1000, slow.printed, "outbox"),
                             Bar("99 endpoints", "none is slow", slow.beside / 1000, slow.beside_printed, "other")], theme, "thousand requests per second")
    return f"{few.printed} webhooks per second; one slow endpoint costs the others {max(0, 1 - slow.ratio):.0%}"


def memory(figure, theme: dict) -> str:
    relay, rate = find("^the relay's own memory"), find(r"^drain rate at a backlog of [\d,]+")
    more = find("^the worker's own memory", after=WHOLE)
    left, right = figure.subplots(1, 2, width_ratios=(4, 3))
    beside, alone = (f"{size(find(drain))}, {how}" for drain, how in ((BESIDE_DEBEZIUM, "in turns with Debezium"), (WHOLE, "in turns with librdkafka")))
    waiting = re.search(r"[\d,]+$", rate.what)[0]
    bars(left, [*pair(beside, relay, "Debezium", "rival"), Bar(alone, "outbox", more.figure, more.printed, "outbox")], theme, "MB at the most", 1.16)
    bars(right, [Bar("", "100,000 wait", rate.beside / 1000, rate.beside_printed, "outbox"),
                 Bar("", f"{waiting} wait", rate.figure / 1000, rate.printed, "outbox")], theme, "thousand events per second", 1.4)
    right.set_ylim(3, -1)
    left.set_title(f"Memory: 1/{relay.beside / relay.figure:.0f} of Debezium's", fontsize=10, fontweight="bold")
    right.set_title(f"Backlog × {int(waiting.replace(',', '')) // 100_000}: rate × {rate.ratio}", fontsize=10, fontweight="bold")
    return ""


PLOTS: dict[str, tuple[Callable, float]] = {"drain": (drain, 2.5), "latency": (latency, 2.3), "enqueue": (enqueue, 3.0), "webhooks": (webhooks, 2.5),
                                            "memory": (memory, 2.3)}


def draw() -> list[Path]:
    """The same figures give the same files. Text stays text, in the reader's own font."""
    drawn = []
    for suffix, theme in THEMES.items():
        ink = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor"), theme["ink"])
        matplotlib.rcParams.update(ink | {"svg.hashsalt": "outbox", "svg.fonttype": "none", "font.family": "sans-serif",
                                          "font.sans-serif": ["DejaVu Sans"], "font.size": 9, "axes.grid": True, "axes.axisbelow": True,
                                          "axes.spines.top": False, "axes.spines.right": False,
                                          "grid.color": theme["faint"], "grid.linewidth": 0.6, "savefig.transparent": True})
        for name, (plot, height) in PLOTS.items():
            figure = plt.figure(figsize=(6.6, height), layout="constrained")
            figure.suptitle(plot(figure, theme), fontsize=10, fontweight="bold")
            drawn.append(PAGE.parent / "plots" / f"{name}{suffix}.svg")
            figure.savefig(drawn[-1], metadata={"Date": None, "Creator": None})
            plt.close(figure)
            with drawn[-1].open("a") as file:
                file.write(f"<!-- {hashlib.sha256(table().encode()).hexdigest()} -->\n")
    return drawn


if __name__ == "__main__":
    for path in draw():
        print(path)

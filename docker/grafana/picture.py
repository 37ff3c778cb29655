"""Draws the dashboard as dashboard.svg and dashboard-dark.svg, with the figures of a real server: make dashboard.

For five minutes writers enqueue for four webhook sinks, of which one is down for a while, one is paused and one refuses some
events. Prometheus scrapes the exporter meanwhile. Then each panel's own queries are asked, and their answers drawn in the
panel's place. `--again` draws build/dashboard.json, the answers of the last run."""

import argparse
import hashlib
import json
import math
import random
import re
import threading
import time
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402: the backend is chosen first
from matplotlib.colors import LinearSegmentedColormap  # noqa: E402
from matplotlib.patches import FancyBboxPatch  # noqa: E402

HERE = Path(__file__).resolve().parent
DASHBOARD = HERE / "dashboards" / "outbox.json"
PANELS = json.loads(DASHBOARD.read_text())["panels"]
ANSWERS = HERE.parents[1] / "build" / "dashboard.json"
SECONDS, STEP = 300, 3
# Colours that people with any colour vision tell apart (Okabe and Ito); the first of "lines" differs, because dark blue is lost on a dark page.
LINES = ("#e69f00", "#009e73", "#cc79a7", "#d55e00", "#8b949e")
THEMES = {"": {"page": "#f4f5f5", "panel": "white", "ink": "#24292f", "faint": "#d8dce0", "lines": ("#0072b2", *LINES)},
          "-dark": {"page": "#0d1117", "panel": "#181b1f", "ink": "#e6edf3", "faint": "#343a42", "lines": ("#56b4e9", *LINES)}}
STATES = {"green": "#009e73", "orange": "#e69f00", "red": "#d55e00"}
COLUMNS, UNIT = 24, 0.21  # of the grid; inches for a unit of height


# ---- a server with traffic --------------------------------------------------------------------------------------


def answer(delivery):
    """crm has an outage, see story(); billing refuses some events, and fails others now and then."""
    from outbox_rig.receiver import OK, slow, status
    sink, dice = delivery.path.rsplit("/", 1)[1], hash(delivery.id) % 1000
    if sink == "billing" and (dice < 4 or dice < 40 and random.random() < 0.5):
        return status(400 if dice < 4 else 500)
    return {"crm": slow(0.02), "billing": slow(0.06)}.get(sink, OK)


def write(db, ended: threading.Event) -> None:
    with db.connect() as connection:
        for number in range(10**9):
            if ended.wait(0.1):
                return
            events = int(6 + 3 * math.sin(number / 120))
            connection.execute("SELECT outbox.enqueue('Order', (random() * 300)::int::text, 'order.paid', '{}', available_at => CASE WHEN random() < 0.02"
                               " THEN now() + '20 s'::interval END) FROM generate_series(1, %s)", [events])


def story(db, receiver) -> None:
    """Each step at its second."""
    def orphans(sink: str) -> str:
        return f"SELECT outbox.enqueue('Order', 'x', 'order.paid', '{{}}', sink => '{sink}') FROM generate_series(1, 4)"

    def down() -> None:
        db.set_sink("crm", url=receiver.url.replace("/hook", "/nobody").replace(str(receiver.port), "9"))

    steps = {
        60: down,
        110: lambda: db.set_sink("crm", url=f"{receiver.url}/crm"),
        150: lambda: db.sql("SELECT outbox.pause('mail')"),
        185: lambda: db.sql("SELECT outbox.resume('mail')"),
        200: lambda: db.sql("SELECT outbox.enqueue('Order', 'x', 'nobody.takes.it', '{}') FROM generate_series(1, 3)"),
        215: lambda: db.sql("WITH moved AS (SELECT id FROM outbox.events WHERE status = 'PENDING' AND available_at > now() + '15 s'::interval LIMIT 2)"
                            " UPDATE outbox.events SET origin = origin + 1 WHERE id IN (SELECT id FROM moved) AND status = 'PENDING'"),
        225: lambda: db.sql("SELECT outbox.pause('old'); " + orphans("old") + "; DROP SERVER old CASCADE"),
        240: lambda: db.sql("SELECT outbox.redrive(id, sink, force => true) FROM outbox.events WHERE status = 'FAILED' LIMIT 3"),
    }
    began = time.monotonic()
    for second, step in steps.items():
        time.sleep(max(0.0, began + second - time.monotonic()))
        step()
    time.sleep(max(0.0, began + SECONDS - time.monotonic()))


def record() -> None:
    """The answers to each panel's queries, as Grafana would ask them."""
    from outbox_rig import Rig, wait_until
    from outbox_rig.database import Database
    with Rig("dashboard") as rig:
        db = Database(rig.postgres(), "shop").create()
        receiver = rig.receiver(mode=answer)
        sinks = {"main": {}, "crm": {"concurrency": "8"}, "billing": {"max_attempts": "4", "retry": "1s"}, "mail": {}, "old": {"events": "none"}}
        for sink, options in sinks.items():
            db.webhook_sink(sink, f"{receiver.url}/{sink}", **{"events": "order.*"} | options)
        db.sql("CREATE ROLE exporter LOGIN IN ROLE pg_monitor")
        exporter = rig.exporter(pg=db.pg, database="shop", user="exporter")
        prometheus = rig.prometheus(target=exporter.port)
        wait_until(lambda: prometheus.value("count_over_time(outbox_worker_up[1m])"), 60, "the first samples")
        ended, began = threading.Event(), time.time()
        writer = threading.Thread(target=write, args=(db, ended))
        writer.start()
        try:
            story(db, receiver)
        finally:
            ended.set()
            writer.join()
        answers = {}
        for expression in {target["expr"] for panel in PANELS for target in panel.get("targets", [])}:
            query = expression.replace("$datname", ".*").replace("$sink", ".*").replace("$__rate_interval", "15s")
            answers[expression] = [(series["metric"], [(at - began, float(value)) for at, value in series["values"]])
                                   for series in prometheus.over_time(query, began, began + SECONDS, STEP)]
        db.disconnect()
    ANSWERS.write_text(json.dumps(answers))


# ---- the picture ------------------------------------------------------------------------------------------------


def spoken(value: float, unit: str) -> str:
    if unit == "s" and 0 < value < 1:
        return f"{value * 1000:.3g} ms"
    if unit == "s" and value:
        return f"{value / 60:.2g} min" if value >= 120 else f"{value:.3g} s"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def series_of(panel: dict, answers: dict) -> list[tuple[str, list[float], list[float]]]:
    """Name, times and values of each series, in the order of the panel's queries."""
    found = []
    for target in panel["targets"]:
        for labels, values in sorted(answers[target["expr"]], key=lambda each: str(each[0])):
            name = target.get("legendFormat") or ""
            for label, value in labels.items():
                name = name.replace("{{" + label + "}}", value)
            times, figures = zip(*[(at, figure) for at, figure in values if not math.isnan(figure)] or [(0.0, 0.0)])
            found.append((name, list(times), list(figures)))
    if not found:
        raise SystemExit(f"the panel {panel['title']} shows nothing")
    return found


def threshold_colour(panel: dict, value: float) -> str:
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    return STATES[[step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1]]


def stat(axes, panel: dict, answers: dict, theme: dict) -> None:
    _, times, values = series_of(panel, answers)[0]
    defaults, colour = panel["fieldConfig"]["defaults"], threshold_colour(panel, values[-1])
    text = {mapped: to["text"] for each in defaults["mappings"] for mapped, to in each["options"].items()}.get(f"{values[-1]:.0f}")
    text = text or spoken(values[-1], defaults["unit"]) + ("/s" if defaults["unit"] == "cps" else "")
    axes.fill_between(times, values, color=colour, alpha=0.25, linewidth=0)
    axes.set(xlim=(0, SECONDS), ylim=(0, max(values) * 3 or 1))
    axes.axis("off")
    axes.text(0.5, 0.6, text, transform=axes.transAxes, ha="center", va="center", fontsize=15, fontweight="bold", color=colour)


def lines(axes, panel: dict, answers: dict, theme: dict) -> None:
    unit = panel["fieldConfig"]["defaults"]["unit"]
    found = series_of(panel, answers)
    moving = [each for each in found if max(each[2]) > 0]
    if panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal":
        at = sorted({moment for _, times, _ in moving for moment in times})
        known = [dict(zip(times, values)) for _, times, values in moving]
        axes.stackplot(at, [[each.get(moment, 0) for moment in at] for each in known], labels=[name for name, _, _ in moving], colors=theme["lines"], alpha=0.8)
    else:
        styles = [(style, colour) for style in ("-", "--", ":") for colour in theme["lines"]]
        for (name, times, values), (style, colour) in zip(moving, styles):
            axes.plot(times, values, style, color=colour, linewidth=1.2, label=name)
    axes.set(xlim=(0, SECONDS), ylim=(0, None))
    axes.yaxis.set_major_locator(plt.MaxNLocator(4, integer=unit == "short"))
    axes.yaxis.set_major_formatter(lambda value, _: spoken(value, unit) + ("/s" if unit == "cps" else ""))
    if still := len(found) - len(moving):
        axes.plot([], [], color=theme["faint"], linewidth=1.2, label=f"{still} at 0")
    axes.legend(loc="upper center", bbox_to_anchor=(0.46, -0.13), ncols=4 if panel["gridPos"]["w"] > 8 else 2, fontsize=6, handlelength=1,
                columnspacing=1, borderpad=0, labelspacing=0.1)


def heatmap(axes, panel: dict, answers: dict, theme: dict) -> None:
    """Prometheus' buckets are cumulative."""
    rows = sorted(((float(labels["le"]), dict(values)) for labels, values in answers[panel["targets"][0]["expr"]]), key=lambda row: row[0])
    at = sorted({moment for _, values in rows for moment in values})
    within = [[values.get(moment, 0) for moment in at] for _, values in rows]
    each = [[max(0, now - before) for now, before in zip(row, below)] for row, below in zip(within, [[0] * len(at), *within])]
    filled = [number for number, row in enumerate(each) if any(row)]
    first, last = filled[0], filled[-1] + 1
    colours = LinearSegmentedColormap.from_list("", [theme["panel"], "#e69f00", "#d55e00"])
    axes.pcolormesh(at, range(last - first), each[first:last], cmap=colours, rasterized=True)
    names = [spoken(bound, "s") if math.isfinite(bound) else "more" for bound, _ in rows[first:last]]
    axes.set_yticks(range(0, last - first, 2), names[::2])
    axes.set(xlim=(0, SECONDS))
    axes.grid(visible=False)


def timeline(axes, panel: dict, answers: dict, theme: dict) -> None:
    found = series_of(panel, answers)
    for place, (_, times, _) in enumerate(found):
        axes.broken_barh([(moment, STEP) for moment in times], (place - 0.4, 0.8), color=STATES["red"])
    axes.set_yticks(range(len(found)), [name for name, _, _ in found])
    axes.set(xlim=(0, SECONDS), ylim=(len(found) - 0.4, -0.6))
    axes.grid(axis="y", visible=False)


# And their margins: left, right, above, below.
KINDS = {"stat": (stat, (0.04, 0.04, 0.2, 0.04)), "timeseries": (lines, (0.62, 0.15, 0.3, 0.55)),
         "heatmap": (heatmap, (0.62, 0.15, 0.3, 0.3)), "state-timeline": (timeline, (1.25, 0.15, 0.3, 0.3))}


def place(panel: dict, height: float, left: float, right: float, top: float, bottom: float) -> tuple[float, float, float, float]:
    """In parts of the figure; the margins are in inches."""
    at, width = panel["gridPos"], 9.6
    return ((at["x"] / COLUMNS * width + left) / width, 1 - ((at["y"] + at["h"]) * UNIT - bottom) / height,
            (at["w"] / COLUMNS * width - left - right) / width, (at["h"] * UNIT - top - bottom) / height)


def draw(answers: dict) -> None:
    """Each panel in its place, with what its queries returned."""
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in PANELS) * UNIT
    for suffix, theme in THEMES.items():
        ink = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), theme["ink"])
        matplotlib.rcParams.update(ink | {"svg.hashsalt": "outbox", "svg.fonttype": "none", "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"],
                                          "font.size": 6.5, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": theme["faint"],
                                          "axes.grid": True, "axes.axisbelow": True, "grid.color": theme["faint"], "grid.linewidth": 0.5,
                                          "axes.facecolor": "none", "legend.frameon": False, "figure.facecolor": theme["page"]})
        figure = plt.figure(figsize=(9.6, height))
        for panel in PANELS:
            x, y, width, tall = place(panel, height, 0.03, 0.03, 0.03, 0.03)
            if panel["type"] == "row":
                figure.text(x + 0.004, y + tall / 2, panel["title"], fontsize=9, fontweight="bold", va="center")
                continue
            figure.add_artist(FancyBboxPatch((x, y), width, tall, boxstyle="square,pad=0", facecolor=theme["panel"], edgecolor=theme["faint"], linewidth=0.7,
                                             zorder=-1))
            figure.text(x + 0.008, y + tall - 0.09 / height, panel["title"], fontsize=7.5, fontweight="bold", va="center_baseline")
            kind, margins = KINDS[panel["type"]]
            axes = figure.add_axes(place(panel, height, *margins))
            kind(axes, panel, answers, theme)
            if kind is not stat:
                axes.set_xticks(range(0, SECONDS, 60), [f"{second // 60} min" for second in range(0, SECONDS, 60)])
                axes.tick_params(length=0)
        file = HERE / f"dashboard{suffix}.svg"
        figure.savefig(file, metadata={"Date": None, "Creator": None}, dpi=100)
        plt.close(figure)
        small = re.sub(r"(\d\.\d)\d+", r"\1", file.read_text())  # a tenth of a point is exact enough
        small = re.sub(r"font-family: [^;]*;", "font-family: sans-serif;", re.sub(r"\n +", "\n", small))
        small = re.sub(r" ?\n(?=[LQCz] )", "", small)  # a path is one line
        file.write_text(f"{small}<!-- {hashlib.sha256(DASHBOARD.read_bytes()).hexdigest()} -->\n")  # test/states.py compares it


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", action="store_true")
    if not parser.parse_args().again:
        record()
    draw(json.loads(ANSWERS.read_text()))

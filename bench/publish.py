"""Puts the table of build/bench/results.json into docs/performance.md, between its two marks, and draws the plots from it:
python bench/publish.py."""

import json
import re
from pathlib import Path

from plots import PAGE, draw
from results import HEADINGS, Row

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"
SHARES = re.compile(r": .* of \d+ cores.*")  # of each process, after what limited the measure: they stay in results.json


def machine(about: dict) -> str:
    of, versions = about["machine"], about["versions"]
    settings = ", ".join(f"`{name} = {value}`" for name, value in about["settings"].items())
    return (f"{of['cores_used']} cores of {of['cpu']}, {of['memory_mb'] // 1024} GB, Linux {of['kernel']}; server, broker, endpoint and load share them.\n"
            f"PostgreSQL {versions['postgresql']} with {settings}; {versions['libraries']}; Kafka {versions['kafka']}, one node; the consumer's "
            f"{versions['consumer']}. All producers: idempotent, `acks=all`, lz4, `linger.ms = {about['linger_ms']}`.\n")


def runs(measures: dict) -> str:
    """The runs that the figures come from; several, if some measures were repeated separately."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, measure in measures.items():
        run = measure["about"]["versions"]["commit"], "full sizes" if measure["about"]["full"] else "short form"
        found.setdefault(run, []).append(name)
    if len(found) == 1:
        [(commit, form)] = found
        return f"Commit {commit}, {form}.\n"
    return "".join(f"- commit {commit}, {form}: {', '.join(names)}\n" for (commit, form), names in found.items())


def limit(text: str) -> str:
    first, *others = text.split("; ")
    return "; ".join([SHARES.sub("", first), *(other for other in others if not SHARES.search(other))])


def table(measures: dict) -> str:
    lines = [HEADINGS, ["---"] * len(HEADINGS)]
    for name, measure in measures.items():
        if measure["failed"]:
            lines.append([name, "**FAILED**", *[""] * (len(HEADINGS) - 3), measure["failed"]])
        for one in measure["rows"]:
            cells = Row(**{key: value for key, value in one.items() if key != "met"} | {"limit": limit(one["limit"])}).cells()
            lines.append([cell.strip().replace("|", "\\|").replace("MISSED", "**MISSED**") for cell in cells])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def publish(results: Path) -> None:
    measures = json.loads(results.read_text())["measures"]
    newest = max(measures.values(), key=lambda measure: measure["at"])
    text = f"{machine(newest['about'])}\n{runs(measures)}\n{table(measures)}\n"
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}{text}{END}{after}")
    print(f"published: {PAGE}, {', '.join(path.name for path in draw())}\n"
          "The five figures at its head and in README.md are written by hand; test/docs/test_readmes.py says which differ from the table.")


if __name__ == "__main__":
    publish(ROOT / "build" / "bench" / "results.json")

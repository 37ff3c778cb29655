#!/usr/bin/env python3
"""Checks the state machines: an enum of src whose comments have `next:` beside its values is one. The next states in
the comments must be those that the function may_follow() of that enum allows, and those of the diagram in src/diagrams.
The SVGs of each diagram (`make diagrams`) must be made of it as it is. src/README.md must show those of states, README.md
those of IN_README, and a page of the documentation the others. The pictures of the dashboard (`make dashboard`) must show
it as it is.

test/states.py: exit code 1 and a line for each fault."""

import hashlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
IN_README = {"map", "life"}
DASHBOARD = ROOT / "docker/grafana/dashboards/outbox.json"
ENUM = re.compile(r"^(?:typedef )?enum (?:class )?(\w+)[^{};]*\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
VALUE = re.compile(r"^  (\w+),?(?:\s*/\*(.*?)\*/)?$", re.MULTILINE | re.DOTALL)
FUNCTION = r"\bmay_follow\({0} \w+, {0} \w+\) \{{$(.*?)^\}}"
CASES = re.compile(r"((?:\s*case [\w:]+:)+)\s*return (.*?);", re.DOTALL)
ARROW = re.compile(r"^\s*(\w+) -> (\w+)\b", re.MULTILINE)

Arrows = set[tuple[str, str]]


def machines() -> dict[str, tuple[Path, list[str], Arrows]]:
    """For each machine: the file, its states without their common prefix, and the next states in the comments."""
    found = {}
    for path in sorted(SRC.rglob("*.h")):
        for enum in ENUM.finditer(path.read_text()):
            values = [(name, re.sub(r"\s*\n\s*\*?\s*", " ", comment or "")) for name, comment in VALUE.findall(enum[2])]
            if not any("next:" in comment for _, comment in values):
                continue
            prefix = enum_prefix([name for name, _ in values])
            arrows = {(name.removeprefix(prefix), after)
                      for name, comment in values for after in re.findall(r"[A-Z_]+", re.sub(r"\(.*?\)", "", comment.partition("next:")[2]))}
            found[enum[1]] = path, [name.removeprefix(prefix) for name, _ in values], arrows
    return found


def enum_prefix(names: list[str]) -> str:
    prefix = names[0].partition("_")[0] + "_"
    return prefix if all(name.startswith(prefix) for name in names) else ""


def allowed_by_code(enum: str, states: list[str]) -> Arrows | None:
    for path in SRC.rglob("*.cpp"):
        function = re.search(FUNCTION.format(enum), path.read_text(), re.MULTILINE | re.DOTALL)
        if not function:
            continue
        name = re.compile(r"\b(?:" + enum + r"::|[A-Z]+_)?(" + "|".join(sorted(states, key=len, reverse=True)) + r")\b")
        return {(state, after) for cases, condition in CASES.findall(function[1])
                for state in name.findall(cases) for after in (set(states) - {state} if condition == "true" else name.findall(condition))}
    return None


def differences(what: str, arrows: Arrows, where: str, expected: Arrows) -> list[str]:
    return ([f"{where} has no {a} -> {b}, which {what} names" for a, b in sorted(expected - arrows)] +
            [f"{where} has {a} -> {b}, which {what} does not name" for a, b in sorted(arrows - expected)])


def main() -> int:
    faults = []
    readme = (SRC / "README.md").read_text()
    front = (ROOT / "README.md").read_text()
    pages = readme + "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    diagrams = {re.search(r"^digraph (\w+)", path.read_text(), re.MULTILINE)[1]: path for path in sorted((SRC / "diagrams").glob("*.dot"))}
    found = machines()
    for enum, (path, states, named) in found.items():
        what = f"{path.relative_to(SRC)} ({enum})"
        faults += [f"{what} names {name}, which is no state" for name in sorted({name for arrow in named for name in arrow} - set(states))]
        faults += [f"{what} names no next state of {name}" for name in states if not any(name == before for before, _ in named)]
        code = allowed_by_code(enum, states)
        faults += [f"{what} has no may_follow()"] if code is None else differences(what, code, f"may_follow({enum})", named)
        if enum not in diagrams:
            faults.append(f"{what} has no diagram in src/diagrams")
            continue
        faults += differences(what, set(ARROW.findall(diagrams[enum].read_text())), f"src/diagrams/{diagrams[enum].name}", named)
    for name, path in diagrams.items():
        if name.endswith("State") and name not in found:
            faults.append(f"src/diagrams/{path.name} draws {name}, which is no enum with `next:` in src")
        checksum = hashlib.sha256(path.read_bytes()).hexdigest()
        for picture in (path.with_suffix(".svg"), path.with_stem(f"{path.stem}-dark").with_suffix(".svg")):
            if not picture.exists() or not picture.read_text().endswith(f"<!-- {checksum} -->\n"):
                faults.append(f"src/diagrams/{picture.name} is not made of {path.name} as it is: make diagrams")
            if path.stem in IN_README and f'diagrams/{picture.name}"' not in front:
                faults.append(f"README.md does not show src/diagrams/{picture.name}")
            if f'diagrams/{picture.name}"' not in (readme if name.endswith("State") else pages):
                faults.append(f"{'src/README.md does' if name.endswith('State') else 'src/README.md and docs do'} not show src/diagrams/{picture.name}")
    checksum = hashlib.sha256(DASHBOARD.read_bytes()).hexdigest()
    for picture in sorted((ROOT / "docker/grafana").glob("dashboard*.svg")):
        if not picture.read_text().endswith(f"<!-- {checksum} -->\n"):
            faults.append(f"docker/grafana/{picture.name} does not show {DASHBOARD.name} as it is: make dashboard")
    print("\n".join(faults), file=sys.stderr, end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

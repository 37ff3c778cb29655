#!/usr/bin/env python3
"""Checks src/folders.txt, the table of which folder may include which: that no include goes past it, and that it has no circle.

test/folders.py [--graph]: exit code 1 and a line for each include that goes past the table; --graph prints the folders level by level."""

import re
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SRC = Path(__file__).resolve().parent.parent / "src"
INCLUDE = re.compile(r'^#include "((?:server|dispatch|delivery)/[^"]+)"', re.MULTILINE)


def read_table() -> dict[str, set[str]]:
    lines = [line.split("#")[0] for line in (SRC / "folders.txt").read_text().splitlines()]
    return {name.strip(): set(others.split()) for name, _, others in (line.partition(":") for line in lines) if name.strip()}


def folder_of(path: str, table: dict[str, set[str]]) -> str:
    """A file that the table names is a folder of its own: the header of a library is its ground, and what implements it the roof."""
    return path if path in table else path.rpartition("/")[0]


def includes() -> list[tuple[str, int, str]]:
    """(file, line, included file), relative to src."""
    return [(str(path.relative_to(SRC)), text.count("\n", 0, match.start()) + 1, match[1])
            for path in sorted(SRC.rglob("*")) if path.suffix in (".cpp", ".h")
            for text in [path.read_text()] for match in INCLUDE.finditer(text)]


def main() -> int:
    table = read_table()
    faults = []
    try:
        order = list(TopologicalSorter(table).static_order())
    except CycleError as error:
        faults.append("src/folders.txt has a circle: " + " -> ".join(reversed(error.args[1])))
    for name in sorted({other for others in table.values() for other in others} - set(table)):
        faults.append(f"src/folders.txt lets a folder include {name}, which it does not list")
    for file, line, included in includes():
        here, there = folder_of(file, table), folder_of(included, table)
        if here not in table:
            faults.append(f"src/{file}: src/folders.txt does not list the folder {here}")
        elif here != there and there not in table[here]:
            faults.append(f"src/{file}:{line} includes {included}: src/folders.txt does not let {here} include {there}")
        if not (SRC / included).exists():
            faults.append(f"src/{file}:{line} includes {included}, which is not there")
    print("\n".join(faults), file=sys.stderr, end="\n" if faults else "")
    if "--graph" in sys.argv and not faults:
        levels: dict[str, int] = {}
        for name in order:
            levels[name] = 1 + max((levels[other] for other in table[name]), default=0)
        for level in sorted(set(levels.values()), reverse=True):
            print(f"{level:2}  {'  '.join(sorted(name for name in levels if levels[name] == level))}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

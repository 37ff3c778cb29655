#!/usr/bin/env python3
"""Checks src/folders.txt, the table of which folder may include which: every include must be allowed by it, and it must
have no cycle. Also checks that each function declared in a header x.h of src/server or src/dispatch is defined in x.h
or in x.cpp beside it, so that needing one function does not mean including another file's header. The functions of a
class may stand in several files of its folder.

test/folders.py [--graph]: exit code 1 and a line for each fault; --graph prints the folders level by level.

The second check reads declarations with regular expressions, in the format of clang-format. It ignores variables
(`extern`), declarations by macros, operators, constructors and destructors, templates, and functions that only a
.cpp file declares; it compares functions by name alone, so one of several overloads is enough."""

import re
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SRC = Path(__file__).resolve().parent.parent / "src"
DECLARED_BESIDE = ("server", "dispatch")
NOT_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"|^[ \t]*#(?:[^\n\\]|\\.|\\\n)*', re.DOTALL | re.MULTILINE)
NOT_A_FUNCTION = r"(?!typedef|using|return|template|friend|else|public:|protected:|private:)"
# A declaration: at the start of a line, or indented by two within a class: type, name, arguments, optional `const
# noexcept`, a semicolon.
DECLARATION = re.compile(rf"^(?:  )?{NOT_A_FUNCTION}[A-Za-z_\[][^;{{}}()=]*[\s*&](\w+)\([^;{{}}]*?\)[\w\s]*;", re.MULTILINE)
CLASS = re.compile(r"^(?:class|struct) (\w+)[^;{}()]* \{$(.*?)^\};", re.MULTILINE | re.DOTALL)
INCLUDE = re.compile(r'^#include "((?:server|dispatch|delivery)/[^"]+)"', re.MULTILINE)


def read_table() -> dict[str, set[str]]:
    lines = [line.split("#")[0] for line in (SRC / "folders.txt").read_text().splitlines()]
    return {name.strip(): set(others.split()) for name, _, others in (line.partition(":") for line in lines) if name.strip()}


def folder_of(path: str, table: dict[str, set[str]]) -> str:
    """A file that the table names counts as a folder of its own: a library's public header is at its bottom, and the
    file that implements it at its top."""
    return path if path in table else path.rpartition("/")[0]


def includes() -> list[tuple[str, int, str]]:
    """(file, line, included file), relative to src."""
    return [(str(path.relative_to(SRC)), text.count("\n", 0, match.start()) + 1, match[1])
            for path in sorted(SRC.rglob("*")) if path.suffix in (".cpp", ".h")
            for text in [path.read_text()] for match in INCLUDE.finditer(text)]


def code_of(path: Path) -> str:
    """The text without comments, strings and preprocessor lines; line numbers stay."""
    return NOT_CODE.sub(lambda match: re.sub(r"[^\n]", "", match[0]), path.read_text()) if path.exists() else ""


def defined_elsewhere() -> list[str]:
    """The functions of fault_point.h are those of a test build: test/fault_points/fault_point.cpp."""
    faults = []
    for header in sorted(path for folder in DECLARED_BESIDE for path in (SRC / folder).rglob("*.h") if path.name != "fault_point.h"):
        source = header.with_suffix(".cpp")
        text, code = code_of(header), code_of(source)
        of_folder = "\n".join(code_of(path) for path in sorted(header.parent.glob("*.cpp")))
        classes = [(match.start(), match.end(), match[1]) for match in CLASS.finditer(text)]
        for match in DECLARATION.finditer(text):
            within = next((name for begin, end, name in classes if begin < match.start() < end), None)
            name = re.escape(f"{within}::{match[1]}" if within else match[1])
            if not re.search(rf"^[A-Za-z_\[][^;{{}}()=]*\b{name}\([^;{{}}]*\)[\w\s]*\{{", of_folder if within else code, re.MULTILINE):
                line = text.count("\n", 0, match.start(1)) + 1
                faults.append(f"src/{header.relative_to(SRC)}:{line} declares {match[1]}(), which src/{source.relative_to(SRC)} does not define")
    return faults


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
    faults += defined_elsewhere()
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

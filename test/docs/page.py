"""Runs a page of the documentation as a reader would in psql."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from outbox_rig import patient
from outbox_rig.paths import ROOT, pg_config

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Instructions for the test, hidden from readers: <!-- setup: SQL -->, <!-- fresh database -->, <!-- output --> (of the
# block before it), <!-- step: name --> (this block is run by a test of its own).
PART = re.compile(r"<!--\s*(?P<word>setup|fresh database|output|step)(?::\s*(?P<more>.*?))?\s*-->"
                  r"|^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
# The parts of the output that differ between runs.
CHANGES = [(re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UUID"),
           (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.:]\d+)?( ?Z|[+-]\d\d)?"), "TIME"), (re.compile(r"\b1[6-9]\d{8}(\d{3})?\b"), "TIME"),
           (re.compile(r"v1,[\w+/]+=*"), "SIGNATURE"), (re.compile(r"\b0{10,}\d+\b"), "SEQUENCE"), (re.compile(r"[-+| ]+"), " ")]


# Such a statement would not be run.
UNFENCED = re.compile(r"^(?: {4,}|\t+)((?:SELECT|CALL|ALTER|CREATE|DROP|INSERT|UPDATE|DELETE|GRANT|REVOKE|BEGIN|COMMIT|SET|WITH) .*)$", re.MULTILINE)


@dataclass
class Step:
    line: int
    sql: str
    output: str | None = None  # the output that the page shows
    step: str | None = None


def chapters(page: Path) -> list[list[Step]]:
    """The SQL of a page in order; each chapter starts in a fresh database."""
    text = page.read_text()
    found: list[list[Step]] = [[]]
    output, step = False, None
    for part in PART.finditer(text):
        line = text[:part.start()].count("\n") + 1
        if part["word"] == "fresh database":
            found.append([])
        elif part["word"] == "setup":
            found[-1].append(Step(line, part["more"] + "\n"))
        elif part["word"] == "output":
            output = True
        elif part["word"] == "step":
            step = part["more"]
        else:
            if output:
                found[-1][-1].output = part["text"]
            elif part["language"] == "sql":
                found[-1].append(Step(line, re.sub(f"^{part['indent']}", "", part["text"], flags=re.MULTILINE), step=step))
            output, step = False, None
    return [chapter for chapter in found if chapter]


def unfenced(text: str) -> list[str]:
    """Statements in an indented block instead of a fence."""
    return UNFENCED.findall(PART.sub("", text))


def same(text: str) -> list[str]:
    """The lines of an output without the parts that vary, and without the width of columns."""
    for pattern, replacement in CHANGES:
        text = pattern.sub(replacement, text)
    return [line.strip() for line in text.splitlines() if line.strip()]


def follow(steps: list[Step], dsn: str, folder: Path, page: Path) -> None:
    """Runs SQL in one session of psql, which ends at the first error: AssertionError with the line and the message."""
    script = "".join(f"\\echo @@ {number}\n{once(step.sql)}\n" for number, step in enumerate(steps))
    done = subprocess.run([pg_config("bindir") / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-P", "pager=off", "-P", "footer=off", dsn],
                          input=script, text=True, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=patient(100))
    said = dict((int(number), text) for number, text in re.findall(r"^@@ (\d+)\n(.*?)(?=^@@ |\Z)", done.stdout, re.MULTILINE | re.DOTALL))
    last = steps[max(said)]
    assert done.returncode == 0, f"{page.relative_to(ROOT)}:{last.line}\n{last.sql}\n{said[max(said)]}"
    for number, step in enumerate(steps):
        if step.output is not None:
            assert same(said[number]) == same(step.output), f"{page.relative_to(ROOT)}:{step.line} shows another output"


def once(statement: str) -> str:
    r"""\watch would never end."""
    return re.sub(r"\\watch\b.*", r"\\g", statement)

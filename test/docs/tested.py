"""The table at the head of docs/testing.md: how much of what there is. `make docs` writes it.

The counts are of the sources, so they need no run. The test allows each to be a tenth off: a change that adds a test need not touch the page, and two
changes at once do not conflict on it. What only a run can tell is in measured.toml, with the command and the day. A tool that is not there has no row."""

import ast
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import psycopg
from outbox_rig.paths import ROOT
from outbox_rig.suites import CHECK, SUITES, TEST

PAGE = ROOT / "docs/testing.md"
BEGIN, END = "<!-- counted by make docs -->\n", "<!-- end of the counts -->\n"
MEASURED = Path(__file__).with_name("measured.toml")
TEST_DIR = ROOT / "test"
GTEST = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\(|^RC_GTEST_(?:FIXTURE_)?PROP\(", re.MULTILINE)


def files(folder: str, *patterns: str) -> list[Path]:
    """Without what a build leaves there."""
    return sorted(path for pattern in patterns for path in (ROOT / folder).rglob(pattern) if "node_modules" not in path.parts)


def lines(paths: list[Path]) -> int:
    """Neither empty lines nor those of comments alone count."""
    comment = re.compile(r"/\*.*?\*/|^\s*(?://|--|#(?!include|define|if|else|endif|pragma|undef)).*?$", re.DOTALL | re.MULTILINE)
    return sum(bool(line.strip()) for path in paths for line in comment.sub("", path.read_text(errors="replace")).splitlines())


def test_functions(folder: str) -> int:
    return sum(isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
               for path in files(f"test/{folder}", "test_*.py") for node in ast.walk(ast.parse(path.read_text())))


def assigned(path: Path, name: str) -> ast.expr | None:
    """The value that a Python file gives this global name; the file is not run."""
    for node in ast.parse(path.read_text()).body if path.exists() else []:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return node.value
    return None


def entries(path: Path, name: str) -> int:
    value = assigned(path, name)
    return len(value.keys) if isinstance(value, ast.Dict) else len(value.elts) if isinstance(value, ast.List | ast.Tuple) else 0


def chaos_faults() -> int:
    faults = assigned(TEST_DIR / "chaos/faults.py", "FAULTS")
    return len(faults.keys) if isinstance(faults, ast.Dict) else 0


def models() -> list[Path]:
    """The other files are parts of these."""
    return [path for path in files("test/models", "*.pml") if "init {" in path.read_text()]


def model_guards() -> int:
    return sum(len(set(re.findall(r"#ifn?def ([A-Z]+_[A-Z_]+)", path.read_text()))) for path in models())


def state_edges() -> tuple[int, int]:
    sys.path.insert(0, str(TEST_DIR))
    import states
    found = states.machines()
    return len(found), sum(len(arrows) for _, _, arrows in found.values())


def unit_tests() -> int:
    return sum(len(GTEST.findall(path.read_text())) for path in files("test/unit", "*.cpp"))


def regress_scripts() -> int:
    return len(files("sql", "*.sql"))


def isolation_specs() -> int:
    return len(files("test/isolation/specs", "*.spec"))


# Suites whose tests are no functions of pytest: what is counted, and its unit.
OF_SUITE: dict[str, tuple[Callable[[], int], str]] = {
    "unit": (unit_tests, "tests"),
    "simulate": (lambda: entries(TEST_DIR / "simulate/guards.py", "GUARDS"), "guards that can be taken out"),
    "regress": (regress_scripts, "SQL scripts"),
    "isolation": (isolation_specs, "specifications"),
    "models": (lambda: len(models()), "models"),
    "fuzz": (lambda: len(list(TEST_DIR.glob("fuzz/*.cpp"))), "targets"),
    "chaos": (chaos_faults, "kinds of faults"),
}


def suites() -> list[tuple[str, str, int, str]]:
    """(name, title, count, unit) of each suite that has tests of its own; the others repeat them elsewhere."""
    found = []
    for name, suite in SUITES.items():
        count, unit = OF_SUITE.get(name, (lambda name=name: test_functions(name), "tests"))
        if name != "lint" and count():
            found.append((name, re.sub(r"^\w+: ", "", suite.title), count(), unit))
    return found


def when(name: str) -> str:
    return "`make check`" if name in CHECK else "`make test`" if name in TEST else "`make test-all`"


def others() -> list[tuple[str, int]]:
    """Counts beside those of suites."""
    product = lines(files("src", "*.cpp", "*.h", "*.sql"))
    tests = lines(files("test", "*.py", "*.cpp", "*.h", "*.pml", "*.spec", "*.sql") + files("sql", "*.sql"))
    machines, edges = state_edges()
    points = len(set(re.findall(r"\bFAULT_POINT\((\w+|\"[^\"]+\")\)", "".join(path.read_text() for path in files("src", "*.cpp")))))
    return [(what, n) for what, n in [
        ("lines of product code (C++ and SQL, without comments)", product),
        ("lines of tests", tests),
        ("lines of tests for 100 lines of product code", round(100 * tests / product)),
        ("state machines whose changes are one function, which asserts each change", machines),
        ("changes of state that they allow, compared with the code and the diagrams", edges),
        ("guards that can be taken out of the models, each of which must then fail", model_guards()),
        ("inputs of the fuzz targets in the repository", len(list(TEST_DIR.glob("fuzz/corpus/*/*")))),
        ("fault points in the product's code", points),
    ] if n]


def measured() -> list[dict[str, str]]:
    return tomllib.loads(MEASURED.read_text())["run"]


def counts() -> dict[str, int]:
    """All numbers of the table, by what they count."""
    return {title: n for _, title, n, _ in suites()} | dict(others())


def table() -> str:
    text = "| suite | what it does | how many | part of |\n|---|---|---:|---|\n"
    text += "".join(f"| `{name}` | {title} | {n:,} {unit if n > 1 else unit.removesuffix('s')} | {when(name)} |\n" for name, title, n, unit in suites())
    text += "\n| in all | |\n|---|---:|\n" + "".join(f"| {what} | {n:,} |\n" for what, n in others())
    text += "\n| the last measured run of | said | on | by |\n|---|---|---|---|\n"
    return text + "".join(f"| {run['what']} | {run['said']} | {run['on']} | `{run['command']}` |\n" for run in measured())


def made(connection: psycopg.Connection | None = None) -> str:
    head, rest = PAGE.read_text().split(BEGIN)
    return head + BEGIN + table() + END + rest.split(END, 1)[1]


def stated(page: str) -> dict[str, int]:
    inner = page.split(BEGIN)[1].split(END)[0]
    return {what: int(n.replace(",", "")) for what, n in re.findall(r"^\|(?: `\w[\w-]*` \|)? ([^|]+) \| ([\d,]+)[^|]*\|", inner, re.MULTILINE)}


def out_of_date(page: str) -> list[str]:
    """What the page says that is more than a tenth off, or missing."""
    said, true = stated(page), counts()
    return [f"{what}: {said.get(what, 'nothing')}, and there are {n}" for what, n in true.items() if what not in said or abs(said[what] - n) > n / 10]

"""README.md stays short, and the figures that it and the head of docs/performance.md name are those of the bench,
and the plots are drawn from them. The code of each stack in examples/README.md and on its own page is the code that the
tests run."""

import hashlib
import re
from pathlib import Path

import pytest
from outbox_rig.paths import ROOT

README = (ROOT / "README.md").read_text()
PERFORMANCE = (ROOT / "docs/performance.md").read_text()
FIGURE = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?= |$|,|;|\*|\))")  # as the bench prints it: 294,711 or 0.550

STACKS = sorted(path.parent.name for path in (ROOT / "examples").glob("*/README.md"))
SOURCES = {".java", ".go", ".py", ".ts", ".cs"}

KINDS = sorted(path.parent.name for path in (ROOT / "sinks").glob("*/README.md"))


def section(text: str, heading: str) -> str:
    return re.search(rf"^## {heading}\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)[1]


def unknown(figures: str) -> list[str]:
    """Figures of three digits or more that the table of the bench does not have."""
    table = PERFORMANCE.partition("<!-- figures -->")[2].partition("<!-- end of figures -->")[0]
    found = [figure for figure in FIGURE.findall(figures) if len(re.sub(r"\D", "", figure)) > 2]
    assert len(found) >= 10
    return [figure for figure in found if not re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d])", table)]


def test_the_readme_is_read_in_ten_minutes():
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize("figures", (section(README, "Five figures"), section(PERFORMANCE, "The five figures")), ids=("readme", "performance"))
def test_figures_are_those_of_the_bench(figures):
    figures = figures.replace("5,000 events/s", "")  # an example, not a figure
    assert unknown(figures) == []
    assert unknown(figures + " 294,712 events/s") == ["294,712"]


def test_the_figures_of_the_page_about_growth_are_those_of_the_bench():
    page = re.sub(r"^ *```.*?^ *```$|\]\([^)]*\)", "", (ROOT / "docs/tables-and-size.md").read_text().partition("## Growth\n")[2], flags=re.MULTILINE | re.DOTALL)
    assert set(unknown(page)) == {"4,096", "250,000"}  # the limit of the code, and the one that docs/performance.md derives


def test_plots_are_drawn_from_the_table():
    checksum = hashlib.sha256(re.search(r"^\| measure .*?(?=\n\n)", PERFORMANCE, re.MULTILINE | re.DOTALL)[0].encode()).hexdigest()
    plots = list((ROOT / "docs/plots").glob("*.svg"))
    assert len(plots) == 10 and [path.name for path in plots if not path.read_text().endswith(f"<!-- {checksum} -->\n")] == [], "make plots"
    assert [path.name for path in plots if f'="plots/{path.name}"' not in PERFORMANCE] == []


def shown(stack: str) -> str:
    """The first block of code on its page."""
    return re.search(r"^```\w+\n.*?^```$", (ROOT / "examples" / stack / "README.md").read_text(), re.MULTILINE | re.DOTALL)[0]


def bare(text: str) -> str:
    """Without indentation, which is smaller on a page."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


@pytest.mark.parametrize("stack", STACKS)
def test_the_lines_that_matter_are_the_examples_own(stack):
    lines = shown(stack).splitlines()[1:-1]
    assert 6 <= len(lines) <= 12
    sources = [bare(path.read_text()) for path in (ROOT / "examples" / stack).rglob("*") if path.suffix in SOURCES and "node_modules" not in path.parts]
    for part in re.split(r"^\s*(?:#|//) \.\.\.$", "\n".join(lines), flags=re.MULTILINE):
        assert any(bare(part) in source for source in sources), part


def test_the_page_of_all_examples_shows_the_same():
    page = (ROOT / "examples/README.md").read_text()
    assert STACKS and [stack for stack in STACKS if shown(stack) not in page or f"({stack}/README.md)" not in page] == []


def code_of(*paths: Path) -> str:
    assert paths
    return "".join(path.read_text() for path in paths)


def test_the_constant_of_an_option_is_its_name_in_capitals():
    code = code_of(*(path for folder in ("src/delivery", "sinks") for path in (ROOT / folder).rglob("*.[ch]*") if path.suffix in {".h", ".cpp"}))
    constants = re.findall(r'\b([A-Z][A-Z_]+)\{"([a-z_]+)"\}', code)
    assert len(constants) > 60 and [constant for constant, name in constants if constant.lower() != name] == []


def test_the_reference_of_kafka_has_the_properties_that_the_sink_knows():
    """Those of librdkafka that it sets, limits or refuses. The tables of options are generated."""
    code = code_of(*(ROOT / "sinks/kafka").glob("*.cpp"))
    names = {name.replace(".", "_") for name in re.findall(r'^ {4}\{"([a-z_.]+)", (?:"|\d)', code, re.MULTILINE)}
    page = (ROOT / "docs/kafka-reference.md").read_text()
    assert len(names) > 5 and [name for name in sorted(names) if f"`{name}`" not in page] == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_five_minutes_of_a_kind_install_what_they_use(kind):
    """On Debian 12, whose Python is python3, and whose pip installs into virtual environments only."""
    steps = section((ROOT / "sinks" / kind / "README.md").read_text(), "Five minutes")
    commands = "".join(re.findall(r"^```sh\n(.*?)^```$", steps, re.MULTILINE | re.DOTALL))
    installed = " ".join(re.findall(r"^apt-get install (.*)$", commands, re.MULTILINE)).split()
    [needed] = re.findall(r"^BUILD_PACKAGES = (.*)$", (ROOT / "sinks" / kind / "Makefile").read_text(), re.MULTILINE)
    used = needed.split() + ["python3-venv"] * ("python3 -m venv" in commands)
    assert [package for package in used if package not in installed] == []
    assert re.findall(r"(?:^|&& )(?:pip3?|python) .*$", commands, re.MULTILINE) == []

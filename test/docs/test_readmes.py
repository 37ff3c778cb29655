"""README.md stays short, and the figures that it and the head of docs/performance.md name are those of the bench,
and the plots are drawn from them. The code of each stack in examples/README.md and on its own page is the code that the
tests run."""

import hashlib
import re

import pytest
from outbox_rig.paths import ROOT

README = (ROOT / "README.md").read_text()
PERFORMANCE = (ROOT / "docs/performance.md").read_text()
FIGURE = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?= |$|,|;|\*|\))")  # as the bench prints it: 294,711 or 0.550

STACKS = sorted(path.parent.name for path in (ROOT / "examples").glob("*/README.md"))
SOURCES = {".java", ".go", ".py", ".ts", ".cs"}



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
    assert unknown(figures.replace("5,000 events/s", "")) == []  # an example, not a figure
    assert unknown(figures + " 294,712 events/s") == ["294,712"]


def test_the_figures_of_the_page_about_growth_are_those_of_the_bench():
    page = re.sub(r"^ *```.*?^ *```$|\]\([^)]*\)", "", (ROOT / "docs/scaling.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    assert set(unknown(page)) == {"4,096", "400,000"}  # the limit of the code, and the one that docs/performance.md derives


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

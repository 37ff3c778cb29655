"""README.md stays short, and the figures that it and the head of docs/performance.md name are those of the bench."""

import re

import pytest
from outbox_rig.paths import ROOT

README = (ROOT / "README.md").read_text()
PERFORMANCE = (ROOT / "docs/performance.md").read_text()
FIGURE = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?= |$|,|;|\*|\))")  # as the bench prints it: 294,711 or 0.550


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

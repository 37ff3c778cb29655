"""The code of each stack in examples/README.md and on its own page is the code that the tests run."""

import re

import pytest
from outbox_rig.paths import ROOT

STACKS = sorted(path.parent.name for path in (ROOT / "examples").glob("*/README.md"))
SOURCES = {".java", ".go", ".py", ".ts", ".cs"}


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

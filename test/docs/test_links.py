"""Links within the documentation have a target, and the files that CONTRIBUTING.md names exist."""

import re

import pytest
from outbox_rig.paths import ROOT

from page import PAGES

LINK = re.compile(r"""(?:\]\(|\bsrc(?:set)?=")([^)#\s"]*)(#[^)\s]*)?[)"]""")


def anchors(text: str) -> set[str]:
    """The anchors that GitHub makes of headings."""
    return {re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).strip().replace(" ", "-")
            for heading in re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)}


OTHERS = [page for pattern in ("*.md", "*/README.md", "sinks/*.md", "sinks/*/README.md", "sinks/*/test/README.md", "test/*/README.md", "examples/*/README.md", "src/*/README.md") for page in sorted(ROOT.glob(pattern))
          if page not in PAGES and "build" not in page.relative_to(ROOT).parts]


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    broken = []
    for path, anchor in LINK.findall(re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)):
        if "://" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or anchor and anchor[1:] not in anchors(target.read_text()):
            broken.append(path + anchor)
    assert broken == []


def test_every_page_is_reached_from_the_readme():
    readme = (ROOT / "README.md").read_text()
    assert [page.name for page in PAGES[1:] if f"(docs/{page.name}" not in readme] == []


def test_every_page_is_in_the_navigation_of_the_site():
    """make docs-site needs PyPI, and so runs seldom."""
    conf = (ROOT / "packaging/site/conf.py").read_text()
    lists = re.search(r"^NAVIGATION = \{(.*?)^\}", conf, re.MULTILINE | re.DOTALL)[1]
    named = re.findall(r"docs/([\w-]+)", lists)
    assert sorted(named) == sorted(page.stem for page in PAGES[1:])
    assert "sinks/new-sink" in lists and "test/README" in lists
    below = re.search(r"^BELOW = \{(.*?)\}", conf, re.MULTILINE | re.DOTALL)[1]
    assert [path.parent.name for path in ROOT.glob("test/*/README.md") if f"{path.parent.name}/README" not in below] == []


def test_a_part_of_a_file_is_a_part_of_it():
    """Pages that show the lines that matter of a file beside them."""
    parts = [(page, name, text) for page in PAGES for name, text in re.findall(r"<!-- part of: (\S+) -->\n```\w+\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)]
    assert len(parts) >= 2
    assert [(page.name, name) for page, name, text in parts if not any(text in path.read_text() for path in page.parent.glob(f"**/{name}"))] == []


def test_files_that_are_named_exist():
    named = set(re.findall(r"`((?:src|test|docs|sql|expected|sinks|\.githooks|\.ci|\.github)/[\w./*-]*)`", (ROOT / "CONTRIBUTING.md").read_text()))
    assert len(named) > 20
    assert [name for name in sorted(named) if not list(ROOT.glob(name.rstrip("/")))] == []

"""The documentation as a site with search, by Sphinx: make docs-site. The pages are those that GitHub shows, read as CommonMark. (mkdocs reads
them with Python-Markdown, which loses lists and tables of six of them, without a warning.)"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

project = "outbox"
release = re.search(r"^default_version = '(.*)'", (ROOT / "outbox.control").read_text(), re.MULTILINE)[1]
copyright = "the outbox authors"
extensions = ["myst_parser"]
root_doc = "README"
exclude_patterns = ["build"]
include_patterns = ["*.md", "docs/*.md", "sinks/*.md", "sinks/*/README.md", "test/README.md", "test/*/README.md", "examples/README.md", "examples/*/README.md", "conformance/README.md", "bench/README.md",
                    "src/README.md", "src/extension/README.md"]
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
suppress_warnings = ["misc.highlighting_failure"]  # psql's commands are no SQL
highlight_language = "text"
html_theme = "furo"
html_title = f"outbox {release}"
html_show_sphinx = False
html_copy_source = False

KINDS = " ".join(sorted(f"sinks/{path.parent.name}/README" for path in ROOT.glob("sinks/*/README.md")))

# A page that is in no list fails the build.
NAVIGATION = {
    "First steps": "docs/install examples/README",
    "How to: develop": "docs/enqueue docs/consuming docs/manual docs/migration docs/logical-replication",
    "How to: sinks": f"docs/sinks docs/kafka docs/webhooks {KINDS} sinks/new-sink",
    "How to: operate": "docs/operations docs/console docs/monitoring docs/tables-and-size docs/high-availability docs/security",
    "Reference": "docs/reference docs/compatibility docs/kafka-reference docs/webhooks-reference docs/performance bench/README CHANGELOG",
    "Explanation": "docs/promises conformance/README src/README test/README CONTRIBUTING SECURITY",
}
BELOW = {"examples/README": "spring-boot/README go-pgx/README sqlalchemy/README django/README prisma/README ef-core/README", "src/README": "extension/README",
         "test/README": "simulate/README fault_points/README power/README chaos/README fuzz/README sink/README model/README calls/README protocols/README memory/README"
                        " races/README"}
PICTURE = re.compile(r'<picture><source [^>]*srcset="([^"]*)"><img alt="([^"]*)" src="([^"]*)"></picture>')


FOLDER = re.compile(r"\[([^\]]+)\]\(([\w./-]+)\)")


def toctree(pages: str, caption: str = "") -> str:
    return "\n\n```{toctree}\n:hidden:\n" + (f":caption: {caption}\n" if caption else "") + "\n" + pages.replace(" ", "\n") + "\n```\n"


def link(page: str, found: re.Match) -> str:
    """A link to a folder leads to its page, if it has one, and else nowhere: GitHub would list its files."""
    folder = (ROOT / page).parent / found[2]
    if not folder.is_dir():
        return found[0]
    return f"[{found[1]}]({found[2].rstrip('/')}/README.md)" if (folder / "README.md").exists() else found[1]


def adapt(app: object, page: str, text: list[str]) -> None:
    """Adds the navigation, and pictures that follow the reader's choice of light or dark."""
    text[0] = FOLDER.sub(lambda found: link(page, found), text[0])
    text[0] = PICTURE.sub(r"![\2](\3){.only-light}\n![\2](\1){.only-dark}", text[0])
    if page == root_doc:
        text[0] += "".join(toctree(pages, caption) for caption, pages in NAVIGATION.items())
    elif page in BELOW:
        text[0] += toctree(BELOW[page])


def setup(app) -> None:
    app.connect("source-read", adapt)

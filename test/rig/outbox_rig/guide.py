"""Follows the SQL of a documentation page step by step: <!-- step: name -->."""

import re

from .database import Database
from .paths import ROOT
from .wait import wait_until


class Guide:
    """The SQL of `page` by step, with the test's names in place of the page's."""

    def __init__(self, db: Database, names: dict[str, str], page: str = "docs/migration.md"):
        self._db = db
        text = (ROOT / page).read_text()
        for name, ours in names.items():
            assert name in text
            text = text.replace(name, ours)
        self._steps: dict[str, str] = dict(re.findall(r"<!-- step: (.+?) -->\n```sql\n(.*?)```", text, re.DOTALL))

    def follow(self, step: str) -> None:
        """Runs the step in psql, as a user would."""
        self._db.paste(self._steps[step])

    def rows(self, step: str) -> list[tuple]:
        return self._db.sql(self._steps[step])

    def says_no(self, step: str) -> bool:
        return self._db.value(self._steps[step]) is False

    def ask(self, step: str) -> None:
        """Waits until the query returns true."""
        wait_until(lambda: self._db.value(self._steps[step]), 120, lambda: f'"{step}"; events: ' + str(self._db.sql(
            "SELECT status, sink, blocked_by, attempts, last_error, count(*), min(partition_key) FROM outbox.events GROUP BY 1, 2, 3, 4, 5")))

"""Generated pages are up to date, and the descriptions of settings are correct."""

import generated
import pytest
import settings

# The texts of src/server/base/settings.cpp, compared with the server's behaviour.
UNITS = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
SIZES = {"kB": 1, "MB": 1024, "GB": 1024 ** 2, "TB": 1024 ** 3}


@pytest.mark.parametrize("page", generated.PAGES, ids=lambda page: page.PAGE.stem)
def test_a_page_is_up_to_date(db, page):
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_inbox; CREATE EXTENSION IF NOT EXISTS outbox_manual")
    with db.connect() as connection:
        assert page.PAGE.read_text() == page.made(connection), "run make docs"


def number(text: str, unit: str | None) -> int:
    """The value of a default or limit, in the unit of the server."""
    value, digits = text.strip().split(" ")[0], ""
    while value and (value[0].isdigit()):
        digits, value = digits + value[0], value[1:]
    scale = UNITS if unit in UNITS else SIZES
    return int(digits) * (scale[value] // scale[unit] if value and value in scale else 1)


def test_defaults_and_ranges_are_said_as_they_are(pg):
    with pg.connect() as connection:
        connection.execute("LOAD 'outbox'")
        rows = connection.execute(settings.SHOWN).fetchall()
    assert len(rows) > 10
    for name, _, extra, _, kind, unit, lowest, highest, default in rows:
        _, told = settings.facts(extra)
        if kind == "integer":
            low, high = told["Range"].split(" to ")
            said = (number(told["Default"], unit), number(low, unit), number(high, unit))
            assert said == (int(default), int(lowest), int(highest)), name
        else:
            assert told["Default"] == (default or "empty"), name

"""What docs/compatibility.md promises to keep is what the code has: test/docs/surface.txt. After a change that was meant: make surface."""

import pytest
import surface


@pytest.mark.parametrize("group", surface.GROUPS, ids=lambda group: group.__name__)
def test_what_is_kept_is_there(db, group):
    db.sql("CREATE EXTENSION IF NOT EXISTS outbox_inbox; CREATE EXTENSION IF NOT EXISTS outbox_manual")
    kept = set(surface.kept()[group.__name__])
    with db.connect() as connection:
        there = set(surface.made(connection, group))
    assert len(there) > 3
    assert kept - there == set(), "gone or changed: docs/compatibility.md says how something leaves"
    assert there - kept == set(), "new: make surface"

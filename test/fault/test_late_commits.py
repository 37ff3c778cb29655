"""The test of conformance/ for late commits: it finds what a relay loses, and finds nothing that outbox loses."""

import sys

import pytest
from outbox_rig import ROOT

sys.path.insert(0, str(ROOT / "conformance"))

import late_commit  # noqa: E402
from relays import last_id, outbox  # noqa: E402

PATIENCE_S = 5


@pytest.mark.parametrize("relay", [outbox, pytest.param(last_id, marks=pytest.mark.slow)], ids=["outbox", "last_id"])
def test_what_a_late_commit_loses(pg, db, relay):
    found = late_commit.examine(relay.Relay, db.dsn, 60 if relay is outbox else PATIENCE_S)
    lost = {name: outcome.lost for name, outcome in found.items()}
    assert not any(outcome.phantom or outcome.waits for outcome in found.values()), found
    if relay is outbox:
        assert not any(lost.values()) and not any(outcome.twice for outcome in found.values()), found
    else:
        assert lost["commits last"] == lost["is prepared"] == 1 and lost["rolls back"] == 0, found

"""Each suite that `make test` leaves out takes its turn within 15 landings (.ci/turns), or the file says that it is left out."""

import re

import turns
from outbox_rig.suites import REST, SUITES


def test_every_suite_has_its_turn():
    ours = {suite for turn in turns.turns() for suite in turn.split()}
    assert ours <= SUITES.keys()
    left = set(re.split(r"\W+", re.search(r"make test-all`: (.*), which", turns.TURNS.read_text())[1]))
    missing = {suite for suite in REST if suite not in ours and not suite.startswith(("pg1", "packages-"))} - left
    assert not missing
    assert len(turns.turns()) <= 15


def test_the_next_one_follows_and_the_first_follows_the_last():
    known = turns.turns()
    assert [turns.after(turn) for turn in known] == [*known[1:], known[0]]
    assert turns.after("a turn of former days") == known[0]
    assert turns.TURN.read_text().strip() in known

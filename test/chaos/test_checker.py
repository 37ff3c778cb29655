"""Tests of the checker: one wrong history for each kind of finding, and correct histories that look suspicious."""

import pytest
from checker import check
from history import Arrival, Event, Fault, History, Touch, Transaction

SINKS = ("kafka", "crm")
PLAIN = Transaction("1.1", "plain", outcome="committed")


class Story:
    """Builds a history: events e1, e2, ... of key k, all committed unless stated otherwise, and their arrivals in
    the order of the calls."""

    def __init__(self, events: int = 3, transaction: Transaction = PLAIN):
        self.history = History(1)
        self.clock = 0.0
        for n in range(1, events + 1):
            self.event(f"e{n}", "k", n, transaction)

    def event(self, id: str, key: str, n: int, transaction: Transaction = PLAIN, committed: bool = True, undone: bool = False) -> None:
        self.history.add(Event(id, key, transaction, undone, committed, n if committed else None))

    def arrive(self, *ids: str, sinks: tuple[str, ...] = SINKS, accepted: bool = True) -> "Story":
        for id in ids:
            self.clock += 1
            event = self.history.events.get(id)
            for sink in sinks:
                self.history.arrivals.append(Arrival(sink, id, event.key if event else "?", event.n if event else 0, id, self.clock,
                                                     accepted, f"arrival at {self.clock:g}"))
        return self

    def fault(self, begun: float, ended: float, bound: int = 10) -> "Story":
        self.history.faults.append(Fault("kill_server", begun, ended, bound))
        return self

    def kinds(self) -> list[str]:
        return [finding.kind for finding in check(self.history, SINKS)]


# ---- right ------------------------------------------------------------------------------------------------------


def test_all_is_well():
    assert Story().arrive("e1", "e2", "e3").kinds() == []


def test_other_keys_may_go_first():
    story = Story(2)
    story.event("other", "another key", 1)
    assert story.arrive("other", "e1", "e2").kinds() == []
    story = Story(2)
    story.event("other", "another key", 1)
    assert story.arrive("e1", "e2", "other").kinds() == []


def test_sinks_keep_their_own_pace():
    assert Story().arrive("e1", "e2", "e3", sinks=("kafka",)).arrive("e1", "e2", "e3", sinks=("crm",)).kinds() == []


def test_a_duplicate_after_a_fault():
    assert Story().arrive("e1", "e2").fault(2.1, 2.5).arrive("e2", "e3").kinds() == []


def test_a_batch_that_comes_again_begins_with_old_events():
    """The first deliveries were in order; a second delivery of e1 after e3 is a duplicate, not a disorder."""
    assert Story().arrive("e1", "e2", "e3").fault(3.1, 3.2).arrive("e1", "e2", "e3").kinds() == []


def test_a_request_that_was_refused_comes_again():
    assert Story().arrive("e1", sinks=("crm",), accepted=False).arrive("e1", "e2", "e3").kinds() == []


def test_an_unknown_commit_that_took_place():
    assert Story(2, Transaction("1.1", "plain", outcome="unknown")).arrive("e1", "e2").kinds() == []


def test_an_unknown_commit_that_did_not():
    story = Story()
    story.event("never", "k", 4, Transaction("1.2", "plain", outcome="unknown"), committed=False)
    assert story.arrive("e1", "e2", "e3").kinds() == []


def test_an_asynchronous_commit_that_a_crash_took_back():
    story = Story()
    story.event("gone", "k", 4, Transaction("1.2", "plain", asynchronous=True, outcome="committed"), committed=False)
    assert story.arrive("e1", "e2", "e3").kinds() == []


def test_a_number_that_was_rolled_back_is_used_again():
    story = Story()
    story.event("undone", "k", 3, undone=True, committed=False)
    assert story.arrive("e1", "e2", "e3").kinds() == []


def test_a_dead_letter_lets_its_key_go_on():
    story = Story().arrive("e1").arrive("e2", sinks=("kafka",)).arrive("e2", sinks=("crm",), accepted=False).arrive("e3")
    story.history.waiting["e2", "crm"] = "FAILED"
    assert story.kinds() == []


def test_a_deleted_event_may_stay_away():
    story = Story().arrive("e1").arrive("e2", sinks=("kafka",)).arrive("e3")
    story.history.touches.append(Touch("crm", "e2", "delete", 1.5))
    assert story.kinds() == []


def test_as_many_duplicates_as_the_bound():
    assert Story().arrive("e1", "e2").fault(2.1, 2.2, bound=4).arrive("e1", "e2", "e3").kinds() == []


def test_two_faults_two_bounds():
    story = Story().arrive("e1", "e2").fault(2.1, 2.2, bound=4).arrive("e1", "e2").fault(4.1, 4.2, bound=4)
    assert story.arrive("e1", "e2", "e3").kinds() == []


def test_a_request_that_hung_through_the_fault():
    """The endpoint answered a worker that had already exited."""
    assert Story().fault(0.1, 0.5).arrive("e1", "e1", "e2", "e3").kinds() == []


# ---- wrong ------------------------------------------------------------------------------------------------------


def test_lost():
    assert Story().arrive("e1", "e3").kinds() == ["lost", "lost"]


def test_lost_at_one_sink():
    assert Story().arrive("e1", "e2").arrive("e3", sinks=("crm",)).kinds() == ["lost"]


def test_a_refused_request_is_no_delivery():
    assert Story(1).arrive("e1", sinks=("kafka",)).arrive("e1", sinks=("crm",), accepted=False).kinds() == ["lost"]


def test_stuck():
    story = Story().arrive("e1", "e2").arrive("e3", sinks=("crm",))
    story.history.waiting["e3", "kafka"] = "PENDING"
    assert story.kinds() == ["stuck"]


@pytest.mark.parametrize("accepted", [True, False])
def test_phantom(accepted):
    story = Story()
    story.event("gone", "k", 4, Transaction("1.2", "plain", asynchronous=True, outcome="committed"), committed=False)
    assert story.arrive("e1", "e2", "e3").arrive("gone", sinks=("crm",), accepted=accepted).kinds() == ["phantom"]


def test_phantom_of_a_savepoint():
    story = Story()
    story.event("undone", "k", 4, undone=True, committed=False)
    assert story.arrive("e1", "e2", "e3").arrive("undone", sinks=("kafka",)).kinds() == ["phantom"]


def test_phantom_that_nobody_enqueued():
    assert Story().arrive("e1", "e2", "e3").arrive("stranger", sinks=("kafka",)).kinds() == ["phantom"]


def test_disorder():
    assert Story().arrive("e1", sinks=("crm",)).arrive("e3", "e2", sinks=("crm",)).arrive("e1", "e2", "e3", sinks=("kafka",)).kinds() \
        == ["disorder"]


def test_disorder_that_a_fault_does_not_excuse():
    assert Story().fault(0.1, 9).arrive("e1", "e3", "e2").kinds() == ["disorder", "disorder"]


def test_disorder_hidden_by_duplicates():
    """The second delivery of e2 is in time, the first one was not."""
    assert Story().fault(0.1, 9).arrive("e1", "e3", "e2", "e3", sinks=("crm",)).arrive("e1", "e2", "e3", sinks=("kafka",)).kinds() \
        == ["disorder"]


def test_disorder_of_a_request_that_was_refused():
    """e2 was sent while the refused e1 was still to be sent again: that e2 was refused too does not excuse it."""
    story = Story(2).arrive("e1", "e2", sinks=("crm",), accepted=False)
    assert story.arrive("e1", "e2").kinds() == ["disorder"]


def test_duplicate_without_a_fault():
    assert Story().arrive("e1", "e2").arrive("e2", sinks=("kafka",)).arrive("e3").kinds() == ["duplicate without a fault"]


def test_duplicate_before_the_fault():
    assert Story().arrive("e1", "e1", "e2", "e3").fault(5, 6).kinds() == ["duplicate without a fault"] * 2


def test_duplicate_long_after_the_fault():
    assert Story(9).fault(0.1, 0.2).arrive(*(f"e{n}" for n in range(1, 10)), "e9").kinds() == ["duplicate without a fault"] * 2


def test_more_duplicates_than_the_bound():
    assert Story().arrive("e1", "e2").fault(2.1, 2.2, bound=3).arrive("e1", "e2", "e3").kinds() == ["duplicates over the bound"]


def test_the_bound_of_one_fault_is_not_lent_to_another():
    story = Story().arrive("e1", "e2").fault(2.1, 2.2, bound=4).arrive("e3").fault(9, 9.1, bound=100)
    assert story.arrive("e1", "e2", "e1").kinds() == ["duplicates over the bound"] * 2


def test_id_missing():
    story = Story().arrive("e1", "e2", "e3")
    story.history.arrivals.append(Arrival("kafka", None, "k", 3, "e3", 9, True, "offset 9"))
    assert story.kinds() == ["id missing"]


def test_wrong_id():
    story = Story().arrive("e1", "e2", "e3")
    story.history.arrivals[-1].body_id = "e2"
    assert story.kinds() == ["wrong id"]


def test_a_synchronous_commit_that_is_gone():
    story = Story()
    story.event("gone", "k", 4, committed=False)
    assert story.arrive("e1", "e2", "e3").kinds() == ["ledger"]


def test_a_rollback_that_left_its_ledger_row():
    assert Story(1, Transaction("1.1", "plain", outcome="rolled back")).arrive("e1").kinds() == ["ledger"]

"""Which sinks take an event: what the index of names and headers finds is what comparing the event with each sink finds."""

import json
import random
from fnmatch import fnmatchcase

import pytest

AGGREGATES, EVENTS, TENANTS = ["Order", "order", "Invoice", "Größe"], ["order.created", "order.paid", "outbox.sink_failing", "x"], ["1", "2", "ü"]
GLOBS = {"aggregates": [*AGGREGATES, "*", "Ord*", "[OI]*", "?rder", "None"], "events": [*EVENTS, "*", "order.*", "outbox.*", "[x]", "none"]}


def some_sink(chance: random.Random) -> dict[str, str]:
    sink = {option: ", ".join(chance.choices(globs, k=chance.randint(1, 3))) for option, globs in GLOBS.items() if chance.random() < 0.7}
    if chance.random() < 0.4:
        sink["match"] = json.dumps({"tenant": chance.choice(TENANTS)} | ({"region": "eu"} if chance.random() < 0.5 else {}))
    return sink


def takes(sink: dict[str, str], aggregate: str, event: str, headers: dict[str, str]) -> bool:
    def fits(option: str, text: str, prefix: str = "") -> bool:
        return any(fnmatchcase(text, glob) for glob in sink.get(option, "*").split(", ") if glob.startswith(prefix))

    return (fits("aggregates", aggregate) and fits("events", event, "outbox." if event.startswith("outbox.") else "")
            and all(headers.get(name) == value for name, value in json.loads(sink.get("match", "{}")).items()))


@pytest.mark.parametrize("n", [4, 12, 60])
def test_the_index_finds_what_a_comparison_finds(db, receiver, n):
    chance = random.Random(n)
    sinks = {f"s{number}": some_sink(chance) for number in range(n)}
    for name, options in sinks.items():
        db.webhook_sink(name, receiver, **options)
    found = 0
    with db.connect(autocommit=False) as session:  # never committed
        for aggregate in [*AGGREGATES, "Ordered"]:
            for event in [*EVENTS, "y"]:
                for headers in [{}, {"tenant": "1"}, {"tenant": "ü", "region": "eu"}, {"tenant": "2", "region": "us"}]:
                    session.execute("SELECT outbox.enqueue(%s, 'k', %s, '{}', headers => %s::jsonb)", [aggregate, event, json.dumps(headers)])
                    took = {sink for (sink,) in session.execute("DELETE FROM outbox.events RETURNING sink")}
                    assert took == ({name for name, options in sinks.items() if takes(options, aggregate, event, headers)} or {None}), (aggregate, event, headers)
                    found += len(took - {None})
    assert found > 0

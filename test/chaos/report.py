"""The output: a line per cycle, and after a failure the first events with everything known about them."""

import os
from collections import Counter

from checker import Finding, repeats
from cycle import Cycle
from history import History
from sinks import SINKS

FIRST = 3  # events shown of each kind of finding
AROUND = 10  # arrivals before and after a disorder


def line(cycle: Cycle, started: float, seconds: float) -> str:
    history = cycle.history
    outcomes = Counter(t.outcome for t in history.transactions)
    committed = sum(event.committed for event in history.events.values())
    again = Counter(arrival.sink for _, arrival in repeats(history))
    text = f"{len(history.transactions):4} transactions ({outcomes['unknown']} unknown), {committed:4} of {len(history.events):4} events committed"
    text += "; again: " + ", ".join(f"{again[sink]} {sink}" for sink in SINKS)
    failed = sum(status == "FAILED" for status in history.waiting.values())
    text += f", {failed} dead letters" if failed else ""
    faults = ", ".join(f"{f.name} at {f.begun - started:.2f}" for f in history.faults) or "no fault"
    return f"{text}; drained in {cycle.drained_in:.1f} of {seconds:.1f} s; {faults}" + "".join(f"; skipped {s}" for s in cycle.skipped)


def findings(found: list[Finding], history: History, started: float) -> str:
    lines = []
    for kind, count in Counter(finding.kind for finding in found).items():
        lines.append(f"\n{kind.upper()}: {count}")
        for finding in [f for f in found if f.kind == kind][:FIRST]:
            lines.append(f"  {finding.text}")
            for id in finding.ids:
                lines += _story(id, history, started)
            if finding.kind == "disorder":
                lines += _neighbours(finding.ids, finding.sink, history, started)
    lines.append("\nfaults, in seconds since the run began:")
    lines += [f"  {f.begun - started:9.3f} .. {f.ended - started:9.3f}  {f.name}, at most {f.bound} duplicates" for f in history.faults]
    return "\n".join(lines)


def _story(id: str, history: History, started: float) -> list[str]:
    event = history.events.get(id)
    lines = [f"    event {id}"]
    if event:
        t = event.transaction
        ended = f"{t.ended - started:.3f}" if t.ended else "never"
        lines.append(f"      key {event.key}, number {event.n}{', undone within its transaction' if event.undone else ''}; ledger: "
                     f"{'there' if event.committed else 'not there'}")
        lines.append(f"      transaction {t.name} ({t.kind}{', asynchronous' if t.asynchronous else ''}) begun "
                     f"{t.begun - started:.3f}, ended {ended}: {t.outcome}")
        lines += [f"      in the table for {sink}: {history.waiting[id, sink]}" for sink in SINKS if (id, sink) in history.waiting]
    told = [(a.at, f"{a.sink}: {a.where}") for a in history.arrivals if a.id == id]
    told += [(t.begun, f"{t.sink}: a user's {t.action}, until {(t.ended or t.begun) - started:.3f}") for t in history.touches if t.id == id]
    return lines + [f"      {at - started:9.3f}  {text}" for at, text in sorted(told)]


def _neighbours(ids: tuple[str, ...], sink: str, history: History, started: float) -> list[str]:
    """The other arrivals of the key at that time."""
    key = history.events[ids[0]].key
    arrivals = [a for a in history.arrivals if a.sink == sink and a.key == key]
    places = [index for index, arrival in enumerate(arrivals) if arrival.id in ids]
    near = arrivals[max(0, min(places) - AROUND):max(places) + AROUND]
    return [f"    key {key} at {sink}:"] + [f"      {a.at - started:9.3f}  number {a.n}: {a.where}" for a in near]


def replay(seed: int, cycle: int) -> str:
    return (f"replay the run: make chaos CYCLES={cycle} SEED={seed}\n"
            f"this cycle alone: make chaos CYCLES=1 FIRST={cycle} SEED={seed}")


def where(logs: list) -> str:
    return "logs: " + " ".join(os.path.relpath(log) for log in logs)

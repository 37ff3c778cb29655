"""Events for Debezium's outbox event router and for outbox, with the record that the router makes of each."""

import json
import random
import re
import uuid
from dataclasses import dataclass

from outbox_rig.documents import Documents

TENANT = "acme"
ORDER = "Order"  # the aggregate type of all events that are not about it
WILD = "wild"  # the event type of documents that are too numerous to list the result of expansion for each
SAME = "what ours makes of it"
FAILS = "nothing: its task fails"
TEXT = "the text of the document as one JSON string"


@dataclass(frozen=True)
class Expanded:
    """The router's result for a payload with table.expand.json.payload: its text, or one of the words above; with
    table.json.payload.null.behavior=optional_bytes; and in an envelope."""

    ignore: str = SAME
    optional_bytes: str | None = None
    enveloped: str | None = None

    def by(self, null_behavior: str, envelope: bool) -> str:
        return (self.enveloped if envelope else self.optional_bytes if null_behavior == "optional_bytes" else None) or self.ignore


@dataclass(frozen=True)
class Event:
    label: str
    id: str
    aggregate_type: str
    aggregate_id: str
    event_type: str
    payload: str | None
    tenant: str | None
    partition: int | None
    created_at: str
    body: bytes | None
    expanded: Expanded


class Corpus:
    def __init__(self):
        self.events: list[Event] = []

    def add(self, label: str, payload: str | None = '{"a": 1}', *, expanded: Expanded = Expanded(), aggregate_type: str = ORDER,
            aggregate_id: str | None = None, event_type: str = "order.created", tenant: str | None = TENANT, partition: int | None = None,
            created_at: str = "2024-05-01 12:00:00.123456", body: bytes | None = b"\x00\xff\x80") -> None:
        number = len(self.events) + 1
        self.events.append(Event(label, str(uuid.uuid5(uuid.NAMESPACE_OID, f"{number} {label}")), aggregate_type,
                                 f"key {number}" if aggregate_id is None else aggregate_id, event_type, payload, tenant, partition, created_at, body, expanded))


def _texts(corpus: Corpus) -> None:
    for label, payload in {
        "simple": '{"a": 1, "b": "x"}', "astral": '{"😀": "😀 𝒳", "a": ["😀"]}', "BMP": '{"ä": "é€\u2028\u2029\ufeff\ufffd\ud7ff\ue000"}',
        "combining": '{"e\u0301": "n\u0303\u200d"}', "control": r'{"a": "\b\f\n\r\t\u0001\u001f\u007f\u0080\u009f", "\u0002": 1}',
        "quotes and backslashes": r'{"a\"b\\c": "\"\\/ \/ \\u001f \\\" {\"x\": [1, 2]}"}', "HTML": '{"a": "<>&\'/"}',
        "spaces in strings": '{"a b": " : , [ ] { } \\t "}',
        "nested": '{"a": {"b": {"c": {"d": {"e": {}}}}}}', "order of members": '{"bb": 1, "a": 2, "ccc": {"zz": 1, "y": 2}}',
        "duplicate members": '{"a": 1, "a": 2, "b": 3}', "names with dots": '{"a.b": 1, "c-d": 2, "1": 3, " ": 4}',
        "names of the envelope": '{"schema": 5, "payload": {"a": 1}}', "booleans": '{"a": true, "b": [true, false]}', "empty object": "{}",
        "many members": json.dumps({f"member {number}": number for number in range(300)}),
        "800 kB": json.dumps({"a": "x" * 800_000}), "escapes around blocks": json.dumps({"a": ["y" * before + "😀\n\x1f" for before in range(990, 1030)]}),
    }.items():
        corpus.add(label, payload)


def _numbers(corpus: Corpus) -> None:
    for payload in ('{"a": 2147483647, "b": -2147483648}', '{"a": 2147483648, "b": [2147483648, 4294967296]}', '{"a": -0, "b": 1E+2}',
                    '{"a": 9223372036854775807, "b": -9223372036854775808}', '{"a": [1, 2], "b": [[1], [2, 3]], "c": [[1], []]}',
                    '{"a": 0.1, "b": 1.0, "c": -0.0, "d": 0.001, "e": [1.5, 2.25], "f": 1234567.125}'):
        corpus.add(f"numbers {payload}", payload)
    for number, ignore in {"9223372036854775808": FAILS, "-9223372036854775809": FAILS, "1e400": FAILS, "1e-400": '{"a":0.0}', "1.10": '{"a":1.1}',
                           "0.0001": '{"a":1.0E-4}', "10000000.5": '{"a":1.00000005E7}',
                           "3.14159265358979323846264338327950288": '{"a":3.141592653589793}'}.items():
        corpus.add(f"number {number}", f'{{"a": {number}}}', expanded=Expanded(ignore))


def _lost_by_expansion(corpus: Corpus) -> None:
    """The router's inferred schema has no null, no empty array, and only arrays of a single type."""
    for payload, expanded in {
        '{"a": null, "b": 1}': Expanded(), '{"a": {"b": null, "c": {"d": [], "e": null}}}': Expanded(), '{"a": null}': Expanded(),
        '{"a": [], "b": 1}': Expanded(), '{"a": {}, "b": {"c": {}}, "d": {"e": []}}': Expanded(),
        "[]": Expanded(TEXT, enveloped=FAILS), "[1, 2, 3]": Expanded(FAILS), '[{"a": 1}, {"a": 2}]': Expanded(FAILS),
        '""': Expanded(TEXT), '"  "': Expanded(TEXT), "null": Expanded(TEXT), "true": Expanded(TEXT), "42": Expanded(TEXT), "1.50": Expanded(TEXT),
        r'"te\"xt\n😀\u001f"': Expanded(TEXT),
        '{"a": [1, null, 2], "b": [null, "x"], "c": [{"d": 1}, null]}': Expanded(), '{"a": [null]}': Expanded(TEXT, SAME),
        '{"a": [1, "x"]}': Expanded(TEXT), '{"a": [1, 2147483648]}': Expanded(TEXT), '{"a": [1, 1.5]}': Expanded(TEXT), '{"a": [[], [1]]}': Expanded(TEXT),
        '{"a": [[1], ["x"]]}': Expanded(FAILS), '{"a": [{"b": 1}, {"b": "x"}]}': Expanded(FAILS), '{"": 1}': Expanded(TEXT),
        '{"a": [{"b": 1, "c": "x"}, {"b": 2, "c": "y"}], "d": [{}, {}]}': Expanded(),
        '{"a": [{"b": []}, {"b": [1]}]}': Expanded('{"a":[{"b":[]},{"b":[1]}]}'), '{"a": [{"b": null}, {"b": 2}]}': Expanded('{"a":[{"b":null},{"b":2}]}'),
        '{"a": [{"b": 1}, {"b": 2, "c": 3}, {"b": 4}]}': Expanded('{"a":[{"b":1,"c":null},{"b":2,"c":3},{"b":4,"c":null}]}'),
    }.items():
        corpus.add(f"expanded {payload}", payload, expanded=expanded)


def _columns(corpus: Corpus) -> None:
    for label, key in {"empty": "", "spaces": " a b ", "astral": "😀", "quotes": '"\\/', "control": "\x01\n\t\x7f", "BMP": "ä€\u2028", "number": "42",
                       "JSON": '{"a":1}', "combining": "e\u0301", "long": "".join(random.Random(1).choices("0123456789abcdefghijklmnopqrstuvwxyz ä", k=2000))}.items():
        corpus.add(f"key {label}", aggregate_id=key)
    for aggregate_type in ("sales.Order.v2", "UPPER_lower-1", "a..b"):
        for number in range(3):
            corpus.add(f"aggregate type {aggregate_type} {number}", aggregate_type=aggregate_type)
    for event_type in ("OrderCreated", "order.line_changed-2", "ORDER"):
        corpus.add(f"event type {event_type}", event_type=event_type)
    for label, tenant in {"odd": '😀 "q" \\ \t\x01', "empty": "", "number": "1.50", "none": None}.items():
        corpus.add(f"tenant {label}", tenant=tenant)
    for partition in range(12):
        corpus.add(f"partition {partition}", partition=partition)
    for created_at in ("2024-05-01 12:00:00", "2024-02-29 23:59:59.999999", "2001-01-01 00:00:00.001"):
        corpus.add(f"time {created_at}", created_at=created_at)
    for label, body in {"empty": b"", "all bytes": bytes(range(256)), "framed": b"\x00\x00\x00\x00\x07\xc3\xff", "none": None, "800 kB": bytes(range(256)) * 3125}.items():
        corpus.add(f"bytes {label}", body=body)
    corpus.add("no payload", None, expanded=Expanded("null"))


class Plain(Documents):
    """Documents that lose nothing by expansion."""

    def value(self, depth: int) -> str:
        kinds = [lambda: self.random.choice(["true", "false"]), self.string, lambda: str(self.random.randrange(-2**31, 2**31)),
                 lambda: str(self.random.randrange(2**31, 2**63)), lambda: f"{self.random.randrange(1000)}.5"]
        kind = self.random.choice(kinds)
        if depth and self.random.random() < 0.7:
            if self.random.random() < 0.3:
                return "[" + ", ".join(kind() for _ in range(self.random.randrange(1, 5))) + "]"
            return self.object(depth)
        return kind()

    def object(self, depth: int) -> str:
        return "{" + ",".join(f"{json.dumps(f'{number}' + json.loads(self.string(6)))}:{self.value(depth - 1)}" for number in range(self.random.randrange(6))) + "}"


def events() -> list[Event]:
    corpus = Corpus()
    for part in (_texts, _numbers, _lost_by_expansion, _columns):
        part(corpus)
    plain, wild = Plain(seed=11), Documents(seed=12)
    for number in range(60):
        corpus.add(f"generated {number}", plain.object(3), tenant=f"tenant {number % 7}")
    for number in range(150):
        corpus.add(f"wild {number}", wild.value(4), event_type=WILD)
    return corpus.events


# ---- texts of JSON as Kafka Connect's JsonConverter (Jackson) writes them ---------------------------------------------

class Number(str):
    """A number, written as it is."""


def _surrogates(character: re.Match) -> str:
    units = character[0].encode("utf-16-be").hex().upper()
    return f"\\u{units[:4]}\\u{units[4:]}"


def one_string(text: str) -> str:
    """A text as one JSON string."""
    literal = json.dumps(text, ensure_ascii=False)
    literal = re.sub(r"\\\\|\\u00[01][0-9a-f]", lambda found: found[0][:2] + found[0][2:].upper(), literal)
    return re.sub("[\U00010000-\U0010ffff]", _surrogates, literal)


def _compact(value, dropped: list) -> str:
    if isinstance(value, Number):
        return value
    if isinstance(value, str):
        return one_string(value)
    if isinstance(value, list):
        return "[" + ",".join(_compact(element, dropped) for element in value) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{one_string(name)}:{_compact(member, dropped)}" for name, member in value.items() if member not in dropped) + "}"
    return json.dumps(value)


def compact(text: str, null_behavior: str) -> str:
    """The text of a jsonb without white space, and without the members that a null_behavior leaves out."""
    dropped = {"keep": [], "ignore": [None, []], "optional_bytes": [[]]}[null_behavior]
    return _compact(json.loads(text, parse_int=Number, parse_float=Number), dropped)

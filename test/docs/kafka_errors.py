"""The table of errors in docs/kafka-reference.md, generated from the table that the sink uses: `make docs` writes it, a test
compares it."""

import re

import psycopg
from outbox_rig.paths import ROOT

PAGE = ROOT / "docs/kafka-reference.md"
CODE = ROOT / "sinks/kafka"
BEGIN, END = "<!-- made by make docs -->\n", "<!-- end -->\n"


def faults() -> dict[str, str]:
    """The values of the enumeration KafkaFault: the meaning and the consequence of each."""
    [body] = re.findall(r"enum class KafkaFault {(.*?)};", (CODE / "kafka_errors.h").read_text(), re.DOTALL)
    return dict(re.findall(r"(\w+),?\s+/\* (.*?) \*/", body))


def errors() -> list[tuple[str, str]]:
    """(name, fault)."""
    rows = re.findall(r'{-?\d+, "(\w+)", KafkaFault::(\w+), OB_REASON_\w+},', (CODE / "kafka_error_table.cpp").read_text())
    if len(rows) < 70:
        raise ValueError("the table of errors is not to be read")
    return rows


def made(connection: psycopg.Connection) -> str:
    table = "| it concerns | errors |\n|---|---|\n"
    for fault, meaning in faults().items():
        names = " ".join(f"`{name}`" for name, of in errors() if of == fault)
        table += f"| {meaning} | {names} |\n"
    head, rest = PAGE.read_text().split(BEGIN)
    return head + BEGIN + table + END + rest.split(END, 1)[1]

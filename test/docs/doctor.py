"""The tables of causes in docs/operations.md, generated from src/extension/doctor_causes.toml: `make docs` writes them, a test compares
them."""

import tomllib
from dataclasses import dataclass, field

import psycopg
from outbox_rig.paths import ROOT

PAGE = ROOT / "docs/operations.md"
SOURCE = ROOT / "src/extension/doctor_causes.toml"
BEGIN, END = "<!-- causes: made by make docs from src/extension/doctor_causes.toml -->\n", "<!-- end of causes -->\n"


@dataclass
class Cause:
    check: str
    cause: str
    cure: str = ""  # of advice it is the hint
    says: list[str] | str = field(default_factory=list)  # texts of the row's detail; none for advice, whose row has a check of its own

    def __post_init__(self) -> None:
        self.says = [self.says] if isinstance(self.says, str) else self.says

    def row(self) -> str:
        return f"`{self.check}`: " + ", ".join(f"`{text.strip()}`" for text in self.says)


@dataclass
class Group:
    heading: str
    checks: dict[str, str]  # what each looks at
    cause: list[Cause]
    complete: list[str] = field(default_factory=list)  # texts of rows that need no more

    def __post_init__(self) -> None:
        self.cause = [Cause(**cause) for cause in self.cause]

    def text(self) -> str:
        looks = "; ".join(f"`{check}`: {looks}" for check, looks in self.checks.items())
        text = f"### {self.heading}\n{looks}.\n\n"
        if not any(cause.says for cause in self.cause):
            return text + "".join(f"- `{cause.check.split()[-1]}`: {cause.cause}\n" for cause in self.cause) + "\n"
        text += "| the row | cause | cure |\n|---|---|---|\n"
        return text + "".join(f"| {cause.row()} | {cause.cause} | {cause.cure} |\n" for cause in self.cause) + "\n"


def groups() -> list[Group]:
    return [Group(**group) for group in tomllib.loads(SOURCE.read_text())["group"]]


def made(connection: psycopg.Connection) -> str:
    head, rest = PAGE.read_text().split(BEGIN)
    return head + BEGIN + "".join(group.text() for group in groups()) + END + rest.split(END, 1)[1]

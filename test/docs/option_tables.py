"""The tables of options on the pages of kinds of sink, generated from the tables of the code: `make docs` writes them, a test compares them."""

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import psycopg
from outbox_rig.paths import ROOT

BEGIN, END = "<!-- options of the {place}: made by make docs -->\n", "<!-- end of options -->\n"
EVERY = "every kind"
SHARED = ROOT / "docs/sinks.md"
LIBRARIES = ("-lcurl", "-lssl", "-lcrypto", "-lpthread")


@dataclass(frozen=True)
class Row:
    place: str
    name: str
    form: str
    unit: str  # of a number
    default: str
    values: str
    text: str


@dataclass(frozen=True)
class Page:
    PAGE: Path
    files: tuple[str, ...]  # what the table is compiled or linked from, beside the kit
    header: str
    options: str
    kind: str

    def made(self, connection: psycopg.Connection) -> str:
        text, shared = self.PAGE.read_text(), {row for row, _ in of_several_kinds()}
        for place in dict.fromkeys(row.place for row in self.rows()):
            # A row that is the same in both places stands with the server.
            rows = [row for row in self.rows() if row.place == place and (place == "server" or replace(row, place="server") not in self.rows())]
            assert all(row.text.endswith(".") for row in rows), f"an option of {self.kind} has no text"
            own, others = [row for row in rows if row not in shared], [f"`{row.name}`" for row in rows if row in shared]
            parts = [table(own, self.PAGE)] * bool(own)
            parts += [f"{'And [shared' if own else '[Shared'} options]({relative_to(self.PAGE, SHARED)}#options-of-several-kinds): {', '.join(others)}.\n"] * bool(others)
            text = between(text, place, "\n".join(parts))
        return text

    @cache
    def rows(self) -> list[Row]:
        with tempfile.TemporaryDirectory() as directory:
            program = Path(directory) / "print_options"
            # The functions that the parsers call in other files are not called here. So no client library of a kind is needed.
            subprocess.run(["g++", "-std=c++20", f"-I{ROOT / 'src'}", "-include", ROOT / self.header, f"-DOPTIONS={self.options}", "-o", program,
                            ROOT / "test/docs/print_options.cpp", *(ROOT / each for each in self.files), ROOT / "liboutbox_sink.a", *LIBRARIES,
                            "-no-pie", "-Wl,--unresolved-symbols=ignore-all"], check=True)
            lines = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
            return [Row(*line.split("\t")) for line in lines]


def relative_to(page: Path, target: Path) -> str:
    return "" if target == page else os.path.relpath(target, page.parent)


def relative(text: str, page: Path) -> str:
    """Links in texts of options begin at the top of the source tree."""
    return re.sub(r"\]\((?!https?:|#)([^)#]*)", lambda link: "](" + relative_to(page, ROOT / link[1]), text)


def table(rows: list[Row], page: Path) -> str:
    return "| option | default | values | |\n|---|---|---|---|\n" + "".join(
        f"| `{row.name}` | {row.default} | {row.values} | {relative(row.text, page)} |\n" for row in rows)


def between(text: str, place: str, made: str) -> str:
    """The page with the generated part of that place."""
    head, rest = text.split(BEGIN.format(place=place))
    return head + BEGIN.format(place=place) + made + END + rest.split(END, 1)[1]


def of_kind(kind: str, title: str, options: str, *more: str) -> Page:
    """`more`: the files of parsers that stand elsewhere."""
    return Page(ROOT / f"sinks/{kind}/README.md", tuple(f"sinks/{kind}/{name}.cpp" for name in (f"{kind}_options", *more)),
                f"sinks/{kind}/{kind}_options.h", f"outbox::{options}::table().specs()", title)


TABLES = (
    Page(SHARED, (), "src/delivery/options/common_options.h", "outbox::CommonOptions::table().specs()", EVERY),
    Page(ROOT / "docs/kafka-reference.md", tuple(f"sinks/kafka/kafka_{name}.o" for name in ("config", "record", "token_options")),
         "sinks/kafka/kafka_config.h", "outbox::KafkaOptions::table().specs()", "Kafka"),
    Page(ROOT / "docs/webhooks-reference.md", tuple(f"sinks/webhook/webhook_{name}.o" for name in ("options", "auth", "body", "forward", "url")),
         "sinks/webhook/webhook_options.h", "outbox::WebhookOptions::table().specs()", "webhook"),
    of_kind("rabbitmq", "RabbitMQ", "rabbitmq::RabbitOptions"),
    of_kind("nats", "NATS", "nats::NatsOptions"),
    of_kind("redis", "Redis", "redis::RedisOptions"),
    of_kind("aws", "AWS", "aws_sink::AwsOptions", "target"),
    of_kind("grpc", "gRPC", "grpc::GrpcOptions"),
)


class SeveralKinds:
    """The options that are the same in several kinds. What else a kind has stands on its own page."""

    PAGE = SHARED

    def made(self, connection: psycopg.Connection) -> str:
        text = self.PAGE.read_text()
        for place in ("server", "user mapping"):
            rows = "".join(f"| `{row.name}` | {', '.join(kinds)} | {row.default} | {row.values} | {relative(row.text, self.PAGE)} |\n"
                           for row, kinds in of_several_kinds() if row.place == place)
            text = between(text, f"{place}, of several kinds", "| option | kinds | default | values | |\n|---|---|---|---|---|\n" + rows)
        return text


@cache
def of_several_kinds() -> list[tuple[Row, list[str]]]:
    """With the kinds that have them; those of the same kinds together."""
    found: dict[Row, list[str]] = {}
    for each in TABLES:
        for row in each.rows():
            found.setdefault(row, []).append(each.kind)
    kinds = [each.kind for each in TABLES]
    return sorted(((row, having) for row, having in found.items() if len(having) > 1), key=lambda each: [kinds.index(kind) for kind in each[1]])


def every_option() -> dict[str, list[str]]:
    """Of each name its forms."""
    found: dict[str, list[str]] = {}
    for each in TABLES:
        for row in each.rows():
            form, forms = f"{row.form}: {row.unit}" if row.unit else row.form, found.setdefault(row.name, [])
            forms += [form] * (form not in forms)
    return found


PAGES = (*TABLES, SeveralKinds())

"""The tables of options on the pages of kinds of sink, generated from the tables of the code: `make docs` writes them, a test compares them."""

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psycopg
from outbox_rig.paths import ROOT

BEGIN, END = "<!-- options of the {place}: made by make docs -->\n", "<!-- end of options -->\n"
ALL = "all"
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
        text, places = self.PAGE.read_text(), {}
        for row in self.rows():
            assert row.text.endswith("."), f"option {row.name} has no text"
            places.setdefault(row.place, []).append(f"| `{row.name}` | {row.default} | {row.values} | {relative(row.text, self.PAGE)} |\n")
        for place, rows in places.items():
            begin = BEGIN.format(place=place)
            head, rest = text.split(begin)
            text = head + begin + "| option | default | values | |\n|---|---|---|---|\n" + "".join(rows) + END + rest.split(END, 1)[1]
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


def relative(text: str, page: Path) -> str:
    """Links in texts of options begin at the top of the source tree."""
    return re.sub(r"\]\((?!https?:|#)([^)#]*)", lambda link: "](" + os.path.relpath(ROOT / link[1], page.parent) if ROOT / link[1] != page else "](", text)


def of_kind(kind: str, title: str, options: str, *more: str) -> Page:
    """`more`: the files of parsers that stand elsewhere."""
    return Page(ROOT / f"sinks/{kind}/README.md", tuple(f"sinks/{kind}/{name}.cpp" for name in (f"{kind}_options", *more)),
                f"sinks/{kind}/{kind}_options.h", f"outbox::{options}::table().specs()", title)


TABLES = (
    Page(ROOT / "docs/sinks.md", (), "src/delivery/options/common_options.h", "outbox::CommonOptions::table().specs()", ALL),
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


class EveryKind:
    """The table of all options and the kinds that have them. What each does stands on the kind's page."""

    PAGE = ROOT / "docs/sinks.md"

    def made(self, connection: psycopg.Connection) -> str:
        begin = BEGIN.format(place="kinds")
        head, rest = self.PAGE.read_text().split(begin)
        rows = "".join(f"| `{name}` | {' or '.join(forms)} | {', '.join(kinds)} |\n" for name, (forms, kinds) in sorted(every_option().items()))
        return head + begin + "| option | form of its value | kinds |\n|---|---|---|\n" + rows + END + rest.split(END, 1)[1]


def every_option() -> dict[str, tuple[list[str], list[str]]]:
    """Of each name its forms, and the kinds that have it."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for table in TABLES:
        for row in table.rows():
            forms, kinds = found.setdefault(row.name, ([], []))
            form = f"{row.form}: {row.unit}" if row.unit else row.form
            forms += [form] * (form not in forms)
            kinds += [table.kind] * (table.kind not in kinds)
    return found


PAGES = (*TABLES, EveryKind())

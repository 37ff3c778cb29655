"""The tables of options on the pages of kinds of sink, generated from the tables of the code: `make docs` writes them, a test compares them."""

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psycopg
from outbox_rig.paths import ROOT

BEGIN, END = "<!-- options of the {place}: made by make docs -->\n", "<!-- end of options -->\n"
LIBRARIES = ("-lcurl", "-lssl", "-lcrypto", "-lpthread")


@dataclass
class Page:
    PAGE: Path
    files: tuple[str, ...]  # what the table is compiled or linked from, beside the kit
    header: str
    options: str

    def made(self, connection: psycopg.Connection) -> str:
        text, places = self.PAGE.read_text(), {}
        for line in self.rows().splitlines():
            place, name, default, values, description = line.split("\t")
            assert description.endswith("."), f"option {name} has no text"
            places.setdefault(place, []).append(f"| `{name}` | {default} | {values} | {relative(description, self.PAGE)} |\n")
        for place, rows in places.items():
            begin = BEGIN.format(place=place)
            head, rest = text.split(begin)
            text = head + begin + "| option | default | values | |\n|---|---|---|---|\n" + "".join(rows) + END + rest.split(END, 1)[1]
        return text

    def rows(self) -> str:
        with tempfile.TemporaryDirectory() as directory:
            program = Path(directory) / "print_options"
            # The functions that the parsers call in other files are not called here. So no client library of a kind is needed.
            subprocess.run(["g++", "-std=c++20", f"-I{ROOT / 'src'}", "-include", ROOT / self.header, f"-DOPTIONS={self.options}", "-o", program,
                            ROOT / "test/docs/print_options.cpp", *(ROOT / each for each in self.files), ROOT / "liboutbox_sink.a", *LIBRARIES,
                            "-no-pie", "-Wl,--unresolved-symbols=ignore-all"], check=True)
            return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def relative(text: str, page: Path) -> str:
    """Links in texts of options begin at the top of the source tree."""
    return re.sub(r"\]\((?!https?:|#)([^)#]*)", lambda link: "](" + os.path.relpath(ROOT / link[1], page.parent) if ROOT / link[1] != page else "](", text)


def of_kind(kind: str, options: str, *more: str) -> Page:
    """`more`: the files of parsers that stand elsewhere."""
    return Page(ROOT / f"sinks/{kind}/README.md", tuple(f"sinks/{kind}/{name}.cpp" for name in (f"{kind}_options", *more)),
                f"sinks/{kind}/{kind}_options.h", f"outbox::{options}::table().specs()")


PAGES = (
    Page(ROOT / "docs/sinks.md", (), "src/delivery/options/common_options.h", "outbox::CommonOptions::table().specs()"),
    Page(ROOT / "docs/kafka-reference.md", tuple(f"sinks/kafka/kafka_{name}.o" for name in ("config", "record", "token_options")),
         "sinks/kafka/kafka_config.h", "outbox::KafkaOptions::table().specs()"),
    Page(ROOT / "docs/webhooks-reference.md", tuple(f"sinks/webhook/webhook_{name}.o" for name in ("options", "auth", "body", "forward", "url")),
         "sinks/webhook/webhook_options.h", "outbox::WebhookOptions::table().specs()"),
    of_kind("aws", "aws_sink::AwsOptions", "target"),
    of_kind("grpc", "grpc::GrpcOptions"),
    of_kind("nats", "nats::NatsOptions"),
    of_kind("rabbitmq", "rabbitmq::RabbitOptions"),
    of_kind("redis", "redis::RedisOptions"),
)

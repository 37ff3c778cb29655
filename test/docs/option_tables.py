"""The tables of options on the pages of kinds of sink, generated from the tables of the code: `make docs` writes them, a test compares them."""

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psycopg
from outbox_rig.paths import ROOT, pg_config

BEGIN, END = "<!-- options of the {place}: made by make docs -->\n", "<!-- end of options -->\n"
LIBRARIES = ("-lcurl", "-lssl", "-lcrypto", "-lpthread")


@dataclass
class Page:
    PAGE: Path
    objects: tuple[str, ...]  # made by their own Makefile
    header: str
    options: str

    def made(self, connection: psycopg.Connection) -> str:
        text, places = self.PAGE.read_text(), {}
        for line in self.rows().splitlines():
            place, name, default, values, description = line.split("\t")
            places.setdefault(place, []).append(f"| `{name}` | {default} | {values} | {relative(description, self.PAGE)} |\n")
        for place, rows in places.items():
            begin = BEGIN.format(place=place)
            head, rest = text.split(begin)
            text = head + begin + "| option | default | values | |\n|---|---|---|---|\n" + "".join(rows) + END + rest.split(END, 1)[1]
        return text

    def rows(self) -> str:
        folder = (ROOT / self.objects[0]).parent
        subprocess.run(["make", "-s", "-C", folder, f"PG_CONFIG={pg_config('bindir') / 'pg_config'}", *(Path(each).name for each in self.objects)], check=True)
        with tempfile.TemporaryDirectory() as directory:
            program = Path(directory) / "print_options"
            # The functions that the parsers call in other files are not called here.
            subprocess.run(["g++", "-std=c++20", f"-I{ROOT / 'src'}", "-include", ROOT / self.header, f"-DOPTIONS={self.options}", "-o", program,
                            ROOT / "test/docs/print_options.cpp", *(ROOT / each for each in self.objects), ROOT / "liboutbox_sink.a", *LIBRARIES,
                            "-no-pie", "-Wl,--unresolved-symbols=ignore-all"], check=True)
            return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def relative(text: str, page: Path) -> str:
    """Links in texts of options begin at the top of the source tree."""
    return re.sub(r"\]\((?!https?:|#)([^)#]*)", lambda link: "](" + os.path.relpath(ROOT / link[1], page.parent) if ROOT / link[1] != page else "](", text)


def of_kind(kind: str, options: str, *more: str) -> Page:
    """`more`: the objects of parsers that stand in other files."""
    return Page(ROOT / f"sinks/{kind}/README.md", tuple(f"sinks/{kind}/{name}.o" for name in (f"{kind}_options", *more)),
                f"sinks/{kind}/{kind}_options.h", f"outbox::{kind}::{options}::table().specs()")


PAGES = (of_kind("nats", "NatsOptions", "nkey", "subject"), of_kind("rabbitmq", "RabbitOptions"), of_kind("redis", "RedisOptions"))

"""The causes and cures of the console's page Doctor, generated from src/extension/doctor_causes.toml: `make docs` writes them, a test compares them."""

import json
import re

import doctor
import psycopg
from outbox_rig.paths import ROOT

PAGE = ROOT / "console/pages/doctor_causes.cpp"
HEAD = """/* doctor_causes.cpp: what findings mean; made by make docs from src/extension/doctor_causes.toml. */
#include "console/pages/doctor_causes.h"

// clang-format off
namespace console {

static constexpr DoctorCause causes[] = {
"""
END = """};

std::span<const DoctorCause> doctor_causes() { return causes; }

}  // namespace console
"""


def place(link: re.Match) -> str:
    page, _, _ = link[2].partition("#")
    return f"{link[1]} (docs/{page or 'operations.md'})"


def plain(text: str) -> str:
    """A C++ literal of the text; a link is its text and the page to which it leads."""
    return json.dumps(re.sub(r"\[([^]]*)\]\(([^)]*)\)", place, text), ensure_ascii=False)


def made(_: psycopg.Connection) -> str:
    return HEAD + "".join(f"    {{{plain(cause.check)}, {plain(text.strip())},\n     {plain(cause.cause)},\n     {plain(cause.cure)}}},\n"
                          for group in doctor.groups() for cause in group.cause for text in cause.says) + END

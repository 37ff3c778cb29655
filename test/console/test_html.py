"""html() and Sql() cannot be misused: what would let a text become markup or SQL does not compile."""

import subprocess

import pytest
from outbox_rig.paths import ROOT

HEAD = """#include "console/html/html.h"
#include "console/database/statement.h"
#include <string>
using namespace console;
int main() { std::string text = "<b>"; Html part; Link link("/sink", {{"name", text}}); (void)part; (void)link; """


def compiles(body: str) -> subprocess.CompletedProcess:
    return subprocess.run(["g++", "-std=c++20", f"-I{ROOT}", "-fsyntax-only", "-x", "c++", "-"], input=HEAD + body + "}", capture_output=True, text=True)


@pytest.mark.parametrize("body", [
    'html("<p>{}</p>", text);', 'html(R"(<p class="{}">{}</p>)", text, 5);', 'html(R"(<a href="{}">{}</a>)", link, part);',
    'Sql("SELECT {}", text);', 'html("no text");'])
def test_what_is_safe_compiles(body):
    assert compiles(body).returncode == 0, compiles(body).stderr


@pytest.mark.parametrize("body, says", [
    ("html(text);", ""),
    ("html(text.c_str());", ""),
    ('html("<p class={}>", text);', "neither in a text nor in a quoted attribute"),
    ('html("<{}>", text);', "neither in a text nor in a quoted attribute"),
    ("html(R\"(<p class='{}'>)\", text);", "double quotes"),
    ('html(R"(<a href="{}">)", text);', "take a Link"),
    ('html(R"(<form action="{}">)", text);', "take a Link"),
    ('html(R"(<p class="{}">)", link);', "take a Link"),
    ('html(R"(<p class="{}">)", part);', "neither in a text nor in a quoted attribute"),
    ('html(R"(<p onclick="{}">)", text);', "no {} in this attribute"),
    ('html(R"(<p style="{}">)", text);', "no {} in this attribute"),
    ('html("<script>{}</script>", text);', "files of their own"),
    ('html("<style>{}</style>", text);', "files of their own"),
    ('html(R"(<a href ="{}">)", text);', "an attribute is written"),
    ('html(R"(<a href= "{}">)", text);', "an attribute is written"),
    ('html(R"(<a/href="{}">)", text);', "an attribute is written"),
    ('html(R"(<a HREF="{}">)", text);', "no {} in this attribute"),
    ('html(R"(<iframe srcdoc="{}">)", text);', "no {} in this attribute"),
    ('html("<SCRIPT>{}</SCRIPT>", text);', "small letters"),
    ('Link other(text); (void)other;', ""),
    ('Link other("//evil.example"); (void)other;', "one /"),
    ('html("<p>{}</p>");', "more {} than arguments"),
    ('html("<p></p>", text);', "fewer {} than arguments"),
    ('html("<p");', "no end"),
    ("Sql made{text}; (void)made;", ""),
    ('Sql made{("SELECT " + text).c_str()}; (void)made;', ""),
    ("Html made = text; (void)made;", "")])
def test_what_is_not_does_not(body, says):
    done = compiles(body)
    assert done.returncode != 0 and says in done.stderr, done.stderr

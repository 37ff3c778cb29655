"""docs/settings.md, generated from the server's own list of settings: `make docs` writes it, a test compares it.
Each setting's description, unit, default and range are only in src/server/base/settings.cpp."""

import re

import psycopg
from outbox_rig.paths import ROOT

PAGE = ROOT / "docs/settings.md"
HEAD = """# Settings
Set them in postgresql.conf or by `ALTER SYSTEM`, then reload with `SELECT pg_reload_conf()`. The defaults are good to begin with. Options of a single sink are in
[sinks.md](sinks.md).

A value of `ALTER DATABASE` applies to sessions that begin afterwards, and so to the next worker of the database. To start a new worker at once:
`SELECT pg_terminate_backend(pid) FROM outbox.workers`.

`make docs` makes this page from the descriptions in the server: `SELECT name, setting, unit, short_desc, extra_desc FROM pg_settings WHERE name LIKE 'outbox.%'`.

"""
# By the context that PostgreSQL reports.
CHANGED = {"postmaster": "a restart", "sighup": "a reload", "superuser": "a reload; `ALTER DATABASE`, `ALTER ROLE` and `SET` by superusers"}
SHOWN = """
    SELECT name, short_desc, extra_desc, context, vartype, unit, min_val, max_val, boot_val FROM pg_settings WHERE name LIKE 'outbox.%' ORDER BY name"""


def facts(extra: str) -> tuple[str, dict[str, str]]:
    """A description without unit, default and range, and these three."""
    found = {}
    for word in ("Unit", "Default", "Range"):
        if match := re.search(rf"\s*\b{word}: ((?:[^.(]|\.\.|\.\d|\([^)]*\))*)\.(?=\s|$)", extra):
            found[word] = match[1]
            extra = extra.replace(match[0], "")
    if match := re.search(r"\bThe default is empty([:,]?)([^.]*)\.", extra):
        found.setdefault("Default", "empty")
    return extra.strip(), found


def made(connection: psycopg.Connection) -> str:
    connection.execute("LOAD 'outbox'")
    text = HEAD + "| setting | default | range | takes effect by |\n|---|---|---|---|\n"
    sections = ""
    for name, short, extra, context, kind, unit, lowest, highest, default in connection.execute(SHOWN):
        more, told = facts(extra or "")
        if unit and "Unit" not in told:
            raise ValueError(f"{name}: the description says no unit")
        if "Default" not in told:
            raise ValueError(f"{name}: the description says no default")
        if kind == "integer" and "Range" not in told:
            raise ValueError(f"{name}: the description says no range")
        span = told.get("Range", {"bool": "on, off"}.get(kind, ""))
        text += f"| [`{name}`](#{name.replace('.', '')}) | {told['Default']} | {span} | {CHANGED[context]} |\n"
        sections += f"\n## {name}\n{short} {more}".rstrip() + "\n"
    return text + sections

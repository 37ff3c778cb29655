"""The settings in docs/reference.md, generated from the server's own list of them. Each setting's description, unit, default and range are only in
src/server/base/settings.cpp."""

import re

import psycopg

HEAD = """
## Settings
Set them in postgresql.conf or by `ALTER SYSTEM`, then reload with `SELECT pg_reload_conf()`. Those marked "also by SET" superusers may set by `ALTER DATABASE`,
`ALTER ROLE` and `SET` too: for sessions that begin afterwards, and so for the next worker of the database; to start one at once:
`SELECT pg_terminate_backend(pid) FROM outbox.workers`.
"""
# By the context that PostgreSQL reports.
CHANGED = {"sighup": "", "superuser": "; also by SET"}
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
    text = HEAD
    for name, short, extra, context, kind, unit, lowest, highest, default in connection.execute(SHOWN):
        more, told = facts(extra or "")
        if unit and "Unit" not in told:
            raise ValueError(f"{name}: the description says no unit")
        if "Default" not in told:
            raise ValueError(f"{name}: the description says no default")
        if kind == "integer" and "Range" not in told:
            raise ValueError(f"{name}: the description says no range")
        span = f"; range: {told['Range']}" if "Range" in told else ""
        text += f"\n### {name}\nDefault: {told['Default']}{span}{CHANGED[context]}. {short} {more}".rstrip() + "\n"
    return text

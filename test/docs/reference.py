"""docs/reference.md, generated from the comments on the extension's functions, views and columns: `make docs` writes
it, a test compares it."""

import re

import psycopg
from outbox_rig.paths import ROOT

PAGE = ROOT / "docs/reference.md"
HEAD = """# Functions and views
In psql: `\\df+ outbox.*`, `\\d+ outbox.sinks`. `make docs` makes this page from these descriptions. The schema `outbox_internal` contains internals and is not for use.
Functions of `outbox_inbox` that are not on this page are internals too.

"""
# All functions of the schema outbox, by the user's task, and what is for users in the schema of another extension.
CHAPTERS = {
    "Produce": ("enqueue", "enqueue_bytes", "create_view"),
    "Inspect": ("doctor", "story", "event_status", "preview", "probe", "metrics"),
    "Operate": ("pause", "resume", "redrive", "replay", "wait_delivered", "reset_stats", "adopt", "run_maintenance"),
    "Your own dispatcher": ("claim", "ack", "nack"),
    "Consume": ("outbox_inbox.mark_processed", "outbox_inbox.set_retention", "outbox_inbox.retention", "outbox_inbox.run_maintenance"),
}
RELATIONS = ("sinks", "workers", "events", "stopped_sinks", "leases", "database_metrics", "sink_metrics", "failure_metrics", "outbox_inbox.processed_events")
UNNAMED = """
    SELECT p.proname FROM pg_proc AS p WHERE p.pronamespace = 'outbox'::regnamespace AND p.proname <> ALL (%s)
    UNION ALL SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition AND c.relname <> ALL (%s)"""
FUNCTIONS = """
    SELECT p.oid::regprocedure::text, CASE p.prokind WHEN 'p' THEN 'CALL ' ELSE '' END, pg_get_function_arguments(p.oid),
           CASE WHEN p.prokind = 'p' THEN NULL ELSE pg_get_function_result(p.oid) END, obj_description(p.oid, 'pg_proc')
    FROM pg_proc AS p WHERE p.pronamespace::regnamespace || '.' || p.proname = %s ORDER BY 1"""
# Types and defaults as users write them.
SHORT = ((re.compile(r"(DEFAULT (?:NULL|'[^']*'))::[a-z \[\]]+(?=[,)])"), r"\1"), (re.compile("timestamp with time zone"), "timestamptz"))
COLUMNS = """
    SELECT a.attname, format_type(a.atttypid, a.atttypmod), col_description(a.attrelid, a.attnum)
    FROM pg_attribute AS a WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""


def qualified(name: str) -> str:
    return name if "." in name else f"outbox.{name}"


def made(connection: psycopg.Connection) -> str:
    if rows := connection.execute(UNNAMED, [[name for names in CHAPTERS.values() for name in names], list(RELATIONS)]).fetchall():
        raise ValueError(f"in the schema outbox, and in no chapter: {rows}")
    text = HEAD
    for chapter, names in CHAPTERS.items():
        text += f"## {chapter}\n"
        for name in names:
            name = qualified(name)
            rows = connection.execute(FUNCTIONS, [name]).fetchall()
            if not rows:
                raise ValueError(f"there is no function {name}")
            signatures = "\n".join(f"{call}{name}({arguments}){' → ' + result if result else ''}" for _, call, arguments, result, _ in rows)
            for pattern, short in SHORT:
                signatures = pattern.sub(short, signatures)
            comments = dict.fromkeys(comment for *_, comment in rows)
            text += f"### {name}\n```text\n{signatures}\n```\n" + "\n\n".join(comments) + "\n\n"
    text += "## Views and tables\n"
    for name in map(qualified, RELATIONS):
        comment = connection.execute("SELECT obj_description(%s::regclass, 'pg_class')", [name]).fetchone()[0]
        text += f"### {name}\n{comment}\n\n| column | type | |\n|---|---|---|\n"
        for column, kind, meaning in connection.execute(COLUMNS, [name]):
            text += f"| `{column}` | {kind} | {meaning or ''} |\n"
        text += "\n"
    return text.rstrip("\n") + "\n"

"""docs/reference.md, generated from the comments on the extension's functions, views and columns, and from the server's list of settings: `make docs`
writes it, a test compares it."""

import re

import psycopg
import settings
from outbox_rig.paths import ROOT

PAGE = ROOT / "docs/reference.md"
HEAD = """# Reference: functions, views, settings
In psql: `\\df+ outbox.*`, `\\d+ outbox.sinks`. Internal, and not for use: the schema `outbox_internal`, and functions of `outbox_inbox` that are not on this page.
Options of a sink: [sinks.md](sinks.md#options). Words: [at the end](#words).

"""
# The words of this documentation, of the views and of the messages; each has one meaning.
WORDS = """
## Words
- **event**: one row of `outbox.events` for each sink that takes it, all with the same `id`.
- **aggregate**: what the event happened to: `aggregate_type` ("Order") and `aggregate_id` ("42").
- **key**: `partition_key`, by default the `aggregate_id`; the order is kept within it. A **blocked key** waits for its first event, which has failed.
- **sink**: a destination, a foreign server. Its **kind** is the foreign data wrapper.
- **routing**: the choice of an event's sinks, in the INSERT, by the sinks' options `events`, `aggregates` and `match`.
- **worker**: the background process that delivers a database's events. The **launcher**, one per server, starts workers.
- **position**: the number that orders the rows of `outbox.events`, given in the INSERT; a transaction that commits late is found all the same.
- **in flight**: claimed by a worker and not yet recorded.
- **attempt**: a try that failed for a fault of the event itself. After `max_attempts` the event is a **dead letter**, status `FAILED`.
- **circuit**: it opens when a sink is down as a whole: single events probe the sink, all others wait.
- **redrive**: to send a dead letter again, in its place in the order of its key. **Replay**: to send kept events again.
- **origin**: the cluster and database in which an event was enqueued ([whose event is it](high-availability.md#whose-event-is-it)).
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
# Each metric is a column, and docs/monitoring.md has its meaning.
METRICS = ("outbox.database_metrics", "outbox.sink_metrics", "outbox.failure_metrics")
PARAMETER = re.compile(r"^((?:IN |OUT )?\S+) (.*?)( DEFAULT .*)?$")
# Types and defaults as users write them.
SHORT = ((re.compile(r"(DEFAULT (?:NULL|'[^']*'))::[a-z \[\]]+(?=[,)]|$)"), r"\1"), (re.compile("timestamp with time zone"), "timestamptz"))
COLUMNS = """
    SELECT a.attname, format_type(a.atttypid, a.atttypmod), col_description(a.attrelid, a.attnum)
    FROM pg_attribute AS a WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""


def shortened(types: str) -> str:
    for pattern, short in SHORT:
        types = pattern.sub(short, types)
    return types


def one_signature(lists: list[str]) -> str:
    """Functions that differ only in types are one, with each type that a parameter may have."""
    parts = [[PARAMETER.match(part).groups() for part in re.split(r", (?!OUT$)", arguments)] for arguments in lists if arguments]
    if len(parts) < 2:
        return "".join(lists)
    merged = []
    for found in zip(*parts, strict=True):
        [name] = {name for name, *_ in found}
        default = next((default for *_, default in found if default), "")
        merged.append(f"{name} {' | '.join(dict.fromkeys(kind for _, kind, _ in found))}{default}")
    return ", ".join(merged)


def qualified(name: str) -> str:
    return name if "." in name else f"outbox.{name}"


def made(connection: psycopg.Connection) -> str:
    if rows := connection.execute(UNNAMED, [[name for names in CHAPTERS.values() for name in names], list(RELATIONS)]).fetchall():
        raise ValueError(f"in the schema outbox, and in no chapter: {rows}")
    text = HEAD
    for chapter, names in CHAPTERS.items():
        text += f"## {chapter}\n"
        for name in map(qualified, names):
            rows = connection.execute(FUNCTIONS, [name]).fetchall()
            if not rows:
                raise ValueError(f"there is no function {name}")
            _, call, _, result, _ = rows[0]
            lists = [arguments for _, _, arguments, _, _ in rows]
            returned = f" → {shortened(result)}" if result and "record" not in result else ""  # a record's columns are its OUT parameters
            signatures = f"{call}{name}({one_signature([shortened(arguments) for arguments in lists])}){returned}"
            comments = dict.fromkeys(comment for *_, comment in rows)
            text += f"### {name}\n```text\n{signatures}\n```\n" + "\n\n".join(comments) + "\n\n"
    text += "## Views and tables\n"
    for name in map(qualified, RELATIONS):
        comment = connection.execute("SELECT obj_description(%s::regclass, 'pg_class')", [name]).fetchone()[0]
        text += f"### {name}\n{comment}"
        if name == METRICS[-1]:
            text += f" The columns of these {len(METRICS)} views are the [metrics](monitoring.md#metrics) and their labels, named without `outbox_`."
        if name in METRICS:
            text += "\n\n"
            continue
        text += "\n\n| column | type | |\n|---|---|---|\n"
        for column, kind, meaning in connection.execute(COLUMNS, [name]):
            text += f"| `{column}` | {shortened(kind)} | {meaning or ''} |\n"
        text += "\n"
    return text.rstrip("\n") + "\n" + settings.made(connection) + WORDS

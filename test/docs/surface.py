"""test/docs/surface.txt: the names that docs/compatibility.md promises to keep, a line each. `make surface` writes it after a change that was meant; a test
compares it. Functions, columns and settings are what the server tells; options are those of the tables in the code; SQLSTATEs are read from the
source."""

import re
import tomllib

import psycopg
from outbox_rig.paths import ROOT, pg_config

import option_tables
import reference

FILE = ROOT / "test/docs/surface.txt"
FUNCTIONS = """
    SELECT DISTINCT p.proname || '(' || pg_get_function_arguments(p.oid) || ')' || coalesce(' -> ' || pg_get_function_result(p.oid), '')
    FROM pg_proc AS p WHERE p.pronamespace::regnamespace || '.' || p.proname = %s"""
RELATIONS = """
    SELECT c.oid::regclass::text, CASE c.relkind WHEN 'v' THEN 'view' WHEN 'S' THEN 'sequence' ELSE 'table' END
    FROM pg_class AS c WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S') AND c.relname !~ '_[0-9]{8}$'"""
COLUMNS = """
    SELECT a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
           || coalesce((SELECT ' COLLATE ' || quote_ident(l.collname) FROM pg_collation AS l WHERE l.oid = a.attcollation AND l.collname = 'C'), '')
    FROM pg_attribute AS a WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
SETTINGS = "SELECT name, vartype, unit, boot_val, min_val, max_val, context FROM pg_settings WHERE name LIKE 'outbox.%'"
METRICS = """
    SELECT DISTINCT 'outbox_' || a.attname FROM pg_attribute AS a
    WHERE a.attrelid IN ('outbox.database_metrics'::regclass, 'outbox.sink_metrics'::regclass, 'outbox.failure_metrics'::regclass) AND a.attnum > 0 AND a.attname <> ALL (%s)"""
LABELS = ["datname", "sink", "kind", "reason"]
# errcode(…) of a report and what a function returns as one; a condition name of PL/pgSQL. What is caught or compared does not count.
RAISED_IN_C = re.compile(r"\b(?:errcode\(|return |\? |: )(ERRCODE_\w+)")
RAISED_IN_SQL = re.compile(r"ERRCODE = '(\w+)'")
OWN_CODE = re.compile(r"\b(ERRCODE_\w+) = MAKE_SQLSTATE\('(.)', '(.)', '(.)', '(.)', '(.)'\)")


def functions(connection: psycopg.Connection) -> set[str]:
    names = [reference.qualified(name) for chapter in reference.CHAPTERS.values() for name in chapter]
    return {f"{name.partition('.')[0]}.{signature}" for name in names for (signature,) in connection.execute(FUNCTIONS, [name])}


def relations(connection: psycopg.Connection) -> set[str]:
    return {f"{name} {kind}" for name, kind in connection.execute(RELATIONS)} | {"outbox_inbox.processed_events table"}


def columns(connection: psycopg.Connection) -> set[str]:
    return {f"{name}.{column}" for name in map(reference.qualified, reference.RELATIONS) for (column,) in connection.execute(COLUMNS, [name])}


def options(connection: psycopg.Connection) -> set[str]:
    return {f"{page.kind.lower()}, {row.place}: {row.name}" for page in option_tables.TABLES for row in page.rows()}


def settings(connection: psycopg.Connection) -> set[str]:
    connection.execute("LOAD 'outbox'")
    return {f"{name} {kind}, unit {unit or 'none'}, default '{default}', range {low} to {high}, {context}" if low else f"{name} {kind}, default '{default}', {context}"
            for name, kind, unit, default, low, high, context in connection.execute(SETTINGS)}


def metrics(connection: psycopg.Connection) -> set[str]:
    return {name for (name,) in connection.execute(METRICS, [LABELS])} | {f"label {name}" for name in LABELS}


def sqlstates(connection: psycopg.Connection) -> set[str]:
    codes, conditions = {}, {}
    for line in (pg_config("sharedir") / "errcodes.txt").read_text().splitlines():
        if match := re.fullmatch(r"(\w{5})\s+[EWS]\s+(ERRCODE_\w+)(?:\s+(\w+))?\s*", line):
            codes[match[2]] = match[1]
            codes.setdefault(match[3], match[1])  # of two codes with one name, RAISE takes the first
            conditions.setdefault(match[1], match[3])
    used = set()
    for source in [*(ROOT / "src/server").rglob("*.cpp"), *(ROOT / "src/extension").rglob("*.sql")]:
        text = source.read_text()
        codes |= {name: "".join(letters) for name, *letters in OWN_CODE.findall(text)}
        used |= set((RAISED_IN_C if source.suffix == ".cpp" else RAISED_IN_SQL).findall(text))
    return {f"{codes[name]} {conditions.get(codes[name]) or name.removeprefix('ERRCODE_').lower()}" for name in used}


def states(connection: psycopg.Connection) -> set[str]:
    """As the comment of the view lists them; the code gives no other one."""
    told = connection.execute("SELECT obj_description('outbox.sinks'::regclass)").fetchone()[0]
    listed = re.sub(r"\s*\([^)]*\)", "", told.partition("state is one of: ")[2].partition(". ")[0]).split(", ")
    code = (ROOT / "src/server/shmem/sink_stats.cpp").read_text().partition("NULL,       \"idle\"")
    in_c = re.findall(r'"([a-z ]+)"', '"idle"' + code[2].partition("}")[0])
    view = (ROOT / "src/extension/40_operate.sql").read_text().partition("CREATE OR REPLACE VIEW outbox.sinks AS")[2].partition("END) AS state,")[0]
    in_sql = re.findall(r"(?:THEN|ELSE) '([a-z ]+?)(?:: )?'", view)
    others = set(in_c + in_sql) - {name.partition(":")[0] for name in listed} - {"stopped"}  # while a stop becomes visible: paused or disabled
    assert len(in_c) > 5 and len(in_sql) > 5 and not others, f"states that the comment of outbox.sinks does not list: {others}"
    return {f"sink: {name}" for name in listed} | {f"event: {name}" for name in ("PENDING", "SENT", "FAILED")}


def checks(connection: psycopg.Connection) -> set[str]:
    return {check for group in tomllib.loads((ROOT / "src/extension/doctor_causes.toml").read_text())["group"] for check in group["checks"]}


GROUPS = (functions, relations, columns, options, settings, metrics, sqlstates, states, checks)


def made(connection: psycopg.Connection, group) -> list[str]:
    return sorted(group(connection))


def kept() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in FILE.read_text().splitlines():
        if heading := re.fullmatch(r"## (\w+)", line):
            lines = found.setdefault(heading[1], [])
        elif line:
            lines.append(line)
    return found


def write(connection: psycopg.Connection) -> None:
    FILE.write_text("\n".join(f"## {group.__name__}\n" + "\n".join(made(connection, group)) + "\n" for group in GROUPS))
    print(f"{FILE} is as the server and the source tell")

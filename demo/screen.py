"""The output of the demo: SQL with its results, a progress line, colours on a terminal."""

import sys
import textwrap

import psycopg

TTY = sys.stdout.isatty()


def paint(code: str, text: str) -> str:
    return f"\033[{code}m{text}\033[0m" if TTY else text


def heading(text: str) -> None:
    print(paint("1", f"\n── {text} " + "─" * max(3, 96 - len(text))))


def note(text: str) -> None:
    print(paint("33", text))


def arrived(where: str, text: str) -> None:
    print(paint("32", f"  → {where:<8} ") + text)


def progress(text: str, keep: bool) -> None:
    """One line, rewritten in place on a terminal; `keep` ends it with a line feed."""
    if TTY:
        print(f"\r\033[K{text}", end="\n" if keep else "", flush=True)
    elif keep:
        print(text)


def run(connection: psycopg.Connection, statement: str) -> list[tuple]:
    """Runs a statement and shows it as psql would."""
    statement = textwrap.dedent(statement).strip()
    print(paint("36", statement + ";"))
    cursor = connection.execute(statement)
    if not cursor.description:
        print(f"  {cursor.statusmessage}")
        return []
    rows = cursor.fetchall()
    table([column.name for column in cursor.description], rows)
    return rows


def table(names: list[str], rows: list[tuple]) -> None:
    cells = [["" if value is None else f"{value:,}" if isinstance(value, int) else str(value) for value in row] for row in rows]
    widths = [max(len(line[n]) for line in [names, *cells]) for n in range(len(names))]
    numeric = [all(isinstance(row[n], int) or row[n] is None for row in rows) and bool(rows) for n in range(len(names))]
    print("  " + " │ ".join(name.ljust(width) for name, width in zip(names, widths)))
    print("  " + "─┼─".join("─" * width for width in widths))
    for line in cells:
        print("  " + " │ ".join(cell.rjust(width) if right else cell.ljust(width)
                                for cell, width, right in zip(line, widths, numeric)))

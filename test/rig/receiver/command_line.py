"""The command line: reports what is missing, and how to get it, before it listens."""

import argparse
import base64
import binascii
import errno
import os
import socket
import sys
from collections.abc import Callable
from typing import NoReturn

import psycopg

SCHEMA = """
CREATE TABLE IF NOT EXISTS processed_events (event_id text PRIMARY KEY, processed_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS work (event_id text NOT NULL, event_type text, body bytea NOT NULL, done_at timestamptz NOT NULL DEFAULT now());
"""


def between(kind: Callable, low: float, high: float) -> Callable:
    def parse(text: str):
        try:
            value = kind(text)
            if low <= value <= high:
                return value
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"expected a number from {low} to {high}, not {text!r}")
    return parse


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="test/rig/receiver/run", description="A webhook receiver to develop against: verifies Standard Webhooks signatures, drops duplicates by "
        "a table processed_events in a database of its own, prints what it gets, and answers 204 when the event's work is committed.",
        epilog="Without --fail, --status fails every request.")
    parser.add_argument("--secret", default=os.environ.get("WEBHOOK_SECRET"), help="the sink's: whsec_…; or $WEBHOOK_SECRET")
    parser.add_argument("--database", default=os.environ.get("DATABASE_URL"), metavar="URL",
                        help="PostgreSQL, to remember what was processed: postgresql://user@host/receiver; or $DATABASE_URL. Its tables are made")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (%(default)s)")
    parser.add_argument("--port", type=between(int, 1, 65535), default=8080, help="where to listen (%(default)s)")
    parser.add_argument("--fail", type=between(float, 0, 1), metavar="SHARE", help="fail this share of the requests: 0.1 is every tenth")
    parser.add_argument("--status", type=between(int, 200, 599), metavar="CODE", help="how they fail (500)")
    parser.add_argument("--retry-after", metavar="SECONDS", help="what they say besides")
    parser.add_argument("--delay", type=between(float, 0, 3600), default=0, metavar="SECONDS",
                        help="answer so long after the commit: beyond the sink's timeout the event comes again, and is dropped as a duplicate")
    return parser.parse_args()


def give_up(problem: str, *advice: str) -> NoReturn:
    sys.exit("\n".join([f"test/rig/receiver/run: {problem}", *("  " + line for line in advice)]))


def check_secret(secret: str | None) -> str:
    new_one = 'A new one: echo "whsec_$(openssl rand -base64 32)"'
    if not secret:
        give_up("no secret", "Give the one of the sink by --secret or WEBHOOK_SECRET:",
                "CREATE USER MAPPING FOR PUBLIC SERVER crm OPTIONS (secret 'whsec_…')", new_one)
    try:
        size = len(base64.b64decode(secret.removeprefix("whsec_"), validate=True))
    except binascii.Error:
        size = 0
    if not 24 <= size <= 64:
        give_up("the secret is not whsec_ and the base64 of 24 to 64 bytes", new_one)
    return secret


def prepare_database(url: str | None) -> str:
    make_one = 'A database of its own will do: createdb receiver, and --database "dbname=receiver"'
    if not url:
        give_up("no database", "Where processed events are remembered: --database postgresql://user@host/receiver, or DATABASE_URL.", make_one)
    try:
        with psycopg.connect(url, connect_timeout=10) as db:
            db.execute(SCHEMA)
    except psycopg.OperationalError as error:
        give_up(f"no connection to the database: {error}".strip(), "Is the server up, and do host, port, user and password hold? " + make_one)
    except psycopg.ProgrammingError as error:
        give_up(f"the database cannot be used: {error}".strip(), 'Expected postgresql://user@host/receiver or "host=… dbname=receiver".', make_one)
    return url


def listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=512)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            give_up(f"port {port} is in use", f"Choose another by --port, or see who has it: ss -ltnp 'sport = :{port}'")
        give_up(f"cannot listen on {host} port {port}: {error}", "--host is an address of this machine, --port from 1024 to 65535 (below, only root may).")

"""docs/new-sink.md: the page's C++ is put unchanged into a copy of the source tree, built, installed and used."""

import json
import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.guide import Guide
from outbox_rig.paths import BUILD, ROOT, pg_config

PAGE = "docs/new-sink.md"
NEW_FILE = Path("src/delivery/sinks/file.cpp")


@pytest.fixture(scope="module")
def tree():
    """The compiled tree with the page's file in it: only that file is compiled."""
    tree = BUILD / "new-sink"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(ROOT / "src", tree / "src")
    for path in (ROOT / "Makefile", *ROOT.glob("outbox*.*")):
        shutil.copy2(path, tree)
    code = "".join(re.findall(r"^```cpp\n(.*?)^```$", (ROOT / PAGE).read_text(), re.MULTILINE | re.DOTALL))
    assert 60 < code.count("\n") <= 130, "an example is to be short"
    (tree / NEW_FILE).write_text(code)
    return tree


def make(tree: Path, *arguments: str) -> str:
    done = subprocess.run(["make", "-C", tree, f"PG_CONFIG={pg_config('bindir') / 'pg_config'}", *arguments], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=os.environ | {"MAKEFLAGS": ""})
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def installation(tree):
    """A PostgreSQL of its own, so that no other test sees the new library: it finds its files relative to its
    programs."""
    places = {what: pg_config(what) for what in ("bindir", "pkglibdir", "sharedir")}
    common = os.path.commonpath(places.values())
    own = {what: tree / "postgresql" / path.relative_to(common) for what, path in places.items()}
    own["bindir"].mkdir(parents=True)
    for program in ("postgres", "initdb"):
        shutil.copy2(places["bindir"] / program, own["bindir"])
    own["pkglibdir"].mkdir(parents=True, exist_ok=True)
    for library in places["pkglibdir"].glob("*.so"):
        (own["pkglibdir"] / library.name).symlink_to(library)
    (own["pkglibdir"] / "outbox.so").unlink()
    shutil.copytree(places["sharedir"], own["sharedir"], ignore=shutil.ignore_patterns("outbox*"))
    compiled = re.findall(r"-c -o (\S+)\.o", make(tree))
    assert compiled == [str(NEW_FILE.with_suffix(""))], "what was built before is built again"
    make(tree, "install", f"pkglibdir={own['pkglibdir']}", f"datadir={own['sharedir']}", f"docdir={tree / 'doc'}")
    return own["bindir"]


@pytest.fixture(scope="module")
def place(tree):
    """A directory that the server can write to."""
    place = tree / "written"
    place.mkdir()
    if os.getuid() == 0:
        os.chown(place, pwd.getpwnam("postgres").pw_uid, -1)
    return place


@pytest.fixture(scope="module")
def db(rig, installation):
    pg = rig.postgres(settings={"outbox.poll_interval": "1s"}, bindir=installation)
    with pg.connect() as admin:
        admin.execute("CREATE DATABASE made")
    db = Database(pg, "made")
    db.sql("CREATE EXTENSION outbox")
    yield db
    db.disconnect()
    pg.close()


def refused(db: Database, statement: str, message: str) -> None:
    with pytest.raises(psycopg.Error) as error:
        db.sql(statement)
    assert message in f"{error.value.diag.message_primary} | {error.value.diag.message_detail} | {error.value.diag.message_hint}"


def events(path: Path) -> list[dict]:
    """Complete lines only: the last one may be incomplete."""
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def test_the_page_is_a_kind_of_sink(db, place):
    guide = Guide(db, {"/var/lib/postgresql/audit.ndjson": str(place / "audit.ndjson")}, PAGE)
    file = place / "audit.ndjson"

    # The wrapper's DDL calls the validator, which reports a kind that the library lacks.
    db.sql("CREATE FUNCTION outbox.pigeon_validator(text[], oid) RETURNS void LANGUAGE c STRICT AS '$libdir/outbox', 'outbox_validator'")
    refused(db, "CREATE FOREIGN DATA WRAPPER outbox_pigeon VALIDATOR outbox.pigeon_validator", 'unknown kind of sink "pigeon"')
    db.sql("CREATE FOREIGN DATA WRAPPER outbox_pigeon VALIDATOR outbox_internal.kafka_validator")  # the name of a kind with another validator: not one of ours
    guide.follow("new kind")
    kinds = {row[0] for row in db.sql("SELECT kind FROM outbox_internal.wrappers")}
    assert {"kafka", "webhook", "file"} <= kinds and "pigeon" not in kinds
    create = "CREATE SERVER bad FOREIGN DATA WRAPPER outbox_file OPTIONS"
    refused(db, f"{create} (path 'audit.ndjson')", "Expected an absolute path.")
    refused(db, f"{create} (max_payload '10')", 'option "path" is required')
    refused(db, f"{create} (path '/tmp/x', max_payload '0')", "max_payload")
    refused(db, f"{create} (path '/tmp/x', max_paylod '1')", 'Perhaps you meant the option "max_payload".')
    refused(db, "CREATE SERVER bad FOREIGN DATA WRAPPER outbox_file OPTIONS (path '/tmp/x', retry 'often')", "retry")
    db.sql("CREATE ROLE owner; GRANT USAGE ON FOREIGN DATA WRAPPER outbox_file TO owner; GRANT CREATE ON DATABASE made TO owner")
    refused(db, f"SET ROLE owner; {create} (path '/tmp/x')", 'only a superuser may set option "path"')
    db.sql("RESET ROLE")
    guide.follow("new sink")
    wait_until(lambda: db.sink("kind, target, state", "audit") == ("file", str(file), "idle"), 30, lambda: db.sql("SELECT * FROM outbox.sinks"))
    assert db.sql("SELECT step, ok FROM outbox.probe('audit')") == [("open", True)]

    # Routed, in order, equal to the preview.
    db.sql("SELECT outbox.enqueue('Order', (n % 7)::text, 'order.' || n % 2, to_jsonb(n)) FROM generate_series(1, 3000) AS n")
    db.enqueue("Bill", "1", "bill.made")
    wait_until(lambda: len(events(file)) >= 3000, 30, lambda: db.sql("SELECT * FROM outbox.sinks"))
    written = events(file)
    for key in map(str, range(7)):
        assert [event["payload"] for event in written if event["key"] == key] == [n for n in range(1, 3001) if str(n % 7) == key]
    wait_until(lambda: db.sql("SELECT sink, event_type FROM outbox.events") == [(None, "bill.made")], 30, lambda: db.sql("SELECT * FROM outbox.sinks"))

    # An outage spends no attempt; pending events then arrive in order, once.
    gone = place.with_name("gone")
    place.rename(gone)
    ids = [db.enqueue("Order", "1", "order.late", str(n)) for n in range(5)]
    wait_until(lambda: db.sink("state", "audit") == ("circuit open",), 30, lambda: db.sql("SELECT * FROM outbox.sinks"))
    assert "No such file or directory" in db.sink("last_error", "audit")[0]
    assert db.sql("SELECT ok FROM outbox.probe('audit')") == [(False,)]
    assert db.sql("SELECT DISTINCT attempts FROM outbox.events WHERE sink = 'audit'") == [(0,)]
    preview = db.value("SELECT value FROM outbox.preview(%s, 'audit') WHERE part = 'line'", ids[0])
    gone.rename(place)
    wait_until(lambda: len(events(file)) >= 3005, 60, lambda: db.sql("SELECT * FROM outbox.sinks"))
    assert [event["id"] for event in events(file)[3000:]] == ids and json.loads(preview) == events(file)[3000]

    # An invalid event is refused at once; one that a later change of the sink made invalid is a dead letter, and
    # arrives after a redrive.
    refused(db, "SELECT outbox.enqueue_bytes('Order', '1', 'order.raw', '\\x00', 'application/avro')", "takes no raw bytes")
    db.sql("SELECT outbox.pause('audit')")
    long = db.enqueue("Order", "1", "order.long", json.dumps("x" * 500))
    db.sql("ALTER SERVER audit OPTIONS (ADD max_payload '100')")
    refused(db, f"SELECT outbox.enqueue('Order', '1', 'order.long', '\"{'x' * 500}\"')", "max_payload is 100")
    after = db.enqueue("Order", "1", "order.after")
    db.sql("SELECT outbox.resume('audit')")
    wait_until(lambda: events(file)[-1]["id"] == after, 30, lambda: db.sql("SELECT * FROM outbox.sinks"))
    wait_until(lambda: db.sql("SELECT status FROM outbox.events WHERE id = %s", long) == [("FAILED",)], 30, lambda: db.sql("SELECT * FROM outbox.events"))
    assert "too large for the file" in db.value("SELECT last_error FROM outbox.events WHERE id = %s", long)
    db.sql("ALTER SERVER audit OPTIONS (DROP max_payload)")
    db.sql("SELECT outbox.redrive(%s, force => true)", long)
    wait_until(lambda: events(file)[-1]["id"] == long, 30, lambda: db.sql("SELECT * FROM outbox.sinks"))
    published = 'outbox_published_events_total{datname="made",sink="audit"} 3007'  # counted when the worker has recorded it
    wait_until(lambda: published in db.value("SELECT outbox.metrics()").split("\n"), 30, lambda: db.value("SELECT outbox.metrics()"))

    # A dump contains wrapper, validator and sink.
    dump = subprocess.run([pg_config("bindir") / "pg_dump", "-s", db.dsn], capture_output=True, text=True, check=True).stdout
    assert all(f"CREATE {made}" in dump for made in ("FUNCTION outbox.file_validator", "FOREIGN DATA WRAPPER outbox_file VALIDATOR outbox.file_validator", "SERVER audit"))

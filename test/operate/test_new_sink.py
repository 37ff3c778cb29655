"""sinks/new-sink.md: the page's extension is built outside of the source tree against what is installed, and used."""

import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.guide import Guide
from outbox_rig.paths import ROOT, pg_config
from outbox_rig.process import free_port
from outbox_rig.receiver import SECRET

PAGE = "sinks/new-sink.md"
KINDS = sorted(path.parent.name for path in (ROOT / "sinks").glob("*/Makefile"))


def blocks() -> dict[str, str]:
    """The files of the extension, as the page has them."""
    page = (ROOT / PAGE).read_text()
    files = dict(re.findall(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    return files | {"file.cpp": "".join(re.findall(r"^```cpp\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))}


@pytest.fixture(scope="module")
def tree():
    """The extension of the page in a folder outside of outbox's source tree: nothing of outbox is there but what is installed."""
    tree = Path(tempfile.mkdtemp(prefix="outbox-new-sink-", dir="/tmp"))
    assert ROOT not in tree.parents
    tree.chmod(0o755)  # the server's user reads its programs here
    for name, text in blocks().items():
        (tree / name).write_text(text)
    assert 60 < blocks()["file.cpp"].count("\n") <= 130, "an example is to be short"
    assert blocks()["Makefile"].count("\n") == 5
    yield tree
    shutil.rmtree(tree)


def run_make(tree: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(["make", "-C", tree, f"PG_CONFIG={pg_config('bindir') / 'pg_config'}", "PG_CXXFLAGS=-Wall -Wextra -Werror", *arguments], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ | {"MAKEFLAGS": ""})


def make(tree: Path, *arguments: str) -> str:
    done = run_make(tree, *arguments)
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def install(tree: Path, own: dict[str, Path], *arguments: str) -> None:
    make(tree, *arguments)
    make(tree, "install", f"pkglibdir={own['pkglibdir']}", f"datadir={own['sharedir']}", f"docdir={tree / 'doc'}")


def build_variant(tree: Path, name: str, *changes: tuple[str, str]) -> Path:
    """The page's extension with other code. Returns its library, which is not installed."""
    variant = tree / name
    variant.mkdir()
    for file, text in blocks().items():
        for old, new in changes if file == "file.cpp" else ():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        (variant / file).write_text(text)
    make(variant, "CXXFLAGS=-O0")
    return variant / "outbox_file.so"


def put(library: Path, installation: dict[str, Path]) -> None:
    """As a package does: the running processes keep the file that they have loaded."""
    part = installation["pkglibdir"] / "part"
    shutil.copy2(library, part)
    part.rename(installation["pkglibdir"] / "outbox_file.so")


@pytest.fixture(scope="module")
def installation(tree):
    """A PostgreSQL of its own, so that no other test sees the new library: it finds its files relative to its
    programs."""
    places = {what: pg_config(what) for what in ("bindir", "pkglibdir", "sharedir")}
    common = os.path.commonpath(places.values())
    own = {what: tree / "postgresql" / path.relative_to(common) for what, path in places.items()}
    own["bindir"].mkdir(parents=True)
    for program in ("postgres", "initdb", "pg_ctl"):
        shutil.copy2(places["bindir"] / program, own["bindir"])
    own["pkglibdir"].mkdir(parents=True, exist_ok=True)
    for library in (*places["pkglibdir"].glob("*.so"), *places["pkglibdir"].glob("*.bc")):
        (own["pkglibdir"] / library.name).symlink_to(library)
    shutil.copytree(places["sharedir"], own["sharedir"])
    install(tree, own)
    return own


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
    pg = rig.postgres(settings={"outbox.poll_interval": "1s", "outbox.worker_idle_timeout": "0"}, bindir=installation["bindir"])
    with pg.connect() as admin:
        admin.execute("CREATE DATABASE made")
    db = Database(pg, "made")
    db.sql("CREATE EXTENSION outbox")
    yield db
    db.disconnect()
    pg.close()


def events(path: Path) -> list[dict]:
    """Complete lines only: the last one may be incomplete."""
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def test_the_page_is_a_kind_of_sink(db, place):
    guide = Guide(db, {"/var/lib/postgresql/audit.ndjson": str(place / "audit.ndjson")}, PAGE)
    file = place / "audit.ndjson"

    # The wrapper's DDL calls the validator, which reports a kind that the library lacks.
    db.sql("CREATE FUNCTION outbox.pigeon_validator(text[], oid) RETURNS void LANGUAGE c STRICT AS '$libdir/outbox', 'outbox_validator'")
    db.refuses("CREATE FOREIGN DATA WRAPPER outbox_pigeon VALIDATOR outbox.pigeon_validator", 'unknown kind of sink "pigeon"')
    db.sql("CREATE FUNCTION outbox.dove_validator(text[], oid) RETURNS void LANGUAGE c STRICT AS '$libdir/outbox_file', 'outbox_kind_validator'")
    db.refuses("CREATE FOREIGN DATA WRAPPER outbox_dove VALIDATOR outbox.dove_validator", "contains no kind of that name")
    db.sql("CREATE FOREIGN DATA WRAPPER outbox_pigeon VALIDATOR outbox_internal.kafka_validator")  # the name of a kind with another validator: not one of ours
    guide.follow("new kind")
    kinds = {row[0] for row in db.sql("SELECT kind FROM outbox_internal.wrappers")}
    assert {"kafka", "webhook", "file"} <= kinds and "pigeon" not in kinds
    create = "CREATE SERVER bad FOREIGN DATA WRAPPER outbox_file OPTIONS"
    db.refuses(f"{create} (path 'audit.ndjson')", "Expected an absolute path.")
    db.refuses(f"{create} (longest_line '10')", 'option "path" is required')
    db.refuses(f"{create} (path '/tmp/x', longest_line '0')", "longest_line")
    db.refuses(f"{create} (path '/tmp/x', longest_lin '1')", 'Perhaps you meant the option "longest_line".')
    db.refuses("CREATE SERVER bad FOREIGN DATA WRAPPER outbox_file OPTIONS (path '/tmp/x', retry 'often')", "retry")
    db.sql("CREATE ROLE owner; GRANT USAGE ON FOREIGN DATA WRAPPER outbox_file TO owner; GRANT CREATE ON DATABASE made TO owner")
    db.refuses(f"SET ROLE owner; {create} (path '/tmp/x')", 'only a superuser may set option "path"')
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

    # The test event of a probe.
    assert db.sql("SELECT step, ok FROM outbox.probe('audit', send => true)") == [("open", True), ("send", True)]
    assert events(file)[-1]["payload"] == {"test": True}

    # An invalid event is refused at once; one that a later change of the sink made invalid is a dead letter, and
    # arrives after a redrive.
    db.refuses("SELECT outbox.enqueue_bytes('Order', '1', 'order.raw', '\\x00', 'application/avro')", "takes no raw bytes")
    db.sql("SELECT outbox.pause('audit')")
    long = db.enqueue("Order", "1", "order.long", json.dumps("x" * 500))
    db.sql("ALTER SERVER audit OPTIONS (ADD longest_line '100')")
    db.refuses(f"SELECT outbox.enqueue('Order', '1', 'order.long', '\"{'x' * 500}\"')", "longest_line is 100")
    after = db.enqueue("Order", "1", "order.after")
    db.sql("SELECT outbox.resume('audit')")
    wait_until(lambda: events(file)[-1]["id"] == after, 30, lambda: db.sql("SELECT * FROM outbox.sinks"))
    wait_until(lambda: db.sql("SELECT status FROM outbox.events WHERE id = %s", long) == [("FAILED",)], 30, lambda: db.sql("SELECT * FROM outbox.events"))
    assert "too large for the file" in db.value("SELECT last_error FROM outbox.events WHERE id = %s", long)
    db.sql("ALTER SERVER audit OPTIONS (DROP longest_line)")
    db.sql("SELECT outbox.redrive(%s, force => true)", long)
    wait_until(lambda: events(file)[-1]["id"] == long, 30, lambda: db.sql("SELECT * FROM outbox.sinks"))
    published = 'outbox_published_events_total{datname="made",sink="audit"} 3007'  # counted when the worker has recorded it
    wait_until(lambda: published in db.value("SELECT outbox.metrics()").split("\n"), 30, lambda: db.value("SELECT outbox.metrics()"))

    # A dump contains wrapper, validator and sink.
    dump = subprocess.run([pg_config("bindir") / "pg_dump", "-s", db.dsn], capture_output=True, text=True, check=True).stdout
    assert all(f"CREATE {made}" in dump for made in ("EXTENSION IF NOT EXISTS outbox_file", "SERVER audit FOREIGN DATA WRAPPER outbox_file"))


def all_written(place: Path, ids: list[str], db: Database) -> None:
    wait_until(lambda: [event["id"] for event in events(place / "audit.ndjson")][-len(ids):] == ids, 60, lambda: db.sql("SELECT * FROM outbox.sinks"))


def is_misconfigured(db: Database, why: str) -> None:
    wait_until(lambda: db.sink("state", "audit") == ("misconfigured",) and why in db.sink("last_error", "audit")[0], 60, lambda: db.sql("SELECT * FROM outbox.sinks"))
    state, detail, hint = db.doctor("sink audit") or pytest.fail(str(db.sql("SELECT * FROM outbox.doctor()")))
    assert state == "error" and why in detail and "pg_terminate_backend" in hint


def test_a_library_that_is_missing_stops_its_sinks_only(db, installation, place, receiver):
    library = installation["pkglibdir"] / "outbox_file.so"
    db.webhook_sink("crm", receiver, SECRET)
    library.rename(library.with_suffix(".away"))
    db.disconnect()
    db.pg.restart()
    late = db.enqueue("Order", "9", "order.late")
    wait_until(lambda: late in {delivery.id for delivery in receiver.accepted()}, 30, lambda: db.sql("SELECT * FROM outbox.sinks"))
    is_misconfigured(db, 'the library of sink kind "file" cannot be loaded')
    assert "outbox_file" in db.sink("last_error", "audit")[0]
    assert db.sql("SELECT step, ok FROM outbox.probe('audit')") == [("probe", False)]
    assert db.sql("SELECT * FROM outbox.preview(%s, 'crm')", late)
    db.refuses(f"SELECT * FROM outbox.preview('{late}', 'audit')", "does not accept its options, or lacks its kind of sink")
    db.refuses("CREATE SERVER more FOREIGN DATA WRAPPER outbox_file OPTIONS (path '/tmp/x')", "could not access file")
    library.with_suffix(".away").rename(library)
    all_written(place, [late], db)
    assert db.doctor("sink audit")[0] == "ok"


def test_what_makes_messages_does_not_stand_in_for_a_library_that_is_missing(db, installation):
    """outbox_webhook_messages.so checks events, and knows neither what the worker sends nor which options it refuses."""
    library = installation["pkglibdir"] / "outbox_webhook.so"
    db.disconnect()
    event = db.enqueue("Order", "10", "order.checked")
    library.rename(library.with_suffix(".away"))
    db.refuses(f"SELECT * FROM outbox.preview('{event}', 'crm')", "lacks its kind of sink")
    db.refuses("ALTER SERVER crm OPTIONS (ADD no_such_option '1')", "could not access file")
    assert db.enqueue("Order", "10", "order.not_checked")
    library.with_suffix(".away").rename(library)
    assert db.sql("SELECT * FROM outbox.preview(%s, 'crm')", event)
    db.refuses("ALTER SERVER crm OPTIONS (ADD no_such_option '1')", "no_such_option")


def wrong_field(change: str) -> tuple[str, str]:
    """Instead of OUTBOX_SINK_KIND(): the struct with one wrong field."""
    return "OUTBOX_SINK_KIND(outbox::FileKind)", f"""extern "C" const ob_sink_kind *outbox_make_sink_kind(const char *version, int pg_version) noexcept {{
  static const auto &kind = *new outbox::FileKind;
  static ob_sink_kind made = *outbox::name_this_library(kind, version, pg_version, false);
  {change};
  return &made;
}}"""


def test_a_library_that_was_built_for_another_version(db, tree, installation, place):
    """Its kind is never called: its struct may be laid out in another way."""
    put(build_variant(tree, "other", wrong_field("made.interface++")), installation)
    is_misconfigured(db, 'the library of sink kind "file" was built for another version of outbox')
    late = db.enqueue("Order", "9", "order.late")
    db.disconnect()  # a session, too, keeps what it has loaded
    db.refuses("CREATE SERVER more FOREIGN DATA WRAPPER outbox_file OPTIONS (path '/tmp/x')", "was built for another version of outbox")
    put(installation["pkglibdir"] / "citext.so", installation)  # a library that is no kind of sink
    is_misconfigured(db, 'could not find function "_PG_outbox_sink_kind_init"')
    put(tree / "outbox_file.so", installation)
    db.disconnect()
    all_written(place, [late], db)


def symbols(library: Path) -> tuple[set[str], set[str]]:
    """Returns the exported symbols as "type name", and the names of the undefined ones. Type u: STB_GNU_UNIQUE, one for all libraries of a process."""
    listed = subprocess.run(["nm", "-D", "--without-symbol-versions", library], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^[0-9a-f]{16} (\S \S+)$", listed, re.MULTILINE)), set(re.findall(r"^ {17}\S (\S+)$", listed, re.MULTILINE))


def only_c_crosses_the_border_of(kind: Path) -> None:
    exported, undefined = symbols(kind)
    assert exported == {f"T {name}" for name in ("Pg_magic_func", "pg_finfo_outbox_kind_validator", "outbox_kind_validator", "_PG_outbox_sink_kind_init")}
    assert undefined and not any("6outbox" in name for name in undefined)


def test_only_c_crosses_the_border(tree, installation):
    """A kind and outbox share no C++ symbol, so neither calls the other's: not even a static of a template, which g++ may make one for a process."""
    pkglibdir = pg_config("pkglibdir")
    only_c_crosses_the_border_of(tree / "outbox_file.so")
    for built in (pkglibdir / "liboutbox_sink.a", tree / "file.o"):
        listed = subprocess.run(["nm", built], capture_output=True, text=True, check=True).stdout
        assert " T " in listed and re.findall(r"^[0-9a-f]+ u .*$", listed, re.MULTILINE) == [], built
    for part in ("kafka", "kafka_messages", "webhook", "webhook_messages"):
        only_c_crosses_the_border_of(pkglibdir / f"outbox_{part}.so")
    exported, undefined = symbols(pkglibdir / "outbox.so")
    assert exported and not [symbol for symbol in exported if not re.fullmatch(r"T [A-Za-z]\w*|T _PG_\w+", symbol)]
    assert undefined and not any("6outbox" in name for name in undefined)


MADE, LINES = "    return std::make_unique<BatchSink>(", "    std::string all;\n"


def crashing(cause: Path, when: str) -> list[tuple[str, str]]:
    """The page's kind with an abort(), or a fault in memory at one event, as long as the file `cause` is there."""
    crash = f'if (access("{cause}", F_OK) == 0)\n      ' + ("*(volatile int *)8 = 1" if when == "at one event" else "abort()")
    return {"loaded": [wrong_field(crash)],
            "opened": [(MADE, f"    {crash};\n{MADE}")],
            "after it was opened": [(MADE, f"    std::thread([] {{ usleep(50000); {crash}; }}).detach();\n{MADE}"), ("#include <fcntl.h>", "#include <fcntl.h>\n#include <thread>")],
            "late": [(MADE, f"    std::thread([] {{ usleep(1500000); {crash}; }}).detach();\n{MADE}"), ("#include <fcntl.h>", "#include <fcntl.h>\n#include <thread>")],
            "at each event": [(LINES, f"    {crash};\n{LINES}")],
            "at one event": [(LINES, f'    for (const std::string &line : lines)\n      if (line.find("order.killer") != std::string::npos) {{ {crash}; }}\n{LINES}')]}[when]


@pytest.fixture
def crashes(db, tree, installation, place, receiver, request):
    """Starts a server that knows of no crash, and puts a kind there that crashes. Returns a function that counts the worker's crashes since then."""
    when, since = request.param, db.pg.log.stat().st_size
    (place / "crash").touch()
    library = tree / ("crashing_" + when.replace(" ", "_")) / "outbox_file.so"
    if not library.exists():
        build_variant(tree, library.parent.name, *crashing(place / "crash", when))
    db.sql("DROP SERVER IF EXISTS crm CASCADE")
    db.webhook_sink("crm", receiver, SECRET)
    db.pg.forget_crashes()
    db.pg.restart()
    db.disconnect()
    wait_until(lambda: db.sink("state", "audit") == ("idle",), 60, lambda: db.sql("SELECT * FROM outbox.sinks"))  # this session has a build that does not crash
    old = db.sql("SELECT pid FROM outbox.workers")
    put(library, installation)
    if when in ("at each event", "at one event"):
        wait_until(lambda: db.sql("SELECT pid FROM outbox.workers") not in ([], old), 60, lambda: db.sql("SELECT * FROM outbox.workers"))
    # a session that reads outbox.sinks between two crashes may load the library, and crash as well
    yield lambda: len(re.findall(r'"outbox worker" \(PID \d+\) was terminated by signal (?:6|11)\b', db.pg.logged(since)))
    (place / "crash").unlink(missing_ok=True)
    put(tree / "outbox_file.so", installation)
    db.disconnect()


def answered(db: Database, ask):
    """False while the server restarts."""
    try:
        return ask()
    except psycopg.OperationalError:
        db.disconnect()
        return False


def enqueued(db: Database, events) -> list[str]:
    """In one transaction, because the first of them may end all sessions."""
    db.sql("BEGIN")
    ids = [db.enqueue(*event) for event in events]
    db.sql("COMMIT")
    return ids


def has_arrived(receiver, event: str) -> bool:
    return event in {delivery.id for delivery in receiver.accepted()}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.kills_server
@pytest.mark.parametrize("crashes, cure, most", (("loaded", "another build", 5), ("opened", "resume", 5), ("opened", "another build", 5),
                                                 ("after it was opened", "resume", 5), ("at each event", "resume", 7),
                                                 ("late", "resume", 5)), indirect=["crashes"])
def test_a_kind_that_crashes_is_stopped(db, tree, installation, place, receiver, crashes, cure, most):
    """A worker that crashes restarts the cluster, so this must not go on for ever, wherever the kind does it. From the third crash on the worker looks for
    what crashes; a sink that was at work in two of these is not opened again, and the others go on. Threads that crash late are found by longer trials."""

    def is_stopped() -> bool:
        return answered(db, lambda: db.sink("state", "audit") == ("misconfigured",) and db.sink("last_error", "audit")[0].startswith("crashed twice while it was opened"))

    sent = enqueued(db, (("Order", str(n), "order.made") for n in range(3))) if most == 7 else []
    wait_until(is_stopped, 280, lambda: db.pg.logged(0)[-2000:])
    state, detail, hint = db.doctor("sink audit")
    assert state == "error" and "crashed twice" in detail and hint.startswith("SELECT outbox.resume('audit')")
    late = db.enqueue("Order", "9", "order.late")
    wait_until(lambda: has_arrived(receiver, late), 30, lambda: db.sql("SELECT * FROM outbox.sinks"))
    (installation["pkglibdir"] / "outbox_file.so").chmod(0o755)  # as a backup or restorecon may: it is the same library
    db.pg.restart()  # it is remembered
    db.disconnect()
    wait_until(is_stopped, 100, lambda: db.pg.logged(0)[-2000:])
    assert crashes() == most

    (place / "crash").unlink()
    if cure == "resume":
        assert db.value("SELECT outbox.resume('audit')") is True
        assert db.value("SELECT outbox.resume('audit')") is False
    else:
        put(tree / "outbox_file.so", installation)  # starts the sink by itself
    wait_until(lambda: late in {event["id"] for event in events(place / "audit.ndjson")}, 60, lambda: db.sql("SELECT * FROM outbox.sinks"))
    if sent:
        dead = {event for event, in db.sql("SELECT id::text FROM outbox.events WHERE status = 'FAILED' AND last_error LIKE 'crashed the worker%%'")}
        assert len(dead) == 1 and dead < set(sent)  # the second one waited for its sink
        db.sql("SELECT outbox.redrive(id, force => true) FROM outbox.events WHERE status = 'FAILED'")
        wait_until(lambda: set(sent) <= {event["id"] for event in events(place / "audit.ndjson")}, 60, lambda: db.sql("SELECT * FROM outbox.events"))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.kills_server
@pytest.mark.parametrize("crashes", ("at one event",), indirect=True)
def test_an_event_that_crashes_its_kind_becomes_a_dead_letter(db, place, receiver, crashes):
    """All others are delivered, those of its key in order."""
    made = [("Order", key, "order.made", str(n)) for n in range(40) for key in "abc"]
    ids = enqueued(db, [*made[:60], ("Order", "b", "order.killer"), *made[60:]])
    killer, others = ids[60], {*ids[:60], *ids[61:]}

    def is_dead() -> bool:
        return answered(db, lambda: db.sql("SELECT status, sink FROM outbox.events WHERE id = %s AND sink = 'audit'", killer) == [("FAILED", "audit")])

    wait_until(is_dead, 200, lambda: db.pg.logged(0)[-2000:])
    assert "crashed the worker" in db.value("SELECT last_error FROM outbox.events WHERE id = %s AND sink = 'audit'", killer)
    wait_until(lambda: others <= {event["id"] for event in events(place / "audit.ndjson")}, 120, lambda: db.sql("SELECT * FROM outbox.events"))
    first = {}
    for event in events(place / "audit.ndjson"):
        first.setdefault(event["id"], event)
    for key in "abc":
        of_key = [event["payload"] for event in first.values() if event["key"] == key and event["event_type"] == "order.made" and event["id"] in others]
        assert of_key == list(range(40)), key
    wait_until(lambda: has_arrived(receiver, ids[-1]) and has_arrived(receiver, killer), 60, lambda: db.sql("SELECT * FROM outbox.sinks"))
    assert crashes() == 5
    assert re.search(r'outbox sink "audit": the event at position \d+ becomes a dead letter', db.pg.logged(0))
    assert db.doctor("dead letters")[0] != "ok"
    assert db.sink("state", "audit") != ("misconfigured",)
    (place / "crash").unlink()
    db.sql("SELECT outbox.redrive(%s, force => true)", killer)
    wait_until(lambda: killer in {event["id"] for event in events(place / "audit.ndjson")}, 60, lambda: db.sql("SELECT * FROM outbox.events"))


def test_a_replaced_library_is_loaded_by_a_new_worker(db, tree, installation, place):
    """The test before has replaced it, too, so the next worker may still have the library of that."""
    newer = build_variant(tree, "newer", ('"{\\"id\\":', '"{\\"version\\":2,\\"id\\":'))
    old = db.sql("SELECT pid FROM outbox.workers")
    put(newer, installation)

    def is_loaded() -> bool:
        all_written(place, [db.enqueue("Order", "9", "order.late")], db)
        return events(place / "audit.ndjson")[-1].get("version") == 2

    wait_until(is_loaded, 60, lambda: db.sql("SELECT * FROM outbox.workers"))
    assert db.sql("SELECT pid FROM outbox.workers") not in ([], old)
    put(tree / "outbox_file.so", installation)


def test_databases_with_different_versions_of_a_kind(db, installation, place):
    """One of them is restored from a dump of the other. Both have the same library."""
    (installation["sharedir"] / "extension/outbox_file--1.0--1.1.sql").write_text("COMMENT ON FOREIGN DATA WRAPPER outbox_file IS 'newer';")
    with db.restored("restored") as restored:
        restored.sql("ALTER EXTENSION outbox_file UPDATE TO '1.1'")
        for each in db, restored, db:
            all_written(place, [each.enqueue("Order", "9", "order.late")], each)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_ours_is_built_and_loaded(db, tree, installation, kind):
    """If its client library is here. It has no peer, which its own tests have (make -C sinks/KIND test): the sink is made as on its page, and waits."""
    if run_make(ROOT / "sinks" / kind, "has-library").returncode:
        pytest.skip(f"the client library of {kind} is not installed")
    shutil.copytree(ROOT / "sinks" / kind, tree / kind, ignore=shutil.ignore_patterns("*.o", "*.so", "*.bc", "test", "bench"))
    install(tree / kind, installation, "CXXFLAGS=-O0")
    only_c_crosses_the_border_of(tree / kind / f"outbox_{kind}.so")
    db.sql(f"CREATE DATABASE {kind}")
    own = Database(db.pg, kind)
    own.sql(f"CREATE EXTENSION outbox_{kind} CASCADE")
    steps = re.findall(r"^<!-- step -->\n```sql\n(.*?)^```$", (ROOT / "sinks" / kind / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    [step] = [step for step in steps if "CREATE SERVER" in step]
    own.paste(re.sub(r"(?:localhost|127\.0\.0\.1):\d+", f"127.0.0.1:{free_port()}", step))
    [(id, sink)] = own.sql("SELECT id, sink FROM outbox.events_pending")
    assert own.sql("SELECT value FROM outbox.preview(%s, %s)", id, sink)
    wait_until(lambda: own.sink("kind, state", sink) == (kind, "circuit open"), 60, lambda: own.sql("SELECT * FROM outbox.sinks"))
    assert "refused" in own.sink("last_error", sink)[0].lower() and own.value("SELECT attempts FROM outbox.events_pending") == 0
    assert not all(ok for _, ok, _ in own.sql("SELECT step, ok, message FROM outbox.probe(%s)", sink))
    own.sql(f"DROP EXTENSION outbox_{kind} CASCADE")
    own.disconnect()
    db.sql(f"DROP DATABASE {kind} WITH (FORCE)")


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_without_the_headers_of_a_package_is_left_out(tmp_path, kind):
    """By make sinks, which asks has-library. The headers of each package are missing in turn."""
    [packages] = re.findall(r"^BUILD_PACKAGES = (.*)$", (ROOT / "sinks" / kind / "Makefile").read_text(), re.MULTILINE)
    if run_make(ROOT / "sinks" / kind, "has-library").returncode:
        pytest.skip(f"the client library of {kind} is not installed")
    for package in packages.split():
        files = subprocess.run(["dpkg-query", "--listfiles", package], text=True, stdout=subprocess.PIPE, check=True).stdout
        headers = re.findall(r"^/usr/include/(?:[\w-]+-linux-gnu/)?(.*\.h)$", files, re.MULTILINE)
        assert headers
        for header in headers:
            missing = tmp_path / package / header
            missing.parent.mkdir(parents=True, exist_ok=True)
            missing.write_text("#error missing\n")
        assert run_make(ROOT / "sinks" / kind, "has-library", f"CC=cc -I{tmp_path / package}").returncode, package


def test_the_extension_of_a_kind_is_dropped_with_its_sinks(db, place):
    db.refuses("DROP EXTENSION outbox_file", "cannot drop extension outbox_file")
    db.sql("SELECT outbox.pause('audit')")
    late = db.enqueue("Order", "9", "order.late")
    db.sql("DROP EXTENSION outbox_file CASCADE")
    assert db.sql("SELECT status, sink FROM outbox.events WHERE id = %s AND sink = 'audit'", late) == [("PENDING", "audit")]
    db.sql("CREATE EXTENSION outbox_file")
    db.sql(f"CREATE SERVER audit FOREIGN DATA WRAPPER outbox_file OPTIONS (path '{place / 'audit.ndjson'}')")
    all_written(place, [late], db)


def sink_test(tree: Path, installation: dict[str, Path], cycles: int) -> subprocess.CompletedProcess:
    """`make sink-test` of the page, with a pg_config that finds the installation of this test."""
    program = tree / "pg_config"
    program.write_text(f'#!/bin/sh\n[ "$*" = --bindir ] && echo {installation["bindir"]} || exec {pg_config("bindir") / "pg_config"} "$@"\n')
    program.chmod(0o755)
    return subprocess.run(["make", "-s", "-C", tree, f"PG_CONFIG={program}", "sink-test"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=os.environ | {"MAKEFLAGS": "", "CYCLES": str(cycles), "SEED": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"})


def test_the_program_lists_its_options():
    program = pg_config("includedir-server") / "extension/outbox/sink-test/outbox-sink-test"
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": ""}
    listed = subprocess.run([program, "--help"], capture_output=True, text=True, check=True, cwd="/", env=environment).stdout
    assert set(re.findall(r"^  (-.*?|PEER.py)(?:  | [A-Z]|$)", listed, re.MULTILINE)) == {"PEER.py", "-h, --help", "--pg-config", "--cycles", "--seed", "--attacks", "--only"}


@pytest.mark.slow
def test_the_books_of_the_page_s_kind(tree, installation):
    done = sink_test(tree, installation, 6)
    assert done.returncode == 0 and done.stdout.endswith("6 cycles passed, 0 failed; seed 1\n"), done.stdout[-4000:]
    assert {"refuse", "hang"} & set(re.findall(r"\w+", "".join(line for line in done.stdout.splitlines() if line.startswith("cycle"))))


def test_the_books_find_a_kind_that_loses_events(tree, installation):
    broken, library = tree / "broken", installation["pkglibdir"] / "outbox_file.so"
    broken.mkdir()
    for name, text in blocks().items():
        assert name != "file.cpp" or text.count('return failed("open");') == 1
        (broken / name).write_text(text.replace('return failed("open");', "return BatchSink::Outcome::sent();"))
    make(broken)
    library.rename(library.with_suffix(".fits"))
    shutil.copy2(broken / "outbox_file.so", library)
    done = sink_test(tree, installation, 20)
    library.with_suffix(".fits").rename(library)
    assert done.returncode != 0 and "\nLOST: " in done.stdout and "refuse" in done.stdout, done.stdout[-4000:]
    shutil.rmtree(re.search(r"^log: (/tmp/outbox-sink-test-\w+)/server\.log$", done.stdout, re.MULTILINE)[1])  # which it keeps when it finds something


def test_a_server_without_preload_loads_the_core_first(rig, installation):
    pg = rig.postgres(settings={"shared_preload_libraries": ""}, bindir=installation["bindir"])
    with pg.connect() as session:
        session.execute("CREATE EXTENSION outbox_file CASCADE")
    with pg.connect() as session:
        session.execute("CREATE SERVER audit FOREIGN DATA WRAPPER outbox_file OPTIONS (path '/tmp/x')")
        with pytest.raises(psycopg.Error, match="Expected an absolute path|invalid value"):
            session.execute("ALTER SERVER audit OPTIONS (SET path 'x')")
    pg.close()

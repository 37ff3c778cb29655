"""The test suites and their layers: check, test, all.

  python -m outbox_rig.suites NAME [TEST...]

runs one suite in this process, or again those of its tests, each three times by itself. Its output is shown; its
counts are written to build/results/NAME.json, or NAME-again.json. side_by_side.py runs several suites and adds up. With $QUICK, tests that are marked slow or timing are left out."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from turns import due as due_turn

from . import librdkafka, memcheck
from .crashes import crashes
from .paths import BUILD, LOGS, ROOT, pg_config
from .rig import Rig
from .wait import patient

CURRENT = librdkafka.environment(librdkafka.CURRENT)
NOT_DURABLE = {"FSYNC": "off"}  # for suites that do not check what survives: postgres.py
STOPPED = threading.Event()
KINDS = sorted(path.parent.name for path in (ROOT / "sinks").glob("*/Makefile"))  # of sink, that are extensions


os.environ.setdefault("PATIENCE", "6")  # wait.py

# What a failed test says where no second run excuses it: a crash, or a broken promise.
SURE = re.compile(r"\b(crash\w*|PANIC|TRAP|\w*Sanitizer|runtime error|lost|phantom|out of order|overtaken|another event's id)\b")


@dataclass
class Result:
    """`again`: those of `failed` that a second run may excuse, with the first line of their error."""

    passed: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)
    again: dict[str, str] = field(default_factory=dict)


def run(argv: list[str], env: dict[str, str] = {}, busy: bool = False) -> int:
    """Runs a command and returns its exit code. Its output is shown. `busy`: it computes, so it gets the processor time
    that other suites leave."""
    if STOPPED.is_set():
        return 128 + signal.SIGTERM
    with contextlib.suppress(OSError):  # where the kernel shares processors among sessions, nice counts only within this suite's
        Path("/proc/self/autogroup").write_text("10" if busy else "0")
    return subprocess.run(["nice", "-n", "10", *argv] if busy else argv, cwd=ROOT, env=os.environ | env, stdin=subprocess.DEVNULL,
                          stderr=subprocess.STDOUT).returncode


def judge(result: Result, code: int) -> Result:
    """A suite that ended with an error, or that ran no test, has failed whatever it counted. A program that ended by a
    signal may have told less than it found."""
    if code < 0 or code > 128:
        result.again.clear()
    if code != 0 and not result.failed:
        result.failed.append(f"ended with code {code}")
    elif not result.passed and not result.failed:
        result.failed.append("ran no test")
    return result


def count_junit(path: Path) -> Result:
    result = Result()
    if not path.exists():
        return result
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except ElementTree.ParseError:
        return result
    sure = set()
    for case in cases:
        wrong = [*case.iter("failure"), *case.iter("error")]
        if wrong:
            name = name_in_junit(case)
            if name not in result.failed:  # it failed, and so did its cleanup
                result.failed.append(name)
            if any(SURE.search(each.get("message") or each.text or "") for each in wrong):
                sure.add(name)
            result.again.setdefault(name, (wrong[0].get("message") or "").split("\n")[0])
        elif case.find("skipped") is not None or case.get("result") in ("skipped", "suppressed"):
            result.skipped += 1
        else:
            result.passed += 1
    result.again = {name: line for name, line in result.again.items() if name not in sure}
    return result


def name_in_junit(case: ElementTree.Element) -> str:
    """As pytest and GoogleTest take it to run this test alone."""
    if case.get("file", "").endswith(".py"):
        return f"test/{case.get('file')}::{case.get('name')}"
    return f"{case.get('classname', '')}.{case.get('name')}"


def again(once: Callable[[str], Result], tests: list[str]) -> Result:
    """Runs each of these tests three times in a row, until it fails."""
    results = {test: all(once(test) == Result(passed=1) for _ in range(3)) for test in tests}
    return Result(passed=sum(results.values()), failed=[test for test, passed in results.items() if not passed])


def command(*argv: str) -> Callable[..., Result]:
    """A program that is one test."""
    def once(log: Path) -> Result:
        code = run([*argv], busy=True)
        return judge(Result(passed=1) if code == 0 else Result(failed=[argv[0]]), code)
    return once


def unit(log: Path, *arguments: str, variables: tuple[str, ...] = (), into: str = "address-undefined", env: dict[str, str] = {}) -> Result:
    reports = BUILD / "unit" / into / "results"
    shutil.rmtree(reports, ignore_errors=True)
    make = ["make", "--no-print-directory", f"-j{os.cpu_count()}", "-f", "test/unit/Makefile", *variables]
    code = run([*make, "all"], busy=True) or run([*make, "run", *arguments], env)
    result = add(*map(count_junit, reports.glob("*.xml")))
    if len(list(reports.glob("*.xml"))) < len(list(reports.glob("*.log"))):
        result.failed.append("a process ended before it had written its report")
    return judge(result, code)


def unit_again(log: Path, tests: list[str]) -> Result:
    return again(lambda test: unit(log, f"FILTER={test}", "PARTS=1"), tests)


# "ok 3 - name   12 ms" since version 16, "test name ... ok   12 ms" before.
REGRESS_LINE = re.compile(r"^(?:(ok|not ok)\s+\d+\s+[-+] (\S+)|(?:test|\s{4,})\s*(\S+)\s+\.\.\. (ok|FAILED|failed))")


@dataclass
class Regress:
    """pg_regress or pg_isolation_regress on a server without the preload, as `make installcheck` runs it on any
    server."""

    name: str
    program: str
    inputdir: Path
    tests: list[str]

    def run(self, log: Path) -> Result:
        return self._run(log, self.tests)

    def again(self, log: Path, tests: list[str]) -> Result:
        return again(lambda test: self._run(log, [test]), tests)

    def _run(self, log: Path, tests: list[str]) -> Result:
        result = Result()
        output, before = BUILD / self.name, log.stat().st_size
        output.mkdir(parents=True, exist_ok=True)
        with Rig(f"test-{self.name}") as rig:
            # DISCARD_CACHES: each catalog lookup reads again, as after an invalidation at the worst time.
            discard = {"debug_discard_caches": "1"} if os.environ.get("DISCARD_CACHES") else {}
            pg = rig.postgres(settings={"shared_preload_libraries": "", "fsync": "off"} | discard)
            code = run([str(pg_config("pgxs").parent.parent / "test" / self.program), f"--inputdir={self.inputdir}",
                        f"--outputdir={output}", f"--bindir={pg_config('bindir')}", f"--host={pg.host}",
                        f"--port={pg.port}", "--user=postgres", "--dbname=contrib_regression", *tests])
            pg.stop()
            found = crashes(pg.log) + memcheck.new_reports(ended=True)
        for line in log.read_bytes()[before:].decode(errors="replace").splitlines():
            if match := REGRESS_LINE.match(line):
                if "ok" in (match[1], match[4]):
                    result.passed += 1
                else:
                    result.failed.append(match[2] or match[3])
        result.again = dict.fromkeys(result.failed, "another output than expected")
        differences = output / "regression.diffs"
        if result.failed and differences.exists():
            text = differences.read_text(errors="replace")
            print(f"{text}\nthese differences: {differences}")
        if found:
            print("\n".join(found))
            result.failed.append(f"the server crashed, or memcheck found errors: {pg.log}")
            result.again.clear()
        return judge(result, code)


REGRESS = Regress("regress", "regress/pg_regress", ROOT, sorted(path.stem for path in (ROOT / "sql").glob("*.sql")))
ISOLATION = Regress("isolation", "isolation/pg_isolation_regress", ROOT / "test/isolation",
                    sorted(path.stem for path in (ROOT / "test/isolation/specs").glob("*.spec")))


def pytest(folder: str, log: Path, *arguments: str, tests: list[str] = [], env: dict[str, str] = {}) -> Result:
    """The tests of that folder, or these alone."""
    report = BUILD / "results" / f"{log.stem}.xml"
    report.unlink(missing_ok=True)
    if not list((ROOT / "test" / folder).glob("test_*.py")):
        return judge(Result(), 0)
    quick = ["-m", "not slow and not timing"] if os.environ.get("QUICK") else []
    before = log.stat().st_size if log.exists() else 0
    code = run([sys.executable, "-u", "-m", "pytest", *(tests or [f"test/{folder}"]), f"--junitxml={report}", "-o", "junit_family=xunit1",
                "--maxfail=12", f"--timeout={patient(300):g}", *quick, *arguments, *shlex.split(os.environ.get("PYTEST_ARGS", ""))],
               env | {"SUITE": log.stem})
    result = judge(count_junit(report), code)
    if log.exists() and b"! stopping after" in log.read_bytes()[before:]:
        result.failed.append("it stopped after its first failures: the other tests did not run")
        result.again.clear()
    return result


@dataclass
class Pytest:
    """A folder of tests."""

    folder: str
    env: dict[str, str] = field(default_factory=dict)

    def run(self, log: Path) -> Result:
        return pytest(self.folder, log, env=self.env)

    def again(self, log: Path, tests: list[str]) -> Result:
        return again(lambda test: pytest(self.folder, log, tests=[test], env=self.env), tests)


def add(*results: Result) -> Result:
    return Result(sum(each.passed for each in results), sum(each.skipped for each in results), [name for each in results for name in each.failed],
                  {name: line for each in results for name, line in each.again.items()})


def with_current_librdkafka(log: Path) -> Result:
    """Compiling with its headers; and, as built with the system's version, the unit tests of the Kafka sink and the
    tests that are marked librdkafka."""
    code = run(["make", f"-j{os.cpu_count()}", "-f", "test/unit/Makefile", "compiles", f"HEADERS={librdkafka.CURRENT}/include"], busy=True)
    headers = judge(Result(passed=1) if code == 0 else Result(failed=["compiles"]), code)
    result = add(headers, unit(log, "FILTER=*Kafka*", env=CURRENT),
                 *(pytest(folder, log, "-m", "librdkafka", env=CURRENT) for folder in ("kafka", "e2e", "fault")))
    result.again.clear()
    return result


NOT_TO_BE_HAD = 75  # exit code of test/rig/chroot


def elsewhere(version: str, log: Path, suites: list[str], only: str, part: str | None = None) -> Result:
    """Runs these suites in the Debian release that has that PostgreSQL, with the part `part` of test/rig/install. A
    mirror without that release says nothing about outbox: the suite is then skipped with a message."""
    code = run(["test/rig/chroot", "--root", version, "test/rig/install", part]) if part else 0
    if code == 0:
        code = run(["test/rig/chroot", version, "test/run", *suites], {"PYTEST_ARGS": f"-k '{only}'", "JOBS": "1"})
    if code == NOT_TO_BE_HAD:
        print(f"PostgreSQL {version} cannot be had from the mirror now: nothing was tested with it")
        return Result(skipped=1)
    return judge(counted(log, suites), code)


def counted(log: Path, suites: list[str]) -> Result:
    """The counts that a test/run within this suite printed at its end."""
    said, names = log.read_text(errors="replace"), "|".join(suites)
    result = add(*(Result(int(passed), int(skipped)) for passed, skipped in
                   re.findall(rf"^(?:{names}) +(\d+) +\d+ +(\d+) +[\d.]+ +[\d.]+$", said, re.MULTILINE)))
    result.failed = re.findall(rf"^FAILED (?:{names}): (.*?)  \(log:", said, re.MULTILINE)
    return result


def on_asserting_postgresql(log: Path) -> Result:
    """CYCLES: of chaos. The second run of regress finds pointers into caches that are kept too long."""
    suites = ["regress", "isolation", "e2e", "fault", "chaos"]
    cycles = os.environ.get("CYCLES", "100")
    code = run(["test/rig/cassert/run", "test/run", *suites], {"JOBS": "1", "CYCLES": cycles})
    code = run(["test/rig/cassert/run", "test/run", "regress"], {"DISCARD_CACHES": "1"}) or code
    return judge(counted(log, suites), code)


def races(log: Path) -> Result:
    """A report fails the process in which it appears, and so the suite. The races that are planted come last."""
    libraries = subprocess.run(["bash", "-c", ". test/rig/env.sh && races_folder"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    result = unit(log, variables=("SAN=thread", f"WITH={libraries}"), into="thread")
    result.again.clear()
    planted = "test/races/planted.py"
    if run([sys.executable, "-u", planted], busy=True):
        result.failed.append(planted)
    return result


# Tests of e2e that pass when the server is 30 times slower.
UNDER_VALGRIND = " or ".join((
    "event_arrives_as_debezium_would_send_it", "raw_bytes_pass_untouched", "webhook_is_received_and_its_signature_verifies",
    "goes_to_every_sink_that_takes_it", "plain_inserts_of_any_shape", "each_sink_has_its_own_progress", "a_named_sink_alone_gets_the_event",
    "only_the_failing_key_waits", "dead_letter_keeps_the_whole_error", "hold_blocks_its_key_alone", "hold_of_keys_with_nothing_behind",
    "damaged_headers_wait_alone"))


def on_valgrind(log: Path) -> Result:
    """The errors that are planted come last: if memcheck does not report them, what it said before means nothing."""
    suites, planted = ["regress", "e2e"], "test/memory/planted.py"
    code = run(["test/rig/cassert/run", "--valgrind", "test/run", *suites], {"JOBS": "1", "PYTEST_ARGS": os.environ.get("PYTEST_ARGS") or f"-k '{UNDER_VALGRIND}'"})
    result = counted(log, suites)
    if run(["test/rig/cassert/run", "--valgrind", sys.executable, "-u", planted]):
        result.failed.append(planted)
    return judge(result, code)


def on_other_postgresql(version: str, log: Path) -> Result:
    """The SQL surface, the isolation tests, the main job end to end, and pg_upgrade to that version."""
    return elsewhere(version, log, ["regress", "isolation", "e2e", "operate"], "main_job or pg_upgrade")


def packages_elsewhere(version: str, log: Path) -> Result:
    """The Debian packages, installed in a system that is discarded afterwards."""
    return elsewhere(version, log, ["packages"], "debian", "packages")


def given(*names: str, **defaults: str) -> dict[str, str]:
    """The variables with these names that are set, and the defaults of others. The suites draw from the same seed each time, so that a change is
    judged by what it changes; the make targets of docs/promises.md draw fresh ones."""
    return defaults | {name: os.environ[name] for name in (*names, *defaults) if name in os.environ}


def in_cycles(folder: str, program: str, cycles: str) -> Callable[[Path], Result]:
    """First the tests in the folder, of what the program relies on; then each of its cycles counts as a test."""
    def once(log: Path) -> Result:
        result = pytest(folder, log)
        result.again.clear()
        if not result.failed:
            code = run([sys.executable, "-u", program], given(CYCLES=cycles, SEED="1"))
            ends = re.findall(r"^cycle +\d+ (ok|FAILED)", log.read_text(errors="replace"), re.MULTILINE)
            result.passed += ends.count("ok")
            result.failed += [f"a cycle of {folder}"] * ends.count("FAILED")
            judge(result, code)
        return result
    return once


def simulate(log: Path) -> Result:
    """Each world counts as a test."""
    chosen = given("SEEDS", "FOR_SECONDS", "CPU_SECONDS") or {"SEEDS": "2000"}
    code = run(["test/simulate/run"], given(SEED="1") | chosen, busy=True)
    text = log.read_text(errors="replace")
    passed = re.search(r"^(\d+) worlds passed", text, re.MULTILINE)
    return judge(Result(int(passed[1]) if passed else 0, 0, re.findall(r"^FAILED (seed \d+)", text, re.MULTILINE)), code)


def fault_points(log: Path) -> Result:
    """Each case counts as a test, and those that were not reached are skipped: at most half of all. `make test-faults` runs every one."""
    code = run(["test/fault_points/run"], given(FOR_SECONDS="120", SEED="1"), busy=True)
    text = log.read_text(errors="replace")
    counts = re.search(r"^(\d+) cases passed, \d+ failed, (\d+) skipped", text, re.MULTILINE)
    passed, skipped = map(int, counts.groups()) if counts else (0, 0)
    failed = re.findall(r"^FAILED (.*)", text, re.MULTILINE)
    if skipped > passed:
        failed.append(f"{skipped} of {passed + skipped} fault points were not reached")
    return judge(Result(passed, skipped, failed), code)


def fuzz(log: Path) -> Result:
    """The same executions of each target each time, about five seconds of them, so that a change is judged by what it changes; SEED chooses others.
    Each counts as a test."""
    make = ["make", "--no-print-directory", "-s", f"-j{os.cpu_count()}", "-f", "test/fuzz/Makefile"]
    seed = ["--seed", os.environ["SEED"]] if "SEED" in os.environ else []
    code = run(make, busy=True) or run([sys.executable, "-u", "test/fuzz/fuzz.py", "--same", *seed])
    ends = re.findall(r"^(\w+) +\d+ +\d+ +\d+ +\d+  (ok|FAILED)$", log.read_text(errors="replace"), re.MULTILINE)
    return judge(Result(passed=sum(end == "ok" for _, end in ends), failed=[name for name, end in ends if end != "ok"]), code)


def calls(log: Path) -> Result:
    """A sample of all runs of `make test-calls`. Each counts as a test."""
    code = run(["test/calls/run"], given(SAMPLE="300", SEED="1"), busy=True)
    text = log.read_text(errors="replace")
    ended = re.search(r"^(\d+) runs, (\d+) failed", text, re.MULTILINE)
    passed = int(ended[1]) - int(ended[2]) if ended else 0
    return judge(Result(passed, 0, re.findall(r"^FAILED (\S+, \w+ \d+)", text, re.MULTILINE)), code)


def sink_kind(kind: str, log: Path) -> Result:
    """Its tests, with its peer, and the books: each of their cycles counts as a test. It installs what they need."""
    if run([f"sinks/{kind}/test/install"]):
        print(f"nothing was tested: what sinks/{kind} needs cannot be installed here")
        return Result(skipped=1)
    report, program = BUILD / "results" / f"{log.stem}.xml", f"sinks/{kind}/test/run"
    report.unlink(missing_ok=True)
    code = run([program], {"PYTEST_ADDOPTS": f"--junitxml={report} -o junit_family=xunit1"})
    code = run([program, "books"], given(CYCLES="20", SEED="1")) or code
    result = count_junit(report)
    result.again.clear()
    cycles = re.findall(r"^cycle +\d+ (ok|FAILED)", log.read_text(errors="replace"), re.MULTILINE)
    result.passed += cycles.count("ok")
    result.failed += ["a cycle of the books"] * cycles.count("FAILED")
    return judge(result, code)


def attacks(log: Path) -> Result:
    """Each attack on each kind whose library is there counts as a test. With ATTACKS, a list with commas, these alone."""
    program = os.environ.get("PG_CONFIG", "pg_config")
    with_library = [kind for kind in KINDS if (ROOT / "sinks" / kind / "test/hostile.py").exists()
                    and run(["make", "-s", "-C", f"sinks/{kind}", "has-library"], {"PG_CONFIG": "/nonexistent"}) == 0]
    code = 0
    for kind in with_library:
        for target in ([], ["install"]):
            code = code or run(["make", "-s", "-C", f"sinks/{kind}", f"PG_CONFIG={program}", *target], busy=True)
    fakes = [*sorted((ROOT / "test/sink").glob("hostile_*.py")), *(ROOT / "sinks" / kind / "test/hostile.py" for kind in with_library)]
    only = [word for name in filter(None, os.environ.get("ATTACKS", "").split(",")) for word in ("--only", name)]
    code = code or run([sys.executable, "-u", "test/sink/outbox-sink-test", "--pg-config", program, "--attacks", *only, *map(str, fakes)])
    ends = re.findall(r"^(\w+ +\S.*?)  +(ok|FAILED|left out)\b", log.read_text(errors="replace"), re.MULTILINE)
    return judge(Result(sum(end == "ok" for _, end in ends), sum(end == "left out" for _, end in ends), [re.sub(" +", " ", name) for name, end in ends if end == "FAILED"]), code)


@dataclass
class Suite:
    title: str
    run: Callable[[Path], Result]
    minutes: float  # minutes beside other suites, on two quiet processors
    again: Callable[[Path, list[str]], Result] | None = None  # runs some of its tests once more; None where chance decides nothing, or too much
    compiles: bool = False  # it uses all processors, so only one such suite runs at a time
    needs: str = ""  # the part of test/rig/install that it needs besides "slow"
    leaves: tuple[str, ...] = ()  # folders below build/, besides its rig's, that are only of use after a failure


def tests_in(folder: str, title: str, minutes: float, env: dict[str, str] = {}, again: bool = True, **options) -> Suite:
    tests = Pytest(folder, env)
    return Suite(f"pytest: {title}", tests.run, minutes, tests.again if again else None, **options)


SUITES = {
    "style": Suite("clang-format, ruff, which folder includes which, and that calls and fuzz compile", command("test/lint", "--style"), 0.8),
    "lint": Suite("the same, and clang-tidy", command("test/lint"), 7, compiles=True),
    "unit": Suite("GoogleTest: src/delivery, src/dispatch, Kafka and webhooks without a server, under ASan and UBSan", unit, 4, unit_again, compiles=True),
    "simulate": Suite("src/dispatch in 2,000 simulated worlds; make simulate draws fresh ones", simulate, 3, compiles=True),
    "regress": Suite("pg_regress: the SQL surface", REGRESS.run, 1, REGRESS.again),
    "isolation": Suite("pg_isolation_regress: interleavings of sessions", ISOLATION.run, 1, ISOLATION.again),
    "e2e": tests_in("e2e", "the whole way, with a real broker and a real endpoint", 7, NOT_DURABLE),
    "kafka": tests_in("kafka", "what Kafka's users expect: formats, ways to connect, several brokers", 8, NOT_DURABLE),
    "webhook": tests_in("webhook", "what webhooks' users expect: formats, answers, guarded networks, slow and failing endpoints", 3, NOT_DURABLE),
    "operate": tests_in("operate", "what operators do and see: views, doctor, rights, metrics, restores and upgrades", 10, NOT_DURABLE,
                        leaves=("new-sink", "installation/next", "installation/next-source")),
    "fault": tests_in("fault", "kills and outages", 11),
    "docs": tests_in("docs", "every example of the documentation", 1, NOT_DURABLE),
    "protocols": tests_in("protocols", "protocols between processes, model-checked by spin, and traces of real workers", 4, again=False, needs="models"),
    "fuzz": Suite("libFuzzer, under ASan and UBSan: each parser of foreign bytes, the same executions each time; make fuzz draws fresh ones", fuzz, 6, compiles=True, needs="fuzz"),
    "model": tests_in("model", "random steps through the SQL surface, against a model in Python; make test-model takes more", 3, given(SEED="1"), again=False),
    "fault-points": Suite("a server that is broken at fault points in the code, a sample of two minutes; make test-faults runs all", fault_points, 4, compiles=True, needs="faults"),
    "chaos": Suite("random faults under random traffic, and what arrived; CYCLES and SEED choose", in_cycles("chaos", "test/chaos/chaos.py", "20"), 8, leaves=("rig/chaos",)),
    "attacks": Suite("hostile peers of each kind of sink: what is delivered, memory, CPU, state, and the sink beside it", attacks, 20, compiles=True, needs="fuzz"),
    "power": Suite("power cuts that lose unsynced WAL, and errors of the disk; CYCLES and SEED choose", in_cycles("power", "test/power/disks.py", "15"), 3),
    "calls": Suite("src/delivery, src/dispatch, Kafka and webhooks: one allocation or call fails, a sample; make test-calls lets each fail", calls, 4, compiles=True),
    "librdkafka": Suite("what depends on librdkafka, with a current one", with_current_librdkafka, 8, compiles=True, needs="librdkafka"),
    "pg17": Suite("the main job on PostgreSQL 17, and pg_upgrade to it, in Debian's release that has it", lambda log: on_other_postgresql("17", log), 9),
    "pg18": Suite("the main job on PostgreSQL 18, and pg_upgrade to it, in Debian's release that has it", lambda log: on_other_postgresql("18", log), 9),
    "pg19": Suite("the main job on PostgreSQL 19, and pg_upgrade to it, in Debian's experimental suite", lambda log: on_other_postgresql("19", log), 9),
    "assert": Suite("regress, isolation, e2e, fault and chaos on a PostgreSQL with --enable-cassert", on_asserting_postgresql, 65, needs="assert"),
    "memory": Suite("regress, and a part of e2e, on a server under Valgrind's memcheck", on_valgrind, 30, needs="memory"),
    "races": Suite("the unit tests under ThreadSanitizer, with librdkafka and libcurl built with it", races, 12, compiles=True, needs="races"),
    "packages": tests_in("packages", "packages and a release are built, installed, used and purged", 40, compiles=True, needs="packages"),
    "packages-17": Suite("pytest: the Debian packages for PostgreSQL 17, in the release that has it", lambda log: packages_elsewhere("17", log), 9),
    "packages-18": Suite("pytest: the Debian packages for PostgreSQL 18, in the release that has it", lambda log: packages_elsewhere("18", log), 9),
    "examples": tests_in("examples", "examples/, each with its own toolchain, against a real server, broker and consumer", 10, needs="examples"),
    "patroni": tests_in("patroni", "a Patroni cluster of two nodes", 5, needs="patroni"),
    "compose": tests_in("compose", "the Docker image and the compose file, without Docker", 5, needs="compose"),
    "console": tests_in("console", "the console: its pages, attacks on it, and a browser", 4, NOT_DURABLE, needs="console"),
    **{f"sink-{kind}": Suite(f"the kind of sink {kind}, with its peer", partial(sink_kind, kind), 10, compiles=True) for kind in KINDS},
}

# The releases that test/rig/chroot has already made on this machine: others need minutes and a network.
RELEASES = {"17": "trixie", "18": "forky", "19": "experimental"}
HERE = [major for major, name in RELEASES.items() if Path(os.environ.get("OUTBOX_RIG_CACHE", "/var/cache/outbox-rig"), name, ".made").exists()]

# The suites of a name that is not itself a suite. In `all`, the most valuable ones come first.
CHECK = ["unit", "regress"]
TEST = ["style", *CHECK, "simulate", "isolation", "e2e", "kafka", "webhook", "operate", "fault", "docs"]
REST = ["lint", "protocols", "model", "fuzz", "fault-points", "attacks", "power", "calls", "chaos", "librdkafka", *(f"pg{major}" for major in HERE), "packages", "examples", "patroni", "compose", "console", *(f"sink-{kind}" for kind in KINDS), "assert",
        *(f"packages-{major}" for major in HERE if f"packages-{major}" in SUITES)]
LAYERS = {"check": CHECK, "test": TEST, "turn": due_turn(), "all": TEST + REST}


def main() -> int:
    """A suite whose programs cannot be installed here says nothing about outbox: it is skipped with a message."""
    name, *tests = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: STOPPED.set())  # the child gets the signal too, and is waited for
    suite, result = SUITES[name], Result(skipped=1)
    stem = f"{name}-again" if tests else name
    log = LOGS / f"{stem}.log"
    if suite.needs and run(["test/rig/install", suite.needs]):
        print(f"nothing was tested: what {name} needs cannot be installed here")
    else:
        result = suite.again(log, tests) if tests and suite.again else suite.run(log)
        if not result.failed:  # what its servers and brokers stored; the logs are elsewhere
            for folder in (f"rig/test-{name}", *suite.leaves):
                shutil.rmtree(BUILD / folder, ignore_errors=True)
    (BUILD / "results").mkdir(exist_ok=True)
    (BUILD / "results" / f"{stem}.json").write_text(json.dumps(asdict(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

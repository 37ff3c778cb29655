"""Runs the test suites one after the other and counts: python -m outbox_rig.suites unit regress isolation e2e kafka webhook operate docs fault chaos.

Each suite's output goes to build/logs/<suite>.log. NAME-current is a suite that runs with a current librdkafka instead of the
system's: kafka-current is part of CI, e2e-current, fault-current, packages, patroni,
compose and examples are there for the asking. The last line is `N passed, N failed`."""

import os
import re
import shlex
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

from . import librdkafka
from .crashes import crashes
from .paths import BUILD, LOGS, ROOT, pg_config
from .rig import Rig

MINUTES = 80  # a quiet machine needs half of it; a busy one must not fail for being busy
DEADLINE = time.monotonic() + MINUTES * 60
CURRENT = librdkafka.environment(librdkafka.CURRENT)


@dataclass
class Result:
    passed: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)
    seconds: float = 0


def run(log: Path, argv: list[str], env: dict[str, str] = {}) -> int | None:
    """Its exit code, None when the time was up. The output goes to the log and, as it comes, to the terminal."""
    with open(log, "a", buffering=1) as out:
        child = subprocess.Popen(argv, cwd=ROOT, env=os.environ | env, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                 start_new_session=True)
        # The watchdog is a process, because reading the output blocks.
        left = max(1, DEADLINE - time.monotonic())
        watchdog = subprocess.Popen(["sh", "-c", f"sleep {left:.0f} && kill -TERM {child.pid} && sleep 20 && kill -KILL -{child.pid}"],
                                    start_new_session=True)
        try:
            for line in child.stdout:
                out.write(line)
                if line.startswith(("g++", "c++", "clang++")):  # a compiler's command line: the last word is enough
                    line = f"compiling {line.split()[-1]}\n"
                print("    " + line, end="")
            child.wait()
        except BaseException:
            child.terminate()
            child.wait(60)
            raise
        finally:
            late = watchdog.poll() is not None or time.monotonic() >= DEADLINE
            if watchdog.poll() is None:
                os.killpg(watchdog.pid, 15)
            watchdog.wait()
        return None if late else child.returncode


def judge(result: Result, code: int | None) -> Result:
    """A suite that ended badly, or that ran nothing, has failed whatever it counted."""
    if code is None:
        result.failed.append(f"not ended after {MINUTES} minutes in all")
    elif code != 0 and not result.failed:
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
    for case in cases:
        if case.find("failure") is not None or case.find("error") is not None:
            name = f"{case.get('classname', '')}.{case.get('name')}"
            if name not in result.failed:  # it failed, and so did what cleans up after it
                result.failed.append(name)
        elif case.find("skipped") is not None or case.get("result") in ("skipped", "suppressed"):
            result.skipped += 1
        else:
            result.passed += 1
    return result


def lint(log: Path) -> Result:
    code = run(log, ["test/lint"])
    return judge(Result(passed=1) if code == 0 else Result(failed=["lint"]), code)


def unit(log: Path, *arguments: str, env: dict[str, str] = {}) -> Result:
    report = BUILD / "unit" / "results.xml"
    report.unlink(missing_ok=True)
    code = run(log, ["make", f"-j{os.cpu_count()}", "-f", "test/unit/Makefile", "run", *arguments], env)
    return judge(count_junit(report), code)


# "ok 3 - name   12 ms" since 16, "test name ... ok   12 ms" before.
REGRESS_LINE = re.compile(r"^(?:(ok|not ok)\s+\d+\s+[-+] (\S+)|(?:test|\s{4,})\s*(\S+)\s+\.\.\. (ok|FAILED|failed))")


def regress_suite(name: str, program: str, inputdir: Path, tests: list[str], log: Path) -> Result:
    """pg_regress or pg_isolation_regress, on a server without the preload, as `make installcheck` has it on any."""
    result = Result()
    if not tests:
        return judge(result, 0)
    output = BUILD / name
    output.mkdir(parents=True, exist_ok=True)
    with Rig(f"test-{name}") as rig:
        pg = rig.postgres(settings={"shared_preload_libraries": ""})
        code = run(log, [str(pg_config("pgxs").parent.parent / "test" / program), f"--inputdir={inputdir}",
                         f"--outputdir={output}", f"--bindir={pg_config('bindir')}", f"--host={pg.host}",
                         f"--port={pg.port}", "--user=postgres", "--dbname=contrib_regression", *tests])
        pg.stop()
        found = crashes(pg.log)
    for line in log.read_text(errors="replace").splitlines():
        if match := REGRESS_LINE.match(line):
            if "ok" in (match[1], match[4]):
                result.passed += 1
            else:
                result.failed.append(match[2] or match[3])
    differences = output / "regression.diffs"
    if result.failed and differences.exists():
        text = differences.read_text(errors="replace")
        with open(log, "a") as out:
            out.write(text)
        print("".join("    " + line for line in text.splitlines(keepends=True)[:80]))
        print(f"    all differences: {differences}")
    if found:
        print("\n".join(found))
        result.failed.append(f"the server crashed: {pg.log}")
    return judge(result, code)


def regress(log: Path) -> Result:
    tests = sorted(path.stem for path in (ROOT / "sql").glob("*.sql"))
    return regress_suite("regress", "regress/pg_regress", ROOT, tests, log)


def isolation(log: Path) -> Result:
    tests = sorted(path.stem for path in (ROOT / "test/isolation/specs").glob("*.spec"))
    return regress_suite("isolation", "isolation/pg_isolation_regress", ROOT / "test/isolation", tests, log)


def pytest(folder: str, log: Path, *arguments: str, env: dict[str, str] = {}) -> Result:
    report = BUILD / "results" / f"{folder}.xml"
    report.unlink(missing_ok=True)
    if not list((ROOT / "test" / folder).glob("test_*.py")):
        return judge(Result(), 0)
    code = run(log, [sys.executable, "-u", "-m", "pytest", f"test/{folder}", f"--junitxml={report}", *arguments,
                     *shlex.split(os.environ.get("PYTEST_ARGS", ""))], env)
    return judge(count_junit(report), code)


def add(*results: Result) -> Result:
    return Result(sum(each.passed for each in results), sum(each.skipped for each in results), [name for each in results for name in each.failed])


def kafka_current(log: Path) -> Result:
    """What depends on librdkafka, with a current one: do we compile with its headers, and, as built with the system's, the unit
    tests of the sink and the end-to-end tests but for those that are marked same_with_any_librdkafka."""
    code = run(log, ["make", f"-j{os.cpu_count()}", "-f", "test/unit/Makefile", "compiles", f"HEADERS={librdkafka.CURRENT}/include"])
    headers = judge(Result(passed=1) if code == 0 else Result(failed=["compiles"]), code)
    return add(headers, unit(log, "FILTER=*Kafka*", env=CURRENT), pytest("kafka", log, "-m", "not same_with_any_librdkafka", env=CURRENT))


NOT_TO_BE_HAD = 75  # of test/rig/chroot


def elsewhere(version: str, log: Path, suites: list[str], only: str, part: str | None = None) -> Result:
    """These suites in the release that has that PostgreSQL, with what test/rig/install calls `part` besides. Whether the mirror has that
    release today says nothing about outbox: when it cannot be had the suite is skipped, and says so."""
    code = run(log, ["test/rig/chroot", "--root", version, "test/rig/install", part]) if part else 0
    if code == 0:
        code = run(log, ["test/rig/chroot", version, "test/run", *suites], {"PYTEST_ARGS": f"-k '{only}'"})
    if code == NOT_TO_BE_HAD:
        print(f"    PostgreSQL {version} cannot be had from the mirror now: nothing was tested with it")
        return Result(skipped=1)
    said, names = log.read_text(errors="replace"), "|".join(suites)
    result = add(*(Result(int(passed), int(skipped)) for passed, skipped in
                   re.findall(rf"^(?:{names}) +(\d+) +\d+ +(\d+) +[\d.]+$", said, re.MULTILINE)))
    result.failed = re.findall(rf"^FAILED (?:{names}): (.*?)  \(log:", said, re.MULTILINE)
    return judge(result, code)


def on_other_postgresql(version: str, log: Path) -> Result:
    """The SQL surface, the interleavings, the main job end to end, and pg_upgrade to it."""
    return elsewhere(version, log, ["regress", "isolation", "e2e", "operate"], "main_job or pg_upgrade")


def packages_elsewhere(version: str, log: Path) -> Result:
    """The Debian packages, installed in a system that is thrown away."""
    return elsewhere(version, log, ["packages"], "debian", "packages")


CHAOS_CYCLES, CHAOS_SEED = "20", "1"


def chaos(log: Path) -> Result:
    """The checker is checked first; then each cycle counts as a test."""
    result = pytest("chaos", log)
    if not result.failed:
        code = run(log, [sys.executable, "-u", "test/chaos/chaos.py"],
                   {"CYCLES": CHAOS_CYCLES, "SEED": CHAOS_SEED} | {name: os.environ[name] for name in ("CYCLES", "SEED") if name in os.environ})
        cycles = re.findall(r"^cycle +\d+ (ok|FAILED)", log.read_text(errors="replace"), re.MULTILINE)
        result.passed += cycles.count("ok")
        result.failed += ["a cycle of chaos"] * cycles.count("FAILED")
        judge(result, code)
    return result


SUITES = {
    "lint": ("clang-format, clang-tidy, and which folder includes which", lint),
    "unit": ("GoogleTest: src/delivery and src/dispatch without a server, under ASan and UBSan", unit),
    "regress": ("pg_regress: the SQL surface", regress),
    "isolation": ("pg_isolation_regress: interleavings of sessions", isolation),
    "e2e": ("pytest: the whole way, with a real broker and a real endpoint", lambda log: pytest("e2e", log)),
    "kafka": ("pytest: what Kafka's users expect: formats, ways to connect, several brokers", lambda log: pytest("kafka", log)),
    "webhook": ("pytest: what webhooks' users expect: formats, answers, guarded networks, slow and failing endpoints", lambda log: pytest("webhook", log)),
    "operate": ("pytest: what operators do and see: views, doctor, rights, metrics, restores and upgrades", lambda log: pytest("operate", log)),
    "docs": ("pytest: every example of the documentation", lambda log: pytest("docs", log)),
    "examples": ("pytest: examples/, each with its own toolchain, against a real server, broker and consumer", lambda log: pytest("examples", log)),
    "kafka-current": ("what depends on librdkafka, with a current one", kafka_current),
    "e2e-current": ("e2e with a current librdkafka", lambda log: pytest("e2e", log, env=CURRENT)),
    "fault-current": ("fault with a current librdkafka", lambda log: pytest("fault", log, env=CURRENT)),
    "packages": ("pytest: packages are built, installed, used and purged", lambda log: pytest("packages", log)),
    "packages-17": ("pytest: the Debian packages for PostgreSQL 17, in the release that has it", lambda log: packages_elsewhere("17", log)),
    "packages-18": ("pytest: the Debian packages for PostgreSQL 18, in the release that has it", lambda log: packages_elsewhere("18", log)),
    "patroni": ("pytest: a Patroni cluster of two nodes", lambda log: pytest("patroni", log)),
    "compose": ("pytest: the Docker image and the compose file, without Docker", lambda log: pytest("compose", log)),
    "fault": ("pytest: kills and outages", lambda log: pytest("fault", log)),
    "pg17": ("the main job on PostgreSQL 17, and pg_upgrade to it, in Debian's release that has it", lambda log: on_other_postgresql("17", log)),
    "pg18": ("the main job on PostgreSQL 18, and pg_upgrade to it, in Debian's release that has it", lambda log: on_other_postgresql("18", log)),
    "pg19": ("the main job on PostgreSQL 19, and pg_upgrade to it, in Debian's experimental suite", lambda log: on_other_postgresql("19", log)),
    "chaos": ("random faults under random traffic, and what arrived; CYCLES and SEED choose", chaos),
}


def main() -> int:
    LOGS.mkdir(parents=True, exist_ok=True)
    unknown = [name for name in sys.argv[1:] if name not in SUITES]
    if unknown or not sys.argv[1:]:
        print(f"suites: {' '.join(SUITES)}", file=sys.stderr)
        return 2
    results: dict[str, Result] = {}
    for name in sys.argv[1:]:
        title, suite = SUITES[name]
        print(f"\n==> {name}: {title}")
        log = LOGS / f"{name}.log"
        log.unlink(missing_ok=True)
        started = time.monotonic()
        results[name] = suite(log)
        results[name].seconds = time.monotonic() - started

    print(f"\n{'suite':<14}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}")
    for name, result in results.items():
        print(f"{name:<14}{result.passed:>8}{len(result.failed):>8}{result.skipped:>9}{result.seconds:>9.1f}")
    for name, result in results.items():
        for failure in result.failed:
            print(f"FAILED {name}: {failure}  (log: {LOGS / name}.log)")
    passed = sum(result.passed for result in results.values())
    failed = sum(len(result.failed) for result in results.values())
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())

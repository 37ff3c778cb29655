#!/usr/bin/env python3
"""Each command that a suite or a script of the tests runs is there on a fresh machine: a part of Debian's minimal system, or brought by what
test/rig/install installs before. What a test runs that is not marked slow belongs to the part `test`. Commands are the first words of commands in shell
scripts, and of argument lists in Python; one that neither BASE nor BRINGS names is an error too."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "test/rig"))

from outbox_rig.suites import SUITES, TEST  # noqa: E402

# Essential and required packages of Debian 12, and what bash has itself.
BASE = set("""
    . : break cd command continue echo exec exit false mapfile printf read return set shift trap true wait
    apt-cache apt-config apt-get awk basename bash cat chmod chroot cmp cp cut date dirname dpkg dpkg-deb dpkg-query env find flock grep head id install ln ls mkdir
    mktemp mount mv nproc realpath rm sed setarch setpriv sha256sum sleep sort tail tar tee touch tr umount uname unshare xargs
""".split())
# command -> packages, of which one brings it; none: test/rig/install brings it into build/
BRINGS = {
    "cc": "g++", "chromedriver": "chromium-driver", "chromium": "chromium", "clang-format": "clang-format", "curl": "curl", "debootstrap": "debootstrap", "dpkg-buildpackage": "dpkg-dev", "dpkg-source": "dpkg-dev",
    "etcd": "etcd-server", "g++": "g++", "gcc": "gcc g++", "git": "git", "go": "", "ip": "iproute2", "java": "default-jre-headless", "kcat": "kcat",
    "lintian": "lintian", "make": "make build-essential", "mvn": "maven", "nats-server": "nats-server", "nginx": "nginx-light", "nm": "g++", "node": "nodejs",
    "npm": "npm", "openssl": "openssl", "patroni": "patroni", "pg_buildext": "postgresql-server-dev-all", "pg_virtualenv": "postgresql-server-dev-all",
    "pgbouncer": "pgbouncer", "pgxn": "pgxnclient", "exporter": "prometheus-postgres-exporter", "prometheus": "prometheus", "promtool": "prometheus",
    "prometheus-postgres-exporter": "prometheus-postgres-exporter", "python3": "python3", "redis-cli": "redis-server", "rpm": "rpm", "rpmbuild": "rpm",
    "erl_call": "rabbitmq-server", "rpmlint": "rpmlint", "rsync": "rsync", "spin": "spin", "tc": "iproute2", "tinyproxy": "tinyproxy-bin", "unzip": "unzip", "valgrind": "valgrind",
}
# What is installed before the scripts of other folders than a suite's run.
PARTS = {"packaging": "packages", "debian": "packages", ".githooks": "lint", "test/rig/cassert": "base assert", "test/rig/races": "races",
         "test/rig/librdkafka": "librdkafka", "test/rig": "slow races chroot memory", "test": "test"}
ELSEWHERE = {"test/compose/entrypoint", "packaging/release-in-debian", "packaging/image-volume"}  # run in a container or a fresh system
RUN = {"run", "_run", "_run_logged", "inside", "which"}  # functions in Python whose first argument is a command
BEFORE = {"again", "env", "exec", "logged", "nice", "xargs"}  # commands whose first argument after the options is one
BASH = Parser(Language(tree_sitter_bash.language()))


def nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from nodes(child)


def of_text(script: str) -> tuple[set[str], set[str]]:
    """The commands of a script in bash, and the functions that it defines."""
    found, functions = set(), set()
    for node in nodes(BASH.parse(script.encode()).root_node):
        name = node.child_by_field_name("name")
        if node.type == "function_definition":
            functions.add(name.text.decode())
        elif node.type == "command":
            words = [each.text.decode() for each in (name, *node.children_by_field_name("argument"))]
            while words and (word := re.fullmatch(r'(?:"\$ROOT/)?([a-z.:\[][\w.+/-]*)"?', words.pop(0))):
                found.add(word[1])
                if word[1] not in BEFORE:
                    break
                while words and re.match(r"-|\w+=|\d+$|[A-Z_]+$", words[0]):
                    words.pop(0)
    inner = [of_text(each)[0] for each in re.findall(r"\bsh -\w*c '([^']*)'", script)]
    return found.union(*inner), functions


def of_python(path: Path) -> Iterator[tuple[str, bool]]:
    """Each command with whether only slow tests run it."""
    def walk(node: ast.AST, slow: bool) -> Iterator[tuple[str, bool]]:
        slow, first = slow or any("mark.slow" in ast.unparse(mark) for mark in getattr(node, "decorator_list", [])), None
        if isinstance(node, ast.Call):
            name, first = ast.unparse(node.func), next(iter(node.args), None)
            if name.startswith("subprocess.") and isinstance(first, ast.List) and isinstance(first.elts[0], ast.Constant):
                yield first.elts[0].value, slow
            if name.startswith("rig."):
                first = ast.Constant(name.removeprefix("rig."))
            elif name.split(".")[-1] not in RUN:
                first = None
        elif isinstance(node, ast.List):
            first = next((each for each in node.elts if not isinstance(each, ast.Starred)), None)
        elif isinstance(node, ast.Constant) and str(node.value).startswith(("/usr/bin/", "/usr/sbin/")):
            first = ast.Constant(Path(node.value).name)
        if isinstance(first, ast.Constant) and first.value in BRINGS:
            yield first.value, slow
        for child in ast.iter_child_nodes(node):
            yield from walk(child, slow)

    text = path.read_text()
    return walk(ast.parse(text), bool(re.search(r"^pytestmark = .*mark\.slow", text, re.MULTILINE)))


def is_script(path: Path) -> bool:
    return path.is_file() and bool(re.match(b"#!.*sh\n", path.read_bytes()))


@cache
def of_script(path: Path) -> set[str]:
    """And of the scripts that it runs and that install nothing themselves."""
    text = path.read_text()
    (found, functions), (_, library) = of_text(text), of_text((ROOT / "test/rig/env.sh").read_text())
    others = [ROOT / each for each in found if "/" in each and is_script(ROOT / each) and "test/rig/install" not in (ROOT / each).read_text()]
    asked = set(re.findall(r"command -v ([\w+-]+)", text))  # it does without what it asks for
    return found.union(*map(of_script, others)) - functions - library - asked


def parts_of(path: Path, slow: bool) -> str:
    """What test/rig/install has installed before this file runs."""
    for folder in path.parents:
        for script in [path, *(folder / name for name in ("run", "install", "test/install"))]:
            if is_script(script) and (parts := re.findall(r"^[^#\n]*test/rig/install\b\"?((?: [+\w./-]+)+)", script.read_text(), re.MULTILINE)):
                return " ".join(parts)
        if (name := str(folder.relative_to(ROOT))) in PARTS:
            return PARTS[name]
        if folder.parent == ROOT / "test" and folder.name in SUITES:
            return f"{'test' if folder.name in TEST and not slow else 'slow'} lint {SUITES[folder.name].needs}"
    return ""


@cache
def packages(parts: str) -> set[str]:
    return set(subprocess.run([ROOT / "test/rig/install", "--list", *parts.split()], check=True, capture_output=True, text=True).stdout.split())


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "test", "packaging", "debian", "sinks", ".githooks"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    faults = set()
    for name in listed.splitlines():
        path, found = ROOT / name, set()
        if path.suffix == ".py" and path.is_file():
            found = set(of_python(path))
        elif is_script(path) and name not in ELSEWHERE:
            found = {(command, False) for command in of_script(path)}
        for command, slow in found:
            if command not in BASE and "/" not in command:
                parts, wanted = parts_of(path, slow), BRINGS.get(command)
                if wanted is None:
                    faults.add(f"{name} runs {command}, which test/commands.py does not know")
                elif wanted and not packages(parts).intersection(wanted.split()):
                    faults.add(f"{name} runs {command}, and test/rig/install {parts} does not bring {wanted}")
    print("".join(f"{fault}\n" for fault in sorted(faults)), end="", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

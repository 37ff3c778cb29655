#!/usr/bin/env python3
"""Puts errors into the code, one at a time, and shows what memcheck reports:

  test/rig/cassert/run --valgrind test/memory/planted.py [NAME...]
  test/memory/planted.py texts        only whether each piece still stands in the source

It changes the copy of the checkout in which cassert/run starts it, and only there. One test of e2e delivers a few
events to webhooks; without an error it must pass, which is tried first if no NAME is given."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "test/rig"))
from outbox_rig.planted import Error, changed, check  # noqa: E402

TEST = "test/e2e/test_fanout.py::test_each_sink_has_its_own_progress"
FIND = "src/server/sinks/worker_sinks.cpp"
QUEUE, SENDER = "src/delivery/engine/send_queue.h", "src/delivery/http/http_sender.cpp"


def error(file: str, piece: str, instead: str, says: str, where: str) -> Error:
    """`says`: what memcheck says; `where`: the function that it names."""
    return Error(file, piece, instead, rf"^==\d+== [^\n]*{says}[^\n]*\n(?:==\d+==    (?:at|by)[^\n]*\n)*?[^\n]*{where}", TEST)


PLANTED = {
    "a byte behind a palloc'd name": error(
        FIND, "  if (length >= NAMEDATALEN)\n    return NULL;\n",
        "  char *copy = pnstrdup(name, length);\n  if (length >= NAMEDATALEN || copy[length + 1] == 'x')\n    return NULL;\n",
        "Invalid read of size 1", "worker_sink_find"),
    "a byte that was never written": error(
        FIND, "strncmp(last_found->name, name, length) == 0 && last_found->name[length] == '\\0'",
        "last_found->name[length] == '\\0' && memcmp(last_found->name, name, length) == 0",
        "Conditional jump or move depends on uninitialised value", "worker_sink_find"),
    "use after free in the delivery library": error(
        QUEUE, "  running_.erase(at);\n", "  running_.erase(at);\n  if (at->second.ticket == 0)\n    halted_ = true;\n",
        "Invalid read of size 8", "SendQueue<.*>::(?:take|succeed)"),
    "a leak in the worker": error(
        SENDER, "  if (verdict.gone)\n    gone_ = true;\n",
        "  if (verdict.gone)\n    gone_ = true;\n  [[maybe_unused]] static std::string *volatile lost;\n  lost = new std::string(100, 'x');\n  lost = nullptr;\n",
        "definitely lost", "Requests::end"),
}


def run(*argv: str) -> subprocess.CompletedProcess:
    return subprocess.run(argv, cwd=ROOT, env=os.environ | {"SUITE": "planted", "PYTHONPATH": f"{ROOT}/test/rig"}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, errors="replace")


def build() -> None:
    done = run("test/rig/build")
    if done.returncode:
        sys.exit(done.stdout[-3000:] + done.stderr[-3000:])


def test(name: str) -> subprocess.CompletedProcess:
    return run(sys.executable, "-m", "pytest", "--timeout=3000", name)


def forget(path: Path) -> None:
    """rsync gives the file its old date: make would take the object for new."""
    path.with_suffix(".o").unlink(missing_ok=True)
    for library in ROOT.glob("outbox*.so"):
        library.unlink()


def main() -> int:
    if sys.argv[1:] == ["texts"]:
        sys.exit("\n".join(changed(PLANTED, ROOT)) or None)
    if not os.environ.get("OUTBOX_VALGRIND"):
        sys.exit(__doc__)
    return check(ROOT, PLANTED, sys.argv[1:], build, test, forget)


if __name__ == "__main__":
    sys.exit(main())

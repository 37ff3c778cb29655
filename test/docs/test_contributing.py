"""CONTRIBUTING.md is correct: the files that it names exist, and the formatting hook works."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from outbox_rig.paths import ROOT

UGLY, TIDY = "int  a( void ){return 1;}\n", "int a(void) {\n  return 1;\n}\n"
OTHER = "int b(void) { return 2; }\n"


def test_files_that_are_named_exist():
    named = set(re.findall(r"`((?:src|test|docs|sql|expected|\.githooks|\.ci|\.github)/[\w./*-]*)`", (ROOT / "CONTRIBUTING.md").read_text()))
    assert len(named) > 20
    assert [name for name in sorted(named) if not list(ROOT.glob(name.rstrip("/")))] == []


@pytest.fixture
def clone(tmp_path):
    """A repository with the hook enabled; clone(*arguments) runs git in it."""
    if not shutil.which("clang-format"):
        pytest.skip("clang-format is not installed")

    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=outbox", "-c", "user.email=outbox@example.org", *arguments]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    git("config", "core.hooksPath", str(ROOT / ".githooks"))
    shutil.copy(ROOT / ".clang-format", tmp_path)
    git.at = tmp_path
    return git


def test_the_hook_formats_what_is_staged(clone):
    (clone.at / "a file.cpp").write_text(UGLY)
    (clone.at / "page.md").write_text(UGLY)
    clone("add", "-A")
    clone("commit", "-q", "-m", "Add both")
    assert clone("show", "HEAD:a file.cpp") == TIDY
    assert (clone.at / "a file.cpp").read_text() == TIDY
    assert clone("show", "HEAD:page.md") == UGLY
    assert clone("status", "--porcelain") == ""


def test_the_hook_leaves_unstaged_lines_alone(clone):
    path: Path = clone.at / "a.h"
    path.write_text(UGLY)
    clone("add", "-A")
    path.write_text(UGLY + OTHER)
    clone("commit", "-q", "-m", "Add the first line")
    assert clone("show", "HEAD:a.h") == TIDY
    assert path.read_text() == UGLY + OTHER


def test_the_hook_refuses_nothing(clone):
    (clone.at / "a.cpp").write_text("int a( { \n<<<<<<< ours\n")
    (clone.at / ".clang-format").write_text("no style: at all: [\n")
    clone("add", "-A")
    clone("commit", "-q", "-m", "Add what cannot be formatted")
    assert clone("show", "HEAD:a.cpp").startswith("int a( {")


def test_a_commit_that_names_its_files_stays_whole(clone):
    path: Path = clone.at / "a.cpp"
    path.write_text(TIDY)
    clone("add", "-A")
    clone("commit", "-q", "-m", "Add")
    path.write_text(UGLY)
    clone("commit", "-q", "-m", "Change it", "a.cpp")
    assert clone("status", "--porcelain") == ""

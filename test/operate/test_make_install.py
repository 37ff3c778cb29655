"""make install, as people and their scripts run it."""

import os
import subprocess

from outbox_rig.paths import ROOT, pg_config


def test_two_installations_at_once(tmp_path):
    """Neither fails, and what they print can be read."""
    running = [subprocess.Popen(["make", "install", f"DESTDIR={tmp_path}", f"PG_CONFIG={pg_config('bindir') / 'pg_config'}"], cwd=ROOT,
                                env=os.environ | {"MAKEFLAGS": ""}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(6)]
    for each in running:
        printed = each.communicate()[0]
        assert each.returncode == 0, printed
        assert max(map(len, printed.splitlines())) < 1000, printed
    assert {"outbox.so", "outbox_kafka.so", "outbox_webhook_messages.so", "kind.mk"} < {path.name for path in tmp_path.rglob("*")}


def test_the_help_of_the_benchmarks_builds_and_installs_nothing(tmp_path):
    for program in ("apt-get", "make", "g++"):
        (tmp_path / program).write_text(f"#!/bin/sh\necho {program} was called\nexit 1\n")
        (tmp_path / program).chmod(0o755)
    shown = subprocess.run([ROOT / "bench/run", "--help"], env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert shown.returncode == 0 and shown.stdout.startswith("usage: bench/run"), shown.stdout

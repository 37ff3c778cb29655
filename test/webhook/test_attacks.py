"""A sample of the table of hostile peers; the suite `attacks` has all of it."""

import os
import subprocess
import sys

import pytest
from outbox_rig.paths import ROOT


@pytest.mark.parametrize("kind, attack", [("webhook", "reset at one event"), ("kafka", "truncated frame")])
def test_an_attack(kind, attack):
    command = [sys.executable, "-u", ROOT / "test/sink/outbox-sink-test", "--pg-config", os.environ.get("PG_CONFIG", "pg_config"), "--attacks", "--only", attack, ROOT / f"test/sink/hostile_{kind}.py"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
    assert done.returncode == 0 and "1 attacks passed" in done.stdout, done.stdout

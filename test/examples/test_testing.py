"""The tests of an application in examples/testing, in four languages, against a real server, worker and endpoint."""

import os
import subprocess
import sys

import pytest
from outbox_rig.paths import ROOT
from outbox_rig.receiver import SECRET
from outbox_rig.wait import patient

FOLDER = ROOT / "examples" / "testing"
# To fetch and compile, with three tries; to test.
TESTS = {"pytest": (f"{sys.executable} -m pip install --quiet --no-index -r requirements.txt",  # they are installed, in these versions
                    f"{sys.executable} -m pytest -q -p no:cacheprovider --rootdir ."),
         "node": ("npm ci --silent", "npm test"),
         "junit": ("mvn -q -B test-compile", "mvn -q -B test"),
         "go": ("go vet .", "go test -count=1 .")}


@pytest.fixture(scope="module")
def pg(rig):
    return rig.postgres(tcp=True)  # for JDBC


def test_no_folder_is_left_out():
    assert {path.name for path in FOLDER.iterdir() if path.is_dir()} == set(TESTS)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("language", TESTS)
def test_the_tests_pass(language, db, receiver):
    db.sql("CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, total numeric NOT NULL, xact xid8 DEFAULT pg_current_xact_id())")
    db.webhook_sink("shop", receiver, SECRET, retention="1d")
    db.sql("DO $$ BEGIN CREATE ROLE tester SUPERUSER LOGIN PASSWORD 'tester'; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    place = f"127.0.0.1:{db.pg.port}/{db.name}"
    env = os.environ | {"DATABASE_URL": f"postgresql://tester:tester@{place}", "JDBC_URL": f"jdbc:postgresql://{place}?user=tester&password=tester"}
    prepare, run = TESTS[language]
    done = subprocess.run(["bash", "-euc", f'. test/rig/env.sh; cd "$0"; again {prepare}; {run}', FOLDER / language],
                          cwd=ROOT, env=env, capture_output=True, text=True, timeout=patient(600))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(receiver.accepted()) == 1, "what was rolled back has not left"
    [(xact,)] = db.sql("SELECT xact FROM orders")
    assert db.sql("SELECT xact, status FROM outbox.events") == [(xact, "SENT")], "the order and its event are of one transaction"

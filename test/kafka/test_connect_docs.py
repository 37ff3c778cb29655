"""The examples of docs/kafka.md are run as they are printed."""

import re
import subprocess

import pytest
from outbox_rig.paths import ROOT, pg_config

from ways import client_key

SECTION = re.search(r"^## Connect with TLS and SASL$(.*?)^## ", (ROOT / "docs/kafka.md").read_text(), re.MULTILINE | re.DOTALL)[1]
EXAMPLES = re.findall(r"^```sql\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)


@pytest.fixture
def psql(pg, db, security, tmp_path):
    """Runs a script in the directory with the PEM files of the examples."""
    client = client_key(security.client_authority)
    for name, pem in (("ca.pem", security.ca_pem), ("client.pem", client["ssl_certificate_pem"]), ("client.key", client["ssl_key_pem"])):
        (tmp_path / name).write_text(pem)

    def run(script: str) -> None:
        done = subprocess.run([pg_config("bindir") / "psql", "-X", "-v", "ON_ERROR_STOP=1", "-d", pg.dsn(db.name)], input=script, text=True,
                              cwd=tmp_path, capture_output=True)
        assert done.returncode == 0, done.stderr
    return run


def test_the_examples_are_taken(db, psql):
    creations = [example for example in EXAMPLES if "CREATE SERVER" in example]
    changes = [example for example in EXAMPLES if "ALTER USER MAPPING" in example]
    assert len(creations) + len(changes) == len(EXAMPLES) == 8
    for creation in creations:
        psql(creation)
        for change in list(changes):  # the options that this example has
            if all(option in creation for option in re.findall(r"SET (\w+)", change)):
                psql(change)
                changes.remove(change)
        db.sql("DROP SERVER main CASCADE")
    assert changes == [], "each was tried"

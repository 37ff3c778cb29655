"""make deb: built, looked at by lintian, installed below a folder, used, purged."""

import pytest
from conftest import VERSION, run
from outbox_rig.paths import BUILD


@pytest.mark.timeout(1200)
def test_the_debian_package(rig, receiver, system):
    run("make", "deb")
    said = run("lintian", "--fail-on", "error,warning", *(BUILD / "deb").glob("*.changes"))
    assert "E: " not in said and "W: " not in said.replace("W: running with root", "")
    [package] = (BUILD / "deb").glob(f"postgresql-{system.major}-outbox_{VERSION}-*.deb")

    (system.root / "var/lib/dpkg/updates").mkdir(parents=True)
    (system.root / "var/lib/dpkg/info").mkdir()
    for name in ("status", "available"):
        (system.root / "var/lib/dpkg" / name).touch()
    dpkg = ["dpkg", f"--root={system.root}", "--force-depends", "--force-not-root", f"--log={system.root}/var/dpkg.log"]
    run(*dpkg, "-i", package)
    assert f"usr/lib/postgresql/{system.major}/lib/outbox.so" in system.brought()
    assert f"usr/share/doc/postgresql-{system.major}-outbox/copyright" in system.brought()
    depends = run("dpkg-deb", "-f", package, "Depends")
    assert all(name in depends for name in (f"postgresql-{system.major}", "librdkafka1", "libcurl4", "libssl3"))
    system.delivers(rig, receiver)
    run(*dpkg, "--purge", f"postgresql-{system.major}-outbox")
    assert system.brought() == set()

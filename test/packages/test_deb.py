"""make deb: built, checked with lintian, installed in a directory and in a system, used, purged."""

import os
from pathlib import Path

import pytest
from conftest import VERSION, run
from outbox_rig import installation
from outbox_rig.paths import BUILD

pytestmark = pytest.mark.timeout(1800)  # it compiles


@pytest.fixture(scope="module")
def package():
    """For the newest version that is installed with headers."""
    major = installation.majors()[-1]
    run("make", "deb", env=os.environ | {"PG_VERSIONS": str(major)})
    [package] = (BUILD / "deb").glob(f"postgresql-{major}-outbox_{VERSION}-*.deb")
    return package


def test_the_debian_package(rig, receiver, system, package):
    # It is not uploaded to Debian, so it closes no bug.
    unwanted = "initial-upload-closes-no-bugs"
    said = run("lintian", "--fail-on", "error,warning", "--suppress-tags", unwanted, *(BUILD / "deb").glob("*.changes"))
    assert "E: " not in said and "W: " not in said.replace("W: running with root", "")

    (system.root / "var/lib/dpkg/updates").mkdir(parents=True)
    (system.root / "var/lib/dpkg/info").mkdir()
    for name in ("status", "available"):
        (system.root / "var/lib/dpkg" / name).touch()
    dpkg = ["dpkg", f"--root={system.root}", "--force-depends", "--force-not-root", f"--log={system.root}/var/dpkg.log"]
    run(*dpkg, "-i", package)
    assert f"usr/lib/postgresql/{system.major}/lib/outbox.so" in system.brought()
    assert f"usr/share/doc/postgresql-{system.major}-outbox/copyright" in run("dpkg-deb", "-c", package)
    depends = run("dpkg-deb", "-f", package, "Depends")
    assert all(name in depends for name in (f"postgresql-{system.major}", "librdkafka1", "libcurl4", "libssl3"))
    system.delivers(rig, receiver)
    run(*dpkg, "--purge", f"postgresql-{system.major}-outbox")
    assert system.brought() == set()


@pytest.mark.skipif(not os.environ.get("LAYER"), reason="it would stay installed here: test/rig/chroot has a system that is thrown away")
def test_the_debian_package_in_a_system(package):
    """Installed by dpkg with its dependencies, and used as by autopkgtest: an event is delivered in a Debian
    cluster."""
    major = installation.majors()[-1]
    for left in installation.SYSTEM.glob(f"{major}/lib/outbox.so"):
        left.unlink()  # of `make install`
    run("dpkg", "-i", package)
    said = run("pg_virtualenv", "-v", str(major), "-o", "shared_preload_libraries=outbox", "sh", "-e", "debian/tests/deliver-one")
    assert '"total": 99.5' in said
    files = run("dpkg", "-L", f"postgresql-{major}-outbox").split()
    assert f"/usr/lib/postgresql/{major}/lib/outbox.so" in files
    run("dpkg", "--purge", f"postgresql-{major}-outbox")
    assert not [file for file in files if "outbox" in Path(file).name and Path(file).exists() and not file.startswith("/outbox")]

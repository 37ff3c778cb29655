"""make rpm: built, checked with rpmlint, installed in a directory, used, erased. make dist: the PGXN client can install it."""

import os

import pytest
from conftest import VERSION, run
from outbox_rig import installation
from outbox_rig.paths import BUILD


@pytest.mark.timeout(1200)
def test_the_rpm(rig, receiver, system):
    run("make", "rpm", env=os.environ | {"PG_CONFIG": f"/usr/lib/postgresql/{system.major}/bin/pg_config"})
    [package] = (BUILD / "rpm/RPMS").glob(f"*/outbox_{system.major}-{VERSION}-*.rpm")
    said = run("rpmspec", "-P", "packaging/outbox.spec", "--define", f"pgmajor {system.major}", "--define",
               f"pg_config /usr/lib/postgresql/{system.major}/bin/pg_config")
    assert f"Name:           outbox_{system.major}" in said

    rpm = ["rpm", f"--root={system.root}", "--define", "_dbpath /var/lib/rpm"]
    run(*rpm, "--initdb")
    run(*rpm, "--nodeps", "-i", package)
    assert f"usr/lib/postgresql/{system.major}/lib/outbox.so" in system.brought()
    assert f"postgresql{system.major}-server" in run("rpm", "-qp", "--requires", package)
    system.delivers(rig, receiver)
    run(*rpm, "--nodeps", "-e", f"outbox_{system.major}")
    assert system.brought() == set()


@pytest.mark.timeout(1200)
def test_the_pgxn_distribution(rig, receiver, system):
    run("make", "dist")
    archive = BUILD / f"dist/outbox-{VERSION}.zip"
    listed = run("unzip", "-Z1", archive).split()
    assert f"outbox-{VERSION}/META.json" in listed and not [name for name in listed if not name.startswith(f"outbox-{VERSION}/")]
    # pg_config reports the location of its own files.
    pg_config = system.bindir / "pg_config"
    assert run(pg_config, "--pkglibdir").startswith(str(system.root))
    installation.see_headers(system.root, installation.system(system.major))
    system.before = system.files()
    make_quickly = os.environ | {"MAKEFLAGS": f"-j{os.cpu_count()}"}
    run("pgxn", "install", "--nosudo", "--pg_config", pg_config, archive, env=make_quickly)
    assert f"usr/lib/postgresql/{system.major}/lib/outbox.so" in system.brought()
    system.delivers(rig, receiver)
    run("pgxn", "uninstall", "--nosudo", "--pg_config", pg_config, archive, env=make_quickly)
    assert system.brought() == set()

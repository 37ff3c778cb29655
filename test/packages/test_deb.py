"""make deb: built, checked with lintian, installed in a directory and in a system, used, purged. make release: what it refuses, and all
that it makes, installed in fresh systems and used."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import VERSION, run
from outbox_rig import installation
from outbox_rig.paths import BUILD, ROOT

pytestmark = pytest.mark.timeout(7200)  # it compiles: a test by itself makes a release first


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


@pytest.fixture(scope="module")
def clone():
    if os.environ.get("LAYER"):
        pytest.skip("a release is made from a git clone, and in systems of its own: not within test/rig/chroot")
    folder = BUILD / "packages/release"
    shutil.rmtree(folder, ignore_errors=True)
    run("git", "clone", "--quiet", "--no-tags", ROOT, folder)
    run("git", "tag", "as-cloned", cwd=folder)  # of a detached HEAD, a clone has no origin/HEAD
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def as_committed(clone: Path) -> Path:
    run("git", "reset", "--quiet", "--hard", "as-cloned", cwd=clone)
    return clone


@pytest.fixture
def checkout(clone):
    return as_committed(clone)


@pytest.mark.parametrize(("file", "old", "new", "said"), [
    ("README.md", "", "not committed", "commit or remove these first:\n M README.md"),
    ("META.json", f'"version": "{VERSION}",\n   "maint', '"version": "0.9.9",\n   "maint', 'META.json has "0.9.9"'),
    ("META.json", f'"version": "{VERSION}"\n', '"version": "0.9.9"\n', 'META.json:provides has "0.9.9"'),
    ("debian/changelog", f"({VERSION}-1)", "(0.9.9-1)", 'debian/changelog has "0.9.9"'),
    ("packaging/outbox.spec", VERSION, "0.9.9", 'packaging/outbox.spec has "0.9.9"'),
    ("CHANGELOG.md", f"## [{VERSION}]", "## [0.9.9]", 'CHANGELOG.md has "0.9.9"'),
    ("CHANGELOG.md", f"## [{VERSION}] - 20", f"## [{VERSION}] - Unreleased 20", f"CHANGELOG.md has no date for {VERSION}"),
    ("debian/changelog", ") unstable;", ") UNRELEASED;", "debian/changelog says UNRELEASED"),
])
def test_a_release_that_is_refused(checkout, file, old, new, said):
    text = (checkout / file).read_text()
    assert old in text
    (checkout / file).write_text(text.replace(old, new, 1))
    if old:
        run("git", "-c", "user.name=test", "-c", "user.email=test@example.org", "commit", "--quiet", "--all", "-m", "Other version", cwd=checkout)
    done = subprocess.run(["packaging/release"], cwd=checkout, capture_output=True, text=True)
    assert done.returncode == 1 and said in done.stderr
    assert not (checkout / "build/release").exists()


def test_a_release_tells_what_it_lacks_and_how_to_publish_it(checkout):
    said = run("packaging/release", cwd=checkout, env=os.environ | {"PG_VERSIONS": "16"})
    assert f"\ngit tag -s v{VERSION} " in said
    assert run("git", "tag", cwd=checkout) == "as-cloned\n"
    lacks = (checkout / "build/release/RELEASE_NOTES.md").read_text().split("## Not built\n")[1]
    shutil.rmtree(checkout / "build")
    assert "- the server's container image: " in lacks and "docker build -f docker/Dockerfile " in lacks
    assert "- PostgreSQL 16: no release of Debian has it; " in lacks and lacks.count("- PostgreSQL ") == 5 and "- the source RPM: " in lacks
    assert "- PostgreSQL 18: PG_VERSIONS does not have it. Missing: postgresql-18-outbox, the kinds of sink for it, the image volume\n" in lacks


@pytest.fixture(scope="module")
def root():
    if os.geteuid() != 0:
        pytest.skip("packaging/fresh needs root: it makes systems, to build packages and to install them")


def test_a_fresh_system_keeps_no_proxy_of_this_machine(checkout, root, tmp_path):
    (tmp_path / "apt.conf").write_text('Acquire::http::Proxy::nowhere.example "http://user:secret@proxy.example";\n')
    dump = ("packaging/fresh", "bookworm", checkout, "apt-config", "dump")
    assert "user:secret@" in run(*dump, cwd=checkout, env=os.environ | {"APT_CONFIG": str(tmp_path / "apt.conf")})
    assert "user:secret@" not in run(*dump, cwd=checkout)


@pytest.fixture(scope="module")
def release(clone, root):
    """The folder that make release has filled, of $RELEASE if that is set."""
    made = clone / "build/release"
    if "RELEASE" in os.environ:
        shutil.copytree(ROOT / os.environ["RELEASE"], made)
    else:
        # Compiled quickly: the code has tests of its own.
        run("packaging/release", cwd=as_committed(clone), env=os.environ | {"PG_VERSIONS": "15 16 18", "DEB_CXXFLAGS_APPEND": "-O0 -g0"})
    return made


def fresh(checkout: Path, system: str, script: str) -> str:
    return run("packaging/fresh", system, checkout, "sh", "-ec", f"apt-get update -q\n{script}", cwd=checkout)


def test_what_a_release_has(checkout, release):
    run("sha256sum", "-c", "SHA256SUMS", cwd=release)
    notes = (release / "RELEASE_NOTES.md").read_text()
    assert "The first release." in notes
    for major in range(15, 20):
        assert (f"- PostgreSQL {major}: " in notes) != any(release.glob(f"postgresql-{major}-outbox_*.deb"))
    run("packaging/source", "tar.gz", "build/again.tar.gz", cwd=checkout)
    assert (checkout / "build/again.tar.gz").read_bytes() == (release / f"outbox-{VERSION}.tar.gz").read_bytes()
    committed = run("git", "log", "-1", "--format=%ct", cwd=checkout)
    assert run("rpm", "-qp", "--queryformat", "%{NAME} %{BUILDHOST} %{BUILDTIME}\\n", *release.glob("*.src.rpm")) == f"outbox_17 reproducible {committed}"
    assert f"outbox-{VERSION}/META.json" in run("unzip", "-Z1", release / f"outbox-{VERSION}.zip").split()
    for package in release.glob("postgresql-*-outbox_*.deb"):
        [needs] = release.glob(f"outbox-{VERSION}-pg{package.name.split('-')[1]}-*.cdx.json")
        needed = {each["name"]: each for each in json.loads(needs.read_text())["components"]}
        assert needed["librdkafka1"]["version"] and needed["librdkafka1"]["licenses"] and "outbox_redis.so" in needed


VIRTUAL = "pg_virtualenv -o shared_preload_libraries=outbox -v"


@pytest.mark.slow
@pytest.mark.parametrize(("major", "system"), [(15, "bookworm"), (17, "trixie"), (18, "forky"), (19, "experimental")])
def test_packages_of_a_release_deliver(checkout, release, major, system):
    """Installed by apt, with what they need, in a system that has nothing else."""
    if f"- PostgreSQL {major}: " in (release / "RELEASE_NOTES.md").read_text():
        pytest.skip(f"this release has no package for PostgreSQL {major}: RELEASE=build/release takes a whole one")
    kinds = [path.parent.name for path in (ROOT / "sinks").glob("*/Makefile")]
    said = fresh(checkout, system, f"""apt-get install -y --no-install-recommends python3 ./build/release/postgresql-{major}-outbox*.deb
        {VIRTUAL} {major} sh -e debian/tests/deliver-one
        {VIRTUAL} {major} sh -ec 'psql -X -c "CREATE EXTENSION outbox"; for kind in {" ".join(kinds)}; do psql -X -c "CREATE EXTENSION outbox_$kind"; done'""")
    assert '"total": 99.5' in said and said.count("CREATE EXTENSION") == 2 + len(kinds)


@pytest.mark.slow
def test_the_source_rpm_of_a_release_can_be_rebuilt(checkout, release):
    """As docs/install.md says; in Debian without the names of Red Hat's packages, and with Debian's pg_config."""
    said = fresh(checkout, "bookworm", """apt-get install -y --no-install-recommends rpm g++ make libcurl4-openssl-dev librdkafka-dev libssl-dev nlohmann-json3-dev \\
          postgresql-server-dev-15
        rpmbuild --rebuild --nodeps --define 'pgmajor 15' --define 'pg_config /usr/lib/postgresql/15/bin/pg_config' build/release/outbox_*.src.rpm
        rpm -qpl /root/rpmbuild/RPMS/*/outbox_15-*.rpm""")
    assert "\n/usr/lib/postgresql/15/lib/outbox.so\n" in said and "\n/usr/share/postgresql/15/extension/outbox.control\n" in said
    assert "\n/usr/share/postgresql/15/extension/outbox_inbox.control\n" in said


def test_the_image_volume_of_a_release_delivers(checkout, release):
    """In a server that has neither outbox nor librdkafka."""
    image = f"outbox-extension-{VERSION}-18-forky"
    said = fresh(checkout, "forky", f"""apt-get install -y --no-install-recommends python3 postgresql-18 umoci
        rm -rf build/oci build/volume && mkdir build/oci && tar -xf build/release/{image}.oci.tar -C build/oci
        umoci unpack --image build/oci:{image.removeprefix("outbox-extension-")} build/volume && chmod 755 build/volume
        echo /mnt/build/volume/rootfs/system >/etc/ld.so.conf.d/volume.conf && ldconfig
        if dpkg -s librdkafka1; then exit 1; fi
        {VIRTUAL} 18 -o 'extension_control_path=/mnt/build/volume/rootfs/share:$system' -o 'dynamic_library_path=/mnt/build/volume/rootfs/lib:$libdir' \\
          sh -e debian/tests/deliver-one""")
    assert '"total": 99.5' in said


def test_kinds_whose_library_is_missing_are_left_out(checkout, release):
    said = fresh(checkout, "bookworm", """apt-get install -y --no-install-recommends g++ make libcurl4-openssl-dev libssl-dev nlohmann-json3-dev postgresql-server-dev-15
        if make sinks 2>&1; then exit 1; fi
        apt-get install -y --no-install-recommends ./build/release/postgresql-15-outbox_*.deb
        make sinks KINDS="grpc redis rabbitmq"
        ls sinks/*/*.so""")
    assert "outbox is not installed for this server: run make install first" in said
    assert [line for line in said.splitlines() if "is left out" in line] == [
        f"sinks/{kind} is left out: it needs lib{library}-dev libssl-dev" for kind, library in (("redis", "hiredis"), ("rabbitmq", "rabbitmq"))]
    assert said.endswith("sinks/grpc/outbox_grpc.so\n")

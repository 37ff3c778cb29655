"""The Debian package outbox-console: built, checked by lintian, unpacked and run."""

import re
import subprocess

from outbox_rig.paths import BUILD, ROOT


def run(*argv) -> str:
    done = subprocess.run([*map(str, argv)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_package_is_whole(tmp_path):
    run("make", "deb-console")
    [package] = (BUILD / "deb-console").glob("outbox-console_*.deb")
    said = run("lintian", "--fail-on", "error,warning", "--suppress-tags", "initial-upload-closes-no-bugs,no-manual-page", *(BUILD / "deb-console").glob("*.changes"))
    assert "E: " not in said
    files = run("dpkg-deb", "-c", package)
    for path in ("usr/bin/outbox-console", "etc/default/outbox-console", "lib/systemd/system/outbox-console.service", "usr/share/doc/outbox-console/console.md"):
        assert path in files, files
    depends = run("dpkg-deb", "-f", package, "Depends")
    assert "libpq5" in depends and "libmicrohttpd12" in depends
    run("dpkg-deb", "-x", package, tmp_path)
    version = re.search(r"default_version = '(.*)'", (ROOT / "outbox.control").read_text())[1]
    assert run(tmp_path / "usr/bin/outbox-console", "--version").strip() == f"outbox-console {version}"


def test_the_unit_starts_what_the_file_says():
    unit = (ROOT / "console/outbox-console.service").read_text()
    assert "EnvironmentFile=/etc/default/outbox-console" in unit and "ExecStart=/usr/bin/outbox-console $OUTBOX_CONSOLE" in unit

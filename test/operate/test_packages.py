"""The metadata of the packages. `make test-packages` builds and installs them."""

import json
import re

from outbox_rig.paths import ROOT

VERSION = re.search(r"default_version = '(.+)'", (ROOT / "outbox.control").read_text())[1]


def found(file: str, pattern: str) -> list[str]:
    return re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE)


def test_all_name_one_version():
    meta = json.loads((ROOT / "META.json").read_text())
    assert [meta["version"], meta["provides"]["outbox"]["version"]] == [VERSION, VERSION]
    assert found("debian/changelog", r"^outbox \((.+)-\d+\)")[0] == VERSION
    assert found("packaging/outbox.spec", r"^Version: +(\S+)") == [VERSION]
    assert found("packaging/outbox.spec", r"^\* .* - (.+)-\d+$")[0] == VERSION
    assert found("CHANGELOG.md", r"^## \[(\S+)\]")[0] == VERSION
    versions = found("CHANGELOG.md", r"^## \[(\S+)\]")[1:]
    assert [version for version in versions if not (ROOT / f"src/extension/versions/outbox--{version}.sql").exists()] == []


def test_all_name_one_license():
    text = (ROOT / "LICENSE").read_text()
    assert text.startswith("PostgreSQL License\n") and "The outbox authors" in text
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")[2:]]
    copyright = " ".join((ROOT / "debian/copyright").read_text().split())
    assert [paragraph for paragraph in paragraphs if paragraph not in copyright] == []
    assert json.loads((ROOT / "META.json").read_text())["license"] == "postgresql"
    assert found("packaging/outbox.spec", r"^License: +(\S+)") == ["PostgreSQL"]


def test_pgxn_names_files_that_are_there():
    provides = json.loads((ROOT / "META.json").read_text())["provides"]
    assert sorted(provides) == sorted(control.stem for control in ROOT.glob("*.control"))
    assert [file for provided in provides.values() for file in (provided["file"], provided["docfile"]) if not (ROOT / file).is_file()] == []


def test_debian_control_is_made_from_its_template():
    """As pg_buildext makes it, for any versions."""
    template, made = ((ROOT / "debian" / name).read_text() for name in ("control.in", "control"))
    versions = re.findall(r"^Package: postgresql-(\d+)-outbox$", made, re.MULTILINE)
    source, package = template.rstrip("\n").split("\n\n")
    assert versions and made == "\n\n".join([source, *(package.replace("PGVERSION", version) for version in versions)]) + "\n"

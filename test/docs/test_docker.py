"""What the Makefile needs is copied into each image that is built with it. The suite compose builds them, which takes minutes."""

import re

import pytest
from outbox_rig.paths import ROOT

BUILT = [path for path in sorted((ROOT / "docker").glob("*Dockerfile")) if re.search(r"^COPY Makefile ", path.read_text(), re.MULTILINE)]


@pytest.mark.parametrize("dockerfile", BUILT, ids=lambda path: path.name)
def test_each_extension_is_copied(dockerfile):
    copied = {word for line in re.findall(r"^COPY (.*)", dockerfile.read_text(), re.MULTILINE) for word in line.split()[:-1]}
    assert {path.name for path in ROOT.glob("*.control")} | {"Makefile", "src"} <= copied
    assert all((ROOT / word).exists() for word in copied if not word.startswith(("-", "/")))

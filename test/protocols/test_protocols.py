"""make models: protocols between processes, checked by spin in every order of their steps. Each model holds, and fails without any one of its
guards, which its head names. A model says no more than the code it stands for: whoever changes that code changes the model."""

import re
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HOLDING = [("idle", []), ("shards", []), ("redrive", []), ("redrive", ["BLOCK"])]


def guards(model: str) -> list[str]:
    head = (HERE / f"{model}.pml").read_text().partition("*/")[0]
    return re.findall(r"\b([A-Z]+_[A-Z_]+)\s\(", " ".join(head.partition("Each guard can be taken out:")[2].replace("*", " ").split()))


WITHOUT_GUARD = [("redrive", ["BLOCK", guard]) if guard == "NO_RETURN" else (model, [guard])
                 for model in ("idle", "shards", "redrive") for guard in guards(model)]


def check(model: str, given: list[str], folder: Path) -> tuple[int, int, str]:
    """(errors, states, the first error)"""
    defines = [f"-D{name}" for name in given]
    subprocess.run(["spin", *defines, "-a", HERE / f"{model}.pml"], cwd=folder, check=True, capture_output=True)
    subprocess.run(["gcc", "-w", "-O2", "-DSAFETY", "-DCOLLAPSE", "-DMEMLIM=6000", "-o", "pan", "pan.c"], cwd=folder, check=True)
    said = subprocess.run(["./pan", "-m100000"], cwd=folder, check=True, capture_output=True, text=True).stdout
    assert "out of memory" not in said and "max search depth too small" not in said, said
    errors, states = re.search(r"errors: (\d+)\s+(\d+) states, stored", said).groups()
    error = re.search(r"^pan:\d+: (.*)", said, re.MULTILINE)
    return int(errors), int(states), error[1] if error else ""


@pytest.mark.timeout(1200)  # the largest has ten million states
@pytest.mark.parametrize("model, given", HOLDING, ids=lambda part: part if isinstance(part, str) else "".join(part))
def test_it_holds(model, given, tmp_path):
    errors, states, error = check(model, given, tmp_path)
    print(f"{model}{' with ' * bool(given)}{' '.join(given)}: {states} states")
    assert errors == 0, error


@pytest.mark.parametrize("model, given", WITHOUT_GUARD, ids=lambda part: part if isinstance(part, str) else "".join(part))
def test_it_fails_without_its_guard(model, given, tmp_path):
    errors, states, error = check(model, given, tmp_path)
    print(f"{model} without {given[-1]}: {error} ({states} states)")
    assert errors > 0 and "assertion violated" in error


def test_no_model_is_long():
    assert all(len(path.read_text().splitlines()) < 200 for path in HERE.glob("*.pml"))

"""make test-model: random steps through the SQL surface, against a model. EXAMPLES= and SEED= choose them; STEPS= is the length of an example."""

import os
import random
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

sys.path.insert(0, str(Path(__file__).parent))
import machine  # noqa: E402
from world import World  # noqa: E402

EXAMPLES = int(os.environ.get("EXAMPLES") or 60)
STEPS = int(os.environ.get("STEPS") or 20)
SEED = int(os.environ.get("SEED") or random.randrange(10**6))


@pytest.fixture
def world(pg, rig):
    receiver = rig.receiver()
    world = World(pg, receiver)
    yield world
    world.close()
    receiver.stop()


def test_every_public_function_has_a_step(world):
    steps = "".join(path.read_text() for path in Path(__file__).parent.glob("*.py"))
    functions = [name for (name,) in world.admin.execute("SELECT DISTINCT proname::text FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace ORDER BY 1")]
    assert len(functions) > 15
    assert [name for name in functions if f"outbox.{name}(" not in steps] == []


@pytest.mark.timeout(0)  # EXAMPLES decides
def test_the_sql_surface_against_a_model(world):
    machine.Machine.world = world
    print(f"SEED={SEED} EXAMPLES={EXAMPLES} STEPS={STEPS}", flush=True)
    phases = [Phase.generate] + ([Phase.shrink] if os.environ.get("SHRINK", "1") != "0" else [])
    try:
        run_state_machine_as_test(seed(SEED)(machine.Machine), settings=settings(
            max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, database=None, print_blob=True, phases=phases,
            suppress_health_check=list(HealthCheck), verbosity=Verbosity.normal))
    finally:
        print("\n" + ", ".join(f"{n} {call}" for call, n in sorted(world.calls.items())))
        print(f"{world.examples} examples, {world.steps} steps (SEED={SEED})", flush=True)

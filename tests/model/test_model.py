"""The model is run: 10 000 steps with the suite, 200 000 in a soak with a new seed each time.

A run that fails prints the story, made as short as hypothesis can make it, and how to run it again.
RECLAIMD_MODEL_SEED and RECLAIMD_MODEL_STEPS say which run it is.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import NodeMachine
from tests.model.stage import Stage

STEPS_OF_A_STORY = 60
STORIES_AT_A_TIME = 25
SUITE_STEPS = 10_000
SUITE_SEED = 20261121
SOAK_STEPS = 200_000


def run_model(directory: Path, steps: int, number: int) -> type[NodeMachine]:
    """Runs stories until they have so many steps together; the machine with what it has counted."""
    counted: type[NodeMachine] = type("NodeMachine", (NodeMachine,), {})
    counted.stage = Stage(directory)
    stories = settings(
        max_examples=STORIES_AT_A_TIME,
        stateful_step_count=STEPS_OF_A_STORY,
        deadline=None,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    began, rounds = time.monotonic(), 0

    def say() -> None:
        print(
            f"model: seed {number}, {counted.steps} steps, {counted.passes} passes, {counted.removed} objects removed, "
            f"{counted.struck} faults struck, {time.monotonic() - began:.0f} s",
            flush=True,
        )

    print(f"model: seed {number}; again with RECLAIMD_MODEL_SEED={number} RECLAIMD_MODEL_STEPS={steps}")
    try:
        while counted.steps < steps:
            run_state_machine_as_test(seed(number + rounds)(counted), settings=stories)
            rounds += 1
            if rounds % 10 == 0:
                say()
    finally:
        counted.stage.close()
        say()
    return counted


@pytest.mark.timeout(1800)
def test_ten_thousand_steps_harm_nothing(tmp_path: Path) -> None:
    """Whatever happens around a pass and in the middle of it: what must stay stays, and what is told is true."""
    number = int(os.environ.get("RECLAIMD_MODEL_SEED", SUITE_SEED))
    steps = int(os.environ.get("RECLAIMD_MODEL_STEPS", SUITE_STEPS))
    counted = run_model(tmp_path, steps, number)
    assert counted.passes > counted.steps // 20, "most of it was something else than passes"
    assert counted.removed > counted.steps // 100, "hardly anything was removed"
    assert counted.struck > counted.steps // 200, "hardly a fault struck"


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_two_hundred_thousand_steps_harm_nothing(tmp_path: Path) -> None:
    """The same for half an hour, with a seed that nobody has chosen."""
    number = int(os.environ.get("RECLAIMD_MODEL_SEED", random.SystemRandom().randrange(2**32)))
    steps = int(os.environ.get("RECLAIMD_MODEL_STEPS", SOAK_STEPS))
    counted = run_model(tmp_path, steps, number)
    assert counted.steps >= steps

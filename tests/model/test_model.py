"""Runs the model: 1 000 steps with the suite, 200 000 in a soak with a new seed each time.

A run that fails prints its steps, as few as hypothesis can find, and how to run it again.
RECLAIMD_MODEL_SEED and RECLAIMD_MODEL_STEPS make the first test that run.
"""

from __future__ import annotations

import os
import random
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import NodeMachine
from tests.nodes.model_node import SharedParts

STEPS_OF_A_RUN = 60
RUNS_AT_A_TIME = 25
SUITE_STEPS = 1_000
SUITE_SEED = 2
SOAK_STEPS = 200_000
SOAK_PROCESSES = 2


@dataclass(frozen=True, slots=True)
class Counts:
    """What happened in a run. `threadless`: passes while no thread could start."""

    steps: int
    passes: int
    removed: int
    triggered: int
    hung: int
    vanished: int
    threadless: int


def run_model(directory: Path, steps: int, number: int) -> Counts:
    """Runs the machine until all runs together have `steps` steps. `number`: the seed."""
    counted: type[NodeMachine] = type("NodeMachine", (NodeMachine,), {})
    directory.mkdir(exist_ok=True)
    counted.shared = SharedParts(directory)
    run_settings = settings(
        max_examples=RUNS_AT_A_TIME,
        stateful_step_count=STEPS_OF_A_RUN,
        deadline=None,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    began, rounds = time.monotonic(), 0

    def print_counts(more: str = "") -> None:
        counts = f"{counted.steps} steps, {counted.passes} passes, {counted.removed} objects removed"
        took = time.monotonic() - began
        print(f"model: seed {number}: {counts}, {counted.triggered} faults triggered, {took:.0f} s{more}", flush=True)
        mishaps = f"{counted.hung} calls hung, {counted.vanished} times the kubelet's root vanished or came back"
        print(f"model: {mishaps}, {counted.threadless} passes without a thread to start", flush=True)

    print_counts(f"; again with RECLAIMD_MODEL_SEED={number} RECLAIMD_MODEL_STEPS={steps}")
    try:
        while counted.steps < steps:
            run_state_machine_as_test(seed(number + rounds)(counted), settings=run_settings)
            rounds += 1
            if rounds % 10 == 0:
                print_counts()
    finally:
        counted.shared.close()
        print_counts()
    return Counts(
        counted.steps,
        counted.passes,
        counted.removed,
        counted.triggered,
        counted.hung,
        counted.vanished,
        counted.threadless,
    )


@pytest.mark.timeout(1800)
def test_a_thousand_steps_harm_nothing(tmp_path: Path) -> None:
    """Whatever happens around and during a pass, what must be kept is kept, and the reports are true."""
    number = int(os.environ.get("RECLAIMD_MODEL_SEED", SUITE_SEED))
    steps = int(os.environ.get("RECLAIMD_MODEL_STEPS", SUITE_STEPS))
    counts = run_model(tmp_path, steps, number)
    assert counts.passes > counts.steps // 20, "too few of the steps were passes"
    assert counts.removed > counts.steps // 100, "hardly anything was removed"
    assert counts.triggered > counts.steps // 200, "hardly any fault triggered"
    assert counts.hung > counts.steps // 400, "hardly any call hung"
    assert counts.vanished > counts.steps // 200, "hardly ever did the kubelet's directories vanish"
    assert counts.threadless > counts.steps // 200, "hardly any pass was without a thread to start"


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_two_hundred_thousand_steps_harm_nothing(tmp_path: Path) -> None:
    """Two hundred times as many steps, in two parallel processes, with random seeds."""
    numbers = [random.SystemRandom().randrange(2**32) for _ in range(SOAK_PROCESSES)]
    with ProcessPoolExecutor(SOAK_PROCESSES, mp_context=get_context("spawn")) as pool:
        share = SOAK_STEPS // SOAK_PROCESSES
        runs = [pool.submit(run_model, tmp_path / str(number), share, number) for number in numbers]
        counts = [run.result() for run in runs]
    assert sum(each.steps for each in counts) >= SOAK_STEPS

"""The whole daemon in simulated worlds: a few seeds, in processes of their own, in which a
seed always does the same.

`python -m tests.simulation` runs more of them, and `python -m tests.simulation.reverted` says
which mends they protect.
"""

import os
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest

from tests.repository import ROOT
from tests.simulation import reverted
from tests.simulation.reverted import simulation
from tests.simulation.run import Bench
from tests.simulation.timeline import RARE, Entry, timeline

HOURS = "0.1"
PLANTED = "the hold-off after a start holds nothing off"
FOUND = tomllib.loads(Path(__file__).with_name("found.toml").read_text())
SOAK_SECONDS = os.environ.get("SIMULATION_SECONDS", "3600")


@pytest.mark.timeout(300)
def test_nothing_that_must_not_happen_happens() -> None:
    """In some seeds; a failing one is told with the command that repeats it. A seed is a run: the
    last one alone, in another process, gives the same trace, byte for byte."""
    ran = simulation("--from", "1", "--runs", "2", "--hours", HOURS, "--no-shrink")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 ends relieved" in ran.stdout
    assert " removals" in ran.stdout
    trace = simulation("2", "--hours", HOURS).stdout.splitlines()[0].removeprefix("seed 2: ")
    assert f"; the last trace {trace}\n" in ran.stdout


def test_another_seed_is_another_run(tmp_path: Path) -> None:
    """By its trace, even where nothing happens."""
    assert len({Bench(tmp_path).run(seed, 0.0, ()).hash for seed in (3, 4)}) == 2


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_soak_of_the_simulation() -> None:
    """As many seeds as an hour has room for, or `SIMULATION_SECONDS`, on each processor;
    what happened is printed.
    """
    command = [sys.executable, "-m", "tests.simulation", "--for", SOAK_SECONDS, "--keep-going"]
    soaks = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(os.cpu_count() or 1)
    ]
    for soak in soaks:
        print(soak.communicate()[0])
    assert not any(soak.returncode for soak in soaks)


def test_what_is_reverted_is_there() -> None:
    """Each mend that is reverted is of the program as it is."""
    assert all(reverted.changed(each) for each in reverted.REVERTS.values())


def test_what_finds_each_of_them_is_there() -> None:
    """A seed, or a test that it names."""
    names = {name: each.get("test", "") for name, each in reverted.REVERTS.items()}
    assert {name for name, test in names.items() if not test} == FOUND["seeds"].keys()
    code = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for test in [*filter(None, names.values()), *chain.from_iterable(FOUND["tests"].values())]:
        assert f"def {test}(" in code, test


@pytest.mark.timeout(300)
def test_a_planted_defect_is_found_and_made_short() -> None:
    """A hold-off that holds nothing off, from the seed on that has found it: the run that shows it
    needs few of its entries."""
    seeds = ("--from", str(FOUND["seeds"][PLANTED]), "--runs", "12", "--hours", HOURS)
    with reverted.tree_with(reverted.REVERTS[PLANTED]) as tree:
        ran = simulation(*seeds, tree=tree)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    enough = next(line for line in ran.stdout.splitlines() if "entries are enough (" in line)
    left, all_of_them = int(enough.split()[0]), int(enough.split()[3])
    assert left <= all_of_them // 4


def test_the_daemon_is_killed_and_goes_on(tmp_path: Path) -> None:
    """Killed while its first pass runs, and begun again from what it has saved."""
    entries = [
        Entry(10.0, "fill", 60.0, 1, ("/node", 1.0)),
        Entry(40.0, "kill", 5.0),
        Entry(90.0, "kill", 5.0),
        Entry(120.0, "stop", 5.0),
    ]
    result = Bench(tmp_path).run(2, 0.1, entries)
    assert result.problem == ""
    lines = "\n".join(result.tail)
    assert result.counts["ends relieved"] == 1
    assert result.counts["mishaps"] == 4, lines


def test_every_kind_of_mishap_happens() -> None:
    """No kind of entry is left out by all seeds."""
    happen = {entry.kind for seed in range(60) for entry in timeline(seed, 1.0)}
    assert RARE.keys() | {"pod", "kubelet collects"} == happen

"""The built-in scenarios: each holds, fails with a wrong expectation, and has a report.

The tests of all runs are in this file, so that one worker makes each run once.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from eviction.drill.judgement.judge import judge
from eviction.drill.report.page import junit_xml, page
from eviction.drill.scenario import NEVER, ConditionExpectation, find_scenario, library
from signals.quantity import Percentage
from tests.drill.report.test_report import assert_self_contained, parsed, texts
from tests.drill.runs import report_of_run, run_of
from tests.reclaimd_process import reclaimd
from tests.sockets.mounts import need_mounts

# By scenario: a wrong expectation, and the check that has to fail because of it.
MUTATIONS: dict[str, tuple[dict[str, Any], str]] = {
    "answers-lost": ({"goes": ("image registry.example/app:1",)}, "image registry.example/app:1"),
    "ballast-last": ({"stays": ("file ballast",)}, "file ballast"),
    "crowd-of-dead": (
        {"stays": ("container default/looping-01/app#19",)},
        "container default/looping-01/app#19",
    ),
    "cut-lists": ({"first_removal_within_seconds": 0.0}, "first removal"),
    "dead-pod-logs": ({"stays": ("log default_vanished-01_*",)}, "log default_vanished-01_*"),
    "dedicated-nodefs": (
        {"goes": ("image registry.example/old-01:1",)},
        "image registry.example/old-01:1",
    ),
    "deleted-file": ({"relief": 0.0}, "relieved"),
    "e2e-image-gc-no-eviction": (
        {"stays": ("image registry.example/unused-*",)},
        "image registry.example/unused-*",
    ),
    "e2e-inode-eviction": ({"relief": 0.0}, "relieved"),
    "e2e-local-storage-eviction": (
        {"goes": ("container default/innocent/*",)},
        "container default/innocent/*",
    ),
    "e2e-local-storage-soft-eviction": ({"first_removal_not_before_seconds": 30.0}, "no removal"),
    "everything-in-use": ({"says": "the next object is old enough"}, "last pass says"),
    "fast-fill": ({"relief": 0.0}, "relieved"),
    "growing-file": ({"goes": ("image registry.example/app:1",)}, "image registry.example/app:1"),
    "high-threshold-100": ({"nothing_goes": True}, "nothing"),
    "hung-removal": ({"first_removal_within_seconds": 0.0}, "first removal"),
    "imagefs-bytes": ({"lowest": None}, "lowest imagefs.available"),
    "imagefs-inodes": (
        {"goes": ("image registry.example/model-*",)},
        "image registry.example/model-*",
    ),
    "keep-list": (
        {"goes": ("image registry.example/model-01:1",)},
        "image registry.example/model-01:1",
    ),
    "keep-newest": ({"goes": ("image registry.example/shop:4",)}, "image registry.example/shop:4"),
    "late-space": (
        {"goes": ("image registry.example/old-01:1",)},
        "image registry.example/old-01:1",
    ),
    "log-growth": ({"images_left_at_least": 7}, "images left"),
    "minimum-reclaim": (
        {"goes": ("image registry.example/old-06:1",)},
        "image registry.example/old-06:1",
    ),
    "nodefs-inodes": ({"goes": ("container default/web/*",)}, "container default/web/*"),
    "older-runtime": (
        {"goes": ("image registry.k8s.io/pause:1",)},
        "image registry.k8s.io/pause:1",
    ),
    "own-filesystem": ({"goes": ("file buildcache/0060",)}, "file buildcache/0060"),
    "outrun": ({"goes": ("image registry.example/app:1",)}, "image registry.example/app:1"),
    "periodic-gc": (
        {"stays": ("container default/crashed/app#0",)},
        "container default/crashed/app#0",
    ),
    "pressured-node": (
        {"stays": ("container default/finished/*",)},
        "container default/finished/*",
    ),
    "pretended-removals": (
        {"goes": ("image registry.example/old-01:1",)},
        "image registry.example/old-01:1",
    ),
    "programs-misbehave": ({"relief": 0.0}, "relieved"),
    "rotated-logs": ({"goes": ("log default_web_*",)}, "log default_web_*"),
    "reboot-hold-off": ({"first_removal_within_seconds": 0.0}, "first removal"),
    "rollout-pull": (
        {"condition": ConditionExpectation.model_construct(never=True)},
        "ReclaimPressure",
    ),
    "runtime-away": ({"faults": 2}, "faults"),
    "runtime-restart": ({"faults": 3}, "faults"),
    "shared-layers": (
        {"stays": ("image registry.example/stack-05:1",)},
        "image registry.example/stack-05:1",
    ),
    "small-files": (
        {"stays": ("image registry.example/old-01:1",)},
        "image registry.example/old-01:1",
    ),
    "soft-grace": ({"first_removal_within_seconds": 0.0}, "first removal"),
    "soft-recovers": ({"relief": NEVER}, "pressure"),
    "split-images": ({"goes": ("container default/finished/*",)}, "container default/finished/*"),
    "split-writable": ({"goes": ("image registry.example/old-*",)}, "image registry.example/old-*"),
    "stuck-removal": (
        {"stays": ("image registry.example/old-01:1",)},
        "image registry.example/old-01:1",
    ),
    "two-filesystems": (
        {"stays": ("container default/finished-01/*",)},
        "container default/finished-01/*",
    ),
}


def test_every_scenario_has_a_mutation() -> None:
    """A scenario that cannot fail proves nothing."""
    assert len(library()) >= 15
    assert library().keys() == MUTATIONS.keys()


@pytest.mark.parametrize("name", library())
def test_a_scenario_of_the_library_holds(name: str) -> None:
    """Run on the embedded node, every expectation holds."""
    need_mounts()
    result = run_of(name)
    assert [f"{c.name}: {c.expected}: {c.seen}" for c in result.checks if not c.held] == []


def a_hundred_times(least: int | Percentage) -> int | Percentage:
    return Percentage(least.fraction * 100) if isinstance(least, Percentage) else least * 100


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_wrong_expectation_fails(name: str) -> None:
    """The same run judged with one wrong expectation: exactly that check fails."""
    need_mounts()
    changes, failing = MUTATIONS[name]
    changes = dict(changes)
    scenario = find_scenario(name)
    if "lowest" in changes:  # a hundred times as much as the scenario asks for
        changes["lowest"] = {
            signal: a_hundred_times(least) for signal, least in scenario.expect.lowest.items()
        }
    faults = changes.pop("faults", len(scenario.faults))
    checks = judge(scenario.expect.model_copy(update=changes), run_of(name).measurements, faults)
    assert [check.name for check in checks if not check.held] == [failing]


@pytest.mark.parametrize("name", library())
def test_the_report_of_every_scenario_is_well_formed(name: str) -> None:
    """The page, JUnit and the JSON document of a real run."""
    need_mounts()
    run = report_of_run(run_of(name))
    html = page(run)
    assert_self_contained(html)
    tree = parsed(html)
    assert texts(tree, "h1") == [name]
    shown = "".join(tree.itertext())
    assert all(removal.name in shown for removal in run.removals)
    assert all(check.name in shown for check in run.checks)
    suite = ElementTree.fromstring(junit_xml(run)).find("testsuite")  # noqa: S314 # our own file
    assert suite is not None
    assert suite.get("tests") == str(len(suite.findall("testcase"))) == str(len(run.checks))


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_fifty_runs_of_the_whole_library_hold(tmp_path: Path) -> None:
    """All scenarios one after the other, 50 times (DRILL_RUNS=n for another
    number): none ever fails.
    """
    need_mounts()
    runs, failed = int(os.environ.get("DRILL_RUNS", "50")), list[str]()
    for number in range(runs):
        reports = tmp_path / str(number)
        process = reclaimd("drill", "--all", "--report", str(reports), timeout_seconds=1800.0)
        lines = process.stdout.splitlines()
        failed += [
            f"run {number}: {line}"
            for line in lines
            if line.startswith("NOT") or "NOT everything held" in line
        ]
        if process.returncode == 0:
            shutil.rmtree(reports)  # 5 MiB each: keep only the reports of failures
        elif not failed:
            failed.append(f"run {number}: exit {process.returncode}: {process.stderr[-500:]}")
    print(f"{runs} runs of {len(library())} scenarios: {len(failed)} lines of what did not hold")
    assert failed == []

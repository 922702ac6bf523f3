"""What the bytes of a real filesystem are used for: in the plan, in the answer of `reclaimd
reclaim`, in the log."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from eviction.records.attribution import Attribution, Use
from eviction.records.json_shapes import to_json
from eviction.records.pass_json import pass_json
from eviction.records.passes import PassResult
from eviction.survey.space import TimeLimit, look
from reclaim.workers import Workers
from signals.clock import SystemClock
from signals.types import FsLayout, Signal
from tests.nodes.distortions import Distort, Distortion
from tests.nodes.small_node import EVERYTHING, MIB, SmallNode, relieve
from tests.reclaimd_process import answer, reclaimd_here
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.mounts import dead_filesystem

NODEFS = Signal.NODEFS_AVAILABLE
NOT_ENOUGH = (NODEFS, 60 * MIB)
EXPECTED = {
    Use.IMAGES_MAY_GO: 8.0,
    Use.IMAGES_IN_USE: 5.0,
    Use.CONTAINERS_LIVE: 3.0,
    Use.CONTAINERS_DEAD: 1.0,
    Use.LOGS_LIVE: 1.0,
    Use.LOGS_ROTATED: 0.5,
    Use.LOGS_OF_GONE_PODS: 2.0,
    Use.VOLUMES: 1.0,
    Use.HIDDEN: 2.0,
    Use.ELSE: 5.0,
    Use.IMAGES_KEPT: 0.0,
}  # MiB


def shares(attribution: Mapping[str, Any]) -> dict[str, float]:
    """In MiB; they are all that is used."""
    found = {share["use"]: share["bytes"] / MIB for share in attribution["shares"]}
    assert sum(found.values()) * MIB == attribution["used"]
    return found


def near(expected: Mapping[Use, float]) -> Any:
    """Within half a MiB."""
    return pytest.approx(dict(expected), abs=0.5)


def planned(file: str) -> list[dict[str, Any]]:
    """The attributions of a plan."""
    document = answer(reclaimd_here("plan", "--config", file, "-o", "json"))
    found: list[dict[str, Any]] = document["attribution"]
    return found


@pytest.fixture
def crowded(make_small_node: SmallNodeFactory) -> SmallNode:
    """Images of 4 MiB (two old, one in use), a container that wrote 3 MiB, dead ones, logs, 5 MiB
    of other files."""
    node = make_small_node()
    node.add_images(2)
    node.add_image("registry.example/used:1")
    pod = node.run_pod("web")
    node.run(pod, "registry.example/used:1", writes=3 * MIB)
    node.exited(pod, name="once", writes=MIB)
    for file, size in (
        (node.pod_logs_dir / "default_web_uid-web/app/0.log", MIB),
        (node.pod_logs_dir / "default_web_uid-web/app/0.log.20260101-000000.gz", MIB // 2),
        (node.pod_logs_dir / "default_old_uid-old/app/0.log", 2 * MIB),
        (node.root_directory / "pods/uid-web/volumes/scratch", MIB),
        (node.images_root / "of another namespace", 2 * MIB),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(size))
    node.fill(5 * MIB)
    return node


@pytest.mark.regression
def test_the_plan_says_where_the_bytes_are(crowded: SmallNode) -> None:
    """Every part within half a MiB of what was put there. A deleted file that is open, of which `du`
    finds nothing, is a part, with the process that holds it; in JSON and as a table."""
    file, gone = crowded.configuration(), crowded.disk / "gone.log"
    with gone.open("wb") as held:
        held.write(os.urandom(6 * MIB))
        held.flush()
        gone.unlink()
        (attribution,) = planned(file)
        lines = reclaimd_here("plan", "--config", file).stdout.splitlines()
    assert attribution["filesystems"] == ["nodefs", "imagefs", "containerfs"]
    assert shares(attribution) == near({**EXPECTED, Use.DELETED_OPEN: 6.0})
    (remark,) = [each for each in attribution["remarks"] if each["about"] == "deleted_open"]
    assert remark["bytes"] == 6 * MIB
    assert f"(pid {os.getpid()}" in remark["sentence"]
    assert f"note: {remark['sentence']}" in lines
    assert any("logs of pods that are gone" in line for line in lines)


def test_split_layouts_are_told_apart(make_small_node: SmallNodeFactory) -> None:
    """Images on one filesystem, writable layers and other files on the other."""
    node = make_small_node(FsLayout.SPLIT)
    node.add_images(1)
    node.run(node.run_pod("web"), writes=3 * MIB)
    node.fill(4 * MIB)
    found = {tuple(each["filesystems"]): shares(each) for each in planned(node.configuration())}
    images, kubelets = found["imagefs",], found["nodefs", "containerfs"]
    assert images[Use.IMAGES_MAY_GO] == pytest.approx(4, abs=0.25)
    assert Use.CONTAINERS_LIVE not in images
    assert [kubelets[use] for use in (Use.CONTAINERS_LIVE, Use.ELSE)] == pytest.approx(
        [3, 4], abs=0.25
    )


def test_a_pass_that_was_enough_measures_nothing(small_node: SmallNode) -> None:
    """Neither before nor after it."""
    small_node.add_images(3)
    node = small_node.node(NODEFS, MIB)
    record = relieve(node)
    assert record.result is PassResult.SATISFIED
    assert node.disk_survey.with_attribution(record).attributions == ()
    assert small_node.failpoints.calls["ListContainerStats"] == 0


def by_use(attributions: Iterable[Attribution]) -> dict[str, float]:
    """The shares of the one filesystem."""
    (attribution,) = attributions
    return shares(to_json(attribution))


@pytest.mark.regression
def test_late_space_is_being_freed_and_nobody_elses(make_small_node: SmallNodeFactory) -> None:
    """The runtime has removed 16 MiB of images and frees them a minute later: the sandbox image does
    not take them."""
    small = make_small_node(image_space_delay_seconds=60.0)
    small.add_images(4)
    node = small.node(NODEFS, above=40 * MIB)
    record = node.disk_survey.with_attribution(relieve(node))
    assert (len(small.removed("image")), record.result) == (5, PassResult.NOT_ENOUGH)
    assert "-" not in record.reason.partition(";")[0]
    found = by_use(record.attributions)
    assert found[Use.BEING_FREED] == pytest.approx(17, abs=1)
    assert found[Use.IMAGES_KEPT] < 1


@pytest.mark.regression
def test_the_bytes_are_told_when_late_space_has_come(make_small_node: SmallNodeFactory) -> None:
    """It comes after the pass: what is used is what is used then, and nothing is being freed any
    more."""
    small = make_small_node(image_space_delay_seconds=0.8)
    small.add_images(4)
    node, before = small.node(NODEFS, above=40 * MIB), small.available()
    found = by_use(node.disk_survey.with_attribution(relieve(node)).attributions)
    assert small.available() >= before + 16 * MIB
    assert sum(found.values()) < 8
    assert Use.BEING_FREED not in found


def test_a_filesystem_that_never_answers_costs_the_limit_and_no_more(tmp_path: Path) -> None:
    """A look for hidden space ends in time, and so does the next one: nothing is known then, and
    the processes count as not looked at."""
    workers, clock, disk = Workers("test", 1), SystemClock(), tmp_path / "dead"
    limit, alive = TimeLimit(workers, clock, 0.1), {str(tmp_path): tmp_path.stat().st_dev}
    disk.mkdir()
    with dead_filesystem(str(disk)):
        for paths in ({str(disk): 1}, alive):
            found, unseen = look(paths, limit)
            assert found == {}, "the first look is stuck"
            assert unseen is not None
            assert unseen.sentence.endswith("not all were looked at in time")
    assert workers.not_started == 0
    found, unseen = look(alive, TimeLimit(Workers("test", 1), clock, 20.0))
    assert found.keys() == set(alive.values())
    assert unseen is None or "not all were looked at in time" not in unseen.sentence


@pytest.mark.regression
@pytest.mark.parametrize("how", [Distortion.HUGE_NAMES, Distortion.CONTROL_NAMES], ids=str)
def test_a_name_of_one_mebibyte_makes_no_line_of_megabytes(
    small_node: SmallNode, how: Distortion
) -> None:
    """The line of a pass had 12 MiB: journald cuts at 48 KiB, and half an object is no JSON."""
    small_node.exited(small_node.run_pod("crashed"))
    small_node.gone_pod("gone")
    for method in ("ListContainers", "ListImages"):
        small_node.failpoints[method] = Distort(how)
    line = json.dumps(to_json(pass_json(relieve(small_node.node(), EVERYTHING))))
    assert len(line) < 48 << 10

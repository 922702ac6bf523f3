"""Filesystems that count no inodes, do not answer or do not exist: neither pressure nor the end of it;
and what the bytes of a real one are used for: in the plan, in the answer of `reclaimd reclaim`, in
the log."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from eviction.records.attribution import Attribution, Use
from eviction.records.json_shapes import to_json
from eviction.records.pass_json import pass_json
from eviction.records.passes import PassResult
from eviction.survey.space import TimeLimit, look
from reclaim.workers import Workers
from signals.clock import SystemClock
from signals.filesystems import Reading, read_statvfs
from signals.types import FsLayout, Signal
from tests.faults.fuse import SilentFilesystem
from tests.nodes.distortions import Distort, Distortion
from tests.nodes.faults import Hang
from tests.nodes.small_node import EVERYTHING, MIB, SmallNode, reason_of, relieve
from tests.pure.values import SteppedClock
from tests.reclaimd_process import answer, reclaimd, reclaimd_here
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.mounts import tmpfs


def test_a_tmpfs_without_an_inode_limit_has_no_inode_signal(small_node: SmallNode) -> None:
    """0 of 0 inodes is not 0 percent free: the signal does not exist, and the bytes
    are watched all the same.
    """
    with tmpfs(small_node.images_root, 16 * MIB, 0):
        assert os.statvfs(small_node.images_root).f_files == 0
        configuration = small_node.configuration(
            evictionHard={"imagefs.inodesFree": "50%", "nodefs.inodesFree": "1%"}
        )
        process = reclaimd_here("check", "--config", configuration, "-o", "json")
        found = {each["signal"]: each for each in answer(process)["observations"]}
        assert process.returncode == 0, "a signal that does not exist is neither met nor unknown"
        assert "imagefs.inodesFree" not in found
        assert found["imagefs.available"]["capacity"] == 16 * MIB
        assert found["nodefs.inodesFree"]["capacity"] == 4000


def test_a_filesystem_like_btrfs_is_never_under_pressure_of_inodes(small_node: SmallNode) -> None:
    """Where the inode total is 0, no image is removed for inodes, although 0 are free."""
    small_node.add_images(2)
    small_node.run(small_node.run_pod("web"))

    def without_inodes(path: str, now: float) -> Reading:
        reading = read_statvfs(path, now)
        return reading._replace(stats=replace(reading.stats, inodes_free=0, inodes_total=0))

    node = small_node.node(Signal.NODEFS_INODES_FREE, above=100, reader=without_inodes)
    node.locate()
    observations, decision = node.look()
    assert Signal.NODEFS_INODES_FREE not in observations.signals
    assert Signal.NODEFS_AVAILABLE in observations.signals
    assert (decision.conditions, decision.acted_on) == (frozenset(), None)


class StuckReader:
    """Reads filesystems until `stuck` is set; then all paths on that of
    `path` block until `release`.
    """

    def __init__(self, path: Path) -> None:
        self._device = path.stat().st_dev
        self.stuck = False
        self.release = threading.Event()

    def __call__(self, path: str, now: float) -> Reading:
        """One reading, sooner or later."""
        if self.stuck and Path(path).stat().st_dev == self._device:
            self.release.wait()
        return read_statvfs(path, now)


def test_nothing_is_removed_blind(small_node: SmallNode) -> None:
    """When the filesystem stops answering during a pass, the pass ends: without readings
    it could remove everything.
    """
    images = small_node.add_images(4)
    small_node.run(small_node.run_pod("web"))
    reader = StuckReader(small_node.root_directory)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=40 * MIB, reader=reader)
    small_node.failpoints["RemoveImage"] = Hang(times=1)
    with small_node.relieving(node) as going:
        small_node.wait_for("RemoveImage")
        reader.stuck = True
        small_node.failpoints.clear()
        record = going.result()
        reader.release.set()
    assert small_node.removed() == images[:1]
    assert str(record.result) == "not_enough"
    assert "not readable" in record.reason
    assert reason_of(record, images[2]) == "unreadable", (
        "an image that stays is not reported as relieved"
    )


def test_who_asks_is_answered_by_readings_that_begin_then(small_node: SmallNode) -> None:
    """The looks of a daemon wait 50 ms for them; and what has been decided about is so once more."""
    clock = SteppedClock()

    def read(path: str, now: float) -> Reading:
        clock.step(seconds)
        time.sleep(seconds)
        return read_statvfs(path, now)

    node = small_node.node(Signal.NODEFS_AVAILABLE, above=MIB, clock=clock, reader=read)
    node.locate()
    node.begin_on_its_own(3600.0)
    for passed in (0.0, 0.0, 1.0):
        seconds = passed / 10
        clock.step(passed)
        asked_at = clock.monotonic()
        observations, decision = node.look()
        assert decision.acted_on is not None
        assert observations.signals[Signal.NODEFS_AVAILABLE].time >= asked_at


def test_a_dead_image_filesystem_does_not_stop_check(make_small_node: SmallNodeFactory) -> None:
    """Every reading of it blocks in the kernel: check exits with 4 all the same, and
    shows the other filesystem.
    """
    small = make_small_node(FsLayout.DEDICATED_IMAGEFS)
    configuration = small.configuration(
        evictionHard={"imagefs.available": "1Mi", "nodefs.available": "1Mi"}
    )
    with SilentFilesystem(str(small.images_root), stopped=True):
        process = reclaimd("check", "--config", configuration, "-o", "json")
        assert process.returncode == 4
        document = answer(process)
    assert {each["signal"] for each in document["observations"]} == {
        "nodefs.available",
        "nodefs.inodesFree",
    }
    assert {each["filesystem"] for each in document["unavailable"]} == {"imagefs", "containerfs"}
    assert "did not answer statvfs within 2 s" in document["unavailable"][0]["reason"]


# ---- what the bytes are used for

NODEFS = Signal.NODEFS_AVAILABLE
EXPECTED: dict[str, float] = yaml.safe_load("""
images_may_go: 8
images_in_use: 5
containers_live: 3
containers_dead: 1
logs_live: 1
logs_rotated: 0.5
logs_of_gone_pods: 2
volumes: 1
hidden: 2
else: 5
images_kept: 0
deleted_open: 6
""")  # MiB
FILES: dict[str, float] = yaml.safe_load("""
log/pods/default_web_uid-web/app/0.log: 1
log/pods/default_web_uid-web/app/0.log.20260101-000000.gz: 0.5
log/pods/default_old_uid-old/app/0.log: 2
kubelet/pods/uid-web/volumes/scratch: 1
images/of another namespace: 2
""")


def shares(attribution: Mapping[str, Any]) -> dict[str, float]:
    """In MiB; they are all that is used."""
    found = {share["use"]: share["bytes"] / MIB for share in attribution["shares"]}
    assert sum(found.values()) * MIB == attribution["used"]
    return found


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
    for name, size in FILES.items():
        file = node.disk / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(int(size * MIB)))
    node.fill(5 * MIB)
    return node


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
    assert shares(attribution) == pytest.approx(EXPECTED, abs=0.5)
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
    with SilentFilesystem(str(disk), stopped=True):
        for paths in ({str(disk): 1}, alive):
            found, unseen = look(paths, limit)
            assert found == {}, "the first look is stuck"
            assert unseen is not None
            assert unseen.sentence.endswith("not all were looked at in time")
    assert workers.not_started == 0
    found, unseen = look(alive, TimeLimit(Workers("test", 1), clock, 20.0))
    assert found.keys() == set(alive.values())
    assert unseen is None or "not all were looked at in time" not in unseen.sentence


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

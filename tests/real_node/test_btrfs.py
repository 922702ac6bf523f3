"""A btrfs with subvolumes, as some distributions install it: one filesystem, as
for the kubelet's cAdvisor.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from eviction.configuration.effective import eviction_config, load
from eviction.engine.effects import Request
from eviction.engine.fold import booked
from eviction.engine.step import new_pass
from eviction.engine.view import NodeView
from eviction.records.attribution import About
from eviction.records.passes import Trigger
from eviction.survey.space import DiskSurvey, Places
from reclaim.evidence.states import PodStates
from reclaim.types import Usage
from signals.clock import SystemClock
from signals.filesystems import FilesystemPaths
from signals.types import FilesystemRole, FsLayout, Signal, SignalObservations
from tests.inline import NOTHING_DECIDED, Inline
from tests.pure.values import SteppedClock
from tests.real_node.conftest import NodeFactory
from tests.real_node.loopfs import MIB, LoopFilesystem, find_tool, run_tool, unmount
from tests.real_node.oci import Image, random_layer
from tests.real_node.test_hidden_space import held_open
from tests.real_node.test_relief import MINIMUM_RECLAIM, configure, removed
from tests.reclaimd_process import answer, came_true, reclaimd

SIZE_BYTES = 256 * MIB
GONE_BYTES, LOG_BYTES = 12 * MIB, 24 * MIB
ROOMY_BYTES = 16 * 1024 * MIB  # in a sparse file
IMAGES, IMAGE_BYTES = 8, 24 * MIB  # containerd keeps each twice: its blobs and its layers


@dataclass
class Subvolumes:
    """A mounted btrfs: the kubelet's directory on one subvolume, the images on
    another, the logs on a third.
    """

    kubelet: Path
    images: Path
    logs: Path

    def __post_init__(self) -> None:
        fields = {"rootDirectory": str(self.kubelet), "evictionHard": {"nodefs.available": "10%"}}
        self.view = NodeView(load(None, {}, fields))
        self.view.summary.locate(
            FilesystemPaths(str(self.kubelet), str(self.images), str(self.images))
        )

    def observe(self) -> SignalObservations:
        """One observation, after everything written has its place."""
        os.sync()
        return self.view.summary.observe()


@pytest.fixture(params=["mounted", "directories"])
def subvolumes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subvolumes]:
    """Each subvolume mounted at a point of its own, or all as directories of the
    filesystem, mounted once.
    """
    if find_tool("mkfs.btrfs") is None:
        pytest.skip("no mkfs.btrfs")
    with LoopFilesystem(tmp_path / "fs", SIZE_BYTES, "btrfs") as filesystem:
        names = ("kubelet", "images", "logs")
        points = {name: filesystem.mountpoint / name for name in names}
        for point in points.values():
            run_tool("btrfs", "subvolume", "create", point)
        if request.param == "mounted":
            (device,) = run_tool("findmnt", "-no", "SOURCE", "-T", filesystem.mountpoint).split()
            for name in names:
                points[name] = tmp_path / name
                points[name].mkdir()
                run_tool("mount", "-t", "btrfs", "-o", f"subvol={name}", device, points[name])
        made = Subvolumes(**points)
        try:
            yield made
        finally:
            made.view.close()
            for point in points.values():
                if request.param == "mounted":
                    unmount(point)


def test_subvolumes_are_one_filesystem(subvolumes: Subvolumes) -> None:
    """The layout is single, so the threshold of nodefs has a row: containers, then images."""
    devices = {path.stat().st_dev for path in (subvolumes.kubelet, subvolumes.images)}
    assert len(devices) == 2, "the kernel tells them apart"
    seen = subvolumes.observe()
    assert seen.layout is FsLayout.SINGLE
    assert {identity.type for identity, _ in seen.filesystems.values()} == {"btrfs"}
    row = eviction_config(subvolumes.view.configuration).row(Signal.NODEFS_AVAILABLE, seen)
    assert row == ("DeleteAllUnusedContainers", "DeleteUnusedImages")


def test_what_is_freed_on_subvolumes_counts_once(subvolumes: Subvolumes) -> None:
    """A file of 24 MiB goes: 24 MiB are gained, on however many subvolumes the roles are."""
    file = subvolumes.images / "layer"
    file.write_bytes(os.urandom(LOG_BYTES))
    before = subvolumes.observe()
    engine = Inline(SteppedClock(), {}, lambda _: pytest.fail("nothing is planned"))
    world, the = new_pass(engine.world, Trigger.REQUEST, Request(), decision=NOTHING_DECIDED)
    device = before.filesystems[FilesystemRole.NODEFS][0].device_id
    world = world._replace(passes={the.id: the}, booked_to={device: the.id})
    file.unlink()

    def gained() -> int:
        seen = world._replace(observations=subvolumes.observe())
        return booked(seen, before).passes[the.id].gained.gained_since(Usage())[0]

    assert came_true(lambda: gained() >= LOG_BYTES - MIB), (
        "what is removed comes back with a commit"
    )
    assert gained() == pytest.approx(LOG_BYTES, rel=0.2)


def test_bytes_of_every_subvolume_are_attributed(subvolumes: Subvolumes) -> None:
    """Logs on a third subvolume, and a deleted file held open on that of the images:
    parts of the one filesystem.
    """
    log = subvolumes.logs / "default_web_uid-web" / "app" / "0.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(os.urandom(LOG_BYTES))
    places = Places(str(subvolumes.kubelet), str(subvolumes.logs), (str(subvolumes.images),))
    survey = DiskSurvey(
        subvolumes.observe,
        lambda: places,
        PodStates,
        lambda: None,
        SystemClock(),
    )
    with held_open(subvolumes.images / "gone.log", GONE_BYTES) as pid:
        (found,) = survey.survey(subvolumes.observe(), ())
    shares = {str(share.use): share.bytes for share in found.shares}
    assert shares["logs_live"] == pytest.approx(LOG_BYTES, abs=MIB)
    assert shares["deleted_open"] == pytest.approx(GONE_BYTES, abs=MIB)
    (told,) = [remark.sentence for remark in found.remarks if remark.about is About.DELETED_OPEN]
    assert f"(pid {pid})" in told


@pytest.mark.regression
def test_what_a_removal_frees_counts_at_once(make_node: NodeFactory, tmp_path: Path) -> None:
    """By itself, btrfs shows what was removed up to 30 s later: every image would go.
    Of eight, two are enough.

    One at a time, and on a disk so large that nothing which the runtime writes meanwhile
    makes it urgent: then more would be sent before the first are counted, and none
    waited for longer than 5 s.
    """
    node = make_node(ROOMY_BYTES, fstype="btrfs")
    recipes = [
        Image(f"reclaimd.test/old/{number}:1", (random_layer(number, IMAGE_BYTES),))
        for number in range(IMAGES)
    ]
    old = node.import_images(recipes)
    os.sync()
    mark = node.filesystem.available_bytes() + 3 * IMAGE_BYTES - MINIMUM_RECLAIM
    time.sleep(1.1)  # then the youngest is old enough
    marks = {"imagefs.available": str(mark)}
    configuration = configure(
        tmp_path, node, evictionHard=marks, parallelRemovals=1, removalPatience="10m"
    )
    record = answer(
        reclaimd(
            "reclaim", "--config", configuration, "--signal", "imagefs.available", "-o", "json"
        )
    )
    gone = removed(record, "image")
    freed = [
        outcome["freed"]["bytes"] for outcome in record["removals"] if outcome["kind"] == "image"
    ]
    assert (record["result"], gone) == ("satisfied", list(old[:2]))
    assert sum(freed) > 3 * IMAGE_BYTES

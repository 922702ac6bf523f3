"""`reclaimd plan` and `reclaimd reclaim` on a real node: what is removed is what was said, and the
bytes are those of the filesystem."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from tests.full_disk import full
from tests.nodes.crowded_node import CrowdedNode, build_crowded_node
from tests.nodes.real_node import GIB, RealNode
from tests.real_node.conftest import NodeFactory
from tests.real_node.fill import fill_bytes
from tests.real_node.loopfs import MIB, loop_devices_of, run_tool
from tests.real_node.steps import (
    IMAGEFS,
    MINIMUM_RECLAIM,
    SETTLED_SECONDS,
    assert_protected_objects_kept,
    file_of,
    freed,
    objects_of,
    oldest_gone,
    plan,
    reclaim,
    removed,
    unused_images,
)
from tests.reclaimd_process import answer, reclaimd_here


def let_settle(crowded: CrowdedNode) -> None:
    """Waits until the dead pod's parts count as gone, and the last image as old enough."""
    created = crowded.node.cri.container_status(crowded.dead_container).created_at / 1e9
    time.sleep(max(1.1, created + SETTLED_SECONDS - time.time()))


def test_reclaim_does_what_the_plan_says_and_its_measured_bytes_are_those_of_the_filesystem(
    make_node: NodeFactory,
) -> None:
    """`reclaimd plan` names every object with its reason, in the order of removal, and changes
    nothing, as a dry run does; `reclaimd reclaim` removes the oldest images until the threshold is
    no longer met, and reports the freed bytes as statvfs shows them, to the mebibyte."""
    crowd = build_crowded_node(make_node(GIB // 4))
    node, unused = crowd.node, list(crowd.unused_images)
    let_settle(crowd)
    mark = node.filesystem.available_bytes() - 5 * MIB
    configuration = file_of(node, imagefs=mark)
    objects = objects_of(node)
    found = plan(configuration)
    planned = [o["id"] for o in found["removals"]]
    assert planned[-len(unused) :] == unused
    parts = {crowd.crashed_older, crowd.dead_container, crowd.dead_sandbox}
    assert set(planned[: -len(unused)]) == parts
    protected = crowd.protected_images() | crowd.protected_containers()
    assert protected <= {o["id"] for o in found["kept"]}
    text = reclaimd_here("plan", "--config", configuration).stdout
    assert "newest_of_live_pod" in text
    assert "reclaimd.test/unused/00:1" in text
    assert reclaim(configuration)["result"] == "idle", "without pressure nothing is done"

    fill_bytes(node.mountpoint / "fill", mark - 25 * MIB, fast=True).wait(60.0)
    check = reclaimd_here("check", "--config", configuration, "-o", "json")
    assert check.returncode == 1
    assert [t["signal"] for t in answer(check)["thresholds_met"]] == ["imagefs.available"]
    dry = reclaim(configuration, "--dry-run")
    assert dry["result"] == "dry_run"
    assert {o["result"] for o in dry["removals"]} == {"planned"}
    assert objects_of(node) == objects, "neither a plan nor a dry run removes anything"

    before = node.filesystem.available_bytes()
    record = reclaim(configuration)
    after = node.filesystem.available_bytes()
    assert record["result"] == "satisfied", record["reason"]
    assert abs(record["measured"]["bytes"] - (after - before)) <= MIB
    assert record["nominal"]["bytes"] > 0
    assert after >= mark + MINIMUM_RECLAIM
    gone = removed(record)
    assert gone == unused[: oldest_gone(unused, node.cri.image_ids())]
    planned = [o["id"] for o in dry["removals"] if o["kind"] == "image"]
    same = min(len(planned), len(gone))
    assert planned[:same] == gone[:same]
    assert len(gone) - same <= 1, "it counts on what each frees, to about a block"
    kept = {o["id"]: o["reason"] for o in record["kept"]}
    reasons = {
        crowd.sandbox_image: "sandbox_image",
        crowd.init_image: "in_use",
        crowd.app_image: "in_use",
        crowd.crashed_newest: "newest_of_live_pod",
        crowd.init_container: "newest_of_live_pod",
        crowd.running_containers[0]: "running",
        unused[-1]: "relieved",
    }
    assert {each: kept[each] for each in reasons} == reasons
    assert_protected_objects_kept(crowd)


def test_a_disk_filled_to_the_last_byte_of_its_reserve_is_relieved(make_node: NodeFactory) -> None:
    """While an ext4 recovers from its reserve the available bytes stay at 0;
    removal goes on until they rise.
    """
    node = make_node(GIB // 4)
    # as mkfs leaves it by default
    run_tool("tune2fs", "-m", "5", loop_devices_of(node.filesystem.image)[0])
    images = unused_images(node, 8)
    configuration = file_of(node, nodefs=10 * MIB, parallelRemovals=1)
    with full(node.mountpoint, inodes=False):
        record = reclaim(configuration)
    assert record["result"] == "satisfied", record["reason"]
    gone = removed(record)
    assert gone == images[: len(gone)], "oldest first"
    assert 2 <= len(gone) < len(images), "the reserve takes more than one image, and not all"
    assert min(freed(record)) > 5 * MIB, "bytes that refill the reserve are counted"


@pytest.mark.regression
def test_what_a_removal_frees_counts_at_once(make_node: NodeFactory) -> None:
    """By itself, btrfs shows what was removed up to 30 s later: every image would go.
    Of five, two are enough.

    One at a time, and on a disk so large that nothing which the runtime writes meanwhile
    makes it urgent: then more would be sent before the first are counted, and none
    waited for longer than 5 s.
    """
    node, size = make_node(16 * GIB, fstype="btrfs"), 16 * MIB  # in a sparse file
    old = unused_images(node, 5, size)
    run_tool("sync", "-f", node.mountpoint)
    mark = node.filesystem.available_bytes() + 3 * size - MINIMUM_RECLAIM
    configuration = file_of(node, imagefs=mark, parallelRemovals=1, removalPatience="10m")
    record = reclaim(configuration, *IMAGEFS[:2])
    assert (record["result"], removed(record)) == ("satisfied", old[:2])
    assert sum(freed(record)) > 3 * size


def test_room_is_made_for_a_pull_and_no_more_or_it_is_said_what_is_missing(
    containerd: RealNode,
) -> None:
    """30 MiB more than there is: two images of 12 MiB, unpacked and packed; then an import of that
    size fits in. All that the disk has: every unused image goes, the sandbox image stays, and what
    is missing is said with exit 1; more than that is refused."""
    node, size = containerd, 12 * MIB
    unused_images(node, 6, size)
    file = file_of(node)

    def room(wanted: int, *words: str, code: int = 0) -> Any:
        on = ("--standalone", "--now", "--on", "imagefs", "--room", str(wanted))
        return reclaim(file, *on, *words, code=code)

    wanted = node.filesystem.available_bytes() + 30 * MIB
    assert {one["result"] for one in room(wanted, "--dry-run")["removals"]} == {"planned"}
    assert len(node.cri.image_ids()) == 7
    made = room(wanted)
    assert (made["room"]["missing"], len(removed(made))) == (0, 2)
    assert 0 <= node.filesystem.available_bytes() - wanted < 2 * size
    assert room(wanted)["kind"] == "NothingToDo"

    words = ("--config", file, "--now", "--on", "imagefs", "--room", str(2 * GIB))
    assert reclaimd_here("reclaim", *words).returncode == 2
    figures = os.statvfs(node.mountpoint)
    all_of_it = figures.f_blocks * figures.f_frsize
    missed = room(all_of_it, code=1)
    assert missed["result"] == "not_enough"
    missing = all_of_it - node.filesystem.available_bytes()
    assert missed["room"]["missing"] == pytest.approx(missing, abs=4 * MIB)
    assert node.cri.image_ids() == {node.sandbox_image_id}
    assert missed["attribution"], "where the bytes are"

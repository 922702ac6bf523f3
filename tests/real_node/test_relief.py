"""A node under pressure is relieved, end to end: a real containerd, a real ext4, a
process that fills the disk.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.nodes.crowded_node import CrowdedNode, build_crowded_node
from tests.nodes.real_node import GIB, RealNode
from tests.real_node.conftest import NodeFactory
from tests.real_node.fill import fill_bytes, fill_inodes
from tests.real_node.loopfs import loop_devices_of, run_tool
from tests.real_node.oci import SLEEP_FOR_EVER, Image, random_layer
from tests.reclaimd_process import (
    Daemon,
    answer,
    came_true,
    reclaimd,
    reclaimd_here,
    write_configuration,
)

MIB = 1 << 20
MINIMUM_RECLAIM = 16 * MIB
SETTLED_SECONDS = 11.0  # parts of a vanished pod count as gone from 10 s on


def configure(path: Path, node: RealNode, **fields: object) -> str:
    """A configuration for this node; images count as old enough after a second, as
    they were imported just now.
    """
    thresholds = {"nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.inodesFree": "0%"}
    given = fields.pop("evictionHard", {})
    assert isinstance(given, dict)
    return str(
        write_configuration(
            path / "reclaimd.yaml",
            **{
                "rootDirectory": str(node.kubelet.root_dir),
                "containerRuntimeEndpoint": f"unix://{node.containerd.socket}",
                "imageMinimumGCAge": "1s",
                "holdOffAfterStart": "0s",
                "evictionHard": {"imagefs.available": "0%", **thresholds, **given},
                "evictionMinimumReclaim": {
                    "imagefs.available": str(MINIMUM_RECLAIM),
                    "nodefs.available": "0",
                },
                **fields,
            },
        )
    )


def let_settle(crowded: CrowdedNode) -> None:
    """Waits until the dead pod's parts count as gone, and the last image as old enough."""
    created = crowded.node.cri.container_status(crowded.dead_container).created_at / 1e9
    time.sleep(max(1.1, created + SETTLED_SECONDS - time.time()))


def containers_of(node: RealNode) -> set[str]:
    return {container.id for container in node.cri.list_containers()}


def assert_protected_objects_kept(crowded: CrowdedNode) -> None:
    """Running containers, newest dead copies, images in use and the sandbox image
    are kept; a new pod starts.
    """
    node = crowded.node
    assert crowded.protected_images() <= node.cri.image_ids()
    assert crowded.protected_containers() <= containers_of(node)
    for container in crowded.running_containers:
        assert node.kubelet.state_of(container) == 1, "a running container is still running"
    node.kubelet.admit_pod("new-uid")
    sandbox = node.kubelet.run_pod("new-pod", "new-uid")
    started = node.kubelet.run_container(sandbox, "app", crowded.app_image, SLEEP_FOR_EVER)
    assert node.kubelet.state_of(started) == 1, "a new pod starts afterwards"


def assert_oldest_images_removed_first(crowded: CrowdedNode, left: set[str]) -> int:
    """The removed images are the first ones imported, without a gap; returns their number."""
    removed_flags = [image not in left for image in crowded.unused_images]
    count = sum(removed_flags)
    assert removed_flags == [True] * count + [False] * (len(removed_flags) - count), (
        "the oldest are removed first"
    )
    return count


def available_after(record: dict[str, Any], signal: str) -> int:
    """The value of a signal at the end of a pass."""
    (found,) = [int(o["available"]) for o in record["observations_after"] if o["signal"] == signal]
    return found


def relieved_for_good(daemon: Daemon, crowded: CrowdedNode, mark: int) -> bool:
    """After a fill: the disk is above the mark, the last pass succeeded, and no pass runs.

    One that runs has removed an image that no record names yet, or the disk
    would still be below the mark.
    """
    above = crowded.node.filesystem.available_bytes() >= mark
    gone = set(crowded.unused_images) - crowded.node.cri.image_ids()
    passes = daemon.passes
    recorded = {image for record in passes for image in removed(record, "image")}
    return above and gone == recorded and bool(passes) and passes[-1]["result"] == "satisfied"


def removed(record: dict[str, Any], kind: str) -> list[str]:
    return [o["id"] for o in record["removals"] if o["kind"] == kind and o["result"] == "removed"]


def test_with_image_gc_at_100_percent_and_no_periodic_loop_pressure_still_reclaims(
    make_node: NodeFactory, tmp_path: Path
) -> None:
    """The daemon relieves a disk that fills although image garbage collection is
    switched off at 100 percent.
    """
    # as the last bound is in bytes
    crowded_node = build_crowded_node(make_node(GIB), image_bytes=12 * MIB)
    node, minimum, most = crowded_node.node, 64 * MIB, 250 * MIB
    let_settle(crowded_node)
    mark = node.filesystem.available_bytes() - 100 * MIB
    configuration = configure(
        tmp_path,
        node,
        evictionHard={"imagefs.available": str(mark)},
        evictionMinimumReclaim={"imagefs.available": str(minimum), "nodefs.available": "0"},
        imageGCHighThresholdPercent=100,
        imageGCLowThresholdPercent=99,
    )
    with Daemon("--config", configuration) as daemon:
        fill = fill_bytes(
            node.mountpoint / "fill", MIB, rate_bytes_per_second=100 * MIB, most_bytes=most
        )
        assert fill.wait(60.0) >= most
        assert came_true(lambda: relieved_for_good(daemon, crowded_node, mark)), "it is relieved"
        assert node.filesystem.available_bytes() >= mark
        assert daemon.stop() == 0
        assert daemon.logged("ReclaimPressure: imagefs.available")
        records = daemon.passes
    assert all(record["layout"] == "single" for record in records)
    assert records[0]["acted_on"]["signal"] == "imagefs.available"
    assert records[0]["row"] == ["DeleteAllUnusedContainers", "DeleteUnusedImages"]
    # the fill goes on meanwhile, and on a busy machine it may be faster than a pass
    for record in records:
        reached = available_after(record, "imagefs.available") >= mark + minimum
        assert record["result"] == ("satisfied" if reached else "not_enough"), (
            "each pass reaches the minimum reclaim"
        )
    assert records[-1]["result"] == "satisfied", "and the last one does"
    gone_containers = {id_ for record in records for id_ in removed(record, "container")}
    assert gone_containers == {crowded_node.crashed_older, crowded_node.dead_container}
    gone_sandboxes = {id_ for record in records for id_ in removed(record, "sandbox")}
    assert gone_sandboxes <= {crowded_node.dead_sandbox}, (
        "it frees nothing: in a hurry images go before it"
    )
    count = assert_oldest_images_removed_first(crowded_node, node.cri.image_ids())
    assert 1 <= count < len(crowded_node.unused_images), (
        "removal stopped once the threshold was no longer met"
    )
    # In a hurry several go side by side, as many as the fill would need; when it ends
    # meanwhile they are not needed.
    beyond = node.filesystem.available_bytes() - mark - minimum
    assert beyond < most, "never more beyond need than was written"
    assert_protected_objects_kept(crowded_node)


def assert_the_plan_names_what_is_removed(crowded: CrowdedNode, configuration: str) -> None:
    """`reclaimd plan` names every object with its reason, in the order of
    removal, and removes none.
    """
    node = crowded.node
    images, containers = node.cri.image_ids(), containers_of(node)
    process = reclaimd_here("plan", "--config", configuration, "-o", "json")
    assert process.returncode == 0
    record = answer(process)
    planned = [o["id"] for o in record["removals"]]
    unused = list(crowded.unused_images)
    assert planned[-len(unused) :] == unused
    assert set(planned[: -len(unused)]) == {
        crowded.crashed_older,
        crowded.dead_container,
        crowded.dead_sandbox,
    }
    kept = {o["id"] for o in record["kept"]}
    assert crowded.protected_images() | crowded.protected_containers() <= kept
    assert (images, containers) == (node.cri.image_ids(), containers_of(node))
    text = reclaimd_here("plan", "--config", configuration)
    assert "newest_of_live_pod" in text.stdout
    assert "reclaimd.test/unused/00:1" in text.stdout


def test_reclaim_does_what_the_plan_says_and_its_measured_bytes_are_those_of_the_filesystem(
    crowded_node: CrowdedNode, tmp_path: Path
) -> None:
    """`reclaimd plan` changes nothing; `reclaimd reclaim` removes the oldest images
    until the threshold is no longer met, and reports the freed bytes as statvfs shows
    them, to the mebibyte."""
    node = crowded_node.node
    let_settle(crowded_node)
    mark = node.filesystem.available_bytes() - 5 * MIB
    configuration = configure(tmp_path, node, evictionHard={"imagefs.available": str(mark)})
    assert_the_plan_names_what_is_removed(crowded_node, configuration)
    idle = reclaimd_here("reclaim", "--config", configuration, "-o", "json")
    assert (idle.returncode, answer(idle)["result"]) == (0, "idle"), (
        "without pressure nothing is done"
    )

    fill_bytes(node.mountpoint / "fill", mark - 25 * MIB, fast=True).wait(60.0)
    check = reclaimd_here("check", "--config", configuration, "-o", "json")
    assert check.returncode == 1
    assert [t["signal"] for t in answer(check)["thresholds_met"]] == ["imagefs.available"]

    images, containers, before = (
        node.cri.image_ids(),
        containers_of(node),
        node.filesystem.available_bytes(),
    )
    dry = reclaimd_here("reclaim", "--config", configuration, "--dry-run", "-o", "json")
    assert (dry.returncode, answer(dry)["result"]) == (0, "dry_run")
    assert {o["result"] for o in answer(dry)["removals"]} == {"planned"}
    assert (images, containers) == (node.cri.image_ids(), containers_of(node)), (
        "a dry run removes nothing"
    )

    process = reclaimd("reclaim", "--config", configuration, "-o", "json")
    after = node.filesystem.available_bytes()
    record = answer(process)
    assert (process.returncode, record["result"]) == (0, "satisfied"), record["reason"]
    assert abs(record["measured"]["bytes"] - (after - before)) <= MIB
    assert record["nominal"]["bytes"] > 0
    assert after >= mark + MINIMUM_RECLAIM
    count = assert_oldest_images_removed_first(crowded_node, node.cri.image_ids())
    assert removed(record, "image") == list(crowded_node.unused_images[:count]), "oldest first"
    planned = [o["id"] for o in answer(dry)["removals"] if o["kind"] == "image"]
    same = min(len(planned), count)
    assert planned[:same] == removed(record, "image")[:same]
    assert count - same <= 1, "it counts on what each frees, to about a block"
    kept = {o["id"]: o["reason"] for o in record["kept"]}
    assert kept[crowded_node.sandbox_image] == "sandbox_image"
    assert kept[crowded_node.init_image] == kept[crowded_node.app_image] == "in_use"
    assert (
        kept[crowded_node.crashed_newest]
        == kept[crowded_node.init_container]
        == "newest_of_live_pod"
    )
    assert kept[crowded_node.running_containers[0]] == "running"
    assert kept[crowded_node.unused_images[-1]] == "relieved"
    assert_protected_objects_kept(crowded_node)


def test_a_filesystem_that_runs_out_of_inodes_is_relieved(
    make_node: NodeFactory, tmp_path: Path
) -> None:
    """Empty files use up the inodes; the daemon removes images until enough
    inodes are free, and stops.
    """
    crowded = build_crowded_node(make_node(GIB // 4, inodes=4000), image_bytes=MIB)
    node = crowded.node
    let_settle(crowded)
    mark = node.filesystem.inodes_free() - 200
    configuration = configure(
        tmp_path,
        node,
        evictionHard={"imagefs.inodesFree": str(mark)},
        evictionMinimumReclaim={"imagefs.inodesFree": "40"},
        imageGCHighThresholdPercent=100,
    )
    with Daemon("--config", configuration) as daemon:
        fill = fill_inodes(
            node.mountpoint / "fill", 10, rate_inodes_per_second=1000, most_inodes=500
        )
        assert fill.wait(60.0) == 500
        assert came_true(lambda: node.filesystem.inodes_free() >= mark + 40), "it is relieved"
        assert came_true(lambda: bool(daemon.passes) and daemon.passes[-1]["result"] == "satisfied")
        assert daemon.stop() == 0
        records = daemon.passes
    assert {record["acted_on"]["signal"] for record in records} == {"imagefs.inodesFree"}
    assert records[-1]["result"] == "satisfied"
    assert sum(record["measured"]["inodes"] for record in records) > 0
    left = node.cri.image_ids()
    assert_oldest_images_removed_first(crowded, left)
    assert crowded.small_files_image not in left, "removing the image of 600 files frees inodes"
    assert set(crowded.unused_images[10:]) <= left, "removal stopped when enough inodes were free"
    assert_protected_objects_kept(crowded)


def test_a_disk_filled_to_the_last_byte_of_its_reserve_is_relieved(
    make_node: NodeFactory, tmp_path: Path
) -> None:
    """While an ext4 recovers from its reserve the available bytes stay at 0;
    removal goes on until they rise.
    """
    node = make_node(GIB // 4)
    # as mkfs leaves it by default
    run_tool("tune2fs", "-m", "5", loop_devices_of(node.filesystem.image)[0])
    images = node.import_images(
        [
            Image(f"reclaimd.test/spare/{number:02}:1", (random_layer(number, 5 * MIB),))
            for number in range(8)
        ]
    )
    time.sleep(1.1)
    configuration = configure(
        tmp_path,
        node,
        evictionHard={"nodefs.available": "10Mi"},
        evictionMinimumReclaim={"nodefs.available": "0"},
        parallelRemovals=1,
    )
    with (node.mountpoint / "grown").open("wb", buffering=0) as file:
        try:
            while file.write(b"\1" * MIB):
                pass
        except OSError:
            pass
    assert node.filesystem.available_bytes() == 0
    process = reclaimd_here("reclaim", "--config", configuration, "-o", "json")
    record = answer(process)
    assert (process.returncode, record["result"]) == (0, "satisfied"), record["reason"]
    gone = removed(record, "image")
    assert gone == images[: len(gone)], "oldest first"
    assert 2 <= len(gone) < len(images), (
        "refilling the reserve takes more than one image, and not all"
    )
    assert all(o["freed"]["bytes"] > 5 * MIB for o in record["removals"]), (
        "bytes that refill the reserve are counted"
    )

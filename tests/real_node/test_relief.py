"""A node under pressure is relieved, end to end: a real containerd, a real disk, a
process that fills it.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path

from tests.nodes.crowded_node import CrowdedNode, build_crowded_node
from tests.nodes.real_node import GIB, RealNode
from tests.real_node.conftest import NodeFactory
from tests.real_node.fill import fill_bytes, fill_inodes
from tests.real_node.loopfs import MIB, run_tool
from tests.real_node.steps import (
    ALL,
    MINIMUM_RECLAIM,
    SETTLED_SECONDS,
    assert_protected_objects_kept,
    assert_without_power,
    available_after,
    oldest_gone,
    reclaim,
    removed,
    status,
    unused_images,
)
from tests.real_node.steps import configure as file_of  # the bench imports it from here
from tests.reclaimd_process import Daemon, came_true

# What can be set up of `config/systemd/reclaimd.service` without systemd: no capability, none to be
# gained, a user namespace with root alone, a mount namespace in which everything is read-only but
# what the unit names, and a network without an interface. Not here: the system call filter, the
# device policy and the memory limits.
LIMITS = """
for writable in "$1" "$2" "$3"; do mount --bind "$writable" "$writable"; done
mount --bind /proc/sys /proc/sys
awk '{ print $5 }' /proc/self/mountinfo | while read -r target; do
    case "$target" in
        "$1" | "$2" | "$3" | /proc) ;;
        *) mount -o remount,bind,ro "$target" ;;
    esac
done
shift 3
exec unshare --user --map-root-user setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@"
"""
FILES, FILE_BYTES = 1200, 160 << 10  # of the build cache
PRUNE = """\
#!/bin/sh
# removes the oldest files of the cache until what is missing is free, and 32 MiB for what is written meanwhile
find {cache} -type f -printf '%T@ %s %p\\n' | sort -n |
    awk -v missing="$((RECLAIMD_MISSING_BYTES + 33554432))" 'missing > 0 {{ print $3; missing -= $2 }}' | xargs -r rm --
"""


def relieved_for_good(daemon: Daemon, crowded: CrowdedNode, mark: int) -> bool:
    """After a fill: the disk is above the mark, the last pass succeeded, and no pass runs.

    One that runs has removed an image that no record names yet, or the disk
    would still be below the mark.
    """
    above = crowded.node.filesystem.available_bytes() >= mark
    gone = set(crowded.unused_images) - crowded.node.cri.image_ids()
    passes = daemon.passes
    recorded = {image for record in passes for image in removed(record)}
    return above and gone == recorded and bool(passes) and passes[-1]["result"] == "satisfied"


def assert_limited(process: int, disk: Path) -> None:
    """By /proc: without power, the disk read-only, no network but loopback."""
    interfaces = Path(f"/proc/{process}/net/dev").read_text().splitlines()[2:]
    assert [line.split(":")[0].strip() for line in interfaces] == ["lo"]
    assert assert_without_power(process)[str(disk)].startswith("ro,")


def test_the_daemon_relieves_a_real_containerd_within_the_limits_of_its_unit(
    make_node: NodeFactory, tmp_path: Path
) -> None:
    """Images, oldest first, dead containers and a deleted pod's log are removed although image
    garbage collection is switched off at 100 percent; records are saved, and the control socket
    answers."""
    crowded_node = build_crowded_node(make_node(GIB // 2), image_bytes=6 * MIB)
    node = crowded_node.node
    logs, state, run = node.kubelet.pod_logs_dir, tmp_path / "state", tmp_path / "run"
    for directory in (state, run):
        directory.mkdir(mode=0o700)
    deleted_log = logs / f"default_vanished_{uuid.uuid4()}"
    (deleted_log / "app").mkdir(parents=True)
    (deleted_log / "app" / "0.log").write_text("gone\n")
    time.sleep(SETTLED_SECONDS)  # the log is the youngest object
    mark, most = node.filesystem.available_bytes() - 50 * MIB, 125 * MIB
    configuration = file_of(
        node,
        imagefs=mark,
        podLogsDir=str(logs),
        stateFile=str(state / "images.json"),
        controlSocket=str(run / "control.sock"),
        lockDirectory=str(run / "lock"),
        imageGCHighThresholdPercent=100,
        imageGCLowThresholdPercent=99,
    )
    script = ["sh", "-ec", LIMITS, "limits", str(logs), str(state), str(run)]
    before = ["unshare", "--mount", "--net", *script]
    with Daemon("--config", configuration, before=before) as daemon:
        assert_limited(daemon.process.pid, node.mountpoint)
        fill = fill_bytes(node.mountpoint / "fill", MIB, 50 * MIB, most_bytes=most)
        assert fill.wait(60.0) >= most
        assert came_true(lambda: relieved_for_good(daemon, crowded_node, mark)), "it is relieved"
        left, records = node.filesystem.available_bytes(), daemon.passes
        count = oldest_gone(crowded_node.unused_images, node.cri.image_ids())
        assert status(configuration)["passes"][-1]["result"] == "satisfied"
        # in a hurry sandboxes and logs, which free next to nothing, wait
        rest = reclaim(configuration, *ALL)
        assert daemon.stop() == 0
        assert daemon.logged("ReclaimPressure: imagefs.available")
        assert not daemon.logged("the node is not locked")
    assert {record["layout"] for record in records} == {"single"}
    assert records[0]["acted_on"]["signal"] == "imagefs.available"
    assert records[0]["row"] == ["DeleteAllUnusedContainers", "DeleteUnusedImages"]
    # the fill goes on meanwhile, and on a busy machine it may be faster than a pass
    for record in records:
        reached = available_after(record, "imagefs.available") >= mark + MINIMUM_RECLAIM
        assert record["result"] == ("satisfied" if reached else "not_enough")
    outcomes = [outcome for record in (*records, rest) for outcome in record["removals"]]
    assert {outcome["result"] for outcome in outcomes} == {"removed"}
    assert {outcome["kind"] for outcome in outcomes} == {"image", "container", "sandbox", "pod_log"}
    gone = {each for record in records for each in removed(record, "container")}
    assert gone == {crowded_node.crashed_older, crowded_node.dead_container}
    assert not deleted_log.exists()
    assert 1 <= count < len(crowded_node.unused_images), "removal stopped"
    # in a hurry several go side by side, as many as the fill would need if it went on
    assert left - mark - MINIMUM_RECLAIM < most, "never more beyond need than was written"
    assert json.loads((state / "images.json").read_text())
    assert_protected_objects_kept(crowded_node)


def test_a_filesystem_that_runs_out_of_inodes_is_relieved(make_node: NodeFactory) -> None:
    """Empty files use up the inodes; the daemon removes images until enough
    inodes are free, and stops.
    """
    crowded = build_crowded_node(make_node(GIB // 4, inodes=4000), image_bytes=MIB)
    node = crowded.node
    time.sleep(1.1)
    mark = node.filesystem.inodes_free() - 200
    configuration = file_of(
        node,
        evictionHard={"imagefs.inodesFree": str(mark)},
        evictionMinimumReclaim={"imagefs.inodesFree": "40"},
    )
    with Daemon("--config", configuration) as daemon:
        assert fill_inodes(node.mountpoint / "fill", 10, 1000, most_inodes=500).wait(60.0) == 500
        assert came_true(lambda: node.filesystem.inodes_free() >= mark + 40), "it is relieved"
        assert came_true(lambda: bool(daemon.passes) and daemon.passes[-1]["result"] == "satisfied")
        assert daemon.stop() == 0
        records = daemon.passes
    assert {record["acted_on"]["signal"] for record in records} == {"imagefs.inodesFree"}
    assert sum(record["measured"]["inodes"] for record in records) > 0
    left = node.cri.image_ids()
    assert oldest_gone(crowded.unused_images, left) <= 10, "removal stopped"
    assert crowded.small_files_image not in left, "removing the image of 600 files frees inodes"
    assert_protected_objects_kept(crowded)


def test_a_build_cache_is_pruned_before_an_image_goes(containerd: RealNode, tmp_path: Path) -> None:
    """A program of the user's: a fill of 25 MiB/s is relieved from a cache beside the images, the
    oldest files first."""
    node, cache, program = containerd, containerd.mountpoint / "cache", tmp_path / "prune"
    cache.mkdir()
    block, now = os.urandom(FILE_BYTES), time.time()
    for number in range(FILES):
        path = cache / f"{number:04}"
        path.write_bytes(block)
        os.utime(path, (now - FILES + number,) * 2)
    program.write_text(PRUNE.format(cache=cache))
    program.chmod(0o700)
    images = {*unused_images(node, 3), node.sandbox_image_id}
    run_tool("sync", "-f", cache)
    mark = node.filesystem.available_bytes() - 30 * MIB
    configuration = file_of(
        node,
        imagefs=mark,
        reclaimFunctions=[
            {"name": "prune", "exec": [str(program)], "frees": "imagefs", "plan": False}
        ],
        reclaimTable={"imagefs.available": ["prune", "DeleteUnusedImages"]},
    )
    with Daemon("--config", configuration) as daemon:
        fill_bytes(node.mountpoint / "fill", MIB, 25 * MIB, most_bytes=100 * MIB).wait(60.0)
        assert came_true(lambda: node.filesystem.available_bytes() >= mark)
        assert came_true(lambda: bool(daemon.passes) and daemon.passes[-1]["result"] == "satisfied")
        records = daemon.passes
        assert daemon.stop() == 0
    assert node.cri.image_ids() == images, "no image has gone"
    functions = [function for record in records for function in record["functions"]]
    assert {function["name"] for function in functions if function["removed"]} == {"prune"}
    left = sorted(path.name for path in cache.iterdir())
    assert left == [f"{number:04}" for number in range(FILES - len(left), FILES)], (
        "the oldest files have gone"
    )
    assert available_after(records[-1], "imagefs.available") >= mark

"""A node under pressure is relieved, end to end: a real containerd, a real disk, what fills it.
What is removed is what was said, no more than is needed, and the bytes are those of the
filesystem.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.full_disk import full
from tests.nodes.crowded_node import CrowdedNode, build_crowded_node
from tests.nodes.real_node import GIB, RealNode
from tests.real_node.conftest import NodeFactory
from tests.real_node.fill import fill_bytes
from tests.real_node.loopfs import (
    MIB,
    LoopFilesystem,
    capacity_bytes,
    loop_devices_of,
    run_tool,
    unmount,
)
from tests.real_node.steps import (
    ALL,
    IMAGEFS,
    MINIMUM_RECLAIM,
    SETTLED_SECONDS,
    assert_protected_objects_kept,
    assert_without_power,
    available_after,
    file_of,
    freed,
    is_relieved,
    objects_of,
    oldest_gone,
    plan,
    reclaim,
    relieved,
    removed,
    status,
    unused_images,
)
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd, reclaimd_here
from tests.repository import ROOT

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


def unix_time(told: str) -> float:
    """In seconds, of a time in a record or in the log."""
    return datetime.fromisoformat(told).timestamp()


def let_settle(crowded: CrowdedNode) -> None:
    """Waits until the dead pod's parts count as gone, and the last image as old enough."""
    created = crowded.node.cri.container_status(crowded.dead_container).created_at / 1e9
    time.sleep(max(1.1, created + SETTLED_SECONDS - time.time()))


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
    node = make_node(GIB // 2)
    logs, state, run = node.kubelet.pod_logs_dir, tmp_path / "state", tmp_path / "run"
    for directory in (state, run):
        directory.mkdir(mode=0o700)
    deleted_log = logs / f"default_vanished_{uuid.uuid4()}"
    (deleted_log / "app").mkdir(parents=True)
    (deleted_log / "app" / "0.log").write_text("gone\n")
    crowded_node = build_crowded_node(node, image_bytes=6 * MIB)
    let_settle(crowded_node)
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
        for number in range(500):
            (node.mountpoint / f"empty-{number}").touch()
        is_relieved(daemon, node.filesystem.inodes_free, mark + 40)
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
        is_relieved(daemon, node.filesystem.available_bytes, mark)
    records = daemon.passes
    assert node.cri.image_ids() == images, "no image has gone"
    functions = [function for record in records for function in record["functions"]]
    assert {function["name"] for function in functions if function["removed"]} == {"prune"}
    left = sorted(path.name for path in cache.iterdir())
    assert left == [f"{number:04}" for number in range(FILES - len(left), FILES)], (
        "the oldest files have gone"
    )
    assert available_after(records[-1], "imagefs.available") >= mark


# ---- plan and reclaim


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
    assert reclaim(configuration)["result"] == "idle", "without pressure nothing is done"

    fill_bytes(node.mountpoint / "fill", mark - 25 * MIB, fast=True).wait(60.0)
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
    all_of_it = capacity_bytes(node.mountpoint)
    missed = room(all_of_it, code=1)
    assert missed["result"] == "not_enough"
    missing = all_of_it - node.filesystem.available_bytes()
    assert missed["room"]["missing"] == pytest.approx(missing, abs=4 * MIB)
    assert node.cri.image_ids() == {node.sandbox_image_id}
    assert missed["attribution"], "where the bytes are"


# ---- thresholds, conditions, layouts


def test_a_soft_threshold_acts_after_its_grace_and_its_condition_stays_for_the_transition_period(
    containerd: RealNode, tmp_path: Path
) -> None:
    """A grace period of 3 s: a file that exists for less causes no removal, also not later. Of one
    that stays the condition is logged at once, and the pass begins 3 s later. 10 MiB are
    missing, 15 MiB the minimum reclaim, so two images of 20 MiB are removed and the third is kept.
    With a period of 4 s ReclaimPressure stays after the relief, and ends after the period; above
    the mark nothing is removed, even below mark and minimum reclaim. The times are the daemon's."""
    node = containerd
    images = unused_images(node, 3, 10 * MIB)
    mark = node.filesystem.available_bytes() - 20 * MIB
    configuration = file_of(
        node,
        evictionSoft={"nodefs.available": str(mark)},
        evictionSoftGracePeriod={"nodefs.available": "3s"},
        evictionMinimumReclaim={"nodefs.available": "15Mi"},
        evictionPressureTransitionPeriod="4s",
        controlSocket=str(tmp_path / "control.sock"),
        pollCeiling="100ms",
        parallelRemovals=1,
    )
    grown, met, over = node.mountpoint / "grown", "ReclaimPressure: nodefs", "ReclaimPressure is"
    with Daemon("--config", configuration) as daemon:

        def told(begin: str) -> list[float]:
            """When it was logged."""
            events = [each for each in list(daemon.events) if each["message"].startswith(begin)]
            return [unix_time(each["time"]) for each in events]

        grown.write_bytes(b"x" * 30 * MIB)
        assert came_true(lambda: len(told(met)) == 1)
        grown.unlink()
        assert came_true(lambda: len(told(over)) == 1)
        assert daemon.passes == []
        assert set(images) <= node.cri.image_ids()
        grown.write_bytes(b"x" * 30 * MIB)
        record = relieved(daemon)
        above = node.filesystem.available_bytes() - mark
        assert above >= 15 * MIB
        (node.mountpoint / "more").write_bytes(b"x" * (above - 2 * MIB))
        assert came_true(lambda: len(told(over)) == 2)
        began = unix_time(record["started"])
        assert began - told(met)[1] >= 2.0, "the condition is logged later than observed"
        assert told(over)[1] - began >= 3.5, "there was pressure when the pass began"
        document = status(configuration)
        assert document["conditions"] == []
        assert [each["result"] for each in document["passes"]] == ["satisfied"]
        left = node.cri.image_ids()
    assert (record["acted_on"]["hard"], record["acted_on"]["grace_seconds"]) == (False, 3.0)
    assert [image in left for image in images] == [False, False, True]


def test_a_filesystem_that_is_mounted_over_the_image_root_changes_layout_and_row(
    containerd: RealNode, tmp_path: Path
) -> None:
    """The layout changes from single to dedicated-imagefs; then no function
    of the row relieves nodefs.
    """
    node = containerd
    images = unused_images(node, 1)
    mark = node.filesystem.available_bytes() - 36 * MIB
    control = str(tmp_path / "control.sock")
    configuration = file_of(node, nodefs=mark, controlSocket=control, pollCeiling="100ms")

    def becomes(layout: str) -> bool:
        return came_true(lambda: status(configuration)["layout"] == layout)

    with Daemon("--config", configuration) as daemon:
        assert becomes("single")
        [root] = {
            one["filesystem"]["path"]
            for one in status(configuration)["observations"]
            if one["signal"] == "imagefs.available"
        }
        with LoopFilesystem(tmp_path / "second", 64 * MIB) as second:
            run_tool("mount", "--bind", second.mountpoint, root)
            try:
                assert becomes("dedicated-imagefs")
                (node.mountpoint / "grown").write_bytes(b"x" * 40 * MIB)
                daemon.wait_for(
                    lambda event: event["message"].startswith("ReclaimPressure: nodefs")
                )
                time.sleep(1.0)
                assert daemon.passes == [], "the row is empty, so no pass runs"
                signals = {one["signal"] for one in status(configuration)["thresholds"]}
                assert signals == {"nodefs.available"}, (
                    "containerfs follows imagefs, which has no threshold"
                )
            finally:
                unmount(Path(root))
        assert becomes("single")
        record = relieved(daemon)
    assert record["row"] == ["DeleteAllUnusedContainers", "DeleteUnusedImages"]
    assert removed(record) == images


# ---- a real BuildKit beside containerd


LAYERS, LAYER_BYTES = 8, 128 * MIB  # a cache of 1 GiB
EXAMPLE = ROOT / "config" / "examples" / "buildkit" / "prune-buildkit.sh"
LONG_BUILD = 'COPY busybox /copied\nRUN ["/bin/busybox", "sleep", "20"]\n'
BUILDKITD = os.environ.get("BUILDKITD") or shutil.which("buildkitd") or ""


class BuildKit:
    """A client of a daemon that runs."""

    def __init__(self, address: str, context: Path):
        self.address = address
        self._context = context
        shutil.copy("/bin/busybox", context)

    def build(self, steps: str) -> subprocess.Popen[bytes]:
        """A build, which goes on."""
        dockerfile = f"FROM scratch\nCOPY busybox /bin/busybox\n{steps}"
        (self._context / "Dockerfile").write_text(dockerfile)
        local = [f"--local={name}={self._context}" for name in ("context", "dockerfile")]
        return self._asked("build", "--frontend", "dockerfile.v0", *local)

    def fill_cache(self) -> None:
        """Layers that no build needs any more, each with content of its own."""
        for number in range(LAYERS):
            (self._context / str(number)).write_bytes(os.urandom(LAYER_BYTES))
            ended(self.build(f"COPY {number} /data\n"))
            (self._context / str(number)).unlink()

    @property
    def cached_bytes(self) -> int:
        """What its cache takes, as it says itself."""
        sizes = ended(self._asked("du", "--format", "{{range .}}{{.Size}} {{end}}"))
        return sum(map(int, sizes.split()))

    def _asked(self, *words: str) -> subprocess.Popen[bytes]:
        """By buildctl, which is beside the daemon."""
        command = [str(Path(BUILDKITD).with_name("buildctl")), "--addr", self.address, *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ended(command: subprocess.Popen[bytes]) -> bytes:
    """What it has printed by its end, which is good."""
    printed, said = command.communicate(timeout=120.0)
    assert command.returncode == 0, said.decode()
    return printed


@contextmanager
def buildkit(root: Path, directory: Path) -> Iterator[BuildKit]:
    """A daemon with the cache on the disk under test."""
    socket = directory / "buildkitd.sock"
    (directory / "context").mkdir()
    command = [BUILDKITD, "--root", str(root), "--addr", f"unix://{socket}"]
    command += ["--oci-worker-snapshotter=overlayfs", "--oci-worker-net=host"]
    with (directory / "log").open("wb") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        assert came_true(socket.exists), (directory / "log").read_text()
        yield BuildKit(f"unix://{socket}", directory / "context")
    finally:
        daemon.terminate()
        daemon.wait(30.0)


@pytest.mark.skipif(
    not BUILDKITD, reason="no real BuildKit can be started here: no buildkitd (BUILDKITD=)"
)
def test_buildkits_cache_makes_room_and_a_build_goes_on(
    make_node: NodeFactory, tmp_path: Path
) -> None:
    """A cache of 1 GiB and a fill of 100 MiB/s: what was not used for longest goes, as much as is
    missing and not all; `plan` names it; a build that runs ends well."""
    node = make_node(3 * GIB)
    images = node.cri.image_ids()
    program = tmp_path / "prune-buildkit.sh"
    shutil.copy(EXAMPLE, program)
    text = program.read_text().replace("set -eu", f"set -eu\nPATH={Path(BUILDKITD).parent}:$PATH")
    program.write_text(text)  # a program's PATH is reclaimd's own
    with buildkit(node.mountpoint / "buildkit", tmp_path) as builder:
        builder.fill_cache()
        full = builder.cached_bytes
        assert full >= LAYERS * LAYER_BYTES
        mark = node.filesystem.available_bytes() - 200 * MIB
        configuration = file_of(
            node,
            controlSocket=str(tmp_path / "control.sock"),
            evictionHard={"imagefs.available": str(mark)},
            reclaimFunctions=[
                {
                    "name": "prune-buildkit",
                    "exec": [str(program), builder.address, "0"],
                    "frees": "imagefs",
                    "timeout": "1m",
                }
            ],
            reclaimTable={"imagefs.available": ["prune-buildkit", "DeleteUnusedImages"]},
        )
        asked = ("--config", configuration, "--signal", "imagefs.available", "-o", "json")
        listed = [each["name"] for each in answer(reclaimd("plan", *asked))["removals"]]
        assert len(listed) >= LAYERS
        running = builder.build(LONG_BUILD)
        with Daemon("--config", configuration) as daemon:
            fill = fill_bytes(
                node.mountpoint / "fill", MIB, rate_bytes_per_second=100 * MIB, most_bytes=GIB // 2
            )
            assert fill.wait(60.0) >= GIB // 2
            is_relieved(daemon, node.filesystem.available_bytes, mark)
        left = builder.cached_bytes
        ended(running)
    assert node.cri.image_ids() == images, "no image has gone"
    assert 0 < left < full - 200 * MIB

"""What a real XFS takes beyond what was written: it is foreseen, found, told, cured by a mount
option or a hint, and costs the images that the mark needs, and no more."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from eviction.records.attribution import About
from reclaim.xfs_hint import inherited_hint
from signals.filesystems import KubeletsReader
from signals.types import FsStats
from tests.real_node.conftest import NodeFactory, on
from tests.real_node.loopfs import MIB, LoopFilesystem, overlay_on, run_tool
from tests.real_node.steps import (
    MINIMUM_RECLAIM,
    available_after,
    file_of,
    freed,
    removed,
    unused_images,
)
from tests.real_node.test_filesystems import told
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd_here, write_configuration

KIB = 1 << 10
READER = KubeletsReader()
ALLOWED = "allowed is a directory on an XFS that is mounted writable"
OLD, OLD_BYTES, LARGE_BYTES = 40, 2 * MIB, 40 * MIB


@pytest.fixture
def xfs(tmp_path: Path) -> Iterator[Path]:
    """An XFS of 1 GiB."""
    with LoopFilesystem(tmp_path / "xfs", 1024 * MIB, "xfs") as filesystem:
        yield filesystem.mountpoint


def available(disk: Path | int) -> int:
    """Bytes that are available on the filesystem of a path or descriptor."""
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


def read(disk: Path) -> FsStats:
    """As the daemon reads it."""
    return READER(str(disk), time.monotonic()).stats


def grow(descriptor: int, count: int, pause_seconds: float = 0.0) -> list[int]:
    """So many writes of 1 MiB; by how much the bytes available fell with each."""
    falls, block = [], os.urandom(MIB)
    for _ in range(count):
        before = available(descriptor)
        os.write(descriptor, block)
        falls.append(before - available(descriptor))
        time.sleep(pause_seconds)
    return falls


def advice(**fields: Any) -> list[str]:
    """What doctor says of XFS: each finding with its cure."""
    directory = Path(fields["rootDirectory"]).parent
    file = str(write_configuration(directory / "reclaimd.yaml", **fields))
    findings = answer(reclaimd_here("doctor", "--config", file, "-o", "json"))["findings"]
    return [
        f"{one['sentence']}: {one['remedy']}"
        for one in findings
        if one["check"] == "xfs-preallocation"
    ]


@pytest.mark.parametrize("kind", ["xfs", "xfs through an overlay"])
def test_what_a_file_will_take_is_foreseen(xfs: Path, kind: str) -> None:
    """A file of 40 MiB has taken 64; when that is used up, it takes what was foretold, at once. A
    container writes through an overlay. A file that is closed has no next step."""
    with overlay_on(xfs) if "overlay" in kind else nullcontext(xfs) as root:
        with open(root / "grows", "wb", buffering=0) as file:
            grow(file.fileno(), 40)
            assert came_true(lambda: read(xfs).step_bytes > 0)
            ahead = read(xfs)
            assert 0 < ahead.preallocated_bytes <= 24 * MIB
            grow(file.fileno(), 24 + 1)
            after = read(xfs)
            fallen = ahead.available_bytes - after.available_bytes
            assert abs(fallen - ahead.step_bytes) < MIB
            assert abs(ahead.unwritten_bytes - after.unwritten_bytes - 25 * MIB) < 2 * MIB
        assert read(xfs).step_bytes == 0


@on("btrfs")
def test_what_is_written_on_btrfs_counts_at_once(disk: Path) -> None:
    """Less than half of it is shown before it is written back."""
    before = read(disk)
    with open(disk / "grows", "wb", buffering=0) as file:
        grow(file.fileno(), 64)
        after = read(disk)
        shown = after.available_bytes + after.promised_bytes
        assert after.promised_bytes >= 60 * MIB
        assert before.available_bytes - shown < 32 * MIB
        assert before.available_bytes - after.available_bytes >= 64 * MIB
        run_tool("sync", "--file-system", disk)
        after = read(disk)
    assert after.promised_bytes < 4 * MIB
    assert before.available_bytes - after.available_bytes >= 64 * MIB


@on("xfs")
def test_speculative_preallocation_is_found_while_the_file_is_open(disk: Path) -> None:
    """A file that grows in many writes has more on the disk than it needs; one that
    is only read is not told.
    """
    grows = disk / "grows"
    with grows.open("wb", buffering=0) as file:
        for _ in range(200):
            file.write(os.urandom(100_000))
        beyond = grows.stat().st_blocks * 512 - 200 * 100_000
        assert beyond > MIB, "XFS allocates ahead"
        remark = told(disk)[About.PREALLOCATED]
        assert remark.bytes == pytest.approx(beyond, abs=MIB // 4)
        assert f"(pid {os.getpid()})" in remark.sentence
        reader = grows.open("rb")
    with reader:
        assert About.PREALLOCATED not in told(disk)


@on("xfs", "xfs allocsize=64k")
def test_doctor_advises_the_mount_option_that_bounds_what_is_allocated_ahead(disk: Path) -> None:
    """Of a file that grows to 100 MiB: without it some MiB cost 32 MiB and more, with it none costs
    more than 2, and there is no finding."""
    found = advice(rootDirectory=str(disk))
    with open(disk / "grows", "wb", buffering=0) as file:
        most = max(grow(file.fileno(), 100))
    if "allocsize=64k" in run_tool("findmnt", "-no", "OPTIONS", disk):
        assert (found, most <= 2 * MIB) == ([], True)
    else:
        (sentence,) = found
        assert str(disk) in sentence
        assert "allocsize=64k" in sentence
        assert most >= 32 * MIB


@on("xfs")
def test_small_files_take_more_than_twice_their_size_until_they_are_written_back(
    disk: Path,
) -> None:
    """For each XFS sets blocks aside that its extents might need; `check` and `doctor` say so of
    the type. Looked at all the while, as the kernel may write some back meanwhile."""
    before, files, size, shares = available(disk), 4000, 16 << 10, list[float]()
    for number in range(1, files + 1):
        (disk / str(number)).write_bytes(b"\1" * size)
        if number % 200 == 0:
            shares.append((before - available(disk)) / (number * size))
    assert max(shares) > 1.5
    run_tool("sync", "--file-system", disk)
    assert files * size <= before - available(disk) < 1.2 * files * size


# ---- the hint


def command(*arguments: str | Path) -> CompletedProcess[str]:
    """`reclaimd xfs-hint`."""
    return reclaimd_here("xfs-hint", "--config", "", *map(str, arguments))


def below(directory: Path, *names: str) -> list[int]:
    """The hints of these directories in it, in bytes; a missing one is made."""
    for name in names:
        (directory / name).mkdir(exist_ok=True)
    return [inherited_hint(str(directory / name)) for name in names]


def test_what_is_made_afterwards_inherits_the_hint_until_it_is_removed(xfs: Path) -> None:
    """A directory that was there keeps its own, in both directions; a dry run changes nothing."""
    assert below(xfs, "earlier") == [0]
    for arguments, said, names, hints in (
        (["--dry-run"], "is none, and would be 1.0MiB", (".",), [0]),
        ([], "was none, and is now 1.0MiB", (".", "earlier", "later"), [MIB, 0, MIB]),
        (
            ["--size", "256k"],
            "was 1.0MiB, and is now 256.0KiB",
            (".", "later", "latest"),
            [256 * KIB, MIB, 256 * KIB],
        ),
        (["--remove"], "was 256.0KiB, and is now none", (".", "later", "last"), [0, MIB, 0]),
    ):
        told_of = f"{xfs}: the extent size hint {said} for what is made below it\n"
        assert command(*arguments, xfs).stdout == told_of
        assert below(xfs, *names) == hints


@pytest.mark.parametrize("hinted", [False, True])
def test_free_space_falls_by_the_hint_at_most_through_overlayfs_too(
    xfs: Path, hinted: bool
) -> None:
    """One file that grows to 300 MiB in a container's filesystem: without a hint XFS takes 128 MiB
    and more at once. Small files take a unit while they are open, and a block once closed."""
    if hinted:
        command(xfs)
    with overlay_on(xfs) as merged, open(merged / "grows", "wb", buffering=0) as file:
        most = max(grow(file.fileno(), 300))
    assert most <= 4 * MIB if hinted else most >= 128 * MIB
    small, before = [xfs / str(number) for number in range(50)], available(xfs)
    with ExitStack() as opened:
        for path in small:
            opened.enter_context(open(path, "wb", buffering=0)).write(b"\1" * 3000)
        assert (before - available(xfs) >= 50 * MIB) is hinted
    assert not hinted or {os.stat(path).st_blocks * 512 for path in small} == {4 * KIB}


def test_what_is_refused_a_hint_is_named_and_the_others_get_it(xfs: Path) -> None:
    """Another filesystem, no directory, one that others may write or replace, another block
    size."""
    below(xfs, "writable", "foreign", "trusted")
    (xfs / "file").touch()
    (xfs / "writable").chmod(0o775)
    os.chown(xfs / "writable", 0, 1000)
    os.chown(xfs / "foreign", 1000, 0)
    why = {
        Path("/proc"): "is on proc; allowed is XFS",
        xfs / "missing": f"cannot have the hint: No such file or directory; {ALLOWED}",
        xfs / "file": f"cannot have the hint: Not a directory; {ALLOWED}",
        xfs / "writable": f"is not trusted: group 1000 may write its directory {xfs}/writable"
        " (mode 0775); allowed is at most 0755",
        xfs / "foreign": f"is not trusted: its directory {xfs}/foreign belongs to uid 1000; allowed"
        " is root's",
    }
    done = command(*why, xfs / "trusted")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"reclaimd: {path} {each}" for path, each in why.items()]
    assert below(xfs, "writable", "foreign", "trusted") == [0, 0, MIB]
    uneven = command("--size", "6000", xfs)
    said = "the hint is 6000 bytes; allowed are multiples of its block size, 4096 bytes"
    assert (uneven.returncode, uneven.stderr) == (1, f"reclaimd: {xfs}: {said}\n")


def test_doctor_is_content_once_all_directories_have_the_hint(xfs: Path) -> None:
    """It recommends the command with exactly the directories that lack it."""
    below(xfs, "pods", "logs", "cache")
    look = partial(
        advice,
        rootDirectory=str(xfs),
        podLogsDir=str(xfs / "logs"),
        filesystems=[{"name": "cache", "path": str(xfs / "cache")}],
    )
    command(xfs / "logs")
    (remedy,) = look()
    assert f": reclaimd xfs-hint {xfs}/pods {xfs}/cache: " in remedy
    command(xfs / "pods", xfs / "cache")
    assert look() == []


def test_a_daemon_gives_the_hint_to_new_pods_and_snapshots(make_node: NodeFactory) -> None:
    """At its start, beside a containerd; not in a dry run. The snapshots of a pod that runs keep
    their own."""
    node = make_node(fstype="xfs")
    snapshots = node.mountpoint / "containerd/io.containerd.snapshotter.v1.overlayfs/snapshots"
    for dry_run, said in ((True, "would be 1.0MiB"), (False, "is now 1.0MiB")):
        logs = str(node.kubelet.pod_logs_dir)
        file = file_of(node, xfsExtentSizeHint="1Mi", dryRun=dry_run, podLogsDir=logs)
        with Daemon("--config", file) as daemon:
            daemon.wait_for(lambda event: f"{snapshots}: the extent" in event["message"])
            found = [each["message"] for each in daemon.events if "extent" in each["message"]]
        assert [said in each for each in found] == [True] * 3, found
        earlier = set(snapshots.iterdir())
        pod = node.kubelet.pod(f"pod-{dry_run}".lower())
        node.kubelet.run_container(pod, "app", node.sandbox_image_id)
        layers = [made / "fs" for made in set(snapshots.iterdir()) - earlier]
        assert len(layers) == 2, "of the sandbox, and of the container"
        places = (node.kubelet.pod_directory(pod.uid), pod.log_directory, *layers)
        assert {inherited_hint(str(path)) for path in places} == ({0} if dry_run else {MIB})


@pytest.mark.regression
def test_a_file_that_grows_on_xfs_costs_the_images_that_the_mark_needs(
    make_node: NodeFactory,
) -> None:
    """XFS reserves as much again behind a file that grows. One file on 512 MiB that grows from 62
    to 68 MiB, and is never closed, takes 64 MiB at once: the oldest images go, at most one more
    than the mark and its minimum reclaim need, and the large young one stays."""
    node = make_node(512 * MIB, fstype="xfs")
    old = unused_images(node, OLD, OLD_BYTES, "old")
    unused_images(node, 1, LARGE_BYTES, "large")
    with open(node.mountpoint / "grows", "wb", buffering=0) as file:
        grow(file.fileno(), 62)
        mark = node.filesystem.available_bytes() - 32 * MIB
        configuration = file_of(node, imagefs=mark, parallelRemovals=2)
        with Daemon("--config", configuration) as daemon:
            time.sleep(1.5)  # so that the disk was seen to stand still
            falls = grow(file.fileno(), 6, 0.05)
            assert came_true(lambda: bool(daemon.passes))
            assert daemon.stop() == 0
            (record,) = daemon.passes
    assert max(falls) >= 32 * MIB, "XFS reserves, or there is nothing to be seen"
    gone = removed(record)
    assert record["result"] == "satisfied"
    assert gone == old[: len(gone)], "the oldest, and not the large one"
    beyond = available_after(record, "imagefs.available") - mark - MINIMUM_RECLAIM
    # but for what XFS gives back by itself, two images less would not have been enough
    assert beyond < 2 * sum(freed(record)) / len(gone) + MIB

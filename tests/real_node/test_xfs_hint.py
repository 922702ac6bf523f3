"""`reclaimd xfs-hint` on a real XFS: who inherits the hint, what it changes, who is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from reclaim.xfs_hint import inherited_hint
from tests.real_node.conftest import NodeFactory
from tests.real_node.loopfs import MIB, LoopFilesystem, run_tool
from tests.real_node.oci import SLEEP_FOR_EVER
from tests.real_node.test_relief import configure
from tests.reclaimd_process import Daemon, answer, reclaimd_here, write_configuration

KIB = 1 << 10
GROWN_MIB = 300
ALLOWED = "allowed is a directory on an XFS that is mounted writable"


@pytest.fixture
def xfs(tmp_path: Path) -> Iterator[Path]:
    """An XFS of 1 GiB."""
    with LoopFilesystem(tmp_path / "xfs", 1024 * MIB, "xfs") as filesystem:
        yield filesystem.mountpoint


def command(*arguments: str | Path) -> CompletedProcess[str]:
    return reclaimd_here("xfs-hint", "--config", "", *map(str, arguments))


def below(directory: Path, *names: str) -> list[int]:
    """The hints of these directories in it, in bytes; a missing one is made."""
    for name in names:
        (directory / name).mkdir(exist_ok=True)
    return [inherited_hint(str(directory / name)) for name in names]


def largest_fall(file: Path) -> int:
    """In bytes, of the free space, while the file grows to 300 MiB."""
    largest = 0
    with open(file, "wb", buffering=0) as grows:
        for _ in range(GROWN_MIB):
            before = os.fstatvfs(grows.fileno()).f_bfree
            grows.write(b"\1" * MIB)
            after = os.fstatvfs(grows.fileno())
            largest = max(largest, (before - after.f_bfree) * after.f_frsize)
    return largest


def test_what_is_made_afterwards_inherits_it_until_it_is_removed(xfs: Path) -> None:
    """A directory that was there keeps its own, in both directions; a dry run changes nothing."""
    assert below(xfs, "earlier") == [0]
    assert command("--dry-run", xfs).stdout == (
        f"{xfs}: the extent size hint is none, and would be 1.0MiB for what is made below it\n"
    )
    assert inherited_hint(str(xfs)) == 0
    assert command(xfs).stdout == (
        f"{xfs}: the extent size hint was none, and is now 1.0MiB for what is made below it\n"
    )
    assert below(xfs, ".", "earlier", "later") == [MIB, 0, MIB]
    assert command("--size", "256k", xfs).returncode == 0
    assert below(xfs, ".", "later", "latest") == [256 * KIB, MIB, 256 * KIB]
    assert command("--remove", xfs).stdout == (
        f"{xfs}: the extent size hint was 256.0KiB, and is now none for what is made below it\n"
    )
    assert below(xfs, ".", "later", "last") == [0, MIB, 0]


@pytest.mark.parametrize("hinted", [False, True])
def test_free_space_falls_by_the_hint_at_most_through_overlayfs_too(
    xfs: Path, hinted: bool
) -> None:
    """One file that grows to 300 MiB in a container's filesystem: without a hint XFS takes 128 MiB
    and more at once."""
    if hinted:
        command(xfs)
    below(xfs, "lower", "upper", "work", "merged")
    layers = ",".join(f"{name}dir={xfs / name}" for name in ("lower", "upper", "work"))
    run_tool("mount", "-t", "overlay", "-o", layers, "overlay", xfs / "merged")
    fall = largest_fall(xfs / "merged" / "grows")
    assert fall <= 4 * MIB if hinted else fall >= 128 * MIB


def test_small_files_take_a_unit_while_they_are_open_and_a_block_once_closed(xfs: Path) -> None:
    """50 files of 3 000 bytes: 50 MiB, then 200 KiB."""
    command(xfs)
    before = os.statvfs(xfs)
    with ExitStack() as opened:
        for number in range(50):
            file = opened.enter_context(open(xfs / str(number), "wb", buffering=0))
            file.write(b"\1" * 3000)
        assert (before.f_bfree - os.statvfs(xfs).f_bfree) * before.f_frsize >= 50 * MIB
    assert sum(os.stat(xfs / str(number)).st_blocks * 512 for number in range(50)) == 50 * 4 * KIB


def test_what_is_refused_is_named_and_the_others_get_it(xfs: Path, tmp_path: Path) -> None:
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
    told = "the hint is 6000 bytes; allowed are multiples of its block size, 4096 bytes"
    assert (uneven.returncode, uneven.stderr) == (1, f"reclaimd: {xfs}: {told}\n")


def test_doctor_is_content_once_all_directories_have_it(xfs: Path, tmp_path: Path) -> None:
    """It recommends the command with exactly the directories that lack it."""
    below(xfs, "pods", "logs", "cache")
    cache = [{"name": "cache", "path": str(xfs / "cache")}]
    file = write_configuration(
        tmp_path / "reclaimd.yaml",
        rootDirectory=str(xfs),
        podLogsDir=str(xfs / "logs"),
        filesystems=cache,
    )

    def remedies() -> list[str]:
        found = answer(reclaimd_here("doctor", "--config", str(file), "-o", "json"))["findings"]
        return [one["remedy"] for one in found if one["check"] == "xfs-preallocation"]

    command(xfs / "logs")
    (remedy,) = remedies()
    assert remedy.startswith(f"reclaimd xfs-hint {xfs}/pods {xfs}/cache: ")
    command(xfs / "pods", xfs / "cache")
    assert remedies() == []


def test_a_daemon_gives_it_to_new_pods_and_snapshots(
    make_node: NodeFactory, tmp_path: Path
) -> None:
    """At its start, beside a containerd; not in a dry run. The snapshots of a pod that runs keep
    their own."""
    node = make_node(1024 * MIB, fstype="xfs")
    snapshots = node.mountpoint / "containerd/io.containerd.snapshotter.v1.overlayfs/snapshots"
    logs = {"podLogsDir": str(node.kubelet.pod_logs_dir)}

    def run_pod(name: str) -> set[int]:
        """The hints of its pod directory, of the directory of its logs, and of its layers."""
        earlier = set(snapshots.iterdir())
        pod = node.kubelet.admit_pod(name)
        sandbox = node.kubelet.run_pod(name, name)
        node.kubelet.run_container(sandbox, "app", node.sandbox_image_id, SLEEP_FOR_EVER)
        layers = [made / "fs" for made in set(snapshots.iterdir()) - earlier]
        assert len(layers) == 2, "of the sandbox, and of the container"
        of_logs = next(node.kubelet.pod_logs_dir.glob(f"*_{name}"))
        return {inherited_hint(str(path)) for path in (pod, of_logs, *layers)}

    for dry_run, said in ((True, "would be 1.0MiB"), (False, "is now 1.0MiB")):
        file = configure(tmp_path, node, xfsExtentSizeHint="1Mi", dryRun=dry_run, **logs)
        with Daemon("--config", file) as daemon:
            daemon.wait_for(lambda event: f"{snapshots}: the extent" in event["message"])
            told = [each["message"] for each in daemon.events if "extent" in each["message"]]
        assert [said in each for each in told] == [True] * 3, told
        assert run_pod(f"pod-{dry_run}".lower()) == ({0} if dry_run else {MIB})

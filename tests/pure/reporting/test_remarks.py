"""Remarks about a filesystem: each kind from values, with its sentence; nothing where there is nothing to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

from eviction.reporting.filesystem_facts import project_quota_sentence
from eviction.reporting.space import (
    About,
    HiddenSpace,
    OpenFile,
    OpenFilesScan,
    Remark,
    SparseFile,
    TreeUsage,
    WritableOverlay,
    not_of_the_runtime,
    remarks_of,
)
from reclaim.images.storage import store_of
from signals.mounts import Mount
from signals.types import FsStats
from tests.pure.values import GIB, MIB, observations_of

CONTAINERD = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs"


def stats(reserve: int = 0) -> FsStats:
    """10 GiB, half of it free; `reserve` of that is not available."""
    return FsStats(5 * GIB - reserve, 5 * GIB, 10 * GIB, 500, 1000, 0.0)


def mounted(kind: str, *options: str) -> Mount:
    return Mount("/var/lib/kubelet", "8:1", kind, "/dev/sda1", ("rw", *options))


def told(
    space: HiddenSpace,
    *,
    reserve: int = 0,
    sparsest: SparseFile | None = None,
    others: Mapping[WritableOverlay, TreeUsage] = MappingProxyType({}),
) -> list[Remark]:
    """`others`: overlays that are not of the runtime, each with what was counted of it."""
    quota = project_quota_sentence(space.mount, observations_of(), ())
    return remarks_of(stats(reserve), replace(space, others=others), sparsest, quota)


def deleted(process: str, pid: int, size: int, path: str, pod_uid: str = "") -> OpenFile:
    return OpenFile(path, pid, process, pod_uid, size, deleted=True)


def usage(size: int, complete: bool = True) -> TreeUsage:
    return TreeUsage(1, {"all": size}, complete)


HOLDERS = (
    deleted("cat", 6, 4096, "/x"),
    deleted("java", 77, GIB // 2, "/logs/old.log", "0f5ab5a0"),
    deleted("java", 77, GIB, "/logs/app.log", "0f5ab5a0"),
    deleted("rsyslogd", 5, 100 * MIB, "/var/log/old"),
    deleted("java", 77, GIB // 2, "/logs/older.log", "0f5ab5a0"),
)
GROWING = (
    OpenFile("/data/small", 13, "sqlite", "", 4 * MIB, deleted=False),
    OpenFile("/data/wal", 12, "postgres", "", 60 * MIB, deleted=False),
)
DELAYED = Remark(About.DELAYED_ALLOCATION, 200 * MIB, "200.0MiB are written")
DOCKERS = tuple(WritableOverlay(f"/docker/{number}", number, f"/upper/{number}") for number in (1, 2))


@pytest.mark.parametrize(
    ("remarks", "about", "size", "sentence"),
    [
        (
            told(HiddenSpace(mounted("xfs"), GROWING)),
            About.PREALLOCATED,
            64 * MIB,
            (
                "at least 64.0MiB beyond the end of 2 open files (speculative preallocation), most by postgres "
                "(pid 12) for /data/wal: freed later"
            ),
        ),
        (
            told(HiddenSpace(mounted("xfs")), sparsest=SparseFile(99 * GIB, GIB, "/data/disk.img")),
            About.SPARSE,
            GIB,
            "/data/disk.img is sparse: its size is 100.0GiB, and it takes 1.0GiB",
        ),
        (
            told(HiddenSpace(mounted("ext4")), reserve=512 * MIB),
            About.RESERVE,
            512 * MIB,
            "512.0MiB are free and reserved for root: no pod can use them",
        ),
        (told(HiddenSpace(mounted("ext4"), remarks=[DELAYED])), DELAYED.about, DELAYED.bytes, DELAYED.sentence),
        (
            told(HiddenSpace(mounted("xfs", "prjquota"))),
            About.PROJECT_QUOTA,
            None,
            (
                "project quotas are on (prjquota): a directory can be at its limit while the filesystem has room, and "
                "statvfs in it returns the limit's numbers"
            ),
        ),
        (
            told(
                HiddenSpace(mounted("ext4")),
                others={DOCKERS[0]: usage(2 * GIB), DOCKERS[1]: usage(GIB, complete=False)},
            ),
            About.OTHER_OVERLAYS,
            3 * GIB,
            (
                "2 writable layers of containers that CRI does not list (docker, podman, another namespace), at least "
                "3.0GiB, the first at /docker/1"
            ),
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, About) else "",
)
def test_each_remark_has_its_bytes_and_a_sentence(
    remarks: list[Remark], about: About, size: int | None, sentence: str
) -> None:
    """And nothing else is said."""
    (remark,) = remarks
    assert (remark.about, remark.bytes, remark.sentence) == (about, size, sentence)


def test_holders_of_deleted_files_are_named_and_the_small_ones_counted() -> None:
    """The largest first, with process, pod and file; those that are not worth a line share one."""
    first, second, rest = told(HiddenSpace(mounted("ext4"), HOLDERS))
    assert (first.bytes, first.sentence) == (
        2 * GIB,
        (
            "java (pid 77, pod 0f5ab5a0) holds 2.0GiB in 3 deleted files open, the largest /logs/app.log: they are "
            "free once closed"
        ),
    )
    assert second.sentence.startswith("rsyslogd (pid 5) holds 100.0MiB in 1 deleted file open, /var/log/old: ")
    assert (rest.bytes, rest.sentence) == (4096, "1 more process holds 4.0KiB of deleted files open")


def test_many_small_holders_are_told_by_the_first() -> None:
    """None of them is worth a line, all together are."""
    files = tuple(deleted("app", pid, 4 * MIB, "/x") for pid in range(100))
    first, rest = told(HiddenSpace(mounted("ext4"), files))
    assert (first.bytes, rest.bytes) == (4 * MIB, 396 * MIB)
    assert rest.sentence.startswith("99 more processes hold 396.0MiB")


@pytest.mark.parametrize(
    "remarks",
    [
        told(HiddenSpace()),
        told(HiddenSpace(mounted("ext4", "usrquota"), remarks=[replace(DELAYED, bytes=5 * MIB)]), reserve=5 * MIB),
        told(HiddenSpace(mounted("xfs")), reserve=512 * MIB),
        told(HiddenSpace(mounted("ext4"), (deleted("a", 1, MIB, "/x"),))),
        told(HiddenSpace(mounted("ext4")), sparsest=SparseFile(MIB, MIB, "/x")),
    ],
)
def test_what_is_small_or_not_there_is_not_mentioned(remarks: list[Remark]) -> None:
    """Below a thousandth of the capacity; and what only ext4 reserves is not claimed of another type."""
    assert remarks == []


def test_remarks_are_in_the_order_of_what_they_are_about() -> None:
    """What the kernel says is among what is worked out."""
    said = [Remark(About.THIN_POOL, None, ""), Remark(About.BTRFS_CHUNKS, 0, ""), DELAYED]
    found = told(HiddenSpace(mounted("ext4", "prjquota"), HOLDERS[1:3], remarks=said), reserve=MIB * 512)
    about = [remark.about for remark in found]
    assert about == sorted(about, key=list(About).index)
    assert set(about) == {About.DELETED_OPEN, About.RESERVE, About.PROJECT_QUOTA, *(one.about for one in said)}


@pytest.mark.parametrize(
    ("unreadable", "others_hidden", "complete", "ending"),
    [
        (0, False, True, None),
        (38, False, True, "38 of 40 processes could not be looked at (CAP_SYS_PTRACE)"),
        (0, True, True, "those outside its PID namespace or hidden by hidepid were not seen"),
        (0, False, False, "not all were looked at in time"),
    ],
)
def test_who_was_not_looked_at_is_said(
    unreadable: int, others_hidden: bool, complete: bool, ending: str | None
) -> None:
    """In one line; none where everybody was."""
    scan = OpenFilesScan()
    scan.processes, scan.unreadable = 40, unreadable
    scan.others_hidden, scan.complete = others_hidden, complete
    remark = scan.not_seen()
    assert (None if remark is None else remark.sentence) == (
        None if ending is None else f"files that processes hold open: {ending}"
    )


OVERLAYS = (
    WritableOverlay(
        "/run/containerd/io.containerd.runtime.v2.task/k8s.io/1/rootfs", 50, f"{CONTAINERD}/snapshots/1/fs"
    ),
    WritableOverlay("/run/containerd/io.containerd.runtime.v2.task/moby/2/rootfs", 51, f"{CONTAINERD}/snapshots/2/fs"),
    WritableOverlay("/var/lib/docker/overlay2/3/merged", 52, "/var/lib/docker/overlay2/3/diff"),
    WritableOverlay("/var/lib/containers/storage/overlay/4/merged", 53, "/var/lib/containers/storage/overlay/4/diff"),
)


@pytest.mark.parametrize(
    ("reported", "devices"),
    [
        ((CONTAINERD, CONTAINERD), [51, 52, 53]),
        (("/var/lib/containers/storage/overlay-images",), [50, 51, 52]),
        (("/mnt/images/overlay-images", "/var/lib/containers/storage/overlay-containers"), [50, 51, 52]),
        (("/var/lib/docker/",), [50, 51, 53]),
        ((), []),
    ],
    ids=["containerd", "CRI-O", "CRI-O with an image store", "docker", "unknown"],
)
def test_overlays_that_are_not_of_the_runtime(reported: tuple[str, ...], devices: list[int]) -> None:
    """Beside containerd also its other namespaces; beside another runtime what is outside its stores; else unknown."""
    stores = tuple(map(store_of, reported))
    assert [overlay.device_id for overlay in not_of_the_runtime(OVERLAYS, stores)] == devices


def test_what_is_not_counted_makes_a_lower_bound() -> None:
    """Of the third nothing was counted, as only some are."""
    counted = {OVERLAYS[1]: usage(3 * MIB), OVERLAYS[2]: usage(MIB)}
    (known,) = told(HiddenSpace(), others=counted)
    assert (known.bytes, known.at_least) == (4 * MIB, False)
    (bound,) = told(HiddenSpace(), others={**counted, OVERLAYS[3]: TreeUsage()})
    assert (bound.bytes, bound.at_least) == (4 * MIB, True)

"""Remarks about a filesystem: each kind from values, with its sentence; nothing
where there is nothing to say.
"""

from __future__ import annotations

import pytest

from eviction.records.attribution import About, Remark
from eviction.survey.filesystem_facts import project_quota_sentence
from eviction.survey.open_files import HiddenSpace, OpenFile, OpenFilesScan
from eviction.survey.space import remarks_of
from signals.mounts import Mount
from signals.types import FsStats
from tests.pure.values import GIB, MIB, observations_of


def stats(reserve: int = 0) -> FsStats:
    """10 GiB, half of it free; `reserve` of that is not available."""
    return FsStats(5 * GIB - reserve, 5 * GIB, 10 * GIB, 500, 1000, 0.0)


def mounted(kind: str, *options: str) -> Mount:
    return Mount("/var/lib/kubelet", "8:1", kind, "/dev/sda1", ("rw", *options))


def told(space: HiddenSpace, *, reserve: int = 0) -> list[Remark]:
    """All that is said of a filesystem."""
    return remarks_of(
        stats(reserve), space, project_quota_sentence(space.mount, observations_of(), ())
    )


def deleted(process: str, pid: int, size: int, path: str, pod_uid: str = "") -> OpenFile:
    return OpenFile(path, pid, process, pod_uid, size, deleted=True)


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


@pytest.mark.parametrize(
    ("remarks", "about", "size", "sentence"),
    [
        (
            told(HiddenSpace(mounted("xfs"), GROWING)),
            About.PREALLOCATED,
            64 * MIB,
            (
                "at least 64.0MiB beyond the end of 2 open files (speculative preallocation), most"
                " by postgres (pid 12) for /data/wal: freed later"
            ),
        ),
        (
            told(HiddenSpace(mounted("ext4")), reserve=512 * MIB),
            About.RESERVE,
            512 * MIB,
            "512.0MiB are free and reserved for root: no pod can use them",
        ),
        (
            told(HiddenSpace(mounted("xfs", "prjquota"))),
            About.PROJECT_QUOTA,
            None,
            (
                "project quotas are on (prjquota): a directory can be at its limit while the"
                " filesystem has room, and statvfs in it returns the limit's numbers"
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
            "java (pid 77, pod 0f5ab5a0) holds 2.0GiB in 3 deleted files open, the largest"
            " /logs/app.log: they are free once closed"
        ),
    )
    assert second.sentence.startswith(
        "rsyslogd (pid 5) holds 100.0MiB in 1 deleted file open, /var/log/old: "
    )
    assert (rest.bytes, rest.sentence) == (
        4096,
        "others hold 4.0KiB of deleted files open; processes: 1",
    )


def test_many_small_holders_are_told_by_the_first() -> None:
    """None of them is worth a line, all together are."""
    files = tuple(deleted("app", pid, 4 * MIB, "/x") for pid in range(100))
    first, rest = told(HiddenSpace(mounted("ext4"), files))
    assert (first.bytes, rest.bytes) == (4 * MIB, 396 * MIB)
    assert rest.sentence.endswith("hold 396.0MiB of deleted files open; processes: 99")


@pytest.mark.parametrize(
    "remarks",
    [
        told(HiddenSpace()),
        told(HiddenSpace(mounted("ext4", "usrquota")), reserve=5 * MIB),
        told(HiddenSpace(mounted("xfs")), reserve=512 * MIB),
        told(HiddenSpace(mounted("ext4"), (deleted("a", 1, MIB, "/x"),))),
    ],
)
def test_what_is_small_or_not_there_is_not_mentioned(remarks: list[Remark]) -> None:
    """Below a thousandth of the capacity; and what only ext4 reserves is
    not claimed of another type.
    """
    assert remarks == []


def test_remarks_are_in_the_order_of_what_they_are_about() -> None:
    """Deleted files first, quotas last."""
    found = told(HiddenSpace(mounted("ext4", "prjquota"), HOLDERS[1:3]), reserve=MIB * 512)
    about = [remark.about for remark in found]
    assert about == sorted(about, key=list(About).index)
    assert set(about) == {About.DELETED_OPEN, About.RESERVE, About.PROJECT_QUOTA}


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

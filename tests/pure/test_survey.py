"""Where the bytes are: parts that add up, trees counted like `du`, files that are open, and what is
said of each filesystem."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from eviction.records.attribution import About, Attribution, Remark, Share, Use
from eviction.records.json_shapes import to_json
from eviction.surface.check import facts_table
from eviction.survey.filesystem_facts import (
    filesystem_facts,
    paths_that_answer,
    project_quota_sentence,
    traits_of,
)
from eviction.survey.space import (
    HiddenSpace,
    Measured,
    OpenFile,
    OpenFilesScan,
    TimeLimit,
    Tree,
    TreeUsage,
    attribute,
    class_of_log,
    count_trees,
    mounts_below,
    pod_uid_of,
    remarks_of,
    sentence,
)
from eviction.wording.explain import attribution_lines
from reclaim.evidence.files_in_use import hides_processes, is_shown_to_all
from reclaim.types import Action, Amounts, Kind, Outcome, Reason, ReclaimResult, Result, Verdict
from reclaim.workers import Workers
from signals.clock import Clock, SystemClock
from signals.mounts import Mount, parse_mountinfo
from signals.types import (
    FilesystemIdentity,
    FilesystemRole,
    FsStats,
    SignalObservations,
    Unavailable,
)
from tests.expected import expect
from tests.pure.values import GIB, KIB, MIB, SteppedClock, observations_of, seen_filesystems
from tests.repository import ROOT
from tests.rows import rows, rows_of

NODEFS, IMAGEFS, CONTAINERFS = map(FilesystemRole, ("nodefs", "imagefs", "containerfs"))


# ---- attribution


def seen(used: Mapping[int, int], imagefs: int = 1) -> SignalObservations:
    """Observations of filesystems of 10 GiB, by device, with so many bytes used; images may be on
    a device of their own."""
    stats = {
        device: FsStats(10 * GIB - each, 10 * GIB - each, 10 * GIB, 500, 1000, 0.0)
        for device, each in used.items()
    }
    roles = {NODEFS: (1, stats[1]), IMAGEFS: (imagefs, stats[imagefs]), CONTAINERFS: (1, stats[1])}
    return observations_of()._replace(filesystems=seen_filesystems(roles))


def called(text: str) -> list[ReclaimResult]:
    """A function and its images, `reason MiB [result [MiB freed]]`; or the names of dead containers
    that stay."""
    found = []
    for number, line in enumerate(filter(None, text.split(", "))):
        what, size, result, freed = [*line.split(), "", "", ""][:4]
        name, kind, reason = what, Kind.CONTAINER, Reason.NEWEST_OF_LIVE_POD
        if size:
            name, kind, reason = f"image {number}", Kind.IMAGE, Reason(what)
        verdict = Verdict(kind, name, name, Action.KEEP, reason, int(size or 0) * MIB)
        freed_there = Amounts(int(freed or 0) * MIB)
        found.append(Outcome(verdict, Result(result) if result else None, freed=freed_there))
    return [ReclaimResult("function", tuple(found))]


def tree(size: int | dict[str, int], *, complete: bool = True, device: int = 1) -> TreeUsage:
    """A tree that was counted."""
    classes = size if isinstance(size, dict) else {"all": size}
    counted = Counter({use: mebibytes * MIB for use, mebibytes in classes.items()})
    return TreeUsage(device, counted, complete)


NOTHING = Measured(
    None,
    TreeUsage(),
    TreeUsage(),
    writable_in_store=True,
    writable_layers={},
    kubelets=(),
    filesystems={},
    unseen=None,
    caches=(),
    frees={},
)


def shares(attribution: Attribution) -> dict[str, int]:
    return {share.use: share.bytes // MIB for share in attribution.shares}


ALL = 8192  # MiB that are used


def named(text: str) -> dict[str, str]:
    """Numbers by the words before them."""
    return {each.rpartition(" ")[0]: each.rpartition(" ")[2] for each in text.split(", ") if each}


@rows("""
    objects                                                      | told                                           | parts
    in_use 1024, unused 2048 planned, relieved 1024, too_young 1, pinned 1, unused 1024 removed |                                                | images_in_use 1024, images_may_go 3072, images_too_young 1, images_kept 1
    in_use 1024, unused 3072                                     | store_reported 2048, content 1024              | images_in_use 768, images_may_go 2304
    pinned 4, unused 160 removed                                 | store_reported 167, store 4                    | images_kept 4
    pinned 4, unused 160 removed 16                              | store_reported 144, store 144                  | images_kept 4, being_freed 140
    pinned 4, unused 160 removed 16                              | store_reported 144, store 144, content 0       | images_kept 4, being_freed 140
    in_use 100, unused 100 removed 10, unused 100 removed 10     | store_reported 100                             | images_in_use 100
    in_use 1024                                                  | store_reported 1024, store ~3072, content 2048 | images_in_use 2048, hidden 3072
    in_use 5120, dead                                            | store_reported 3072, live 1024, dead 1         | images_in_use 2047, containers_live 1024, containers_dead 1
                                                                 | logs on another disk 1024                      |
                                                                 | store_reported 2048, content 1024              | images_unjudged 3072
""")
def test_each_part_has_its_bytes_and_the_rest_is_everything_else(
    objects: str, told: str, parts: str
) -> None:
    """Images by their reason, without removed ones. Their classes divide the size of the store, as
    it was counted, and not a figure of the runtime that is out of date; what is being freed is a
    part of its own, but not layers that were shared; writable layers are no images."""
    measured: dict[str, Any] = {"writable_layers": {}}
    for name, size in named(told).items():
        mebibytes = int(size.strip("~"))
        if name in ("store", "content"):
            measured[name] = tree(mebibytes, complete="~" not in size)
        elif name == "store_reported":
            measured[name] = mebibytes * MIB
        elif name in ("live", "dead"):
            measured["writable_layers"][name] = mebibytes * MIB
        else:
            measured["kubelets"] = (tree({Use.LOGS_LIVE: mebibytes}, device=9),)
    (answer,) = attribute(seen({1: ALL * MIB}), called(objects), NOTHING._replace(**measured))
    expected = {name: int(size) for name, size in named(parts).items()}
    assert shares(answer) == {**expected, "else": ALL - sum(expected.values())}
    assert [share.use for share in answer.shares if share.at_least] == [Use.HIDDEN] * ("~" in told)


def test_what_may_be_freed_of_a_part_is_what_is_planned_of_it_and_by_which_function() -> None:
    """Of images what their removal frees, and never more than the part; of a dead container its
    writable layer; the logs of a pod that is gone altogether; what functions of the configuration
    remove where they free space. What is kept is not counted."""
    functions = []
    for row in rows_of("""
        function                  | kind        | name  | mib | result  | reason
        DeleteUnusedImages        | image       | a     | 300 | planned |
        DeleteUnusedImages        | image       | b     | 100 | planned |
        DeleteUnusedImages        | image       | c     | 500 |         | in_use
        DeleteAllUnusedContainers | container   | dead  |     | planned |
        DeleteAllUnusedContainers | pod_log     | logs  |     | planned |
        logs                      | rotated_log | 1.log | 99  | planned |
        ballast                   | ballast     | file  | 40  | planned |
        elsewhere                 | ballast     | other | 50  | planned |
    """):
        size = int(row["mib"]) * MIB if row["mib"] else None
        kind = Kind(row["kind"]) if row["kind"] in [*Kind] else row["kind"]
        verdict = Verdict(kind, row["name"], row["name"], Action.KEEP, row["reason"], size)
        freed = verdict._replace(size_bytes=size and 2 * size, frees_bytes=size)
        outcome = Outcome(freed, Result(row["result"]) if row["result"] else None)
        functions.append(ReclaimResult(row["function"], (outcome,)))
    measured = NOTHING._replace(
        writable_layers={"dead": 7 * MIB, "live": 5 * MIB},
        kubelets=(tree({Use.LOGS_OF_GONE_PODS: 3, Use.LOGS_ROTATED: 2}),),
        frees={"ballast": NODEFS, "elsewhere": FilesystemRole("data")},
    )
    (found,) = attribute(seen({1: 4 * GIB}), functions, measured)
    assert {
        f"{share.use} {share.reclaimable // MIB} by {', '.join(share.by)}"
        for share in found.shares
        if share.by
    } == {
        "images_may_go 400 by DeleteUnusedImages",
        "containers_dead 7 by DeleteAllUnusedContainers",
        "logs_of_gone_pods 3 by DeleteAllUnusedContainers",
        "logs_rotated 2 by logs",
        "else 40 by ballast",
    }


@rows("""
    deleted | unseen | part
    3       |        | 3
    3       | one    | 3
    9       |        | 8
""")
def test_deleted_files_that_are_open_are_a_part_of_their_own(
    deleted: int, unseen: str | None, part: int
) -> None:
    """They are in no directory, so they are taken from everything else; never more than there is.
    Where a process could not be looked at they are a lower bound."""
    files = (
        OpenFile("/gone", 7, "java", "", deleted * GIB, deleted=True),
        OpenFile("/wal", 7, "java", "", GIB, deleted=False),
    )
    remark = Remark(About.PROCESSES_NOT_SEEN, None, sentence=unseen) if unseen else None
    measured = NOTHING._replace(filesystems={1: HiddenSpace(open_files=files)}, unseen=remark)
    (found,) = attribute(seen({1: 8 * GIB}), (), measured)
    assert Share(Use.DELETED_OPEN, part * GIB, None, at_least=bool(unseen)) in found.shares
    assert shares(found)["else"] == (8 - part) * 1024


@rows("""
    names                                             | use
    default_web_uid-live/app/0.log                    | LOGS_LIVE
    default_web_uid-live/app/0.log.20260101-120000    | LOGS_ROTATED
    default_web_uid-live/app/0.log.20260101-120000.gz | LOGS_ROTATED
    default_web_uid-gone/app/0.log.20260101-120000    | LOGS_OF_GONE_PODS
    default_web_uid-gone                              | LOGS_OF_GONE_PODS
    default_web_uid-live/app.log.d/0.log              | LOGS_LIVE
    stray.log.1                                       | LOGS_LIVE
""")
def test_a_log_is_live_rotated_or_of_a_gone_pod(names: str, use: Use) -> None:
    """By the pod's UID in the name of its directory, and the kubelet's names of rotated logs."""
    assert class_of_log(names.split("/"), lambda uid: uid == "uid-gone") is use


def test_what_uses_a_filesystem_is_a_sentence_a_table_and_a_document() -> None:
    """Every part, with its words and what can be done about it; a lower bound says so."""
    parts = [
        Share(
            use,
            2**number * MIB,
            number or None,
            at_least=number == 1,
            reclaimable=number % 3 * MIB,
            by=("DeleteUnusedImages", "own")[: number % 3],
        )
        for number, use in enumerate(Use)
    ]
    full = Attribution(
        "/var/lib/kubelet", (NODEFS, IMAGEFS), 64 * GIB, 32 * GIB, tuple(reversed(parts))
    )
    document = json.dumps(to_json(full), indent=1)
    shown = [sentence(full), *attribution_lines([full]), document]
    expect(Path(__file__).with_name("survey.txt"), "\n".join(shown) + "\n")


# ---- trees


def measured(
    root: Path, limit_seconds: float = 5.0, mounts: Path | None = None, clock: Clock | None = None
) -> TreeUsage:
    """What is below a directory, by the ends of names."""
    limit = TimeLimit(Workers("test", 1), clock or SystemClock(), limit_seconds)
    one = Tree(str(root), lambda names: os.path.splitext(names[-1])[1] or "none")
    return count_trees([one], limit, *([str(mounts)] if mounts else []))[0]


TREE = """
mkdir -p a/b
head -c 102400 /dev/urandom >a/one.log
head -c 10240 /dev/urandom >a/b/two.log
echo >three.gz
ln a/one.log again.log
truncate -s 1G sparse.log
ln -s / all
ln -s loop loop
du -s -B1 .
"""


def test_a_tree_is_counted_by_class_as_du_counts_it(tmp_path: Path) -> None:
    """Allocated bytes below the root: a file with two names once, a sparse one nothing, and no
    symlink is followed. What does not exist is empty."""
    made = ["sh", "-ec", TREE]
    du = subprocess.run(made, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    found = measured(tmp_path)
    assert found.total_bytes + tmp_path.stat().st_blocks * 512 == int(du.split()[0])
    assert 110 * KIB <= found.bytes_by_class[".log"] <= 150 * KIB
    assert found.complete
    assert measured(tmp_path / "nowhere") == TreeUsage()


@rows("""
    mounts                                               | elsewhere
    nfs 98:1 /                                           | yes
    ext4 98:0 /other                                     | yes
    ext4 98:0 /store/a_b                                 |
    ext4 99:0 /; ext4 98:0 /store/a_b                    |
    ext4 98:0 /store/a_b; ext4 99:0 /                    | yes
""")
def test_what_is_mounted_below_is_left_out_and_never_touched(
    tmp_path: Path, mounts: str, elsewhere: bool
) -> None:
    """The kernel's table says what it is, the last one at a point; a directory that is mounted on
    itself is part of the tree, as CRI-O mounts its layers."""
    table, store = tmp_path / "mountinfo", tmp_path / "store"
    (store / "a b").mkdir(parents=True)
    (store / "a b" / "layer").write_bytes(b"x" * 64 * KIB)
    lines = [f"36 35 98:0 / {tmp_path} rw - ext4 x rw", "nonsense"]
    for mount in mounts.split("; "):
        kind, device, root = mount.replace("_", "\\040").split()
        lines.append(f"37 36 {device} {root} {store}/a\\040b rw - {kind} x rw")
    table.write_text("\n".join(lines))
    assert mounts_below(str(store), str(table)) == ({f"{store}/a b"} if elsewhere else set())
    assert (measured(store, mounts=table).total_bytes < 64 * KIB) is elsewhere
    assert mounts_below("/", str(tmp_path / "no table")) == frozenset()


def test_when_time_is_up_the_rest_is_not_counted(tmp_path: Path) -> None:
    """A thousand files and no time: some are counted, and the result is marked as incomplete; so it
    is where a directory may not be read."""
    for number in range(1000):
        (tmp_path / str(number)).write_bytes(b"x")
    found = measured(tmp_path, 0.0, clock=SteppedClock())
    assert not found.complete
    assert found.total_bytes < sum(file.stat().st_blocks * 512 for file in tmp_path.iterdir())
    if os.geteuid() != 0:
        (tmp_path / "closed").mkdir(mode=0)
        assert not measured(tmp_path).complete


# ---- files that are open


@rows("""
    cgroup                                                                                 | uid
    /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f5ab5a0_1b1e_4a4e_9d3c_0123456789ab.slice/x.scope | 0f5ab5a0-1b1e-4a4e-9d3c-0123456789ab
    /kubepods.slice/kubepods-pod0f5ab5a0_1b1e_4a4e_9d3c_0123456789ab.slice/cri-containerd-1.scope | 0f5ab5a0-1b1e-4a4e-9d3c-0123456789ab
    /kubepods/besteffort/pod0f5ab5a0-1b1e-4a4e-9d3c-0123456789ab/1234                      | 0f5ab5a0-1b1e-4a4e-9d3c-0123456789ab
    /kubepods/burstable/podaabbccddeeff00112233445566778899/1                              | aabbccddeeff00112233445566778899
    /system.slice/podman.service                                                           |
    /machine.slice/libpod-1.scope                                                          |
""")
def test_the_pod_of_a_process_is_in_its_cgroup(cgroup: str, uid: str) -> None:
    """With both cgroup drivers, in every class of quality of service, on cgroup v1 and v2; a static
    pod's UID too."""
    assert pod_uid_of(f"0::{cgroup}") == pod_uid_of(f"12:cpu:{cgroup}\n0::/") == uid
    assert pod_uid_of("") == ""


def test_a_deleted_file_counts_once_and_for_its_holder(tmp_path: Path) -> None:
    """Open twice, so found twice; its bytes are the allocated ones, and its last name is told. When
    time is up the rest is not looked at."""
    proc, file, device = tmp_path / "proc", tmp_path / "gone.log", tmp_path.stat().st_dev
    proc.mkdir()  # of this process alone: what others hold comes and goes
    (proc / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")

    def scanned(*, in_time: bool = True) -> OpenFilesScan:
        scan = OpenFilesScan(str(proc))
        scan.filesystems[device], scan.mounts[device] = device, None
        scan.run(lambda: in_time)
        return scan

    file.write_bytes(os.urandom(MIB))
    with file.open("rb"), file.open("rb"):
        file.unlink()
        after, cut = scanned(), scanned(in_time=False)
    (mine,) = [each for each in after.found()[device].open_files if each.path == str(file)]
    assert mine.deleted
    assert mine.bytes == pytest.approx(MIB, abs=8192)
    assert (after.complete, cut.complete) == (True, False)


@rows("""
    mount                           | shown
    /proc rw - proc p rw            | yes
    /proc rw - proc p rw,hidepid=0  | yes
    /proc rw - proc p rw,hidepid=2  |
    /proc rw,hidepid=1 - proc p rw  |
    /other rw - proc p rw           |
""")
def test_processes_may_be_hidden_unless_it_is_known_that_they_are_not(
    mount: str, shown: bool
) -> None:
    """Also where no mount that is known holds `/proc`."""
    table = parse_mountinfo([f"36 35 0:5 / {mount}"])
    assert is_shown_to_all(table) is shown
    assert shown or hides_processes(table)


def test_a_process_that_may_not_be_looked_at_is_counted() -> None:
    """Without a capability, as the service runs: the files of processes that have one stay unseen,
    and that is told."""
    if os.geteuid() != 0 or "CapEff:\t0000000000000000" in Path("/proc/self/status").read_text():
        pytest.skip("needs root with capabilities, to have a process that has more than another")
    program = """\
import sys; sys.path[:0] = sys.argv[1:]
from eviction.survey.space import OpenFilesScan
scan = OpenFilesScan(); scan.run(lambda: True)
print(scan.processes, scan.unreadable, scan.complete)"""
    without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    command = [*without, sys.executable, "-S", "-c", program, str(ROOT), *sys.path]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    processes, unreadable, complete = process.stdout.split()
    assert int(processes) > int(unreadable) > 0
    assert complete == "True"


# ---- what is said of a filesystem


def mounted(kind: str, *options: str) -> Mount:
    return Mount("/data", "8:1", kind, "/dev/sda1", ("rw", *options))


def told(space: HiddenSpace, reserve: int = 0) -> list[Remark]:
    """All that is said of a filesystem of 10 GiB."""
    stats = FsStats(5 * GIB - reserve, 5 * GIB, 10 * GIB, 500, 1000, 0.0)
    return remarks_of(stats, space, project_quota_sentence(space.mount, observations_of(), ()))


SPACES = """
    space                                 | mount              | reserve | files
    growing files                         | xfs                | 0       | sqlite 13 4 /data/small; postgres 12 60 /data/wal
    deleted files, a reserve, quotas      | ext4 pquota        | 512     | cat 6 0.00390625 -; java/0f5a 77 512 -/old; java/0f5a 77 1024 -/log; java/0f5a 77 512 -/2; rsyslogd 5 100 -/var/log/old
    many small holders                    | ext4               | 0       | 100 x app 4 -
    nothing                               |                    | 0       |
    quotas of users, and a small reserve  | ext4 usrquota noquota | 5    |
    a reserve that is none of XFS         | xfs                | 512     |
    one small file                        | ext4               | 0       | a 1 1 -
"""
"""Files by the process that has them, and its pod, its id, their MiB, and their path; a minus: it is
deleted."""


def file_of(text: str) -> OpenFile:
    """One of them."""
    who, pid, size, path = text.split()
    process, _, pod = who.partition("/")
    name = path.removeprefix("-") or "/x"
    return OpenFile(name, int(pid), process, pod, int(float(size) * MIB), deleted=path != name)


def test_what_is_hidden_is_said_with_its_bytes() -> None:
    """In the order of what it is about. Holders of deleted files are named, the largest first, and
    the small ones counted; below a thousandth of the capacity nothing is said. Who was not looked
    at is said in one line; none where everybody was."""
    shown = []
    for space in rows_of(SPACES):
        name, given = space["space"], space["files"]
        if given.startswith("100 x"):
            given = "; ".join(f"app {pid} 4 -" for pid in range(100))
        files = tuple(file_of(each) for each in given.split("; ") if each)
        mount = mounted(*space["mount"].split()) if space["mount"] else None
        remarks = told(HiddenSpace(mount, files), int(space["reserve"]) * MIB)
        shown += [
            f"# {name}",
            *(f"{each.about}: {each.bytes}: {each.sentence}" for each in remarks),
        ]
        about = [remark.about for remark in remarks]
        assert about == sorted(about, key=list(About).index)
    for unreadable, others_hidden, complete in (
        (38, False, True),
        (0, True, True),
        (0, False, False),
        (0, False, True),
    ):
        scan = OpenFilesScan()
        scan.processes, scan.unreadable = 40, unreadable
        scan.others_hidden, scan.complete = others_hidden, complete
        remark = scan.not_seen()
        shown.append(remark.sentence if remark else "(everybody was seen)")
    expect(Path(__file__).with_name("hidden.txt"), "\n".join(shown) + "\n")


@rows("""
    kind  | options                                         | named
    ext4  | rw relatime nodelalloc prjquota                 | nodelalloc prjquota
    ext4  | ro relatime                                     | ro
    xfs   | rw allocsize=64k noquota pquota                 | allocsize=64k pquota
    btrfs | rw compress=zstd:3 discard=async space_cache=v2 | compress=zstd:3 discard=async
    tmpfs | rw size=16384k nr_inodes=4000 mode=755          | size=16384k nr_inodes=4000
    zfs   | ro size=1                                       | ro
""")
def test_the_options_that_matter_are_named_and_no_others(
    kind: str, options: str, named: str
) -> None:
    """With their values; read-only matters everywhere, also where nothing else is known."""
    mount = Mount("/data", "8:1", kind, "/dev/sda1", tuple(options.split()))
    assert " ".join(traits_of(mount).options) == named


def test_each_filesystem_is_told_once() -> None:
    """With its roles, its reserve, what can jump (allocsize is what was fixed) and what project
    quotas do; of a type that is not known, or a mount that is not found, nothing is claimed."""
    stats = FsStats(GIB, GIB + 512 * MIB, 9 * GIB, 1, 2, 0)
    filesystems, mounts = {}, {}
    for row in rows_of("""
        role        | device | kind  | mount
        nodefs      | 1      | ext4  | ext4 relatime
        imagefs     | 2      | xfs   | xfs prjquota
        containerfs | 1      | ext4  |
        fixed       | 3      | xfs   | xfs allocsize=64k
        cow         | 4      | btrfs | btrfs
        memory      | 5      | tmpfs | tmpfs
        other       | 6      | zfs   |
    """):
        path, device = f"/{row['device']}", int(row["device"])
        disk = FilesystemIdentity(path, device, "/dev/x", row["kind"])
        filesystems[FilesystemRole(row["role"])] = disk, stats
        if row["mount"]:
            mounts[path] = mounted(*row["mount"].split())
    seen = observations_of()._replace(filesystems=filesystems)
    facts = filesystem_facts(seen, mounts)
    shown = [*facts_table(facts), json.dumps([to_json(each) for each in facts], indent=1)]
    expect(Path(__file__).with_name("filesystems.txt"), "\n".join(shown) + "\n")
    assert facts_table(()) == []
    stuck = seen._replace(unavailable=(Unavailable(IMAGEFS, "no answer within 2 s"),))
    assert set(paths_that_answer(seen)) - set(paths_that_answer(stuck)) == {"/2"}

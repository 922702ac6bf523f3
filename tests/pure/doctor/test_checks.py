"""The checks of doctor: a table of facts, each with its finding, and facts without one."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eviction.cli.doctor import lines
from eviction.configuration.effective import Configuration, load
from eviction.doctor import checks
from eviction.doctor.checks import CHECKS, EARLIEST_WALL, examine
from eviction.doctor.facts import Facts, Runtime
from eviction.survey.filesystem_facts import filesystem_facts
from eviction.types import Threshold
from eviction.wording.configuration_warnings import Finding, Severity
from reclaim.evidence.states import Distrust, Why
from reclaim.kubelet.pull_records import PullRecords, record_names
from reclaim.services import RuntimeVersion
from reclaim.types import ImageRecord, Listing
from signals.mounts import Mount
from signals.types import (
    FilesystemIdentity,
    FilesystemRole,
    FsLayout,
    FsStats,
    Signal,
    SignalObservations,
    Unavailable,
)
from tests.pure.values import (
    GIB,
    MIB,
    NOW_NS,
    container,
    image,
    observation,
    observations_of,
    threshold,
)

NODEFS, IMAGEFS = FilesystemRole.NODEFS, FilesystemRole.IMAGEFS
STORES = "/var/lib/containerd/io.containerd.snapshotter.v1"
PROBLEM, RISK, NOTE = Severity


def filesystem(**fields: int) -> FsStats:
    """10 GiB, half of it available, no reserve; `fields` replace values."""
    usual = {"available_bytes": 5 * GIB, "free_bytes": 5 * GIB, "capacity_bytes": 10 * GIB}
    return FsStats(**{**usual, "inodes_free": 500, "inodes_total": 1000, **fields}, time=0.0)


SIGNALS = (Signal.NODEFS_AVAILABLE, Signal.IMAGEFS_AVAILABLE)


def seen(**fields: int) -> SignalObservations:
    """Both filesystems on one device; `fields` replace values of it."""
    stats = filesystem(**fields)
    observations = [observation(signal, stats.available_bytes, 10 * GIB) for signal in SIGNALS]
    filesystems = {
        role: (FilesystemIdentity(f"/{role}", 1, "/dev/sda", "ext4"), stats)
        for role in (NODEFS, IMAGEFS)
    }
    return replace(observations_of(*observations), filesystems=filesystems)


SEEN = seen()
MARKS = tuple(threshold(signal, "15%") for signal in SIGNALS)
WALL = NOW_NS / 1e9
PAUSE = image(1, "registry.k8s.io/pause:3.10", pinned=True)
APP = image(2, "registry.example/app:1")
LISTING = Listing((PAUSE, APP), (container("c", references=(APP.id,)),))
SIDE_LOADED = {APP.id: ImageRecord(0.0, 5.0, pulled=False)}
OF_GONE_IMAGES = PullRecords(frozenset().union(*map(record_names, (image(2), image(7), image(8)))))
CACHE = Signal("buildcache.available")
ITS_DISK = (FilesystemIdentity("/buildcache", 2, "/dev/sdb", "ext4"), filesystem())


def configured(marks: tuple[Threshold, ...] = MARKS, **fields: object) -> Configuration:
    """Beside no kubelet; `marks` are in force whatever the fields say."""
    return load(None, {}, fields).model_copy(update={"thresholds": marks})


DEFAULTS = configured()


RUNTIME = Runtime(
    RuntimeVersion("containerd", "2.1.4"),
    LISTING,
    "registry.k8s.io/pause:3.10",
    records={APP.id: ImageRecord(0.0, 5.0, pulled=True)},
    pulls=PullRecords(record_names(APP)),
)


def sound(**fields: Any) -> Facts:
    """A node in order, of which everything is known; `fields` replace facts,
    also those of the runtime.
    """
    of_runtime = {name: value for name, value in fields.items() if name in Runtime.__slots__}
    usual = {
        "configuration": DEFAULTS,
        "observations": SEEN,
        "wall": WALL,
        "filesystems": (),
        "caches": (),
        "buildkitd": {},
        "xfs_hints": {},
        "runtime": replace(RUNTIME, **of_runtime),
        "runtime_problem": "",
        "endpoint": "/s",
        "socket": at_endpoint(0o660),
        "imagefs": f"{STORES}.overlayfs",
        "snapshotters": {"overlayfs": 40, "native": 0},
        "content_device": 1,
        "function_problems": (),
        "unwritable": {},
        "symlinks": {},
        "inotify_limit": 1024,
        "inotify_used": 12,
        "history_problem": "",
        "daemon_problem": "",
        "daemon": {},
        "installed": True,
    }
    return Facts(
        **{**usual, **{name: value for name, value in fields.items() if name not in of_runtime}}
    )


def unknown(**fields: Any) -> Facts:
    """A node whose runtime is down, and of which nothing was read."""
    nothing = {
        "observations": observations_of(),
        "runtime": Runtime(),
        "endpoint": "",
        "socket": None,
        "imagefs": None,
        "snapshotters": {},
        "content_device": None,
        "inotify_limit": None,
        "inotify_used": 0,
    }
    return sound(**{**nothing, **fields})


def not_pulled(keep: bool | str, **fields: Any) -> Facts:
    """With keepImagesNotPulled."""
    return sound(configuration=configured(keepImagesNotPulled=keep), **fields)


def holding(references: tuple[str, ...], age_seconds: float = 3600.0) -> Facts:
    """With one container: what it says of its image, and how long ago it was created."""
    one = container("4711", references=references, age_seconds=age_seconds)
    return sound(listing=replace(LISTING, containers=(one,)))


def at_endpoint(mode: int, owner: int = 0) -> os.stat_result:
    return os.stat_result((stat.S_IFSOCK | mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))


def marked(*marks: Threshold) -> Facts:
    return sound(configuration=configured(marks))


def with_rows(
    rows: Mapping[str, list[str]],
    frees: str = "nodefs",
    marks: tuple[Threshold, ...] = MARKS,
    **fields: Any,
) -> Facts:
    """With a disk for a cache, these rows, and a program `prune`; `fields` replace observations."""
    configuration = configured(
        marks,
        filesystems=[{"name": "buildcache", "path": "/buildcache"}],
        reclaimFunctions=[{"name": "prune", "exec": ["/bin/true"], "frees": frees}],
        reclaimTable=rows,
    )
    cache = {
        CACHE.filesystem: (FilesystemIdentity("/buildcache", 2, "/dev/sdb", "ext4"), filesystem())
    }
    signals = {**SEEN.signals, CACHE: observation(CACHE, 5 * GIB, 10 * GIB)}
    observations = replace(SEEN, signals=signals, filesystems={**SEEN.filesystems, **cache})
    return sound(configuration=configuration, observations=replace(observations, **fields))


def of_version(name: str, version: str, **fields: Any) -> Facts:
    return sound(version=RuntimeVersion(name, version), **fields)


def beside_kubelet(path: Path, fields: str, marks: tuple[Threshold, ...] = MARKS) -> Configuration:
    """The configuration beside a kubelet's file with these fields."""
    path.write_text(
        f"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{fields}"
    )
    return configured(marks, kubeletConfig=str(path))


def of_mount(mount: Mount | None, observations: SignalObservations = SEEN) -> Facts:
    return sound(
        filesystems=filesystem_facts(observations, {} if mount is None else {"/nodefs": mount})
    )


def findings(facts: Facts, check: str) -> list[Finding]:
    """Those of this name."""
    return [finding for finding in examine(facts).findings if finding.check == check]


def levels(facts: Facts) -> dict[str, Severity]:
    return {finding.check: finding.level for finding in examine(facts).findings}


DOUBT = Distrust(Why.EXCHANGED, "it was exchanged")
ASKED = configured(kubeletEndpoint="http://127.0.0.1:10255")
UNASKED = replace(SEEN, unavailable=(Unavailable(IMAGEFS, "no connection"),))
XFS_SEEN = replace(
    SEEN,
    filesystems={
        role: (replace(one, type="xfs"), stats) for role, (one, stats) in SEEN.filesystems.items()
    },
)
WITH_MARK = (*MARKS, threshold(CACHE, "15%"))


@pytest.mark.parametrize(
    "facts",
    [
        sound(),
        with_rows({"buildcache.available": ["prune"]}, "buildcache", WITH_MARK),
        unknown(
            configuration=configured(keepImages=["registry.example/ap"], keepImagesNotPulled=True)
        ),
        unknown(
            runtime=Runtime(records=SIDE_LOADED),
            observations=replace(observations_of(), layout=None),
        ),
        not_pulled("auto", pulls=PullRecords(problem="no such directory")),
        of_version("cri-o", "2.0.1"),
        *(
            of_version("containerd", version)
            for version in ("1.6.20", "1.7.24", "2.0.5", "2.1.9", "v2.3.4", "2.0.40", "", "unknown")
        ),
        of_mount(Mount("/", "8:1", "ext4", "/dev/sda", ("rw", "relatime"))),
        of_mount(Mount("/", "8:1", "zfs", "tank", ("rw",))),
        of_mount(None),
    ],
)
def test_a_sound_node_has_no_findings(facts: Facts) -> None:
    """Nothing wrong, nothing risky, nothing to note; of what is not known, and of one whose
    runtime is down, no guesses."""
    assert examine(facts).findings == ()
    assert examine(facts).healthy
    assert lines(()) == ["nothing wrong or risky was found"]


@pytest.mark.parametrize(
    ("facts", "check", "level"),
    [
        (unknown(runtime_problem="no connection"), "runtime", PROBLEM),
        (sound(socket=at_endpoint(0o666)), "socket", RISK),
        (sound(socket=at_endpoint(0o600, 1000)), "socket", RISK),
        (of_version("containerd", "2.0.0"), "containerd-frees-late", RISK),
        (of_version("containerd", "v2.0.4"), "containerd-frees-late", RISK),
        (of_version("containerd", "2.0.4+k3s1"), "containerd-frees-late", RISK),
        (sound(listing=Listing(), sandbox_image=None), "sandbox-image", PROBLEM),
        (
            sound(listing=replace(LISTING, images=(PAUSE._replace(pinned=False), APP))),
            "sandbox-image",
            RISK,
        ),
        (sound(listing=Listing()), "sandbox-image", RISK),
        (holding(()), "image-unresolved", PROBLEM),
        (marked(*MARKS[:1]), "thresholds-none", PROBLEM),
        (marked(), "thresholds-none", PROBLEM),
        (unknown(configuration=configured(())), "thresholds-none", PROBLEM),
        (marked(threshold(SIGNALS[0], "11Gi")), "thresholds-unreachable", PROBLEM),
        (marked(*(threshold(signal, "0%") for signal in SIGNALS)), "thresholds-none", PROBLEM),
        (sound(observations=seen(inodes_free=0, inodes_total=0)), "no-inode-signal", NOTE),
        (sound(observations=seen(free_bytes=5 * GIB + 200 * MIB)), "reserve", NOTE),
        (sound(observations=seen(available_bytes=0, free_bytes=MIB)), "reserve", RISK),
        (sound(observations=seen(available_bytes=GIB)), "pressure", PROBLEM),
        (sound(inotify_limit=128), "inotify", NOTE),
        (sound(inotify_used=1000), "inotify", RISK),
        (sound(imagefs=f"{STORES}.devmapper"), "store-elsewhere", PROBLEM),
        (sound(snapshotters={"native": 3}), "store-second-snapshotter", RISK),
        (sound(content_device=2), "store-split", RISK),
        (
            sound(configuration=configured(keepImages=["registry.example/ap"])),
            "keep-unmatched",
            RISK,
        ),
        (not_pulled("auto", records=SIDE_LOADED), "images-not-pulled", NOTE),
        (not_pulled(True, records=SIDE_LOADED), "images-not-pulled", NOTE),
        (not_pulled(False, records=SIDE_LOADED), "images-not-pulled", RISK),
        (
            not_pulled(True, pulls=PullRecords(problem="no such directory")),
            "images-not-pulled",
            RISK,
        ),
        (sound(pulls=OF_GONE_IMAGES), "pull-records", NOTE),
        (sound(wall=1000.0), "clock", PROBLEM),
        (unknown(wall=EARLIEST_WALL - 1.0), "clock", PROBLEM),
        (holding((APP.id,), age_seconds=-3600.0), "clock", RISK),
        (sound(unwritable={"/var/log/pods": "read-only"}), "permissions", RISK),
        (sound(doubt=DOUBT), "pod-directories", PROBLEM),
        (sound(daemon={"pod_directories": DOUBT._asdict()}), "pod-directories", PROBLEM),
        (sound(symlinks={"podLogsDir": "/proc/self/cwd"}), "log-symlink", RISK),
        (sound(history_problem="/h is left alone: it is not a regular file"), "history", RISK),
        (sound(configuration=ASKED, pod_list_problem="401 Unauthorized"), "kubelet-list", RISK),
        (sound(pod_list_problem="no way was found"), "kubelet-list", NOTE),
        (sound(held="90.0MiB; images: 3"), "terminated-pods", RISK),
        (sound(daemon_problem="no daemon answers"), "daemon", NOTE),
        (sound(daemon={"held_off": "paused until 2027"}), "held-off", RISK),
        (sound(daemon={"dry_run": True}), "dry-run", RISK),
        (sound(daemon={"reload_problem": "not reloaded: no such field"}), "reload", RISK),
        (with_rows({"nodefs.available": []}), "row-empty", PROBLEM),
        (with_rows({}, layout=FsLayout.DEDICATED_IMAGEFS), "row-empty", NOTE),
        (with_rows({"buildcache.available": ["prune"]}), "row-unused", RISK),
        (with_rows({"buildcache.available": ["prune"]}, marks=WITH_MARK), "row-elsewhere", RISK),
        (sound(function_problems=(("prune", "it does not exist"),)), "function", PROBLEM),
        (of_mount(Mount("/", "8:1", "xfs", "/dev/sda", ("rw",))), "xfs-preallocation", RISK),
        (
            sound(
                observations=replace(
                    SEEN, unavailable=(Unavailable(NODEFS, "no answer within 2 s"),)
                )
            ),
            "readings",
            PROBLEM,
        ),
    ],
)
def test_each_check_makes_its_finding(facts: Facts, check: str, level: Severity) -> None:
    """With its level; evidence and remedy are never empty."""
    found = examine(facts).findings
    assert (check, level) in {(finding.check, finding.level) for finding in found}
    assert all(finding.sentence and finding.evidence and finding.remedy for finding in found)


@pytest.mark.parametrize(
    ("facts", "check"),
    [
        # it is on the same device
        (with_rows({"nodefs.available": ["prune"]}, "imagefs"), "row-elsewhere"),
        (with_rows({}, layout=None), "row-empty"),  # there is no row to judge yet
        (
            of_mount(Mount("/", "8:1", "xfs", "/dev/sda", ("rw", "allocsize=64k"))),
            "xfs-preallocation",
        ),
        (of_mount(None, XFS_SEEN), "xfs-preallocation"),  # its mount options are not known
        (
            unknown(observations=UNASKED, runtime_problem="no connection"),
            "readings",
        ),
        (
            sound(configuration=configured(tuple(threshold(signal, "0%") for signal in SIGNALS))),
            "pressure",
        ),
    ],
)
def test_a_check_says_nothing_that_is_not_known_or_has_its_own_finding(
    facts: Facts, check: str
) -> None:
    """Others may."""
    assert not findings(facts, check)


@pytest.mark.parametrize("installed", [True, False])
def test_where_no_unit_is_installed_that_comes_first(installed: bool) -> None:
    """A unit that does not exist cannot be enabled."""
    (found,) = findings(sound(daemon_problem="no daemon answers", installed=installed), "daemon")
    assert found.remedy.startswith("reclaimd install --systemd, then ") is not installed
    assert found.remedy.endswith("systemctl enable --now reclaimd")


def test_images_that_may_not_come_back_and_records_of_gone_ones_are_counted() -> None:
    """With their bytes and names; those that no pod has used are not among them."""
    known = {**SIDE_LOADED, PAUSE.id: ImageRecord(0.0, pulled=False)}
    facts = sound(records=known, pulls=OF_GONE_IMAGES)
    assert [one.evidence for one in findings(facts, "images-not-pulled")] == [
        "1.0MiB; images: 1: registry.example/app:1"
    ]
    assert [one.evidence for one in findings(facts, "pull-records")] == [
        "2 of 3 records, a small file each"
    ]


def test_a_mark_of_the_kubelets_of_a_few_bytes_is_found(tmp_path: Path) -> None:
    """The `10` that was to be `10%`; it is legal there."""
    path = tmp_path / "kubelet.yaml"
    fields = "evictionHard: {nodefs.available: '10', imagefs.available: 5%}\n"
    (tiny,) = findings(sound(configuration=beside_kubelet(path, fields)), "thresholds-tiny")
    assert tiny.level is RISK
    assert "nodefs.available" in tiny.sentence
    assert tiny.evidence == f"10 in {path}"


def test_that_another_kubelet_may_be_meant_is_said_where_one_is_taken(tmp_path: Path) -> None:
    """Its defaults are assumed only where a mark is one of them."""
    found = beside_kubelet(tmp_path / "kubelet.yaml", "")
    assert not findings(sound(configuration=found), "kubelet-config")
    for kubelet in (found.kubelet, None):
        remarked = found.model_copy(
            update={"kubelet": kubelet, "kubelet_remark": "several kubelets run here"}
        )
        assert bool(findings(sound(configuration=remarked), "kubelet-config")) is (
            kubelet is not None
        )
    nothing = load(None, {}, {}).model_copy(update={"kubelet_remark": "no kubelet is seen"})
    assert levels(sound(configuration=nothing))["kubelet-config"] is RISK


def test_a_threshold_later_than_the_kubelets_is_found(tmp_path: Path) -> None:
    """With both numbers; that the kubelet's own image collection is off is worth a note."""
    path, fields = (
        tmp_path / "kubelet.yaml",
        "evictionHard: {nodefs.available: 20%}\nimageGCHighThresholdPercent: 100\n",
    )
    facts = sound(configuration=beside_kubelet(path, fields))
    assert levels(facts) == {"thresholds-late": RISK, "image-gc-off": NOTE}
    (late,) = findings(facts, "thresholds-late")
    assert "15%" in late.evidence
    assert "20%" in late.evidence
    earlier = tuple(threshold(signal, "25%") for signal in SIGNALS)
    assert levels(sound(configuration=beside_kubelet(path, fields, earlier))) == {
        "image-gc-off": NOTE
    }


@pytest.mark.parametrize(
    ("kubelets", "ending"),
    [("1Mi", "; not below the kubelet's own mark"), ("2Gi", "; below the kubelet's own mark")],
)
def test_pressure_is_told_with_whether_the_kubelets_own_mark_is_crossed(
    tmp_path: Path, kubelets: str, ending: str
) -> None:
    """1 GiB is available; nothing is said of a kubelet whose configuration is not known."""
    beside = beside_kubelet(
        tmp_path / "kubelet.yaml", f"evictionHard: {{nodefs.available: {kubelets}}}\n"
    )
    short = seen(available_bytes=GIB)
    found = findings(sound(configuration=beside, observations=short), "pressure")
    (evidence,) = (
        one.evidence for one in found if one.sentence == "nodefs.available is below its mark"
    )
    assert evidence.endswith(ending)
    alone = findings(sound(observations=short), "pressure")
    assert len(alone) == 2
    assert not any("kubelet's own mark" in one.evidence for one in alone)


@pytest.mark.parametrize(
    ("gate", "layout", "runtime", "told"),
    [
        ("false", FsLayout.SPLIT, "cri-o", True),
        ("true", FsLayout.SPLIT, "cri-o", False),
        ("false", FsLayout.SINGLE, "cri-o", False),
        ("false", FsLayout.SPLIT, "containerd", False),
        (None, FsLayout.SPLIT, "cri-o", False),
    ],
)
def test_a_kubelet_that_gives_up_on_split_filesystems_is_found(
    tmp_path: Path, gate: str | None, layout: FsLayout, runtime: str, told: bool
) -> None:
    """With its gate off, where it sees the split: beside CRI-O.

    Without a word of the gate it is on.
    """
    fields = "" if gate is None else f"featureGates: {{KubeletSeparateDiskGC: {gate}}}\n"
    beside = beside_kubelet(tmp_path / "kubelet.yaml", fields)
    facts = of_version(
        runtime, "1.36.0", configuration=beside, observations=replace(SEEN, layout=layout)
    )
    assert [one.level for one in findings(facts, "separate-disk-gc-off")] == [RISK] * told


@pytest.mark.parametrize(
    ("mount", "told"),
    [
        (Mount("/", "8:1", "ext4", "/dev/sda", ("ro",)), "ext4 on /nodefs, mounted with ro"),
        (
            Mount("/", "8:1", "xfs", "/dev/sda", ("allocsize=64k",)),
            "xfs on /nodefs, mounted with allocsize=64k",
        ),
        (
            Mount("/", "8:1", "tmpfs", "none", ("rw",)),
            "tmpfs on /nodefs, mounted with no option that affects them",
        ),
    ],
)
def test_what_of_a_filesystems_numbers_can_jump_is_a_note(mount: Mount, told: str) -> None:
    """With its type, its path and the mount options that matter."""
    (found,) = findings(of_mount(mount), "filesystem-numbers")
    assert (found.level, found.evidence) == (NOTE, told)


def test_a_finding_has_a_line_for_the_evidence_and_one_for_the_remedy() -> None:
    """The worst comes first, and the count is at the end."""
    found = examine(
        sound(unwritable={"/v": "read-only"}, inotify_limit=128, runtime_problem="no connection")
    )
    assert not found.healthy
    shown = lines(found.findings)
    assert shown[0].startswith("PROBLEM  ")
    assert shown[1].startswith("  seen: ")
    assert shown[2].startswith("  do:   ")
    assert shown[-1] == "1 note, 1 problem, 1 risk"


def test_control_characters_do_not_reach_the_terminal() -> None:
    """A keep-list entry may hold anything."""
    shown = lines((Finding("keep-unmatched", "s", "\x1b[2J\n", remedy="r", level=RISK),))
    assert "\x1b" not in "".join(shown)
    assert all("\n" not in line for line in shown)


def test_every_check_is_in_the_tuple() -> None:
    """Every function of the module that takes facts, but the one that runs them all."""
    written = {
        one
        for one in vars(checks).values()
        if getattr(one, "__annotations__", {}).get("facts") == "Facts"
    }
    assert written - {examine} <= set(CHECKS)

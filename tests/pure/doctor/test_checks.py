"""The checks of doctor: each with a finding, and without one."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from eviction.cli.doctor import lines
from eviction.configuration.effective import Configuration, load
from eviction.configuration.kubelet import KubeletConfiguration
from eviction.doctor import checks
from eviction.doctor.checks import (
    EARLIEST_WALL,
    Runtime,
    check_clock,
    check_containerd_frees_late,
    check_daemon,
    check_filesystem_numbers,
    check_functions,
    check_history,
    check_image_gc_off,
    check_inodes,
    check_inotify,
    check_keeps,
    check_kubelet_list,
    check_log_directories,
    check_permissions,
    check_pod_directories,
    check_pressure,
    check_pulls,
    check_readings,
    check_reserve,
    check_runtime,
    check_sandbox_image,
    check_separate_disk_gc,
    check_socket,
    check_store,
    check_thresholds,
    check_unresolved_images,
    check_xfs,
)
from eviction.reporting.configuration_warnings import Finding, Severity, kubelet_findings, row_problems
from eviction.reporting.filesystem_facts import FilesystemFacts, filesystem_facts
from reclaim.images.pull_records import PullRecords, record_names
from reclaim.services import RuntimeVersion
from reclaim.types import ImageRecord, Listing
from signals.mounts import Mount
from signals.types import FilesystemIdentity, FilesystemRole, FsLayout, FsStats, Signal, SignalObservations, Unavailable
from tests.pure.values import GIB, MIB, NOW_NS, container, image, observation, observations_of, threshold

NODEFS, IMAGEFS = FilesystemRole.NODEFS, FilesystemRole.IMAGEFS
STORES = "/var/lib/containerd/io.containerd.snapshotter.v1"


def filesystem(**fields: int) -> FsStats:
    """10 GiB, half of it available, no reserve; `fields` replace values."""
    usual = {"available_bytes": 5 * GIB, "free_bytes": 5 * GIB, "capacity_bytes": 10 * GIB}
    return FsStats(**{**usual, "inodes_free": 500, "inodes_total": 1000, **fields}, time=0.0)


SIGNALS = (Signal.NODEFS_AVAILABLE, Signal.IMAGEFS_AVAILABLE)


def seen(**fields: int) -> SignalObservations:
    """Both filesystems on one device; `fields` replace values of it."""
    stats = filesystem(**fields)
    observations = [observation(signal, stats.available_bytes, 10 * GIB) for signal in SIGNALS]
    filesystems = {role: (FilesystemIdentity(f"/{role}", 1, "/dev/sda", "ext4"), stats) for role in (NODEFS, IMAGEFS)}
    return replace(observations_of(*observations), filesystems=filesystems)


SEEN = seen()
MARKS = tuple(threshold(signal, "15%") for signal in SIGNALS)
WALL = NOW_NS / 1e9
PAUSE = image(1, "registry.k8s.io/pause:3.10", pinned=True)
CONTAINERD = RuntimeVersion("containerd", "2.1.4")
LISTING = Listing((PAUSE, image(2, "registry.example/app:1")), (container("c", references=(image(2).id,)),))
SOUND = Runtime(CONTAINERD, LISTING, "registry.k8s.io/pause:3.10")
UNPINNED = replace(SOUND, listing=replace(LISTING, images=(PAUSE._replace(pinned=False),)))
UNNAMED = Runtime(CONTAINERD, Listing())


SIDE_LOADED = {image(2).id: ImageRecord(0.0, 5.0, pulled=False)}
RECORDED = PullRecords(record_names(image(2)))
OF_GONE_IMAGES = PullRecords(frozenset().union(*map(record_names, (image(2), image(7), image(8)))))


def of_version(name: str, version: str) -> Runtime:
    return replace(SOUND, version=RuntimeVersion(name, version))


def holding(references: tuple[str, ...], age_seconds: float = 3600.0) -> Runtime:
    """With one container: what it says of its image, and how long ago it was created."""
    one = container("4711", references=references, age_seconds=age_seconds)
    return replace(SOUND, listing=replace(LISTING, containers=(one,)))


def at_endpoint(mode: int, owner: int = 0) -> os.stat_result:
    return os.stat_result((mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))


CACHE = Signal("buildcache.available")
ITS_DISK = (FilesystemIdentity("/buildcache", 2, "/dev/sdb", "ext4"), filesystem())
WITH_CACHE = replace(SEEN, filesystems={**SEEN.filesystems, CACHE.filesystem: ITS_DISK})


def with_row(signal: Signal, function: str = "", frees: str | None = None) -> Iterable[Finding]:
    """A configured row of one function, name and where it frees; without them it is empty."""
    row = (function,) if function else ()
    return row_problems({signal: row}, {signal}, {function: frees}, set(SIGNALS), WITH_CACHE)


def levels(findings: Iterable[Finding]) -> dict[str, Severity]:
    return {finding.check: finding.level for finding in findings}


def test_rows_as_they_should_be_make_no_finding() -> None:
    """A function frees where its signal is short, or on another filesystem of the same device."""
    rows = {SIGNALS[0]: ("prune", "a-name-of-nothing"), CACHE: ("clean",)}
    frees = {"prune": "imagefs", "clean": "buildcache"}
    assert not list(row_problems(rows, set(rows), frees, {*SIGNALS, CACHE}, WITH_CACHE))


def test_a_sound_node_has_no_findings() -> None:
    """Nothing wrong, nothing risky, nothing to note."""
    found = [
        *check_pressure(MARKS, None, SEEN),
        *check_readings(SEEN, ""),
        *check_runtime(""),
        *check_socket("/s", at_endpoint(stat.S_IFSOCK | 0o660)),
        *check_permissions({}),
        *check_pod_directories(""),
        *check_log_directories({"podLogsDir": "/"}),
        *check_kubelet_list("", ""),
        *check_thresholds(MARKS, None, SEEN),
        *check_functions(()),
        *check_sandbox_image(SOUND),
        *check_unresolved_images(SOUND),
        *check_containerd_frees_late(SOUND),
        *check_store(f"{STORES}.overlayfs", {"overlayfs": 40, "native": 0}, 1, SEEN),
        *check_keeps(["registry.example/app"], SOUND),
        *check_pulls(True, SOUND, {image(2).id: ImageRecord(0.0, 5.0, pulled=True)}, RECORDED),
        *check_clock(WALL, SOUND),
        *check_separate_disk_gc(None, None, SOUND),
        *check_image_gc_off(None),
        *check_inodes(SEEN),
        *check_reserve(SEEN),
        *check_xfs(()),
        *check_filesystem_numbers(()),
        *check_inotify(1024, 12),
        *check_history(""),
        *check_daemon("", "", False, True),
    ]
    assert found == []
    assert lines(()) == ["nothing wrong or risky was found"]


def test_nothing_is_said_of_what_is_not_known() -> None:
    """Of a node whose runtime is down, and of which nothing was read, there are no guesses."""
    found = [
        *check_pressure(MARKS, None, observations_of()),
        *check_readings(observations_of(), "away"),
        *check_socket("", None),
        *check_permissions({}),
        *check_thresholds(MARKS, None, observations_of()),
        *check_sandbox_image(None),
        *check_unresolved_images(None),
        *check_containerd_frees_late(None),
        *check_store(None, {}, None, observations_of()),
        *check_keeps(["registry.example/ap"], None),
        *check_pulls(True, None, SIDE_LOADED, RECORDED),
        *check_pulls("auto", SOUND, {}, PullRecords(problem="no such directory")),
        *check_clock(WALL, None),
        *check_separate_disk_gc(None, None, None),
        *check_inodes(observations_of()),
        *check_reserve(observations_of()),
        *check_inotify(None, 0),
    ]
    assert found == []


@pytest.mark.parametrize(
    ("findings", "check", "level"),
    [
        (check_runtime("no connection"), "runtime", Severity.PROBLEM),
        (check_socket("/s", at_endpoint(stat.S_IFSOCK | 0o666)), "socket", Severity.RISK),
        (check_socket("/s", at_endpoint(stat.S_IFSOCK | 0o600, 1000)), "socket", Severity.RISK),
        (check_containerd_frees_late(of_version("containerd", "2.0.0")), "containerd-frees-late", Severity.RISK),
        (check_containerd_frees_late(of_version("containerd", "v2.0.4")), "containerd-frees-late", Severity.RISK),
        (check_containerd_frees_late(of_version("containerd", "2.0.4+k3s1")), "containerd-frees-late", Severity.RISK),
        (check_sandbox_image(UNNAMED), "sandbox-image", Severity.PROBLEM),
        (check_sandbox_image(UNPINNED), "sandbox-image", Severity.RISK),
        (check_sandbox_image(replace(SOUND, listing=Listing())), "sandbox-image", Severity.RISK),
        (check_unresolved_images(holding(())), "image-unresolved", Severity.PROBLEM),
        (check_thresholds(MARKS[:1], None, SEEN), "thresholds-none", Severity.PROBLEM),
        (check_thresholds((), None, SEEN), "thresholds-none", Severity.PROBLEM),
        (check_thresholds((), None, observations_of()), "thresholds-none", Severity.PROBLEM),
        (check_thresholds((threshold(SIGNALS[0], "11Gi"),), None, SEEN), "thresholds-unreachable", Severity.PROBLEM),
        (check_thresholds(tuple(threshold(s, "0%") for s in SIGNALS), None, SEEN), "thresholds-none", Severity.PROBLEM),
        (check_inodes(seen(inodes_free=0, inodes_total=0)), "no-inode-signal", Severity.NOTE),
        (check_reserve(seen(free_bytes=5 * GIB + 200 * MIB)), "reserve", Severity.NOTE),
        (check_reserve(seen(available_bytes=0, free_bytes=MIB)), "reserve", Severity.RISK),
        (check_pressure(MARKS, None, seen(available_bytes=GIB)), "pressure", Severity.PROBLEM),
        (check_inotify(128, 12), "inotify", Severity.NOTE),
        (check_inotify(1024, 1000), "inotify", Severity.RISK),
        (check_store(f"{STORES}.devmapper", {}, None, SEEN), "store-elsewhere", Severity.PROBLEM),
        (check_store(f"{STORES}.overlayfs", {"native": 3}, 1, SEEN), "store-second-snapshotter", Severity.RISK),
        (check_store(f"{STORES}.overlayfs", {}, 2, SEEN), "store-split", Severity.RISK),
        (check_keeps(["registry.example/ap"], SOUND), "keep-unmatched", Severity.RISK),
        (check_pulls("auto", SOUND, SIDE_LOADED, PullRecords()), "images-not-pulled", Severity.NOTE),
        (check_pulls(True, SOUND, SIDE_LOADED, PullRecords()), "images-not-pulled", Severity.NOTE),
        (check_pulls(False, SOUND, SIDE_LOADED, PullRecords()), "images-not-pulled", Severity.RISK),
        (check_pulls(True, SOUND, {}, PullRecords(problem="no such directory")), "images-not-pulled", Severity.RISK),
        (check_pulls("auto", SOUND, {}, OF_GONE_IMAGES), "pull-records", Severity.NOTE),
        (check_clock(1000.0, SOUND), "clock", Severity.PROBLEM),
        (check_clock(EARLIEST_WALL - 1.0, None), "clock", Severity.PROBLEM),
        (check_clock(WALL, holding(("x",), age_seconds=-3600.0)), "clock", Severity.RISK),
        (check_permissions({"/var/log/pods": "read-only"}), "permissions", Severity.RISK),
        (check_pod_directories("it was exchanged"), "pod-directories", Severity.PROBLEM),
        (check_log_directories({"podLogsDir": "/proc/self/cwd"}), "log-symlink", Severity.RISK),
        (check_history("/h is left alone: it is not a regular file"), "history", Severity.RISK),
        (check_kubelet_list("401 Unauthorized", ""), "kubelet-list", Severity.RISK),
        (check_kubelet_list("no way was found", "", False), "kubelet-list", Severity.NOTE),
        (check_kubelet_list("", "90.0MiB; images: 3"), "terminated-pods", Severity.RISK),
        (check_daemon("no daemon answers", "", False, True), "daemon", Severity.NOTE),
        (check_daemon("", "paused until 2027", False, True), "held-off", Severity.RISK),
        (check_daemon("", "", True, True), "dry-run", Severity.RISK),
        (check_daemon("", "", False, True, "not reloaded: no such field"), "reload", Severity.RISK),
        (with_row(SIGNALS[0]), "row-empty", Severity.PROBLEM),
        (row_problems({SIGNALS[0]: ()}, (), {}, set(SIGNALS), SEEN), "row-empty", Severity.NOTE),
        (with_row(CACHE, "prune", "buildcache"), "row-unused", Severity.RISK),
        (with_row(CACHE, "prune", "nodefs"), "row-elsewhere", Severity.RISK),
        (check_functions([("prune", "it does not exist")]), "function", Severity.PROBLEM),
    ],
)  # fmt: skip
def test_each_check_makes_its_finding(findings: Iterable[Finding], check: str, level: Severity) -> None:
    """With its level; evidence and remedy are never empty."""
    found = tuple(findings)
    assert (check, level) in {(finding.check, finding.level) for finding in found}
    assert all(finding.sentence and finding.evidence and finding.remedy for finding in found)


@pytest.mark.parametrize("installed", [True, False])
def test_where_no_unit_is_installed_that_comes_first(installed: bool) -> None:
    """A unit that does not exist cannot be enabled."""
    (found,) = check_daemon("no daemon answers", "", False, installed)
    assert found.remedy.startswith("reclaimd install --systemd, then ") is not installed
    assert found.remedy.endswith("systemctl enable --now reclaimd")


def test_no_built_in_row_is_said_to_be_empty_while_the_layout_is_not_known() -> None:
    """As without a runtime: there is no row to judge yet."""
    assert not list(row_problems({SIGNALS[0]: ()}, (), {}, set(SIGNALS), replace(SEEN, layout=None)))


def test_images_that_may_not_come_back_and_records_of_gone_ones_are_counted() -> None:
    """With their bytes and names; those that no pod has used are not among them."""
    known = {**SIDE_LOADED, PAUSE.id: ImageRecord(0.0, pulled=False)}
    images, records = check_pulls("auto", SOUND, known, OF_GONE_IMAGES)
    assert images.evidence == "1.0MiB; images: 1: registry.example/app:1"
    assert records.evidence == "2 of 3 records, a small file each"


@pytest.mark.parametrize("version", ["1.6.20", "1.7.24", "2.0.5", "2.1.9", "v2.3.4", "2.0.40", "", "unknown"])
def test_other_versions_of_containerd_have_no_finding(version: str) -> None:
    """Only 2.0.0 to 2.0.4 do not; CRI-O of the same number is another program."""
    assert not list(check_containerd_frees_late(of_version("containerd", version)))
    assert not list(check_containerd_frees_late(of_version("cri-o", "2.0.1")))


def configured_with(path: Path, fields: str) -> Configuration:
    """A configuration beside a kubelet's file with these fields."""
    path.write_text(f"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{fields}")
    return load(None, {}, {"kubeletConfig": str(path)})


def kubelet_with(path: Path, fields: str) -> KubeletConfiguration | None:
    """The kubelet's configuration from a file with these fields."""
    return configured_with(path, fields).kubelet


def test_a_mark_of_the_kubelets_of_a_few_bytes_is_found(tmp_path: Path) -> None:
    """The `10` that was to be `10%`; it is legal there."""
    path = tmp_path / "kubelet.yaml"
    (tiny,) = kubelet_findings(configured_with(path, "evictionHard: {nodefs.available: '10', imagefs.available: 5%}\n"))
    assert (tiny.check, tiny.level) == ("thresholds-tiny", Severity.RISK)
    assert "nodefs.available" in tiny.sentence
    assert tiny.evidence == f"10 in {path}"


def test_that_another_kubelet_may_be_meant_is_said_where_one_is_taken(tmp_path: Path) -> None:
    """Its defaults are assumed only where a mark is one of them."""
    found = configured_with(tmp_path / "kubelet.yaml", "")
    assert not list(kubelet_findings(found))
    for kubelet in (found.kubelet, None):
        remarked = found.model_copy(update={"kubelet": kubelet, "kubelet_remark": "several kubelets run here"})
        assert bool(levels(kubelet_findings(remarked))) is (kubelet is not None)
    nothing = load(None, {}, {}).model_copy(update={"kubelet_remark": "no kubelet is seen"})
    assert levels(kubelet_findings(nothing)) == {"kubelet-config": Severity.RISK}


def test_a_threshold_later_than_the_kubelets_is_found(tmp_path: Path) -> None:
    """With both numbers; that the kubelet's own image collection is off is worth a note."""
    fields = "evictionHard: {nodefs.available: 20%}\nimageGCHighThresholdPercent: 100\n"
    kubelet = kubelet_with(tmp_path / "kubelet.yaml", fields)
    assert levels(check_image_gc_off(kubelet)) == {"image-gc-off": Severity.NOTE}
    (late,) = check_thresholds(MARKS, kubelet, SEEN)
    assert (late.check, late.level) == ("thresholds-late", Severity.RISK)
    assert "15%" in late.evidence
    assert "20%" in late.evidence
    assert not list(check_thresholds(tuple(threshold(signal, "25%") for signal in SIGNALS), kubelet, SEEN))


@pytest.mark.parametrize(
    ("kubelets", "ending"),
    [("1Mi", "; not below the kubelet's own mark"), ("2Gi", "; below the kubelet's own mark")],
)
def test_pressure_is_told_with_whether_the_kubelets_own_mark_is_crossed(
    tmp_path: Path, kubelets: str, ending: str
) -> None:
    """1 GiB is available; nothing is said of a kubelet whose configuration is not known."""
    kubelet = kubelet_with(tmp_path / "kubelet.yaml", f"evictionHard: {{nodefs.available: {kubelets}}}\n")
    short = seen(available_bytes=GIB)
    found = check_pressure(MARKS, kubelet, short)
    (evidence,) = (one.evidence for one in found if one.sentence == "nodefs.available is below its mark")
    assert evidence.endswith(ending)
    assert not any("kubelet's own mark" in one.evidence for one in check_pressure(MARKS, None, short))


@pytest.mark.parametrize(
    ("gate", "layout", "runtime", "told"),
    [
        ("false", FsLayout.SPLIT, "cri-o", True),
        ("true", FsLayout.SPLIT, "cri-o", False),
        ("false", FsLayout.SINGLE, "cri-o", False),
        ("false", FsLayout.SPLIT, "containerd", False),
    ],
)
def test_a_kubelet_that_gives_up_on_split_filesystems_is_found(
    tmp_path: Path, gate: str, layout: FsLayout, runtime: str, told: bool
) -> None:
    """With its gate off, where it sees the split: beside CRI-O. Without a word of the gate it is on."""
    path, beside = tmp_path / "kubelet.yaml", of_version(runtime, "1.36.0")
    kubelet = kubelet_with(path, f"featureGates: {{KubeletSeparateDiskGC: {gate}}}\n")
    found = levels(check_separate_disk_gc(kubelet, layout, beside))
    assert found == ({"separate-disk-gc-off": Severity.RISK} if told else {})
    assert not list(check_separate_disk_gc(kubelet_with(path, ""), layout, beside))


def facts_of(mount: Mount | None, observations: SignalObservations = SEEN) -> tuple[FilesystemFacts, ...]:
    return filesystem_facts(observations, {} if mount is None else {"/nodefs": mount})


@pytest.mark.parametrize(
    ("mount", "told"),
    [
        (Mount("/", "8:1", "ext4", "/dev/sda", ("rw", "relatime")), None),
        (Mount("/", "8:1", "ext4", "/dev/sda", ("ro",)), "ext4 on /nodefs, mounted with ro"),
        (Mount("/", "8:1", "xfs", "/dev/sda", ("allocsize=64k",)), "xfs on /nodefs, mounted with allocsize=64k"),
        (Mount("/", "8:1", "tmpfs", "none", ("rw",)), "tmpfs on /nodefs, mounted with no option that affects them"),
        (Mount("/", "8:1", "zfs", "tank", ("rw",)), None),
        (None, None),
    ],
)
def test_what_of_a_filesystems_numbers_can_jump_is_a_note(mount: Mount | None, told: str | None) -> None:
    """Of one whose numbers do not, and has no option that matters, there is none; of an unknown type neither."""
    findings = check_filesystem_numbers(facts_of(mount))
    assert [(finding.check, finding.level, finding.evidence) for finding in findings] == (
        [] if told is None else [("filesystem-numbers", Severity.NOTE, told)]
    )


@pytest.mark.parametrize(
    ("mount", "told"),
    [
        (Mount("/", "8:1", "xfs", "/dev/sda", ("rw",)), True),
        (Mount("/", "8:1", "xfs", "/dev/sda", ("rw", "allocsize=64k")), False),
        (Mount("/", "8:1", "ext4", "/dev/sda", ("rw",)), False),
        (None, False),
    ],
)
def test_an_xfs_without_allocsize_is_a_risk(mount: Mount | None, told: bool) -> None:
    """It counts as used what it allocated ahead. Of one whose mount options are not known nothing is said."""
    seen_as = {role: (replace(one, type="xfs"), stats) for role, (one, stats) in SEEN.filesystems.items()}
    facts = facts_of(mount, SEEN if mount is not None else replace(SEEN, filesystems=seen_as))
    assert levels(check_xfs(facts)) == ({"xfs-preallocation": Severity.RISK} if told else {})


def test_a_filesystem_that_does_not_answer_is_found_once() -> None:
    """Its reason is the evidence; a runtime that is down has its own finding."""
    hung = replace(SEEN, unavailable=(Unavailable(NODEFS, "no answer within 2 s"),))
    assert levels(check_readings(hung, "")) == {"readings": Severity.PROBLEM}
    away = replace(SEEN, unavailable=(Unavailable(IMAGEFS, "no connection"),))
    assert not list(check_readings(away, "no connection"))


def test_a_finding_has_a_line_for_the_evidence_and_one_for_the_remedy() -> None:
    """And the count is at the end."""
    shown = lines((*check_runtime("no connection"), *check_keeps(["x"], SOUND), *check_inotify(128, 12)))
    assert shown[0].startswith("PROBLEM  ")
    assert shown[1].startswith("  seen: ")
    assert shown[2].startswith("  do:   ")
    assert shown[-1] == "1 note, 1 problem, 1 risk"


def test_control_characters_do_not_reach_the_terminal() -> None:
    """A keep-list entry may hold anything."""
    shown = lines((Finding("keep-unmatched", Severity.RISK, "s", "\x1b[2J\n", "r"),))
    assert "\x1b" not in "".join(shown)
    assert all("\n" not in line for line in shown)


def test_every_check_is_run() -> None:
    """Every check in the module is named where a node is examined."""
    written = {name for name in vars(checks) if name.startswith("check_")}
    assert written <= set(checks.examine.__code__.co_names)

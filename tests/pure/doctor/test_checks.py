"""The checks of doctor: each has a node with a finding, and one without."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from eviction.cli.doctor import lines
from eviction.configuration.effective import load
from eviction.doctor import checks
from eviction.doctor.checks import CHECKS, examine, healthy
from eviction.doctor.facts import HeldImages, NodeFacts, SocketFacts
from eviction.reporting.configuration_warnings import Finding, Severity
from eviction.reporting.filesystem_facts import filesystem_facts
from reclaim.services import RuntimeVersion
from signals.mounts import Mount
from signals.types import FilesystemIdentity, FilesystemRole, FsLayout, FsStats, Signal, SignalObservations, Unavailable
from tests.pure.values import GIB, MIB, observation, observations_of, threshold

NODEFS, IMAGEFS = FilesystemRole.NODEFS, FilesystemRole.IMAGEFS
IMAGES = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs"


def filesystem(**fields: int) -> FsStats:
    """10 GiB, half of it available, no reserve; `fields` replace values."""
    usual = {"available_bytes": 5 * GIB, "free_bytes": 5 * GIB, "capacity_bytes": 10 * GIB}
    return FsStats(**{**usual, "inodes_free": 500, "inodes_total": 1000, **fields}, time=0.0)


def seen(stats: FsStats, *signals: Signal) -> SignalObservations:
    observations = [
        observation(s, stats.inodes_free if s.counts_inodes else stats.available_bytes, 10 * GIB) for s in signals
    ]
    filesystems = {role: (FilesystemIdentity(f"/{role}", 1, "/dev/sda", "ext4"), stats) for role in (NODEFS, IMAGEFS)}
    return replace(observations_of(*observations), filesystems=filesystems)


SIGNALS = (Signal.NODEFS_AVAILABLE, Signal.IMAGEFS_AVAILABLE)
SOUND = NodeFacts(
    observations=seen(filesystem(), *SIGNALS),
    thresholds=tuple(threshold(signal, "15%") for signal in SIGNALS),
    kubelet=None,
    root_directory="/var/lib/kubelet",
    socket=SocketFacts("/run/containerd/containerd.sock", stat.S_IFSOCK | 0o660, 0),
    wall=1_800_000_000.0,
    runtime=RuntimeVersion("containerd", "2.1.4"),
    sandbox_image="registry.k8s.io/pause:3.10",
    sandbox_image_pinned=True,
    newest_created_seconds_ahead=-5.0,
    imagefs=IMAGES,
    snapshotters={"overlayfs": 40, "native": 0},
    content_device=1,
    inotify_limit=1024,
    inotify_used=12,
    pods_readable=True,
)


CACHE = Signal("buildcache.available")
ITS_DISK = (FilesystemIdentity("/buildcache", 2, "/dev/sdb", "ext4"), filesystem())
WITH_CACHE = replace(
    SOUND,
    observations=replace(
        SOUND.observations, filesystems={**SOUND.observations.filesystems, CACHE.filesystem: ITS_DISK}
    ),
)


def with_row(signal: Signal, function: str = "", frees: str | None = None) -> NodeFacts:
    """A configured row of one function, name and where it frees; without them it is empty."""
    row = (function,) if function else ()
    return replace(WITH_CACHE, rows={signal: row}, configured_rows={signal}, frees={function: frees})


def found(facts: NodeFacts) -> dict[str, Severity]:
    return {finding.check: finding.level for finding in examine(facts)}


def test_rows_as_they_should_be_make_no_finding() -> None:
    """A function frees where its signal is short, or on another filesystem of the same device."""
    rows = {SIGNALS[0]: ("prune", "a-name-of-nothing"), CACHE: ("clean",)}
    frees = {"prune": "imagefs", "clean": "buildcache"}
    its_own = threshold(CACHE, "10%")
    facts = replace(
        WITH_CACHE, rows=rows, configured_rows=set(rows), frees=frees, thresholds=(*SOUND.thresholds, its_own)
    )
    assert not {"row-empty", "row-unused", "row-elsewhere"} & set(found(facts))


def test_a_sound_node_has_no_findings() -> None:
    """Nothing wrong, nothing risky, nothing to note."""
    assert examine(SOUND) == ()
    assert lines(()) == ["nothing is wrong or risky as far as can be seen"]


def on_filesystem(**fields: int) -> NodeFacts:
    return replace(SOUND, observations=seen(filesystem(**fields), *SIGNALS))


@pytest.mark.parametrize(
    ("facts", "check", "level"),
    [
        (replace(SOUND, runtime_problem="no connection"), "runtime", Severity.PROBLEM),
        (replace(SOUND, socket=SocketFacts("/s", stat.S_IFREG | 0o600, 0)), "socket", Severity.PROBLEM),
        (replace(SOUND, socket=SocketFacts("/s", stat.S_IFSOCK | 0o666, 0)), "socket", Severity.RISK),
        (replace(SOUND, socket=SocketFacts("/s", stat.S_IFSOCK | 0o600, 1000)), "socket", Severity.RISK),
        (replace(SOUND, runtime=RuntimeVersion("containerd", "2.0.0")), "containerd-frees-late", Severity.RISK),
        (replace(SOUND, runtime=RuntimeVersion("containerd", "v2.0.4")), "containerd-frees-late", Severity.RISK),
        (replace(SOUND, runtime=RuntimeVersion("containerd", "2.0.4+k3s1")), "containerd-frees-late", Severity.RISK),
        (replace(SOUND, sandbox_image=None, sandbox_image_pinned=False), "sandbox-image", Severity.PROBLEM),
        (replace(SOUND, sandbox_image_pinned=False), "sandbox-image", Severity.RISK),
        (replace(SOUND, unresolved_images=("container 4711",)), "image-unresolved", Severity.PROBLEM),
        (replace(SOUND, thresholds=SOUND.thresholds[:1]), "thresholds-none", Severity.PROBLEM),
        (replace(SOUND, thresholds=()), "thresholds-none", Severity.PROBLEM),
        (replace(SOUND, thresholds=(), observations=observations_of()), "thresholds-none", Severity.PROBLEM),
        (replace(SOUND, defaults_taken="no kubelet is seen"), "kubelet-config", Severity.RISK),
        (replace(SOUND, kubelet_remark="several kubelets run here"), "kubelet-config", Severity.RISK),
        (replace(SOUND, thresholds=(threshold(SIGNALS[0], "11Gi"),)), "thresholds-unreachable", Severity.PROBLEM),
        (replace(SOUND, thresholds=tuple(threshold(s, "0%") for s in SIGNALS)), "thresholds-none", Severity.PROBLEM),
        (on_filesystem(inodes_free=0, inodes_total=0), "no-inode-signal", Severity.NOTE),
        (on_filesystem(free_bytes=5 * GIB + 200 * MIB), "reserve", Severity.NOTE),
        (on_filesystem(available_bytes=0, free_bytes=MIB), "reserve", Severity.RISK),
        (on_filesystem(available_bytes=GIB), "pressure", Severity.PROBLEM),
        (replace(SOUND, inotify_limit=128), "inotify", Severity.NOTE),
        (replace(SOUND, inotify_used=1000), "inotify", Severity.RISK),
        (replace(SOUND, imagefs="/x/io.containerd.snapshotter.v1.devmapper"), "store-elsewhere", Severity.PROBLEM),
        (replace(SOUND, snapshotters={"native": 3}), "store-second-snapshotter", Severity.RISK),
        (replace(SOUND, content_device=2), "store-split", Severity.RISK),
        (replace(SOUND, unmatched_keeps=("registry.example/ap",)), "keep-unmatched", Severity.RISK),
        (replace(SOUND, wall=1000.0), "clock", Severity.PROBLEM),
        (replace(SOUND, newest_created_seconds_ahead=3600.0), "clock", Severity.RISK),
        (replace(SOUND, pods_readable=False), "permissions", Severity.PROBLEM),
        (replace(SOUND, unwritable=(("/var/log/pods", "read-only"),)), "permissions", Severity.RISK),
        (replace(SOUND, history_problem="/h is left alone: it is not a regular file"), "history", Severity.RISK),
        (replace(SOUND, kubelet_problem="401 Unauthorized"), "kubelet-list", Severity.RISK),
        (replace(SOUND, held=HeldImages(3, 90 * MIB, 100)), "terminated-pods", Severity.RISK),
        (replace(SOUND, daemon_problem="no daemon answers"), "daemon", Severity.NOTE),
        (replace(SOUND, held_off="paused until 2027"), "held-off", Severity.RISK),
        (replace(SOUND, dry_run=True), "dry-run", Severity.RISK),
        (with_row(SIGNALS[0]), "row-empty", Severity.PROBLEM),
        (replace(SOUND, rows={SIGNALS[0]: ()}), "row-empty", Severity.NOTE),
        (with_row(CACHE, "prune", "buildcache"), "row-unused", Severity.RISK),
        (with_row(CACHE, "prune", "nodefs"), "row-elsewhere", Severity.RISK),
        (replace(SOUND, function_problems=(("prune", "it does not exist"),)), "function", Severity.PROBLEM),
    ],
)  # fmt: skip
def test_each_check_makes_its_finding(facts: NodeFacts, check: str, level: Severity) -> None:
    """With its level; evidence and remedy are never empty; only notes leave the node healthy."""
    findings = examine(facts)
    assert (check, level) in {(finding.check, finding.level) for finding in findings}
    assert all(finding.sentence and finding.evidence and finding.remedy for finding in findings)
    assert healthy(findings) is all(finding.level is Severity.NOTE for finding in findings)


@pytest.mark.parametrize("version", ["1.6.20", "1.7.27", "2.0.5", "2.1.0", "2.0.40", "", "unknown"])
def test_other_versions_of_containerd_have_no_finding(version: str) -> None:
    """Only 2.0.0 to 2.0.4 do not; CRI-O of the same number is another program."""
    assert "containerd-frees-late" not in found(replace(SOUND, runtime=RuntimeVersion("containerd", version)))
    assert "containerd-frees-late" not in found(replace(SOUND, runtime=RuntimeVersion("cri-o", "2.0.1")))


def test_a_mark_of_the_kubelets_of_a_few_bytes_is_found(tmp_path: Path) -> None:
    """The `10` that was to be `10%`; it is legal there."""
    path = tmp_path / "kubelet.yaml"
    head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    path.write_text(head + "evictionHard: {nodefs.available: '10'}\n")
    facts = replace(SOUND, kubelet=load(None, {}, {"kubeletConfig": str(path)}).kubelet)
    (tiny,) = (finding for finding in examine(facts) if finding.check == "thresholds-tiny")
    assert (tiny.level, tiny.evidence) == (Severity.RISK, f"nodefs.available: 10 in {path}")


def test_a_threshold_later_than_the_kubelets_is_found(tmp_path: Path) -> None:
    """With both numbers; that the kubelet's own image collection is off is worth a note."""
    path = tmp_path / "kubelet.yaml"
    path.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "evictionHard: {nodefs.available: 20%}\nimageGCHighThresholdPercent: 100\n"
    )
    loaded = load(None, {}, {"kubeletConfig": str(path)})
    facts = replace(SOUND, kubelet=loaded.kubelet)
    assert found(facts)["thresholds-late"] is Severity.RISK
    assert found(facts)["image-gc-off"] is Severity.NOTE
    late = next(finding for finding in examine(facts) if finding.check == "thresholds-late")
    assert "15%" in late.evidence
    assert "20%" in late.evidence
    earlier = replace(facts, thresholds=tuple(threshold(signal, "25%") for signal in SIGNALS))
    assert "thresholds-late" not in found(earlier)


@pytest.mark.parametrize(
    ("kubelets", "ending"),
    [("1Mi", "; not below the kubelet's own mark"), ("2Gi", "; below the kubelet's own mark, too")],
)
def test_pressure_is_told_with_whether_the_kubelets_own_mark_is_crossed(
    tmp_path: Path, kubelets: str, ending: str
) -> None:
    """1 GiB is available; nothing is said of a kubelet whose configuration is not known."""
    path = tmp_path / "kubelet.yaml"
    head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    path.write_text(f"{head}evictionHard: {{nodefs.available: {kubelets}}}\n")
    facts = on_filesystem(available_bytes=GIB)
    beside = replace(facts, kubelet=load(None, {}, {"kubeletConfig": str(path)}).kubelet)
    (evidence,) = (one.evidence for one in examine(beside) if one.sentence == "nodefs.available is below its mark")
    assert evidence.endswith(ending)
    assert not any("kubelet's own mark" in one.evidence for one in examine(facts))


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
    path = tmp_path / "kubelet.yaml"
    head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    path.write_text(f"{head}featureGates: {{KubeletSeparateDiskGC: {gate}}}\n")
    facts = replace(
        SOUND,
        observations=replace(SOUND.observations, layout=layout),
        runtime=RuntimeVersion(runtime, "1.36.0"),
        kubelet=load(None, {}, {"kubeletConfig": str(path)}).kubelet,
    )
    assert ("separate-disk-gc-off" in found(facts)) is told
    path.write_text(head)
    facts = replace(facts, kubelet=load(None, {}, {"kubeletConfig": str(path)}).kubelet)
    assert "separate-disk-gc-off" not in found(facts)


@pytest.mark.parametrize(
    ("mount", "told"),
    [
        (Mount("/", "8:1", "ext4", "/dev/sda", ("rw", "relatime")), None),
        (Mount("/", "8:1", "ext4", "/dev/sda", ("ro",)), "ext4 on /nodefs, mounted with ro"),
        (Mount("/", "8:1", "xfs", "/dev/sda", ("allocsize=64k",)), "xfs on /nodefs, mounted with allocsize=64k"),
        (Mount("/", "8:1", "tmpfs", "none", ("rw",)), "tmpfs on /nodefs, mounted with no option that matters for them"),
        (Mount("/", "8:1", "zfs", "tank", ("rw",)), None),
        (None, None),
    ],
)
def test_what_of_a_filesystems_numbers_can_jump_is_a_note(mount: Mount | None, told: str | None) -> None:
    """Of one whose numbers do not, and has no option that matters, there is none; of an unknown type neither."""
    filesystems = filesystem_facts(SOUND.observations, {} if mount is None else {"/nodefs": mount})
    findings = examine(replace(SOUND, filesystems=filesystems))
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
    observations = SOUND.observations
    seen_as = {role: (replace(one, type="xfs"), stats) for role, (one, stats) in observations.filesystems.items()}
    if mount is None:
        observations = replace(observations, filesystems=seen_as)
    filesystems = filesystem_facts(observations, {} if mount is None else {"/nodefs": mount})
    findings = found(replace(SOUND, filesystems=filesystems))
    assert findings.get("xfs-preallocation") is (Severity.RISK if told else None)


def test_a_filesystem_that_does_not_answer_is_found_once() -> None:
    """Its reason is the evidence; a runtime that is down has its own finding."""
    hung = replace(SOUND.observations, unavailable=(Unavailable(NODEFS, "no answer within 2 s"),))
    assert found(replace(SOUND, observations=hung))["readings"] is Severity.PROBLEM
    away = replace(SOUND.observations, unavailable=(Unavailable(IMAGEFS, "no connection"),))
    assert set(found(replace(SOUND, observations=away, runtime_problem="no connection"))) == {"runtime"}


def test_unknown_facts_make_no_findings() -> None:
    """A node of which only is known that its runtime is down: one problem, no guesses."""
    marks = SOUND.thresholds
    bare = NodeFacts(observations_of(), marks, None, "/r", None, 1_800_000_000.0, runtime_problem="away")
    assert found(bare) == {"runtime": Severity.PROBLEM}


def test_the_worst_comes_first() -> None:
    """Problems, risks, notes; a line for the evidence and one for the remedy, and the count at the end."""
    facts = replace(SOUND, inotify_limit=128, unmatched_keeps=("x",), pods_readable=False)
    findings = examine(facts)
    assert [finding.level for finding in findings] == [Severity.PROBLEM, Severity.RISK, Severity.NOTE]
    shown = lines(findings)
    assert shown[0].startswith("PROBLEM  ")
    assert shown[1].startswith("  seen: ")
    assert shown[2].startswith("  do:   ")
    assert shown[-1] == "1 note, 1 problem, 1 risk"


def test_control_characters_do_not_reach_the_terminal() -> None:
    """A keep-list entry may hold anything."""
    shown = lines((Finding("keep-unmatched", Severity.RISK, "s", "\x1b[2J\n", "r"),))
    assert "\x1b" not in "".join(shown)
    assert all("\n" not in line for line in shown)


def test_every_check_is_in_the_list() -> None:
    """Every check in the module is run."""
    written = {name for name in vars(checks) if name.startswith("check_")}
    assert written == {check.__name__ for check in CHECKS}

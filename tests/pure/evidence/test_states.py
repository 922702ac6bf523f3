"""Which pods exist, by the kubelet's directories.

Source: kubelet, `pkg/kubelet/kubelet_volumes.go` (cleanupOrphanedPodDirs).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reclaim.evidence.directories import KubeletDirectories
from reclaim.evidence.states import PodDirectory, PodStates, RootIdentity
from reclaim.kubelet.pods import KubeletPods
from reclaim.types import Listing, PodSandbox, PodSandboxState
from tests.pure.values import SteppedClock

UID = "6b6a1b0a-4bd8-4b1a-a0a3-1c5f2f0f8e11"


@pytest.mark.parametrize(
    ("present", "uid", "gone"),
    [
        (frozenset({UID}), UID, False),
        (frozenset(), UID, True),
        (None, UID, False),
        (frozenset(), "", False),
    ],
)
def test_a_pod_is_gone_when_it_is_known_not_to_exist(
    present: frozenset[str] | None, uid: str, gone: bool
) -> None:
    """Not when nothing is known, and never the empty UID."""
    assert PodStates(present).gone(uid) is gone


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (frozenset("a"), frozenset("b"), frozenset("ab")),
        (frozenset("a"), None, None),
        (None, frozenset("b"), None),
        (None, None, None),
        (frozenset(), frozenset(), frozenset()),
    ],
)
def test_two_observations_are_merged_to_the_more_careful_one(
    one: frozenset[str] | None, other: frozenset[str] | None, both: frozenset[str] | None
) -> None:
    """A pod exists if it is in either; nothing is known if either is unknown."""
    assert PodStates(one).merge(PodStates(other)) == PodStates(both)


def test_the_directories_below_pods_are_the_pods(tmp_path: Path) -> None:
    """In the list of all, and one by one."""
    (tmp_path / "pods" / UID).mkdir(parents=True)
    directories = KubeletDirectories(str(tmp_path))
    assert directories.pod_states() == PodStates(frozenset({UID}))
    assert not directories.pod_states().gone(UID)
    assert directories.pod_states().gone("another-uid")


def test_without_the_directory_of_pods_no_pod_is_gone(tmp_path: Path) -> None:
    """A wrong root directory, or a node without a kubelet, licenses nothing."""
    directories = KubeletDirectories(str(tmp_path))
    assert directories.pod_states() == PodStates(None)
    assert not directories.pod_states().gone(UID)


def test_with_a_file_in_the_place_of_the_directory_nothing_is_known(tmp_path: Path) -> None:
    """What cannot be listed is not empty."""
    (tmp_path / "pods").write_text("")
    directories = KubeletDirectories(str(tmp_path))
    assert directories.pod_states() == PodStates(None)
    assert not directories.pod_states().gone(UID)


@pytest.mark.parametrize(
    "uid",
    [
        "",
        ".",
        "..",
        "../..",
        "../pods",
        "a/b",
        "/",
        "/etc",
        "nothing/..",
        "a\0b",
        "x" * 256,
        "x" * 10_000,
    ],
)
def test_a_hostile_uid_never_counts_as_gone(tmp_path: Path, uid: str) -> None:
    """A UID comes from the runtime: one that is no plain name of a file belongs to no pod."""
    (tmp_path / "pods").mkdir()
    assert not KubeletDirectories(str(tmp_path)).pod_states().gone(uid)


def test_the_directories_of_pods_and_of_their_containers_tell_when_they_changed_last(
    tmp_path: Path,
) -> None:
    """What lies deeper does not count, nor what is no directory.

    Without the directory of pods nothing is known.
    """
    directories = KubeletDirectories(str(tmp_path))
    assert directories.pod_directories() is None
    pods = tmp_path / "pods"
    pods.mkdir()
    assert directories.pod_directories() == {}
    for uid, when in (("a", 100.0), ("b", 300.0), ("c", 200.0)):
        (pods / uid / "containers").mkdir(parents=True)
        os.utime(pods / uid, (when, when))
    (pods / "b" / "containers").rmdir()
    os.utime(pods / "b", (300.0, 300.0))
    for name, when in (("init", 110.0), ("app", 120.0)):
        (pods / "a" / "containers" / name / "deeper").mkdir(parents=True)
        os.utime(pods / "a" / "containers" / name, (when, when))
    (pods / "a" / "containers" / "file").touch()
    assert directories.pod_directories() == {
        "a": PodDirectory(100.0, {"init": 110.0, "app": 120.0}),
        "b": PodDirectory(300.0),
        "c": PodDirectory(200.0),
    }


@pytest.mark.parametrize("place", ["a", "a/containers", "a/containers/app"])
def test_no_symlink_is_followed_to_the_directory_of_a_container(tmp_path: Path, place: str) -> None:
    """One in the place of a pod or a container has no containers; one in the place of all
    containers makes the look unknown, as nobody can tell what is being made there."""
    real = tmp_path / "real"
    (real / "containers" / "app").mkdir(parents=True)
    link = tmp_path / "pods" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(real if place == "a" else real / "containers")
    found = KubeletDirectories(str(tmp_path)).pod_directories()
    if place == "a/containers":
        assert found is None
    else:
        assert found is not None
        assert not found["a"].containers


def test_a_dangling_link_is_a_pod(tmp_path: Path) -> None:
    """No symlink is followed: an entry of this name is enough."""
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods" / UID).symlink_to("/nowhere")
    assert not KubeletDirectories(str(tmp_path)).pod_states().gone(UID)


def test_reading_creates_nothing(tmp_path: Path) -> None:
    """Neither below a root that exists nor one that does not."""
    for root in (tmp_path, tmp_path / "none"):
        KubeletDirectories(str(root)).pod_states()
        KubeletDirectories(str(root)).pod_directories()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("uid", ["../..", "a/b", "", ".", "\ud800", "a b", "x" * 300])
def test_plan_and_last_check_agree_on_invalid_uids(tmp_path: Path, uid: str) -> None:
    """An invalid UID is never gone, neither for the plan nor right before a removal."""
    (tmp_path / "pods").mkdir()
    directories = KubeletDirectories(str(tmp_path))
    assert not directories.pod_states().gone(uid)
    pods = KubeletPods(directories, SteppedClock())
    pods.compared(pods.read(), Listing())
    assert not pods.gone(uid)


def believed(pods: KubeletPods) -> None:
    """The directories are compared with a runtime in which their one pod runs."""
    runs = PodSandbox("s", PodSandboxState.READY, 1, "web")
    assert pods.compared(pods.read(), Listing(sandboxes=(runs,))).doubt is None


def test_a_pod_is_gone_only_in_the_directories_that_are_meant(tmp_path: Path) -> None:
    """Root and `pods` both count, by device and inode: another root, and another
    `pods` in it, are others.
    """
    (tmp_path / "root" / "pods" / "web").mkdir(parents=True)
    directories = KubeletDirectories(str(tmp_path / "root"))
    pods = KubeletPods(directories, SteppedClock())
    believed(pods)
    first = directories.pod_states().identity
    assert pods.gone(UID)
    (tmp_path / "root" / "pods").rename(tmp_path / "pods")
    assert directories.pod_states().identity is None
    assert not pods.gone(UID)
    (tmp_path / "root" / "pods" / "web").mkdir(parents=True)
    second = directories.pod_states().identity
    assert second not in (None, first)
    assert not pods.gone(UID)
    believed(pods)
    assert pods.gone(UID)
    (tmp_path / "root").rename(tmp_path / "old")
    (tmp_path / "root").mkdir()
    (tmp_path / "old" / "pods").rename(tmp_path / "root" / "pods")
    assert directories.pod_states().identity not in (first, second)
    assert not pods.gone(UID)


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    """The system's own words, in one sentence with the path."""
    states = KubeletDirectories(str(tmp_path)).pod_states()
    assert states.doubt is not None
    assert (
        states.doubt.sentence
        == f"{tmp_path}/pods cannot be read (No such file or directory), so which pods are gone is"
        " not known"
    )


def test_readings_of_two_directories_are_no_reading() -> None:
    """Neither list is that of one moment in one place."""
    one, other = (
        PodStates(frozenset({"a"}), identity=RootIdentity((1, 1), (1, number))) for number in (2, 3)
    )
    merged = one.merge(other)
    assert merged.present is None
    assert merged.doubt is not None
    assert not merged.gone("b")

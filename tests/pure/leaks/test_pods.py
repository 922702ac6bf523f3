"""Directories of pods that are gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from reclaim.evidence.states import PodState, PodStates, Why, doubt
from reclaim.leaks import LeakKind, NotKnown, unowned_pod_directories
from reclaim.types import Container, ContainerState, Listing, PodSandbox, PodSandboxState

ALL = ("listed", "contained", "sandboxed", "gone", "mounted")
LISTING = Listing(
    containers=(Container("c", "app", ContainerState.EXITED, 0, "contained"),),
    sandboxes=(PodSandbox("s", PodSandboxState.NOTREADY, 0, "sandboxed"),),
)


def states(**fields: object) -> PodStates:
    """All have a directory, and the kubelet lists one."""
    known: dict[str, object] = {"present": frozenset(ALL), "kubelet": {"listed": PodState(terminated=True)}}
    return PodStates(**{**known, **fields})  # type: ignore[arg-type] # the fields of a test


@pytest.fixture
def pods(tmp_path: Path) -> Path:
    """The directory with all of them."""
    for uid in ALL:
        (tmp_path / uid / "volumes" / "kubernetes.io~empty-dir" / "cache").mkdir(parents=True)
    return tmp_path


def test_only_what_kubelet_and_runtime_lack_and_nobody_has_mounted_is_unowned(pods: Path) -> None:
    """A pod that has finished is listed until it is deleted. Since its directory, or one of a plugin, has changed."""
    mounts = [f"{pods}/mounted/volumes/kubernetes.io~csi/pvc rw", f"{pods}-other rw"]
    (found,) = unowned_pod_directories(str(pods), states(), LISTING, mounts)
    assert (found.kind, found.name, found.path) == (LeakKind.POD_DIRECTORY, "gone", f"{pods}/gone")
    assert found.since == (pods / "gone" / "volumes" / "kubernetes.io~empty-dir").stat().st_ctime


@pytest.mark.parametrize(
    "unknown",
    [
        {"kubelet": None},
        {"sources_ready": False},
        {"present": None},
        {"doubt": doubt(Why.RUNS_WITHOUT, "a pod runs without a directory")},
    ],
)
def test_without_the_kubelets_whole_list_and_trusted_directories_nothing_is_known(
    pods: Path, unknown: dict[str, object]
) -> None:
    """It is said why."""
    with pytest.raises(NotKnown, match=r"which pods are gone|cannot be read"):
        list(unowned_pod_directories(str(pods), states(**unknown), LISTING, ()))


def test_a_directory_that_has_just_gone_is_not_looked_at(pods: Path) -> None:
    """It was there when the lists were read."""
    (found,) = unowned_pod_directories(str(pods), states(present=frozenset({"gone", "went"})), LISTING, ())
    assert found.name == "gone"


def test_what_is_no_uid_is_not_looked_at(pods: Path) -> None:
    """Whatever its name is."""
    found = unowned_pod_directories(str(pods), states(present=frozenset({"..", ".hidden", "a b"})), LISTING, ())
    assert list(found) == []

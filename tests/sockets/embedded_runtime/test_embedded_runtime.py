"""What the embedded runtime answers: containerd's rules, each as the call of a careless client; the
dialects of other runtimes, and relief on each of them; and the private mounts in which it lives.

Nothing is protected by it. Its disk is real, and so is its socket.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eviction.drill.embedded import FaultSchedule, failpoint_of
from eviction.drill.private_mounts import EmbeddedNodeError, mount_tmpfs
from eviction.drill.runtime import EmbeddedServer, LayerSpec
from eviction.drill.scenario import Fault
from reclaim.cri import cri_pb2 as pb
from signals.types import Signal
from tests.nodes.bare_runtime import APP, NAME, BareRuntime
from tests.nodes.dialects import CONTAINERD_2_0, CRI_O_1_31, CRI_O_1_36, DIALECTS
from tests.nodes.faults import Pretend
from tests.nodes.small_node import EVERYTHING, IMAGES, MIB, reason_of, relieve, result_of
from tests.reclaimd_process import came_true
from tests.repository import ROOT
from tests.rows import rows
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.cri_calls import run_container, run_pod
from tests.sockets.kubelet_server import KubeletServer, answer, pod_list
from tests.sockets.mounts import need_mounts


@pytest.fixture
def crowd(node: BareRuntime) -> dict[str, str]:
    """The ids in a runtime with two pods: `web` has a container that runs and one that has
    exited."""
    ids = {name: run_pod(node.calls, name) for name in ("web", "other")}
    for name in ("running", "exited"):
        ids[name] = run_container(node.calls, ids["web"], name, NAME)
    node.runtime.exit_container(ids["exited"])
    image = node.call("ImageStatus", image={"image": NAME}).image
    return {**ids, "app": image.id, "digest": image.repo_digests[0], "pause": node.pause_id}


@rows("""
    method           | names                            | cut  | gone               | error
    RemoveContainer  | running                          |      | running            |
    RemoveContainer  | exited                           | 0:6  | exited             |
    RemovePodSandbox | web                              |      | running exited web |
    RemovePodSandbox | other                            | 0:6  | other              |
    RemoveImage      | registry.example/team/app:1      |      | image              |
    RemoveImage      | registry.example/team/app:stable |      | image              |
    RemoveImage      | digest                           |      | image              |
    RemoveImage      | app                              |      | image              |
    RemoveImage      | app                              | 7:13 | image              |
    RemoveImage      | app                              | 0:13 | image              |
    RemoveImage      | pause                            |      | image              |
    RemoveContainer  | absent                           |      |                    |
    RemovePodSandbox | absent                           |      |                    |
    RemoveImage      | registry.example/absent:1        |      |                    |
    StopContainer    | absent                           |      |                    |
    StopPodSandbox   | absent                           |      |                    |
    ContainerStatus  | absent                           |      |                    | NOT_FOUND
    PodSandboxStatus | absent                           |      |                    | NOT_FOUND
    RemoveContainer  |                                  |      |                    | UNKNOWN
    RemoveImage      |                                  |      |                    | UNKNOWN
""")
def test_a_removal_removes_whatever_is_named(
    node: BareRuntime,
    crowd: dict[str, str],
    method: str,
    names: str,
    cut: str,
    gone: str,
    error: str,
) -> None:
    """What runs, what is in use, what is pinned, with all of its names; by its id, a digest, or a
    part of the id (`cut`). One that is done twice succeeds and does nothing."""
    wanted: Any = crowd.get(names, names)
    if cut:
        wanted = wanted[slice(*map(int, cut.split(":")))]
    kinds = {"Container": "container_id", "Sandbox": "pod_sandbox_id"}
    field = next((name for kind, name in kinds.items() if kind in method), "image")
    fields: dict[str, Any] = {field: {"image": wanted} if field == "image" else wanted}
    if error:
        assert node.error(method, **fields)[0].name == error
    for _ in range(0 if error else 2):
        node.call(method, **fields)
    of_id = {each: name for name, each in crowd.items() if name not in ("app", "pause")}
    assert [of_id.get(each.id, each.kind) for each in node.runtime.removals] == gone.split()
    if gone == "image":
        assert len(node.images()) == 1
        assert node.has_layer(APP), "its containers stand on its layers"


# ---- the disk


def test_what_the_disk_holds_is_real_and_counted(node: BareRuntime) -> None:
    """Layers have their inodes, and are not all zeros; a writable layer has what was written.
    ImageFsInfo names the directory, and counts all of it."""
    web = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    for _ in range(2):
        node.runtime.write_to_container(web, 5_000)
    files = list((node.root / "layers" / APP.digits).rglob("*"))
    assert len(files) + 1 == 301
    assert all(len(set(file.read_bytes())) > 50 for file in files if file.is_file())
    assert sum(file.stat().st_size for file in node.writable(web).iterdir()) == 10_000
    everything = [each for top in ("layers", "containers") for each in (node.root / top).rglob("*")]
    info = node.call("ImageFsInfo")
    for found in (*info.image_filesystems, *info.container_filesystems):
        assert found.fs_id.mountpoint == str(node.root)
        assert found.inodes_used.value == len(everything)
        assert found.used_bytes.value == sum(each.stat().st_blocks * 512 for each in everything)


@pytest.mark.parametrize("by", ["time", "the next image", "the end"])
def test_the_space_of_a_container_is_freed_later(tmp_path: Path, by: str) -> None:
    """With the next image that is removed at the latest, as its removal waits for the runtime's
    garbage collection; and no thread is left behind."""
    before = set(threading.enumerate())
    node = BareRuntime(tmp_path, container_space_delay_seconds=0.5 if by == "time" else 60.0)
    web = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    node.call("RemoveContainer", container_id=web)
    node.call("RemoveImage", image={"image": "registry.example/absent:1"})
    assert node.containers() == []
    if by == "the next image":
        assert node.writable(web).exists()
        node.call("RemoveImage", image={"image": node.app_id})
        assert not node.writable(web).exists()
    elif by == "time":
        assert came_true(lambda: not node.writable(web).exists())
    node.close()
    assert not node.writable(web).exists()
    assert came_true(lambda: not set(threading.enumerate()) - before, within_seconds=30.0)


# ---- the server


def test_an_impossible_socket_path_is_refused(node: BareRuntime, tmp_path: Path) -> None:
    """Too long for sun_path, or in a directory that does not exist. Only the own user may connect to
    one."""
    assert stat.S_IMODE(os.stat(node.server.socket_path).st_mode) == 0o600
    for path in ("/" + "x" * 107, str(tmp_path / "absent" / "s")):
        with pytest.raises(EmbeddedNodeError, match="cannot listen"):
            EmbeddedServer(node.runtime, path).start()


# ---- its failpoints


def test_a_fault_of_a_scenario_does_not_end_a_later_one_of_its_method(node: BareRuntime) -> None:
    """The first ends while the second, which has replaced it, lasts on."""
    first = {"action": "hang", "method": "ListImages", "at": "0s", "lasts": "200ms"}
    second = Fault.model_validate({"action": "fail", "method": "ListImages", "at": "100ms"})
    schedule = FaultSchedule((Fault.model_validate(first), second), node.server, [])
    schedule.start(time.monotonic())
    assert came_true(lambda: not schedule.running)
    assert node.server.failpoints["ListImages"] == failpoint_of(second)
    schedule.stop()


# ---- dialects

CRI_O = [name for name, dialect in DIALECTS.items() if dialect.is_cri_o]
MODEL, SAME = "registry.example/model:1", "registry.example/model:2"
FULL = "no space left on device"


# ---- what the runtime does


@pytest.mark.parametrize("name", CRI_O)
def test_what_cri_o_does_otherwise(tmp_path: Path, name: str) -> None:
    """`image_ref` of the list is a repository digest, ids are bare, and only newer versions fill
    image_id. A name is removed alone, an image by its last name or its id; one in use by a
    container is refused, and what is no full name fails."""
    node = BareRuntime(tmp_path, dialect=DIALECTS[name])
    web = run_container(node.calls, run_pod(node.calls, "web"), "web", NAME)
    (container,), image = node.containers(), node.call("ImageStatus", image={"image": NAME}).image
    assert container.image_ref == image.repo_digests[0]
    assert container.image_id == (image.id if DIALECTS[name].fills_image_id else "")
    assert len(image.id) == 64
    assert f"image used by {web}: " in node.error("RemoveImage", image={"image": node.app_id})[1]
    for tag, is_there in ((NAME, True), ("registry.example/team/app:stable", False)):
        node.call("RemoveImage", image={"image": tag})
        assert not node.call("ImageStatus", image={"image": tag}).HasField("image")
        assert node.has_layer(APP) is is_there
        node.call("RemoveContainer", container_id=web)
    assert "short-name" in node.error("ImageStatus", image={"image": "busybox:1"})[1]
    node.close()


# ---- what the product does about it


def test_cri_o_on_a_full_disk_can_delete_nothing(make_small_node: SmallNodeFactory) -> None:
    """Before a deletion it writes a new list, which needs a free block and a free inode."""
    small = make_small_node(dialect=CRI_O_1_31)
    (image,) = small.add_images(1)
    dead = small.gone_pod("gone")
    for size_bytes, inodes, file in (
        (small.available(), 0, "grown"),
        (0, small.inodes_free(), "grown-0"),
    ):
        small.fill(size_bytes, inodes)
        record = relieve(small.node(), EVERYTHING)
        assert small.removed() == []
        assert {result_of(record, each) for each in (image, dead)} == {"failed"}
        assert all(FULL in outcome.error for outcome in record.removals)
        (small.disk / file).unlink()
    relieve(small.node(), EVERYTHING)
    assert {image, dead} <= set(small.removed())


def test_late_space_of_images_is_waited_for(make_small_node: SmallNodeFactory) -> None:
    """The space of the first image is freed 0.1 s after the answer; no
    second image is removed for it.
    """
    small = make_small_node(dialect=CONTAINERD_2_0)
    first, *others = small.add_images(3)
    small.run(small.run_pod("web"))
    record = relieve(small.node(Signal.NODEFS_AVAILABLE, above=3 * MIB))
    assert small.removed("image") == [first]
    assert {reason_of(record, each) for each in others} == {"relieved"}
    assert str(record.result) == "satisfied"


def test_cri_os_artifacts_are_removed_with_all_their_names(
    make_small_node: SmallNodeFactory,
) -> None:
    """One of two names, one that a container has mounted, and one that is
    pinned; beside an image.
    """
    small = make_small_node(dialect=CRI_O_1_36)
    layers = [LayerSpec("model", MIB)]
    model, _ = [small.runtime.add_image([name], layers, is_artifact=True) for name in (MODEL, SAME)]
    small.first_detected[model] = small.first_detected[small.app_id]
    mounted = small.add_image("registry.example/mounted:1", is_artifact=True)
    pinned = small.add_image("registry.example/pinned:1", is_artifact=True, pinned=True)
    (old,) = small.add_images(1)
    small.create(small.run_pod("web"), mounts=[pb.Mount(image=pb.ImageSpec(image=mounted))])
    record = relieve(small.node(), EVERYTHING)
    assert {result_of(record, each) for each in (model, old)} == {"removed"}
    assert not {model, old} & small.images()
    assert {mounted, pinned} <= small.images()
    assert [reason_of(record, each) for each in (mounted, pinned)] == ["in_use", "pinned"]


def test_an_image_whose_removal_did_nothing_counts_nothing_and_holds_up_nothing(
    make_small_node: SmallNodeFactory,
) -> None:
    """One of three images is removed with success and still there: the others go, and it
    is not tried again at once.
    """
    small = make_small_node(dialect=CRI_O_1_36)
    images = set(small.add_images(3))
    node = small.node(imageMinimumGCAge="2m")
    small.failpoints["RemoveImage"] = Pretend(times=1)
    record = relieve(node, IMAGES)
    (vain,) = [outcome for outcome in record.removals if str(outcome.result) == "failed"]
    assert ("still has it" in vain.error, vain.freed.bytes) == (True, 0)
    assert images - {vain.verdict.id} <= set(small.removed("image"))
    assert reason_of(relieve(node, IMAGES), vain.verdict.id) == "too_young"


@pytest.mark.parametrize("name", ["NoSuchName", "busybox:1"])
def test_a_pod_whose_image_is_no_full_name_stops_nothing(
    make_small_node: SmallNodeFactory, name: str
) -> None:
    """CRI-O fails when it is asked what that is. An image that the name could mean stays."""
    small = make_small_node(dialect=CRI_O_1_36)
    busybox, old = map(small.add_image, ("localhost/busybox:1", "registry.example/old:1"))
    small.run(small.run_pod("web"))
    pod = {
        "metadata": {"uid": "uid-new", "annotations": {"kubernetes.io/config.source": "api"}},
        "spec": {"containers": [{"image": name}, {"image": "registry.example/later:1"}]},
        "status": {"phase": "Pending"},
    }
    with KubeletServer(answer(pod_list(pod))) as kubelet:
        relieve(small.node(kubeletEndpoint=kubelet.url), IMAGES)
    assert old in small.removed("image")
    assert (busybox in small.images()) is (name == "busybox:1")


# ---- private mounts: who may have them, their limits, and that nothing is left behind

NOBODY = 65534


@pytest.fixture
def directory() -> Iterator[str]:
    """An empty directory that every user may enter, which pytest's own are not."""
    path = tempfile.mkdtemp(prefix="reclaimd-test-")
    os.chmod(path, 0o777)  # noqa: S103 - the child may run as another user, and the directory is removed after the test
    yield path
    shutil.rmtree(path)


def command(function: str, directory: str, user: int | None = None) -> list[str]:
    """If the tests do not run as root, `user` is ignored."""
    as_user = [str(user)] if user is not None and os.geteuid() == 0 else []
    return [sys.executable, "-m", "tests.sockets.namespace_child", function, directory, *as_user]


def run_child(function: str, directory: str, user: int | None = None) -> dict[str, Any]:
    """What the child printed.

    With `user` it ran as that user and group, without other groups and capabilities.
    """
    done = subprocess.run(
        command(function, directory, user),
        cwd=str(ROOT),
        capture_output=True,
        text=True,
        timeout=30,
    )
    if "no private mounts:" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def need_root() -> None:
    """Skips the test without root and CAP_SYS_ADMIN."""
    with open("/proc/self/status", encoding="ascii") as status:
        (effective,) = (line.split()[1] for line in status if line.startswith("CapEff"))
    if os.geteuid() != 0 or not int(effective, 16) & 1 << 21:
        pytest.skip("needs root and CAP_SYS_ADMIN")


def test_what_the_node_unmounts_is_not_held_until_the_drill_ends(directory: str) -> None:
    """Nor is seen outside what the drill mounts."""
    need_root()
    found = {"before": True, "seen_outside": False, "after": False}
    assert run_child("unmounted_outside", directory) == found


def test_what_is_not_possible_has_a_reason(directory: str) -> None:
    """Only one of several threads would move; a directory is not there. Where neither way is allowed:
    `tests/sockets/cli/test_terminal.py`."""
    answer = run_child("enter_beside_a_thread", directory)
    assert not answer["how"]
    assert "before the first thread starts; 2 are running" in answer["reason"]
    need_mounts()
    with pytest.raises(EmbeddedNodeError, match=f"made: {directory}/absent: No such file or dir"):
        mount_tmpfs(f"{directory}/absent", MIB, 16)


def test_below_directories_of_the_machines_root_a_socket_is_trusted_in_a_user_namespace(
    directory: str,
) -> None:
    """There nobody knows that root, who appears as the overflow user.

    Who may write a directory counts all the same.
    """
    need_root()
    found = run_child("trust", directory, 12345)
    assert (found["owner of /"], found["private"]) == (NOBODY, None)
    assert "every user may write its directory" in found["open"]

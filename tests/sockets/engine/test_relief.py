"""How much goes, and from where: until the thresholds are clear as the filesystem shows, by the row
of the layout that the mounts make; what the configuration keeps stays in every mode; logs go with
their containers, and a restart makes no image young or old. What the runtime answers, and what then
goes: only complete answers permit a removal; an error is no failure, a success no absence; nothing
is cancelled, and a mount stops a pass at once. Functions, rows and filesystems of a configuration are
called, measured and told like the product's own.

Every code of every method: `tests/faults/test_answers.py`; every end of a pass:
`tests/pure/engine/test_engine.py`.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from eviction.configuration.effective import load
from eviction.drill.private_mounts import EmbeddedNodeError, mount_tmpfs, unmount
from eviction.engine.view import NodeView
from eviction.surface.check import CheckOptions, check
from eviction.types import Extent
from reclaim.cri import cri_pb2 as pb
from reclaim.types import DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES
from signals.types import FsLayout, Signal
from tests.nodes.dialects import CRI_O_1_36
from tests.nodes.faults import ActThenFail, Delay, Fail
from tests.nodes.interrupting_server import InterruptingServer, Once
from tests.nodes.later import Later
from tests.nodes.small_node import (
    EVERYTHING,
    IMAGES,
    MIB,
    SmallNode,
    outcome_of,
    reason_of,
    relieve,
)
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd_here
from tests.rows import rows
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.mounts import tmpfs
from tests.sockets.passes import reworded
from tests.sockets.stage import Stage

# ---- how much


@rows("""
    above_mib | reclaim_mib | goes
    1         | 0           | 1
    4         | 0           | 1
    5         | 0           | 2
    1         | 4           | 2
    3         | 8           | 3
""")
def test_it_stops_when_the_mark_and_the_minimum_reclaim_are_reached(
    small_node: SmallNode, above_mib: int, reclaim_mib: int, goes: int
) -> None:
    """Purging everything is the kubelet's way; here just as many images of 4 MiB go as are
    needed, the oldest first.
    """
    images = small_node.add_images(6)
    small_node.run(small_node.run_pod("web"))
    node = small_node.node(
        Signal.NODEFS_AVAILABLE,
        above=above_mib * MIB,
        evictionMinimumReclaim={"nodefs.available": f"{reclaim_mib}Mi", "imagefs.available": "0"},
    )
    record = relieve(node)
    assert small_node.removed() == images[:goes]
    assert str(record.result) == "satisfied"
    assert {reason_of(record, each) for each in images[goes:]} == {"relieved"}


@rows("""
    there | above_mib | mib
    4     | 5         | 6
    3     | 10        | 14
""")
def test_measured_bytes_are_those_of_the_filesystem_and_nominal_ones_count_shared_layers_twice(
    small_node: SmallNode, there: int, above_mib: int, mib: int
) -> None:
    """Of three images with 2 MiB of their own and a layer of 8 MiB, which goes with the last: only
    statvfs counts, to a mebibyte, and both are reported."""
    images = small_node.add_images(there, size_bytes=2 * MIB, shared_bytes=8 * MIB)
    small_node.run(small_node.run_pod("web"))
    before = small_node.available()
    record = relieve(small_node.node(Signal.NODEFS_AVAILABLE, above=above_mib * MIB))
    assert small_node.removed() == images[:3]
    assert record.nominal_bytes == 30 * MIB
    freed = sum(outcome_of(record, each).freed.bytes for each in images[:3])
    for gained in (small_node.available() - before, record.measured.bytes, freed):
        assert abs(gained - mib * MIB) <= MIB


def test_a_dry_run_plans_what_a_run_would_do_and_touches_nothing(small_node: SmallNode) -> None:
    """The same objects in the same order: also an image that only a dead container keeps."""
    once = small_node.add_image("registry.example/once:1")
    small_node.add_images(4)
    small_node.run(small_node.run_pod("web"))
    small_node.gone_pod("gone", once)
    pressure: dict[str, Any] = {"signal": Signal.NODEFS_AVAILABLE, "above": 6 * MIB}
    dry = relieve(small_node.node(dry_run=True, **pressure))
    assert small_node.removed() == []
    assert {str(outcome.result) for outcome in dry.removals} == {"planned"}
    relieve(small_node.node(**pressure))
    assert [outcome.verdict.id for outcome in dry.removals] == small_node.removed()
    assert once in small_node.removed()


# ---- from where


@rows("""
    layout            | signal             | apart | row
    SINGLE            | nodefs.available   |       | containers images
    SINGLE            | nodefs.inodesFree  |       | containers images
    SINGLE            | imagefs.available  |       | containers images
    DEDICATED_IMAGEFS | nodefs.available   |       |
    DEDICATED_IMAGEFS | imagefs.available  |       | containers images
    SPLIT             | nodefs.available   |       | containers
    SPLIT             | imagefs.available  |       | images
    SPLIT             | imagefs.inodesFree |       | images
    SINGLE            | nodefs.available   | yes   | containers
    SINGLE            | imagefs.available  | yes   | images
    DEDICATED_IMAGEFS | nodefs.available   | yes   | containers
    DEDICATED_IMAGEFS | imagefs.inodesFree | yes   | images
""")
def test_pressure_calls_its_row_and_nothing_else(
    make_small_node: SmallNodeFactory, layout: FsLayout, signal: str, apart: bool, row: str
) -> None:
    """An old image and a dead container: only objects on the filesystem under pressure are removed,
    and it gains their space. Writable layers may be on a filesystem of their own, as for the kubelet
    (HasDedicatedImageFs and HasDedicatedContainerFs), whether images are with its data or not."""
    small = make_small_node(layout, containers_apart=apart)
    image = small.add_image("registry.example/old:1")
    small.run(small.run_pod("web"))
    container = small.gone_pod("gone", writes=2 * MIB)
    before = small.available(small.image_disk)
    above = 3000 if signal.endswith("inodesFree") else 60 * MIB
    record = relieve(small.node(Signal(signal), above=above, extent="all"))
    names = {"containers": DELETE_ALL_UNUSED_CONTAINERS, "images": DELETE_UNUSED_IMAGES}
    assert record.decision.layout is (FsLayout.SPLIT if apart else layout)
    assert record.row == tuple(names[each] for each in row.split())
    assert small.removed("container") == [container] * ("containers" in row)
    assert small.removed("image") == [image] * ("images" in row)
    with_images = small.container_disk == small.image_disk and "containers" in row
    gained = 4 * MIB * ("images" in row) + 2 * MIB * with_images
    assert 0 <= small.available(small.image_disk) - before - gained < MIB
    assert str(record.result) == "not_enough"
    assert bool(row) or "its row of the reclaim table is empty" in record.reason
    assert bool(row) or small.failpoints.calls["ListContainers"] == 0, "it is not asked in vain"


def test_a_socket_that_comes_after_the_start_is_found_and_then_kept(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """At the start there is none, so the first usual place is named; the runtime then listens at
    the second one. Later that of another runtime is at the first: lists of two would be mixed."""
    places = [tmp_path / "first.sock", tmp_path / "second.sock"]
    first, second = (f"unix://{place}" for place in places)
    node = small_node.node(containerRuntimeEndpoint="", usual_endpoints=(first, second))
    node.prepare()
    assert node.locate().startswith(f"{first}: ImageFsInfo failed with UNAVAILABLE")
    places[1].symlink_to(small_node.server.socket_path)
    assert node.locate() == ""
    assert node.summary.paths.imagefs is not None
    places[1].rename(places[0])
    node.locate()
    assert node.endpoint.runtime == second


@pytest.mark.parametrize("there", [False, True])
def test_only_a_socket_that_exists_was_found(tmp_path: Path, there: bool) -> None:
    """The first in the usual order; a file of that name is none. Where none is found, it is said
    which were tried, once for all filesystems."""
    first, second = f"unix://{tmp_path}/first.sock", f"unix://{tmp_path}/second.sock"
    (tmp_path / "first.sock").write_text("")
    with socket.socket(socket.AF_UNIX) as listening:
        if there:
            listening.bind(str(tmp_path / "second.sock"))
        configuration = load(None, {}, {"kubeletConfig": "", "rootDirectory": str(tmp_path)})
        node = NodeView(configuration, usual_endpoints=[first, second])
        remark = f"no endpoint configured, and no socket found; tried {first}, {second}"
        if there:
            remark = f"no endpoint configured; using {second}"
        else:
            node.locate()
        assert (node.endpoint.found, node.endpoint.remark) == (there, remark)
        *lines, last = check(node, CheckOptions()).lines
        assert last == f"runtime: {remark}"
        told = [line for line in lines if line.endswith(f"({remark})")]
        assert [line.partition(":")[0] for line in told] == ["imagefs, containerfs"] * (not there)
        node.close()


# ---- what stays, and what goes along


@pytest.mark.parametrize("extent", Extent)
@rows("""
    fields                                                                                    | reason               | goes
    {keepImages: ["registry.example/shop:1", "registry.example/*:2", "registry.example/*:3"]} | keep_list            | 1
    {keepNewestPerRepository: 2}                                                              | newest_of_repository | 2
""")
def test_what_the_configuration_keeps_is_kept_in_every_mode(
    small_node: SmallNode, fields: dict[str, Any], reason: str, goes: int, extent: Extent
) -> None:
    """Under pressure that goes to the end of the row, with the reason in the record; until the
    configuration is loaded anew without it."""
    images = [small_node.add_image(f"registry.example/shop:{number}") for number in range(4)]
    small_node.run(small_node.run_pod("web"))
    pressure = small_node.fields(Signal.NODEFS_AVAILABLE, 60 * MIB, extent=str(extent))
    node = small_node.node(**pressure, **fields)
    record = relieve(node)
    assert small_node.removed() == images[:goes]
    why = {each: outcome_of(record, each).verdict for each in images[goes:]}
    assert {(str(v.reason), str(v.rule)) for v in why.values()} == {(reason, "guard")}
    assert node.reconfigure(load(None, {}, pressure)) == ()
    relieve(node)
    assert small_node.removed() == images


def test_a_reload_that_allows_more_removals_side_by_side_allows_the_threads_for_them(
    small_node: SmallNode,
) -> None:
    """From one to 64."""
    node = small_node.node(parallelRemovals=1)
    assert node.reconfigure(load(None, {}, small_node.fields(parallelRemovals=64))) == ()
    assert node.owner.workers.limit > 64


def test_logs_go_with_their_containers_and_pods(small_node: SmallNode) -> None:
    """Current and rotated files and the symlink of the older copy, none of the newest one; of a pod
    that has vanished the directory too, once it has not changed for a moment."""
    pod = small_node.run_pod("web")
    older, newest = small_node.exited(pod, attempt=0), small_node.exited(pod, attempt=1)
    gone, stays = small_node.log("web", older, 0), small_node.log("web", newest, 1)
    job = small_node.log("job", small_node.gone_pod("job"))
    pressure: dict[str, Any] = {"signal": Signal.NODEFS_AVAILABLE, "above": 1, "extent": "all"}
    record = relieve(small_node.node(**pressure))
    assert older in small_node.removed("container")
    assert newest in small_node.containers()
    assert {path.name for path in stays.parent.iterdir()} == {"1.log", "1.log.20261121-120000"}
    assert [os.readlink(link) for link in small_node.container_logs_dir.iterdir()] == [str(stays)]
    assert (gone.exists(), job.exists(), record.errors) == (False, False, ())
    assert small_node.logs_of("job").exists(), "it changed just now: it may be in the making"
    record = relieve(small_node.node(**pressure, clock=Later()))
    web, of_job = (small_node.logs_of(name).name for name in ("web", "job"))
    assert [path.name for path in small_node.pod_logs_dir.iterdir()] == [web]
    assert [o.verdict.name for o in record.removals if o.verdict.kind == "pod_log"] == [of_job]


def ages(configuration: str) -> tuple[dict[str, str], str]:
    """Why each image would go or stay, by id; and what was said."""
    process = reclaimd_here("plan", "--config", configuration, "-o", "json")
    document = answer(process)
    objects = (*document["removals"], *document["kept"])
    return {each["id"]: each["reason"] for each in objects}, process.stderr


@pytest.mark.parametrize("content", ["", "\x00", '{"version": 99}'])
def test_a_restart_makes_no_image_young_and_none_old(
    make_small_node: SmallNodeFactory, tmp_path: Path, content: str
) -> None:
    """What the file says was first seen two hours ago is old enough to a process that has
    just begun; what came since is not. On CRI-O, which remembers no pulls: without the file
    nothing else would tell. One that is corrupt is a warning, once; every image counts as new then,
    and the daemon replaces it."""
    small = make_small_node(dialect=CRI_O_1_36)
    old, state = small.add_image("registry.example/old:1"), tmp_path / "state" / "images.json"
    file = small.configuration(stateFile=str(state), imageMinimumGCAge="1h", controlSocket="")
    with Daemon("--config", file) as daemon:
        assert came_true(state.exists)
        assert daemon.stop() == 0
    assert state.stat().st_mode & 0o777 == 0o600
    document = json.loads(state.read_text())
    document["images"][old]["first_detected"] -= 7200.0
    state.write_text(content or json.dumps(document))
    before = state.read_bytes()
    new = small.add_image("registry.example/new:1")
    found, said = ages(file)
    assert (found[old], found[new]) == ("too_young" if content else "unused", "too_young")
    assert said.count(str(state)) == bool(content)
    assert state.read_bytes() == before, "a plan changes nothing of it"
    if content:
        with Daemon("--config", file) as daemon:
            daemon.wait_for(lambda e: e["level"] == "warning" and str(state) in e["message"])
            assert came_true(lambda: old.encode() in state.read_bytes())


# ---- what the runtime answers

Code = grpc.StatusCode


def crowd(small: SmallNode) -> tuple[list[str], str]:
    """Three old images, a running pod, and a dead container of a pod that is gone."""
    images = small.add_images(3)
    small.run(small.run_pod("web"))
    return images, small.gone_pod("gone", writes=MIB)


def contradicts(answer: Any) -> None:
    """EXITED and RUNNING under one id."""
    for item in list(answer.containers):
        answer.containers.add().CopyFrom(item)
        answer.containers[-1].state = pb.CONTAINER_RUNNING


def unlisted(answer: Any) -> None:
    """A reference that no listed image carries is asked of the runtime, which does not answer."""
    for item in answer.containers:
        item.image_id, item.image.image = "", ""
        item.image_ref = "mirror.example/unlisted:1"


@pytest.mark.parametrize(
    ("method", "change", "words"),
    [
        ("ListContainers", contradicts, "twice and differently"),
        ("ListContainers", unlisted, "no lease"),
    ],
)
def test_a_list_that_says_two_things_of_one_container_is_not_trusted(
    small_node: SmallNode, method: str, change: Callable[[Any], None], words: str
) -> None:
    """Nor one with an entry that nothing explains. Other wrong answers: `tests/faults/test_answers.py`."""
    crowd(small_node)
    if change is unlisted:
        small_node.failpoints["ImageStatus"] = Fail(Code.INTERNAL, "no lease")
    record = reworded(small_node, IMAGES, **{method: change})
    assert small_node.removed() == []
    assert words in " ".join(record.errors)


class Refuses:
    """A `before` that refuses this method about the first object of which it
    was asked, for ever.
    """

    def __init__(self, method: str) -> None:
        self.method, self.refused = method, ""

    def __call__(self, method: str, object_id: str) -> None:
        if method == self.method:
            self.refused = self.refused or object_id
            if object_id == self.refused:
                raise EmbeddedNodeError("its metadata cannot be told")


def refusing(make: SmallNodeFactory, method: str) -> tuple[SmallNode, Refuses]:
    """A node whose runtime does so."""
    small = make(server=InterruptingServer)
    assert isinstance(small.server, InterruptingServer)
    small.server.before = refuses = Refuses(method)
    return small, refuses


@pytest.mark.parametrize("method", ["ImageStatus", "ContainerStatus", "PodSandboxStatus"])
def test_an_error_about_one_object_is_the_outcome_of_that_object(
    make_small_node: SmallNodeFactory, method: str
) -> None:
    """The first of its kind is never told. All others go, in the first pass."""
    small, refuses = refusing(make_small_node, method)
    images = small.add_images(4)
    containers = [small.gone_pod(f"gone-{number}") for number in range(4)]
    record = relieve(small.node(), EVERYTHING)
    failed = outcome_of(record, refuses.refused)
    assert (str(failed.result), "its metadata cannot be told" in failed.error) == ("failed", True)
    assert not record.errors
    assert set(images) | set(containers) <= {*small.removed(), refuses.refused}
    assert len(small.removed("sandbox")) == (4 if method == "ImageStatus" else 3)


def test_what_a_dead_container_mounts_is_not_waited_for_and_what_a_live_one_mounts_is(
    make_small_node: SmallNodeFactory,
) -> None:
    """If the runtime cannot tell what a container mounts, any image may be one of it; once it has
    exited, nothing runs with it."""
    small, refuses = refusing(make_small_node, "ContainerStatus")
    images = small.add_images(2)
    container = small.run(small.run_pod("web"))
    record = relieve(small.node(), IMAGES)
    assert (small.removed("image"), refuses.refused) == ([], container)
    assert "its metadata cannot be told" in record.errors[0]
    small.runtime.exit_container(container, 1)
    relieve(small.node(), IMAGES)
    assert small.removed("image") == images


# ---- what is removed

KINDS = {"RemoveImage": "image", "RemoveContainer": "container", "RemovePodSandbox": "sandbox"}


@rows("""
    method           | acts | code              | result       | what
    RemoveImage      | yes  | DEADLINE_EXCEEDED | removed      | an error is no failure
    RemoveContainer  | yes  | DEADLINE_EXCEEDED | removed      | nor of a container
    RemovePodSandbox | yes  | DEADLINE_EXCEEDED | removed      | nor of a sandbox
    RemoveImage      | yes  | INTERNAL          | removed      | nor if the runtime blames itself
    RemoveImage      |      | UNKNOWN           | failed       | unless it is still there
    RemoveContainer  |      | UNKNOWN           | failed       | then its sandbox stays, too
    RemoveImage      |      | NOT_FOUND         | failed       | not found, and still there
    RemoveImage      | yes  | NOT_FOUND         | already_gone | somebody else has freed that
    RemoveContainer  | yes  | NOT_FOUND         | already_gone | also of a container
""")
def test_a_removal_that_acts_and_then_fails_counts_as_removed(
    small_node: SmallNode, method: str, acts: bool, code: str, result: str
) -> None:
    """After any error the runtime is asked what is there, and only that counts; the error is told,
    and the others go."""
    images, container = crowd(small_node)
    fault = ActThenFail if acts else Fail
    small_node.failpoints[method] = fault(grpc.StatusCode[code], "lost the answer", times=1)
    record = relieve(small_node.node(), EVERYTHING)
    failed = next(each for each in record.removals if each.verdict.kind == KINDS[method])
    assert (str(failed.result), failed.freed.bytes > 0) == (
        result,
        result == "removed" and method != "RemovePodSandbox",
    )
    assert ("lost the answer" in failed.error) is (code != "NOT_FOUND")
    gone = small_node.removed()
    assert {*images, container} - {failed.verdict.id} <= set(gone)
    assert (failed.verdict.id in gone) is (result != "failed")
    assert (small_node.removed("sandbox") == []) is (method == "RemoveContainer" and not acts)


def test_a_slow_removal_has_no_deadline(small_node: SmallNode) -> None:
    """Reads give up after 0.3 s here; a removal that takes 1 s is not given
    up, as that would cancel it.
    """
    (image,) = small_node.add_images(1)
    small_node.run(small_node.run_pod("web"))
    node = small_node.node(read_deadline_seconds=0.3)
    node.locate()
    small_node.failpoints["RemoveImage"] = Delay(1.0)
    outcome = outcome_of(relieve(node, IMAGES), image)
    assert (str(outcome.result), outcome.error) == ("removed", "")
    assert outcome.duration_seconds >= 1.0


@pytest.mark.parametrize("method", ["RemoveImage", "ImageStatus"])
def test_a_mount_that_appears_costs_no_image(
    make_small_node: SmallNodeFactory, method: str
) -> None:
    """Over the images, while the first is removed or the second checked: what would be removed now
    frees nothing where the pressure is. It is kept without another question, and the record says
    why."""
    small = make_small_node(server=InterruptingServer)
    small.run(small.run_pod("web"))
    images = small.add_images(8, MIB)
    node = small.node(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    over, asked = str(small.images_root), list[int]()

    def mounted() -> None:
        asked.append(small.failpoints.calls["ImageStatus"])
        mount_tmpfs(over, 16 * MIB, 1000)

    assert isinstance(small.server, InterruptingServer)
    small.server.before = Once(method, images[method == "ImageStatus"], mounted)
    try:
        record = relieve(node)
    finally:
        unmount(over)
    assert small.removed() == images[:1]
    assert {reason_of(record, image) for image in images[1:]} == {"layout_changed"}
    assert small.failpoints.calls["ImageStatus"] - asked[0] <= 1
    assert str(record.result) == "not_enough"


# ---- functions, rows and filesystems of a configuration


def test_what_the_configuration_says_is_relieved_by_its_rows_and_told(stage: Stage) -> None:
    """Beside the node's disk there is a filesystem of 64 MiB in `buildcache`. A program is told
    what is missing now; why a function was not called, what a row cannot do, and what cannot be
    called, is said."""
    with tmpfs(stage.directory / "buildcache", 64 * MIB, 4000):
        stage.plays()


def test_a_program_is_believed_by_what_the_disk_shows(stage: Stage) -> None:
    """Whatever it says; its error is told, and where it has freed nothing the next function goes
    on."""
    stage.plays()


def test_a_program_without_a_plan_is_one_object_without_a_size(stage: Stage) -> None:
    """With the reason; one that has a plan is credited with what it lists."""
    stage.plays()

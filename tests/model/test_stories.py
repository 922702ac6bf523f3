"""Short stories of the model, each of which ended in harm once; what breaks in them breaks for real, and is mended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eviction.drill.runtime.runtime import Container
from eviction.types import Extent
from reclaim.cri import cri_pb2 as pb
from tests.model import events, mishaps
from tests.model.held_calls import Way
from tests.model.root_directory import DISGUISES, Disguise, RootDirectory
from tests.model.world import CRI_OS, DIALECTS, IMAGES, KIB, World
from tests.nodes.model_node import SharedParts

THE_REMOVAL = 6  # of an older copy: after its lists come the status and one more list, both to check it
A_LIST_OF_IMAGES = 8  # of a pass over a node without containers, about
LONG = 700.0  # seconds: longer than any minimum age
ALL, TWO_MINUTES = 1, 4  # of the mode of a world: `extent: all`, and an image's minimum age
CONTAINERD_2_1, CONTAINERD_1_6 = 0, 1  # of DIALECTS
READ_DEADLINE_SECONDS = 10.0  # real time: no read hangs in a story, and a busy machine is late


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedParts]:
    """The filesystem, the socket and the kubelet's endpoint of all worlds."""
    parts = SharedParts(tmp_path_factory.mktemp("model"))
    yield parts
    parts.close()


@pytest.fixture
def world(shared: SharedParts, request: pytest.FixtureRequest) -> Iterator[World]:
    """A node, of containerd 2.1 unless the test says another dialect and mode."""
    dialect, mode = getattr(request, "param", (CONTAINERD_2_1, 0))
    made = World(shared, dialect, mode, READ_DEADLINE_SECONDS)
    yield made
    made.close()


def runs(world: World, *, volume: bool = False, by_digest: bool = False, pick: int = 0) -> None:
    """A pod runs, and time passes."""
    with world.runtime.as_the_kubelet():
        events.pod_runs(world, pick, volume=volume, by_digest=by_digest)
    world.clock.step(LONG)


def do(world: World, step: events.Step, pick: int = 0) -> None:
    """One step of the model."""
    with world.runtime.as_the_kubelet():
        step(world, pick)


@pytest.mark.regression
@pytest.mark.parametrize("disguise", DISGUISES, ids=str)
def test_nothing_of_a_pod_goes_while_something_else_is_in_the_place_of_its_directory(
    world: World, disguise: Disguise
) -> None:
    """A pod whose containers have ended and whose sandbox has died, beside one that runs."""
    runs(world)
    for container in world.runtime.every_container():
        world.kubelet.ended(container, 0)
    do(world, events.sandbox_dies)
    runs(world, pick=1)
    world.root.vanish(disguise)
    world.clock.step(LONG)
    world.passes.relieve(KIB, Extent.ALL)
    assert world.harm() == []
    world.root.come_back()
    world.passes.relieve(KIB, Extent.ALL)
    assert world.harm() == []


@pytest.mark.regression
@pytest.mark.parametrize("world", [(CONTAINERD_1_6, 0)], indirect=True)
def test_the_image_of_a_volume_stays_when_the_runtime_was_replaced_by_one_that_has_them(world: World) -> None:
    """containerd 1.6, of which reclaimd has seen everything, is replaced by 2.1."""
    world.passes.relieve(KIB, Extent.ENOUGH)
    world.replace_runtime(0)
    assert world.runtime.mounts_images
    runs(world, volume=True)
    world.passes.relieve(KIB, Extent.ALL)
    assert world.harm() == []


@pytest.mark.regression
@pytest.mark.parametrize("world", [(CONTAINERD_1_6, 0), (DIALECTS.index(CRI_OS[1]), 0)], indirect=True)
def test_an_image_that_a_pod_names_by_an_unlisted_digest_stays(world: World) -> None:
    """Its tag is on another image by now."""
    runs(world, by_digest=True, pick=1)
    do(world, mishaps.digest_is_unlisted)
    world.passes.relieve(KIB, Extent.ALL)
    assert world.harm() == []


@pytest.mark.regression
@pytest.mark.parametrize("world", [(CONTAINERD_2_1, ALL + TWO_MINUTES)], indirect=True)
def test_images_are_new_where_the_state_file_is_of_another_machine(world: World) -> None:
    """In the file they are a day old."""
    world.start_elsewhere()
    world.passes.relieve(KIB, Extent.ALL)
    assert world.harm() == []
    assert not world.runtime.ledger


@pytest.mark.regression
@pytest.mark.parametrize("world", [(CONTAINERD_2_1, ALL + TWO_MINUTES)], indirect=True)
@pytest.mark.parametrize("acts_first", [False, True])
def test_an_image_whose_removal_hung_is_new_when_it_is_pulled_again(world: World, *, acts_first: bool) -> None:
    """Other passes list it meanwhile, and remove the other images."""
    world.passes.relieve(KIB, Extent.ALL)
    world.clock.step(LONG)
    world.runtime.held.arm(Way(acts_first=acts_first, fails=False))
    world.passes.relieve(KIB, Extent.ALL)
    assert len(world.product.removals.parked) == 1
    assert len(world.runtime.ledger) == len(IMAGES[:3]) - (not acts_first)
    for _ in range(2):
        world.passes.relieve(KIB, Extent.ALL)
        world.clock.step(LONG)
    world.end_hung_calls(lambda _: True)
    with world.runtime.as_the_kubelet():
        for name in IMAGES[:3]:
            world.pull(name)
    world.passes.relieve(KIB, Extent.ALL)
    assert world.harm() == []
    assert len(world.runtime.all_images()) == 1 + len(IMAGES[:3])


def copies(world: World, name: str) -> list[Container]:
    """The copies of a container of the first pod, the oldest first."""
    found = [each for each in world.runtime.containers_of("uid-1") if each.metadata.name == name]
    return found[::-1]


def crash(world: World, name: str) -> None:
    """The container of this name fails, after it was started again if it had ended."""
    while copies(world, name)[-1].state != pb.CONTAINER_RUNNING:
        do(world, events.kubelet_syncs)
        world.clock.step(LONG)
    with world.runtime.as_the_kubelet():
        world.kubelet.ended(copies(world, name)[-1], 1)
    world.clock.step(LONG)


@pytest.mark.parametrize("call", range(1, 8))
def test_the_newest_copy_of_a_container_is_removed_by_hand_in_the_middle_of_a_pass(world: World, call: int) -> None:
    """Right before the nth call of the pass that would remove the older one: it goes only if nobody could know."""
    runs(world)
    name = world.runtime.containers_of("uid-1")[0].metadata.name
    for _ in range(2):
        crash(world, name)
    older, newest = copies(world, name)
    by_hand = pb.RemoveContainerRequest(container_id=newest.id)
    world.passes.interrupt({call: lambda: world.runtime.remove_container(by_hand)})
    world.passes.relieve(KIB, Extent.ALL)
    assert world.harm() == []
    assert not world.runtime.has(newest.id)
    assert world.runtime.has(older.id) == (call < THE_REMOVAL)


@pytest.mark.regression
@pytest.mark.parametrize("call", range(1, 40))
def test_one_call_takes_30_seconds(world: World, call: int) -> None:
    """Whichever it is, of a pass in the middle of which a pod has begun: no image goes by an old list."""

    def begin_a_pod() -> None:
        with world.runtime.as_the_kubelet():
            events.pod_runs(world, 0, volume=False, by_digest=False)

    def take_long() -> None:
        world.clock.step(30.0)

    for name in IMAGES[3:]:
        world.pull(name)
    world.clock.step(LONG)
    steps: dict[int, Callable[[], object]] = {A_LIST_OF_IMAGES: begin_a_pod, call: take_long}
    world.passes.interrupt(steps)
    world.passes.relieve(KIB, Extent.ALL)
    assert world.harm() == []
    assert len(world.runtime.all_images()) < 1 + len(IMAGES)


@pytest.mark.regression
@pytest.mark.parametrize("call", range(A_LIST_OF_IMAGES, 24))
def test_a_pod_begins_and_runs_between_two_calls_of_a_pass(world: World, call: int) -> None:
    """Whichever they are: its image stays, or had gone before."""

    def begin_a_pod() -> None:
        with world.runtime.as_the_kubelet():
            events.pod_runs(world, 2, volume=False, by_digest=False)

    for name in IMAGES[3:]:
        world.pull(name)
    runs(world, pick=1)
    world.passes.interrupt({call: begin_a_pod})
    world.passes.relieve(KIB, Extent.ALL)
    assert world.harm() == []


@pytest.mark.regression
@pytest.mark.parametrize("call", range(A_LIST_OF_IMAGES, 24))
def test_the_next_container_of_an_old_pod_begins_between_two_calls_of_a_pass(world: World, call: int) -> None:
    """Whichever they are: only the directory of that container tells, and its image stays, or had gone before."""
    with world.runtime.as_the_kubelet():
        events.pod_runs(world, 2, volume=False, by_digest=False, inits=1)
    for name in IMAGES:
        world.pull(name)
    world.clock.step(LONG)
    world.passes.interrupt({call: lambda: do(world, events.next_container_begins)})
    world.passes.relieve(KIB, Extent.ALL)
    assert world.harm() == []
    assert len(world.runtime.containers_of("uid-1")) > 1


def test_a_pass_removes_what_it_would_while_no_thread_can_be_started(world: World) -> None:
    """All unused images go."""
    world.passes.relieve(KIB, Extent.ENOUGH)
    world.clock.step(LONG)
    world.set_no_threads(no_threads=True)
    world.passes.relieve(KIB, Extent.ALL)
    assert world.harm() == []
    assert len(world.runtime.all_images()) == 1


@pytest.mark.parametrize("disguise", DISGUISES, ids=str)
def test_the_kubelets_directories_vanish_and_come_back(shared: SharedParts, disguise: Disguise) -> None:
    """The kubelet itself always sees its own."""
    root = RootDirectory(shared.next_directory() / "kubelet")
    pods = Path(root.path, "pods")
    root.add("a")
    root.vanish(disguise)
    assert not (pods / "a").exists()
    root.add("b")
    root.remove("a")
    assert root.pods() == {"b"}
    assert root.touched() == []
    root.come_back()
    assert [each.name for each in pods.iterdir()] == ["b"]
    root.close()

"""What breaks beside reclaimd, each as one step as in `events`: directories, threads, calls, lists, the runtime."""

from __future__ import annotations

from tests.model import events
from tests.model.held_calls import Way
from tests.model.root_directory import DISGUISES
from tests.model.world import IMAGES, World

MOST_HUNG = 4


def root_vanishes_or_comes_back(world: World, pick: int) -> bool:
    """Something else is where the kubelet's directories were; or they are back."""
    if world.root.disguise is not None:
        world.root.come_back()
    else:
        world.root.vanish(DISGUISES[pick % len(DISGUISES)])
    return True


def removal_hangs(world: World, pick: int) -> bool:
    """The next call that removes or stops something hangs, before it acts or after it, and fails or not."""
    if len(world.runtime.held.held) >= MOST_HUNG:
        return hung_call_ends(world, pick)
    world.runtime.held.arm(Way(acts_first=pick % 2 == 0, fails=pick // 2 % 2 == 0))
    return True


def hung_call_ends(world: World, pick: int) -> bool:
    """One of the calls that hang ends, or all of them; what it has removed may be pulled again at once."""
    held = world.runtime.held.held
    if not held:
        return False
    one = held[pick % len(held)]
    before = {image.id: image for image in world.runtime.all_images()}
    world.end_hung_calls(lambda call: pick % 3 == 0 or call is one)
    gone = [image for image_id, image in before.items() if not world.runtime.has(image_id)]
    for name in (tag for image in gone for tag in image.tags if tag in IMAGES):
        if pick // 3 % 2:
            world.pull(name)
    return True


def threads_start_or_not(world: World, pick: int) -> bool:
    """No thread can be started from now on; or it can again."""
    world.set_no_threads(not world.no_threads)
    return True


def digest_is_unlisted(world: World, pick: int) -> bool:
    """An image that a pod names by its digest is in no list by a digest any more, and another one gets its tag."""
    images = [each for each in world.runtime.all_images() if world.runtime.sandbox_image not in each.tags]
    used = [each for each in images if each.tags and world.runtime.named_by_digest(each)]
    if not used:
        events.pod_runs(world, pick, volume=False, by_digest=True)
        return True
    if len(images) < 2:
        return False
    image = used[pick % len(used)]
    others = [each for each in images if each is not image]
    world.runtime.unlist_digests(image.id)
    tags = [tag for tag in image.tags if tag in IMAGES] or image.tags
    world.runtime.retag(others[pick // 7 % len(others)].id, tags[pick // 3 % len(tags)])
    return True


def runtime_is_replaced(world: World, pick: int) -> bool:
    """Another version of the runtime takes over, and a pod begins that uses what it can."""
    world.replace_runtime(pick)
    events.pod_runs(world, pick // 3, volume=True, by_digest=False)
    return True


BETWEEN_CALLS: tuple[events.Step, ...] = (
    *events.BETWEEN_CALLS,
    root_vanishes_or_comes_back,
    root_vanishes_or_comes_back,
    removal_hangs,
    hung_call_ends,
    hung_call_ends,
    threads_start_or_not,
    digest_is_unlisted,
)

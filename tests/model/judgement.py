"""What is wrong with a removal by reclaimd, by the runtime's own tables at the moment in which the call arrives."""

from __future__ import annotations

from eviction.drill.runtime.runtime import Container, Image, Sandbox
from reclaim.cri import cri_pb2 as pb
from reclaim.types import ContainerState
from tests.model.ledger import FRESH_SECONDS, HANGS_SECONDS, STATES, Since
from tests.model.observed_runtime import ObservedRuntime


def wrong_with_container(runtime: ObservedRuntime, container: Container) -> list[str]:
    """Why this container must not be removed now."""
    uid, state, licence = runtime.uid_of(container), STATES[container.state], runtime.licence
    wrong = []
    if state is not ContainerState.EXITED and not (state is ContainerState.CREATED and licence.exact):
        wrong.append(f"it was {state}")
    if runtime.had_a_newer_copy(container):  # as good as done by whoever removed the newer copy
        return wrong
    same = [each for each in runtime.containers_of(uid) if each.metadata.name == container.metadata.name]
    if not licence.from_kubelet and runtime.pod_exists(uid) and same[0] is container:
        wrong.append("it was the newest copy, and its pod exists")
    again = runtime.restarts(uid, container.id) - runtime.restarts(uid, "")
    return wrong + [f"the kubelet would now run {name} again" for name in sorted(again)]


def wrong_with_sandbox(runtime: ObservedRuntime, sandbox: Sandbox) -> list[str]:
    """Why this sandbox must not be removed now."""
    uid = sandbox.metadata.uid
    wrong = ["it was READY"] if sandbox.state == pb.SANDBOX_READY else []
    held = [each for each in runtime.containers_of(uid) if runtime.sandbox_of(each) == sandbox.id]
    if any(runtime.could_be_seen(runtime.created(each.id), "ListContainers") for each in held):
        wrong.append("it held containers")
    if not runtime.licence.from_kubelet and runtime.pod_exists(uid) and runtime.sandboxes_of(uid)[0] is sandbox:
        wrong.append("it was the newest sandbox, and its pod exists")
    return wrong


def wrong_with_image(runtime: ObservedRuntime, image: Image) -> list[str]:
    """Why this image must not be removed now."""
    wrong = []
    age_of_list = runtime.arrived - runtime.answered_at.get("ListContainers", float("-inf"))
    checked = runtime.answered_calls.get(image.id, runtime.calls)  # what passed since stalled nobody but its sender
    age_of_list -= HANGS_SECONDS * sum(call >= checked for call in runtime.hung_at)
    if age_of_list > FRESH_SECONDS:
        wrong.append(f"the last list of containers was {age_of_list:.1f} s old")
    for user in runtime.users_of(image):
        if runtime.could_be_seen(runtime.created(user), "ListContainers"):
            wrong.append(f"container {user} used it")
        elif runtime.has_begun_since(user, "ListContainers"):
            wrong.append(f"container {user} used it, which had begun after the last list, or its pod")
    history = runtime.history
    if image.pinned and runtime.could_be_seen(history.pinned.get(image.id, Since(0, 0)), "ListImages", image.id):
        wrong.append("it was pinned")
    for tag in runtime.licence.keep.intersection(image.tags):
        if runtime.could_be_seen(history.tagged[image.id, tag], "ListImages", image.id):
            wrong.append(f"the keep-list names {tag}")
    if runtime.sandbox_image in image.tags:
        wrong.append("it is the image of sandboxes")
    age = runtime.now().seconds - history.pulled[image.id]
    if age < runtime.licence.min_age_seconds:
        wrong.append(f"it had been there for {age:.0f} s")
    return wrong

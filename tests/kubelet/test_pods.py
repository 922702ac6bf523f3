"""What garbage collection beside a real kubelet must not disturb: no pod runs
again, and no log is lost, whatever happens to pods and kubelet meanwhile.

The kubelet finds again what a pod has done by the dead containers that the runtime still has:
without them a completed pod would run a second time, and an init container would be repeated.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.faults.proxy import Proxy
from tests.kubelet import manifests
from tests.kubelet.conftest import NodeMaker
from tests.kubelet.manifests import APP
from tests.kubelet.node import (
    MIB,
    PODS,
    PURGE,
    PURGE_SECONDS,
    KubeletNode,
    kubelet_fields,
    pod_of,
    purged,
    restarts,
    unused,
)
from tests.nodes.faults import Hang
from tests.real_node.loopfs import ToolError
from tests.real_node.oci import BASE, Image, numbered, random_layer
from tests.real_node.runtime import ContainerRuntimeError
from tests.reclaimd_process import PROGRAM, reclaimd

SETTLED = ("serves", "prepared", "done", "failed", "static-127.0.0.1")
"""The pods that stay as they are; `crashing` begins again and again."""
LOGS = {"done": "done is done\n", "failed": "oh\n", "crashing": "crashing fails\n"}
FIRST, OWN = "reclaimd.test/first:1", "reclaimd.test/own:1"
FORCED = ("forced", "forced-and-done")
TIMES = 20
PATIENCE_SECONDS = 60.0
EACH_SECONDS = 0.35
SETTLE_SECONDS = 180.0  # at most: three pods a second are more than a busy machine makes
ABSENT = "ErrImageNeverPull"  # the image was not there when the kubelet looked


@pytest.fixture
def node(make_node: NodeMaker) -> KubeletNode:
    """A node with pods: running, completed, failed, crashing, one with an init container, and a
    static one; each in its last phase."""
    made = make_node()
    made.import_images([Image(APP, (BASE,)), Image(FIRST, (BASE, random_layer(1, MIB)))])
    static = made.kubelet.static_pods / "static.json"
    static.write_text(json.dumps(manifests.running("static", APP)))
    fails = manifests.container("fails", APP, (*manifests.SHELL, "echo oh; exit 3"))
    for pod, phase in (
        (manifests.running("serves", APP), "Running"),
        (manifests.completed("done", APP), "Succeeded"),
        (manifests.with_init("prepared", APP, FIRST), "Running"),
        (manifests.pod("failed", fails, restart="Never"), "Failed"),
    ):
        made.create(pod, phase)
    made.create(manifests.crashing("crashing", APP))
    made.wait_for_phase("static-127.0.0.1", "Running")
    made.api.wait("it has crashed twice", lambda: crashes(made) >= 2, 90.0)
    return made


def crashes(node: KubeletNode) -> int:
    """How often the container that fails was started again."""
    return restarts(node.api.get(f"{PODS}/crashing"))


def assert_none_ran_again(node: KubeletNode, before: dict[str, list[Any]]) -> None:
    """Nothing has run again but what crashes, and that does."""
    crashed = crashes(node)
    node.api.wait("it crashes again", lambda: crashes(node) > crashed, 120.0)
    assert node.statuses(*before) == before


def assert_as_before(node: KubeletNode, before: dict[str, list[Any]]) -> None:
    """Nothing has run again but what crashes, and that does; every log is served."""
    assert_none_ran_again(node, before)
    for name, text in LOGS.items():
        assert node.api.text(f"{PODS}/{name}/log") == text
    first = node.api.text(f"{PODS}/prepared/log?container=prepares")
    assert first == "prepared is prepared\n"


def unused_left(node: KubeletNode) -> int:
    """How many of the images that nobody uses are there."""
    return sum("/unused:" in tag for tag in node.runtime.cri.image_tags())


def test_no_pod_runs_again_and_every_log_is_served(node: KubeletNode) -> None:
    """After everything that may go was removed twenty times, with new unused images each time; and
    after a restart of the kubelet, whose memory is what the runtime holds."""
    file, before = node.configured(), node.statuses(*SETTLED)
    for number in range(TIMES):
        (image,) = images = unused(1, MIB, first=number)
        node.import_removable(images)
        assert image.reference in [each["name"] for each in purged(file)["removals"]]
    assert node.statuses(*before) == before
    node.kubelet.stop()
    node.kubelet.start()
    assert_as_before(node, before)


# ---- pods that are deleted by force while they run


@contextmanager
def beside(*works: Callable[[threading.Event], None]) -> Iterator[None]:
    """Each goes on until the event is set, when the `with` block is over; what one raises is raised
    at the end."""
    over = threading.Event()
    with ThreadPoolExecutor() as pool:
        going = [pool.submit(work, over) for work in works]
        try:
            yield
        finally:
            over.set()
        for each in going:
            each.result()


def traces(node: KubeletNode) -> set[str]:
    """What there is of the two pods and their image."""
    cri = node.runtime.cri
    found = {f"container {each.state}" for each in cri.list_containers() if pod_of(each) in FORCED}
    found |= {f"sandbox {each.state}" for each in cri.list_sandboxes() if pod_of(each) in FORCED}
    found |= {f"log {path.name}" for path in node.kubelet.pod_logs.glob(f"default_{FORCED[0]}*")}
    return found | (cri.image_tags() & {OWN})


@pytest.mark.parametrize("kubelet", ["goes on", "is stopped"])
@pytest.mark.parametrize("asked", ["the directories", "the kubelet"])
def test_what_pods_deleted_by_force_leave_goes_once_the_kubelet_has_let_go_of_them(
    node: KubeletNode, asked: str, kubelet: str
) -> None:
    """Not before. The API server forgets such a pod at once, so for a while only the kubelet's
    directory says that it exists; while no kubelet runs nobody removes that, and the one that runs
    and the one that has finished keep everything. Passes go on from before the deletion, or from
    when the kubelet is back, until nothing is left of the two pods; nothing else goes."""
    node.import_images([Image(OWN, (BASE, random_layer(1, MIB)))])
    node.create(manifests.running(FORCED[0], OWN), "Running")
    node.create(manifests.completed(FORCED[1], OWN), "Succeeded")
    file = node.configured(**(kubelet_fields(node) if asked == "the kubelet" else {}))
    before, held = node.statuses(*SETTLED), traces(node)

    def force_delete() -> None:
        """As `kubectl delete --force --grace-period=0` does."""
        for name in FORCED:
            node.api.delete(f"{PODS}/{name}", grace_seconds=0)

    if kubelet == "is stopped":
        node.kubelet.stop()
        force_delete()
        names = {each["name"] for each in purged(file)["removals"]}
        assert not {name for name in names if FORCED[0] in name or name in (OWN, APP)}
        assert traces(node) == held
        node.kubelet.start()

    def passes(over: threading.Event) -> None:
        while not over.is_set():
            purged(file)

    with beside(passes):
        if kubelet == "goes on":
            force_delete()
        node.api.wait("nothing is left of them", lambda: traces(node) == set(), 90.0)
    assert_as_before(node, before)


# ---- a kubelet that is killed in the middle of a pass and comes back


@contextmanager
def held_at(
    node: KubeletNode, method: str, **fields: object
) -> Iterator[tuple[Proxy, Callable[[], None]]]:
    """A pass to the end of the row whose first removal waits for the test, in a proxy; and what
    waits for its end. It waits as long as the test does. Behind the proxy containerd tells no pull
    times, so images need no age."""
    with Proxy(str(node.runtime.socket), str(node.runtime.run_directory / "proxy.sock")) as proxy:
        file = node.configured(
            containerRuntimeEndpoint=proxy.endpoint,
            imageMinimumGCAge="0s",
            parallelRemovals=1,
            removalPatience="10m",
            **fields,
        )
        proxy.failpoints[method] = Hang()
        command, pipe = [PROGRAM, *PURGE, "--config", file], subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:

            def ended() -> None:
                out, err = process.communicate(timeout=PATIENCE_SECONDS)
                assert process.returncode == 0, err
                assert {each["result"] for each in json.loads(out)["removals"]} == {"removed"}

            try:
                assert proxy.failpoints.wait_for_calls(method, 1, PATIENCE_SECONDS)
                yield proxy, ended
            finally:
                process.kill()  # nothing, once it has ended


def test_the_pass_goes_on_to_its_end_and_nothing_runs_again(node: KubeletNode) -> None:
    """Images: one is being removed as the kubelet is killed, one goes while there is none,
    the rest when it is back.
    """
    node.import_removable(unused(6, MIB))
    before = node.statuses(*SETTLED)
    with held_at(node, "RemoveImage") as (proxy, ended):
        node.kubelet.kill()
        count = proxy.failpoints.calls["RemoveImage"] + 1
        proxy.failpoints["RemoveImage"] = Hang()  # what waits goes
        assert proxy.failpoints.wait_for_calls("RemoveImage", count, PATIENCE_SECONDS)
        assert unused_left(node) == 5
        node.kubelet.start()
        del proxy.failpoints["RemoveImage"]
        ended()
    assert unused_left(node) == 0
    assert_as_before(node, before)


def test_what_the_kubelet_said_before_it_was_killed_holds_and_the_next_pass_does_the_rest(
    node: KubeletNode,
) -> None:
    """Containers of terminated pods, with the kubelet's list: those go by the list of the
    beginning; the sandboxes, for which a new list is read, stay until the kubelet answers again."""
    names = [f"finished-{number}" for number in range(6)]
    node.create_all("Succeeded", *(manifests.completed(name, APP) for name in names))
    before, held, asking = node.statuses(*SETTLED, *names), node.runtime.cri, kubelet_fields(node)

    def sandboxes() -> set[str]:
        return {each.metadata.name for each in held.list_sandboxes()}

    with held_at(node, "RemoveContainer", **asking) as (proxy, ended):
        node.kubelet.kill()
        del proxy.failpoints["RemoveContainer"]
        ended()
    left = set(map(pod_of, held.list_containers()))
    assert not left & set(names)
    assert sandboxes() >= set(names)
    node.kubelet.start()
    file = node.configured(**asking)

    def passed_again() -> bool:
        purged(file)
        return not sandboxes() & {*names, "done", "failed"}

    node.api.wait("the sandboxes go, as soon as it lists its pods again", passed_again, 60.0)
    assert_none_ran_again(node, before)


# ---- a storm of pods


def end_of(pod: Any) -> str:
    """`ran`, `absent`, or the reason for which a pod waits or failed."""
    for each in pod["status"].get("containerStatuses", ()):
        state = each["state"]
        if "running" in state or state.get("terminated", {}).get("exitCode") == 0:
            return "ran"
        if state.get("waiting", {}).get("reason") == ABSENT:
            return "absent"
        return str(next(iter(state.values())).get("reason"))
    return str(pod["status"].get("reason") or pod["status"].get("phase"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [50, pytest.param(250, marks=pytest.mark.soak)])
def test_no_image_vanishes_while_a_pod_is_being_made(make_node: NodeMaker, count: int) -> None:
    """Pods begin one after another, about two and a half a second, while everything that nobody
    uses is removed again and again. Each runs a random image for a moment. Its image may be gone
    when it comes: then the kubelet says so, and that is the truth. What must not be: a pod whose
    image vanishes while it is being made, or that waits for its sandbox's image."""
    node = make_node(maxPods=500)
    images = numbered("reclaimd.test/storm:{}", 30, MIB, BASE)
    node.import_images(images)
    file, choice = node.configured(), random.Random(1)  # noqa: S311 # a repeatable order, no secret

    def purge_on(over: threading.Event) -> None:
        while not over.is_set():
            reclaimd(*PURGE, "--config", file, timeout_seconds=PURGE_SECONDS)

    def bring_back(over: threading.Event) -> None:
        while not over.wait(3.0):  # as pulls would
            # removed again before it was whole or shown
            with contextlib.suppress(ContainerRuntimeError, FileNotFoundError, ToolError):
                node.import_images(images)

    def ends() -> Counter[str]:
        pods = node.api.pods()
        return Counter(end_of(pods[name]) for name in names)

    names, first = [f"storm-{number}" for number in range(count)], time.monotonic()
    with beside(purge_on, bring_back):
        for number, name in enumerate(names, 1):
            command = (*manifests.SHELL, "sleep 1; echo done")
            runs = manifests.container("runs", choice.choice(images).reference, command)
            node.create(manifests.pod(name, runs, restart="Never"))
            time.sleep(max(first + number * EACH_SECONDS - time.monotonic(), 0.0))
        with contextlib.suppress(TimeoutError):  # then some have not ended, which is told
            node.api.wait("all end", lambda: ends().keys() <= {"ran", "absent"}, SETTLE_SECONDS)
    found, pods = ends(), node.api.pods()
    assert found.keys() <= {"ran", "absent"}
    assert [name for name in names if restarts(pods[name])] == []
    assert found["ran"] > 0

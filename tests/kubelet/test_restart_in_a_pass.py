"""A kubelet that is killed in the middle of a pass and comes back: each removal waits
for the test, in a proxy.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.proxy import Proxy
from tests.kubelet import manifests
from tests.kubelet.access import kubelet_fields
from tests.kubelet.conftest import NodeMaker
from tests.kubelet.every_kind import (
    LOGS,
    MIB,
    SETTLED,
    logs,
    make_pods_of_every_kind,
    restarts_of,
    statuses,
)
from tests.kubelet.manifests import APP
from tests.kubelet.node import KubeletNode
from tests.nodes.faults import Hang
from tests.real_node.oci import BASE, Image, random_layer
from tests.reclaimd_process import PROGRAM, answer, reclaimd, write_configuration

UNUSED = 6
FINISHED = 6
PATIENCE_SECONDS = 60.0


@pytest.fixture
def proxied(make_node: NodeMaker) -> Iterator[tuple[KubeletNode, Proxy]]:
    """A node with a pod of each kind and images that nobody uses. The kubelet asks the runtime
    itself; reclaimd is to ask through the proxy."""
    node = make_node()
    make_pods_of_every_kind(node)
    node.import_removable(
        [
            Image(f"reclaimd.test/unused:{number}", (BASE, random_layer(number, MIB)))
            for number in range(UNUSED)
        ]
    )
    with Proxy(str(node.runtime.socket), str(node.runtime.run_directory / "proxy.sock")) as proxy:
        yield node, proxy


def configured(node: KubeletNode, proxy: Proxy, **fields: object) -> Path:
    """A configuration by which a pass waits as long as the test does. Behind the proxy containerd
    tells no pull times, so images need no age."""
    given = {
        **node.reclaimd_fields(),
        "containerRuntimeEndpoint": proxy.endpoint,
        "imageMinimumGCAge": "0s",
    }
    return write_configuration(
        node.disk.parent / "reclaimd.yaml",
        **given,
        parallelRemovals=1,
        removalPatience="10m",
        **fields,
    )


@contextmanager
def purge(configuration: Path) -> Iterator[subprocess.Popen[str]]:
    """`reclaimd reclaim --all`, while it runs."""
    command = (
        "reclaim",
        "--config",
        str(configuration),
        "--signal",
        "imagefs.available",
        "--all",
        "--now",
        "-o",
        "json",
    )
    with subprocess.Popen(
        [PROGRAM, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()  # nothing, once it has ended


def ended(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """Its end, waited for."""
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def unused_left(node: KubeletNode) -> int:
    """How many of the images that nobody uses are there."""
    return sum(
        "reclaimd.test/unused" in str(image.repo_tags) for image in node.runtime.cri.list_images()
    )


def hold_at(proxy: Proxy, method: str, further: int) -> None:
    """Lets what waits go, and waits until so many calls more have arrived, the
    last of which waits.
    """
    count = proxy.failpoints.calls[method] + further
    proxy.failpoints[method] = Hang()
    assert proxy.failpoints.wait_for_calls(method, count, PATIENCE_SECONDS), f"no {method}"


def test_the_pass_goes_on_to_its_end_and_nothing_runs_again(
    proxied: tuple[KubeletNode, Proxy],
) -> None:
    """Images: one is being removed as the kubelet is killed, one goes while there is none,
    the rest when it is back.
    """
    node, proxy = proxied
    configuration = configured(node, proxy)
    before = statuses(node, *SETTLED)
    proxy.failpoints["RemoveImage"] = Hang()
    with purge(configuration) as process:
        assert proxy.failpoints.wait_for_calls("RemoveImage", 1, PATIENCE_SECONDS)
        node.kubelet.kill()
        hold_at(proxy, "RemoveImage", 1)
        assert unused_left(node) == UNUSED - 1
        crashes = restarts_of(node, "crashing")
        node.kubelet.start()
        del proxy.failpoints["RemoveImage"]
        done = ended(process)
    assert done.returncode == 0, done.stderr
    assert {each["result"] for each in answer(done)["removals"]} == {"removed"}
    assert unused_left(node) == 0
    node.api.wait("it crashes again", lambda: restarts_of(node, "crashing") > crashes, 120.0)
    assert statuses(node, *SETTLED) == before
    assert logs(node) == {**LOGS, "prepared": "prepared is prepared\n"}


def test_what_the_kubelet_said_before_it_was_killed_holds_and_the_next_pass_does_the_rest(
    proxied: tuple[KubeletNode, Proxy],
) -> None:
    """Containers of terminated pods, with the kubelet's list: those go by the list of the
    beginning; the sandboxes, for which a new list is read, stay until the kubelet answers again."""
    node, proxy = proxied
    configuration = configured(node, proxy, **kubelet_fields(node))
    names = [f"finished-{number}" for number in range(FINISHED)]
    for name in names:
        node.create(manifests.completed(name, APP))
    for name in names:
        node.wait_for_phase(name, "Succeeded")
    before = statuses(node, *SETTLED, *names)
    proxy.failpoints["RemoveContainer"] = Hang()
    with purge(configuration) as process:
        assert proxy.failpoints.wait_for_calls("RemoveContainer", 1, PATIENCE_SECONDS)
        node.kubelet.kill()
        del proxy.failpoints["RemoveContainer"]
        done = ended(process)
    assert done.returncode == 0, done.stderr
    assert {each["result"] for each in answer(done)["removals"]} == {"removed"}
    held = node.runtime.cri
    assert not {each.labels["io.kubernetes.pod.name"] for each in held.list_containers()} & set(
        names
    )
    assert {each.metadata.name for each in held.list_sandboxes()} >= set(names)
    node.kubelet.start()

    def passed_again() -> bool:
        command = (
            "--config",
            str(configuration),
            "--signal",
            "imagefs.available",
            "--all",
            "--now",
        )
        assert reclaimd("reclaim", *command).returncode == 0
        return not {each.metadata.name for each in held.list_sandboxes()} & {
            *names,
            "done",
            "failed",
        }

    node.api.wait("the sandboxes go, as soon as it lists its pods again", passed_again, 60.0)
    crashes = restarts_of(node, "crashing")
    node.api.wait("it crashes again", lambda: restarts_of(node, "crashing") > crashes, 120.0)
    assert statuses(node, *before) == before

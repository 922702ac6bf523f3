"""Twelve pods in the states in which a node's pods are found, and which of
their parts must be removed.

Two of each, as some differ in odd pods: running; crashed several times; completed (Succeeded, not
deleted); deleted; with a dead first sandbox; just created. The expectations here follow from the
kubelet's rules, not from the code under test.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reclaim.cri import cri_pb2
from reclaim.cri.convert import container_state
from tests.nodes.real_node import RealNode
from tests.real_node.oci import SLEEP_FOR_EVER
from tests.real_node.pods import POD_UID, Sandbox
from tests.restart_rule import Copy, PodSpec, RestartPolicy

EACH = 2
CRASHES = 3  # dead copies of a container that crashed before it kept running


@dataclass
class TwelvePods:
    """What was built. Sets of ids of the runtime, and names of log directories.

    `always_removed`: older copies, and everything of deleted pods. `removed_with_kubelet`: what
    only the kubelet knows to be terminated. Everything else is kept.
    """

    node: RealNode
    image: str
    specs: list[PodSpec] = field(default_factory=list)
    pod_list: list[dict[str, Any]] = field(default_factory=list)
    always_removed: set[str] = field(default_factory=set)
    removed_with_kubelet: set[str] = field(default_factory=set)
    logs_of_deleted: set[str] = field(default_factory=set)

    def copies(self) -> list[Copy]:
        """Every container of the runtime, as input of the restart rule."""
        found = []
        for item in self.node.cri.list_containers():
            status = self.node.cri.container_status(item.id)
            uid, name = item.labels[POD_UID], item.metadata.name
            found.append(
                Copy(uid, name, container_state(item.state), status.exit_code, item.created_at)
            )
        return found

    def objects(self) -> set[str]:
        """The ids of all containers and sandboxes."""
        sandboxes = self.node.cri.call(
            "RuntimeService/ListPodSandbox",
            cri_pb2.ListPodSandboxRequest(),
            cri_pb2.ListPodSandboxResponse,
        )
        return {item.id for item in self.node.cri.list_containers()} | {
            item.id for item in sandboxes.items
        }

    def log_directories(self) -> set[str]:
        """The names in the pod log root."""
        return {entry.name for entry in self.node.kubelet.pod_logs_dir.iterdir()}


def build_twelve_pods(node: RealNode, image: str) -> TwelvePods:
    """All twelve on `node`, whose image `image` has a shell."""
    pods = TwelvePods(node, image)
    kinds: tuple[Callable[[TwelvePods, str], None], ...] = (
        _running,
        _crashed,
        _completed,
        _deleted,
        _with_a_dead_first_sandbox,
        _just_created,
    )
    for kind in kinds:
        for number in range(EACH):
            kind(pods, f"{kind.__name__.strip('_').replace('_', '-')}-{number}")
    return pods


def _admit(pods: TwelvePods, name: str, spec: PodSpec, phase: str = "Running") -> Sandbox:
    pods.node.kubelet.admit_pod(spec.uid)
    pods.specs.append(spec)
    metadata = {
        "uid": spec.uid,
        "name": name,
        "namespace": "default",
        "annotations": {"kubernetes.io/config.source": "api"},
    }
    pods.pod_list.append({"metadata": metadata, "status": {"phase": phase}})
    return pods.node.kubelet.run_pod(name, spec.uid)


def _uid(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}.twelve.reclaimd.test"))


def _run_to_end(pods: TwelvePods, sandbox: Sandbox, name: str, code: int, attempt: int = 0) -> str:
    kubelet = pods.node.kubelet
    copy = kubelet.run_container(
        sandbox, name, pods.image, ("/bin/sh", "-c", f"exit {code}"), attempt
    )
    kubelet.wait_exited(copy)
    return copy


def _running(pods: TwelvePods, name: str) -> None:
    """An exited init container and a running application: nothing of it is removed."""
    sandbox = _admit(pods, name, PodSpec(_uid(name), ("app",), ("init",)))
    _run_to_end(pods, sandbox, "init", 0)
    pods.node.kubelet.run_container(sandbox, "app", pods.image, SLEEP_FOR_EVER)


def _crashed(pods: TwelvePods, name: str) -> None:
    """Several dead copies, in odd pods also a running one: the newest dead copy is kept,
    the older ones are removed.
    """
    sandbox = _admit(
        pods, name, PodSpec(_uid(name), ("app",), restart_policy=RestartPolicy.ON_FAILURE)
    )
    copies = [_run_to_end(pods, sandbox, "app", 1, attempt) for attempt in range(CRASHES)]
    pods.always_removed |= set(copies[:-1])
    if int(name[-1]) % 2:
        pods.node.kubelet.run_container(sandbox, "app", pods.image, SLEEP_FOR_EVER, CRASHES)


def _completed(pods: TwelvePods, name: str) -> None:
    """Succeeded and not deleted: its containers and sandbox are removed only
    with the kubelet's state.
    """
    sandbox = _admit(
        pods,
        name,
        PodSpec(_uid(name), ("job",), ("init",), RestartPolicy.NEVER, over=True),
        phase="Succeeded",
    )
    parts = {
        _run_to_end(pods, sandbox, "init", 0),
        _run_to_end(pods, sandbox, "job", 0),
        sandbox.id,
    }
    pods.node.cri.stop_sandbox(sandbox.id)
    pods.removed_with_kubelet |= parts


def _deleted(pods: TwelvePods, name: str) -> None:
    """Its directory is gone, and no list names it: everything of it is removed, its logs too."""
    sandbox = _admit(pods, name, PodSpec(_uid(name), ("app",), over=True))
    parts = {_run_to_end(pods, sandbox, "app", 1, attempt) for attempt in range(2)}
    pods.node.kubelet.end_pod(sandbox)
    pods.pod_list.pop()
    pods.always_removed |= {*parts, sandbox.id}
    pods.logs_of_deleted.add(sandbox.log_directory.name)


def _with_a_dead_first_sandbox(pods: TwelvePods, name: str) -> None:
    """Its sandbox died and a new one runs: the dead one is removed if empty,
    a dead copy in it is kept.
    """
    spec = PodSpec(_uid(name), ("app",))
    first = _admit(pods, name, spec)
    kubelet = pods.node.kubelet
    keeps_a_copy = int(name[-1]) % 2
    if keeps_a_copy:
        _run_to_end(pods, first, "app", 1)
    pods.node.cri.stop_sandbox(first.id)
    second = kubelet.run_pod(name, spec.uid, attempt=1)
    kubelet.run_container(second, "app", pods.image, SLEEP_FOR_EVER, 1)
    if not keeps_a_copy:
        pods.always_removed.add(first.id)


def _just_created(pods: TwelvePods, name: str) -> None:
    """A sandbox, in odd pods also a container that has not been started:
    nothing of it is removed.
    """
    sandbox = _admit(pods, name, PodSpec(_uid(name), ("app",)), phase="Pending")
    if int(name[-1]) % 2:
        pods.node.kubelet.create_container(sandbox, "app", pods.image, SLEEP_FOR_EVER)

"""What is removed and kept of twelve pods on a real containerd, in both modes, is exactly
what was written down before; and content that nothing refers to goes from its store.

Two pods of each kind, as some differ in odd pods. The expectations follow from the kubelet's rules,
not from the code under test: afterwards its restart rule starts no container that it would not have
started before.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

from eviction.configuration.effective import load
from eviction.decision.reclaim_table import RowEntry
from eviction.engine.node import Node
from eviction.records.passes import PassResult
from reclaim.cri.convert import container_state
from reclaim.functions.containerd_garbage import (
    ID_PREFIX,
    OBJECT_ID,
    collect_garbage_function,
    examine,
)
from reclaim.functions.table import FUNCTIONS, table_of
from signals.types import KUBELET_SIGNALS, FilesystemRole
from tests.nodes.real_node import RealNode
from tests.nodes.small_node import outcome_of, relieve
from tests.real_node.containerd import Containerd
from tests.real_node.loopfs import MIB, ToolError
from tests.real_node.oci import BASE, Image
from tests.real_node.pods import POD_UID, Sandbox
from tests.real_node.steps import SETTLED_SECONDS, file_of, plan, reclaim
from tests.restart_rule import Copy, PodSpec, RestartPolicy, would_start
from tests.sockets import kubelet_server

APP = "reclaimd.test/app:1"
BELIEVED = {"believed": True, "why": None, "sentence": None}
GARBAGE = "CollectContainerdGarbage"


class TwelvePods:
    """Sets of ids of the runtime, and names of log directories.

    `always_removed`: older copies, and everything of deleted pods. `removed_with_kubelet`: what
    only the kubelet knows to be terminated. Everything else is kept.
    """

    def __init__(self, node: RealNode) -> None:
        self.node = node
        self.specs: list[PodSpec] = []
        self.pod_list: list[dict[str, Any]] = []
        self.always_removed: set[str] = set()
        self.removed_with_kubelet: set[str] = set()
        self.logs_of_deleted: set[str] = set()
        node.import_image(Image(APP, (BASE,)))
        for odd in (False, True):
            self._running()
            self._crashed(odd)
            self._completed()
            self._deleted()
            self._with_a_dead_first_sandbox(odd)
            self._just_created(odd)

    def would_run(self) -> dict[str, frozenset[str]]:
        """What the kubelet would start next, by pod."""
        cri, copies = self.node.cri, []
        for item in cri.list_containers():
            uid, state = item.labels[POD_UID], container_state(item.state)
            code = cri.container_status(item.id).exit_code
            copies.append(Copy(uid, item.metadata.name, state, code, item.created_at))
        return {pod.uid: would_start(pod, copies) for pod in self.specs}

    def objects(self) -> set[str]:
        """The ids of all containers and sandboxes."""
        cri = self.node.cri
        return cri.container_ids() | {item.id for item in cri.list_sandboxes()}

    def log_directories(self) -> set[str]:
        """The names in the pod log root."""
        return {entry.name for entry in self.node.kubelet.pod_logs_dir.iterdir()}

    def _admit(
        self, phase: str = "Running", *init: str, restart: RestartPolicy = RestartPolicy.ALWAYS
    ) -> Sandbox:
        """A new pod with an application, which is over if it has succeeded."""
        name, over = f"pod-{len(self.specs)}", phase not in ("Running", "Pending")
        pod = self.node.kubelet.pod(name)
        self.specs.append(PodSpec(pod.uid, ("app",), init, restart, over=over))
        source = {"kubernetes.io/config.source": "api"}
        metadata = {"uid": pod.uid, "name": name, "namespace": "default", "annotations": source}
        self.pod_list.append({"metadata": metadata, "status": {"phase": phase}})
        return pod

    def _ends(self, pod: Sandbox, name: str, *, fails: bool = False, attempt: int = 0) -> str:
        command = ("/bin/false" if fails else "/bin/true",)
        return self.node.kubelet.run_to_end(pod, name, APP, command, attempt)

    def _runs(self, pod: Sandbox, attempt: int = 0) -> None:
        self.node.kubelet.run_container(pod, "app", APP, attempt=attempt)

    def _running(self) -> None:
        """An exited init container and a running application: nothing of it is removed."""
        pod = self._admit("Running", "init")
        self._ends(pod, "init")
        self._runs(pod)

    def _crashed(self, odd: bool) -> None:
        """Several dead copies, in odd pods also a running one: the newest dead copy is kept,
        the older ones are removed.
        """
        pod = self._admit(restart=RestartPolicy.ON_FAILURE)
        copies = [self._ends(pod, "app", fails=True, attempt=attempt) for attempt in range(3)]
        self.always_removed |= set(copies[:-1])
        if odd:
            self._runs(pod, 3)

    def _completed(self) -> None:
        """Succeeded and not deleted: its containers and sandbox are removed only
        with the kubelet's state.
        """
        pod = self._admit("Succeeded", "init", restart=RestartPolicy.NEVER)
        parts = {self._ends(pod, "init"), self._ends(pod, "app"), pod.id}
        self.node.cri.stop_sandbox(pod.id)
        self.removed_with_kubelet |= parts

    def _deleted(self) -> None:
        """Its directory is gone, and no list names it: everything of it is removed, its logs too."""
        pod = self._admit("Deleted")
        parts = {self._ends(pod, "app", fails=True, attempt=attempt) for attempt in range(2)}
        self.node.kubelet.end_pod(pod)
        self.pod_list.pop()
        self.always_removed |= {*parts, pod.id}
        self.logs_of_deleted.add(pod.log_directory.name)

    def _with_a_dead_first_sandbox(self, odd: bool) -> None:
        """Its sandbox died and a new one runs: the dead one is removed if empty,
        a dead copy in it is kept.
        """
        first = self._admit()
        if odd:
            self._ends(first, "app", fails=True)
        else:
            self.always_removed.add(first.id)
        self.node.cri.stop_sandbox(first.id)
        self._runs(self.node.kubelet.run_pod(first.config.metadata.name, first.uid, attempt=1), 1)

    def _just_created(self, odd: bool) -> None:
        """A sandbox, in odd pods also a container that has not been started:
        nothing of it is removed.
        """
        pod = self._admit("Pending")
        if odd:
            self.node.kubelet.create_container(pod, "app", APP)


def told_by(who: str) -> dict[str, Any]:
    """Of the pods: who has said which there are, and that the directories are believed."""
    return {"told_by": who, "problem": None, "directories": BELIEVED}


def parts(record: dict[str, Any]) -> set[str]:
    """The containers and sandboxes among the removals."""
    return {o["id"] for o in record["removals"] if o["kind"] in ("container", "sandbox")}


def test_the_stricter_guards_decide_without_the_kubelets_state_and_with_it_it_is_the_kubelet_object_for_object(
    containerd: RealNode,
) -> None:
    """Without it older copies and all of deleted pods are removed; completed pods, whose directory
    is there, keep everything. With it, and with extent all, terminated pods lose their containers
    and sandboxes too; their logs are kept, as the pods are not deleted."""
    pods, row = TwelvePods(containerd), ("--signal", "nodefs.available", "--now")
    time.sleep(SETTLED_SECONDS)
    before, starts, logs = pods.objects(), pods.would_run(), pods.log_directories()
    root = containerd.kubelet.pod_logs_dir
    places = {"podLogsDir": str(root), "containerLogsDir": str(root.parent / "containers")}
    listed = kubelet_server.answer(kubelet_server.pod_list(*pods.pod_list))
    with kubelet_server.KubeletServer(listed) as kubelet:
        asking = {**places, "kubeletEndpoint": kubelet.url, "extent": "all"}
        told = plan(file_of(containerd, **asking))
        assert parts(told) == pods.always_removed | pods.removed_with_kubelet
        assert told["pods"] == told_by("kubelet")
        kept = [o for o in told["kept"] if o["kind"] in ("container", "sandbox")]
        assert {o["rule"] for o in kept} == {"kubelet"}

        file = file_of(containerd, **places)
        guarded = plan(file)
        containers = [o for o in guarded["kept"] if o["kind"] == "container"]
        over = {o["rule"] for o in containers if o["id"] in pods.removed_with_kubelet}
        assert over == {"guard"}, "keeps what only the kubelet knows to be terminated"
        assert guarded["pods"] == told_by("directories")
        assert pods.objects() == before, "a plan removes nothing"
        record = reclaim(file, *row)
        assert before - pods.objects() == parts(record) == pods.always_removed
        assert logs - pods.log_directories() == pods.logs_of_deleted
        assert pods.would_run() == starts, "the restart rule starts nothing more than before"

        reclaim(file_of(containerd, **asking), *row)
    assert before - pods.objects() == pods.always_removed | pods.removed_with_kubelet
    assert logs - pods.log_directories() == pods.logs_of_deleted
    assert pods.would_run() == starts


# ---- containerd's garbage


def ingest(runtime: Containerd, name: str, size_bytes: int) -> Path:
    """Content that nothing refers to; its file."""
    content = os.urandom(size_bytes)
    runtime.ctr("content", "ingest", name, given=content)
    return runtime.age_stamp(f"sha256:{hashlib.sha256(content).hexdigest()}")


def labelled(runtime: Containerd, size_bytes: int) -> Path:
    """Content that a label keeps; its file. containerd's client labels what is there already, so
    that a collection may come in between: then there is other content."""
    for attempt in range(5):
        path = ingest(runtime, f"kept-{attempt}", size_bytes)
        try:
            runtime.ctr("content", "label", f"sha256:{path.name}", "containerd.io/gc.root=kept")
        except ToolError:
            continue
        return path
    raise AssertionError("containerd collected content five times before it could be labelled")


def test_content_that_nothing_refers_to_goes_and_what_is_labelled_stays(
    containerd: RealNode,
) -> None:
    """`CollectContainerdGarbage`, alone in every row: 32 MiB of garbage beside 8 MiB that a label
    keeps, measured by statvfs; the images that CRI lists stay, and no lease is left."""
    runtime = containerd.containerd
    assert isinstance(runtime, Containerd)
    # containerd's own collection comes after deletions and some time: let it be over
    runtime.ctr("leases", "create", "--id", "nothing")
    runtime.ctr("leases", "rm", "--sync", "nothing")
    kept, garbage = labelled(runtime, 8 * MIB), ingest(runtime, "garbage", 32 * MIB)
    images = containerd.cri.image_ids()
    mark = containerd.filesystem.available_bytes() + 24 * MIB
    configuration = load(file_of(containerd, nodefs=mark), {}, {})
    rows = dict.fromkeys(KUBELET_SIGNALS, (RowEntry(GARBAGE),))
    function = collect_garbage_function(GARBAGE, 60.0, FilesystemRole.NODEFS)
    product = Node(
        configuration.model_copy(update={"rows": rows}),
        functions=table_of(function, *FUNCTIONS.values()),
    )
    try:
        examine(GARBAGE, product.client)
        before = containerd.filesystem.available_bytes()
        record = relieve(product)
        gained = containerd.filesystem.available_bytes() - before
    finally:
        product.close()
    assert (record.result, record.errors) == (PassResult.SATISFIED, ())
    assert 31 * MIB <= gained <= 33 * MIB
    outcome = outcome_of(record, OBJECT_ID)
    assert outcome.result == "removed"
    assert abs(outcome.freed.bytes - gained) < MIB
    assert (garbage.exists(), kept.exists()) == (False, True)
    assert containerd.cri.image_ids() == images
    assert ID_PREFIX not in runtime.ctr("leases", "ls")

"""One node of the model: runtime and kubelet, the product on it, a canary beside it, and a check of all of them.

Other steps may run between two calls of a pass, see `interrupt`: that is how a pod starts in the middle of a pass.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from typing import Any

import grpc

from eviction.configuration.effective import Extent, load
from eviction.decision.threshold_config import KUBELET_EVICTION_HARD
from eviction.drill.runtime.dialects import CONTAINERD_1_6, CONTAINERD_2, CRI_O_1_28, CRI_O_1_31
from eviction.drill.runtime.failpoints import ActThenFail, Cut, Distort, Fail, Failpoint, Hang, MethodFault, Pretend
from eviction.drill.runtime.layer_store import LayerSpec
from eviction.node.node import Node
from eviction.node.responder import Request
from eviction.reporting.pass_record import Pass, Trigger
from reclaim.execution.executor import Executor
from reclaim.functions import DELETE_UNUSED_IMAGES, FUNCTIONS
from reclaim.images.lister import Lister
from reclaim.images.periodic_gc import ImageGC
from reclaim.types import Outcome, Result
from signals.types import Signal
from tests.model.canary import Canary
from tests.model.kubelet import Kubelet
from tests.model.ledger import Licence
from tests.model.ticking import CoarseEvent, TickingClock
from tests.model.truth import TrueRuntime
from tests.nodes.model_node import Interruptions, SharedParts
from tests.pure.values import threshold

DIALECTS = (CONTAINERD_2, CONTAINERD_1_6, CRI_O_1_31, CRI_O_1_28)
PAUSE = "registry.k8s.io/pause:3.10"
IMAGES = tuple(f"registry.example/app{number}:1" for number in range(6))
KEEPS: tuple[tuple[str, ...], ...] = ((), IMAGES[:1], IMAGES[1:4], ("registry.example/kept:*",))
KEPT_TAG = "registry.example/kept:1"
MIN_AGES = ("0s", "2m")
KIB = 1024
PAGE_BYTES = 4096
READ_DEADLINE_SECONDS = 0.4
ROW = tuple(FUNCTIONS)
STATUS_CALLS = ("ContainerStatus", "ImageStatus", "PodSandboxStatus")


class World:
    """A node with its product. `mode` selects extent, source of pods and minimum age; `dialect` one of DIALECTS."""

    def __init__(self, shared: SharedParts, dialect: int, mode: int) -> None:
        self.clock = TickingClock()
        self._shared = shared
        self.directory = shared.next_directory()
        self.dialect = DIALECTS[dialect % len(DIALECTS)]
        self.runtime = TrueRuntime(str(self.directory / "images"), self.clock, dialect=self.dialect)
        self.failpoints = Interruptions(self.runtime, lambda: self.clock.step(0.0)[0])
        shared.server.runtime, shared.server.failpoints = self.runtime, self.failpoints
        logs = self.directory / "log"
        self.kubelet = Kubelet(self.runtime, self.directory / "kubelet", logs, self.pull)
        self.kubelet_answers = 0
        shared.answer = self._answer
        self.canary = Canary(self.directory / "canary", self.kubelet.pod_logs, self.kubelet.container_logs)
        self.wrong: list[str] = []
        self.passes = 0
        self.extent = (Extent.ENOUGH, Extent.ALL)[mode % 2]
        self.from_kubelet = mode // 2 % 2 == 1
        self.keep = KEEPS[0]
        self.min_age = MIN_AGES[mode // 4 % 2]
        self.runtime.add_image([PAUSE], [LayerSpec("pause", 4 * KIB)])
        for name in IMAGES[:3]:
            self.pull(name)
        self.state_file = self.directory / "state" / "images.json"
        self.state_file.parent.mkdir(mode=0o700)
        self.product = self._make_product()

    def close(self) -> None:
        """Closes the product and removes the node's directory."""
        self.failpoints.clear()
        self.product.close()
        shutil.rmtree(self.directory)

    # ---- what happens

    def layers(self, name: str) -> list[LayerSpec]:
        """The layers of an image: one of its own, and for half of the names one that they share."""
        number = sum(name.encode())
        shared = [LayerSpec("shared", 8 * KIB)] if number % 2 else []
        return [*shared, LayerSpec(name, (1 + number % 5) * 4 * KIB, files=1 + number % 2)]

    def pull(self, name: str) -> str:
        """An image arrives; its id."""
        return self.runtime.add_image([name], self.layers(name))

    def _answer(self) -> tuple[int, bytes]:
        """The kubelet's answer: the pods, an empty list (as after its start), an error, or half of the answer."""
        body = self.kubelet.pod_list()
        match self.kubelet_answers % 4:
            case 1:
                return 200, b'{"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": null}'
            case 2:
                return 500, b"internal"
            case 3:
                return 200, body[: len(body) // 2]
            case _:
                return 200, body

    def restart_product(self) -> None:
        """reclaimd is stopped and started again; its records survive in their file."""
        if self.product.record_file is not None:
            self.product.record_file.save(self.product.records.records)
        self.product.close()
        self.product = self._make_product()
        self.product.restore_image_records()

    def use_keep_list(self, keep: int) -> None:
        """Another keep-list from now on."""
        self.keep = KEEPS[keep % len(KEEPS)]
        self.product.reconfigure(load(None, {}, self._fields()))
        self.runtime.licence = self._licence()

    def _make_product(self) -> Node:
        configuration = load(None, {}, self._fields())
        self.runtime.licence = self._licence()
        return Node(
            configuration,
            stopping=CoarseEvent(self.clock),
            clock=self.clock,
            read_deadline_seconds=READ_DEADLINE_SECONDS,
        )

    def _licence(self) -> Licence:
        keep = {KEPT_TAG if "*" in each else each for each in self.keep}
        exact = self.from_kubelet and self.extent is Extent.ALL
        return Licence(exact, self.from_kubelet, frozenset(keep), 120.0 if self.min_age == "2m" else 0.0)

    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "rootDirectory": str(self.directory / "kubelet"),
            "podLogsDir": str(self.kubelet.pod_logs),
            "containerLogsDir": str(self.kubelet.container_logs),
            "stateFile": str(self.state_file),
            "containerRuntimeEndpoint": f"unix://{self._shared.server.socket_path}",
            "evictionHard": dict.fromkeys(map(str, KUBELET_EVICTION_HARD), "0%"),
            "extent": str(self.extent),
            "imageMinimumGCAge": self.min_age,
            "imageGCHighThresholdPercent": 1,
            "imageGCLowThresholdPercent": 0,
            "keepImages": list(self.keep),
        }
        if self.from_kubelet:
            fields["kubeletEndpoint"] = self._shared.kubelet_endpoint
        return fields

    # ---- a pass

    def relieve(self, above_bytes: int, extent: Extent) -> None:
        """A pass until so many more bytes are available than now, or (`extent: all`) to the end of the row."""
        until = (threshold(Signal.NODEFS_AVAILABLE, str(self._free()[0] + above_bytes)),)
        self._begin()
        self.product.locate()
        before = self._free()
        observations, decision = self.product.responder.synchronize()
        record = self.product.responder.reclaim(observations, decision, Trigger.REQUEST, Request(ROW, until, extent))
        after = self._free()
        measured = (record.measured_bytes, record.measured_inodes)
        true = (after[0] - before[0], after[1] - before[1])
        if abs(measured[0] - true[0]) >= PAGE_BYTES or measured[1] != true[1]:
            self.wrong.append(f"{measured} bytes and inodes are reported, and the filesystem has {true} more")
        listed = any(each.operation == DELETE_UNUSED_IMAGES.name and not each.error for each in record.functions)
        self._end(record.removals, record.kept, listed_images=listed)
        self._check_nominal(record)

    def collect(self, *, images: bool) -> None:
        """A pass of a periodic loop: of containers, or of images."""
        node, stopping = self.product, self.product.stopping
        self._begin()
        if images:
            lister = Lister(node.client, node.client, node.clock)
            image_gc = ImageGC(
                node.client, lister, node.records, Executor(node.clock, stopping), starts=node.pod_starts
            )
            exact = self.extent is Extent.ALL
            result = image_gc.run(node.policies().images, 0.0, node.image_fs_space, exact=exact).reclaim
        else:
            result = node.make_collector(Executor(node.clock, stopping, parallel=1)).garbage_collect_containers()
        self._end(result.outcomes, result.kept, listed_images=images and not result.error)

    def interrupt(self, steps: dict[int, Callable[[], object]]) -> None:
        """Sets what happens before the nth call (from 1 on) of the next pass; removals are then not parallel."""
        first = self.runtime.calls
        self.product.executor.parallel = 1 if steps else 2

        def before_call(number: int) -> None:
            step = steps.pop(number - first, None)
            if step is not None:
                step()

        self.failpoints.before_call = before_call

    def arm(self, fault: MethodFault) -> None:
        """Arms a fault, unless it would hang for ever or give an undetectable wrong answer."""
        removing = fault.method.startswith(("Remove", "Stop"))
        list_of_containers = fault.method == "ListContainers"
        match fault.action:
            case Hang() if removing:
                return
            case Pretend() if list_of_containers:
                return
            case Distort(how=how) if how == "half_list" and list_of_containers:
                return
        self.failpoints.add(fault)

    def _begin(self) -> None:
        self.passes += 1
        self._removals_before = len(self.runtime.ledger)
        self.failpoints.triggered.clear()

    def _end(self, removals: Iterable[Outcome], kept: Iterable[Outcome], *, listed_images: bool) -> None:
        self.failpoints.before_call = lambda _: None
        if listed_images:
            self.runtime.listed_images = self.runtime.answered_calls.get("ListImages", 0)
        removed = {entry.id for entry in self.runtime.ledger[self._removals_before :] if entry.by_reclaimd}
        for outcome in () if self._answered_wrongly() else removals:
            there = self.runtime.has(outcome.verdict.id)
            if outcome.result is Result.REMOVED and there and outcome.verdict.id not in removed:
                self.wrong.append(f"{outcome.verdict.id} is reported as removed, and is there")
            if outcome.result is Result.FAILED and outcome.verdict.id in removed and not there:
                self.wrong.append(f"{outcome.verdict.id} is reported as failed, and was removed: {outcome.error}")
        reported = {outcome.verdict.id for outcome in removals}
        self.wrong += [
            f"{each.verdict.id} is reported as kept, and was removed"
            for each in kept
            if each.verdict.id in removed - reported
        ]
        self.wrong += [f"{each} was removed, and is not reported" for each in removed - reported]

    def _answered_wrongly(self) -> bool:
        """Whether a status in this pass reported an object that is there as absent, or the reverse."""
        return any(method in STATUS_CALLS and _is_wrong_answer(action) for method, action in self.failpoints.triggered)

    def _check_nominal(self, record: Pass) -> None:
        removed = [each for each in record.removals if each.result is Result.REMOVED]
        nominal = sum(each.verdict.size_bytes or 0 for each in removed)
        if record.nominal_bytes != nominal:
            self.wrong.append(f"{record.nominal_bytes} nominal bytes are reported of {nominal}")

    def _free(self) -> tuple[int, int]:
        found = os.statvfs(self.directory)
        return found.f_bavail * found.f_frsize, found.f_ffree

    def harm(self) -> list[str]:
        """All that is wrong by now; empty if nothing is."""
        wrong = [f"{each.kind} {each.id}: {', '.join(each.wrong)}" for each in self.runtime.ledger if each.wrong]
        wrong += self.wrong + self.kubelet.wrong + self.kubelet.missing_logs()
        wrong += self.canary.touched()
        directories = set(os.listdir(self.directory / "kubelet" / "pods"))
        if directories != set(self.kubelet.pods):
            wrong.append(f"the kubelet's directories are {directories}, not {set(self.kubelet.pods)}")
        return wrong


def _is_wrong_answer(action: Failpoint) -> bool:
    match action:
        case Pretend() | Distort():
            return True
        case Fail(code=code) | ActThenFail(code=code) | Cut(code=code):
            return code is grpc.StatusCode.NOT_FOUND
        case _:
            return False

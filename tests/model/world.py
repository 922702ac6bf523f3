"""One node of the model: runtime and kubelet, the product on it, a canary beside it, and a check of all of them.

Other steps may run between two calls of a pass, see `interrupt`: that is how a pod starts in the middle of a pass.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from eviction.configuration.effective import load
from eviction.configuration.threshold_config import KUBELET_EVICTION_HARD
from eviction.drill.runtime.dialects import CONTAINERD_1_6, CONTAINERD_2, CONTAINERD_2_0, CRI_O_1_28, CRI_O_1_31
from eviction.drill.runtime.faults import Distort, Hang, Pretend
from eviction.drill.runtime.layer_store import LayerSpec
from eviction.node.node import Node
from eviction.node.state_file import Moment, records_json
from eviction.types import Extent
from reclaim.types import ImageRecord
from tests.model.canary import Canary
from tests.model.held_calls import HeldCall, Way
from tests.model.kubelet import Kubelet
from tests.model.ledger import Licence
from tests.model.passes import Passes
from tests.model.root_directory import RootDirectory
from tests.model.ticking import CoarseEvent, TickingClock
from tests.model.truth import TrueRuntime
from tests.nodes.method_faults import MethodFault, arm
from tests.nodes.model_node import Interruptions, SharedParts

CONTAINERD_2_0_5 = replace(CONTAINERD_2_0, runtime_version="2.0.5", image_space_delay_seconds=0.0)
CONTAINERDS = (CONTAINERD_2, CONTAINERD_2_0_5, CONTAINERD_1_6)
CRI_OS = (CRI_O_1_31, CRI_O_1_28)
DIALECTS = (CONTAINERD_2, CONTAINERD_1_6, CRI_O_1_31, CRI_O_1_28, CONTAINERD_2_0_5)
PAUSE = "registry.k8s.io/pause:3.10"
IMAGES = tuple(f"registry.example/app{number}:{'latest' if number % 3 else 1}" for number in range(6))
KEEPS: tuple[tuple[str, ...], ...] = ((), IMAGES[:1], IMAGES[1:4], ("registry.example/kept:*",))
KEPT_TAG = "registry.example/kept:1"
MIN_AGES = ("0s", "2m")
KIB = 1024
LONG_AGO_SECONDS = 90_000.0
READ_DEADLINE_SECONDS = 1.0  # real time; a call that hangs costs it
PATIENCE_SECONDS = 0.2  # real time is spent in it: far less than a configuration may say


class World:
    """A node with its product. `mode` selects extent, source of pods and minimum age; `dialect` one of DIALECTS."""

    def __init__(
        self, shared: SharedParts, dialect: int, mode: int, read_deadline_seconds: float = READ_DEADLINE_SECONDS
    ) -> None:
        self._read_deadline_seconds = read_deadline_seconds
        self.clock = TickingClock()
        self.shared = shared
        self.directory = shared.next_directory()
        self.dialect = DIALECTS[dialect % len(DIALECTS)]
        self.runtime = TrueRuntime(str(self.directory / "images"), self.clock, dialect=self.dialect)
        self.failpoints = Interruptions(self.runtime, lambda: self.clock.step(0.0)[0])
        shared.server.runtime, shared.server.failpoints = self.runtime, self.failpoints
        logs = self.directory / "log"
        self.root = RootDirectory(self.directory / "kubelet")
        self.kubelet = Kubelet(self.runtime, self.root, logs, self.pull)
        self.no_threads = False
        self.passes = Passes(self)
        self.kubelet_answers = 0
        shared.answer = self._answer
        self.canary = Canary(self.directory / "canary", self.kubelet.pod_logs, self.kubelet.container_logs)
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
        self.runtime.held.disarm()
        self.end_hung_calls(lambda _: True, lost=True)
        self.product.close()
        self.root.close()
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

    def set_no_threads(self, no_threads: bool) -> None:
        """Whether no thread can be started while a pass runs; also for the pass that runs now."""
        self.no_threads = no_threads
        if self.passes.at_work:
            self.shared.thread_starts.fail = no_threads

    def replace_runtime(self, pick: int) -> None:
        """Another version of the runtime takes over its socket and its objects; what hung is lost.

        Nobody goes back from containerd 2.1 to 1.6 with containers or pods that have image volumes: it would make the
        containers of such a pod without them.
        """
        family = CONTAINERDS if self.runtime.dialect in CONTAINERDS else CRI_OS
        others = [dialect for dialect in family if dialect != self.runtime.dialect]
        mounted = any(mount.image.image for each in self.runtime.every_container() for mount in each.mounts)
        if mounted or any(pod.volume for pod in self.kubelet.pods.values()):
            others = [dialect for dialect in others if dialect != CONTAINERD_1_6]
        self.runtime.dialect = others[pick % len(others)]
        self.restart_runtime()

    def restart_runtime(self) -> None:
        """The runtime is stopped and started again; what hung is lost."""
        self.end_hung_calls(lambda _: True, lost=True)
        self.shared.server.stop()
        self.shared.server.start()

    def end_hung_calls(self, which: Callable[[HeldCall], bool], *, lost: bool = False) -> bool:
        """Ends the calls that hang and are meant. Whether there was one."""
        ended = [call for call in self.runtime.held.held if which(call)]
        for call in ended:
            self.runtime.held.end(call, self._is_answered, lost=lost)
        return bool(ended)

    def _is_answered(self, object_id: str) -> bool:
        """Whether reclaimd waits for no removal of this object any more that it has parked."""
        return object_id not in self.product.removals.parked

    def restart_product(self) -> None:
        """reclaimd is stopped and started again; its records survive in their file. If a call hangs it is killed."""
        if self.product.record_file is not None:
            self.product.record_file.save(self.product.records.records, self.product.records.gone)
        self._end_product()
        self._start_product()

    def start_elsewhere(self) -> None:
        """reclaimd is stopped, and started again with the state file of another machine, on which all images were old:
        both were cloned from one disk image."""
        self._end_product()
        then = Moment(self.clock.monotonic(), self.clock.wall(), "another boot", "another machine")
        old = ImageRecord(then.monotonic - LONG_AGO_SECONDS)
        records = {image.id: old for image in self.runtime.all_images()}
        self.state_file.write_bytes(records_json(records, then, {}))
        self._start_product()

    def _end_product(self) -> None:
        if self.runtime.held.orphan_all():
            self.product.client.close()
        self.product.close()

    def _start_product(self) -> None:
        self.product = self._make_product()
        self.product.restore_image_records()

    def use_keep_list(self, keep: int) -> None:
        """Another keep-list from now on."""
        self.keep = KEEPS[keep % len(KEEPS)]
        configuration = load(None, {}, self._fields())
        self.product.reconfigure(configuration.model_copy(update={"removal_patience_seconds": PATIENCE_SECONDS}))
        self.runtime.licence = self._licence()

    def _make_product(self) -> Node:
        configuration = load(None, {}, self._fields())
        self.runtime.licence = self._licence()
        product = Node(
            configuration.model_copy(update={"removal_patience_seconds": PATIENCE_SECONDS}),
            stopping=CoarseEvent(self.clock),
            clock=self.clock,
            read_deadline_seconds=self._read_deadline_seconds,
        )
        product.prepare()
        return product

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
            "kubeletConfig": "",
            "kubeletHealthzEndpoint": "",
            "containerRuntimeEndpoint": f"unix://{self.shared.server.socket_path}",
            "evictionHard": dict.fromkeys(map(str, KUBELET_EVICTION_HARD), "0%"),
            "extent": str(self.extent),
            "imageMinimumGCAge": self.min_age,
            "imageGCHighThresholdPercent": 1,
            "imageGCLowThresholdPercent": 0,
            "keepImages": list(self.keep),
        }
        if self.from_kubelet:
            fields["kubeletEndpoint"] = self.shared.kubelet_endpoint
        return fields

    def arm(self, fault: MethodFault) -> None:
        """Arms a fault, unless it would hang for ever or give an undetectable wrong answer."""
        removing = fault.method.startswith(("Remove", "Stop"))
        list_of_containers = fault.method == "ListContainers"
        match fault.action:
            case Hang() if removing:
                self.runtime.held.arm(Way(acts_first=False, fails=False))
                return
            case Pretend() if list_of_containers:
                return
            case Distort(how=how) if how == "half_list" and list_of_containers:
                return
        arm(self.failpoints, fault)

    def harm(self) -> list[str]:
        """All that is wrong by now; empty if nothing is."""
        wrong = [f"{each.kind} {each.id}: {', '.join(each.wrong)}" for each in self.runtime.ledger if each.wrong]
        wrong += self.runtime.attempts + self.passes.wrong + self.kubelet.wrong + self.kubelet.missing_logs()
        wrong += self.canary.touched()
        wrong += self.root.touched()
        directories = self.root.pods()
        if directories != set(self.kubelet.pods):
            wrong.append(f"the kubelet's directories are {directories}, not {set(self.kubelet.pods)}")
        return wrong

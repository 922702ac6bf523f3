"""A container runtime in memory: both services, protecting nothing, as real ones do."""

from collections.abc import Callable, Mapping

from reclaim.cri.status import CallError, Code
from reclaim.evidence.states import Distrust, PodDirectory, PodState, PodStates
from reclaim.types import (
    NEVER,
    Container,
    ContainerState,
    ContainerStatus,
    Image,
    ImageFsInfo,
    Listing,
    PodSandbox,
    PodSandboxStatus,
    RuntimeUnavailable,
    RuntimeVersion,
)
from tests.pure.values import SteppedClock


class MemoryRuntime:
    """Containers, sandboxes and images by id; every call is written down, takes
    time, and may go unanswered.
    """

    def __init__(self, clock: SteppedClock) -> None:
        self.clock = clock
        self.containers: dict[str, Container] = {}
        self.sandboxes: dict[str, PodSandbox] = {}
        self.images: dict[str, Image] = {}
        self.calls: list[str] = []
        self.call_seconds = 0.0
        self.slow: dict[str, float] = {}  # how many seconds more a method takes
        self.log_paths: dict[str, str] = {}  # of containers, by id
        # what happens while a method is on its way
        self.on_call: dict[str, Callable[[], object]] = {}
        self.away = False
        self.stops = True
        self.connections_made = 0
        self.runtime_path = ""

    def hold(self, *objects: Container | PodSandbox | Image) -> None:
        """Takes these objects in."""
        for one in objects:
            match one:
                case Container():
                    self.containers[one.id] = one
                case PodSandbox():
                    self.sandboxes[one.id] = one
                case Image():
                    self.images[one.id] = one

    def set_state(self, container_id: str, state: ContainerState) -> None:
        """Puts a container into another state."""
        self.containers[container_id] = self.containers[container_id]._replace(state=state)

    def _called(self, call: str) -> None:
        self.calls.append(call)
        self.clock.step(self.call_seconds + self.slow.get(call, 0.0))
        self.on_call.get(call, lambda: None)()
        if self.away:
            raise RuntimeUnavailable("the runtime is away")

    def version(self) -> RuntimeVersion:
        """A containerd without image volumes."""
        return RuntimeVersion("containerd", "1.6.20")

    def call_service(self, method: str, request: bytes, seconds: float) -> bytes:
        """It serves CRI and nothing else."""
        raise CallError(Code.UNIMPLEMENTED, f"unknown service {method}")

    def sandbox_image(self) -> str | None:
        """As configured."""
        return "registry.k8s.io/pause:3.9"

    def list_containers(self, *, sandbox_id: str = "", pod_uid: str = "") -> tuple[Container, ...]:
        """All, or those of one sandbox or pod."""
        self._called("list_containers")
        return tuple(
            one
            for one in self.containers.values()
            if sandbox_id in ("", one.sandbox_id) and pod_uid in ("", one.pod_uid)
        )

    def list_pod_sandboxes(self) -> tuple[PodSandbox, ...]:
        """All."""
        self._called("list_pod_sandboxes")
        return tuple(self.sandboxes.values())

    def container_status(self, container_id: str) -> ContainerStatus | None:
        """Takes the beginning of an id for the id, as real runtimes do."""
        self._called("container_status")
        found = next(
            (one for one in self.containers.values() if one.id.startswith(container_id)), None
        )
        if found is None:
            return None
        log_path = self.log_paths.get(found.id, "")
        return ContainerStatus(found.id, found.state, log_path=log_path, identity=found.identity)

    def pod_sandbox_status(self, sandbox_id: str) -> PodSandboxStatus | None:
        """By whole id."""
        self._called("pod_sandbox_status")
        found = self.sandboxes.get(sandbox_id)
        return None if found is None else PodSandboxStatus(found.state, found.identity)

    def image_of_sandbox(self, sandbox_id: str, within_seconds: float = NEVER) -> str | None:
        """It does not say."""
        return None

    def stop_container(self, container_id: str, grace_seconds: int) -> None:
        """At once."""
        self._called(f"stop_container {container_id} {grace_seconds}")
        if self.stops and container_id in self.containers:
            self.set_state(container_id, ContainerState.EXITED)

    def remove_container(self, container_id: str) -> bool:
        """Whatever its state."""
        self._called(f"remove_container {container_id}")
        return self.containers.pop(container_id, None) is not None

    def stop_pod_sandbox(self, sandbox_id: str) -> None:
        """Stops it."""
        self._called(f"stop_pod_sandbox {sandbox_id}")

    def remove_pod_sandbox(self, sandbox_id: str) -> bool:
        """With its containers."""
        self._called(f"remove_pod_sandbox {sandbox_id}")
        return self.sandboxes.pop(sandbox_id, None) is not None

    def list_images(self) -> tuple[Image, ...]:
        """All."""
        self._called("list_images")
        return tuple(self.images.values())

    def image_status(self, reference: str) -> Image | None:
        """By id or tag."""
        self._called(f"image_status {reference}")
        return next(
            (one for one in self.images.values() if reference in (one.id, *one.repo_tags)), None
        )

    def remove_image(self, image_id: str) -> bool:
        """Even one in use."""
        self._called(f"remove_image {image_id}")
        return self.images.pop(image_id, None) is not None

    def image_fs_info(self) -> ImageFsInfo:
        """Nowhere."""
        return ImageFsInfo()


class MemoryPods:
    """A provider of pod states: the UIDs that exist."""

    def __init__(self, *uids: str):
        self.uids = set(uids)
        self.listed = False  # whether the kubelet's list is known, so that its own rules apply
        self.begun: dict[str, float] = {}
        self.begun_containers: dict[tuple[str, str], float] = {}
        self.named: frozenset[str] = frozenset()
        self.doubt: Distrust | None = None
        self.on_look: Callable[[], object] = lambda: None  # at the directories

    def pod_states(self) -> PodStates:
        """Which pods exist now."""
        self.on_look()
        states = dict.fromkeys(self.uids, PodState()) if self.listed else None
        return PodStates(frozenset(self.uids), states)

    def read(self) -> PodStates:
        """The same."""
        return self.pod_states()

    def compared(self, states: PodStates, listing: Listing | None) -> PodStates:
        """Always believed."""
        return states

    def gone(self, uid: str) -> bool:
        """Whether this one does not."""
        return self.pod_states().gone(uid)

    def pod_directories(self, since: float | None = None) -> Mapping[str, PodDirectory]:
        """Those of pods and of containers of which it is known when they began."""
        self.on_look()
        return {
            uid: PodDirectory(
                at,
                {name: then for (pod, name), then in self.begun_containers.items() if pod == uid},
            )
            for uid, at in self.begun.items()
        }

    def named_images(self, since: float | None = None) -> Mapping[str, frozenset[str]]:
        """What the specs of its pods name."""
        return {"uid-named": self.named} if self.named else {}

"""The embedded runtime, observed: who calls it, when it has answered what, and what is there without asking it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from eviction.drill.runtime.runtime import Container, EmbeddedRuntime, Image, NotFoundError, Sandbox
from reclaim.cri.convert import UID_LABEL
from tests.model.image_history import ImageHistory
from tests.model.ledger import PATIENCE_SECONDS, STATES, Licence, Since
from tests.model.ticking import TickingClock
from tests.restart_rule import Copy


class ObservedRuntime(EmbeddedRuntime):
    """A runtime that knows whether reclaimd or the kubelet calls it.

    `restarts`: the containers (by pod UID) that the kubelet would start now, by its restart rule, if the container of
    this id were not there. `pod_exists`: whether the kubelet has a pod with this UID. `begun`: when the directories of
    a container and of its pod were made, as far as reclaimd can see them. `beginnings`: when any was, in order.
    `pass_began`: when the pass of now did.
    """

    def __init__(self, images_root: str, clock: TickingClock, **options: Any) -> None:
        super().__init__(images_root, wall_clock=clock.wall, **options)
        self.licence = Licence()
        self.restarts: Callable[[str, str], frozenset[str]] = lambda *_: frozenset()
        self.pod_exists: Callable[[str], bool] = lambda _: False
        self.begun: Callable[[Container], tuple[Since, ...]] = lambda _: ()
        self.beginnings: list[Since] = []
        self.pass_began = Since(0, 0.0)
        self.history = ImageHistory()
        self.calls = 0
        self.answered_calls: dict[str, int] = {}  # method, or id of an image whose status was asked -> number of a call
        self.answered_at: dict[str, float] = {}  # method -> when it was answered last
        self.arrived = 0.0
        self.hung_at: list[int] = []  # the numbers of the calls before which time has passed because one hangs
        self.listed_images = 0  # the number of the call with which reclaimd's last complete listing of images began
        self._clock = clock
        self._who = threading.local()
        self._uses: dict[str, tuple[str, ...]] = {}  # container -> its image, and those of its volumes
        self._created: dict[str, Since] = {}
        self._lost: list[tuple[Container, Since]] = []

    # ---- who calls

    @contextmanager
    def as_the_kubelet(self) -> Iterator[None]:
        """Within the block the calls of this thread are the kubelet's, not reclaimd's."""
        before = getattr(self._who, "kubelet", False)
        self._who.kubelet = True
        try:
            yield
        finally:
            self._who.kubelet = before

    @property
    def _by_reclaimd(self) -> bool:
        return not getattr(self._who, "kubelet", False)

    def asking(self, method: str) -> None:
        """The call of reclaimd that this thread answers now."""
        self._who.asks_status = method == "ImageStatus"

    def failing(self, *, failing: bool) -> None:
        """Whether the call that this thread answers now is carried out and answered with an error."""
        self._who.failing = failing

    @property
    def is_failing(self) -> bool:
        """Whether the call of this thread will be answered with an error."""
        return getattr(self._who, "failing", False)

    def now(self) -> Since:
        """This moment."""
        return Since(self.calls, self._clock.monotonic())

    # ---- what is there, without the lock and without asking over the socket

    def containers_of(self, uid: str) -> list[Container]:
        """The containers of a pod, the newest first."""
        found = [each for each in self.every_container() if self.uid_of(each) == uid]
        return sorted(found, key=lambda each: each.created_at, reverse=True)

    def every_container(self) -> list[Container]:
        """All containers."""
        return list(self._containers.values())

    @staticmethod
    def uid_of(container: Container) -> str:
        """The UID of a container's pod."""
        return container.labels[UID_LABEL]

    def sandbox_of(self, container: Container) -> str:
        """The id of a container's sandbox."""
        return self._sandbox_of.get(container.id, "")

    def sandboxes_of(self, uid: str) -> list[Sandbox]:
        """The sandboxes of a pod, the newest first."""
        found = [each for each in list(self._sandboxes.values()) if each.metadata.uid == uid]
        return sorted(found, key=lambda each: each.created_at, reverse=True)

    def copies(self, uid: str, without: str = "") -> list[Copy]:
        """The containers of a pod, as the restart rule sees them; but one."""
        return [
            Copy(uid, each.metadata.name, STATES[each.state], each.exit_code, each.created_at)
            for each in self.containers_of(uid)
            if each.id != without
        ]

    def created(self, container_id: str) -> Since:
        """When a container was made."""
        return self._created[container_id]

    def loses(self, container: Container) -> None:
        """Somebody else than reclaimd removes a container now."""
        self._lost.append((container, self.now()))

    def had_a_newer_copy(self, container: Container) -> bool:
        """Whether there was a newer copy of a container when reclaimd last listed them: somebody else has removed it
        since."""
        uid, name = self.uid_of(container), container.metadata.name
        return any(
            (self.uid_of(each), each.metadata.name) == (uid, name)
            and each.created_at > container.created_at
            and not self.could_be_seen(since, "ListContainers")
            for each, since in self._lost
        )

    def all_images(self) -> list[Image]:
        """All images."""
        return list(self._images.values())

    def id_of(self, name: str) -> str:
        """The id of the image that a name means, empty if there is none."""
        with self._lock, suppress(NotFoundError):
            return self._image_named(name).id
        return ""

    def has(self, object_id: str) -> bool:
        """Whether a container, sandbox or image with this full id is there."""
        return any(object_id in table for table in (self._containers, self._sandboxes, self._images))

    def users_of(self, image: Image) -> list[str]:
        """Ids of the containers, in whatever state, that were made from the image or mount it, also where another
        version of the runtime has mounted it."""
        return [each for each in list(self._containers) if image.id in self._uses.get(each, ())]

    @property
    def mounts_images(self) -> bool:
        """Whether a container may have image volumes: on containerd since 2.1."""
        return not self.dialect.runtime_version.startswith(("1.6.", "2.0."))

    def has_begun_since(self, container_id: str, reading: str) -> bool:
        """Whether the directory of a container, or of its pod, is there since this reading, and before the call of now:
        reclaimd looks at the directories right before a removal. Where others have begun in the same pass, which has
        used up its patience, one such look per image may have been enough."""
        last = self.answered_calls.get(reading, 0)
        found = self.begun(self._containers[container_id])
        return any(last < begun.call < self.calls and not self._in_a_stream(begun) for begun in found)

    def _in_a_stream(self, begun: Since) -> bool:
        began = self.pass_began
        earlier = any(began.call < each.call < begun.call for each in self.beginnings)
        return earlier and self.now().seconds - began.seconds >= PATIENCE_SECONDS

    def could_be_seen(self, since: Since, *readings: str) -> bool:
        """Whether reclaimd has been answered to one of these readings since then."""
        return since.call <= max(self.answered_calls.get(each, 0) for each in readings)

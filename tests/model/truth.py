"""The embedded runtime with a ledger: every removal with the state in which the object was, and what was wrong with it.

What is wrong is told by the truth of the tables at the very moment of the removal, under their lock, never by what a
list said. One allowance is made, because nobody can do without it: what has come into being only after reclaimd's last
look could not be seen by it. That look must then be recent, see FRESH_SECONDS.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from eviction.drill.runtime.image_table import Image
from eviction.drill.runtime.layer_store import LayerSpec
from eviction.drill.runtime.pod_records import Container, Sandbox
from eviction.drill.runtime.runtime import EmbeddedRuntime
from reclaim.cri import cri_pb2 as pb
from reclaim.cri.convert import UID_LABEL
from reclaim.types import ContainerState
from tests.model.ledger import FRESH_SECONDS, STATES, Entry, Licence, Since
from tests.model.ticking import TickingClock
from tests.restart_rule import Copy


class TrueRuntime(EmbeddedRuntime):
    """A runtime that knows who asks it, and writes down what goes.

    `restarts`: the containers (by pod UID) that the kubelet would start now, by its restart rule. `pod_exists`: whether
    the pod with this UID has its directory.
    """

    def __init__(self, images_root: str, clock: TickingClock, **options: Any) -> None:
        super().__init__(images_root, wall_clock=clock.wall, **options)
        self.licence = Licence()
        self.restarts: Callable[[str], frozenset[str]] = lambda _: frozenset()
        self.pod_exists: Callable[[str], bool] = lambda _: False
        self.ledger: list[Entry] = []
        self.calls = 0
        self.looked: dict[str, int] = {}  # method, or id of an image whose status was asked -> number of the call
        self.looked_at: dict[str, float] = {}  # method -> when it was answered last
        self.arrived = 0.0
        self.listed_images = 0  # the number of the call with which reclaimd's last complete look at images began
        self._clock = clock
        self._who = threading.local()
        self._making = ""
        self._uses: dict[str, frozenset[str]] = {}
        self._created: dict[str, Since] = {}
        self._pinned: dict[str, Since] = {}
        self._tagged: dict[tuple[str, str], Since] = {}
        self._pulled: dict[str, float] = {}
        self._dropped: dict[str, Since] = {}
        self._begun: tuple[Sequence[str], Sequence[LayerSpec], list[str]] | None = None

    # ---- who asks

    @contextmanager
    def as_the_kubelet(self) -> Iterator[None]:
        """What this thread does meanwhile is the kubelet's, not reclaimd's."""
        before = getattr(self._who, "kubelet", False)
        self._who.kubelet = True
        try:
            yield
        finally:
            self._who.kubelet = before

    @property
    def _by_reclaimd(self) -> bool:
        return not getattr(self._who, "kubelet", False)

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
        return container.config.labels[UID_LABEL]

    def sandboxes_of(self, uid: str) -> list[Sandbox]:
        """The sandboxes of a pod, the newest first."""
        found = [each for each in list(self._sandboxes.values()) if each.config.metadata.uid == uid]
        return sorted(found, key=lambda each: each.created_at, reverse=True)

    def copies(self, uid: str) -> list[Copy]:
        """The containers of a pod, as the restart rule sees them."""
        return [
            Copy(uid, each.config.metadata.name, STATES[each.state], each.exit_code, each.created_at)
            for each in self.containers_of(uid)
        ]

    def all_images(self) -> list[Image]:
        """All images."""
        return list(self._images)

    def id_of(self, name: str) -> str:
        """The id of the image that a name means, empty if there is none."""
        with self._lock:
            image = self._images.resolve_or_none(name)
        return "" if image is None else image.id

    def has(self, object_id: str) -> bool:
        """Whether a container, sandbox or image with this full id is there."""
        return object_id in self._containers or object_id in self._sandboxes or self._images.get(object_id) is not None

    def users_of(self, image: Image) -> list[str]:
        """Ids of the containers, in whatever state, that were made from the image or mount it."""
        return [each for each in list(self._containers) if image.id in self._uses.get(each, frozenset())]

    # ---- what happens to images

    def add_image(self, tags: Sequence[str], layers: Sequence[LayerSpec], pinned: bool = False) -> str:
        """A pull, from its beginning to its end."""
        image_id = super().add_image(tags, layers, pinned)
        self._arrived(image_id)
        return image_id

    def begin_pull(self, tags: Sequence[str], layers: Sequence[LayerSpec]) -> None:
        """The layers are unpacked; the image is not listed yet. One pull at a time."""
        self.end_pull()
        for layer in layers:
            self._pull(layer)
        self._begun = tags, layers, [layer.digest for layer in layers]

    def end_pull(self) -> None:
        """The image whose pull has begun is listed."""
        if self._begun is None:
            return
        tags, layers, held = self._begun
        self._begun = None
        self.add_image(tags, layers)
        with self._lock:
            self._store.release(held)

    def retag(self, image_id: str, tag: str) -> None:
        """One more tag, which another image may lose."""
        self.tag_image(image_id, tag)
        self._arrived(image_id)

    def pin(self, image_id: str, pinned: bool) -> None:
        """Pins an image, or no longer."""
        with self._lock:
            if (image := self._images.get(image_id)) is not None:
                image.pinned = pinned
                self._pinned[image_id] = self.now()

    def _arrived(self, image_id: str) -> None:
        """Notes since when an image and its tags are there. One that went without reclaimd's doing, and came back
        before it had a complete look at the images again, was never away to it."""
        now = self.now()
        with self._lock:
            image = self._images.get(image_id)
            gone = self._dropped.pop(image_id, None)
            unseen = gone is not None and gone.call >= self.listed_images
            if image_id not in self._pulled or (gone is not None and not unseen):
                self._pulled[image_id] = now.seconds
            for tag in () if image is None else image.tags:
                self._tagged = {
                    key: since for key, since in self._tagged.items() if key[1] != tag or key[0] == image_id
                }
                self._tagged.setdefault((image_id, tag), now)

    # ---- what goes

    def _new_id(self, kind: str) -> str:
        made = super()._new_id(kind)
        if kind == "container":
            self._making = made
            self._created[made] = self.now()
        return made

    def _acquire_layers(self, *images: Image) -> tuple[str, ...]:
        if self._making:
            self._uses[self._making] = frozenset(image.id for image in images)
            self._making = ""
        return super()._acquire_layers(*images)

    def _image_item(self, image: Image) -> pb.Image:
        if getattr(self._who, "asks_status", False):
            self.looked[image.id] = self.calls
        return super()._image_item(image)

    def asking(self, method: str) -> None:
        """The call of reclaimd that this thread answers now."""
        self._who.asks_status = method == "ImageStatus"

    def failing(self, *, failing: bool) -> None:
        """Whether the call that this thread answers now is carried out and answered with an error."""
        self._who.failing = failing

    @property
    def is_failing(self) -> bool:
        """The same, for who carries it out."""
        return getattr(self._who, "failing", False)

    def _drop_container(self, container: Container) -> None:
        uid, state = container.config.labels[UID_LABEL], STATES[container.state]
        wrong = []
        if state is not ContainerState.EXITED and not (state is ContainerState.CREATED and self.licence.exact):
            wrong.append(f"it was {state}")
        same = [each for each in self.containers_of(uid) if each.config.metadata.name == container.config.metadata.name]
        if not self.licence.told and self.pod_exists(uid) and same[0] is container:
            wrong.append("it was the newest copy, and its pod exists")
        before = self.restarts(uid)
        super()._drop_container(container)
        wrong += [f"the kubelet would now run {name} again" for name in sorted(self.restarts(uid) - before)]
        self._enter("container", container.id, state, wrong)

    def _drop_sandbox(self, sandbox: Sandbox) -> None:
        uid = sandbox.config.metadata.uid
        wrong = ["it was READY"] if sandbox.ready else []
        held = [each for each in self.containers_of(uid) if each.sandbox_id == sandbox.id]
        if any(self._could_be_seen(self._created[each.id], "ListContainers") for each in held):
            wrong.append("it held containers")
        if not self.licence.told and self.pod_exists(uid) and self.sandboxes_of(uid)[0] is sandbox:
            wrong.append("it was the newest sandbox, and its pod exists")
        super()._drop_sandbox(sandbox)
        self._enter("sandbox", sandbox.id, "READY" if sandbox.ready else "NOTREADY", wrong)

    def _drop_image(self, image: Image) -> None:
        wrong = []
        now = self._clock.monotonic()
        age_of_list = self.arrived - self.looked_at.get("ListContainers", float("-inf"))
        if age_of_list > FRESH_SECONDS:
            wrong.append(f"the last list of containers was {age_of_list:.1f} s old")
        for user in self.users_of(image):
            if self._could_be_seen(self._created[user], "ListContainers"):
                wrong.append(f"container {user} used it")
        if image.pinned and self._could_be_seen(self._pinned.get(image.id, Since(0, 0)), "ListImages", image.id):
            wrong.append("it was pinned")
        for tag in self.licence.keep.intersection(image.tags):
            if self._could_be_seen(self._tagged[image.id, tag], "ListImages", image.id):
                wrong.append(f"the keep-list names {tag}")
        if self.sandbox_image in image.tags:
            wrong.append("it is the image of sandboxes")
        age = now - self._pulled[image.id]
        if age < self.licence.min_age_seconds:
            wrong.append(f"it had been there for {age:.0f} s")
        super()._drop_image(image)
        told = self._by_reclaimd and not self.is_failing
        self._dropped[image.id] = Since(-1 if told else self.calls, now)  # -1: reclaimd knows
        for tag in image.tags:
            self._tagged.pop((image.id, tag), None)
        self._pinned.pop(image.id, None)
        self._enter("image", image.id, "", wrong)

    def _could_be_seen(self, since: Since, *looks: str) -> bool:
        return since.call <= max(self.looked.get(look, 0) for look in looks)

    def _enter(
        self, kind: Literal["container", "sandbox", "image"], object_id: str, state: str, wrong: list[str]
    ) -> None:
        self.ledger.append(Entry(kind, object_id, self._by_reclaimd, state, tuple(wrong) if self._by_reclaimd else ()))

"""The embedded runtime with a ledger: every removal with the state in which the object was, and what was wrong with it.

What is wrong is decided by the runtime's own tables at the moment in which the call arrives, under their lock, never
by a list that was sent (`judgement`). Two allowances are unavoidable: reclaimd cannot know what came into being, or was
removed by others, after its last reading (which must then be recent, see FRESH_SECONDS), nor take back a call that
hangs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from eviction.drill.runtime.layer_store import LayerSpec
from eviction.drill.runtime.runtime import Container, Image, Sandbox
from reclaim.cri import cri_pb2 as pb
from reclaim.images.references import normalized, repository_of
from tests.model import judgement
from tests.model.held_calls import HeldCall, HeldCalls
from tests.model.ledger import HANGS_SECONDS, STATES, Entry
from tests.model.observed_runtime import ObservedRuntime
from tests.model.ticking import TickingClock

BY_DIGEST = "tests.model/image-digest"
"""The annotation of a container whose pod names its image by this digest."""


class TrueRuntime(ObservedRuntime):
    """A runtime that records every removal.

    `forgotten`: called with a pod's UID and the name of a container that would run again after a call that hung, though
    not when it arrived. `held`: calls that hang. `attempts`: removals that must not have been tried. `log_goes`:
    containers whose removal reclaimd has sent, after their logs.
    """

    def __init__(self, images_root: str, clock: TickingClock, **options: Any) -> None:
        super().__init__(images_root, clock, **options)
        self.forgotten: Callable[[str, str], None] = lambda *_: None
        self.held = HeldCalls()
        self.log_goes: set[str] = set()
        self.ledger: list[Entry] = []
        self.attempts: list[str] = []
        self._unlisted_digests: set[str] = set()
        self._making = ""
        self._begun: tuple[Sequence[str], Sequence[LayerSpec], list[str]] | None = None

    # ---- calls

    def asked(self, request: Any) -> None:
        """The request that this thread answers now."""
        self._who.object_id = ""
        for name in ("container_id", "pod_sandbox_id"):
            self._who.object_id = getattr(request, name, "") or self._who.object_id
        if isinstance(request, pb.ImageStatusRequest | pb.RemoveImageRequest):
            self._who.object_id = request.image.image
        if isinstance(request, pb.RemoveContainerRequest):
            with self._lock:
                if not self._wrong_with("RemoveContainer", request.container_id):
                    self.log_goes.add(request.container_id)

    @property
    def is_about_an_ended_call(self) -> bool:
        """Whether the call of this thread is about an object whose removal hung, and has just ended."""
        return getattr(self._who, "object_id", "") in self.held.following

    def answer(self, method: str, request: Any, act: Callable[[], Any]) -> Any:
        """The answer to a call of reclaimd, which may hang before."""
        held = self.held.arrive(method, self._who.object_id)
        if held is None:
            return self._as_listed(method, act())
        with self._lock:
            wrong = self._wrong_with(method, held.object_id)
        self._who.held = held, wrong
        self._who.failing = held.way.fails
        self.hung_at.append(self.calls)
        self._clock.step(HANGS_SECONDS)
        try:
            return self.held.hold(held, act)
        finally:
            self._who.held = None
            self._who.failing = False

    def _wrong_with(self, method: str, object_id: str) -> list[str]:
        container, sandbox = self._containers.get(object_id), self._sandboxes.get(object_id)
        image = self._images.get(object_id)
        if method == "RemoveContainer" and container is not None:
            return judgement.wrong_with_container(self, container)
        if method == "RemovePodSandbox" and sandbox is not None:
            return judgement.wrong_with_sandbox(self, sandbox)
        if method == "RemoveImage" and image is not None:
            return judgement.wrong_with_image(self, image)
        return []

    # ---- what happens to images

    def add_image(
        self, tags: Sequence[str], layers: Sequence[LayerSpec], pinned: bool = False, is_artifact: bool = False
    ) -> str:
        """A pull, from its beginning to its end."""
        image_id = super().add_image(tags, layers, pinned, is_artifact)
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
                self.history.pinned[image_id] = self.now()

    def _arrived(self, image_id: str) -> None:
        now = self.now()
        with self._lock:
            self.history.arrived(image_id, self._images.get(image_id), now, self.listed_images)

    # ---- what a list says about images

    def unlist_digests(self, image_id: str) -> None:
        """From now on no list names an image by a digest; asked about one, the runtime still finds it."""
        self._unlisted_digests.add(image_id)

    def _as_listed(self, method: str, answer: Any) -> Any:
        """An answer as a runtime gives it that knows an image by what the pod says: a container of a pod that names its
        image by a digest is listed with that digest alone."""
        for item in answer.containers if method == "ListContainers" and not self.dialect.fills_image_id else ():
            digest = item.annotations.get(BY_DIGEST, "")
            if digest:
                item.image_ref = digest
                item.image.CopyFrom(pb.ImageSpec(image=digest, user_specified_image=digest))
        return answer

    def named_by_digest(self, image: Image) -> bool:
        """Whether a container is listed with a digest of this image alone."""
        if self.dialect.fills_image_id:
            return False
        return any(self._containers[user].annotations.get(BY_DIGEST) for user in self.users_of(image))

    def digest_of(self, image_id: str, tag: str) -> str:
        """The digest by which an image is in the repository of a tag, empty if it is not."""
        image = self._images.get(image_id)
        repository = repository_of(normalized(tag)) + "@"
        return next((each for each in image.digests if each.startswith(repository)), "") if image else ""

    # ---- removals

    def _new_id(self, kind: str) -> str:
        made = super()._new_id(kind)
        if kind == "container":
            self._making = made
            self._created[made] = self.now()
        return made

    def _acquire_layers(self, *images: Image) -> tuple[str, ...]:
        if self._making:
            self._uses[self._making] = tuple(image.id for image in images)
            self._making = ""
        return super()._acquire_layers(*images)

    def _image_item(self, image: Image, runtime_handler: str = "") -> pb.Image:
        if getattr(self._who, "asks_status", False):
            self.answered_calls[image.id] = self.calls
        item = super()._image_item(image, runtime_handler)
        if image.id in self._unlisted_digests:
            del item.repo_digests[:]
        return item

    def _judged(self, method: str, object_id: str) -> list[str]:
        """What is wrong with the removal of this thread: as of its arrival, if it hung."""
        _, wrong = getattr(self._who, "held", None) or (None, None)
        return self._wrong_with(method, object_id) if wrong is None else wrong

    def _drop_container(self, container: Container) -> None:
        uid, state = self.uid_of(container), STATES[container.state]
        wrong = self._judged("RemoveContainer", container.id)
        before = self.restarts(uid, "")
        super()._drop_container(container)
        if not self._by_reclaimd:
            self.loses(container)
        if getattr(self._who, "held", None) is not None:
            for name in self.restarts(uid, "") - before:
                self.forgotten(uid, name)
        self._enter("container", container.id, state, wrong)

    def _drop_sandbox(self, sandbox: Sandbox) -> None:
        wrong = self._judged("RemovePodSandbox", sandbox.id)
        super()._drop_sandbox(sandbox)
        self._enter("sandbox", sandbox.id, "READY" if sandbox.state == pb.SANDBOX_READY else "NOTREADY", wrong)

    def _refuse_in_use(self, image: Image) -> None:
        """That a runtime refuses is no reason to try it: the next version, or another one, does not."""
        wrong = self._judged("RemoveImage", image.id) if self._by_reclaimd else []
        if wrong:
            self.attempts.append(f"reclaimd asked for the removal of image {image.id}: {', '.join(wrong)}")
        super()._refuse_in_use(image)

    def _drop_image(self, image: Image) -> None:
        wrong = self._judged("RemoveImage", image.id)
        held: HeldCall | None = (getattr(self._who, "held", None) or (None,))[0]
        orphaned = held is not None and held.orphaned
        super()._drop_image(image)
        known = self._by_reclaimd and not self.is_failing and not orphaned
        self.history.left(image, self.now(), known=known)
        self._enter("image", image.id, "", wrong)

    def _enter(
        self, kind: Literal["container", "sandbox", "image"], object_id: str, state: str, wrong: list[str]
    ) -> None:
        self.ledger.append(Entry(kind, object_id, self._by_reclaimd, state, tuple(wrong) if self._by_reclaimd else ()))

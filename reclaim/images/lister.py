"""Complete lists of the runtime, in an order that misses nothing; and a fresh list of containers before a removal.

* Images are listed first, containers after them: a container that starts in between is seen, never missed.
* Any failing call discards everything: a partial list would make a used image look unused.
* What specs of pods name is read after the images too, and with each fresh list of containers.
* For references that no listed image has, the runtime is asked, which resolves them by its own rules. If it answers
  with an image that a digest does not mean, the digest stays unresolved.
* Which images a container mounts, and which image a sandbox was made from, never changes: it is asked once for each.
  That there is none may only mean that this version does not say it, so it is forgotten with the version.
* Functions that plan side by side share one reading: what the second one would list is what the first one has.
* A list that was not answered within its deadline is not asked for again at once: for a second all have its error.
* No lock is held while the runtime is asked: what is slow for one caller delays no other.
* A runtime may be replaced at any time, and containers survive it. So with each new connection its version and its
  configured sandbox image are asked again. Lists that did not all come from one version are discarded, and a list of
  containers is not compared with a plan that was made by what another runtime had said.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from reclaim.clock import Clock
from reclaim.cri.retry import retried
from reclaim.disk_need import NEVER
from reclaim.images.in_use import images_in_use
from reclaim.images.references import ImageIndex, means
from reclaim.services import ImageService, RuntimeService, RuntimeVersion
from reclaim.types import Container, Image, Listing, PodSandboxState, RuntimeUnavailable

FRESH_SECONDS = 1.0
ImageVolumes = tuple[tuple[str, ...], ...]
"""The images that a container mounts, each with all its references."""

Answer = TypeVar("Answer")

NamedImages = Callable[[float | None], Mapping[str, frozenset[str]]]
"""What specs of pods name; see `PodStateProvider.named_images`."""

SANDBOX_SECONDS = 1.0  # how long a sandbox may take to say its image, where the configured one is known
ASKED_AGAIN_SECONDS = 60.0  # after a sandbox did not say which image it was made from
ATTEMPTS = 3  # to read all lists from one runtime: the first may begin with what was known of the one before


@dataclass(frozen=True, slots=True)
class _RuntimeFacts:
    """What holds for a runtime as long as it is not replaced or restarted."""

    version: RuntimeVersion
    sandbox_image: str | None

    def __str__(self) -> str:
        return f"{self.version.name} {self.version.version} with sandbox image {self.sandbox_image or 'not reported'}"


@dataclass(slots=True)
class _SharedReading:
    """What was listed since a reading is shared; None: nothing yet."""

    listing: Listing | None = None


class RuntimeReplaced(RuntimeUnavailable):
    """Some answers came from one runtime, and some from the one that replaced it."""


class GivenUp(RuntimeUnavailable):
    """A reading was ended by its caller: there is something more urgent, or it has taken too long."""


def _always() -> bool:
    return True


class Lister:
    """Lists what a runtime has. `named_images`: what specs of pods name. May be used from several threads."""

    def __init__(
        self,
        runtime: RuntimeService,
        images: ImageService,
        clock: Clock,
        named_images: NamedImages = lambda _: {},
    ):
        self._named_images = named_images
        self._runtime = runtime
        self._images = images
        self._clock = clock
        self._lock = threading.Lock()
        self._volumes: dict[str, ImageVolumes] = {}
        self._sandbox_images: dict[str, str | None] = {}
        self._silent: dict[str, float] = {}  # sandboxes that did not say their image -> until when they are not asked
        self._late: dict[str, tuple[RuntimeUnavailable, float]] = {}  # list -> the error, and when it came
        self._facts: _RuntimeFacts | None = None
        self._facts_asked_at = 0  # connections made until then
        self._shared: _SharedReading | None = None
        self._index: tuple[tuple[Image, ...], ImageIndex] = ((), ImageIndex(()))

    @contextmanager
    def shared_reading(self, ahead: Listing | None = None) -> Iterator[None]:
        """While the block lasts everything is listed once, whoever asks first. Nothing may be removed meanwhile.

        `ahead`: what `everything_now` has returned just before, instead.
        """
        self._shared = _SharedReading(ahead)
        try:
            yield
        finally:
            self._shared = None

    def containers(self) -> Listing:
        """Containers and sandboxes; where a reading is shared, with everything else, unless that cannot be had. Raises
        RuntimeUnavailable."""
        if self._shared is not None:
            with suppress(RuntimeUnavailable):
                return self.everything()
        return self._containers()

    def everything(self) -> Listing:
        """Images, then containers and sandboxes, and which image is used by what. Raises RuntimeUnavailable."""
        shared = self._shared
        if shared is not None and shared.listing is not None:
            return shared.listing
        listing = self.everything_now()
        if shared is not None:
            shared.listing = listing
        return listing

    def index_of(self, images: tuple[Image, ...]) -> ImageIndex:
        """The index of listed images. It is made once for as long as they stay the same."""
        known, index = self._index
        if known != images:
            index = ImageIndex(images)
            self._index = (images, index)
        return index

    def _containers(self) -> Listing:
        containers = self._listed("containers", self._runtime.list_containers)
        return Listing(containers=containers, sandboxes=self._listed("sandboxes", self._runtime.list_pod_sandboxes))

    def _named(self, since: float | None) -> frozenset[str]:
        return frozenset().union(*self._named_images(since).values())

    def _listed(self, what: str, ask: Callable[[], Answer]) -> Answer:
        """One list. Raises RuntimeUnavailable, also the one of a question that was late a moment ago."""
        late = self._late.get(what)
        if late is not None and self._clock.monotonic() - late[1] <= FRESH_SECONDS:
            raise late[0]
        try:
            return retried(ask)
        except RuntimeUnavailable as error:
            if error.late:
                self._late[what] = error, self._clock.monotonic()
            raise

    def everything_now(self, goes_on: Callable[[], bool] = _always) -> Listing:
        """The same as `everything`, whether a reading is shared or not. `goes_on`: asked before the lists and before
        what is asked of each container; where it says no, GivenUp is raised. Raises RuntimeUnavailable."""
        for _ in range(ATTEMPTS - 1):
            with suppress(RuntimeReplaced):
                return self._everything(goes_on)
        return self._everything(goes_on)

    def _everything(self, goes_on: Callable[[], bool]) -> Listing:
        facts = retried(self._current_facts)
        _check(goes_on)
        images = self._listed("images", self._images.list_images)
        _check(goes_on)
        named = self._named(None)
        listing = replace(self._containers(), images=images, runtime=str(facts), named_images=named)
        listing = replace(
            listing,
            sandbox_image_references=self._sandbox_image_references(listing, facts),
            image_volumes=self._image_volumes(listing.containers, facts, goes_on),
        )
        return self._of_one_runtime(self._resolved(listing, self.index_of(images)))

    def refresh_containers(
        self, listing: Listing, index: ImageIndex, named_since: float | None = None
    ) -> tuple[Listing, float]:
        """The same images with a fresh list of containers; and when the runtime gave that list (monotonic seconds).
        What is asked about its containers afterwards may take long: it does not make the list any younger.
        `named_since`: when the kubelet must have been asked what specs name, at the earliest; None: lately.

        Raises RuntimeUnavailable; RuntimeReplaced if it is not the runtime any more that `listing` came from.
        """
        named = self._named(named_since)
        containers = self._runtime.list_containers()
        answered_at = self._clock.monotonic()
        facts = self._current_facts()
        volumes = self._image_volumes(containers, facts)
        fresh = replace(listing, containers=containers, image_volumes=volumes, named_images=named)
        return self._of_one_runtime(self._resolved(fresh, index)), answered_at

    def _current_facts(self) -> _RuntimeFacts:
        """Asked again once a connection was made since they were asked.

        The count is read before the question: of two runtimes that answer one after the other, the later one is asked
        once more.
        """
        made = self._runtime.connections_made
        with self._lock:
            if self._facts is not None and made == self._facts_asked_at:
                return self._facts
        facts = _RuntimeFacts(self._runtime.version(), self._runtime.sandbox_image())
        with self._lock:
            if self._facts is not None and facts.version != self._facts.version:
                self._volumes = {known: volumes for known, volumes in self._volumes.items() if volumes}
                self._sandbox_images = {known: image for known, image in self._sandbox_images.items() if image}
            if made >= self._facts_asked_at:  # else another thread has asked a later runtime meanwhile
                self._facts, self._facts_asked_at = facts, made
        return facts

    def _of_one_runtime(self, listing: Listing) -> Listing:
        """The listing, if the runtime is still the one that it came from."""
        facts = self._current_facts()
        if str(facts) != listing.runtime:
            raise RuntimeReplaced(f"the runtime was replaced: it was {listing.runtime}, and is {facts}")
        return listing

    def _sandbox_image_references(self, listing: Listing, facts: _RuntimeFacts) -> frozenset[str] | None:
        """The configured one, and those that ready sandboxes were made from; None when neither is known."""
        ready = {sandbox.id for sandbox in listing.sandboxes if sandbox.state is PodSandboxState.READY}
        with self._lock:
            self._sandbox_images = {known: image for known, image in self._sandbox_images.items() if known in ready}
            images = dict(self._sandbox_images)
        images.update(self._asked_for_sandbox_images(ready - images.keys(), facts))
        references = frozenset(image for image in (facts.sandbox_image, *images.values()) if image)
        return references or None

    def _asked_for_sandbox_images(self, sandbox_ids: set[str], facts: _RuntimeFacts) -> dict[str, str | None]:
        """Which image each was made from. A sandbox of which that is not answered (its shim hangs, say) does not keep
        all images where the configured one is known: it is asked again a minute later, and the rest next time."""
        asked: dict[str, str | None] = {}
        now, known = self._clock.monotonic(), facts.sandbox_image is not None
        with self._lock:
            self._silent = {each: until for each, until in self._silent.items() if until > now}
            silent = set(self._silent)
        for sandbox_id in sandbox_ids - silent if known else sandbox_ids:
            try:
                image = self._runtime.image_of_sandbox(sandbox_id, SANDBOX_SECONDS if known else NEVER)
                asked[sandbox_id] = image
                with self._lock:
                    if self._facts == facts:
                        self._sandbox_images[sandbox_id] = image
            except RuntimeUnavailable as error:
                if not (known and error.late):
                    raise
                with self._lock:
                    self._silent[sandbox_id] = now + ASKED_AGAIN_SECONDS
                break
        return asked

    def _image_volumes(
        self, containers: tuple[Container, ...], facts: _RuntimeFacts, goes_on: Callable[[], bool] = _always
    ) -> dict[str, ImageVolumes]:
        listed = {container.id for container in containers}
        with self._lock:
            self._volumes = {known: volumes for known, volumes in self._volumes.items() if known in listed}
            mounted = dict(self._volumes)
        for container_id in listed - mounted.keys() if facts.version.mounts_images() else ():
            _check(goes_on)
            status = self._runtime.container_status(container_id)
            if status is not None and status.id == container_id:
                mounted[container_id] = status.image_volumes
                with self._lock:
                    if self._facts == facts:  # else another runtime may mount images that this one has not told of
                        self._volumes[container_id] = status.image_volumes
            elif status is not None or any(c.id == container_id for c in self._runtime.list_containers()):
                raise RuntimeUnavailable(f"container {container_id} is listed, but what it mounts is not said")
        return {container_id: volumes for container_id, volumes in mounted.items() if volumes}

    def _resolved(self, listing: Listing, index: ImageIndex) -> Listing:
        """Asks the runtime about references that the image list does not resolve."""
        resolved = dict(listing.resolved)
        names = listing.named_images.union(listing.sandbox_image_references or ())
        unlisted = {reference for reference in names if not index.find(reference)}
        for reference in unlisted.union(images_in_use(listing, index).unresolved) - resolved.keys():
            image = self._images.image_status(reference)
            if image is None or means(reference, image):
                resolved[reference] = None if image is None else image.id
        return replace(listing, resolved=resolved)


def _check(goes_on: Callable[[], bool]) -> None:
    """Raises GivenUp where the caller says no."""
    if not goes_on():
        raise GivenUp("the lists were given up")

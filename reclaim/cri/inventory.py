"""What is on the node: the one place that asks the runtime for its lists.

Every caller says how old a list may be at most: when its reading must have *begun*. A finished
reading serves everyone who accepts its age; one in progress is waited for by nobody else, so that
what is slow for one caller delays no other. A question that missed its deadline is not asked again
for a second. No lock is held while the runtime is asked.

* Images are listed first, containers after them: a container that starts in
  between is seen, never missed.
* The directories of pods are read right before each list of containers, so what they show of a
  starting pod or container is as old as the list: one that is new or has changed since means that
  the list is too old (`evidence.starts`).
* Any failing call discards everything: a partial list would make a used image look unused.
* What pod specs name is also read after the images, and again with each fresh list of containers.
* A read is repeated for half a second if the connection was refused or lost: a runtime that
  restarts is back within a moment. A read that missed its deadline is not repeated in the same
  pass, and a removal never is: after an error the pass checks whether the object still exists, and
  the next pass tries again.

Covers: asking, sharing and retrying reads, keeping answers consistent. Does not cover: which image
is in use (`evidence.references`), whether the pod directories are trusted (`evidence.states`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple

from reclaim.evidence.references import (
    ImageIndex,
    ImagesInUse,
    images_in_use,
    is_full_name,
    means,
    pins_sandbox_image,
)
from reclaim.evidence.starts import FRESH_SECONDS, nothing_has_begun
from reclaim.evidence.states import PodDirectories, PodStateProvider, PodStates
from reclaim.types import (
    NEVER,
    NO_LAYERS,
    AnsweredLate,
    AnsweredWithError,
    ConnectionLost,
    Containers,
    ContainerState,
    Images,
    ImageVolumes,
    Layers,
    Listing,
    PodSandboxState,
    RequestRefused,
    Runtime,
    RuntimeUnavailable,
    RuntimeVersion,
    Sandboxes,
    Verdict,
)
from reclaim.workers import Answer, Workers
from signals.clock import LATE_SECONDS, Clock

ASKED_AGAIN_SECONDS = 60.0  # pause after a sandbox failed to report its image
STATUSES_SIDE_BY_SIDE = 4  # a busy runtime takes 50 ms for each; more only wait for each other here
RETRY_FOR_SECONDS = 0.5
ATTEMPTS = 4  # after 50, 100 and 200 ms

_Containers = tuple[PodDirectories | None, Containers]
"""The directories of pods, None if they cannot be read, and the containers listed after that."""
GoesOn = Callable[[], bool]
"""Whether the caller still wants the answer."""


class RuntimeReplaced(RuntimeUnavailable):
    """Some answers came from one runtime, and some from its replacement."""


class GivenUp(RuntimeUnavailable):
    """The caller ended the reading: something more urgent came up, or it took too long."""


class _Reading(NamedTuple, Generic[Answer]):
    """One reading that has been answered; times are monotonic seconds."""

    begun_at: float
    answered_at: float
    answer: Answer


class SharedReading(Generic[Answer]):
    """One question, whose last answer serves everyone who accepts its age. Any thread may call."""

    def __init__(self, ask: Callable[[], Answer], clock: Clock):
        self._ask = ask
        self._clock = clock
        self._last: _Reading[Answer] | None = None  # that was begun last, of those answered
        # a moment ago, if not answered since
        self._missed: tuple[float, AnsweredLate] | None = None

    def read(self, not_older_than: float) -> _Reading[Answer]:
        """A reading that was begun after this time (monotonic seconds). Raises what the reading
        raised. A question that missed its deadline a moment ago is not waited for once more."""
        begun_at = self._clock.monotonic()
        last = self._last
        if last is not None and last.begun_at > not_older_than:
            return last
        if (missed := self._missed) and begun_at - missed[0] <= FRESH_SECONDS:
            raise missed[1]
        try:
            answer = self._ask()
        except AnsweredLate as error:
            self._missed = self._clock.monotonic(), error
            raise
        reading = _Reading(begun_at, self._clock.monotonic(), answer)
        self._missed = None
        if self._last is None or self._last.begun_at <= begun_at:
            self._last = reading
        return reading


class _RuntimeFacts(NamedTuple):
    """What stays true of a runtime until it is replaced or restarted."""

    version: RuntimeVersion
    sandbox_image: str | None

    def __str__(self) -> str:
        return (
            f"{self.version.name} {self.version.version} with sandbox image"
            f" {self.sandbox_image or 'not reported'}"
        )


@dataclass(frozen=True)
class _Learned:
    """What a runtime was asked once: which images a container mounts, and which image a sandbox was
    made from, never changes. An empty answer may only mean that this version does not report it, so
    another version makes another value without it. Answers come and go, one by one. No lock: what
    two threads do at once may lose an answer, which is then asked again."""

    facts: _RuntimeFacts | None = None
    facts_asked_at: int = 0
    """The number of connections made by then."""
    volumes: dict[str, ImageVolumes] = field(default_factory=dict)
    """By container id."""
    sandbox_images: dict[str, str | None] = field(default_factory=dict)
    """By sandbox id."""
    silent: dict[str, float] = field(default_factory=dict)
    """When to ask again, by the id of a sandbox that did not report its image."""


class Inventory:
    """The containers, sandboxes and images of one node, and what is known of its pods. Thread-safe.

    `not_older_than` is always in monotonic seconds: only readings that were begun after it are
    used. `read_layers`: what images hold on the disk, or None if that is not known; its argument
    tells how many seconds are left to ask. `sleep`: between two attempts of a read.
    """

    def __init__(
        self,
        runtime: Runtime,
        pods: PodStateProvider,
        *,
        clock: Clock,
        read_layers: Callable[[Callable[[], float]], Layers | None] = lambda _: None,
        sleep: Callable[[float], None] = time.sleep,
        workers: Workers | None = None,
    ):
        self.layers = NO_LAYERS
        """What images hold on the disk, as far as it was learned."""
        self._read_layers = read_layers
        self._layers_of = frozenset[str]()
        self._runtime = runtime
        self._pods = pods
        self._clock = clock
        self._sleep = sleep
        self._workers = workers or Workers("statuses", 0)
        self._images = SharedReading(lambda: retried(runtime.list_images, sleep), clock)
        self._containers = SharedReading(self._read_directories_and_containers, clock)
        self._sandboxes = SharedReading(lambda: retried(runtime.list_pod_sandboxes, sleep), clock)
        self._of_pods = SharedReading(self._read_pods_and_containers, clock)
        self._learned = _Learned()
        self._index: tuple[Images, ImageIndex] = ((), ImageIndex(()))

    def containers(self, not_older_than: float) -> Containers:
        """All containers. Raises RuntimeUnavailable."""
        return self._containers.read(not_older_than).answer[1]

    def sandboxes(self, not_older_than: float) -> Sandboxes:
        """All sandboxes. Raises RuntimeUnavailable."""
        return self._sandboxes.read(not_older_than).answer

    def images(self, not_older_than: float) -> Images:
        """All images. Raises RuntimeUnavailable."""
        return self._images.read(not_older_than).answer

    def pods_and_containers(self, not_older_than: float) -> tuple[PodStates, Listing]:
        """The pods, and containers and sandboxes that they were compared with. The pods
        are read before the lists and again now; a pod exists if either reading has it.
        Raises RuntimeUnavailable."""
        pods, listing = self._of_pods.read(not_older_than).answer
        return self._pods.compared(pods.merge(self._pods.read()), listing), listing

    def snapshot(self, not_older_than: float, goes_on: GoesOn = lambda: True) -> Evidence:
        """Images, then containers and sandboxes, and which image is used by what: it is evidence
        for them, too. `goes_on` is called before the lists are read and before each container is
        asked about; if it returns False, GivenUp is raised. Raises RuntimeUnavailable."""
        # this may have started from facts about the runtime's predecessor
        with suppress(RuntimeReplaced):
            return self._everything(not_older_than, goes_on)
        # and nothing that it listed is evidence
        return self._everything(self._clock.monotonic(), goes_on)

    def evidence(
        self, listing: Listing, not_older_than: float, named_since: float | None
    ) -> Evidence:
        """The same images with a newer list of containers, which shows who uses them.

        `named_since`: the earliest time at which the kubelet may have been asked what
        specs name; None: lately. Raises RuntimeUnavailable, and RuntimeReplaced if
        `listing` came from another runtime.
        """
        named = self._named(named_since)
        reading = self._containers.read(not_older_than)
        _, containers = reading.answer
        fresh = listing._replace(
            containers=containers,
            image_volumes=self._image_volumes(containers, self._current_facts()),
            named_images=named,
        )
        return self._evidence_of(fresh, reading)

    def learn_layers(self, images: Images, goes_on: GoesOn = lambda: True) -> None:
        """Learns what these images hold on the disk, in at most 2 s, unless it has learned so of
        the same images. A pass never asks; it uses `layers`. For one thread at a time."""
        ids = frozenset(image.id for image in images)
        ends = self._clock.monotonic() + LATE_SECONDS
        if ids != self._layers_of:
            found = self._read_layers(
                lambda: max(ends - self._clock.monotonic(), 0.0) if goes_on() else 0.0
            )
            if found is not None:
                self.layers = found
                self._layers_of = ids

    def _read_directories_and_containers(self) -> _Containers:
        return self._pods.pod_directories(), retried(self._runtime.list_containers, self._sleep)

    def _read_pods_and_containers(self) -> tuple[PodStates, Listing]:
        pods = self._pods.read()
        now = self._clock.monotonic()
        return pods, Listing(containers=self.containers(now), sandboxes=self.sandboxes(now))

    def _everything(self, not_older_than: float, goes_on: GoesOn) -> Evidence:
        facts = retried(self._current_facts, self._sleep)
        _check(goes_on)
        of_images = self._images.read(not_older_than)
        _check(goes_on)
        images = of_images.answer
        named = self._named(None)
        after = max(not_older_than, of_images.answered_at)
        reading = self._containers.read(after)
        sandboxes = self.sandboxes(after)
        _, containers = reading.answer
        sandbox_images = self._sandbox_image_references(images, sandboxes, facts)
        listing = Listing(
            images,
            containers,
            sandboxes,
            sandbox_image_references=sandbox_images,
            image_volumes=self._image_volumes(containers, facts, goes_on),
            runtime=str(facts),
            named_images=named,
        )
        return self._evidence_of(listing, reading)

    def _evidence_of(self, listing: Listing, of_containers: _Reading[_Containers]) -> Evidence:
        """What these lists show. Raises RuntimeUnavailable, and RuntimeReplaced unless the runtime
        is still the one that they came from."""
        listing, usage = self._resolved(listing)
        facts = self._current_facts()
        if str(facts) != listing.runtime:
            raise RuntimeReplaced(
                f"the runtime was replaced: it was {listing.runtime}, and is {facts}"
            )
        return Evidence(
            listing,
            usage,
            of_containers.answer[0],
            begun_at=of_containers.begun_at,
            answered_at=of_containers.answered_at,
            read_at=self._clock.monotonic(),
        )

    def _named(self, since: float | None) -> frozenset[str]:
        return frozenset().union(*self._pods.named_images(since).values())

    def _current_facts(self) -> _RuntimeFacts:
        """The runtime's facts, asked again if a connection was made since the last time: a runtime
        may be replaced at any time, and containers survive that.

        The number of connections is read before asking: if two runtimes answer one after the other,
        the later one is asked once more.
        """
        made = self._runtime.connections_made
        learned = self._learned
        if learned.facts is not None and made == learned.facts_asked_at:
            return learned.facts
        facts = _RuntimeFacts(self._runtime.version(), self._runtime.sandbox_image())
        learned = self._learned
        # another thread has asked a later runtime in the meantime
        if made < learned.facts_asked_at:
            return facts
        if learned.facts is not None and facts.version != learned.facts.version:
            volumes = {known: each for known, each in learned.volumes.copy().items() if each}
            sandbox_images: dict[str, str | None] = {
                known: image for known, image in learned.sandbox_images.copy().items() if image
            }
            learned = replace(learned, volumes=volumes, sandbox_images=sandbox_images)
        self._learned = replace(learned, facts=facts, facts_asked_at=made)
        return facts

    def _learned_of(self, facts: _RuntimeFacts) -> _Learned:
        """Where answers of the runtime with these facts are kept; nowhere if there are others by
        now, as another runtime may report what this one does not."""
        learned = self._learned
        return learned if learned.facts == facts else _Learned()

    def _sandbox_image_references(
        self, images: Images, sandboxes: Sandboxes, facts: _RuntimeFacts
    ) -> frozenset[str] | None:
        """The configured sandbox image and those that ready sandboxes were made from;
        None if neither is known.

        If the configured image is known (containerd 2 does not name it, but pins it), a sandbox
        that does not answer (because its shim hangs, say) does not keep all images: it is asked
        again a minute later, and the remaining sandboxes next time.
        """
        ready = {each.id for each in sandboxes if each.state is PodSandboxState.READY}
        known = facts.sandbox_image is not None or pins_sandbox_image(images)
        learned = self._learned
        made = _kept(learned.sandbox_images, ready)
        waiting = ready - made.keys()
        now = self._clock.monotonic()
        if known:
            waiting -= {each for each, until in _kept(learned.silent, ready).items() if until > now}
        for sandbox_id in waiting:
            try:  # if the configured one is known, no longer than a list may be old
                image = self._runtime.image_of_sandbox(
                    sandbox_id, FRESH_SECONDS if known else NEVER
                )
            except (AnsweredLate, AnsweredWithError) as error:
                if not known:
                    raise
                learned.silent[sandbox_id] = now + ASKED_AGAIN_SECONDS
                if isinstance(error, AnsweredLate):
                    break
            else:
                made[sandbox_id] = self._learned_of(facts).sandbox_images[sandbox_id] = image
        return frozenset(image for image in (facts.sandbox_image, *made.values()) if image) or None

    def _image_volumes(
        self,
        containers: Containers,
        facts: _RuntimeFacts,
        goes_on: GoesOn = lambda: True,
    ) -> dict[str, ImageVolumes]:
        listed = {each.id for each in containers}
        exited = {each.id for each in containers if each.state is ContainerState.EXITED}
        mounted = _kept(self._learned.volumes, listed)

        def ask(container_id: str) -> None:
            _check(goes_on)
            try:
                status = self._runtime.container_status(container_id)
            except AnsweredWithError:
                # nothing runs with what it mounted; one that may run stops all instead
                if container_id in exited:
                    return
                raise
            if status is not None and status.id == container_id:
                mounted[container_id] = self._learned_of(facts).volumes[container_id] = (
                    status.image_volumes
                )
            elif status is not None or any(
                c.id == container_id for c in self.containers(self._clock.monotonic())
            ):
                raise RuntimeUnavailable(
                    f"container {container_id} is listed, but what it mounts is not said"
                )

        if facts.version.mounts_images():
            self._workers.for_each(ask, listed - mounted.keys(), STATUSES_SIDE_BY_SIDE - 1)
        return {container_id: volumes for container_id, volumes in mounted.items() if volumes}

    def _resolved(self, listing: Listing) -> tuple[Listing, ImagesInUse]:
        """Asks the runtime about references that the image list does not resolve. Also returns
        which images are in use then.

        The runtime resolves by its own rules. If it answers with an image that a digest does not
        mean, the digest stays unresolved. So does what is no full name and is refused: CRI-O fails
        for what is no name, or has no registry, which any pod's spec may say. Such a pod cannot
        start.
        """
        known, index = self._index
        if known != listing.images:
            index = ImageIndex(listing.images)
            self._index = (listing.images, index)
        resolved = dict(listing.resolved)
        usage = images_in_use(listing, index)
        unlisted = {
            reference
            for reference in listing.named_images.union(listing.sandbox_image_references or ())
            if not index.find(reference)
        }
        unknown = unlisted.union(usage.unresolved) - resolved.keys()
        for reference in unknown:
            try:
                image = self._runtime.image_status(reference)
            except RequestRefused:
                if is_full_name(reference):
                    raise
                continue
            if image is None or means(reference, image):
                resolved[reference] = None if image is None else image.id
        if unknown:
            listing = listing._replace(resolved=resolved)
            usage = images_in_use(listing, index)
        return listing, usage


def _check(goes_on: GoesOn) -> None:
    """Raises GivenUp if the caller says no."""
    if not goes_on():
        raise GivenUp("the lists were given up")


def _kept(known: dict[str, Answer], ids: Collection[str]) -> dict[str, Answer]:
    """What is known of these; the rest is forgotten."""
    copy = known.copy()  # other threads add to it
    for gone in copy.keys() - ids:
        known.pop(gone, None)
    return {each: answer for each, answer in copy.items() if each in ids}


def retried(read: Callable[[], Answer], sleep: Callable[[float], None] = time.sleep) -> Answer:
    """The result of `read`, repeated for up to half a second while the connection is lost.

    Raises the last RuntimeUnavailable. tenacity is imported only after the first attempt has
    failed, which keeps commands fast to start.
    """
    try:
        return read()
    except ConnectionLost:
        from tenacity import (
            Retrying,
            retry_if_exception_type,
            stop_after_attempt,
            stop_before_delay,
            wait_exponential,
        )

        return Retrying(
            retry=retry_if_exception_type(ConnectionLost),
            stop=stop_before_delay(RETRY_FOR_SECONDS) | stop_after_attempt(ATTEMPTS),
            wait=wait_exponential(multiplier=RETRY_FOR_SECONDS / 10),
            sleep=sleep,
            reraise=True,
        )(read)


# ---- evidence


class Evidence(NamedTuple):
    """What shows that nobody uses an image. Times are monotonic seconds."""

    listing: Listing
    usage: ImagesInUse
    """Which images the lists show in use."""
    directories: PodDirectories | None
    """Those of pods, looked at right before the list of containers was begun; None
    if they could not be read.
    """
    begun_at: float
    """When the list of containers was begun."""
    answered_at: float
    """When it was answered."""
    read_at: float
    """By when what else belongs to it was read."""

    @property
    def as_of(self) -> float:
        """When it counts from: its beginning; but its end, if it was slow, as it would never be
        fresh enough. What has begun meanwhile is seen by the last look; where there is none, only
        the list of containers may be slow."""
        end = self.answered_at if self.directories is None else self.read_at
        return end if end - self.begun_at >= FRESH_SECONDS / 2 else self.begun_at

    def without(self, planned: Sequence[Verdict]) -> Evidence:
        """How a dry run continues after planning to remove these objects."""
        if not planned:
            return self
        listing = self.listing.without(planned)
        return self._replace(listing=listing, usage=images_in_use(listing))

    def holds(self, directories_now: PodDirectories | None) -> bool:
        """Whether nothing has begun since, by another look; False if that is not known."""
        before = self.directories
        return before is not None and nothing_has_begun(
            before, directories_now, self.listing.containers
        )

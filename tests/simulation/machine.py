"""The simulated machine: its disks, the runtime's tables, the kubelet's pods.
Nothing in it knows the product.

Everything here happens at one moment of virtual time. What takes time is a chain of such moments.

* The kubelet makes a pod as the real one does: its directory, the sandbox, and for each container:
  is its image there? (else it is pulled), the container's directory, the container, its start.
  Between that check and the container, the image is in use, and nothing in the runtime shows it.
* A disk gains what a removal frees when the runtime frees it, which may be later than its answer.
* How a runtime is (how it names images, what it says of its own image, whether containers mount
  images) stays as it is for a run. It is drawn from a stream of its own, so that all else is drawn
  as if nothing of this was there.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from reclaim.evidence.states import PodDirectory
from reclaim.types import Container, ContainerState, Image, PodSandbox, PodSandboxState
from signals.types import FsStats
from tests.simulation.scheduler import Scheduler

MIB, GIB = 1 << 20, 1 << 30
INODES = 4_000_000
PAUSE_IMAGE = "registry.k8s.io/pause:3.9"
BYTES_AN_INODE = 32 * 1024
SHARE_WITH_VOLUMES = 0.4
EXITED, RUNNING, CREATED = ContainerState.EXITED, ContainerState.RUNNING, ContainerState.CREATED


class Disk:
    """A filesystem. `hangs_until`: it answers no statvfs before."""

    def __init__(self, device: int, capacity: int, clock: Scheduler):
        self.device = device
        self.capacity = capacity
        self.used = 0
        self.inodes_used = 0
        self.hangs_until = 0.0
        self._clock = clock
        self._filled, self._fills_since, self._rate, self._stops_at = 0.0, 0.0, 0.0, 0.0

    def filled(self) -> int:
        """What others have written by now."""
        now = self._clock.now
        seconds = min(now, self._stops_at) - self._fills_since
        wanted = self._filled + (self._rate * seconds if seconds > 0 else 0.0)
        return int(min(wanted, max(self.capacity - self.used, 0)))

    def fills(self, rate: float, seconds: float) -> None:
        """Others write at this rate from now on, for so long."""
        self._filled = float(self.filled())
        self._fills_since, self._rate, self._stops_at = (
            self._clock.now,
            rate,
            self._clock.now + seconds,
        )

    def is_freed(self, share: float) -> None:
        """Others remove this share of what they have written."""
        self._filled = self.filled() * (1 - share)
        self._fills_since, self._rate, self._stops_at = self._clock.now, 0.0, 0.0

    def available(self) -> int:
        """What is left now."""
        return max(self.capacity - self.used - self.filled(), 0)

    def stats(self, time: float) -> FsStats:
        """As statvfs says it, which is dated by the caller."""
        left = self.available()
        return FsStats(left, left, self.capacity, INODES - self.inodes_used, INODES, time)


@dataclass(slots=True, eq=False)
class HeldImage:
    """An image in the runtime. `since`: when it came.

    `preloaded`: the kubelet has not pulled it.
    """

    listed: Image
    disk: Disk
    since: float
    wall: float
    preloaded: bool = False
    inodes: int = 0


@dataclass(slots=True, eq=False)
class HeldContainer:
    """A container in the runtime. `directory_at`: when the kubelet made its directory for this
    attempt. `runs_until`: until when it runs although lists say that it has exited. `mounts`: the
    images that it mounts."""

    listed: Container
    image_id: str
    pod: Pod
    disk: Disk
    made_at: float
    directory_at: float
    bytes: int = 0
    runs_until: float = 0.0
    mounts: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Starting:
    """A container that the kubelet makes: it has found its images there. `directory_at`:

    NEVER until it is made.
    """

    pod: Pod
    name: str
    image_id: str
    directory_at: float = float("inf")
    mounts: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Pod:
    """A pod of the kubelet's. `seen`: its directory as it can be read; None: it is gone, or
    not there yet. `touched_at`: when something in it was last made or removed; `back_at`:
    when the pod came back."""

    uid: str
    name: str
    images: tuple[str, ...]
    inits: int
    rng: Random
    began_at: float
    seen: PodDirectory | None = None
    touched_at: float = 0.0
    back_at: float = 0.0
    sandbox_id: str = ""
    over: bool = False
    attempts: dict[str, int] = field(default_factory=dict)
    crashes: int = 0
    run_seconds: float = 60.0
    sandbox_seconds: float = 0.2
    pull_seconds: float = 3.0
    write_bytes: int = 0


class Machine:
    """All of it. `beginnings`: when directories of pods and containers were made, the last ones.

    Of the runtime: `mounts_images`: whether it knows image volumes, perhaps only since another
    version took its place (`replaced`). `says_sandbox_image`: whether it says which image
    sandboxes are made from. `names_by_digest`: whether containers name their image by digest, and
    not by id. `bad_images`: about these every answer is an error; `pinned_image`: it is pinned
    from the start; empty: none is."""

    def __init__(self, clock: Scheduler, rng: Random):
        self.clock = clock
        self.rng = rng
        self.disks: dict[str, Disk] = {}  # by path
        self.images: dict[str, HeldImage] = {}
        self.tags: dict[str, str] = {}  # tag -> id
        self.containers: dict[str, HeldContainer] = {}
        self.sandboxes: dict[str, PodSandbox] = {}
        self.pods: dict[str, Pod] = {}
        self.starting: dict[str, list[Starting]] = {}  # by image id
        self.pulled_by_kubelet: set[str] = set()
        self.beginnings: list[float] = []
        # (pod, container's name) -> when somebody else did
        self.others_removed_at: dict[tuple[str, str], float] = {}
        self._lists: dict[str, tuple[Any, ...]] = {}  # until something changes
        self._made = 0
        self.frees_late_seconds = 0.0
        self.more = more = Random(f"more {rng.getstate()[1][1]}")
        self.replaced = more.random() < 0.6
        self.mounts_images = more.random() < 0.2
        self.says_sandbox_image = more.random() < 0.7
        self.names_by_digest = more.random() < 0.3
        self.bad_images = frozenset(
            map(self.image_id, (0, 6, 9, 12) if more.random() < 0.15 else ())
        )
        self.pinned_image = self.image_id(3) if more.random() < 0.4 else ""
        self._others_begin()

    def _others_begin(self) -> None:
        """Somebody has run two containers beside the kubelet, which have exited."""
        since, its_image = self.wall_ns() - 10**13, "sha256:" + "e" * 64  # which is gone
        sandbox = PodSandbox("5" * 64, PodSandboxState.NOTREADY, since, labelled=False)
        empty = sandbox._replace(id="6" * 64, created_at_ns=since - 1)
        nobody, disk = Pod("", "", (), 0, self.more, 0.0), Disk(0, 0, self.clock)
        for number in range(2):
            container_id, made = f"{number}".rjust(64, "c"), since + number
            listed = Container(
                container_id,
                "job",
                EXITED,
                made,
                sandbox_id=sandbox.id,
                image_references=(its_image,),
            )
            self.containers[container_id] = HeldContainer(listed, its_image, nobody, disk, 0.0, 0.0)
        self.sandboxes = {each.id: each for each in (sandbox, empty)}

    # ---- the tables, as lists

    def listed(self, table: str) -> tuple[Any, ...]:
        """One of them: containers, sandboxes or images."""
        if table not in self._lists:
            held = getattr(self, table).values()
            self._lists[table] = tuple(getattr(each, "listed", each) for each in held)
        return self._lists[table]

    def _changed(self) -> None:
        self._lists.clear()

    def _relist(self, held: Any, **changes: object) -> None:
        """An image or a container is listed otherwise from now on."""
        held.listed = held.listed._replace(**changes)
        self._lists.clear()

    # ---- images

    def image_id(self, number: int) -> str:
        return "sha256:" + f"{number:08x}".ljust(64, "0")

    def pull(
        self, tag: str, size: int, *, preloaded: bool = False, pinned: bool = False
    ) -> str | None:
        """An image comes; None if there is no room for it."""
        if tag in self.tags:
            return self.tags[tag]
        disk = self.disks["/images"]
        if disk.available() < size:
            return None
        image_id = self.image_id(int(tag.rpartition(":")[2]) if tag != PAUSE_IMAGE else 0xFFFF)
        if image_id not in self.images:
            digest = digest_of(tag.rpartition(":")[0], image_id)
            inodes = size // BYTES_AN_INODE
            image = Image(
                image_id, (tag,), (digest,), size, pinned or image_id == self.pinned_image
            )
            self.images[image_id] = HeldImage(
                image, disk, self.clock.now, self.clock.wall(), preloaded, inodes
            )
            disk.used += size
            disk.inodes_used += inodes
        else:
            held = self.images[image_id]
            self._relist(held, repo_tags=(*held.listed.repo_tags, tag))
        self.tags[tag] = image_id
        if preloaded:
            self.pulled_by_kubelet.discard(image_id)
        else:
            self.pulled_by_kubelet.add(image_id)
        self._changed()
        return image_id

    def found(self, reference: str) -> HeldImage | None:
        """By its id, a tag, or a digest."""
        name, at, _ = reference.partition("@")
        if not at:
            return self.images.get(self.tags.get(reference, reference))
        return next(
            (held for held in self.images.values() if digest_of(name, held.listed.id) == reference),
            None,
        )

    def retag(self, image_id: str, tag: str) -> None:
        """An image gets one more tag, which another one loses."""
        before = self.tags.get(tag)
        if before == image_id or image_id not in self.images:
            return
        if before is not None:
            old = self.images[before]
            self._relist(old, repo_tags=tuple(t for t in old.listed.repo_tags if t != tag))
        held = self.images[image_id]
        self._relist(held, repo_tags=(*held.listed.repo_tags, tag))
        self.tags[tag] = image_id

    def pin(self, image_id: str, *, pinned: bool) -> None:
        self._relist(self.images[image_id], pinned=pinned)

    def remove_image(self, image_id: str) -> bool:
        """Whoever uses it."""
        held = self.images.pop(image_id, None)
        if held is None:
            return False
        self.tags = {tag: each for tag, each in self.tags.items() if each != image_id}
        self._free(held.disk, held.listed.size_bytes, held.inodes)
        self._changed()
        return True

    def _free(self, disk: Disk, size: int, inodes: int) -> None:
        def free() -> None:
            disk.used -= size
            disk.inodes_used -= inodes

        if self.frees_late_seconds:
            self.clock.after(self.frees_late_seconds, free)
        else:
            free()

    def uses_of(self, image_id: str) -> bool:
        """Whether any container was made from it, or is being made."""
        used = any(
            image_id == held.image_id or image_id in held.mounts
            for held in self.containers.values()
        )
        return used or bool(self.starting.get(image_id))

    # ---- containers and sandboxes

    def set_state(self, container_id: str, state: ContainerState) -> None:
        held = self.containers.get(container_id)
        if held is not None and held.listed.state is not EXITED:
            self._relist(held, state=state)

    def remove_container(self, container_id: str, *, by_us: bool = True) -> bool:
        held = self.containers.pop(container_id, None)
        if held is None:
            return False
        if not by_us:
            self.others_removed_at[held.pod.uid, held.listed.name] = self.clock.now
        self._free(held.disk, held.bytes, 4)
        self._changed()
        return True

    def stop_sandbox(self, sandbox_id: str) -> None:
        found = self.sandboxes.get(sandbox_id)
        if found is not None and found.state is PodSandboxState.READY:
            self.sandboxes[sandbox_id] = found._replace(state=PodSandboxState.NOTREADY)
            self._changed()

    def remove_sandbox(self, sandbox_id: str, *, by_us: bool = True) -> bool:
        """With its containers."""
        if self.sandboxes.pop(sandbox_id, None) is None:
            return False
        for each in [
            each for each in self.containers.values() if each.listed.sandbox_id == sandbox_id
        ]:
            self.remove_container(each.listed.id, by_us=by_us)
        self._changed()
        return True

    # ---- the kubelet

    def wall_ns(self) -> int:
        return int(self.clock.wall() * 1e9)

    def begin_pod(self, pod: Pod) -> None:
        """Its directory is made; everything else follows by itself."""
        self.pods[pod.uid] = pod
        pod.began_at = self.clock.now
        pod.seen = PodDirectory(self.clock.wall(), {})
        self._begins()
        self.clock.goes(self._lives(pod))
        life = pod.sandbox_seconds + pod.run_seconds + 2 * len(pod.images)
        self.clock.after(life, lambda: self.end_pod(pod))

    def begin_container(self, pod: Pod, tag: str) -> None:
        """A pod that is not new begins one more container."""
        pod.images = (*pod.images, tag)
        self.clock.goes(self._next(pod, len(pod.images) - 1))

    def touch(self, pod: Pod) -> None:
        """The kubelet makes or removes something in the pod's directory, as
        /etc/hosts or a volume.
        """
        if pod.seen is not None:
            pod.seen, pod.touched_at = pod.seen._replace(changed=self.clock.wall()), self.clock.now

    def come_back(self, pod: Pod) -> None:
        """A pod that is gone begins anew under its UID, as a static pod does."""
        pod.over, pod.back_at = False, self.clock.now
        pod.attempts.clear()
        self.begin_pod(pod)

    def said_to_have_exited(self, container_id: str, seconds: float) -> None:
        """For so long the lists are wrong about a container that runs; the kubelet
        believes them and begins it anew.
        """
        held = self.containers[container_id]
        self._relist(held, state=EXITED)
        held.runs_until = self.clock.now + seconds
        place = int(held.listed.name[1:])
        self.clock.goes(self._again(held.pod, place, 0.05))

    def _begins(self) -> None:
        self.beginnings.append(self.clock.now)
        if len(self.beginnings) > 64:
            del self.beginnings[:32]

    def _lives(self, pod: Pod) -> Iterator[float]:
        """Its sandbox, and then its containers."""
        yield pod.sandbox_seconds
        if pod.over:
            return
        self._made += 1
        pod.sandbox_id = f"{self._made:08x}".ljust(64, "5")
        self.sandboxes[pod.sandbox_id] = PodSandbox(
            pod.sandbox_id, PodSandboxState.READY, self.wall_ns(), pod.uid, pod.name, "default"
        )
        self._changed()
        yield from self._next(pod, 0, 0.02)

    def _next(self, pod: Pod, place: int, seconds: float = 0.0) -> Iterator[float]:
        """The kubelet looks whether the image of its next container is there, which is pulled else,
        until the container is made of it."""
        if seconds:
            yield seconds
        while not self._is_made(pod, place):
            tag = pod.images[place]
            image_id = self.tags.get(tag)
            if image_id is None:
                yield pod.pull_seconds
                if pod.over:
                    return
                image_id = self.pull(tag, image_size(tag))
            if image_id is None:
                yield 20.0
            elif (yield from self._makes(pod, place, image_id)):
                return
            else:
                yield 2.0

    def _is_made(self, pod: Pod, place: int) -> bool:
        """Or need not be."""
        return pod.over or place >= len(pod.images) or f"c{place}" in pod.attempts

    def _makes(self, pod: Pod, place: int, image_id: str) -> Generator[float, None, bool]:
        """The image is there. False if one that it needs has gone in between: the kubelet begins
        anew."""
        name = f"c{place}"
        making = Starting(pod, name, image_id, mounts=self._volumes(image_id))
        needed = (image_id, *making.mounts)
        for each in needed:
            self.starting.setdefault(each, []).append(making)
        directory = pod.rng.choice((0.0002, 0.001, 0.01))
        made = pod.rng.choice((0.01, 0.03, 0.1, 0.4, 1.5))
        yield directory
        if pod.seen is not None:
            containers = {**pod.seen.containers, name: self.clock.wall()}
            pod.seen = PodDirectory(pod.seen.changed, containers)
            making.directory_at = self.clock.now
            self._begins()
        yield made
        for each in needed:
            left = self.starting[each]
            left.remove(making)
            if not left:
                del self.starting[each]
        if pod.over or pod.sandbox_id not in self.sandboxes:
            return True
        if not self.images.keys() >= set(needed):
            return False
        container_id = self._create(pod, place, making)
        if place < pod.inits:  # it ends, then the next one begins
            yield pod.rng.uniform(0.1, 3.0)
            self.set_state(container_id, EXITED)
            yield from self._next(pod, place + 1)
            return True
        self.clock.goes(self._next(pod, place + 1, 0.01))
        if pod.crashes > 0:
            pod.crashes -= 1
            seconds, again = pod.rng.uniform(1.0, 30.0), pod.rng.choice((0.05, 1.0, 10.0))
            yield seconds
            self.set_state(container_id, EXITED)
            if not pod.over:
                yield from self._again(pod, place, again)
        return True

    def _again(self, pod: Pod, place: int, seconds: float) -> Iterator[float]:
        """The next attempt of one container alone."""
        yield seconds
        image_id = self.tags.get(pod.images[place])
        if not pod.over and image_id is not None:
            yield from self._makes(pod, place, image_id)

    def _volumes(self, but: str) -> tuple[str, ...]:
        """The images that the next container mounts: one of those that are there, if any."""
        if not self.mounts_images or self.more.random() >= SHARE_WITH_VOLUMES:
            return ()
        others = [
            each
            for each, held in self.images.items()
            if each != but and PAUSE_IMAGE not in held.listed.repo_tags
        ]
        return (self.more.choice(others),) if others else ()

    def _create(self, pod: Pod, place: int, making: Starting) -> str:
        """The container; its id."""
        self._made += 1
        container_id = f"{self._made:08x}".ljust(64, "c")
        attempt = pod.attempts.get(making.name, 0)
        pod.attempts[making.name] = attempt + 1
        tag, digests = pod.images[place], self.images[making.image_id].listed.repo_digests
        listed = Container(
            container_id,
            making.name,
            RUNNING if pod.rng.random() < 0.97 else CREATED,
            self.wall_ns(),
            pod.uid,
            pod.name,
            "default",
            pod.sandbox_id,
            attempt,
            (digests[0] if self.names_by_digest else making.image_id, tag),
        )
        disk = self.disks["/containers"]
        self.containers[container_id] = held = HeldContainer(
            listed, making.image_id, pod, disk, self.clock.now, making.directory_at
        )
        held.mounts = making.mounts
        held.bytes = pod.write_bytes if disk.available() > pod.write_bytes else 0
        disk.used += held.bytes
        disk.inodes_used += 4
        self._changed()
        if listed.state is CREATED:
            self.clock.after(0.3, lambda: self.set_state(container_id, RUNNING))
        return container_id

    def end_pod(self, pod: Pod) -> None:
        """It is deleted: everything of it stops, and its directory goes last."""
        if pod.over:
            return
        pod.over = True
        for each in self.containers.values():
            if each.pod is pod:
                self._relist(each, state=EXITED)
                each.runs_until = 0.0
        self.stop_sandbox(pod.sandbox_id)
        self._changed()

        def directory_goes() -> None:
            pod.seen = None
            self.pods.pop(pod.uid, None)

        self.clock.after(pod.rng.choice((0.2, 2.0, 20.0)), directory_goes)

    def collect(self, most: int) -> None:
        """The kubelet's own garbage collection: dead containers of pods that are
        gone, then their sandboxes.
        """
        exited = (
            each
            for each in self.containers.values()
            if each.listed.state is EXITED and each.pod.uid
        )
        for each in [each for each in exited if each.pod.seen is None][:most]:
            self.remove_container(each.listed.id, by_us=False)
        held = {each.listed.sandbox_id for each in self.containers.values()}
        empty = [
            each
            for each in self.sandboxes.values()
            if each.pod_uid not in {"", *self.pods}
            and each.id not in held
            and each.state is PodSandboxState.NOTREADY
        ]
        for sandbox in empty[:most]:
            self.remove_sandbox(sandbox.id, by_us=False)


def digest_of(repository: str, image_id: str) -> str:
    """The name by which a registry has it."""
    return f"{repository}@sha256:{image_id[7:15].ljust(64, 'd')}"


def image_size(tag: str) -> int:
    """Of an image, by its number."""
    if tag == PAUSE_IMAGE:
        return MIB
    number = int(tag.rpartition(":")[2])
    return (64 + (number * 7919) % 1500) * MIB

"""What containerd offers beyond CRI: garbage collection on demand, when each image was
pulled, and what it holds.

**`CollectContainerdGarbage`** asks containerd to collect its own garbage now, and waits for it.
What an interrupted pull left behind, and what tools put into containerd without keeping a
reference, is in no CRI list. containerd deletes it in its next garbage collection, which follows a
deletion or 100 changes; on a node with neither, it never comes: an expired lease alone does not
start one (https://github.com/containerd/containerd/issues/6294, and for snapshots that outlive
their containers https://github.com/containerd/containerd/issues/13416). containerd decides what is
garbage: this is the same run that it makes after each removal of an image.

Beside it, what the same stores tell of images: when each was pulled (`brought_at`), and what it
holds on the disk (`HeldLayers`).

Sources: https://github.com/containerd/containerd/blob/main/docs/garbage-collection.md (Synchronous
Garbage Collection, Garbage Collection labels), `api/services/leases/v1/leases.proto`,
`api/services/images/v1/images.proto`, `api/services/content/v1/content.proto`,
`api/services/snapshots/v1/snapshots.proto`, `core/metadata/images.go`, `core/metadata/gc.go`
(references), `internal/cri/server/images/image_pull.go` (createImageReference).
"""

import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

import psutil

from reclaim.cri import leases_pb2
from reclaim.cri import stores_pb2 as pb
from reclaim.cri.client import LONGEST_DETAILS, READ_DEADLINE_SECONDS
from reclaim.cri.containers_storage import reached
from reclaim.cri.inventory import retried
from reclaim.cri.status import Answer, CallError, Code, Message, parsed
from reclaim.evidence.files_in_use import pid_behind
from reclaim.function import Ready, ReclaimFunction, Stage
from reclaim.types import (
    Action,
    Layers,
    Plan,
    ReclaimError,
    RemovalFailed,
    Runtime,
    RuntimeUnavailable,
    Verdict,
)
from signals.clock import LATE_SECONDS, Clock
from signals.types import FilesystemRole

CONTENT = "content"
UNREFERENCED = "unreferenced"
OBJECT_ID = "containerd-garbage"


def collect_garbage_function(
    name: str, deadline_seconds: float, frees: FilesystemRole
) -> ReclaimFunction:
    """The entry of the table. `deadline_seconds`: how long to wait for one garbage collection,
    above 0. `frees`: the filesystem that holds containerd's root."""
    return ReclaimFunction(
        name,
        frees,
        (CONTENT,),
        stages=lambda context: (
            GarbageCollection(
                name, context.runtime, context.clock, deadline_seconds=deadline_seconds
            ),
        ),
        examine=lambda runtime, _: examine(name, runtime),
    )


def examine(name: str, runtime: Runtime) -> None:
    """Raises ReclaimError if the function `name` can do nothing on this node, and
    RuntimeUnavailable if the runtime does not say. Changes nothing."""
    version = retried(runtime.version)
    if version.name != "containerd":
        raise ReclaimError(
            f"{name} is for containerd, but the runtime is {version.name or 'one without a name'}"
        )
    try:
        request = leases_pb2.ListRequest(filters=[f'id~="^{ID_PREFIX}"'])  # for a short answer
        _call(runtime, LEASES_SERVICE + "List", request, seconds=READ_DEADLINE_SECONDS)
    except CallError as error:
        if error.code is Code.UNIMPLEMENTED:
            raise ReclaimError(
                f"{name} needs containerd's leases service, but containerd {version.version} does"
                " not serve it here"
            ) from error
        raise RuntimeUnavailable(
            f"containerd's leases cannot be listed: {_sentence(error)}"
        ) from error


class GarbageCollection(Stage):
    """Has containerd collect its garbage once.

    The content counts as present until a run of the collector has ended. During a run, containerd
    blocks other changes while it marks, and answers once what it deleted is gone
    (`plugins/gc/scheduler.go` ScheduleAndWait, `core/metadata/db.go` GarbageCollect). Giving up on
    it changes nothing, as containerd goes on. So, unlike a removal over CRI, it has a deadline.
    """

    def __init__(self, name: str, runtime: Runtime, clock: Clock, *, deadline_seconds: float):
        # the call ends by its own deadline before the pass stops waiting for it
        self.patience_seconds = deadline_seconds + LATE_SECONDS
        self._name = name
        self._runtime = runtime
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._collected = False

    def plan(self) -> Plan:
        """One object without a promised size, as only containerd knows what it would
        delete. Raises ReclaimError and RuntimeUnavailable: the runtime may not be the one
        that was there at the start."""
        examine(self._name, self._runtime)
        return Plan(
            (
                Verdict(
                    CONTENT,
                    OBJECT_ID,
                    "content that nothing refers to",
                    Action.REMOVE,
                    UNREFERENCED,
                ),
            )
        )

    def check(self, _: Verdict) -> Ready:
        """containerd itself finds out what is unreferenced."""
        return Ready(self._clock.monotonic())

    def remove(self, _: Verdict) -> bool:
        """The run. Always True.

        Raises RemovalFailed, also after the deadline, which covers all calls together.
        """
        clock = self._clock
        lease_id = ID_PREFIX + secrets.token_hex(8)
        ends = clock.monotonic() + self._deadline_seconds

        def call(method: str, request: Message) -> None:
            _call(
                self._runtime,
                LEASES_SERVICE + method,
                request,
                seconds=max(ends - clock.monotonic(), 0.0),
            )

        try:
            expires_at = clock.wall() + self._deadline_seconds + LATE_SECONDS
            expires = datetime.fromtimestamp(expires_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            # A lease protects what its owner has attached to it. Nothing is attached to ours: it is
            # created to be deleted with `sync`, which schedules a garbage collection at once and
            # returns after it. By its label containerd can delete it if we cannot.
            call("Create", leases_pb2.CreateRequest(id=lease_id, labels={EXPIRE_LABEL: expires}))
            call("Delete", leases_pb2.DeleteRequest(id=lease_id, sync=True))
        except CallError as error:
            unanswered = (
                f"not answered within {self._deadline_seconds:g} s; one that has begun goes on"
            )
            sentence = unanswered if error.code is Code.DEADLINE_EXCEEDED else _sentence(error)
            raise RemovalFailed(f"containerd's garbage collection: {sentence}") from error
        self._collected = True
        return True

    def present(self, _: Verdict) -> bool:
        """Whether no run has ended yet."""
        return not self._collected


def _sentence(error: CallError) -> str:
    return f"{error.code.name}: {error.details[:LONGEST_DETAILS]}"


LEASES_SERVICE = "/containerd.services.leases.v1.Leases/"
ID_PREFIX = "reclaimd-garbage-"
EXPIRE_LABEL = "containerd.io/gc.expire"

LIST_IMAGES = "/containerd.services.images.v1.Images/List"
ID_FILTER = 'name~="^sha256:"'


def _call(runtime: Runtime, method: str, request: Message, *, seconds: float) -> bytes:
    """Waits at most `seconds`. Raises CallError."""
    return runtime.call_service(method, request.SerializeToString(), seconds)


def brought_at(runtime: Runtime) -> Mapping[str, float]:
    """When each image was pulled into CRI's namespace: wall seconds by image id. Empty if the
    runtime does not say, because it is not containerd or does not answer in time.

    Content is shared by all namespaces, so the file of an image says when anyone pulled it. The
    record of an image belongs to one namespace: CRI keeps one for each image id, created at the end
    of the pull.
    """
    request = pb.ImagesRequest(filters=[ID_FILTER])
    try:
        listed = parsed(pb.Images, _call(runtime, LIST_IMAGES, request, seconds=LATE_SECONDS))
    except CallError:
        return {}
    return {
        image.name: image.created_at.seconds + image.created_at.nanos / 1e9 for image in listed.each
    }


LIST_CONTENT = "/containerd.services.content.v1.Content/List"
LIST_SNAPSHOTS = "/containerd.services.snapshots.v1.Snapshots/List"
SNAPSHOT_USAGE = "/containerd.services.snapshots.v1.Snapshots/Usage"
REFERENCE = "containerd.io/gc.ref."
OF_CONTENT = f"{REFERENCE}content"
OF_SNAPSHOT = f"{REFERENCE}snapshot."
SNAPSHOTS = "snapshots/"
IMAGE_ID = "sha256:"


class HeldLayers:
    """What each image holds, asked of one runtime. For one thread at a time.

    It is what its removal frees if no other image holds it: what containerd's garbage collector
    would reach from the image's record and from nothing else. Records point to a manifest, labels
    of content to more content and to the snapshot of the unpacked image, and each snapshot to the
    one below it. So three lists tell it, whatever the snapshotter; only the sizes of snapshots are
    asked for one by one, and once, as what is committed never changes. Records that CRI does not
    list hold layers, too. Which images containers hold, CRI tells. What other namespaces share is
    not known.
    """

    def __init__(self, runtime: Runtime):
        self._runtime = runtime
        self._sizes: dict[tuple[str, str], int] = {}  # of committed snapshots

    def read(self, left: Callable[[], float]) -> Layers | None:
        """Content and snapshots, by type and name. `left`: how many seconds there still
        are. None if the runtime does not say, or not in time; what it has said of
        snapshots is not asked again."""

        def told(method: str, request: Message, answer_type: type[Answer]) -> Answer:
            return parsed(answer_type, _call(self._runtime, method, request, seconds=left()))

        try:
            images = told(LIST_IMAGES, pb.ImagesRequest(), pb.Images).each
            content = told(LIST_CONTENT, pb.Contents(), pb.Contents).each
            sizes = {(CONTENT, blob.id): blob.size for blob in content}
            below = {(CONTENT, blob.id): list(references(blob.labels)) for blob in content}
            for kind in {kind for needs in below.values() for kind, _ in needs} - {CONTENT}:
                snapshotter = kind.removeprefix(SNAPSHOTS)
                request = pb.SnapshotRequest(snapshotter=snapshotter)
                for snapshot in told(LIST_SNAPSHOTS, request, pb.Snapshots).each:
                    layer = (kind, snapshot.id)
                    below[layer] = [(kind, snapshot.target)]
                    if snapshot.kind != pb.COMMITTED:  # a container's: CRI says which image it uses
                        continue
                    if layer not in self._sizes:
                        self._sizes[layer] = told(
                            SNAPSHOT_USAGE,
                            pb.SnapshotRequest(snapshotter=snapshotter, key=snapshot.id),
                            pb.Usage,
                        ).size
                    sizes[layer] = self._sizes[layer]
        except CallError:
            return None
        self._sizes = {layer: size for layer, size in self._sizes.items() if layer in sizes}
        # an image has one record for its id, which is the digest of its configuration, and
        # one for each of its names
        of_images = {
            image.name: dict[str, int]() for image in images if image.name.startswith(IMAGE_ID)
        }
        held = set[str]()
        for image in images:
            layers = reached([(CONTENT, image.target.digest)], below)
            image_id = next((name for _, name in layers if name in of_images), None)
            if image_id is None:
                held.update(map(" ".join, layers))
                continue
            for layer in layers & sizes.keys():
                of_images[image_id][" ".join(layer)] = sizes[layer]
        return Layers(of_images, frozenset(held))


def references(labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What the labels of an object refer to, by containerd's rules for their names: type and id,
    the type as a lease names it (`content`, `snapshots/overlayfs`)."""
    for label, value in labels.items():
        if label.startswith(OF_CONTENT):
            yield CONTENT, value
        elif label.startswith(OF_SNAPSHOT):
            yield f"{SNAPSHOTS}{label[len(OF_SNAPSHOT) :].partition('/')[0]}", value


def clocks_at_start(path: str) -> tuple[float, float] | None:
    """How many seconds ago the process behind a unix socket started, and the wall time at
    which it created the socket.

    The time of a pull is from the wall clock, which may have been set since. This is what both
    clocks showed earlier in this boot: the kernel knows when the process started, and its socket
    carries the wall time of that moment, inexact by what the runtime took to start. None if the
    kernel does not say, as for a process in another PID namespace. Waits at most a second.
    """
    try:
        pid = pid_behind(path)
        # Both times are by the wall clock as it is set now. Older versions of psutil go by the time
        # of the boot that was read last.
        booted = psutil.boot_time()
        since_boot = psutil.Process(pid).create_time() - booted
        made = os.stat(path).st_mtime
    except (OSError, psutil.Error):
        return None
    return time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot, made

"""What takes space on the runtime's disk and belongs to nobody, by one reading. Removes nothing.

A reading is never atomic: things come, go and change hands while it is made. So whatever could belong to somebody is
read first, and those who hold it afterwards, in the order in which they hand over: leases, then images and containers.
What changes hands while one reading is made looks unowned in that reading alone. Whoever compares two readings names
only what is unowned in both, and old (`eviction.cli.plan_leaks`).

**containerd.** What is unowned is what its garbage collector would collect (`core/metadata/gc.go`), in each of its
namespaces: snapshots, content and ingests that no lease, image, container or sandbox reaches over parents, targets and
labels. Where our rules differ, they keep more: any label of the collector but a reference makes a root; every image is
one, expired or not; a flat lease is none. Content counts once for all namespaces, as they share the file. The collector
runs after a removal or 100 changes, so on a quiet node such things stay.

What containerd has no record of is only on the disk: files in its content store, and directories of snapshots that
overlayfs began to make (`new-…`) and never named. Other directories of overlayfs bear numbers, which containerd tells
of mounts alone, so they are not judged.

**CRI-O** (containers/storage). Layers that no image, container or other layer needs (`store.go`, `check.go`:
unreferenced), and directories of no layer (unaccounted). A layer is owned if it is mounted, or has a name other than
the `…-layer` that each container gives to its own. Nothing is known if CRI lists a container that the store does not
have, or none of the store's images: it is another store, or one that keeps its records elsewhere (`transient_store`).

**Pods.** Directories of the kubelet's that are in no list: not in the kubelet's own, which must be complete, nor in the
runtime's. One with a mount below is left to the kubelet, which is not done with it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from itertools import product
from typing import Any, Final, NamedTuple, TypeVar

from reclaim.containerd import REFERENCE, references
from reclaim.cri import leases_pb2
from reclaim.cri import stores_pb2 as pb
from reclaim.cri.status import CallError, Code, Message, parsed
from reclaim.evidence.states import PodStates, is_pod_uid
from reclaim.images.storage import listed_in, reached, stamps
from reclaim.pod_logs.directories import allocated_bytes
from reclaim.services import Metadata
from reclaim.types import Container, Image, Listing, PodSandbox, ReclaimError

ASK_SECONDS = 10.0
NOTHING: Final = pb.Namespace()  # a request for a whole list is empty
CONTENT, SNAPSHOTTER = "io.containerd.content.v1.content", "io.containerd.snapshotter.v1."
GC = "containerd.io/gc."
VOLATILE = "/run/containers/storage"  # where a transient_store keeps its records by default
_LAYER = re.compile(r"[0-9a-f]{64}")
_LAYER_IN_MOUNT = re.compile(r"/overlay/([0-9a-f]{64})")

Key = tuple[str, str, str]
"""Namespace, type and id of an object. The type as a lease names it: `content`, `ingests`, `snapshots/overlayfs`."""
Call = Callable[[str, bytes, float, Metadata], bytes]
Mounts = Collection[str]
Answer = TypeVar("Answer", bound=Message)


class LeakKind(StrEnum):
    """What belongs to nobody; a closed list."""

    SNAPSHOT = "snapshot"
    SNAPSHOT_DIRECTORY = "snapshot_directory"
    CONTENT = "content"
    INGEST = "ingest"
    LAYER = "layer"
    LAYER_DIRECTORY = "layer_directory"
    POD_DIRECTORY = "pod_directory"


class Unowned(NamedTuple):
    """Something that nobody has, by one reading.

    `since`: when it last changed, in wall seconds. `namespace`: containerd's; empty if it is in none. `size_bytes`:
    what it takes; None: unknown, or to be counted in `path`, which is empty unless it is a directory.
    """

    kind: LeakKind
    name: str
    since: float
    namespace: str = ""
    size_bytes: int | None = None
    path: str = ""


class NotKnown(ReclaimError):
    """It is not known what is unowned. The message is one sentence."""


def unowned_in_store(
    stores: Sequence[str], mounts: Mounts, list_now: Callable[[], Listing], call: Call, now: float
) -> Iterator[Unowned]:
    """One reading of the store of a containerd or a CRI-O. `stores`: its directories, that of images first. `mounts`:
    points and options of all mounts. `list_now`: asks for the runtime's lists. `call`: calls a service of containerd's
    own, and returns the joined messages of the answer. `now`: wall seconds. The reading raises NotKnown, CallError,
    OSError and what `list_now` raises; and ValueError, LookupError and TypeError for records of another shape."""
    if os.path.basename(stores[0]).startswith(SNAPSHOTTER):
        return ContainerdReading(call, os.path.dirname(stores[0]), now).unowned()
    return unowned_in_storage(set(stores), mounts, list_now)


# ---- containerd


class ContainerdReading:
    """One reading of a containerd. `root`: its directory. The rest is as in `unowned_in_store`."""

    def __init__(self, call: Call, root: str, now: float):
        self._call, self._root, self._now = call, root, now
        self._objects: dict[Key, Unowned] = {}
        self._needs: dict[Key, list[Key]] = {}
        self._roots: list[Key] = []

    def unowned(self) -> Iterator[Unowned]:
        """Raises NotKnown, CallError and OSError."""
        overlayfs = f"{self._root}/{SNAPSHOTTER}overlayfs/snapshots"
        directories, blobs = stamps(overlayfs), stamps(f"{self._root}/{CONTENT}/blobs/sha256")
        for namespace in self._ask("namespaces.v1.Namespaces/List", "default", pb.Namespaces).each:
            self._read(namespace.id)
        recorded = {name for _, kind, name in self._needs if kind == "content"}
        if blobs and recorded and recorded.isdisjoint(f"sha256:{name}" for name in blobs):
            raise NotKnown(f"{self._root} is not the directory of this containerd: it has none of its content")
        lost = self._needs.keys() - reached(self._roots, self._needs)
        kept = {name for _, kind, name in self._needs.keys() - lost if kind == "content"}
        for key in lost:
            unowned = self._objects[key]
            if unowned.kind is LeakKind.SNAPSHOT:
                yield unowned._replace(size_bytes=self._size_of(key))
            elif unowned.name not in kept:  # the namespaces share the file
                yield unowned
        for name, found in blobs.items():
            if f"sha256:{name}" not in recorded:
                yield Unowned(LeakKind.CONTENT, f"sha256:{name}", found.st_ctime, "", allocated_bytes(found))
        for name, found in directories.items():
            if name.startswith("new-"):  # renamed once the snapshot is made
                yield Unowned(LeakKind.SNAPSHOT_DIRECTORY, name, found.st_ctime, path=f"{overlayfs}/{name}")

    def _read(self, namespace: str) -> None:
        """Reads a namespace: first what may be unowned, then those who hold it."""
        for content in self._ask("content.v1.Content/List", namespace, pb.Contents).each:
            self._add(LeakKind.CONTENT, (namespace, "content", content.id), content)
        for ingest in self._ask("content.v1.Content/ListStatuses", namespace, pb.Ingests).each:
            self._add(LeakKind.INGEST, (namespace, "ingests", ingest.id), ingest, (namespace, "content", ingest.target))
        types = {each for keys in self._needs.values() for _, each, _ in keys if each.startswith("snapshots/")}
        beside = [name for name in stamps(self._root) if name.startswith(SNAPSHOTTER)]
        for each in types.union(f"snapshots/{name.removeprefix(SNAPSHOTTER)}" for name in beside):
            asked = pb.SnapshotRequest(snapshotter=each.removeprefix("snapshots/"))
            none = (Code.INVALID_ARGUMENT, Code.NOT_FOUND)  # it is not loaded
            for one in self._ask("snapshots.v1.Snapshots/List", namespace, pb.Snapshots, asked, *none).each:
                self._add(LeakKind.SNAPSHOT, (namespace, each, one.id), one, (namespace, each, one.target))
        for lease in self._ask("leases.v1.Leases/List", namespace, leases_pb2.ListResponse).leases:
            if not _is_over(lease.labels.get(f"{GC}expire", ""), self._now):
                request, method = pb.LeaseRequest(id=lease.id), "leases.v1.Leases/ListResources"
                held = self._ask(method, namespace, pb.Resources, request, Code.NOT_FOUND).each  # it has just ended
                self._roots += [(namespace, resource.type, resource.id) for resource in held]
        for image in self._ask("images.v1.Images/List", namespace, pb.Images).each:
            self._roots += [(namespace, "content", image.target.digest), *_needs(namespace, image.labels)]
        for container in self._ask("containers.v1.Containers/ListStream", namespace, pb.Containers).each:
            snapshot = (namespace, f"snapshots/{container.snapshotter}", container.target)
            self._roots += [snapshot, *_needs(namespace, container.labels)]
        for sandbox in self._ask("sandbox.v1.Store/List", namespace, pb.Sandboxes, NOTHING, Code.UNIMPLEMENTED).each:
            self._roots += _needs(namespace, sandbox.labels)

    def _add(self, kind: LeakKind, key: Key, one: pb.Content | pb.Ingest | pb.Snapshot, *needs: Key) -> None:
        since = max(each.seconds + each.nanos / 1e9 for each in (one.created_at, one.updated_at))
        self._objects[key] = Unowned(kind, one.id, since, key[0], one.size)
        self._needs[key] = [*_needs(key[0], one.labels), *needs]
        if any(label.startswith(GC) and not label.startswith(REFERENCE) for label in one.labels):
            self._roots.append(key)

    def _ask(
        self, method: str, namespace: str, answer: type[Answer], asked: Message = NOTHING, *absent: Code
    ) -> Answer:
        """The answer in this namespace; an empty one for an error with a code in `absent`. Raises CallError."""
        request, metadata = asked.SerializeToString(), (("containerd-namespace", namespace),)
        try:
            return parsed(answer, self._call(f"/containerd.services.{method}", request, ASK_SECONDS, metadata))
        except CallError as error:
            if error.code in absent:
                return answer()
            raise

    def _size_of(self, key: Key) -> int:
        """What a snapshot takes; 0 if that is not known. containerd counts an active one while it answers."""
        asked = pb.SnapshotRequest(snapshotter=key[1].removeprefix("snapshots/"), key=key[2])
        unknown = (Code.NOT_FOUND, Code.DEADLINE_EXCEEDED)
        return self._ask("snapshots.v1.Snapshots/Usage", key[0], pb.Usage, asked, *unknown).size


def _needs(namespace: str, labels: Mapping[str, str]) -> Iterator[Key]:
    return ((namespace, kind, name) for kind, name in references(labels))


def _is_over(expires: str, now: float) -> bool:
    try:
        return datetime.fromisoformat(expires).timestamp() < now
    except ValueError:
        return False


# ---- CRI-O


def unowned_in_storage(
    stores: Collection[str], mounts: Mounts, list_now: Callable[[], Listing], volatile: str = VOLATILE
) -> Iterator[Unowned]:
    """One reading of CRI-O's stores. The rest is as in `unowned_in_store`."""
    before = list_now()
    found = {
        name: (f"{store}/overlay/{name}", each.st_ctime)
        for store in stores
        for name, each in stamps(f"{store}/overlay").items()
        if _LAYER.fullmatch(name)
    }
    layers = _records("layers", *stores, volatile)
    images, containers = _records("images", *stores), _records("containers", *stores, volatile)
    after = list_now()
    throughout = _ids(before.containers, before.sandboxes) & _ids(after.containers, after.sandboxes)
    known, of_containers = {each["id"] for each in images}, {each["id"] for each in containers}
    if not throughout <= of_containers or known.isdisjoint(_ids(after.images)):
        raise NotKnown(f"the records in {' and '.join(sorted(stores))} do not show what the runtime lists")
    roots = [each.get("layer", "") for each in (*images, *containers)]
    roots += [layer for image in images for layer in image.get("mapped-layers") or ()]
    roots += [layer["id"] for layer in layers for name in layer.get("names") or () if not name.endswith("-layer")]
    roots += [name for mount in mounts for name in _LAYER_IN_MOUNT.findall(mount)]
    parents = {each["id"]: [each.get("parent", "")] for each in layers}
    for name in found.keys() - reached(roots, parents):
        kind, (path, since) = LeakKind.LAYER if name in parents else LeakKind.LAYER_DIRECTORY, found[name]
        yield Unowned(kind, name, since, path=path)


def _ids(*lists: Iterable[Container | PodSandbox | Image]) -> set[str]:
    return {each.id for listed in lists for each in listed}


def _records(kind: str, *stores: str) -> list[Mapping[str, Any]]:
    """The records of this kind, each in a file that is replaced as a whole, or in its volatile counterpart. Raises
    OSError, ValueError, TypeError."""
    found: list[Mapping[str, Any]] = []
    for directory, file in product((f"{store}/overlay-{kind}" for store in stores), (kind, f"volatile-{kind}")):
        with suppress(FileNotFoundError):
            found += map(dict, listed_in(f"{directory}/{file}.json") or ())
    return found


# ---- Pods


def unowned_pod_directories(path: str, pods: PodStates, listing: Listing, mounts: Mounts) -> Iterator[Unowned]:
    """The directories of pods that are gone. `path`: of `pods`. `pods`: compared with `listing`. Raises NotKnown and
    OSError."""
    if pods.doubt is not None or pods.present is None:
        raise NotKnown(pods.doubt.sentence if pods.doubt else f"{path} cannot be read")
    if pods.kubelet is None or not pods.sources_ready:
        raise NotKnown("only the kubelet knows which pods are gone, and it gave no complete list (kubeletEndpoint)")
    held = {each.pod_uid for each in listing.containers} | {each.pod_uid for each in listing.sandboxes}
    found, above = stamps(path), os.path.realpath(path)
    for uid in (found.keys() & pods.present) - pods.kubelet.keys() - held:
        directory = f"{above}/{uid}"
        if is_pod_uid(uid) and not any(mount.startswith(f"{directory}/") for mount in mounts):
            inside = {**stamps(directory), **stamps(f"{directory}/volumes")}
            since = max(each.st_ctime for each in (found[uid], *inside.values()))
            yield Unowned(LeakKind.POD_DIRECTORY, uid, since, path=directory)

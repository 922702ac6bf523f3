"""What belongs to nobody in a containerd, by its own rules for its garbage collector."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from google.protobuf.message import Message

from reclaim.cri import leases_pb2
from reclaim.cri import stores_pb2 as pb
from reclaim.cri.status import CallError, Code
from reclaim.leaks import ContainerdReading, LeakKind, NotKnown, Unowned
from reclaim.services import Metadata

NOW = 1_800_000_000.0
SINCE = pb.Timestamp(seconds=1_700_000_000, nanos=500_000_000)
A, B, C = (f"sha256:{letter * 64}" for letter in "abc")
ROOT, EXPIRES = "containerd.io/gc.root", "containerd.io/gc.expire"
OVERLAYFS = "snapshots/overlayfs"


@dataclass
class Namespace:
    """The objects of a namespace. `leased`: the resources of each lease, by its id; None: it has ended meanwhile."""

    contents: list[pb.Content] = field(default_factory=list)
    ingests: list[pb.Ingest] = field(default_factory=list)
    snapshots: dict[str, list[pb.Snapshot]] = field(default_factory=dict)
    leases: dict[str, dict[str, str]] = field(default_factory=dict)
    leased: dict[str, list[tuple[str, str]] | None] = field(default_factory=dict)
    images: list[pb.Image] = field(default_factory=list)
    containers: list[pb.Container] = field(default_factory=list)
    sandboxes: list[pb.Sandbox] = field(default_factory=list)


@dataclass
class Containerd:
    """Its services by their names on the wire. `sizes`: of snapshots, by key. `calls`: in order."""

    root: Path
    namespaces: dict[str, Namespace] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    broken: dict[str, Code] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    @property
    def cri(self) -> Namespace:
        """CRI's namespace."""
        return self.namespaces.setdefault("k8s.io", Namespace())

    def call(self, method: str, request: bytes, seconds: float, metadata: Metadata) -> bytes:
        """Any of them."""
        assert 0 < seconds <= 10.0
        name = method.removeprefix("/containerd.services.")
        self.calls.append(name)
        if name in self.broken:
            raise CallError(self.broken[name], "broken")
        if name == "namespaces.v1.Namespaces/List":
            return pb.Namespaces(each=[pb.Namespace(id=each) for each in self.namespaces]).SerializeToString()
        answers: Mapping[str, Callable[[Namespace, bytes], Message]] = {
            "content.v1.Content/List": lambda here, _: pb.Contents(each=here.contents),
            "content.v1.Content/ListStatuses": lambda here, _: pb.Ingests(each=here.ingests),
            "snapshots.v1.Snapshots/List": self._snapshots,
            "snapshots.v1.Snapshots/Usage": self._usage,
            "leases.v1.Leases/List": lambda here, _: leases_pb2.ListResponse(
                leases=[leases_pb2.Lease(id=each, labels=labels) for each, labels in here.leases.items()]
            ),
            "leases.v1.Leases/ListResources": self._resources,
            "images.v1.Images/List": lambda here, _: pb.Images(each=here.images),
            "containers.v1.Containers/ListStream": lambda here, _: pb.Containers(each=here.containers),
            "sandbox.v1.Store/List": lambda here, _: pb.Sandboxes(each=here.sandboxes),
        }
        return answers[name](self.namespaces[dict(metadata)["containerd-namespace"]], request).SerializeToString()

    def _snapshots(self, here: Namespace, request: bytes) -> Message:
        snapshotter = pb.SnapshotRequest.FromString(request).snapshotter
        if snapshotter not in here.snapshots:
            raise CallError(Code.INVALID_ARGUMENT, f"snapshotter not loaded: {snapshotter}")
        return pb.Snapshots(each=here.snapshots[snapshotter])

    def _usage(self, _: Namespace, request: bytes) -> Message:
        return pb.Usage(size=self.sizes.get(pb.SnapshotRequest.FromString(request).key, 4096))

    def _resources(self, here: Namespace, request: bytes) -> Message:
        held = here.leased[pb.LeaseRequest.FromString(request).id]
        if held is None:
            raise CallError(Code.NOT_FOUND, "the lease has ended")
        return pb.Resources(each=[pb.Resource(id=name, type=kind) for kind, name in held])

    def unowned(self) -> list[Unowned]:
        """One reading."""
        return list(ContainerdReading(self.call, str(self.root), NOW).unowned())

    def names(self) -> list[str]:
        """The names in one reading."""
        return sorted(one.name for one in self.unowned())


def content(digest: str, **labels: str) -> pb.Content:
    """Content with these labels of the collector: `ref_x` is `containerd.io/gc.ref.content.x`."""
    named = {f"containerd.io/gc.ref.content.{name.removeprefix('ref_')}": value for name, value in labels.items()}
    return pb.Content(id=digest, size=7, created_at=SINCE, updated_at=SINCE, labels=named)


def snapshot(key: str, parent: str = "", kind: int = 3, label: str = "") -> pb.Snapshot:
    """A snapshot, committed unless `kind` says another. `label`: the name of one that it has."""
    labels = {label: "2020-01-01T00:00:00Z"} if label else {}
    return pb.Snapshot(
        id=key, target=parent, kind=pb.Kind.Name(kind), created_at=SINCE, updated_at=SINCE, labels=labels
    )


@pytest.fixture
def store(tmp_path: Path) -> Containerd:
    """One without anything, but the directory of overlayfs."""
    (tmp_path / "io.containerd.snapshotter.v1.overlayfs" / "snapshots").mkdir(parents=True)
    made = Containerd(tmp_path)
    made.cri.snapshots["overlayfs"] = []
    return made


def test_what_nothing_refers_to_is_unowned(store: Containerd) -> None:
    """Content, a snapshot and an ingest: each with its namespace, its size, and since when it is as it is."""
    store.cri.contents.append(content(A))
    store.cri.snapshots["overlayfs"].append(snapshot("old"))
    store.cri.ingests.append(pb.Ingest(id="pull-1", size=9, updated_at=SINCE))
    store.sizes["old"] = 8192
    assert sorted(store.unowned()) == [
        Unowned(LeakKind.CONTENT, A, 1_700_000_000.5, "k8s.io", 7),
        Unowned(LeakKind.INGEST, "pull-1", 1_700_000_000.5, "k8s.io", 9),
        Unowned(LeakKind.SNAPSHOT, "old", 1_700_000_000.5, "k8s.io", 8192),
    ]


def test_an_image_holds_its_content_and_snapshots_over_labels_and_parents(store: Containerd) -> None:
    """Manifest, configuration and layer; the snapshot that the configuration names, and the one below it."""
    store.cri.images.append(pb.Image(target=pb.Descriptor(digest=A)))
    unpacked = content(B)
    unpacked.labels["containerd.io/gc.ref.snapshot.overlayfs"] = "chain-2"
    store.cri.contents += [content(A, ref_config=B, **{"ref_l.0": C}), unpacked, content(C)]
    store.cri.snapshots["overlayfs"] += [
        snapshot("chain-1"),
        snapshot("chain-2", "chain-1"),
        snapshot("chain-3", "chain-2"),
    ]
    assert store.names() == ["chain-3"]


def test_a_container_and_a_sandbox_hold_what_they_name(store: Containerd) -> None:
    """The container its snapshot, with a parent; the sandbox what its labels refer to."""
    labels = {"containerd.io/gc.ref.snapshot.overlayfs/rootfs": "of-sandbox"}
    store.cri.containers.append(pb.Container(snapshotter="overlayfs", target="of-container"))
    store.cri.sandboxes.append(pb.Sandbox(labels=labels))
    store.cri.snapshots["overlayfs"] += [
        snapshot("base"),
        snapshot("of-container", "base", 2),
        snapshot("of-sandbox", "", 1),
    ]
    assert store.names() == []


def test_any_label_of_the_collector_but_a_reference_keeps(store: Containerd) -> None:
    """A root; an expiry, which to newer versions is a root until then; a reference back to an owner."""
    store.cri.snapshots["overlayfs"] += [
        snapshot("root", label=ROOT),
        snapshot("expires", label=EXPIRES),
        snapshot("back", label="containerd.io/gc.bref.image.x"),
        snapshot("other", label="containerd.io/snapshot.ref"),
    ]
    assert store.names() == ["other"]


def test_a_lease_holds_what_is_attached_to_it_until_it_expires(store: Containerd) -> None:
    """One without an expiry for ever, and one whose expiry cannot be read; one that ended in between holds nothing."""
    at = {when: datetime.fromtimestamp(NOW + when, UTC).isoformat().replace("+00:00", "Z") for when in (-1.0, 1.0)}
    store.cri.leases |= {
        "over": {EXPIRES: at[-1.0]},
        "runs": {EXPIRES: at[1.0]},
        "none": {},
        "odd": {EXPIRES: "soon"},
        "ended": {},
    }
    store.cri.leased |= {
        "over": [("content", A)],
        "runs": [("content", B), ("ingests", "pull-1")],
        "none": [(OVERLAYFS, "leased")],
        "odd": [("content", C)],
        "ended": None,
    }
    store.cri.contents += [content(A), content(B), content(C)]
    store.cri.ingests.append(pb.Ingest(id="pull-1", updated_at=SINCE))
    store.cri.snapshots["overlayfs"].append(snapshot("leased"))
    assert store.names() == [A]


def test_a_leased_ingest_holds_the_content_that_it_expects(store: Containerd) -> None:
    """As containerd has it in another namespace already."""
    store.cri.ingests.append(pb.Ingest(id="pull-1", target=A, updated_at=SINCE))
    store.cri.leases["pull"] = {}
    store.cri.leased["pull"] = [("ingests", "pull-1")]
    store.cri.contents.append(content(A))
    assert store.names() == []


def test_content_is_one_file_for_all_namespaces_and_snapshots_are_not(store: Containerd) -> None:
    """What an image of moby needs stays, though nothing in CRI's namespace does; a key may be in both."""
    moby = store.namespaces["moby"] = Namespace(contents=[content(A)], snapshots={"overlayfs": [snapshot("same")]})
    moby.images.append(pb.Image(target=pb.Descriptor(digest=A)))
    moby.containers.append(pb.Container(snapshotter="overlayfs", target="same"))
    store.cri.contents += [content(A), content(B)]
    store.cri.snapshots["overlayfs"].append(snapshot("same"))
    assert [(one.namespace, one.name) for one in sorted(store.unowned())] == [("k8s.io", B), ("k8s.io", "same")]


def test_snapshots_of_a_snapshotter_without_a_directory_are_found_by_labels(store: Containerd) -> None:
    """As of one that runs beside containerd; and one whose directory is there but which is not loaded has none."""
    (store.root / "io.containerd.snapshotter.v1.zfs").mkdir()
    held = content(A)
    held.labels["containerd.io/gc.ref.snapshot.stargz"] = "used"
    store.cri.contents.append(held)
    store.cri.images.append(pb.Image(target=pb.Descriptor(digest=A)))
    store.cri.snapshots["stargz"] = [snapshot("used"), snapshot("unused")]
    assert store.names() == ["unused"]


def test_those_who_hold_are_asked_after_what_they_hold(store: Containerd) -> None:
    """Leases first: what a pull holds, its image holds before the lease ends."""
    store.cri.leases["pull"] = {}
    store.cri.leased["pull"] = []
    store.unowned()
    order = [call.partition("/")[0] for call in store.calls[1:]]
    assert order == [
        *["content.v1.Content"] * 2, "snapshots.v1.Snapshots", *["leases.v1.Leases"] * 2,
        "images.v1.Images", "containers.v1.Containers", "sandbox.v1.Store",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "list_of", ["leases.v1.Leases/List", "images.v1.Images/List", "containers.v1.Containers/ListStream"]
)
def test_without_a_list_of_those_who_hold_nothing_is_known(store: Containerd, list_of: str) -> None:
    """Also if containerd says that it has no such service."""
    store.broken[list_of] = Code.UNIMPLEMENTED
    store.cri.contents.append(content(A))
    with pytest.raises(CallError):
        store.unowned()


def test_a_containerd_before_1_7_has_no_sandboxes(store: Containerd) -> None:
    """It does not serve the list."""
    store.broken["sandbox.v1.Store/List"] = Code.UNIMPLEMENTED
    assert store.names() == []


# ---- what containerd has no record of


def blob(store: Containerd, digest: str, size: int = 5000) -> os.stat_result:
    """A file in the content store."""
    file = store.root / "io.containerd.content.v1.content" / "blobs" / "sha256" / digest.removeprefix("sha256:")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x" * size)
    return file.stat()


def test_content_without_a_record_is_unowned(store: Containerd) -> None:
    """It takes what the filesystem has allocated."""
    store.cri.contents.append(content(A))
    store.cri.images.append(pb.Image(target=pb.Descriptor(digest=A)))
    blob(store, A)
    found = blob(store, B)
    assert store.unowned() == [Unowned(LeakKind.CONTENT, B, found.st_ctime, "", found.st_blocks * 512)]


def test_a_directory_with_none_of_the_content_is_another_containerds(store: Containerd) -> None:
    """Then nothing is known."""
    store.cri.contents.append(content(A))
    blob(store, B)
    with pytest.raises(NotKnown, match="has none of its content"):
        store.unowned()


def test_a_directory_whose_snapshot_was_never_made_is_unowned(store: Containerd) -> None:
    """containerd gives it its number by renaming, once there is a snapshot; a number alone proves nothing."""
    overlayfs = store.root / "io.containerd.snapshotter.v1.overlayfs" / "snapshots"
    for name in ("new-123", "4711"):
        (overlayfs / name / "fs").mkdir(parents=True)
    made = overlayfs / "new-123"
    assert store.unowned() == [Unowned(LeakKind.SNAPSHOT_DIRECTORY, "new-123", made.stat().st_ctime, path=str(made))]

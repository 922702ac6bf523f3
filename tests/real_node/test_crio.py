"""What is different on a real CRI-O (`CRIO=` names the program): artifacts, names,
ages, and where the bytes are.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

import grpc
import pytest

from tests.nodes.real_node import GIB, RealNode, running_node
from tests.real_node.conftest import NodeFactory
from tests.real_node.crio import Crio, crio_program
from tests.real_node.loopfs import MIB, LoopFilesystem, run_tool
from tests.real_node.oci import BASE, MANIFEST_TYPE, Image, random_layer
from tests.real_node.runtime import SANDBOX_IMAGE
from tests.real_node.steps import ALL, Fields, configure, plan, reclaim, shares, verdict_on
from tests.sockets.kubelet_server import KubeletServer, pod_list
from tests.sockets.kubelet_server import answer as of_kubelet

APP = "reclaimd.test/app:1"
MODEL, SAME, OTHER = "reclaimd.test/model:1", "reclaimd.test/model:2", "elsewhere.test/model:1"
BEFORE_SECONDS = 3.0
WRITES = "dd if=/dev/urandom of=/written bs=1048576 count=12"


class CrioNode:
    """A node with a CRI-O, whose store of artifacts tests write as a pull would."""

    def __init__(self, node: RealNode, directory: Path) -> None:
        assert isinstance(node.containerd, Crio)
        self.node, self.cri, self.runtime = node, node.cri, node.containerd
        self._directory = directory
        self._layouts = 0

    def bring(self, reference: str, *layers: int, size: int = MIB, **labels: str) -> str:
        """Imports an image of layers of these seeds, 0 for one that can be run; its id."""
        made = tuple(random_layer(seed, size) if seed else BASE for seed in layers)
        return self.node.import_image(Image(reference, made, labels=labels))

    def add_artifact(self, name: str, content: bytes) -> str:
        """Copies an artifact with one file into the store under a name; its id."""
        self._layouts += 1
        layout = self._directory / f"layout{self._layouts}"
        blobs = layout / "blobs" / "sha256"
        blobs.mkdir(parents=True)

        def blob(data: bytes, media_type: str, **more: object) -> dict[str, object]:
            digest = hashlib.sha256(data).hexdigest()
            (blobs / digest).write_bytes(data)
            head = {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}
            return {**head, **more}

        title = {"org.opencontainers.image.title": "model.bin"}
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "artifactType": "application/vnd.reclaimd.test",
            "config": blob(b"{}", "application/vnd.oci.empty.v1+json"),
            "layers": [blob(content, "application/octet-stream", annotations=title)],
        }
        entry = blob(json.dumps(manifest).encode(), MANIFEST_TYPE)
        (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
        (layout / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        self.copy(f"oci:{layout}", f"oci:{self.runtime.root}/artifacts:{name}")
        return str(entry["digest"]).removeprefix("sha256:")

    def copy(self, source: str, target: str) -> None:
        """By skopeo."""
        run_tool("skopeo", "--insecure-policy", "copy", "--quiet", source, target)

    def names_of(self, image_id: str) -> list[str]:
        """The tags with which an id is listed, an entry for each."""
        listed = [image for image in self.cri.list_images() if image.id == image_id]
        return sorted(tag for image in listed for tag in image.repo_tags)

    def file(self, **fields: object) -> str:
        """A configuration which remembers nothing, and needs no age."""
        logs = str(self.node.kubelet.pod_logs_dir)
        given = {"imageMinimumGCAge": "0s", "podLogsDir": logs, **fields}
        return configure(self._directory, self.node, **given)

    def reclaim(self, **fields: object) -> dict[str, Fields]:
        """Removes every unused image; the outcomes by id."""
        record = reclaim(self.file(**fields), "--standalone", *ALL)
        return {each["id"]: dict(each) for each in (*record["removals"], *record["kept"])}


@pytest.fixture
def crio(make_node: NodeFactory, tmp_path: Path) -> CrioNode:
    """A CRI-O on an ext4 of its own, with nothing but the sandbox image."""
    return CrioNode(make_node(runtime="crio"), tmp_path)


# ---- artifacts


def test_what_of_artifacts_goes(crio: CrioNode) -> None:
    """One goes with all its names, two in one repository and one in another: given its id, CRI-O
    reports success and removes nothing; with several names, it does not find it by that. Of one
    whose name was pulled anew, CRI-O keeps the old content without a name, lists it as `unknown`,
    and removes it by nothing. What a created container uses stays: its image, an artifact and an
    image that it mounts; CRI-O would refuse them, and none is tried."""
    model, content = "", os.urandom(8 * MIB)
    for name in (MODEL, SAME, OTHER):
        model = crio.add_artifact(name, content)
    crio.cri.remove_image(model)
    assert crio.names_of(model) == [OTHER, MODEL, SAME]
    assert crio.cri.image_status(model) is None
    renewed = "reclaimd.test/renewed:1"
    old, new = (crio.add_artifact(renewed, os.urandom(MIB)) for _ in range(2))
    assert (crio.names_of(old), crio.names_of(new)) == ([], [renewed])
    app, volume = crio.bring(APP, 0, 1), crio.bring("reclaimd.test/volume:1", 2)
    spare = crio.bring("reclaimd.test/spare:1", 3)
    used = crio.add_artifact("reclaimd.test/used:1", os.urandom(MIB))
    mounts = [
        {
            "container_path": f"/{name}",
            "image": dict.fromkeys(("image", "user_specified_image"), f"reclaimd.test/{name}:1"),
        }
        for name in ("used", "volume")
    ]
    kubelet = crio.node.kubelet
    kubelet.create_container(kubelet.pod("web"), "app", APP, mounts=mounts)
    for reference in (app, f"reclaimd.test/used@sha256:{used}", volume):
        with pytest.raises(grpc.RpcError, match="in use"):
            crio.cri.remove_image(reference)
    outcomes = crio.reclaim()
    assert {outcomes[each]["result"] for each in (model, new, spare)} == {"removed"}
    assert outcomes[model]["freed"]["bytes"] > 6 * MIB
    assert crio.names_of(model) == []
    assert (outcomes[old]["result"], outcomes[old]["reason"]) == (None, "pinned")
    assert old in crio.cri.image_ids()
    assert {outcomes[each]["reason"] for each in (app, volume, used)} == {"in_use"}


# ---- names


def test_an_image_goes_by_its_id_with_all_its_names(crio: CrioNode) -> None:
    """By one of two names it only loses that name; without any name it is listed by its
    digest, and goes as well. Names are in another file than its age, which is the same as before.
    """
    image, store = crio.bring(APP, 1), f"containers-storage:{crio.runtime.store}"
    for name in ("reclaimd.test/app:2", "elsewhere.test/app:1"):
        crio.copy(f"{store}{APP}", f"{store}{name}")
    crio.cri.remove_image(APP)
    assert crio.names_of(image) == ["elsewhere.test/app:1", "reclaimd.test/app:2"]
    moved = crio.bring("reclaimd.test/moved:1", 2)
    stamp = crio.runtime.age_stamp(moved)
    before = os.stat(stamp).st_ctime
    crio.bring("reclaimd.test/moved:1", 3, build="2")
    assert crio.names_of(moved) == []
    assert os.stat(stamp).st_ctime == before
    outcomes = crio.reclaim()
    assert {outcomes[image]["result"], outcomes[moved]["result"]} == {"removed"}


@pytest.mark.parametrize(
    "name",
    [
        "NoSuchName",
        "in-no-table:1",
        "registry.example/app@sha256:abc",
        f"registry.example/app@sha256:{'D' * 64}",
        f"registry.example/{'a' * 300}",
        "registry..example/app:1",
    ],
)
def test_a_name_in_a_spec_that_a_cri_o_refuses_stops_nothing(crio: CrioNode, name: str) -> None:
    """CRI-O fails when it is asked what that is. An image that it could be stays."""
    spare, local = crio.bring("reclaimd.test/spare:1", 1), crio.bring("localhost/in-no-table:1", 2)
    with pytest.raises(grpc.RpcError):
        crio.cri.image_status(name)
    pod = {
        "metadata": {"uid": "uid-new", "annotations": {"kubernetes.io/config.source": "api"}},
        "spec": {"containers": [{"image": name}]},
        "status": {"phase": "Pending"},
    }
    with KubeletServer(of_kubelet(pod_list(pod))) as kubelet:
        outcomes = crio.reclaim(kubeletEndpoint=kubelet.url)
    assert outcomes[spare]["result"] == "removed"
    assert outcomes[local]["reason"] == ("in_use" if name == "in-no-table:1" else "unused")


# ---- ages


def test_an_image_that_is_pulled_again_is_young(crio: CrioNode) -> None:
    """Whether it was removed in between or not; an artifact is as old as its pull."""
    image_id, model = crio.bring(APP, 1), crio.add_artifact(MODEL, os.urandom(MIB))
    for is_removed in (False, True):
        time.sleep(BEFORE_SECONDS)
        if is_removed:
            crio.cri.remove_image(image_id)
        began = time.time()
        assert crio.bring(APP, 1) == image_id
        one = verdict_on(image_id, crio.file(imageMinimumGCAge="1h"))
        assert one["age_seconds"] <= time.time() - began + 0.1
    one = verdict_on(model, crio.file(imageMinimumGCAge=f"{BEFORE_SECONDS:g}s"))
    assert (one["verdict"], one["reason"], one["rule"]) == ("remove", "unused", "guard")


# ---- where the bytes are


def test_the_plan_attributes_the_bytes_of_a_cri_o(crio: CrioNode) -> None:
    """Two images of 16 MiB, an artifact of 8 MiB, a container that wrote 12 MiB;
    ImageFsInfo tells some KiB of it.
    """
    kubelet = crio.node.kubelet
    crio.bring(APP, 0, 1, size=16 * MIB)
    crio.bring("reclaimd.test/old:1", 2, size=16 * MIB)
    crio.add_artifact(MODEL, os.urandom(8 * MIB))
    kubelet.run_script(kubelet.pod("web"), APP, WRITES)
    (reported,) = crio.cri.call("ImageFsInfo").image_filesystems
    assert Path(reported.fs_id.mountpoint) == crio.runtime.root / "overlay-images"
    assert reported.used_bytes.value < MIB
    (attribution,) = plan(crio.file())["attribution"]
    found = shares(attribution)
    assert found["containers_live"] == pytest.approx(12 * MIB, rel=0.1)
    assert found["images_in_use"] == pytest.approx(18 * MIB, rel=0.15)
    assert found["images_may_go"] == pytest.approx(24 * MIB, rel=0.15)
    assert "hidden" not in found


def test_an_image_store_of_its_own_is_the_split_layout(tmp_path: Path) -> None:
    """Images of 16 MiB on one filesystem, what a container has written on the other; no
    layer is somebody else's.
    """
    with (
        LoopFilesystem(tmp_path / "images", GIB) as images,
        running_node(
            tmp_path / "node", GIB, crio=crio_program(), image_store=images.mountpoint / "store"
        ) as node,
    ):
        crio, kubelet = CrioNode(node, tmp_path), node.kubelet
        old = crio.bring("reclaimd.test/old:1", 1, size=16 * MIB)
        kubelet.run_script(kubelet.pod("web"), SANDBOX_IMAGE, WRITES)
        found = plan(crio.file())["attribution"]
        by_role = {role: each for each in found for role in each["filesystems"]}
        assert by_role["containerfs"] == by_role["nodefs"] != by_role["imagefs"]
        may_go = shares(by_role["imagefs"])["images_may_go"]
        live = shares(by_role["containerfs"])["containers_live"]
        assert may_go == pytest.approx(16 * MIB, rel=0.15)
        assert live == pytest.approx(12 * MIB, rel=0.1)
        said = [remark["sentence"] for each in found for remark in each["remarks"]]
        assert not any("layer" in sentence for sentence in said)
        one = verdict_on(old, crio.file(imageMinimumGCAge="1h"))
        assert (one["reason"], one["age_seconds"] < 60.0) == ("too_young", True)
        assert crio.reclaim()[old]["result"] == "removed"

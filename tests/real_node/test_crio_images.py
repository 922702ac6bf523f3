"""What is different on a real CRI-O (`CRIO=` names the program): artifacts, names,
ages, and where the bytes are.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from reclaim.cri import cri_pb2
from tests.nodes.real_node import GIB, RealNode, running_node
from tests.real_node.crio import Crio, crio_program
from tests.real_node.loopfs import LoopFilesystem, run_tool
from tests.real_node.oci import BASE, MANIFEST_TYPE, SLEEP_FOR_EVER, Image, random_layer
from tests.real_node.runtime import SANDBOX_IMAGE
from tests.real_node.test_relief import configure
from tests.reclaimd_process import answer, came_true, reclaimd_here
from tests.sockets.kubelet_server import KubeletServer, pod_list
from tests.sockets.kubelet_server import answer as of_kubelet

MIB = 1 << 20
MODEL, SAME, OTHER = "reclaimd.test/model:1", "reclaimd.test/model:2", "elsewhere.test/model:1"
BEFORE_SECONDS = 3.0


class CrioNode:
    """A node with a CRI-O, whose store of artifacts tests write as a pull would."""

    def __init__(self, node: RealNode, directory: Path):
        self.node = node
        self.cri = node.cri
        self.root = node.containerd.root
        self._directory = directory
        self._layouts = 0

    def add_artifact(self, name: str, content: bytes) -> str:
        """Copies an artifact with one file into the store under a name
        (empty: without one); its id.
        """
        self._layouts += 1
        layout = self._directory / f"layout{self._layouts}"
        blobs = layout / "blobs" / "sha256"
        blobs.mkdir(parents=True)

        def blob(data: bytes, media_type: str, **more: object) -> dict[str, object]:
            digest = hashlib.sha256(data).hexdigest()
            (blobs / digest).write_bytes(data)
            return {
                "mediaType": media_type,
                "digest": f"sha256:{digest}",
                "size": len(data),
                **more,
            }

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
        store = f"oci:{self.root}/artifacts" + (f":{name}" if name else "")
        run_tool("skopeo", "--insecure-policy", "copy", "--quiet", f"oci:{layout}", store)
        return str(entry["digest"]).removeprefix("sha256:")

    def names_of(self, image_id: str) -> list[str]:
        """The tags with which an id is listed, an entry for each."""
        return sorted(
            tag
            for image in self.cri.list_images()
            if image.id == image_id
            for tag in image.repo_tags
        )

    def plan(self, **fields: object) -> dict[str, Any]:
        """The plan of a command that remembers nothing."""
        return dict(
            answer(reclaimd_here("plan", "--config", self._configuration(**fields), "-o", "json"))
        )

    def verdict_on(self, image_id: str, **fields: object) -> dict[str, Any]:
        """What a plan says of one image."""
        found = self.plan(**fields)
        (one,) = [each for each in (*found["removals"], *found["kept"]) if each["id"] == image_id]
        return dict(one)

    def reclaim(self, **fields: object) -> dict[str, dict[str, Any]]:
        """Removes every unused image; the outcomes by id."""
        file = self._configuration(imageMinimumGCAge="0s", **fields)
        arguments = ("--standalone", "--signal", "imagefs.available", "--all", "-o", "json")
        record = answer(reclaimd_here("reclaim", "--config", file, *arguments))
        return {each["id"]: dict(each) for each in (*record["removals"], *record["kept"])}

    def _configuration(self, **fields: object) -> str:
        return configure(self._directory, self.node, stateFile="", **fields)


@pytest.fixture
def crio(tmp_path: Path) -> Iterator[CrioNode]:
    """A CRI-O on an ext4 of its own, with nothing but the sandbox image."""
    with running_node(tmp_path / "node", GIB, crio=crio_program()) as node:
        yield CrioNode(node, tmp_path)


# ---- artifacts


def test_an_artifact_goes_by_its_digest_and_not_by_its_id(crio: CrioNode) -> None:
    """Given its id, CRI-O reports success and removes nothing; so it does for one without
    a name, whatever is given.
    """
    model = crio.add_artifact(MODEL, os.urandom(MIB))
    crio.cri.remove_image(model)
    assert crio.names_of(model) == [MODEL]
    crio.cri.remove_image(f"reclaimd.test/model@sha256:{model}")
    assert crio.cri.image_status(model) is None


@pytest.mark.regression
def test_an_artifact_is_removed_with_all_its_names(crio: CrioNode) -> None:
    """Two names in one repository and one in another: with several, CRI-O
    does not find it by its id.
    """
    content = os.urandom(8 * MIB)
    model, _, _ = [crio.add_artifact(name, content) for name in (MODEL, SAME, OTHER)]
    assert crio.names_of(model) == [OTHER, MODEL, SAME]
    assert crio.cri.image_status(model) is None
    outcome = crio.reclaim()[model]
    assert (outcome["result"], outcome["freed"]["bytes"] > 6 * MIB) == ("removed", True)
    assert crio.names_of(model) == []


@pytest.mark.regression
def test_an_artifact_whose_name_was_pulled_anew_stays(crio: CrioNode) -> None:
    """CRI-O keeps the old content without a name, lists it as `unknown`, and
    removes it by nothing.
    """
    old = crio.add_artifact(MODEL, os.urandom(MIB))
    new = crio.add_artifact(MODEL, os.urandom(MIB))
    assert (crio.names_of(old), crio.names_of(new)) == ([], [MODEL])
    outcomes = crio.reclaim()
    assert (outcomes[old]["result"], outcomes[old]["reason"]) == (None, "pinned")
    assert outcomes[new]["result"] == "removed"
    assert old in crio.cri.image_ids()


@pytest.mark.regression
def test_what_a_created_container_uses_stays(crio: CrioNode) -> None:
    """Its image, an artifact and an image that it mounts:

    CRI-O would refuse them, and none is tried.
    """
    app = crio.node.import_image(Image("reclaimd.test/app:1", (BASE, random_layer(1, MIB))))
    volume = crio.node.import_image(Image("reclaimd.test/volume:1", (random_layer(2, MIB),)))
    spare = crio.node.import_image(Image("reclaimd.test/spare:1", (random_layer(3, MIB),)))
    model = crio.add_artifact(MODEL, os.urandom(MIB))
    crio.node.kubelet.admit_pod("uid-web")
    sandbox = crio.node.kubelet.run_pod("web", "uid-web")
    mounts = [
        cri_pb2.Mount(
            container_path=path, image=cri_pb2.ImageSpec(image=name, user_specified_image=name)
        )
        for path, name in (("/model", MODEL), ("/volume", "reclaimd.test/volume:1"))
    ]
    crio.node.kubelet.create_container(
        sandbox, "app", "reclaimd.test/app:1", SLEEP_FOR_EVER, mounts=mounts
    )
    for reference in (app, f"reclaimd.test/model@sha256:{model}", volume):
        with pytest.raises(grpc.RpcError, match="in use"):
            crio.cri.remove_image(reference)
    outcomes = crio.reclaim()
    assert {outcomes[each]["reason"] for each in (app, volume, model)} == {"in_use"}
    assert outcomes[spare]["result"] == "removed"


# ---- names


def test_an_image_goes_by_its_id_with_all_its_names(crio: CrioNode) -> None:
    """By one of two names it only loses that name; without any name it is listed by its
    digest, and goes as well.
    """
    image = crio.node.import_image(Image("reclaimd.test/app:1", (random_layer(1, MIB),)))
    runtime = crio.node.containerd
    assert isinstance(runtime, Crio)
    store = f"containers-storage:[overlay@{runtime.root}+{runtime.run_directory}/containers]"
    for name in ("reclaimd.test/app:2", "elsewhere.test/app:1"):
        source = f"{store}reclaimd.test/app:1"
        run_tool("skopeo", "--insecure-policy", "copy", "--quiet", source, f"{store}{name}")
    crio.cri.remove_image("reclaimd.test/app:1")
    assert crio.names_of(image) == ["elsewhere.test/app:1", "reclaimd.test/app:2"]
    moved = crio.node.import_image(Image("reclaimd.test/moved:1", (random_layer(2, MIB),)))
    crio.node.import_image(
        Image("reclaimd.test/moved:1", (random_layer(3, MIB),), labels={"build": "2"})
    )
    assert crio.names_of(moved) == []
    outcomes = crio.reclaim()
    assert {outcomes[image]["result"], outcomes[moved]["result"]} == {"removed"}


@pytest.mark.regression
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
    spare = crio.node.import_image(Image("reclaimd.test/spare:1", (random_layer(1, MIB),)))
    local = crio.node.import_image(Image("localhost/in-no-table:1", (random_layer(2, MIB),)))
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


def test_an_image_is_as_old_as_its_pull(crio: CrioNode) -> None:
    """Its layer came before it, and its build was in 2023: to a command without
    records neither makes it old.
    """
    layer = random_layer(1, MIB)
    first = crio.node.import_image(Image("reclaimd.test/first:1", (layer,)))
    model = crio.add_artifact(MODEL, os.urandom(MIB))
    time.sleep(BEFORE_SECONDS)
    began = time.time()
    second = crio.node.import_image(Image("reclaimd.test/second:1", (layer,)))
    for each in (first, model):
        one = crio.verdict_on(each, imageMinimumGCAge=f"{BEFORE_SECONDS:g}s")
        assert (one["verdict"], one["reason"], one["rule"]) == ("remove", "unused", "guard")
    one = crio.verdict_on(second, imageMinimumGCAge="1h")
    assert one["reason"] == "too_young"
    assert one["age_seconds"] <= time.time() - began + 0.1


def test_an_image_that_is_pulled_again_is_young(crio: CrioNode) -> None:
    """Whether it was removed in between or not."""
    image = Image("reclaimd.test/again:1", (random_layer(1, MIB),))
    image_id = crio.node.import_image(image)
    for removed in (False, True):
        time.sleep(BEFORE_SECONDS)
        if removed:
            crio.cri.remove_image(image_id)
        began = time.time()
        assert crio.node.import_image(image) == image_id
        one = crio.verdict_on(image_id, imageMinimumGCAge="1h")
        assert one["age_seconds"] <= time.time() - began + 0.1


def test_a_name_more_or_less_makes_no_image_older_or_younger(crio: CrioNode) -> None:
    """Names are in another file."""
    image_id = crio.node.import_image(Image("reclaimd.test/app:1", (random_layer(1, MIB),)))
    stamp = crio.node.containerd.age_stamp(image_id)
    before = os.stat(stamp).st_ctime
    crio.node.import_image(
        Image("reclaimd.test/app:1", (random_layer(2, MIB),), labels={"build": "2"})
    )
    assert crio.names_of(image_id) == []
    assert os.stat(stamp).st_ctime == before


# ---- where the bytes are


def test_the_plan_attributes_the_bytes_of_a_cri_o(crio: CrioNode) -> None:
    """Two images of 16 MiB, an artifact of 8 MiB, a container that wrote 12 MiB;
    ImageFsInfo tells some KiB of it.
    """
    node = crio.node
    used = node.import_image(Image("reclaimd.test/used:1", (BASE, random_layer(1, 16 * MIB))))
    node.import_image(Image("reclaimd.test/old:1", (random_layer(2, 16 * MIB),)))
    crio.add_artifact(MODEL, os.urandom(8 * MIB))
    node.kubelet.admit_pod("uid-web")
    sandbox = node.kubelet.run_pod("web", "uid-web")
    script = "dd if=/dev/urandom of=/written bs=1048576 count=12; echo done; exec sleep 1000000"
    node.kubelet.run_container(sandbox, "app", "reclaimd.test/used:1", ("/bin/sh", "-c", script))
    written = sandbox.log_directory / "app" / "0.log"
    assert came_true(lambda: "stdout F done" in written.read_text())
    (reported,) = node.cri.image_filesystems().image_filesystems
    assert (Path(reported.fs_id.mountpoint), reported.used_bytes.value < MIB) == (
        crio.root / "overlay-images",
        True,
    )
    found = crio.plan(podLogsDir=str(node.kubelet.pod_logs_dir), imageMinimumGCAge="0s")
    (attribution,) = found["attribution"]
    shares = {share["use"]: share["bytes"] for share in attribution["shares"]}
    assert sum(shares.values()) == attribution["used"]
    assert shares["containers_live"] == pytest.approx(12 * MIB, rel=0.1)
    assert shares["images_in_use"] == pytest.approx(18 * MIB, rel=0.15)
    assert shares["images_may_go"] == pytest.approx(24 * MIB, rel=0.15)
    assert "hidden" not in shares
    assert used in crio.cri.image_ids()


def test_an_image_store_of_its_own_is_the_split_layout(tmp_path: Path) -> None:
    """Images of 16 MiB on one filesystem, what a container has written on the other; no
    layer is somebody else's.
    """
    with (
        LoopFilesystem(tmp_path / "images", GIB, "ext4") as images,
        running_node(
            tmp_path / "node", GIB, crio=crio_program(), image_store=images.mountpoint / "store"
        ) as node,
    ):
        crio = CrioNode(node, tmp_path)
        old = node.import_image(Image("reclaimd.test/old:1", (random_layer(1, 16 * MIB),)))
        node.kubelet.admit_pod("uid-web")
        sandbox = node.kubelet.run_pod("web", "uid-web")
        script = "dd if=/dev/urandom of=/written bs=1048576 count=12; echo done; exec sleep 1000000"
        node.kubelet.run_container(sandbox, "app", SANDBOX_IMAGE, ("/bin/sh", "-c", script))
        written = sandbox.log_directory / "app" / "0.log"
        assert came_true(lambda: "stdout F done" in written.read_text())
        found = crio.plan(podLogsDir=str(node.kubelet.pod_logs_dir), imageMinimumGCAge="0s")
        by_role = {role: each for each in found["attribution"] for role in each["filesystems"]}
        shares = {
            role: {share["use"]: share["bytes"] for share in by_role[role]["shares"]}
            for role in ("imagefs", "containerfs")
        }
        assert by_role["containerfs"] == by_role["nodefs"] != by_role["imagefs"]
        assert shares["imagefs"]["images_may_go"] == pytest.approx(16 * MIB, rel=0.15)
        assert shares["containerfs"]["containers_live"] == pytest.approx(12 * MIB, rel=0.1)
        assert not [
            remark
            for each in found["attribution"]
            for remark in each["remarks"]
            if "layer" in remark["sentence"]
        ]
        one = crio.verdict_on(old, imageMinimumGCAge="1h")
        assert (one["reason"], one["age_seconds"] < 60.0) == ("too_young", True)
        assert crio.reclaim()[old]["result"] == "removed"

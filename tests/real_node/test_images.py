"""Images, pods and content of a real runtime: how old images are, what they share, what is said of one
that comes back, whose the bytes on the disk are; what of twelve pods is removed and kept, and that
content which nothing refers to goes. With `CRIO=` also of a CRI-O.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from eviction.configuration.effective import load
from eviction.decision.reclaim_table import RowEntry
from eviction.engine.node import Node
from eviction.records.passes import PassResult
from reclaim.functions.containerd_garbage import (
    ID_PREFIX,
    OBJECT_ID,
    collect_garbage_function,
    examine,
)
from reclaim.functions.table import FUNCTIONS, table_of
from signals.types import KUBELET_SIGNALS, FilesystemRole
from tests.nodes.real_node import RealNode
from tests.nodes.small_node import outcome_of, relieve
from tests.real_node.containerd import Containerd
from tests.real_node.loopfs import MIB, ToolError, run_tool
from tests.real_node.oci import BASE, Image, random_layer, write_image
from tests.real_node.steps import (
    ALL,
    IMAGEFS,
    OLD_ENOUGH_SECONDS,
    SETTLED_SECONDS,
    Fields,
    file_of,
    plan,
    reclaim,
    removed,
    shares,
    verdict_on,
)
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd_here
from tests.rows import rows_of
from tests.sockets import kubelet_server

BEFORE_SECONDS = 3.0  # for so long another namespace has had the content
STATISTICS_SECONDS = 3.0  # containerd measures its snapshots every second, here
HEAD = '[plugins."io.containerd.grpc.v1.cri"]\n'
ON_DISK = 2  # packed and unpacked: an image of random bytes takes its size twice
BUILDS = 3
SHARED, OWN = 18, 2  # MiB: nine tenths of an image are shared
APP = Image("reclaimd.test/app:1", (random_layer(1, 3 * MIB),))
OTHER = Image("reclaimd.test/other:1", (random_layer(2, 2 * MIB),))
OTHER_AGAIN = Image("reclaimd.test/other:1", (random_layer(3, MIB),))
STAYS_AWAY = Image("reclaimd.test/away:1", (random_layer(4, MIB),))


def runtime_of(node: RealNode) -> Containerd:
    """Its containerd."""
    assert isinstance(node.containerd, Containerd)
    return node.containerd


# ---- ages


def test_content_that_another_namespace_brought_makes_no_image_old(
    containerd: RealNode, tmp_path: Path
) -> None:
    """The namespaces of containerd share their content: its files say when
    anybody has brought it.
    """
    runtime = runtime_of(containerd)
    tar = write_image(Image("reclaimd.test/shared:1", (random_layer(1, MIB),)), tmp_path)
    runtime.ctr("images", "import", tar.path, namespace="other")
    time.sleep(BEFORE_SECONDS)
    began = time.time()
    image = runtime.import_image(tar)
    stamp = os.lstat(runtime.age_stamp(image)).st_ctime
    assert stamp < began - BEFORE_SECONDS + 1.0, "the content is shared"
    one = verdict_on(image, file_of(containerd, imageMinimumGCAge="1h"))
    assert one["reason"] == "too_young"
    assert one["age_seconds"] <= time.time() - began + 0.1
    runtime.ctr("images", "rm", tar.reference, namespace="other")


def test_an_image_is_as_old_as_its_pull_to_a_command_without_records(node: RealNode) -> None:
    """It may go at once, by a rule that is not the kubelet's: a kubelet that has listed it now
    would keep it. Neither its build in 2023 nor a layer that came before makes another old."""
    layer = random_layer(2, MIB)
    first = node.import_image(Image("reclaimd.test/first:1", (layer,)))
    time.sleep(2.0)
    began = time.time()
    second = node.import_image(Image("reclaimd.test/second:1", (layer,)))
    one = verdict_on(first, file_of(node, imageMinimumGCAge="2s"))
    assert (one["verdict"], one["reason"], one["rule"]) == ("remove", "unused", "guard")
    assert one["age_seconds"] >= 2.0
    one = verdict_on(second, file_of(node, imageMinimumGCAge="1h"))
    assert one["reason"] == "too_young"
    assert one["age_seconds"] <= time.time() - began + 0.1


# ---- what images share


def available(node: RealNode) -> int:
    """Bytes on the disk, once everything that was written has its place."""
    run_tool("sync", "-f", node.mountpoint)
    return node.filesystem.available_bytes()


def test_a_plan_promises_what_images_do_not_share(node: RealNode) -> None:
    """Image by image within a tenth of all that is freed, and as much in all in either order; on a
    containerd the sizes are wrong by more than that. A container runs on one base, which stays; the
    other goes with the last image on it."""
    held, free = (random_layer(number, SHARED * MIB) for number in (1, 2))
    app = node.import_image(Image("reclaimd.test/app:1", (BASE, held)))
    node.kubelet.run_container(node.kubelet.pod("app"), "app", "reclaimd.test/app:1")
    builds = [
        Image(f"reclaimd.test/{family}:{number}", (*bases, random_layer(own + number, OWN * MIB)))
        for family, bases, own in (("beside", (BASE, held), 10), ("gone", (free,), 30))
        for number in range(BUILDS)
    ]
    idle = node.import_images(builds)
    time.sleep(OLD_ENOUGH_SECONDS)
    by_age, images = (
        [
            each
            for each in plan(file_of(node, imageOrder=order))["removals"]
            if each["kind"] == "image"
        ]
        for order in ("lru", "cost")
    )
    assert [each["id"] for each in by_age] == idle
    assert sorted(each["id"] for each in images) == sorted(idle)
    assert sum(each["frees"] for each in by_age) == sum(each["frees"] for each in images)
    sizes = promises = gained = 0
    for image in images:
        before = available(node)
        node.cri.remove_image(image["id"])
        got = available(node) - before
        gained += got
        sizes += abs(image["size"] - got)
        promises += abs(image["frees"] - got)
    print(
        f"{len(images)} images, freed {gained / MIB:.1f} MiB; error, image by image: of sizes"
        f" {sizes / gained:.1%}, of the promise {promises / gained:.1%}"
    )
    assert app in node.cri.image_ids()
    assert sum(image["frees"] for image in images) == pytest.approx(gained, rel=0.1)
    least = gained if node.containerd.name == "containerd" else 0.1 * gained
    assert promises < 0.1 * gained <= least < sizes


# ---- an image that comes back


def returned_of(file: str) -> list[Fields]:
    """The appearances in the history."""
    return [each for each in history(file)["records"] if each["kind"] == "returned"]


def history(file: str, *arguments: str) -> Any:
    """The answer of the command."""
    return answer(reclaimd_here("history", "--config", file, "-o", "json", *arguments))


@pytest.mark.parametrize("killed", [False, True], ids=["running", "killed"])
def test_what_was_removed_and_comes_back_is_joined_with_its_removal(
    node: RealNode, tmp_path: Path, killed: bool
) -> None:
    """One image comes back as it was, one by its tag with other content, one stays away. While they
    come back the daemon runs, or it was killed. Then it had not saved what is gone: then
    the time of the pull tells that an image came back, of which a CRI-O says otherwise when it
    was."""
    state = tmp_path / "images.json"

    def remembered() -> set[str]:
        """The ids of the images that are listed, by the state file."""
        return set(json.loads(state.read_text())["images"]) if state.exists() else set()

    app, other, _ = three = node.import_images([APP, OTHER, STAYS_AWAY])
    file = file_of(
        node,
        historyFile=str(tmp_path / "history"),
        historySize="1Mi",
        stateFile=str(state),
        controlSocket=str(tmp_path / "control.sock"),
    )
    time.sleep(OLD_ENOUGH_SECONDS)
    with Daemon("--config", file) as daemon:
        assert came_true(lambda: set(three) <= remembered())
        began = time.time()
        assert set(removed(reclaim(file, *ALL))) >= set(three)
        assert node.cri.image_ids() == {node.sandbox_image_id}
        if killed:
            assert came_true(lambda: len(history(file)["records"]) == 2)
            assert set(three) <= remembered(), "the removals are not saved"
            os.kill(daemon.process.pid, signal.SIGKILL)
            daemon.stop()
        time.sleep(1.1)  # a list that is older than the removal cannot show them
        assert node.import_image(APP) == app
        new_other = node.import_image(OTHER_AGAIN)
        if not killed:
            reclaim(file, *IMAGEFS[:2], "--dry-run")  # which lists the images
            assert came_true(lambda: len(returned_of(file)) == 2)
    if killed:
        with Daemon("--config", file):
            assert came_true(lambda: len(returned_of(file)) == 1)
            assert came_true(lambda: new_other in remembered()), "and it has saved what is gone"
    by_id = {each["id"]: each["gone_id"] for each in returned_of(file)}
    assert by_id == ({app: app} if killed else {app: app, new_other: other})
    regret = history(file, "--regret")
    images = {each["name"]: each for each in regret["images"]}
    assert {name: (each["removed"], each["returned"]) for name, each in images.items()} == {
        APP.reference: (1, 1),
        OTHER.reference: (1, int(not killed)),
        STAYS_AWAY.reference: (1, 0),
    }
    assert 0 < images[APP.reference]["soonest_seconds"] <= time.time() - began


# ---- whose the bytes are


def test_the_plan_attributes_the_bytes_of_a_containerd(
    containerd: RealNode, tmp_path: Path
) -> None:
    """Two images of 16 MiB, a container that wrote 12 MiB and holds a deleted file of 10 MiB open,
    8 MiB of logs, an image of 24 MiB in another namespace. The deleted file was in the writable
    layer, whose statistics know nothing of it."""
    node, runtime = containerd, runtime_of(containerd)
    runtime.kill()
    settings = runtime.run_directory / "config.toml"
    often = settings.read_text().replace(HEAD, f"{HEAD}  stats_collect_period = 1\n")
    settings.write_text(often)
    runtime.start()
    used = node.import_image(Image("registry.example/used:1", (BASE, random_layer(1, 16 * MIB))))
    node.import_image(Image("registry.example/old:1", (random_layer(2, 16 * MIB),)))
    sandbox = node.kubelet.pod("web")
    rotated = sandbox.log_directory / "app" / "0.log.20260101-000000"
    rotated.parent.mkdir()
    rotated.write_bytes(os.urandom(8 * MIB))
    hidden = write_image(Image("registry.example/built:1", (random_layer(3, 24 * MIB),)), tmp_path)
    runtime.ctr("images", "import", hidden.path, namespace="another")
    container = node.kubelet.run_script(
        sandbox,
        used,
        "dd if=/dev/urandom of=/written bs=1048576 count=12; exec 3>/gone;"
        " dd if=/dev/urandom of=/gone bs=1048576 count=10 conv=fsync; rm /gone",
    )
    time.sleep(STATISTICS_SECONDS)
    logs = str(node.kubelet.pod_logs_dir)
    (attribution,) = plan(file_of(node, podLogsDir=logs))["attribution"]
    found = shares(attribution)
    assert node.kubelet.runs(container)
    for use, size, within in (
        ("images_in_use", ON_DISK * 16, 0.15),
        ("images_may_go", ON_DISK * 16, 0.15),
        ("containers_live", 12, 0.1),
        ("deleted_open", 10, 0.05),
        ("logs_rotated", 8, 0.05),
        ("hidden", ON_DISK * 24, 0.15),
    ):
        assert found[use] == pytest.approx(size * MIB, rel=within), use
    remarks = {remark["about"]: remark["sentence"] for remark in attribution["remarks"]}
    assert remarks["deleted_open"].startswith("sleep (pid ")


# ---- twelve pods


BELIEVED = {"believed": True, "why": None, "sentence": None}
GARBAGE = "CollectContainerdGarbage"


# What happens to a pod, whose init container ends well and whose application ends or fails; its
# sandbox dies, or is made again. What of it goes at any rate, and what goes where the kubelet says
# that the pod is over. Everything else stays: without a copy of it, the kubelet would start a
# container again. First those that have to settle.
PODS = rows_of("""
    phase     | happens                      | always  | told
    Deleted   | fails fails deleted          | all     |
    Deleted   | fails fails deleted          | all     |
    Running   | dies again runs              | sandbox |
    Running   | fails dies again runs        |         |
    Succeeded | init ends dies               |         | all
    Succeeded | init ends dies               |         | all
    Running   | fails fails fails            | older   |
    Running   | fails fails fails runs       | older   |
    Running   | init runs                    |         |
    Running   | init runs                    |         |
    Pending   |                              |         |
    Pending   | created                      |         |
""")


class TwelvePods:
    """Sets of ids of the runtime, and names of log directories.

    `always_removed`: older copies, and everything of deleted pods. `removed_with_kubelet`: what
    only the kubelet knows to be terminated. Everything else is kept.
    """

    def __init__(self, node: RealNode) -> None:
        self.node = node
        self.pod_list: list[Fields] = []
        self.always_removed: set[str] = set()
        self.removed_with_kubelet: set[str] = set()
        self.logs_of_deleted: set[str] = set()
        node.import_image(Image(APP.reference, (BASE,)))
        began = time.monotonic()
        for number, row in enumerate(PODS):
            self._make(f"pod-{number}", **row)
            if "dies again" in row["happens"]:
                began = time.monotonic()
        time.sleep(max(0.0, began + SETTLED_SECONDS - time.monotonic()))

    def _make(self, name: str, phase: str, happens: str, always: str, told: str) -> None:
        """A pod of which this becomes."""
        kubelet, copies, steps = self.node.kubelet, list[str](), happens.split()
        first = pod = kubelet.pod(name)
        source = {"kubernetes.io/config.source": "api"}
        metadata = {"uid": pod.uid, "name": name, "namespace": "default", "annotations": source}
        if "deleted" not in steps:
            self.pod_list.append({"metadata": metadata, "status": {"phase": phase}})
        for number, step in enumerate(steps):
            attempt = steps[:number].count("fails")
            match step:
                case "init":
                    copies.append(kubelet.run_to_end(pod, "init", APP.reference))
                case "ends" | "fails":
                    command = ("/bin/true" if step == "ends" else "/bin/false",)
                    ended = kubelet.run_to_end(pod, "app", APP.reference, command, attempt)
                    copies.append(ended)
                case "runs":
                    kubelet.run_container(pod, "app", APP.reference, attempt=attempt)
                case "created":
                    kubelet.create_container(pod, "app", APP.reference)
                case "dies":
                    self.node.cri.stop_sandbox(pod.id)
                case "again":
                    pod = kubelet.run_pod(name, pod.uid, attempt=1)
                case _:
                    kubelet.end_pod(pod)
                    self.logs_of_deleted.add(pod.log_directory.name)
        goes = {"": [], "all": [*copies, first.id], "older": copies[:-1], "sandbox": [first.id]}
        self.always_removed |= {*goes[always]}
        self.removed_with_kubelet |= {*goes[told]}

    def objects(self) -> set[str]:
        """The ids of all containers and sandboxes."""
        cri = self.node.cri
        return cri.container_ids() | {item.id for item in cri.list_sandboxes()}

    def log_directories(self) -> set[str]:
        """The names in the pod log root."""
        return {entry.name for entry in self.node.kubelet.pod_logs_dir.iterdir()}


def told_by(who: str) -> Fields:
    """Of the pods: who has said which there are, and that the directories are believed."""
    return {"told_by": who, "problem": None, "directories": BELIEVED}


def parts(record: Fields) -> set[str]:
    """The containers and sandboxes among the removals."""
    return {o["id"] for o in record["removals"] if o["kind"] in ("container", "sandbox")}


def test_the_stricter_guards_decide_without_the_kubelets_state_and_with_it_it_is_the_kubelet_object_for_object(
    containerd: RealNode,
) -> None:
    """Without it older copies and all of deleted pods are removed; completed pods, whose directory
    is there, keep everything. With it, and with extent all, terminated pods lose their containers
    and sandboxes too; their logs are kept, as the pods are not deleted."""
    pods, row = TwelvePods(containerd), ("--signal", "nodefs.available", "--now")
    before, logs = pods.objects(), pods.log_directories()
    root = containerd.kubelet.pod_logs_dir
    places = {"podLogsDir": str(root), "containerLogsDir": str(root.parent / "containers")}
    listed = kubelet_server.answer(kubelet_server.pod_list(*pods.pod_list))
    with kubelet_server.KubeletServer(listed) as kubelet:
        asking = {**places, "kubeletEndpoint": kubelet.url, "extent": "all"}
        told = plan(file_of(containerd, **asking))
        assert parts(told) == pods.always_removed | pods.removed_with_kubelet
        assert told["pods"] == told_by("kubelet")
        kept = [o for o in told["kept"] if o["kind"] in ("container", "sandbox")]
        assert {o["rule"] for o in kept} == {"kubelet"}

        file = file_of(containerd, **places)
        guarded = plan(file)
        containers = [o for o in guarded["kept"] if o["kind"] == "container"]
        over = {o["rule"] for o in containers if o["id"] in pods.removed_with_kubelet}
        assert over == {"guard"}, "keeps what only the kubelet knows to be terminated"
        assert guarded["pods"] == told_by("directories")
        assert pods.objects() == before, "a plan removes nothing"
        record = reclaim(file, *row)
        assert before - pods.objects() == parts(record) == pods.always_removed
        assert logs - pods.log_directories() == pods.logs_of_deleted
        reclaim(file_of(containerd, **asking), *row)
    assert before - pods.objects() == pods.always_removed | pods.removed_with_kubelet
    assert logs - pods.log_directories() == pods.logs_of_deleted


# ---- containerd's garbage


def ingest(runtime: Containerd, name: str, size_bytes: int) -> Path:
    """Content that nothing refers to; its file."""
    content = os.urandom(size_bytes)
    runtime.ctr("content", "ingest", name, given=content)
    return runtime.age_stamp(f"sha256:{hashlib.sha256(content).hexdigest()}")


def labelled(runtime: Containerd, size_bytes: int) -> Path:
    """Content that a label keeps; its file. containerd's client labels what is there already, so
    that a collection may come in between: then there is other content."""
    for attempt in range(5):
        path = ingest(runtime, f"kept-{attempt}", size_bytes)
        try:
            runtime.ctr("content", "label", f"sha256:{path.name}", "containerd.io/gc.root=kept")
        except ToolError:
            continue
        return path
    raise AssertionError("containerd collected content five times before it could be labelled")


def test_content_that_nothing_refers_to_goes_and_what_is_labelled_stays(
    containerd: RealNode,
) -> None:
    """`CollectContainerdGarbage`, alone in every row: 32 MiB of garbage beside 8 MiB that a label
    keeps, measured by statvfs; the images that CRI lists stay, and no lease is left."""
    runtime = containerd.containerd
    assert isinstance(runtime, Containerd)
    # containerd's own collection comes after deletions and some time: let it be over
    runtime.ctr("leases", "create", "--id", "nothing")
    runtime.ctr("leases", "rm", "--sync", "nothing")
    kept, garbage = labelled(runtime, 8 * MIB), ingest(runtime, "garbage", 32 * MIB)
    images = containerd.cri.image_ids()
    mark = containerd.filesystem.available_bytes() + 24 * MIB
    configuration = load(file_of(containerd, nodefs=mark), {}, {})
    rows = dict.fromkeys(KUBELET_SIGNALS, (RowEntry(GARBAGE),))
    function = collect_garbage_function(GARBAGE, 60.0, FilesystemRole.NODEFS)
    product = Node(
        configuration.model_copy(update={"rows": rows}),
        functions=table_of(function, *FUNCTIONS.values()),
    )
    try:
        examine(GARBAGE, product.client)
        before = containerd.filesystem.available_bytes()
        record = relieve(product)
        gained = containerd.filesystem.available_bytes() - before
    finally:
        product.close()
    assert (record.result, record.errors) == (PassResult.SATISFIED, ())
    assert 31 * MIB <= gained <= 33 * MIB
    outcome = outcome_of(record, OBJECT_ID)
    assert outcome.result == "removed"
    assert abs(outcome.freed.bytes - gained) < MIB
    assert (garbage.exists(), kept.exists()) == (False, True)
    assert containerd.cri.image_ids() == images
    assert ID_PREFIX not in runtime.ctr("leases", "ls")

"""Images of a real runtime: how old they are, what they share, what is said of one that comes back;
and whose the bytes on the disk are. With `CRIO=` also of a CRI-O."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.nodes.real_node import RealNode
from tests.real_node.containerd import Containerd
from tests.real_node.loopfs import MIB, run_tool
from tests.real_node.oci import BASE, Image, random_layer, write_image
from tests.real_node.steps import (
    ALL,
    IMAGEFS,
    OLD_ENOUGH_SECONDS,
    file_of,
    plan,
    reclaim,
    removed,
    shares,
    verdict_on,
)
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd_here

BEFORE_SECONDS = 3.0  # for so long another namespace has had the content
STATISTICS_SECONDS = 3.0  # containerd measures its snapshots every second, here
HEAD = '[plugins."io.containerd.grpc.v1.cri"]\n'
ON_DISK = 2  # packed and unpacked: an image of random bytes takes its size twice
BUILDS = 5
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


@pytest.mark.regression
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


@pytest.mark.parametrize("order", ["lru", "cost"])
def test_a_plan_promises_what_images_do_not_share(node: RealNode, order: str) -> None:
    """Image by image within a tenth of all that is freed; on a containerd the sizes are wrong by
    more than that. A container runs on one base, which stays; the other goes with the last image
    on it."""
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
    planned = plan(file_of(node, imageOrder=order))["removals"]
    images = [each for each in planned if each["kind"] == "image"]  # in their order
    assert sorted(each["id"] for each in images) == sorted(idle)
    sizes = promises = gained = 0
    for image in images:
        before = available(node)
        node.cri.remove_image(image["id"])
        got = available(node) - before
        gained += got
        sizes += abs(image["size"] - got)
        promises += abs(image["frees"] - got)
    print(
        f"{order}: {len(images)} images, freed {gained / MIB:.1f} MiB; error, image by image: of"
        f" sizes {sizes / gained:.1%}, of the promise {promises / gained:.1%}"
    )
    assert app in node.cri.image_ids()
    assert sum(image["frees"] for image in images) == pytest.approx(gained, rel=0.1)
    least = gained if node.containerd.name == "containerd" else 0.1 * gained
    assert promises < 0.1 * gained <= least < sizes


# ---- an image that comes back


def returned_of(file: str) -> list[dict[str, Any]]:
    """The appearances in the history."""
    return [each for each in history(file)["records"] if each["kind"] == "returned"]


def history(file: str, *arguments: str) -> Any:
    """The answer of the command."""
    return answer(reclaimd_here("history", "--config", file, "-o", "json", *arguments))


def counted(daemon: Daemon) -> tuple[float, float]:
    """The metrics: images that returned, and their bytes."""
    begin = "metrics and health are served"
    served = daemon.wait_for(lambda event: event["message"].startswith(begin))
    with urllib.request.urlopen(f"http://{served['address']}/metrics", timeout=30.0) as page:
        lines = page.read().decode().splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    names = ("reclaimd_images_returned_total", "reclaimd_image_returned_bytes_total")
    images, size = (float(found[name]) for name in names)
    return images, size


@pytest.mark.parametrize("meanwhile", ["running", "stopped", "killed"])
def test_what_was_removed_and_comes_back_is_joined_with_its_removal(
    node: RealNode, tmp_path: Path, meanwhile: str
) -> None:
    """One image comes back as it was, one by its tag with other content, one stays away. While they
    come back the daemon runs, or does not. If it was killed, it had not saved what is gone: then
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
        metricsAddress="127.0.0.1:0",
    )
    time.sleep(OLD_ENOUGH_SECONDS)
    with Daemon("--config", file) as daemon:
        assert came_true(lambda: set(three) <= remembered())
        began = time.time()
        assert set(removed(reclaim(file, *ALL))) >= set(three)
        assert node.cri.image_ids() == {node.sandbox_image_id}
        if meanwhile == "killed":
            assert came_true(lambda: len(history(file)["records"]) == 2)
            assert set(three) <= remembered(), "the removals are not saved"
            os.kill(daemon.process.pid, signal.SIGKILL)
        if meanwhile != "running":
            daemon.stop()
        # at its end it waits for its disk for 1 s
        saved = meanwhile == "running" or app not in remembered()
        time.sleep(1.1)  # a list that is older than the removal cannot show them
        assert node.import_image(APP) == app
        new_other = node.import_image(OTHER_AGAIN)
        if meanwhile == "running":
            reclaim(file, *IMAGEFS[:2], "--dry-run")  # which lists the images
            assert came_true(lambda: len(returned_of(file)) == 2)
            assert counted(daemon) == (2.0, sum(each["size"] for each in returned_of(file)))
    if meanwhile != "running":
        with Daemon("--config", file) as daemon:
            assert came_true(lambda: len(returned_of(file)) == 1 + saved)
            assert came_true(lambda: new_other in remembered()), "and it has saved what is gone"
            assert counted(daemon)[0] == 2 * saved, "what it knows that it has removed"
    by_id = {each["id"]: each["gone_id"] for each in returned_of(file)}
    assert by_id == ({app: app, new_other: other} if saved else {app: app})
    regret = history(file, "--regret")
    images = {each["name"]: each for each in regret["images"]}
    assert {name: (each["removed"], each["returned"]) for name, each in images.items()} == {
        APP.reference: (1, 1),
        OTHER.reference: (1, int(saved)),
        STAYS_AWAY.reference: (1, 0),
    }
    assert 0 < images[APP.reference]["soonest_seconds"] <= time.time() - began
    why = reclaimd_here("why", APP.reference, "--config", file)
    assert f"image {APP.reference}: removed 1 time" in why.stdout
    assert "; came back 1 time, soonest after" in why.stdout


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

"""`reclaimd drill --observe` on a real containerd: another responder acts,
and the drill only measures.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

from tests.nodes.real_node import RealNode
from tests.observing import Observing
from tests.real_node.fill import fill_bytes
from tests.real_node.oci import BASE, SLEEP_FOR_EVER, Image
from tests.real_node.test_decide import unused_images
from tests.real_node.test_relief import MIB, configure, containers_of
from tests.reclaimd_process import came_true, reclaimd


def names_gone(document: Any, kind: str) -> list[str]:
    return [removal["name"] for removal in document["removals"] if removal["kind"] == kind]


def pod_on(node: RealNode, name: str, image: str) -> Any:
    """A pod with one container that runs."""
    node.kubelet.admit_pod(f"uid-{name}")
    sandbox = node.kubelet.run_pod(name, f"uid-{name}")
    node.kubelet.run_container(sandbox, "app", image, SLEEP_FOR_EVER)
    return sandbox


def test_the_response_of_another_responder_is_measured(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """A fill crosses the mark, a pod is ended, an image is removed: the report has all of it with
    its times, and the observation ends by itself once the node is relieved and nothing changes."""
    node = containerd_on_ext4
    app = node.import_image(Image("reclaimd.test/app:1", (BASE,)))
    images = unused_images(node, 2)
    victim = pod_on(node, "victim", app)
    pod_on(node, "bystander", app)
    mark = node.filesystem.available_bytes() - 30 * MIB
    configuration = configure(
        tmp_path,
        node,
        evictionHard={"nodefs.available": str(mark)},
        evictionMinimumReclaim={"nodefs.available": "0"},
    )
    observing = Observing(
        tmp_path / "report", "--config", configuration, "--quiet", "1s", "--for", "60s"
    )
    fill = fill_bytes(node.mountpoint / "fill", mark - 5 * MIB, rate_bytes_per_second=200 * MIB)
    fill.wait(60.0)
    time.sleep(1.0)
    node.kubelet.end_pod(victim)
    node.cri.remove_image(images[0])
    code, printed = observing.ended()
    assert code == 0, printed
    document = observing.report()
    assert document["response"] == "observed"
    assert document["crossed_seconds"] is not None
    assert names_gone(document, "image") == ["reclaimd.test/spare/0:1"]
    assert [pod["name"] for pod in document["ended_pods"]] == ["default/victim"]
    assert (
        0.1
        < document["from_crossing_to_first_relief_seconds"]
        <= document["from_crossing_to_relief_seconds"]
    )
    assert document["from_crossing_to_first_removal_seconds"] > 0.1
    assert mark - 7 * MIB < document["lowest"]["nodefs.available"] <= mark - 5 * MIB
    assert document["lists_apart_seconds"] < 20.0
    assert "default/victim" in printed
    assert "default/bystander" not in printed
    assert {path.suffix for path in (tmp_path / "report").iterdir()} >= {".html", ".json", ".xml"}
    fill.remove()


def test_an_observation_changes_nothing_and_ends_on_sigint(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """Under lasting pressure it removes nothing, and on SIGINT it writes
    its report and exits with 0.
    """
    node = containerd_on_ext4
    images = unused_images(node, 1)
    configuration = configure(
        tmp_path,
        node,
        evictionHard={"nodefs.available": str(node.filesystem.available_bytes() + 10 * MIB)},
    )
    before = (
        node.cri.image_ids(),
        containers_of(node),
        sorted(path.name for path in node.mountpoint.rglob("*")),
    )
    observing = Observing(tmp_path / "report", "--config", configuration)
    time.sleep(1.0)
    code, printed = observing.stopped(signal.SIGINT)
    assert code == 0, printed
    assert (node.cri.image_ids(), containers_of(node)) == before[:2]
    assert set(images) <= node.cri.image_ids()
    assert observing.report()["from_crossing_to_relief_seconds"] is None
    assert observing.report()["crossed_seconds"] < 10.0, (
        "it was under pressure from the first observation on"
    )
    assert "relief never" in printed


def test_an_observation_ends_after_its_time(containerd_on_ext4: RealNode, tmp_path: Path) -> None:
    """--for ends it also if no mark was crossed."""
    node = containerd_on_ext4
    configuration = configure(tmp_path, node, evictionHard={"nodefs.available": "1Mi"})
    began = time.monotonic()
    code, printed = Observing(
        tmp_path / "report", "--config", configuration, "--for", "500ms"
    ).ended()
    assert code == 0
    assert time.monotonic() - began < 60.0
    assert "crossed  no mark" in printed


def test_lists_missing_for_a_while_are_reported_as_a_fault_and_not_as_removals(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """A runtime that is killed and restarted: the report names the outage, and
    no image as removed.
    """
    node = containerd_on_ext4
    unused_images(node, 1)
    configuration = configure(tmp_path, node, evictionHard={"nodefs.available": "1Mi"})
    observing = Observing(tmp_path / "report", "--config", configuration)
    time.sleep(0.5)
    node.containerd.kill()
    time.sleep(4.0)  # the lists are asked for once a second
    node.containerd.start()
    assert came_true(lambda: len(node.cri.image_ids()) == 2)
    time.sleep(0.5)
    code, _ = observing.stopped()
    assert code == 0
    document = observing.report()
    assert document["removals"] == []
    assert [fault["what"].partition(":")[0] for fault in document["faults"]] == [
        "the runtime's lists are not available"
    ]


def test_no_runtime_is_exit_3(containerd_on_ext4: RealNode, tmp_path: Path) -> None:
    """One sentence on stderr, and no report."""
    node = containerd_on_ext4
    configuration = configure(tmp_path, node, evictionHard={"nodefs.available": "1Mi"})
    process = reclaimd(
        "drill", "--observe", "--config", configuration, "--runtime", f"unix://{tmp_path}/no.sock",
        "--report", str(tmp_path / "report"),
    )  # fmt: skip
    assert process.returncode == 3
    assert process.stderr.count("\n") == 1
    assert not (tmp_path / "report").exists()

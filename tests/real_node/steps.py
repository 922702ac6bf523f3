"""What the stories of real nodes do again and again: configure the product, run it, read what it
did."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from tests.nodes.crowded_node import CrowdedNode
from tests.nodes.real_node import RealNode
from tests.real_node.loopfs import MIB
from tests.real_node.oci import numbered
from tests.reclaimd_process import (
    Daemon,
    answer,
    came_true,
    reclaimd,
    reclaimd_here,
    write_configuration,
)

Fields = dict[str, Any]
"""The record of a pass, or a part of what a command answers."""
MINIMUM_RECLAIM = 16 * MIB
SETTLED_SECONDS = 11.0  # parts of a vanished pod count as gone from 10 s on
OLD_ENOUGH_SECONDS = 1.1  # for what `configure` asks of an image
ALL = ("--signal", "imagefs.available", "--all")
IMAGEFS = ("--signal", "imagefs.available", "--now")


def configure(
    path: Path, node: RealNode, *, nodefs: object = 0, imagefs: object = 0, **fields: object
) -> str:
    """A configuration for this node; images count as old enough after a second, as
    they were imported just now.

    `nodefs`, `imagefs`: the marks, in bytes available.
    """
    given = fields.pop("evictionHard", {})
    assert isinstance(given, dict)
    hard = {
        "nodefs.available": str(nodefs or "0%"),
        "nodefs.inodesFree": "0%",
        "imagefs.available": str(imagefs or "0%"),
        "imagefs.inodesFree": "0%",
        **given,
    }
    minimum = {"imagefs.available": str(MINIMUM_RECLAIM), "nodefs.available": "0"}
    defaults = {
        "rootDirectory": str(node.kubelet.root_dir),
        "containerRuntimeEndpoint": f"unix://{node.containerd.socket}",
        "imageMinimumGCAge": "1s",
        "holdOffAfterStart": "0s",
        "evictionMinimumReclaim": minimum,
    }
    return str(
        write_configuration(path / "reclaimd.yaml", **{**defaults, "evictionHard": hard, **fields})
    )


def file_of(node: RealNode, **fields: object) -> str:
    """The same, beside the file that its disk is in."""
    return configure(node.filesystem.directory, node, **fields)


def unused_images(
    node: RealNode, count: int, size_bytes: int = 5 * MIB, name: str = "spare"
) -> list[str]:
    """Images that nobody uses, old enough to be removed; the oldest first. containerd has each on
    the disk twice: as blob and as snapshot.
    """
    images = node.import_images(numbered(f"reclaimd.test/{name}/{{:02}}:1", count, size_bytes))
    time.sleep(OLD_ENOUGH_SECONDS)
    return images


def reclaim(file: str, *words: str, code: int = 0) -> Any:
    """What `reclaimd reclaim` answers, which ends with this code."""
    done = reclaimd("reclaim", "--config", file, *words, "-o", "json")
    assert done.returncode == code, done.stdout + done.stderr
    return answer(done)


def plan(file: str, *words: str) -> Any:
    """What `reclaimd plan` answers."""
    return answer(reclaimd_here("plan", "--config", file, *words, "-o", "json"))


def verdict_on(image_id: str, file: str) -> Fields:
    """What a plan says of one image."""
    found = plan(file)
    (one,) = [each for each in (*found["removals"], *found["kept"]) if each["id"] == image_id]
    return dict(one)


def shares(attribution: Fields) -> dict[str, int]:
    """Whose the bytes of a filesystem are, by use; they are all of its bytes."""
    found = {share["use"]: share["bytes"] for share in attribution["shares"]}
    assert sum(found.values()) == attribution["used"]
    return found


def status(file: str) -> Any:
    """The daemon's status, as soon as it answers."""
    words = ("status", "--config", file, "-o", "json")
    assert came_true(lambda: reclaimd_here(*words).returncode == 0)
    return answer(reclaimd_here(*words))


def relieved(daemon: Daemon) -> Fields:
    """The record of the first pass that has reached its mark, waited for."""
    record: Fields = daemon.wait_for(lambda event: event.get("result") == "satisfied")["record"]
    return record


def is_relieved(daemon: Daemon, value: Callable[[], int], mark: int) -> None:
    """Waits until it is above the mark, and the last pass has reached that."""
    assert came_true(lambda: value() >= mark)
    assert came_true(lambda: [each["result"] for each in daemon.passes][-1:] == ["satisfied"])


def removed(record: Fields, kind: str = "image") -> list[str]:
    """The ids of what a pass has removed, in its order."""
    return [o["id"] for o in record["removals"] if o["kind"] == kind and o["result"] == "removed"]


def freed(record: Fields) -> list[int]:
    """The bytes that came back with each image."""
    return [o["freed"]["bytes"] for o in record["removals"] if o["kind"] == "image"]


def available_after(record: Fields, signal: str) -> int:
    """The value of a signal at the end of a pass."""
    (found,) = [int(o["available"]) for o in record["observations_after"] if o["signal"] == signal]
    return found


def oldest_gone(images: Collection[str], left: set[str]) -> int:
    """How many images are gone: the oldest, without a gap."""
    gone = [image not in left for image in images]
    assert gone == sorted(gone, reverse=True), "the oldest are removed first"
    return sum(gone)


def assert_without_power(pid: int, seccomp: str = "0") -> dict[str, str]:
    """By /proc: root without a capability and without a way to one, its system calls filtered at
    least like this (prctl(2)), its root read-only. The options of its mounts, by their points."""
    proc = Path(f"/proc/{pid}")
    fields = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines())
    capabilities = {fields[f"Cap{name}"] for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")}
    assert capabilities == {"0" * 16}
    uid = fields["Uid"].split()[0]
    assert (fields["NoNewPrivs"], uid) == ("1", "0")
    assert fields["Seccomp"] >= seccomp
    mounts = map(str.split, (proc / "mountinfo").read_text().splitlines())
    options = {words[4]: words[5] for words in mounts}
    assert options["/"].startswith("ro,")
    return options


def objects_of(node: RealNode) -> tuple[set[str], set[str]]:
    """The ids of its images and containers."""
    return node.cri.image_ids(), node.cri.container_ids()


def assert_protected_objects_kept(crowded: CrowdedNode) -> None:
    """Running containers, newest dead copies, images in use and the sandbox image
    are kept; a new pod starts.
    """
    kubelet, (images, containers) = crowded.node.kubelet, objects_of(crowded.node)
    assert crowded.protected_images() <= images
    assert crowded.protected_containers() <= containers
    started = kubelet.run_container(kubelet.pod("new-pod"), "app", crowded.app_image)
    for container in (*crowded.running_containers, started):
        assert kubelet.runs(container)

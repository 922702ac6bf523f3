"""imageStoreLimit: a store over its limit is brought below it and not further, and nothing else waits for its count."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from eviction.drill.runtime.dialects import CRI_O_1_36
from eviction.drill.runtime.faults import Hang
from reclaim.cri import cri_pb2 as pb
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.ports import free_port
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd_here
from tests.sockets.conftest import SmallNodeFactory

STORE = "imagestore.available"


class Shop:
    """A small node with six old images of 4 MiB and a pod, whose store has a limit."""

    def __init__(self, small: SmallNode, directory: Path):
        self.small = small
        self.control = str(directory / "run" / "control.sock")
        self.images = small.add_images(6)
        small.run(small.run_pod("web"))

    def used(self) -> int:
        """What the images take, by the runtime's count."""
        (found,) = self.small.runtime.image_fs_info(pb.ImageFsInfoRequest()).image_filesystems
        return int(found.used_bytes.value)

    def limited(self, limit: int, **fields: Any) -> str:
        """A configuration with this limit in bytes, which is looked at each half a second."""
        given = {"imageStoreLimit": f"{limit}e0", "pollCeiling": "500ms", "controlSocket": self.control, **fields}
        signal, above = given.pop("signal", None), given.pop("above", 0)
        return self.small.configuration(signal, above, **given)


@pytest.fixture
def shop(small_node: SmallNode, tmp_path: Path) -> Shop:
    return Shop(small_node, tmp_path)


def status_of(file: str) -> dict[str, Any]:
    """What the daemon sees; empty before it answers."""
    process = reclaimd_here("status", "--config", file, "-o", "json")
    return dict(answer(process)) if process.returncode == 0 else {}


def seen(document: dict[str, Any]) -> dict[str, Any]:
    """The signal of the store; empty before the first count."""
    return next((dict(one) for one in document.get("observations", ()) if one["signal"] == STORE), {})


def test_a_daemon_brings_a_store_below_its_limit_and_no_further(shop: Shop) -> None:
    """6 MiB over: two images of 4 MiB, the oldest. It is no pressure of the node, and the log says what it was."""
    limit = shop.used() - 6 * MIB
    port = free_port()
    file = shop.limited(limit, metricsAddress=f"127.0.0.1:{port}")
    assert reclaimd_here("check", "--config", file, "--standalone").returncode == 1
    with Daemon("--config", file) as daemon:
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        assert came_true(lambda: seen(status_of(file)).get("available", -1) >= 0)
        (record,) = daemon.passes
        assert record["acted_on"]["signal"] == STORE
        assert record["row"] == ["DeleteAllUnusedContainers", "DeleteUnusedImages"]
        assert (record["conditions"], status_of(file)["conditions"]) == ([], [])
        assert daemon.logged(f"attempting to reclaim {STORE}")
        assert not daemon.logged("imagestore: ")
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10.0) as page:
            lines = page.read().decode().splitlines()
        (line,) = [each for each in lines if each.startswith(f'reclaimd_signal_capacity{{signal="{STORE}"}}')]
        assert float(line.rpartition(" ")[2]) == limit
        assert daemon.stop() == 0
    assert shop.small.removed("image") == shop.images[:2]
    assert shop.used() <= limit
    after = reclaimd_here("check", "--config", file, "--standalone")
    assert after.returncode == 0
    assert "imagestore: its images take" in after.stdout


def test_a_pull_beyond_the_limit_costs_the_oldest_image(shop: Shop) -> None:
    """At the limit nothing goes; a pull of 4 MiB is noticed, and the oldest image of 4 MiB makes up for it."""
    file = shop.limited(shop.used() + MIB)
    with Daemon("--config", file) as daemon:
        assert came_true(lambda: bool(seen(status_of(file))))
        assert shop.small.removed() == []
        shop.small.add_image("registry.example/new:1", 4 * MIB)
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
    assert shop.small.removed("image") == shop.images[:1]


def test_a_limit_that_cannot_be_kept_is_said_and_does_not_spin(shop: Shop) -> None:
    """Everything unused goes; what is in use stays, at a limit of nothing to speak of. A few passes, not hundreds."""
    file = shop.limited(MIB // 2)
    with Daemon("--config", file) as daemon:
        daemon.wait_for(lambda event: event.get("result") == "not_enough")
        before = shop.small.failpoints.calls["ListImages"]
        time.sleep(3.0)
        assert shop.small.failpoints.calls["ListImages"] - before <= 10
        assert daemon.stop() == 0
    assert set(shop.small.removed("image")) == set(shop.images)


def test_a_count_that_hangs_stops_no_relief_of_a_disk(shop: Shop) -> None:
    """ImageFsInfo is no longer answered: the disk that fills is relieved, and the daemon stays alive."""
    file = shop.limited(1 << 30, signal=Signal.NODEFS_AVAILABLE, above=-4 * MIB)
    with Daemon("--config", file) as daemon:
        assert came_true(lambda: bool(seen(status_of(file))))
        shop.small.failpoints["ImageFsInfo"] = Hang()
        shop.small.wait_for("ImageFsInfo", shop.small.failpoints.calls["ImageFsInfo"] + 1)
        shop.small.fill(6 * MIB)
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        assert shop.small.removed("image")
        shop.small.failpoints.clear()
        assert daemon.stop() == 0


def test_a_pass_about_the_store_whose_count_hangs_delays_no_disk(shop: Shop) -> None:
    """The count hangs after the first image of the store's pass, which waits; the disk is relieved meanwhile."""
    file = shop.limited(shop.used() - 3 * MIB, signal=Signal.NODEFS_AVAILABLE, above=-8 * MIB)

    def hang() -> None:
        shop.small.wait_for("RemoveImage")
        shop.small.failpoints["ImageFsInfo"] = Hang()

    waiting = threading.Thread(target=hang)
    waiting.start()
    with Daemon("--config", file) as daemon:
        waiting.join()
        shop.small.fill(14 * MIB)
        daemon.wait_for(lambda event: (event.get("record") or {}).get("acted_on", {}).get("signal") != STORE)
        shop.small.failpoints.clear()
        daemon.wait_for(lambda event: (event.get("record") or {}).get("acted_on", {}).get("signal") == STORE)
        assert daemon.stop() == 0


# ---- commands


def test_the_commands_know_the_signal(shop: Shop) -> None:
    """plan for it, why it is enough; reclaim by its name, once and no further; room below the limit."""
    limit = shop.used() - 6 * MIB
    file = shop.limited(limit, controlSocket="")
    plan = reclaimd_here("plan", "--config", file, "--signal", STORE)
    assert (plan.returncode, f"that is enough for {STORE}" in plan.stdout) == (0, True)
    record = answer(reclaimd_here("reclaim", "--config", file, "--signal", STORE, "--now", "-o", "json"))
    assert [each["id"] for each in record["removals"]] == shop.images[:2] == shop.small.removed("image")
    assert record["result"] == "satisfied"
    there = limit - shop.used()
    room = answer(
        reclaimd_here("reclaim", "--config", file, "--room", f"{there + MIB}", "--on", "imagestore", "-o", "json")
    )
    assert (room["room"]["missing"], len(shop.small.removed("image"))) == (0, 3)
    ladder = answer(reclaimd_here("config", "--config", file, "-o", "json"))["ladder"]
    assert [(one["mark"], one["whose"]) for one in ladder if one["signal"] == STORE] == [(0, "reclaimd")]
    findings = answer(reclaimd_here("doctor", "--config", file, "-o", "json"))["findings"]
    assert STORE not in json.dumps(findings)


def test_the_store_is_shown_live(shop: Shop) -> None:
    """`status` and `top` print it, below 0 too; a limit that nothing keeps."""
    file = shop.limited(MIB // 2, dryRun=True)
    with Daemon("--config", file):
        assert came_true(lambda: seen(status_of(file)).get("available", 0) < 0)
        lines = reclaimd_here("status", "--config", file).stdout
        assert any(line.startswith(f"{STORE}  -") for line in lines.splitlines())
        assert STORE in reclaimd_here("top", "--config", file, "--count", "1").stdout


# ---- CRI-O


@pytest.fixture
def crio(make_small_node: SmallNodeFactory, tmp_path: Path) -> tuple[Shop, Path]:
    """A node like CRI-O's, and its list of layers."""
    small = make_small_node(dialect=CRI_O_1_36)
    directory = small.images_root / "overlay-layers"
    directory.mkdir()
    return Shop(small, tmp_path), directory / "layers.json"


def test_on_cri_o_the_layers_count(crio: tuple[Shop, Path]) -> None:
    """Its ImageFsInfo does not count them; without a list nothing is removed, and `check` says why (4)."""
    shop, listed = crio
    file = shop.limited(MIB, controlSocket="")
    unknown = reclaimd_here("check", "--config", file, "--standalone")
    assert (unknown.returncode, "what its layers take cannot be read" in unknown.stdout) == (4, True)
    refused = reclaimd_here("reclaim", "--config", file, "--now")
    assert (refused.returncode, shop.small.removed()) == (4, [])
    listed.write_text(json.dumps([{"id": str(number), "diff-size": 4 * MIB} for number in range(6)]))
    found = answer(reclaimd_here("check", "--config", file, "--standalone", "-o", "json"))
    assert seen(found)["available"] == MIB - 24 * MIB


def test_a_list_of_layers_that_hangs_is_not_waited_for(crio: tuple[Shop, Path]) -> None:
    """A pipe that nobody writes: after 2 s it is unknown."""
    shop, listed = crio
    os.mkfifo(listed)
    process = reclaimd_here("check", "--config", shop.limited(MIB, controlSocket=""), "--standalone")
    assert (process.returncode, "it did not answer within 2 s" in process.stdout) == (4, True)
    with open(os.open(listed, os.O_RDWR | os.O_NONBLOCK), "wb"):
        pass

"""An image that the program removed from a real containerd comes back: it is
remembered, recorded, and counted.
"""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.nodes.real_node import GIB, RealNode, running_node
from tests.real_node.crio import crio_program
from tests.real_node.oci import Image, random_layer
from tests.real_node.test_relief import configure
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd, reclaimd_here

MIB = 1 << 20
APP = Image("reclaimd.test/app:1", (random_layer(1, 3 * MIB),))
OTHER = Image("reclaimd.test/other:1", (random_layer(2, 2 * MIB),))
OTHER_AGAIN = Image("reclaimd.test/other:1", (random_layer(3, MIB),))
STAYS_AWAY = Image("reclaimd.test/away:1", (random_layer(4, MIB),))


def history(file: str, *arguments: str) -> Any:
    """The answer of the command."""
    return answer(reclaimd_here("history", "--config", file, "-o", "json", *arguments))


def returned_of(file: str) -> list[dict[str, Any]]:
    """The appearances in the history."""
    return [record for record in history(file)["records"] if record["kind"] == "returned"]


def counted(daemon: Daemon) -> tuple[float, float]:
    """The metrics: images that returned, and their bytes."""
    served = daemon.wait_for(
        lambda event: event["message"].startswith("metrics and health are served")
    )
    with urllib.request.urlopen(f"http://{served['address']}/metrics", timeout=30.0) as page:
        lines = dict(
            line.rsplit(" ", 1)
            for line in page.read().decode().splitlines()
            if not line.startswith("#")
        )
    return float(lines["reclaimd_images_returned_total"]), float(
        lines["reclaimd_image_returned_bytes_total"]
    )


def remembered(state: Path) -> set[str]:
    """The ids of the images that are listed, by the state file."""
    return set(json.loads(state.read_text())["images"]) if state.exists() else set()


@pytest.mark.parametrize("meanwhile", ["running", "stopped", "killed"])
def test_what_was_removed_and_comes_back_is_joined_with_its_removal(
    containerd_on_ext4: RealNode, tmp_path: Path, meanwhile: str
) -> None:
    """While it comes back the daemon runs, or does not. If it was killed, it had not saved what is
    gone: then the time of the pull tells that an image came back."""
    assert_joined(containerd_on_ext4, tmp_path, meanwhile)


@pytest.mark.parametrize("meanwhile", ["running", "stopped", "killed"])
def test_on_crio_too(tmp_path: Path, meanwhile: str) -> None:
    """Which says otherwise when an image was pulled."""
    with running_node(tmp_path / "node", GIB, crio=crio_program()) as node:
        assert_joined(node, tmp_path, meanwhile)


def assert_joined(node: RealNode, tmp_path: Path, meanwhile: str) -> None:
    """One image comes back as it was, one by its tag with other content, one stays away."""
    state = tmp_path / "images.json"
    app, other, away = node.import_images([APP, OTHER, STAYS_AWAY])
    fields = {
        "historyFile": str(tmp_path / "history"),
        "historySize": "1Mi",
        "stateFile": str(state),
    }
    sockets = {"controlSocket": str(tmp_path / "control.sock"), "metricsAddress": "127.0.0.1:0"}
    file = configure(tmp_path, node, **fields, **sockets)
    time.sleep(1.1)  # the youngest image is old enough
    with Daemon("--config", file) as daemon:
        assert came_true(lambda: {app, other, away} <= remembered(state))
        began = time.time()
        relief = reclaimd(
            "reclaim", "--config", file, "--signal", "imagefs.available", "--all", "-o", "json"
        )
        removed = {each["id"] for each in answer(relief)["removals"] if each["result"] == "removed"}
        assert {app, other, away} <= removed
        assert node.cri.image_ids() == {node.sandbox_image_id}
        if meanwhile == "killed":
            assert came_true(lambda: len(history(file)["records"]) == 2)
            assert {app, other, away} <= remembered(state), "the removals are not saved"
            os.kill(daemon.process.pid, signal.SIGKILL)
        if meanwhile != "running":
            daemon.stop()
        # at its end it waits for its disk for 1 s
        saved = meanwhile == "running" or app not in remembered(state)
        time.sleep(1.1)  # a list that is older than the removal cannot show them
        assert node.import_image(APP) == app
        (new_other,) = node.import_images([OTHER_AGAIN])
        if meanwhile == "running":
            look = ("reclaim", "--config", file, "--signal", "imagefs.available", "--dry-run")
            assert reclaimd(*look).returncode == 0, "which lists the images"
            assert came_true(lambda: len(returned_of(file)) == 2)
            assert counted(daemon) == (2.0, sum(each["size"] for each in returned_of(file)))
    if meanwhile != "running":
        with Daemon("--config", file) as daemon:
            assert came_true(lambda: len(returned_of(file)) == 1 + saved)
            assert came_true(lambda: new_other in remembered(state)), (
                "and it has saved what is gone"
            )
            assert counted(daemon)[0] == 2 * saved, "what it knows that it has removed"
    by_id = {each["id"]: each["gone_id"] for each in returned_of(file)}
    assert by_id == ({app: app, new_other: other} if saved else {app: app})
    regret = history(file, "--regret")
    names = {each["name"]: (each["removed"], each["returned"]) for each in regret["images"]}
    assert names == {
        APP.reference: (1, 1),
        OTHER.reference: (1, int(saved)),
        STAYS_AWAY.reference: (1, 0),
    }
    within = regret["within"]["1h"]
    assert (within["returned"], within["not_returned"]) == (1 + saved, 0)
    assert within["not_over"] + within["unknown"] == 2 - saved, (
        "not known, if the last save took longer than 1 s"
    )
    soonest = next(
        each["soonest_seconds"] for each in regret["images"] if each["name"] == APP.reference
    )
    assert 0 < soonest <= time.time() - began
    assert regret["returned_bytes"] == sum(each["size"] for each in returned_of(file))
    why = reclaimd_here("why", APP.reference, "--config", file)
    assert f"image {APP.reference}: removed 1 time, came back 1 time, soonest after" in why.stdout
    assert (why.returncode, f"image {APP.reference}" in why.stdout.splitlines()) == (0, True)

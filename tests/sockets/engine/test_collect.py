"""The whole collection on a node: logs with their containers, the periodic loops,
records that survive a restart.

And the sentence that the product exists for, once more: relief of pressure
depends on none of the loops.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import grpc
import pytest

from eviction.configuration.effective import load
from eviction.types import Extent
from signals.types import Signal
from tests.nodes.dialects import CRI_O_1_36
from tests.nodes.faults import Fail, Hang
from tests.nodes.later import Later
from tests.nodes.small_node import MIB, SmallNode, outcome_of, relieve
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd_here
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.surface.test_http_server import address_of, got


def crowd(small: SmallNode) -> tuple[str, str, list[str]]:
    """A pod with an older and its newest dead copy, and three old images;
    the two copies, the images.
    """
    images = small.add_images(3)
    pod = small.run_pod("web")
    older, newest = small.exited(pod, attempt=0), small.exited(pod, attempt=1)
    return older, newest, images


def test_logs_go_with_their_containers_and_pods(small_node: SmallNode) -> None:
    """Current and rotated files and the symlink of the older copy, none of the newest one; of a pod
    that has vanished the directory too, once it has not changed for a moment."""
    older, newest, _ = crowd(small_node)
    gone, stays = small_node.log("web", older, 0), small_node.log("web", newest, 1)
    job = small_node.log("job", small_node.gone_pod("job"))
    record = relieve(small_node.node(Signal.NODEFS_AVAILABLE, above=1, extent="all"))
    assert older in small_node.removed("container")
    assert newest in small_node.containers()
    assert {path.name for path in stays.parent.iterdir()} == {"1.log", "1.log.20261121-120000"}
    assert [os.readlink(link) for link in small_node.container_logs_dir.iterdir()] == [str(stays)]
    assert (gone.exists(), job.exists(), record.errors) == (False, False, ())
    assert small_node.logs_of("job").exists(), "it changed just now: it may be in the making"
    record = relieve(small_node.node(Signal.NODEFS_AVAILABLE, above=1, extent="all", clock=Later()))
    assert [path.name for path in small_node.pod_logs_dir.iterdir()] == [
        small_node.logs_of("web").name
    ]
    assert [o.verdict.name for o in record.removals if o.verdict.kind == "pod_log"] == [
        small_node.logs_of("job").name
    ]


def periodic(small: SmallNode, signal: Signal | None = None, above: int = 0, **fields: Any) -> str:
    """A configuration with the periodic loops."""
    return small.configuration(signal, above, **{"periodicGC": True, **fields})


LOOPED = (
    r'reclaimd_removals_total\{kind="container",result="removed"\} 1.0',
    r'reclaimd_removals_total\{kind="image",result="removed"\} 3.0',
    r'reclaimd_image_garbage_collected_total\{reason="space"\} 3.0',
    r'reclaimd_image_garbage_collected_total\{reason="age"\} 0.0',
    r'reclaimd_reclaimed_bytes_total\{kind="nominal",operation="GarbageCollectImages"\} [1-9]',
    r'reclaimd_passes_total\{result="satisfied",trigger="interval"\} 0.0',
)


def test_the_loops_collect_without_pressure(small_node: SmallNode) -> None:
    """The first pass of each comes at once: the older copy goes, and images from the high
    mark down to the low one. The metrics have it; no pass of pressure has run.
    """
    older, newest, images = crowd(small_node)
    configuration = periodic(
        small_node,
        imageGCHighThresholdPercent=2,
        imageGCLowThresholdPercent=1,
        metricsAddress="127.0.0.1:0",
    )
    with Daemon("--config", configuration) as daemon:
        daemon.wait_for(lambda event: event.get("event") == "FreeDiskSpaceFailed")
        assert came_true(lambda: daemon.logged("container garbage collection: removed 1 object"))
        address = address_of(daemon)

        def missing() -> list[str]:
            text = got(address, "/metrics")[1].decode()
            return [series for series in LOOPED if not re.search(f"^{series}", text, re.MULTILINE)]

        assert came_true(lambda: not missing()), missing()
        assert not any("ReclaimPressure" in event["message"] for event in daemon.events)
        assert daemon.stop() == 0
    assert small_node.removed("container") == [older]
    assert set(images) <= set(small_node.removed("image"))
    assert newest in small_node.containers()


def test_at_100_percent_there_is_no_image_loop(small_node: SmallNode) -> None:
    """The container loop runs all the same, and each time that it fails is an event, with the
    kubelet's reason and what went wrong."""
    crowd(small_node)
    small_node.failpoints["ListPodSandbox"] = Fail(
        grpc.StatusCode.UNKNOWN, "no list today", times=1
    )
    with Daemon("--config", periodic(small_node, imageGCHighThresholdPercent=100)) as daemon:
        event = daemon.wait_for(lambda event: event.get("event") == "ContainerGCFailed")
        assert "no list today" in event["message"]
    assert small_node.removed("image") == []


def test_pressure_is_relieved_while_a_periodic_removal_hangs(small_node: SmallNode) -> None:
    """The container loop is stuck in the runtime with its first removal;
    pressure reclaims all the same.
    """
    _, _, images = crowd(small_node)
    small_node.failpoints["RemoveContainer"] = Hang(times=1)
    configuration = periodic(
        small_node, Signal.NODEFS_AVAILABLE, above=-2 * MIB, imageGCHighThresholdPercent=100
    )
    with Daemon("--config", configuration) as daemon:
        small_node.wait_for("RemoveContainer")
        (small_node.disk / "fill").write_bytes(bytes(4 * MIB))
        record = daemon.wait_for(lambda event: event.get("result") == "satisfied")
        assert small_node.removed("container") == [], "what the loop is removing is left to it"
        assert set(small_node.removed("image")) & set(images)
        assert record["record"]["trigger"] in ("interval", "watch")
        small_node.failpoints.clear()
        assert daemon.stop() == 0


def plan_of(small: SmallNode, configuration: str) -> tuple[dict[str, str], str]:
    """Why each image would go or stay, by id; and what was said."""
    process = reclaimd_here("plan", "--config", configuration, "-o", "json")
    document = answer(process)
    found = {
        o["id"]: o["reason"]
        for o in (*document["removals"], *document["kept"])
        if o["kind"] == "image"
    }
    return found, process.stderr


def remembering(small: SmallNode, tmp_path: Path) -> tuple[Path, str]:
    """A state file, and a configuration by which images must have been known for an hour."""
    state = tmp_path / "state" / "images.json"
    fields = small.fields(stateFile=str(state), imageMinimumGCAge="1h", controlSocket="")
    path = tmp_path / "remember.yaml"
    head = {
        "apiVersion": "reclaimd.io/v1alpha1",
        "kind": "ReclaimdConfiguration",
        "kubeletConfig": "",
    }
    path.write_text(json.dumps({**head, **fields}))
    return state, str(path)


def test_a_restart_makes_no_image_young_and_none_old(
    make_small_node: SmallNodeFactory, tmp_path: Path
) -> None:
    """What the file says was first seen two hours ago is old enough to a process that has
    just begun; what came since is not. On CRI-O, which remembers no pulls: without the file
    nothing else would tell."""
    small_node = make_small_node(dialect=CRI_O_1_36)
    old = small_node.add_image("registry.example/old:1")
    state, configuration = remembering(small_node, tmp_path)
    with Daemon("--config", configuration) as daemon:
        assert came_true(state.exists)
        assert daemon.stop() == 0
    assert state.stat().st_mode & 0o777 == 0o600
    document = json.loads(state.read_text())
    document["images"][old]["first_detected"] -= 7200.0
    state.write_text(json.dumps(document))
    new = small_node.add_image("registry.example/new:1")
    found, said = plan_of(small_node, configuration)
    assert (found[old], found[new]) == ("unused", "too_young")
    assert "state file" not in said
    assert json.loads(state.read_text()) == document, "a plan changes nothing of it"
    state.unlink()
    found, _ = plan_of(small_node, configuration)
    assert (found[old], found[new]) == ("too_young", "too_young")


@pytest.mark.parametrize("content", [b"\xff\xfe", b'{"version": 99}'])
def test_a_corrupt_state_file_is_a_warning(
    small_node: SmallNode, tmp_path: Path, content: bytes
) -> None:
    """A plan says so once, and every image counts as new; the daemon replaces the file."""
    image = small_node.add_image("registry.example/old:1")
    state, configuration = remembering(small_node, tmp_path)
    state.parent.mkdir(mode=0o700)
    state.write_bytes(content)
    state.chmod(0o600)
    found, said = plan_of(small_node, configuration)
    assert (found[image], said.count(str(state))) == ("too_young", 1)
    assert state.read_bytes() == content
    with Daemon("--config", configuration) as daemon:
        daemon.wait_for(
            lambda event: event["level"] == "warning" and str(state) in event["message"]
        )
        assert came_true(lambda: image.encode() in state.read_bytes())


@pytest.mark.parametrize("extent", Extent)
@pytest.mark.parametrize(
    ("fields", "reason", "goes"),
    [
        (
            {
                "keepImages": [
                    "registry.example/shop:1",
                    "registry.example/*:2",
                    "registry.example/*:3",
                ]
            },
            "keep_list",
            1,
        ),
        ({"keepNewestPerRepository": 2}, "newest_of_repository", 2),
    ],
)
def test_what_the_configuration_keeps_is_kept_in_every_mode(
    small_node: SmallNode, fields: dict[str, Any], reason: str, goes: int, extent: Extent
) -> None:
    """Under pressure that goes to the end of the row, with the reason in the record; until the
    configuration is loaded anew without it."""
    images = [small_node.add_image(f"registry.example/shop:{number}") for number in range(4)]
    small_node.run(small_node.run_pod("web"))
    pressure = small_node.fields(Signal.NODEFS_AVAILABLE, 60 * MIB, extent=str(extent))
    node = small_node.node(**pressure, **fields)
    record = relieve(node)
    assert small_node.removed("image") == images[:goes]
    why = {each: outcome_of(record, each).verdict for each in images[goes:]}
    assert {(str(v.reason), str(v.rule)) for v in why.values()} == {(reason, "guard")}
    assert node.reconfigure(load(None, {}, pressure)) == ()
    relieve(node)
    assert small_node.removed("image") == images


def test_a_reload_that_allows_more_removals_side_by_side_allows_the_threads_for_them(
    small_node: SmallNode,
) -> None:
    """From one to 64."""
    node = small_node.node(parallelRemovals=1)
    assert node.reconfigure(load(None, {}, small_node.fields(parallelRemovals=64))) == ()
    assert node.owner.workers.limit > 64

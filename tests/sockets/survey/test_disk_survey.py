"""What the bytes of a real filesystem are used for: in the plan, in the answer of
`reclaimd reclaim`, in the log.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import grpc
import pytest

from eviction.records.attribution import Use
from eviction.records.passes import PassResult
from signals.types import FsLayout, Signal
from tests.nodes.faults import Fail
from tests.nodes.small_node import MIB, SmallNode, relieve
from tests.reclaimd_process import Daemon, answer, reclaimd, reclaimd_here
from tests.sockets.conftest import SmallNodeFactory


def shares(attribution: dict[str, Any]) -> dict[str, int]:
    return {share["use"]: share["bytes"] for share in attribution["shares"]}


@pytest.fixture
def crowded(make_small_node: SmallNodeFactory) -> SmallNode:
    """Images of 4 MiB (two old, one in use), a container that wrote 3 MiB, dead ones,
    logs, 5 MiB of other files.
    """
    node = make_small_node()
    node.add_images(2)
    used = node.add_image("registry.example/used:1")
    pod = node.run_pod("web")
    node.run(pod, "registry.example/used:1", writes=3 * MIB)
    node.exited(pod, name="once", writes=MIB)
    assert used
    logs = node.disk / "logs"
    for directory, name, size in (
        ("default_web_uid-web/app", "0.log", MIB),
        ("default_web_uid-web/app", "0.log.20260101-000000.gz", MIB // 2),
        ("default_old_uid-old/app", "0.log", 2 * MIB),
    ):
        (logs / directory).mkdir(parents=True, exist_ok=True)
        (logs / directory / name).write_bytes(os.urandom(size))
    volume = node.root_directory / "pods" / "uid-web" / "volumes"
    volume.mkdir()
    (volume / "scratch").write_bytes(os.urandom(MIB))
    (node.images_root / "of another namespace").write_bytes(os.urandom(2 * MIB))
    node.fill(5 * MIB)
    return node


EXPECTED = {
    Use.IMAGES_MAY_GO: 8 * MIB,
    Use.IMAGES_IN_USE: 5 * MIB,
    Use.CONTAINERS_LIVE: 3 * MIB,
    Use.CONTAINERS_DEAD: MIB,
    Use.LOGS_LIVE: MIB,
    Use.LOGS_ROTATED: MIB // 2,
    Use.LOGS_OF_GONE_PODS: 2 * MIB,
    Use.VOLUMES: MIB,
    Use.HIDDEN: 2 * MIB,
    Use.ELSE: 5 * MIB,
}


def test_the_plan_says_where_the_bytes_are(crowded: SmallNode) -> None:
    """Every part within half a MiB of what was put there, as JSON and as a table; all
    of it within a few seconds.
    """
    file = crowded.configuration(podLogsDir=str(crowded.disk / "logs"))
    document = answer(reclaimd_here("plan", "--config", file, "-o", "json"))
    (attribution,) = document["attribution"]
    assert attribution["filesystems"] == ["nodefs", "imagefs", "containerfs"]
    found = shares(attribution)
    for use, size in EXPECTED.items():
        assert found[use] == pytest.approx(size, abs=MIB // 2), use
    assert sum(found.values()) == attribution["used"]
    table = reclaimd_here("plan", "--config", file).stdout
    assert "where the bytes are: " in table
    assert "logs of pods that are gone" in table


@pytest.mark.regression
def test_a_deleted_file_that_is_open_is_not_everything_else(crowded: SmallNode) -> None:
    """`du` finds nothing of it.

    The plan names the process that holds it, in the table and in JSON.
    """
    file = crowded.configuration(podLogsDir=str(crowded.disk / "logs"))
    gone = crowded.disk / "gone.log"
    with gone.open("wb") as held:
        held.write(os.urandom(6 * MIB))
        held.flush()
        gone.unlink()
        (attribution,) = answer(reclaimd_here("plan", "--config", file, "-o", "json"))[
            "attribution"
        ]
        lines = reclaimd_here("plan", "--config", file).stdout.splitlines()
    found = shares(attribution)
    assert found[Use.DELETED_OPEN] == 6 * MIB
    assert found[Use.ELSE] == pytest.approx(5 * MIB, abs=MIB // 2)
    assert sum(found.values()) == attribution["used"]
    (remark,) = [remark for remark in attribution["remarks"] if remark["about"] == "deleted_open"]
    assert remark["bytes"] == 6 * MIB
    assert f"(pid {os.getpid()}" in remark["sentence"]
    assert f"note: {remark['sentence']}" in lines


def test_split_layouts_are_told_apart(make_small_node: SmallNodeFactory) -> None:
    """Images on one filesystem, writable layers and other files on the other."""
    node = make_small_node(FsLayout.SPLIT)
    node.add_images(1)
    node.run(node.run_pod("web"), writes=3 * MIB)
    node.fill(4 * MIB)
    file = node.configuration(podLogsDir=str(node.disk / "logs"))
    by_roles = {
        tuple(attribution["filesystems"]): shares(attribution)
        for attribution in answer(reclaimd_here("plan", "--config", file, "-o", "json"))[
            "attribution"
        ]
    }
    assert by_roles["imagefs",][Use.IMAGES_MAY_GO] == pytest.approx(4 * MIB, abs=MIB // 4)
    assert Use.CONTAINERS_LIVE not in by_roles["imagefs",]
    kubelets = by_roles["nodefs", "containerfs"]
    assert kubelets[Use.CONTAINERS_LIVE] == pytest.approx(3 * MIB, abs=MIB // 4)
    assert kubelets[Use.ELSE] == pytest.approx(4 * MIB, abs=MIB // 4)


def test_reclaim_explains_what_was_not_enough(crowded: SmallNode) -> None:
    """Exit 1, and the attribution of what is left, without the old images."""
    file = crowded.configuration(
        Signal.NODEFS_AVAILABLE, 60 * MIB, podLogsDir=str(crowded.disk / "logs")
    )
    process = reclaimd("reclaim", "--config", file, "-o", "json")
    assert process.returncode == 1
    document = answer(process)
    assert document["result"] == "not_enough"
    assert Use.IMAGES_MAY_GO not in shares(document["attribution"][0])
    assert shares(document["attribution"][0])[Use.ELSE] == pytest.approx(5 * MIB, abs=MIB // 2)


def test_the_daemon_explains_it_in_its_log_and_its_record(
    crowded: SmallNode, tmp_path: Path
) -> None:
    """A warning with the pass's id some seconds after it, and the same in the
    status; once a minute at most.
    """
    control = str(tmp_path / "control" / "socket")
    file = crowded.configuration(
        Signal.NODEFS_AVAILABLE,
        60 * MIB,
        podLogsDir=str(crowded.disk / "logs"),
        controlSocket=control,
    )
    with Daemon("--config", file) as daemon:
        event = daemon.wait_for(
            lambda event: event["message"].startswith("why it was not enough: ")
        )
        assert "everything else" in event["message"]
        assert shares(event["attribution"])[Use.LOGS_OF_GONE_PODS] == pytest.approx(
            2 * MIB, abs=MIB // 2
        )
        status = answer(reclaimd_here("status", "--config", file, "-o", "json"))
        (explained,) = [record for record in status["passes"] if "attribution" in record]
        assert explained["id"] == event["pass"]
        assert daemon.stop() == 0
    assert len([event for event in daemon.events if event["message"].startswith("why it was")]) == 1


def test_a_pass_that_was_enough_measures_nothing(small_node: SmallNode) -> None:
    """Nothing is measured before or after a pass that relieved the node."""
    small_node.add_images(3)
    node = small_node.node(Signal.NODEFS_AVAILABLE, MIB)
    record = relieve(node)
    assert record.result is PassResult.SATISFIED
    assert node.disk_survey.with_attribution(record).attributions == ()
    assert small_node.failpoints.calls["ListContainerStats"] == 0


def test_a_runtime_without_statistics_costs_only_their_part(crowded: SmallNode) -> None:
    """ListContainerStats fails: writable layers count as images or everything else;
    all other parts are there.
    """
    crowded.failpoints["ListContainerStats"] = Fail(grpc.StatusCode.UNIMPLEMENTED)
    file = crowded.configuration(podLogsDir=str(crowded.disk / "logs"))
    (attribution,) = answer(reclaimd_here("plan", "--config", file, "-o", "json"))["attribution"]
    found = shares(attribution)
    assert Use.CONTAINERS_LIVE not in found
    assert found[Use.LOGS_OF_GONE_PODS] == pytest.approx(2 * MIB, abs=MIB // 2)
    assert sum(found.values()) == attribution["used"]


@pytest.mark.regression
def test_late_space_is_being_freed_and_nobody_elses(make_small_node: SmallNodeFactory) -> None:
    """The runtime has removed 16 MiB of images and frees them a minute later: the sandbox
    image does not take them.
    """
    small = make_small_node(image_space_delay_seconds=60.0)
    small.add_images(4)
    node = small.node(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    record = node.disk_survey.with_attribution(relieve(node))
    assert len(small.removed("image")) == 5
    assert record.result is PassResult.NOT_ENOUGH
    assert "-" not in record.reason.partition(";")[0]
    (attribution,) = record.attributions
    found = {share.use: share.bytes for share in attribution.shares}
    assert found[Use.BEING_FREED] == pytest.approx(17 * MIB, abs=MIB)
    assert found[Use.IMAGES_KEPT] < MIB


@pytest.mark.regression
def test_the_bytes_are_told_when_late_space_has_come(make_small_node: SmallNodeFactory) -> None:
    """It comes after the pass: what is used is what is used then, and
    nothing is being freed any more.
    """
    small = make_small_node(image_space_delay_seconds=0.8)
    small.add_images(4)
    node = small.node(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    before = small.available()
    record = node.disk_survey.with_attribution(relieve(node))
    (attribution,) = record.attributions
    assert small.available() >= before + 16 * MIB
    assert attribution.used < 8 * MIB
    assert Use.BEING_FREED not in {share.use for share in attribution.shares}

"""`reclaimd why NAME`: one object, whether it would go now, by which rule, and when."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from signals.types import Signal
from tests.nodes.small_node import MIB, PAUSE, SmallNode
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd_here


def test_what_may_go_says_why_and_in_which_place(small_node: SmallNode) -> None:
    """Nothing is removed."""
    images = small_node.add_images(3)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, 1)
    found = reclaimd_here("why", "registry.example/old/1:1", "--config", file)
    lines = found.stdout.splitlines()
    assert (found.returncode, lines[0]) == (0, "image registry.example/old/1:1")
    assert lines[1] == f"  id:    {images[1]}"
    assert "  goes:  no container uses it (unused), as the kubelet would decide" in lines
    assert "  when:  under pressure, as number 2; fewer removals may be enough" in lines
    assert set(images) <= small_node.images()


def test_what_stays_says_by_whose_rule(small_node: SmallNode) -> None:
    """A guard of ours, or the kubelet's rule; a container by the name of its pod."""
    small_node.run(small_node.run_pod("web"))
    file = small_node.configuration()
    pause = reclaimd_here("why", PAUSE, "--config", file).stdout
    assert (
        "  stays: no pod starts without it (sandbox_image), by a guard of reclaimd's"
        in pause.splitlines()
    )
    web = reclaimd_here("why", "default/web", "--config", file).stdout
    assert "container default/web/app#0" in web.splitlines()
    assert "  stays: is running (running), as the kubelet would decide" in web.splitlines()
    assert "sandbox default/web#0" in web.splitlines()


def test_what_is_too_young_says_when_it_may_go(small_node: SmallNode) -> None:
    """In JSON in seconds."""
    image = small_node.add_images(1)[0]
    file = small_node.configuration(imageMinimumGCAge="2h")
    (found,) = answer(reclaimd_here("why", image, "--config", file, "-o", "json"))["objects"]
    assert (found["reason"], found["place"], found["result"]) == ("too_young", None, None)
    assert 7100 < found["eligible_in_seconds"] <= 7200
    text = reclaimd_here("why", image.removeprefix("sha256:")[:12], "--config", file).stdout
    assert "  when:  may go in " in text


def test_what_nobody_knows_is_exit_1(small_node: SmallNode) -> None:
    """One sentence; a few characters of an id name nothing."""
    file = small_node.configuration()
    for name in ("registry.example/nothing", small_node.app_id.removeprefix("sha256:")[:4] + "zz"):
        missing = reclaimd_here("why", name, "--config", file)
        assert (missing.returncode, missing.stdout) == (1, "")
        assert (
            missing.stderr
            == f"reclaimd: no object has '{name}' in its name, or begins its id with it\n"
        )


@pytest.mark.regression
def test_what_went_is_found_in_the_history(small_node: SmallNode, tmp_path: Path) -> None:
    """When, in which pass, by which rule, and what it freed; exit 1, as the
    object is not there any more.
    """
    images = small_node.add_images(3)
    history = {"historyFile": str(tmp_path / "history"), "historySize": "1Mi"}
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, above=2 * MIB, **history)
    done = reclaimd_here("reclaim", "--config", file, "--standalone", "-o", "json")
    record = answer(done)
    removal = record["removals"][0]
    assert (done.returncode, removal["id"]) == (0, images[0])
    for name in (removal["name"], images[0], images[0].removeprefix("sha256:")[:12], "old/0"):
        found = reclaimd_here("why", name, "--config", file)
        lines = found.stdout.splitlines()
        assert (found.returncode, lines[:2]) == (
            1,
            [f"image {removal['name']}", f"  id:    {images[0]}"],
        )
        assert f"removed in pass {record['id']} (request, nodefs.available)" in lines[2]
        assert lines[3] == "  why:   no container uses it (unused), as the kubelet would decide"
        assert lines[4].startswith("  freed: ")
        assert (
            found.stderr
            == f"reclaimd: no object has '{name}' in its name, or begins its id with it any more\n"
        )
        assert lines[5] == f"image {removal['name']}: removed 1 time, came back 0 times"
    document = answer(reclaimd_here("why", removal["name"], "--config", file, "-o", "json"))
    (went,) = document["went"]
    assert [(each["name"], each["removed"]) for each in document["regret"]] == [
        (removal["name"], 1)
    ]
    assert document["objects"] == []
    assert (went["pass_id"], went["trigger"], went["signal"]) == (
        record["id"],
        "request",
        "nodefs.available",
    )
    assert (went["removal"]["id"], went["removal"]["result"]) == (images[0], "removed")
    assert reclaimd_here("why", "old/9", "--config", file).stdout == "", (
        "what never was is not there either"
    )
    assert reclaimd_here("why", "old/1", "--config", file).returncode == 0, (
        "what is there is not looked for"
    )


def test_a_history_that_cannot_be_read_is_a_sentence(small_node: SmallNode, tmp_path: Path) -> None:
    """Exit 1 all the same; without a file yet nothing is said of it."""
    path = tmp_path / "history"
    file = small_node.configuration(historyFile=str(path), historySize="1Mi")
    assert "istory" not in reclaimd_here("why", "nothing", "--config", file).stderr
    path.write_text("something else")
    found = reclaimd_here("why", "nothing", "--config", file)
    assert (found.returncode, found.stdout) == (1, "")
    assert f"historyFile: {path} is left alone" in found.stderr


@pytest.mark.regression
def test_a_daemon_says_why_if_the_configuration_cannot_be_used(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """By a dry run of its own: one image goes, the one in use stays, nothing is removed."""
    images = small_node.add_images(3)
    small_node.run(small_node.run_pod("web"))
    file = small_node.configuration(
        controlSocket=str(tmp_path / "run" / "control"), holdOffAfterStart="1h"
    )
    with Daemon("--config", file) as daemon:
        daemon.wait_for(lambda event: "started on" in event["message"])
        status = partial(reclaimd_here, "status", "-o", "json", "--config", file)
        assert came_true(lambda: answer(status())["layout"])
        Path(file).write_text(f"{Path(file).read_text()}noSuchField: 1\n")
        found = reclaimd_here("why", "registry.example/old/1:1", "--config", file)
        assert found.returncode == 0, found.stderr
        assert found.stderr.startswith("reclaimd: the configuration cannot be used (")
        assert (
            "  goes:  no container uses it (unused), as the kubelet would decide"
            in found.stdout.splitlines()
        )
        (kept,) = answer(reclaimd_here("why", small_node.app_id, "--config", file, "-o", "json"))[
            "objects"
        ]
        assert (kept["reason"], kept["place"]) == ("in_use", None)
        assert reclaimd_here("why", "no-such-thing", "--config", file).returncode == 1
    assert set(images) <= small_node.images()

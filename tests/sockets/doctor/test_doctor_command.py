"""`reclaimd doctor` on a small node: facts from a real runtime, real
filesystems, real permissions.

Each run looks for caches on the whole machine, for two seconds: so there are few.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from eviction.doctor.facts import inotify_instances
from eviction.records.store import HistoryStore
from tests.nodes.small_node import SmallNode
from tests.reclaimd_process import Daemon, answer, reclaimd_here
from tests.sockets.conftest import SmallNodeFactory

MARKS = {"nodefs.available": "1Ki", "imagefs.available": "1Ki"}


def document(file: str, code: int) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What a run prints that ends with this code, and the findings by check."""
    process = reclaimd_here("doctor", "--config", file, "-o", "json")
    assert process.returncode == code
    printed: dict[str, Any] = answer(process)
    return printed, {finding["check"]: finding for finding in printed["findings"]}


def test_a_node_in_order_is_healthy(small_node: SmallNode, tmp_path: Path) -> None:
    """Exit 0; that no daemon runs is a note. A history of ours is no finding, and nothing is
    changed in it."""
    history = tmp_path / "history"
    store = HistoryStore(str(history), 1 << 20)
    store.open()
    store.close()
    before = history.stat()
    file = small_node.configuration(
        evictionHard=MARKS, historyFile=str(history), controlSocket="/nowhere/control.sock"
    )
    printed, found = document(file, 0)
    assert {finding["level"] for finding in found.values()} == {"note"}
    assert {"daemon", "filesystem-numbers"} <= found.keys()
    assert found["filesystem-numbers"]["evidence"].startswith(
        f"tmpfs on {small_node.root_directory}, mounted with size="
    )
    assert [each["type"] for each in printed["filesystems"]] == ["tmpfs"]
    assert history.stat() == before


def test_a_running_daemon_is_asked(small_node: SmallNode, tmp_path: Path) -> None:
    """Then there is no note about it. That every user may connect to the runtime is a risk."""
    control = str(tmp_path / "control" / "socket")
    file = small_node.configuration(evictionHard=MARKS, controlSocket=control)
    with Daemon("--config", file):
        Path(small_node.server.socket_path).chmod(0o666)
        found = document(file, 1)[1]
    assert "daemon" not in found
    assert found["socket"]["evidence"].endswith(" and has mode 0666")


def test_troubles_of_a_node_are_found_together(
    make_small_node: SmallNodeFactory, tmp_path: Path
) -> None:
    """An old containerd that neither pins nor names the sandbox image, a misspelt keep, no
    thresholds, something else in the place of the history, which is left alone: exit 1, and the
    worst comes first."""
    history = tmp_path / "history"
    os.mkfifo(history)
    node = make_small_node(
        runtime_version="2.0.2", pins_sandbox_image=False, reports_sandbox_image=False
    )
    keeps = ["registry.example/misspelt", "registry.example/app"]
    file = node.configuration(keepImages=keeps, historyFile=str(history))
    printed, found = document(file, 1)
    for check, level, evidence in (
        ("containerd-frees-late", "risk", "containerd 2.0.2"),
        ("sandbox-image", "problem", ""),
        ("keep-unmatched", "risk", "keepImages: 'registry.example/misspelt'"),
        ("thresholds-none", "problem", ""),
        ("history", "risk", f"{history} is left alone: it is not a regular file"),
    ):
        assert found[check]["level"] == level
        assert evidence in found[check]["evidence"]
    levels = [finding["level"] for finding in printed["findings"]]
    assert levels == sorted(levels, key=["problem", "risk", "note"].index)
    assert history.is_fifo()
    shown = reclaimd_here("doctor", "--config", file).stdout
    assert shown.startswith("PROBLEM  ")
    assert "  do:   update to containerd 2.0.5 or later" in shown


def test_inotify_instances_of_this_user_are_counted(tmp_path: Path) -> None:
    """From the links of descriptors in /proc; processes that may not be read are skipped."""
    for process, links in (
        ("7", ("anon_inode:inotify", "socket:[1]", "anon_inode:inotify")),
        ("8", ()),
        ("self", ()),
    ):
        (tmp_path / process / "fd").mkdir(parents=True)
        for number, link in enumerate(links):
            (tmp_path / process / "fd" / str(number)).symlink_to(link)
    (tmp_path / "9").mkdir()
    assert inotify_instances(str(tmp_path)) == 2

"""`reclaimd doctor` on a small node: facts from a real runtime, real
filesystems, real permissions.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eviction.doctor.checks import examine
from eviction.doctor.facts import facts_of, inotify_instances
from eviction.records.store import HistoryStore
from tests.nodes.small_node import SmallNode
from tests.reclaimd_process import Daemon, answer, reclaimd_here, write_configuration
from tests.sockets.conftest import SmallNodeFactory


def findings(*arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the findings by check."""
    process = reclaimd_here("doctor", *arguments, "-o", "json")
    document = answer(process)
    return process.returncode, {finding["check"]: finding for finding in document["findings"]}


MARKS = {"nodefs.available": "1Ki", "imagefs.available": "1Ki"}


def test_a_node_in_order_is_healthy(small_node: SmallNode) -> None:
    """Exit 0; that no daemon runs is a note."""
    file = small_node.configuration(
        evictionHard=MARKS, stateFile="", controlSocket="/nowhere/control.sock"
    )
    code, found = findings("--config", file)
    assert {
        check: finding["level"] for check, finding in found.items() if finding["level"] != "note"
    } == {}
    assert found["daemon"]["level"] == "note"
    assert code == 0
    assert found["filesystem-numbers"]["level"] == "note"
    assert found["filesystem-numbers"]["evidence"].startswith(
        f"tmpfs on {small_node.root_directory}, mounted with size="
    )
    document = answer(reclaimd_here("doctor", "--config", file, "-o", "json"))
    assert [each["type"] for each in document["filesystems"]] == ["tmpfs"]


def test_a_running_daemon_is_asked(small_node: SmallNode, tmp_path: Path) -> None:
    """Then there is no note about it."""
    control = str(tmp_path / "control" / "socket")
    file = small_node.configuration(evictionHard=MARKS, stateFile="", controlSocket=control)
    with Daemon("--config", file):
        assert "daemon" not in findings("--config", file)[1]


def test_troubles_of_a_node_are_found_together(make_small_node: SmallNodeFactory) -> None:
    """An old containerd that neither pins nor names the sandbox image, a misspelt
    keep, no thresholds: exit 1.
    """
    node = make_small_node(
        runtime_version="2.0.2", pins_sandbox_image=False, reports_sandbox_image=False
    )
    file = node.configuration(
        keepImages=["registry.example/misspelt", "registry.example/app"], stateFile=""
    )
    code, found = findings("--config", file)
    assert code == 1
    assert found["containerd-frees-late"]["evidence"] == "containerd 2.0.2"
    assert found["sandbox-image"]["level"] == "problem"
    assert found["keep-unmatched"]["evidence"] == "keepImages: 'registry.example/misspelt'"
    assert found["thresholds-none"]["level"] == "problem"
    levels = [finding["level"] for finding in found.values()]
    assert levels == sorted(levels, key=["problem", "risk", "note"].index), "the worst comes first"
    text = reclaimd_here("doctor", "--config", file).stdout
    assert text.startswith("PROBLEM  ")
    assert "  do:   update to containerd 2.0.5 or later" in text


def test_a_socket_open_to_all_is_a_risk(small_node: SmallNode) -> None:
    """Mode 0666: every user who can reach it becomes root."""
    Path(small_node.server.socket_path).chmod(0o666)
    findings = examine(facts_of(small_node.node(evictionHard=MARKS))).findings
    (evidence,) = (finding.evidence for finding in findings if finding.check == "socket")
    assert evidence.endswith(" and has mode 0666")


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


def a_history(path: Path) -> None:
    """One of ours, of 1 MiB."""
    store = HistoryStore(str(path), 1 << 20)
    store.open()
    store.close()


def identity(path: Path) -> tuple[int, ...] | None:
    """What tells one file from another, and whether it was written; None without one."""
    if not os.path.lexists(path):
        return None
    found = os.lstat(path)
    return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns


@pytest.mark.parametrize(
    ("put", "problem"),
    [
        (os.mkfifo, "is left alone: it is not a regular file"),
        (a_history, None),
        (lambda path: None, None),
    ],
)
def test_what_lies_at_the_place_of_the_history_is_found(
    tmp_path: Path, put: Callable[[Path], object], problem: str | None
) -> None:
    """With the words of the log. Ours, and none yet, are no finding; nothing is changed or made."""
    path = tmp_path / "history"
    put(path)
    before = identity(path)
    endpoint = f"unix://{tmp_path}/nowhere.sock"
    file = write_configuration(
        tmp_path / "c.yaml",
        historyFile=str(path),
        rootDirectory=str(tmp_path),
        containerRuntimeEndpoint=endpoint,
    )
    found = findings("--config", str(file))[1]
    assert identity(path) == before
    if problem is None:
        assert "history" not in found
    else:
        assert found["history"]["level"] == "risk"
        assert str(path) in found["history"]["evidence"]
        assert problem in found["history"]["evidence"]

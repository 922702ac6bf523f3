"""`reclaimd doctor` on a small node: facts from a real runtime, real
filesystems, real permissions.

Each run looks for caches on the whole machine, for two seconds: so there are few.
"""

from __future__ import annotations

import os
from pathlib import Path

from eviction.doctor.facts import inotify_instances
from tests.reclaimd_process import answer, reclaimd_here
from tests.sockets.conftest import SmallNodeFactory

MARKS = {"nodefs.available": "1Ki", "imagefs.available": "1Ki"}


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
    done = reclaimd_here("doctor", "--config", file, "-o", "json")
    findings = answer(done)["findings"]
    found = {finding["check"]: finding for finding in findings}
    assert done.returncode == 1
    for check, level, evidence in (
        ("containerd-frees-late", "risk", "containerd 2.0.2"),
        ("sandbox-image", "problem", ""),
        ("keep-unmatched", "risk", "keepImages: 'registry.example/misspelt'"),
        ("thresholds-none", "problem", ""),
        ("history", "risk", f"{history} is left alone: it is not a regular file"),
    ):
        assert found[check]["level"] == level
        assert evidence in found[check]["evidence"]
    levels = [finding["level"] for finding in findings]
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

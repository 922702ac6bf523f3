"""What a pass needs is made at the start: threads, sockets, modules.

A start that cannot make them says so and ends.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from eviction.exit_codes import EXIT_NO_RESOURCES
from signals.types import FsLayout, Signal
from signals.watcher import FsWatcher
from tests.nodes.faults import Fail
from tests.nodes.small_node import MIB, SmallNode
from tests.ports import free_port
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, Daemon, came_true
from tests.thread_limit import ThreadLimit, no_thread_starts

RECLAIM_AFTER_PREPARE = """
import json, sys
from eviction.configuration.effective import load
from eviction.engine.node import Node
from eviction.records.passes import Trigger
node = Node(load(sys.argv[1], {}, {}))
node.prepare()
node.locate()
before = set(sys.modules)
observations, decision = node.look()
record = node.relieve(observations, decision, Trigger.INTERVAL)
print(json.dumps({"result": record.result, "imported": sorted(set(sys.modules) - before)}))
node.close()
"""
MOST_THREADS = 36
# Python and the configuration are content with them; the sockets of a pass are not
SCARCE_DESCRIPTORS = 14


def leave_no_descriptor(pid: int) -> None:
    """From now on the process can open nothing: its limit is what it has open."""
    highest = max(int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir())
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 1, hard))


def started(configuration: str, *before: str) -> tuple[int, str]:
    """How `reclaimd run` ended that was started by `before`, and what it said."""
    process = subprocess.run(
        [*before, PROGRAM, "run", "--config", configuration],
        capture_output=True,
        text=True,
        timeout=120.0,
        check=False,
        env=ENVIRONMENT,
    )
    return process.returncode, process.stderr


@pytest.mark.regression
def test_a_start_without_threads_ends_with_one_sentence(small_node: SmallNode) -> None:
    """At the limit of processes: exit 71, which the page explains."""
    command = [PROGRAM, "run", "--config", small_node.configuration()]
    with (
        subprocess.Popen(
            ["sh", "-c", 'read -r go; exec "$@"', "sh", *command],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        ) as process,
        ThreadLimit(process.pid) as limit,
    ):
        limit.forbid()
        _, words = process.communicate("go\n", timeout=120.0)
    assert process.returncode == EXIT_NO_RESOURCES, words
    last = words.strip().splitlines()[-1]
    assert "cannot start: no thread can be started for the log: can't start new thread" in last


def test_a_start_without_descriptors_ends_with_one_sentence(small_node: SmallNode) -> None:
    """With room for 14 of them: exit 71."""
    configuration = small_node.configuration(parallelRemovals=2)
    code, words = started(configuration, "prlimit", f"--nofile={SCARCE_DESCRIPTORS}")
    assert code == EXIT_NO_RESOURCES, words
    assert (
        "cannot start: no sockets can be made for the runtime: Too many open files"
        in words.strip().splitlines()[-1]
    )


@pytest.mark.regression
def test_under_pressure_no_module_is_imported(small_node: SmallNode) -> None:
    """Not even where the runtime has to be asked again: an import needs descriptors,
    memory, a disk that answers.
    """
    small_node.add_images(3)
    small_node.run(small_node.run_pod("web"))
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=2 * MIB)
    small_node.failpoints["ListImages"] = Fail(
        grpc.StatusCode.UNAVAILABLE, "connection lost", times=1
    )
    process = subprocess.run(
        [sys.executable, "-c", RECLAIM_AFTER_PREPARE, configuration],
        capture_output=True,
        text=True,
        timeout=120.0,
        check=True,
        env=ENVIRONMENT,
    )
    assert json.loads(process.stdout) == {"result": "satisfied", "imported": []}
    assert small_node.failpoints.calls["ListImages"] == 2


def test_a_daemon_at_rest_has_few_threads(tmp_path: Path) -> None:
    """With two filesystems, all that is on by default, and `parallelRemovals` as it is by default:

    36 at most.
    """
    small = SmallNode(tmp_path, FsLayout.DEDICATED_IMAGEFS)
    configuration = small.configuration(
        parallelRemovals=2,
        controlSocket=str(tmp_path / "run" / "control.sock"),
        metricsAddress=f"127.0.0.1:{free_port()}",
        stateFile=str(tmp_path / "state"),
        historyFile=str(tmp_path / "history"),
    )
    try:
        with Daemon("--config", configuration) as daemon:
            assert small.failpoints.wait_for_calls("ListContainers", 1, 60.0)
            threads = Path(f"/proc/{daemon.process.pid}/task")
            assert came_true(lambda: len(list(threads.iterdir())) <= MOST_THREADS)
    finally:
        small.close()


@pytest.mark.regression
def test_a_daemon_without_a_free_descriptor_relieves_also_after_the_runtime_was_restarted(
    small_node: SmallNode,
) -> None:
    """No descriptor is left when the disk fills, and the runtime's connections are
    dead: images go all the same.
    """
    images = small_node.add_images(3)
    small_node.run(small_node.run_pod("web"))
    mark = small_node.available() - 4 * MIB
    configuration = small_node.configuration(
        evictionHard={"nodefs.available": str(mark)}, holdOffAfterStart="0s"
    )
    with Daemon("--config", configuration) as daemon:
        assert small_node.failpoints.wait_for_calls("ListContainers", 1, 60.0)
        leave_no_descriptor(daemon.process.pid)
        small_node.server.stop()
        small_node.server.start()
        small_node.fill(8 * MIB)
        daemon.wait_for(lambda event: "satisfied" in str(event.get("result")))
    assert set(small_node.removed("image")) <= set(images)
    assert small_node.removed("image")


def test_a_watch_without_a_thread_or_descriptors_is_a_problem_and_nothing_more(
    tmp_path: Path,
) -> None:
    """The sentence says that observations come at intervals only; nothing stays open."""
    with no_thread_starts():
        watcher = FsWatcher((str(tmp_path),), lambda: None, 10.0)
        watcher.start()
    assert watcher.problem is not None
    assert "observing at intervals only" in watcher.problem
    watcher.watch((str(tmp_path),))
    watcher.stop()

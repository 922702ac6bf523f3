"""The pytest plugin, used as another project would: in an empty directory, by a
pytest of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.pages import DRILL, code_blocks
from tests.reclaimd_process import ENVIRONMENT
from tests.sockets.mounts import need_mounts

EXAMPLE = code_blocks(DRILL, "python")

# A tool of another project: it removes images; if a test of test_careless.py
# starts it, also those in use.
CLEANER = """#!{python}
import os
import sys
from reclaim.cri.client import CriClient

careless = "test_careless" in os.environ["PYTEST_CURRENT_TEST"]
client = CriClient(sys.argv[1])
used = {{reference for container in client.list_containers() for reference in container.image_references}}
for image in client.list_images():
    if careless or not (image.pinned or used & {{image.id, *image.repo_tags}}):
        client.remove_image(image.id)
client.close()
"""
SMALL = {
    "name": "tiny",
    "why": "A node of one image.",
    "node": {
        "size": "32Mi",
        "inodes": 1000,
        "images": [{"name": "registry.k8s.io/pause", "size": "64Ki"}],
        "evictionHard": {"nodefs.available": "50%", "nodefs.inodesFree": "20%"},
    },
    "pressure": {"grows": "bytes", "rate": "100Mi", "amount": "20Mi"},
    "expect": {},
}


def pytest_in(
    directory: Path, test: str, *before: str, careless: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs pytest on one file, or on a second one for which the tool is careless, in an
    otherwise empty directory.
    """
    (directory / "bin").mkdir()
    cleaner = directory / "bin" / "our-cleaner"
    cleaner.write_text(CLEANER.format(python=sys.executable))
    cleaner.chmod(0o755)
    suite = directory / "suite"
    suite.mkdir()
    (suite / "test_theirs.py").write_text(test)
    if careless:
        (suite / "test_careless.py").write_text(careless)
    return subprocess.run(
        [
            *before,
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rsf",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:hypothesispytest",
            "-p",
            "no:xdist",
            "-W",
            "error",
            str(suite),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=suite,
        env={**ENVIRONMENT, "PATH": f"{directory / 'bin'}:{os.environ['PATH']}"},
    )


def test_the_example_of_the_readme_tests_a_tool(tmp_path: Path) -> None:
    """A tool that keeps images in use passes; one that removes everything fails the same test."""
    need_mounts()
    (example,) = EXAMPLE
    process = pytest_in(tmp_path, example, careless=example)
    assert process.returncode == 1, process.stdout
    assert "1 failed, 1 passed" in process.stdout
    assert "FAILED test_careless.py::" in process.stdout


def test_a_node_can_be_filled_queried_and_chosen(tmp_path: Path) -> None:
    """A mapping as scenario, bytes and inodes by the fixture, marks that are crossed, and a
    node for each test. With a scenario that cannot be used a test does not run, and the
    message is that of the drill."""
    need_mounts()
    process = pytest_in(
        tmp_path,
        f"""
import pytest

SMALL = {SMALL!r}


@pytest.mark.reclaimd_scenario(SMALL)
def test_a_fill(embedded_runtime, fill):
    assert embedded_runtime.below_marks == ()
    assert embedded_runtime.wait_relieved(seconds=0)
    assert fill("17Mi") == 17 << 20
    assert "nodefs.available" in embedded_runtime.below_marks
    assert not embedded_runtime.wait_relieved(seconds=0.1)
    assert fill("900", grows="inodes", rate="100k") == 900
    assert {{"nodefs.available", "nodefs.inodesFree"}} <= set(embedded_runtime.below_marks)
    assert embedded_runtime.available("nodefs.inodesFree") < 100
    with pytest.raises(ValueError):
        fill("1Mi", grows="log")


@pytest.mark.reclaimd_scenario(SMALL)
def test_pressure(pressured_node):
    assert "nodefs.available" in pressured_node.below_marks
    assert pressured_node.images == {{"registry.k8s.io/pause:1"}}
    assert pressured_node.containers == pressured_node.sandboxes == frozenset()
    assert pressured_node.path == pressured_node.disk("imagefs")


@pytest.mark.reclaimd_scenario("split-images")
def test_a_built_in_one(embedded_runtime):
    assert embedded_runtime.disk("imagefs") != embedded_runtime.path == embedded_runtime.disk("containerfs")


@pytest.mark.reclaimd_scenario("no-such-scenario")
def test_nothing(pressured_node):
    open("ran", "w")
""",
    )
    assert process.returncode == 1, process.stdout
    assert "3 passed, 1 error" in process.stdout
    assert "unknown scenario 'no-such-scenario'" in process.stdout
    assert not (tmp_path / "suite" / "ran").exists()


def test_without_root_the_tests_are_skipped_with_a_reason(tmp_path: Path) -> None:
    """The reason names a command that helps; a test that does not use the fixtures passes."""
    test = "def test_node(pressured_node):\n    pass\n\n\ndef test_other():\n    pass\n"
    before = ("unshare", "--user") if os.geteuid() == 0 else ()
    process = pytest_in(tmp_path, test, *before)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "1 passed, 1 skipped" in process.stdout
    assert "unshare -Urm pytest" in process.stdout


def test_the_fixtures_work_under_unshare(tmp_path: Path) -> None:
    """They work under the command that the skip names, without privileges
    outside of its namespace.
    """
    need_mounts()
    test = f"""
import pytest


@pytest.mark.reclaimd_scenario({SMALL!r})
def test_pressure(pressured_node):
    assert "nodefs.available" in pressured_node.below_marks
"""
    process = pytest_in(tmp_path, test, "unshare", "-Urm")
    assert "1 passed" in process.stdout, process.stdout + process.stderr


def test_a_suite_that_does_not_use_the_fixtures_loads_nothing_of_ours(tmp_path: Path) -> None:
    """Only the module of the plugin is loaded, and no mount namespace is entered."""
    test = """
import os
import sys


def test_loaded():
    ours = {name for name in sys.modules if name.partition(".")[0] in ("eviction", "reclaim", "signals", "grpc")}
    assert ours == {"eviction", "eviction.drill", "eviction.drill.pytest_plugin"}
    assert os.readlink("/proc/self/ns/mnt") == os.readlink(f"/proc/{os.getppid()}/ns/mnt")
"""
    process = pytest_in(tmp_path, test)
    assert process.returncode == 0, process.stdout

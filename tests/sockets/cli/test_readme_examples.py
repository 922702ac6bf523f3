"""The console examples of the first page are run, and what they show has the
shape of what comes.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from eviction.configuration.effective import load
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.pages import INSTALLATION, code_blocks
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, reclaimd, reclaimd_here
from tests.sockets.mounts import need_mounts

pytestmark = pytest.mark.house("README.md", "config/examples")

EXAMPLES: dict[str, list[str]] = {
    block.splitlines()[0]: block.splitlines()[1:] for block in code_blocks(INSTALLATION, "console")
}
AMOUNT = re.compile(r"(?:\d+(?:\.\d+)?(?:[KMGT]iB|B|ms|[hmsd%])?)+")


def shape(line: str) -> str:
    """A line without what differs from run to run: amounts, times, how columns are
    padded, how a disk was mounted.
    """
    return " ".join(AMOUNT.sub("#", re.sub(r"\(mounted .*\)", "(mounted)", line)).split())


def shown_in_order(lines: list[str], output: str) -> None:
    """Every line of an example stands in the output, in that order; `…` stands for any others."""
    left = iter([shape(line) for line in output.splitlines()])
    for line in lines:
        if line and line != "…":
            assert shape(line) in left, f"not shown, or not there: {line}\n{output}"


def test_make_run_shows_what_the_readme_shows(tmp_path: Path) -> None:
    """The story, in 15 lines at most: the fill, the mark and its row, what went and stayed, the
    times, the verdict. Its files are there."""
    need_mounts()
    process = subprocess.run(
        [PROGRAM, "drill"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        env=ENVIRONMENT,
        timeout=120.0,
    )
    assert (process.returncode, process.stderr) == (0, "")
    lines = EXAMPLES["$ make run"]
    assert 10 <= len(lines) <= 15
    assert len(process.stdout.splitlines()) <= 15
    shown_in_order(lines, process.stdout)
    (files,) = (line for line in process.stdout.splitlines() if line.startswith("report: "))
    for path in files.removeprefix("report: ").split(", "):
        assert (tmp_path / path).exists()


def commands_of(beginning: str) -> list[str]:
    """What an example of the installation has a reader type, comments left out."""
    first = next(first for first in EXAMPLES if first.startswith(beginning))
    return [
        re.split(r"\s{2,}#", line.removeprefix("# "))[0].strip()
        for line in (first, *EXAMPLES[first])
    ]


def test_the_example_of_a_configuration_is_one(tmp_path: Path) -> None:
    """It is read without a complaint, and its values are in force."""
    (example,) = code_blocks(INSTALLATION, "yaml")
    path = tmp_path / "reclaimd.yaml"
    path.write_text(example)
    path.chmod(0o600)
    configuration = load(str(path), {}, {"kubeletConfig": ""})
    assert configuration.effective["margin"] == "8%"
    assert configuration.keep_images.entries == ("registry.example/base/*",)
    assert configuration.runtime_endpoint == "unix:///run/containerd/containerd.sock"


def test_what_the_installation_has_a_reader_try_first_removes_nothing(
    small_node: SmallNode,
) -> None:
    """Each command after the installation itself runs, on a node under pressure
    that has something to remove.

    The last one says what it would remove.
    """
    small_node.add_images(4)
    file = small_node.configuration(Signal.IMAGEFS_AVAILABLE, 4 * MIB)
    _, *lines = commands_of("# make install-program")
    assert [line.split()[1] for line in lines] == [
        *("doctor", "config", "check", "plan", "df", "reclaim")
    ]
    output = ""
    for line in lines:
        process = (reclaimd if line is lines[-1] else reclaimd_here)(
            *line.split()[1:], "--config", file
        )
        assert process.returncode in (0, 1), (line, process.stderr)
        output = process.stdout
    assert "would free" in output
    assert small_node.removed() == []
    assert len(small_node.images()) == 6

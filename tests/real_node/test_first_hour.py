"""The page of a first hour is run: its commands in their order, and what each
prints is what the page shows.

The node is a root of its own (`OwnRoot`) with the tests' real containerd and a pretended kubelet on
one ext4. The daemon is started by a stand-in for systemctl. `make run` is run by the test of the
README, whose example is compared with the page; `make bundle` is run once for all tests. Where a
person would wait, the test waits for the pass.

`UPDATE_PAGES=1 pytest -n0 -s tests/real_node/test_first_hour.py` writes the page anew with what is
printed now, and prints the difference.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

from eviction.records.state_file import Moment, current_boot_id, records_json
from tests.bundles import Bundle, made_bundle
from tests.console_pages import Step, steps_of, with_outputs
from tests.nodes.crowded_node import build_crowded_node
from tests.nodes.own_root import ENVIRONMENT, OwnRoot
from tests.nodes.real_node import GIB, RealNode
from tests.pages import FIRST_HOUR, INSTALLATION, code_blocks
from tests.real_node.conftest import NodeFactory
from tests.reclaimd_process import came_true

pytestmark = pytest.mark.house("config/examples/first-hour.md")

UPDATE = os.environ.get("UPDATE_PAGES") == "1"
ENDED = "the command has ended with"
DRY_RUN, RELIEVED = "dry run (dryRun)", "ReclaimPressure (was below our mark)"
WATCHING = "; watching; layout single"
RELOADED = "the configuration was reloaded"
PASS = re.compile(r"(?:would remove|: removed) .*; took ")
RELOAD = "systemctl reload reclaimd"
DISK = "/disk"  # what the page calls the filesystem under test
KUBELET = """\
mkdir /run/kubelet && echo ok >/run/kubelet/healthz
python3 -m http.server --bind 127.0.0.1 --directory /run/kubelet 10248 >/dev/null 2>&1 &
"""


class Operator:
    """A shell of root's in the root of the node, to which commands are typed."""

    def __init__(self, root: OwnRoot):
        self._root = root
        self._shell = subprocess.Popen(
            root.command("/bin/bash", "--noprofile", "--norc"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=ENVIRONMENT,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.kill()
        self._shell.communicate()

    def types(self, command: str) -> list[str]:
        """Types a command and waits for its end; the lines that it printed.

        Fails for one that does not exist.
        """
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{{ {command}\n}} </dev/null\necho; echo {ENDED} $?\n")
        self._shell.stdin.flush()
        printed: list[str] = []
        for line in self._shell.stdout:
            if line.startswith(ENDED):
                code = int(line.removeprefix(ENDED))
                assert code in (0, 1), f"{command} ended with {code}:\n" + "\n".join(printed)
                break
            printed.append(line.rstrip("\n"))
        else:
            raise AssertionError(f"the shell has ended with {command}:\n" + "\n".join(printed))
        if printed[-1] == "":  # of the first echo, after an output that ended with a line
            printed.pop()
        return printed

    def passes(self) -> int:
        """How many passes the daemon has told of."""
        return len(PASS.findall(self._told()))

    def _told(self) -> str:
        journal = self._root.path / "var" / "log" / "reclaimd.journal"
        return journal.read_text() if journal.exists() else ""

    def reloads(self, command: str) -> list[str]:
        """Types a command that has the daemon read its configuration again, and
        waits until it has.
        """
        before = self._told().count(RELOADED)
        printed = self.types(command)
        assert came_true(lambda: self._told().count(RELOADED) > before), (
            "the configuration was not read again"
        )
        return printed

    def looks(self, command: str) -> list[str]:
        """Types a command that shows the status, and again until it is that of a daemon at rest,
        which knows where the images are."""
        printed: list[str] = []

        def at_rest() -> bool:
            printed[:] = self.types(command)
            return WATCHING in printed[0]

        assert came_true(at_rest), "\n".join(printed)
        return printed

    def makes_room(self, command: str) -> list[str]:
        """Types a command that removes the fill, and waits as a person would: the daemon looks once
        a second or more often while it is under pressure, and then knows that it is over."""
        printed = self.types(command)
        time.sleep(3.0)
        return printed

    def fills(self, command: str) -> list[str]:
        """Types a command that fills the disk, and waits until a pass has answered it."""
        before = self.passes()
        printed = self.types(command)
        assert came_true(lambda: self.passes() > before), "no pass has followed"
        assert came_true(self._is_over), "a real pass has not relieved the node"
        return printed

    def _is_over(self) -> bool:
        """Whether nothing is removed any more: the node is relieved, or it is a dry run."""
        status = "\n".join(self.types("reclaimd status"))
        return DRY_RUN in status or RELIEVED in status


@pytest.fixture
def node(make_node: NodeFactory) -> RealNode:
    """A node whose disk is half full, with pods, dead containers and twenty images that nobody
    uses.
    """
    return build_crowded_node(make_node(GIB // 2), image_bytes=6 << 20).node


def remember_the_clocks(directory: Path) -> None:
    """A state file without an image, saved an hour ago, or at the boot. On a node the process of
    containerd tells since when the clocks are known; this root has a PID namespace of its own, in
    which it cannot be seen."""
    directory.mkdir(mode=0o700)
    ago = min(3600.0, time.monotonic())
    saved = Moment(time.monotonic() - ago, time.time() - ago, current_boot_id())
    file = directory / "images.json"
    file.write_bytes(records_json({}, saved, {}))
    file.chmod(0o600)


@contextmanager
def operator_on(node: RealNode, bundle: Bundle, directory: Path) -> Iterator[Operator]:
    """At the prompt of the node, with the bundle and its checksum in the home directory."""
    disk = node.mountpoint
    shown = {
        str(disk): disk,
        "/var/lib/kubelet": node.kubelet.root_dir,
        "/var/log/pods": node.kubelet.pod_logs_dir,
        "/run/containerd/containerd.sock": node.containerd.socket,
    }
    root = OwnRoot(directory / "root", shown)
    for path in (bundle.archive, bundle.archive.with_name(f"{bundle.archive.name}.sha256")):
        shutil.copy(path, root.path / "root")
    remember_the_clocks(root.path / "var" / "lib" / "reclaimd")
    with Operator(root) as operator:
        assert operator.types(f"cd /root\n{KUBELET}") == []
        yield operator


def waits_of(operator: Operator, command: str) -> Callable[[str], list[str]]:
    """How a command is typed, by what its effect is."""
    if "fallocate" in command:
        return operator.fills
    if command.startswith("rm "):
        return operator.makes_room
    if command == RELOAD:
        return operator.reloads
    if command == "reclaimd status":
        return operator.looks
    return operator.types


def of_the_readme(command: str) -> list[str]:
    """What the README shows of a command that its own test runs."""
    (example,) = [
        block
        for block in code_blocks(INSTALLATION, "console")
        if block.startswith(f"$ {command}\n")
    ]
    return example.splitlines()[1:]


def what_is_printed(
    steps: Sequence[Step], bundle: Bundle, node: RealNode, directory: Path
) -> list[list[str]]:
    """By each command, in their order."""
    outputs = []
    with operator_on(node, bundle, directory) as operator:
        for step in steps:
            if step.prompt == "# ":
                printed = waits_of(operator, step.command)(step.command)
            elif step.command == "make run":
                printed = of_the_readme(step.command)
            else:
                assert step.command == "make bundle"
                printed = bundle.printed.replace(f"{bundle.archive.parent}/", "dist/").splitlines()
            outputs.append([line.replace(str(node.mountpoint), DISK) for line in printed])
    return outputs


@pytest.mark.timeout(600)  # a bundle is made and installed, and three fills take 8 s each
def test_what_the_page_shows_is_what_is_printed(
    node: RealNode,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every command of the page, in its order; but for amounts, times and ids."""
    bundle = made_bundle(tmp_path_factory)
    steps = steps_of(FIRST_HOUR)
    outputs = what_is_printed(steps, bundle, node, tmp_path)
    if UPDATE:
        before, after = FIRST_HOUR.read_text(), with_outputs(FIRST_HOUR, outputs)
        FIRST_HOUR.write_text(after)
        with capsys.disabled():
            print(
                "".join(
                    difflib.unified_diff(
                        before.splitlines(True), after.splitlines(True), "before", "after"
                    )
                )
            )
        return
    for step, printed in zip(steps, outputs, strict=True):
        shown, now = "\n".join(step.shown), "\n".join(printed)
        assert step.is_what_was(printed), (
            f"{step.command} prints\n{now}\nand the page shows\n{shown}"
        )


def test_shadow_ends_by_one_line_and_a_reload() -> None:
    """As the page says."""
    commands = [step.command for step in steps_of(FIRST_HOUR)]
    reload = commands.index(RELOAD)
    assert (
        commands[reload - 1]
        == "sed -i 's/^dryRun: true/dryRun: false/' /etc/reclaimd/reclaimd.yaml"
    )

"""The pages of a first hour are run: their commands in their order, and what each
prints is what the page shows.

The node is a root of its own (`OwnRoot`) with the tests' real containerd and a pretended kubelet on
one ext4. The daemon is started by a stand-in for systemctl. `make run` is run by the test of the
README, whose example is compared with the page; `make bundle` is run once for all tests. Where a
person would wait, the test waits for the pass.

The pages on caches begin where the first one ends its installation; that, and a node on whose disk
the caches lie, is made once for both.

`UPDATE_PAGES=1 pytest -n0 tests/real_node/test_first_hour.py` writes the pages anew with what is
printed now.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from eviction.records.state_file import Moment, current_boot_id, records_json
from tests.bundles import made_bundle
from tests.console_pages import steps_of, with_outputs
from tests.nodes.crowded_node import build_crowded_node
from tests.nodes.own_root import ENVIRONMENT, OwnRoot
from tests.nodes.real_node import GIB, RealNode, running_node
from tests.pages import DOCS, INSTALLATION, code_blocks
from tests.real_node.conftest import NodeFactory
from tests.reclaimd_process import came_true

FIRST_HOUR = DOCS / "first-hour.md"
pytestmark = pytest.mark.house("docs/first-hour.md", "docs/ml-node.md", "docs/ci-runner.md")

UPDATE = os.environ.get("UPDATE_PAGES") == "1"
ENDED = "the command has ended with"
DRY_RUN, RELIEVED = "dry run (dryRun)", "ReclaimPressure (was below our mark)"
RELOADED = "the configuration was reloaded"
PASS = re.compile(r"(?:would free|: removed) .*; took |, removed in ")
RELOAD = "systemctl reload reclaimd"
DISK = "/disk"  # what the page calls the filesystem under test
KUBELET = """\
mkdir /run/kubelet && echo ok >/run/kubelet/healthz
python3 -m http.server --bind 127.0.0.1 --directory /run/kubelet 10248 >/dev/null 2>&1 &
"""
INSTALL = "tar xf reclaimd-*.tar.gz && cd reclaimd-*/ && DESTDIR=/srv/look ./install.sh"
TAG = "Signature: 8a477f597d28d172789f06886806bc55\n"


class Operator:
    """A shell of root's in the root of the node, to which commands are typed."""

    def __init__(self, root: OwnRoot) -> None:
        self._journal = root.path / "var" / "log" / "reclaimd.journal"
        self._shell = subprocess.Popen(
            root.command("/bin/bash", "--noprofile", "--norc"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=ENVIRONMENT,
            start_new_session=True,
        )

    def close(self) -> None:
        """Ends it, and everything in its root."""
        os.killpg(self._shell.pid, signal.SIGKILL)
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
                # of the first echo, after an output that ended with a line
                return printed[:-1] if printed[-1] == "" else printed
            printed.append(line.rstrip("\n"))
        raise AssertionError(f"the shell has ended with {command}:\n" + "\n".join(printed))

    def told(self, what: re.Pattern[str] | str) -> int:
        """How often the daemon has told of it."""
        return len(re.findall(what, self._journal.read_text() if self._journal.exists() else ""))

    def does(self, command: str) -> list[str]:
        """Types a command, and waits as a person would: after a fill until a pass has answered it
        and nothing is removed any more, after its removal until the daemon knows that the pressure
        is over, after a reload until it is done. The status is that of a daemon at rest, which
        knows where the images are."""
        fills, frees = "fallocate" in command, command.startswith("rm ")
        passes, reloads = self.told(PASS), self.told(RELOADED)
        printed = self.types(command)

        def has_happened() -> bool:
            if command == "reclaimd status":
                printed[:] = self.types(command)
                return "; watching; layout single" in printed[0]
            if command == RELOAD:
                return self.told(RELOADED) > reloads
            if fills and self.told(PASS) == passes:
                return False
            status = "\n".join(self.types("reclaimd status")) if fills or frees else RELIEVED
            return RELIEVED in status or (fills and DRY_RUN in status)

        happened = came_true(has_happened, every_seconds=0.1)  # a status takes as long
        assert happened, f"after {command}:\n" + "\n".join(printed)
        return printed


@pytest.fixture
def node(make_node: NodeFactory) -> RealNode:
    """A node whose disk is half full, with pods, dead containers and twenty images that nobody
    uses.
    """
    return build_crowded_node(make_node(GIB // 2), image_bytes=6 << 20).node


@contextmanager
def operator_on(
    node: RealNode, directory: Path, *files: Path, look: Path | None = None
) -> Iterator[Operator]:
    """At the prompt of the node, with these files in the home directory, and a state file without
    an image, saved an hour ago, or at the boot: on a node the process of containerd tells since
    when the clocks are known; this root has a PID namespace of its own, in which it cannot be seen.
    With what was installed (`look`) there are caches, and it is known who uses one."""
    shown = {
        str(node.mountpoint): node.mountpoint,
        "/var/lib/kubelet": node.kubelet.root_dir,
        "/var/log/pods": node.kubelet.pod_logs_dir,
        "/run/containerd/containerd.sock": node.containerd.socket,
    }
    if look is not None:
        shown |= {"/srv": node.mountpoint / "srv", "/look": look}
    root = OwnRoot(directory / "root", shown, host_pid=look is not None)
    for path in files:
        shutil.copy(path, root.path / "root")
    state = root.path / "var" / "lib" / "reclaimd"
    state.mkdir(mode=0o700)
    ago = min(3600.0, time.monotonic())
    saved = Moment(time.monotonic() - ago, time.time() - ago, current_boot_id())
    (state / "images.json").touch(mode=0o600)
    (state / "images.json").write_bytes(records_json({}, saved, {}))
    with closing(Operator(root)) as operator:
        assert operator.types(f"cd /root\n{KUBELET}") == []
        yield operator


def of_the_readme(command: str) -> list[str]:
    """What the README shows of a command that its own test runs."""
    blocks = code_blocks(INSTALLATION, "console")
    (example,) = [block for block in blocks if block.startswith(f"$ {command}\n")]
    return example.splitlines()[1:]


def compare(page: Path, outputs: Sequence[Sequence[str]]) -> None:
    """With what the page shows; or writes it anew."""
    if UPDATE:
        page.write_text(with_outputs(page, outputs))
        return
    for step, printed in zip(steps_of(page), outputs, strict=True):
        shown, now = "\n".join(step.shown), "\n".join(printed)
        assert step.is_what_was(printed), (
            f"{step.command} prints\n{now}\nand the page shows\n{shown}"
        )


@pytest.mark.timeout(600)  # a bundle is made and installed, and three fills take 4 s each
def test_what_the_page_shows_is_what_is_printed(
    node: RealNode, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every command of the page, in its order; but for amounts, times and ids."""
    bundle = made_bundle(tmp_path_factory)
    checksum = bundle.archive.with_name(f"{bundle.archive.name}.sha256")
    made = bundle.printed.replace(f"{bundle.archive.parent}/", "dist/").splitlines()
    elsewhere = {"make run": of_the_readme("make run"), "make bundle": made}
    outputs = []
    with operator_on(node, tmp_path, bundle.archive, checksum) as operator:
        for step in steps_of(FIRST_HOUR):
            here = step.prompt == "# "
            printed = operator.does(step.command) if here else elsewhere[step.command]
            outputs.append([line.replace(str(node.mountpoint), DISK) for line in printed])
    compare(FIRST_HOUR, outputs)


CACHES = {
    "ml-node": ("models/hub", "models--org--{}/blobs/weights", "base old vision chat"),
    "ci-runner": ("ci/uv", "archive-v0/wheel-{}/data", "0 1 2 3"),
}
"""By page: a cache, as a Hugging Face hub has models and uv unpacks wheels; the longest unused first."""


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a bundle has installed below another directory."""
    root = OwnRoot(tmp_path_factory.mktemp("installed") / "root")
    shutil.copy(made_bundle(tmp_path_factory).archive, root.path / "root")
    done = root.run(INSTALL, timeout_seconds=300.0)
    assert done.returncode == 0, done.stdout + done.stderr
    return root.path / "srv" / "look"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    """A node with nothing but the sandbox image."""
    with running_node(tmp_path_factory.mktemp("caches"), GIB // 2) as made:
        yield made


@pytest.mark.timeout(600)  # a bundle is made and installed
@pytest.mark.parametrize("page", CACHES)
def test_a_page_on_caches_shows_what_is_printed(
    bare: RealNode, look: Path, tmp_path: Path, page: str
) -> None:
    """Likewise, on a node with such a cache, units of 24 MiB, and nothing else to remove."""
    place, unit, names = CACHES[page]
    shutil.rmtree(bare.mountpoint / "srv", ignore_errors=True)  # what another page has left
    (bare.kubelet.root_dir / "fill").unlink(missing_ok=True)
    cache = bare.mountpoint / "srv" / place
    for name in names.split():
        file = cache / unit.format(name)
        file.parent.mkdir(parents=True)
        file.write_bytes(os.urandom(24 << 20))
    (cache / "CACHEDIR.TAG").write_text(TAG)
    asked = DOCS / f"{page}.md"
    with operator_on(bare, tmp_path, look=look) as operator:
        assert operator.types("cp -r /look/. / && systemctl daemon-reload") == []
        outputs = [operator.does(step.command) for step in steps_of(asked)]
    compare(asked, outputs)


def test_shadow_ends_by_one_line_and_a_reload() -> None:
    """As the page says."""
    commands = [step.command for step in steps_of(FIRST_HOUR)]
    line = "sed -i 's/^dryRun: true/dryRun: false/' /etc/reclaimd/reclaimd.yaml"
    assert commands[commands.index(RELOAD) - 1] == line

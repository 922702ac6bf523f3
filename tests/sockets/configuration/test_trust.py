"""Which sockets and configuration files are trusted, with real owners and modes.

Another owner needs root to be made; what needs none runs everywhere.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from eviction.configuration.effective import ConfigurationError, load
from eviction.drill.private_mounts import unmount
from eviction.surface.control_client import NotAskedError, ask
from eviction.surface.control_socket import ControlServer, ControlUnavailable
from reclaim.trust import directory_refusal, file_refusal, socket_refusal
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.pure.configuration.test_told import OURS, configuration_of
from tests.reclaimd_process import reclaimd, reclaimd_here
from tests.repository import ROOT
from tests.rows import rows
from tests.sockets.mounts import bound
from tests.sockets.stage import Stage

STRANGER = 12345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


def give(path: Path, rights: str) -> None:
    """Sets a mode, and an owner and a group if they are named (`0660 0 12345`); of a symlink the
    owner. Skips where only root could."""
    mode, uid, gid, *_ = [*rights.split(), "-1", "-1"]
    if str(STRANGER) in (uid, gid) and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, int(uid), int(gid), follow_symlinks=False)
    if not path.is_symlink():
        path.chmod(int(mode, 8))


def bound_socket(path: Path, rights: str = "0600") -> Path:
    """A socket with this mode and owner, in a directory of mode 0755."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
    give(path, rights)
    return path


def socket_of(small: SmallNode) -> Path:
    """The socket of a node's runtime."""
    return Path(small.endpoint.removeprefix("unix://"))


@rows("""
    what                   | own          | directory    | why
                           | 0600         | 0755         |
                           | 0660         | 0755         |
                           | 0700         | 0755         |
                           | 0755         | 0755         |
                           | 0770         | 0755         |
    of cri-dockerd         | 0660 0 12345 | 0755         |
    only its owner, in tmp | 0600         | 1777         |
                           | 0666         | 0755         | every user may connect to it (mode 0666); allowed is at most 0770
                           | 0600 12345   | 0755         | it belongs to uid 12345; allowed is root's
                           | 0600         | 0777         | every user may write its directory HERE (mode 0777); allowed is at most 0755
                           | 0600         | 0755 12345   | its directory HERE belongs to uid 12345; allowed is root's
                           | 0600         | 1777 12345   | its directory HERE belongs to uid 12345; allowed is root's
                           | 0600         | 0775 0 12345 | group 12345 may write its directory HERE (mode 0775); allowed is at most 0755
""")
def test_a_socket_that_others_could_replace_or_serve_is_refused(
    tmp_path: Path, own: str, directory: str, why: str | None
) -> None:
    """By its owner and mode, and those of its directory; so is a symlink to it."""
    path = bound_socket(tmp_path / "run" / "cri.sock", own)
    (tmp_path / "var").symlink_to("run")
    give(path.parent, directory)
    told = why and why.replace("HERE", str(path.parent))
    assert socket_refusal(str(path)) == told
    assert socket_refusal(str(tmp_path / "var" / "cri.sock")) == told


def test_what_is_missing_is_not_refused_and_what_is_no_socket_is(tmp_path: Path) -> None:
    """A runtime that is down will be back; connecting fails by itself. Symlinks in a circle are an
    error, as for the kernel."""
    (tmp_path / "f").write_text("")
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert socket_refusal(str(tmp_path / "f")) == "it is not a socket"
    assert socket_refusal(str(tmp_path / "none" / "cri.sock")) is None
    assert socket_refusal(str(tmp_path / "a" / "cri.sock")) is None
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        directory_refusal(str(tmp_path / "a"))


REFUSAL = """
import os, sys
from reclaim.trust import socket_refusal
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
print(socket_refusal(sys.argv[1]))
"""


@rows("""
    uid   | told
    12345 | None
    12346 | it belongs to uid 12345; allowed is root's or that of uid 12346
""")
def test_a_socket_of_our_own_user_is_trusted_without_root(uid: int, told: str) -> None:
    """A rootless runtime beside an agent of the same user; not beside one of another user."""
    with tempfile.TemporaryDirectory() as above:  # pytest's directories are root's alone
        Path(above).chmod(0o755)
        path = bound_socket(Path(above, "run", "cri.sock"), f"0600 {STRANGER}")
        give(path.parent, f"0755 {STRANGER} {STRANGER}")
        asked = [sys.executable, "-c", REFUSAL, str(path), str(uid)]
        assert subprocess.check_output(asked, cwd=ROOT, text=True).strip() == told


@rows("""
    which       | rights     | why
    opt         | 0757       | every user may write the directory HERE above it (mode 0757);
    opt         | 0777       | every user may write the directory HERE above it (mode 0777);
    opt         | 1777       |
    opt/tools   | 0755 12345 | the directory HERE above it belongs to uid 12345;
    opt/tools   | 1777 12345 | the directory HERE above it belongs to uid 12345;
    links       | 0777       | every user may write the directory HERE above it (mode 0777);
    shared/link | 0          |
    shared/link | 0 12345    | the symlink HERE belongs to uid 12345;
""")
def test_who_could_replace_what_leads_to_it_is_a_reason(
    tmp_path: Path, which: str, rights: str, why: str
) -> None:
    """However far above, also where only a symlink leads through; the owner of a sticky directory,
    or of a symlink in one, may replace it. Of a socket, a file, a directory."""
    run = bound_socket(tmp_path / "opt/tools/run/cri.sock").parent
    (run / "file").write_text("")
    for directory in (run / "directory", tmp_path / "links", tmp_path / "shared"):
        directory.mkdir()
    (tmp_path / "shared").chmod(0o1777)
    (tmp_path / "links/second").symlink_to("../opt/tools")
    (tmp_path / "first").symlink_to(tmp_path / "links/second")
    (tmp_path / "shared/link").symlink_to(run.parent)
    ways = ["opt/tools", "first", "shared/link"]

    def refusals(way: str) -> set[str | None]:
        there = tmp_path / way / "run"
        file = there / "file"
        return {
            socket_refusal(str(there / "cri.sock")),
            file_refusal(str(file), file.stat()),
            directory_refusal(str(there / "directory")),
        }

    assert [*map(refusals, ways)] == [{None}] * 3
    give(tmp_path / which, rights)
    changed = [way for way in ways if refusals(way) != {None}]
    through = {"links": ["first"], "shared/link": ["shared/link"]}.get(which, ways)
    assert changed == (through if why else [])
    for (told,) in map(refusals, changed):
        assert str(told).startswith(why.replace("HERE", str(tmp_path / which)))


@pytest.mark.parametrize("command", ["reclaim", "plan"])
def test_nothing_is_removed_over_a_socket_that_is_not_trusted(
    small_node: SmallNode, command: str
) -> None:
    """Exit 3 with one sentence, and no call has reached the runtime."""
    small_node.add_images(3)
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=8 * MIB)
    calls = small_node.failpoints.calls.total()
    socket_of(small_node).chmod(0o666)
    run = reclaimd if command == "reclaim" else reclaimd_here
    found = run(command, "--config", configuration)
    assert found.returncode == 3
    assert "is not trusted: every user may connect to it (mode 0666)" in found.stderr
    assert found.stderr.count("\n") == 1
    assert small_node.failpoints.calls.total() == calls
    assert small_node.removed() == []


@needs_root
def test_a_socket_that_changes_hands_while_the_daemon_runs_is_not_spoken_to(stage: Stage) -> None:
    """It is checked before each call, not only at the start."""
    stage.plays()


# ---- files

STORY = """@ reclaimd.yaml
kubeletConfig: ROOT/kubelets/its.yaml
kubeletConfigDir: ROOT/kubelets/conf.d
@ reclaimd.d/1.conf
@ kubelets/its.yaml
@ kubelets/conf.d/1.conf
"""


@pytest.mark.parametrize("which", re.findall("^@ (.*)", STORY, re.MULTILINE))
@rows("""
    of        | rights       | why
    file      | 0646         | every user may write it (mode 0646); allowed is at most 0644
    file      | 0664 0 12345 | group 12345 may write it (mode 0664); allowed is at most 0644
    file      | 0644 12345 0 | it belongs to uid 12345; allowed is root's
    directory | 0777         | every user may write its directory HERE (mode 0777); allowed is at
""")
def test_a_configuration_that_others_may_write_is_refused_by_name(
    tmp_path: Path, which: str, of: str, rights: str, why: str
) -> None:
    """Ours and the kubelet's: they decide which socket a root process uses and where it unlinks."""
    story = STORY.replace("ROOT", str(tmp_path))
    configuration_of(story, tmp_path)
    file = tmp_path / which
    give(file if of == "file" else file.parent, rights)
    told = why.replace("HERE", str(file.parent))
    with pytest.raises(ConfigurationError) as refused:
        configuration_of(story, tmp_path)
    assert f"{file}: is not trusted: {told}" in str(refused.value)


def test_a_file_of_a_config_map_is_read_through_its_symlinks(tmp_path: Path) -> None:
    """By its mode a ConfigMap volume is writable by all, and holds symlinks into a directory that
    is not. What lets nobody write is that a pod has it on a read-only mount."""
    volume = tmp_path / "volume"
    (volume / "..2026").mkdir(parents=True)
    (volume / "..2026" / "reclaimd.yaml").write_text(OURS)
    (volume / "..data").symlink_to("..2026")
    (volume / "reclaimd.yaml").symlink_to("..data/reclaimd.yaml")
    volume.chmod(0o777)
    with pytest.raises(
        ConfigurationError, match=rf"every user may write its directory {volume} \(mode 0777\)"
    ):
        load(str(volume / "reclaimd.yaml"), {}, {})
    bound(str(volume), str(volume), read_only=True)
    try:
        assert load(str(volume / "reclaimd.yaml"), {}, {}).kubelet is None
    finally:
        unmount(str(volume))


def test_a_file_that_our_own_group_may_write_is_read(tmp_path: Path) -> None:
    """Many systems have a umask of 002 with a private group for each user."""
    path = tmp_path / "f"
    path.write_text("")
    path.chmod(0o664)
    os.chown(path, -1, os.getegid())
    assert file_refusal(str(path), path.stat()) is None


# ---- the control socket


def test_no_control_socket_is_made_where_others_could_replace_it(tmp_path: Path) -> None:
    """The daemon says why and works without one. Where others may only read, they see the socket,
    whose own mode keeps them from connecting."""
    path = str(tmp_path / "control.sock")
    server = ControlServer(path, {"status": lambda _: iter(["fine"])})
    tmp_path.chmod(0o777)
    why = r"not made, as every user may write its directory .* \(mode 0777\)"
    with pytest.raises(ControlUnavailable, match=why):
        server.start()
    assert not os.path.exists(path)
    tmp_path.chmod(0o755)
    server.start()
    try:
        assert ask(path, "status") == "fine"
    finally:
        server.stop()


def test_a_control_socket_of_another_user_is_not_used(tmp_path: Path) -> None:
    """Its answers would be shown to root as the daemon's."""
    path = bound_socket(tmp_path / "run" / "control.sock", f"0666 {STRANGER}")
    with pytest.raises(NotAskedError, match=f"not asked, as it belongs to uid {STRANGER}"):
        ask(str(path), "status")

"""Which sockets and configuration files are trusted, with real owners and modes.

Another owner needs root to be made; what needs none runs everywhere.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from eviction.configuration.effective import ConfigurationError, load
from eviction.drill.runtime.private_mounts import unmount
from eviction.surface.control_client import NotAskedError, ask
from eviction.surface.control_socket import ControlServer, ControlUnavailable
from reclaim.trust import directory_refusal, file_refusal, socket_refusal
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import Daemon, came_true, reclaimd, reclaimd_here, write_configuration
from tests.repository import ROOT
from tests.sockets.mounts import bound

STRANGER = 12345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


def bound_socket(path: Path, mode: int, uid: int = -1, gid: int = -1) -> Path:
    """A socket with this mode and owner, in a directory of mode 0755."""
    path.parent.mkdir(exist_ok=True)
    path.parent.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
    path.chmod(mode)
    if (uid, gid) != (-1, -1):
        os.chown(path, uid, gid)
    return path


REFUSAL = """
import os, sys
from reclaim.trust import socket_refusal
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
print(socket_refusal(sys.argv[1]))
"""


def refusal_of(uid: int, path: Path) -> str:
    """Why a process of this user, and of the group of that number, does not use the
    socket; None as text if it does.
    """
    asked = [sys.executable, "-c", REFUSAL, str(path), str(uid)]
    return subprocess.run(
        asked, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def socket_of(small: SmallNode) -> Path:
    """The socket of a node's runtime."""
    return Path(small.endpoint.removeprefix("unix://"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path for a socket."""
    return tmp_path / "run" / "cri.sock"


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o700, 0o755, 0o770])
def test_a_socket_of_ours_that_the_world_may_not_write_is_trusted(path: Path, mode: int) -> None:
    """containerd and CRI-O give theirs 0660."""
    assert socket_refusal(str(bound_socket(path, mode))) is None


@needs_root
def test_a_socket_of_roots_that_a_group_may_use_is_trusted(path: Path) -> None:
    """cri-dockerd: root:docker 0660.

    A member of that group can connect, but cannot replace the socket.
    """
    assert socket_refusal(str(bound_socket(path, 0o660, 0, STRANGER))) is None


def test_a_socket_that_every_user_may_connect_to_is_refused(path: Path) -> None:
    """With mode 0666 every user is as powerful as root."""
    assert (
        socket_refusal(str(bound_socket(path, 0o666)))
        == "every user may connect to it (mode 0666); allowed is at most 0770"
    )


@needs_root
def test_a_socket_of_another_user_is_refused(path: Path) -> None:
    """Its owner listens on it, and could answer anything."""
    assert (
        socket_refusal(str(bound_socket(path, 0o600, STRANGER)))
        == f"it belongs to uid {STRANGER}; allowed is root's"
    )


@needs_root
def test_a_socket_of_our_own_user_is_trusted_without_root() -> None:
    """A rootless runtime beside an agent of the same user; not beside one of another user."""
    with tempfile.TemporaryDirectory() as above:  # pytest's directories are root's alone
        Path(above).chmod(0o755)
        path = bound_socket(Path(above, "run", "cri.sock"), 0o600, STRANGER)
        os.chown(path.parent, STRANGER, STRANGER)
        assert refusal_of(STRANGER, path) == "None"
        assert (
            refusal_of(STRANGER + 1, path)
            == f"it belongs to uid {STRANGER}; allowed is root's or that of uid {STRANGER + 1}"
        )


def test_a_file_in_the_place_of_the_socket_is_refused(tmp_path: Path) -> None:
    """The message says that it is not a socket."""
    (tmp_path / "f").write_text("")
    assert socket_refusal(str(tmp_path / "f")) == "it is not a socket"


def test_a_socket_in_a_directory_that_every_user_may_write_is_refused_unless_it_is_sticky(
    path: Path,
) -> None:
    """A user who may write the directory can replace the socket; in a sticky one
    like /tmp only its owner can.
    """
    bound_socket(path, 0o600)
    path.parent.chmod(0o777)
    assert (
        socket_refusal(str(path))
        == f"every user may write its directory {path.parent} (mode 0777); allowed is at most 0755"
    )
    path.parent.chmod(0o1777)
    assert socket_refusal(str(path)) is None


@needs_root
@pytest.mark.parametrize(("uid", "gid", "mode"), [(STRANGER, 0, 0o755), (0, STRANGER, 0o775)])
def test_a_socket_in_a_directory_of_others_is_refused(
    path: Path, uid: int, gid: int, mode: int
) -> None:
    """Its owner may write it, and so may a group that is not ours."""
    bound_socket(path, 0o600)
    path.parent.chmod(mode)
    os.chown(path.parent, uid, gid)
    assert f"directory {path.parent}" in (socket_refusal(str(path)) or "")


def refusals(path: Path) -> tuple[str, str, str]:
    """Of a socket at this path, and of the file and the directory beside it."""
    file = path.with_name("file")
    return (
        socket_refusal(str(path)) or "",
        file_refusal(str(file), file.stat()) or "",
        directory_refusal(str(path.with_name("directory"))) or "",
    )


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """A socket at the end of a way, with a file and a directory beside it."""
    path = tmp_path / "opt" / "tools" / "run" / "cri.sock"
    path.parent.mkdir(parents=True)
    bound_socket(path, 0o600)
    path.with_name("file").write_text("")
    path.with_name("directory").mkdir()
    assert refusals(path) == ("", "", "")
    return path


@pytest.mark.parametrize("mode", [0o757, 0o777])
def test_a_directory_however_far_above_that_every_user_may_write_is_a_reason(
    deep: Path, mode: int
) -> None:
    """What is below it could be replaced with it."""
    above = deep.parent.parent.parent
    above.chmod(mode)
    told = (
        f"every user may write the directory {above} above it (mode {mode:04o}); allowed is at most"
        " 0755"
    )
    assert refusals(deep) == (told, told, told)
    above.chmod(0o1777)
    assert refusals(deep) == ("", "", "")


@needs_root
@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_a_directory_above_of_another_user_is_a_reason_also_where_it_is_sticky(
    deep: Path, mode: int
) -> None:
    """The owner of a sticky directory may replace everything in it."""
    above = deep.parent.parent
    above.chmod(mode)
    os.chown(above, STRANGER, STRANGER)
    told = f"the directory {above} above it belongs to uid {STRANGER}; allowed is root's"
    assert refusals(deep) == (told, told, told)
    os.chown(above, 0, 0)
    deep.parent.chmod(mode)
    os.chown(deep.parent, STRANGER, STRANGER)
    assert (
        socket_refusal(str(deep))
        == f"its directory {deep.parent} belongs to uid {STRANGER}; allowed is root's"
    )


def test_a_directory_through_which_only_a_symlink_leads_is_looked_at(
    tmp_path: Path, deep: Path
) -> None:
    """Whoever may write it could have the symlink lead elsewhere; whether the
    symlink is absolute or not.
    """
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "second").symlink_to("../opt/tools")
    (tmp_path / "first").symlink_to(tmp_path / "links" / "second")
    through = tmp_path / "first" / "run" / deep.name
    assert refusals(through) == ("", "", "")
    (tmp_path / "links").chmod(0o777)
    told = (
        f"every user may write the directory {tmp_path}/links above it (mode 0777); allowed is at"
        " most 0755"
    )
    assert refusals(through) == (told, told, told)
    assert refusals(deep) == ("", "", "")


@needs_root
def test_a_symlink_of_another_user_in_a_sticky_directory_is_not_followed(
    tmp_path: Path, deep: Path
) -> None:
    """Its owner may replace it there."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    link = shared / "link"
    link.symlink_to(deep.parent)
    assert refusals(link / deep.name) == ("", "", "")
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
    told = f"the symlink {link} belongs to uid {STRANGER}; allowed is root's"
    assert refusals(link / deep.name) == (told, told, told)


def test_symlinks_in_a_circle_are_an_error(tmp_path: Path) -> None:
    """As for the kernel."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        directory_refusal(str(tmp_path / "a"))
    assert socket_refusal(str(tmp_path / "a" / "cri.sock")) is None


def test_a_symlink_is_followed_and_its_target_judged(tmp_path: Path, path: Path) -> None:
    """/var/run is a symlink; one to an untrusted socket is refused as that socket."""
    bound_socket(path, 0o600)
    (tmp_path / "var").symlink_to(path.parent)
    assert socket_refusal(str(tmp_path / "var" / "cri.sock")) is None
    path.chmod(0o666)
    assert "mode 0666" in (socket_refusal(str(tmp_path / "var" / "cri.sock")) or "")


def test_a_missing_socket_is_not_refused(tmp_path: Path) -> None:
    """A runtime that is down will be back; connecting fails by itself."""
    assert socket_refusal(str(tmp_path / "none" / "cri.sock")) is None


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


def test_a_daemon_waits_for_a_socket_that_can_be_trusted(small_node: SmallNode) -> None:
    """An untrusted socket is no crash: it is logged once, and used as soon as
    owner and mode are right.
    """
    small_node.add_images(3)
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=8 * MIB)
    socket_of(small_node).chmod(0o666)
    with Daemon("--config", configuration) as daemon:
        daemon.wait_for(lambda event: "is not trusted: every user may connect" in event["message"])
        assert small_node.removed() == []
        socket_of(small_node).chmod(0o660)
        assert came_true(lambda: bool(small_node.removed("image")))


@needs_root
def test_a_socket_that_changes_hands_while_the_daemon_runs_is_not_spoken_to(
    small_node: SmallNode,
) -> None:
    """It is checked before each call, not only at the start."""
    small_node.add_images(3)
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=-2 * MIB)
    with Daemon("--config", configuration) as daemon:
        small_node.wait_for("ListPodSandbox")
        os.chown(socket_of(small_node), STRANGER, 0)
        small_node.fill(4 * MIB)
        daemon.wait_for(lambda event: f"it belongs to uid {STRANGER}" in event["message"])
    assert small_node.removed() == []


# ---- files

HEAD = "apiVersion: reclaimd.io/v1alpha1\nkind: ReclaimdConfiguration\nkubeletConfig: ''\n"
KUBELET = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def spoilt(path: Path, how: str) -> str:
    """Lets others write a file; returns the expected reason."""
    match how:
        case "world":
            path.chmod(0o646)
            return "every user may write it (mode 0646); allowed is at most 0644"
        case "group":
            os.chown(path, 0, STRANGER)
            path.chmod(0o664)
            return f"group {STRANGER} may write it (mode 0664); allowed is at most 0644"
        case "owner":
            os.chown(path, STRANGER, 0)
            return f"it belongs to uid {STRANGER}; allowed is root's"
        case _:
            path.parent.chmod(0o777)
            return (
                f"every user may write its directory {path.parent} (mode 0777); allowed is at most"
                " 0755"
            )


HOW = [
    "world",
    "directory",
    pytest.param("group", marks=needs_root),
    pytest.param("owner", marks=needs_root),
]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("which", ["file", "drop-in", "kubelet", "kubelet drop-in"])
def test_a_configuration_that_others_may_write_is_refused_by_name(
    tmp_path: Path, which: str, how: str
) -> None:
    """Ours and the kubelet's: they decide which socket a root process uses and where it unlinks."""
    ours, theirs = tmp_path / "ours", tmp_path / "kubelet"
    files = {
        "file": ours / "reclaimd.yaml",
        "drop-in": ours / "conf.d" / "10.conf",
        "kubelet": theirs / "config.yaml",
        "kubelet drop-in": theirs / "conf.d" / "10.conf",
    }
    for name, file in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(KUBELET if name.startswith("kubelet") else HEAD)
    files["file"].write_text(
        HEAD.replace("''", f"'{files['kubelet']}'") + f"kubeletConfigDir: '{theirs / 'conf.d'}'\n"
    )
    files["drop-in"].write_text("\n".join(HEAD.splitlines()[:2]))
    load(str(files["file"]), {}, {}, directory=str(ours / "conf.d"))
    reason = spoilt(files[which], how)
    with pytest.raises(ConfigurationError) as refused:
        load(str(files["file"]), {}, {}, directory=str(ours / "conf.d"))
    assert f"{files[which]}: is not trusted: {reason}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_configuration_that_others_may_write_is_exit_2(tmp_path: Path) -> None:
    """One sentence on stderr that names the file and what is allowed."""
    path = write_configuration(tmp_path / "reclaimd.yaml")
    path.chmod(0o666)
    found = reclaimd("check", "--config", str(path))
    assert (found.returncode, found.stdout) == (2, "")
    assert (
        found.stderr
        == f"reclaimd: {path}: is not trusted: every user may write it (mode 0666); allowed is at"
        " most 0644\n"
    )


def test_a_file_of_a_config_map_is_read_through_its_symlinks(tmp_path: Path) -> None:
    """By its mode a ConfigMap volume is writable by all, and holds symlinks into a directory that
    is not. What lets nobody write is that a pod has it on a read-only mount."""
    volume = tmp_path / "volume"
    (volume / "..2026").mkdir(parents=True)
    (volume / "..2026" / "reclaimd.yaml").write_text(HEAD)
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
    """The daemon says why and works without one."""
    tmp_path.chmod(0o777)
    with pytest.raises(
        ControlUnavailable,
        match=r"not made, as every user may write its directory .* \(mode 0777\)",
    ):
        ControlServer(str(tmp_path / "control.sock"), {}).start()
    assert not (tmp_path / "control.sock").exists()


def test_a_directory_that_others_may_only_read_is_trusted(tmp_path: Path) -> None:
    """Mode 0755: others see the socket, whose own mode keeps them from connecting."""
    tmp_path.chmod(0o755)
    server = ControlServer(str(tmp_path / "control.sock"), {"status": lambda _: iter(["fine"])})
    server.start()
    try:
        assert ask(str(tmp_path / "control.sock"), "status") == "fine"
    finally:
        server.stop()


@needs_root
def test_a_control_socket_of_another_user_is_not_used(path: Path) -> None:
    """Its answers would be shown to root as the daemon's."""
    bound_socket(path, 0o666, STRANGER)
    with pytest.raises(NotAskedError, match=f"not asked, as it belongs to uid {STRANGER}"):
        ask(str(path), "status")

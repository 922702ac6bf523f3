"""A root directory of its own for a test: this machine's programs, and empty /etc, /opt,
/var, /run and /usr/local.

What an operator does as root on a fresh machine can be done in it, and nothing of it reaches
the machine: programs run in namespaces of their own, with no network but a loopback of their
own, and end with the command that started them. systemd does not run there:
`stand_in_systemctl` is in its place.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.sockets.mounts import need_mounts

STAND_IN = Path(__file__).with_name("stand_in_systemctl")
PYTHON = Path("/usr/bin/python3")
OF_THE_MACHINE = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "sys"]  # read-only
DIRECTORIES = [
    "dev",
    "etc",
    "opt",
    "proc",
    "root",
    "run/systemd/system",
    "srv",
    "tmp",
    "var/lib",
    "var/log",
    "var/tmp",
]
FILES = ("passwd", "group", "ld.so.cache", "machine-id")
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "PIP_NO_INDEX": "1",
}
ENTER = """\
root=$1; shift
mount --bind "$root" "$root"
while [ "$1" != -- ]; do
  source=${1%%:*}; rest=${1#*:}; target=$root${rest%:*}
  if [ -d "$source" ]; then mkdir -p "$target"; else mkdir -p "${target%/*}"; : >>"$target"; fi
  mount --rbind "$source" "$target"
  [ "${rest##*:}" = rw ] || mount -o remount,bind,ro "$target"
  shift
done
shift
mount -t proc proc "$root/proc"
ip link set lo up
exec chroot "$root" "$@"
"""


def need_own_root() -> None:
    """Skips the test, with the reason, where such a root cannot be made."""
    need_mounts()
    if os.geteuid() != 0:
        pytest.skip("needs root")
    for tool in ("unshare", "chroot", "ip"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    asked = subprocess.run(
        [str(PYTHON), "-c", "import ensurepip, sys; assert sys.version_info >= (3, 11)"],
        check=False,
    )
    if asked.returncode != 0:
        pytest.skip(
            "needs a /usr/bin/python3 of 3.11 or newer with venv (Debian package python3-venv)"
        )


class OwnRoot:
    """Such a root below `path`, which must not exist.

    `shown`: what else of the machine is there, by its path in it. `host_pid`: the processes of the
    machine are, too; then what it starts has to be ended as a process group.
    """

    def __init__(
        self, path: Path, shown: Mapping[str, Path] | None = None, *, host_pid: bool = False
    ):
        need_own_root()
        self.path = path
        self._own = ("--mount", "--net", *(() if host_pid else ("--pid",)))
        self._mounts = [f"{path}/.local:/usr/local:rw", "/dev:/dev:rw"]
        self._mounts += [f"{source}:{target}:rw" for target, source in (shown or {}).items()]
        for name in DIRECTORIES:
            (path / name).mkdir(parents=True)
        for name in ("tmp", "var/tmp"):
            (path / name).chmod(0o1777)
        for name in FILES:
            if os.path.exists(f"/etc/{name}"):
                shutil.copy(f"/etc/{name}", path / "etc" / name)
        for name in reversed(OF_THE_MACHINE):
            if os.path.islink(f"/{name}"):
                (path / name).symlink_to(os.readlink(f"/{name}"))
            elif os.path.isdir(f"/{name}"):
                self._mounts.insert(0, f"/{name}:/{name}:ro")
        for name in ("systemctl", "journalctl"):
            target = path / ".local" / "bin" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(STAND_IN, target)

    def command(self, *words: str) -> list[str]:
        """What has to be run for a command to run in it, to be given `ENVIRONMENT`."""
        # Of an earlier one no process is left.
        (self.path / "run" / "reclaimd.pid").unlink(missing_ok=True)
        enter = [
            "unshare",
            *self._own,
            "--fork",
            "--kill-child",
            "sh",
            "-euc",
            ENTER,
            "sh",
        ]
        return [*enter, str(self.path), *self._mounts, "--", *words]

    def run(
        self, script: str, *, timeout_seconds: float = 120.0, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a script of the shell in it, from /root, to its end and that of
        everything that it started.
        """
        return subprocess.run(
            self.command("/bin/sh", "-euc", f"cd /root\n{script}"),
            capture_output=True,
            text=True,
            check=False,
            env={**ENVIRONMENT, **variables},
            timeout=timeout_seconds,
        )

    def calls(self) -> list[str]:
        """What systemctl was called with so far, each time."""
        calls = self.path / "run" / "systemctl.calls"
        return calls.read_text().splitlines() if calls.exists() else []

"""The bundle: made as `make bundle` makes it, installed without a network, moved,
used, upgraded and taken away.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.bundles import made_bundle
from tests.nodes.own_root import OwnRoot
from tests.sockets.config.stories import assert_told, stories_in
from tests.sockets.mounts import tmpfs

pytestmark = pytest.mark.house(
    "config/install",
    "eviction/cli/install.py",
    "eviction/cli/uninstall.py",
    "pyproject.toml",
    "tests/nodes/stand_in_systemctl",
)

# sums: every file but byte code, which a new environment has in another order. killed_at: SIGKILL
# for the installer where it would call mv or rm with these words. last: the last line alone.
FUNCTIONS = r"""
exec 2>&1
sums() {
  find "$@" ! -name '*.pyc' \( -type f -exec sha256sum {} + -o -type l -printf '%l %p\n' \) | sort
}
killed_at() {
  export CUT="$1"; shift
  for name in mv rm; do
    printf '#!/bin/sh\ncase "$*" in *"$CUT") kill -KILL $PPID; exit 1 ;; esac\nexec /bin/%s "$@"\n' \
      $name >/usr/local/sbin/$name
    chmod +x /usr/local/sbin/$name
  done
  "$@" || echo "ended: $?"
  /bin/rm /usr/local/sbin/mv /usr/local/sbin/rm
}
last() { code=0; "$@" >/run/said 2>&1 || code=$?; tail -n 1 /run/said; return $code; }
"""
HIDDEN = {
    r"reclaimd-\S+\.tar\.gz": "BUNDLE",
    r"reclaimd \d[\d.]*\d": "reclaimd VERSION",
    r"Python 3\.[\d.]+": "Python 3.N",
    r"python3\.\d+": "python3.N",
    r"(installing )\d+": r"\1N",
    r"tenacity-(?!8\.3\.0)[\d.]+\d": "tenacity-NEWER",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRoot]:
    """A fresh node, without a network, with the directory of an idle kubelet; the bundle is in
    /root, and unpacked in /root/reclaimd. Its disk is memory, which no other program's writes
    delay."""
    bundle = made_bundle(tmp_path_factory)
    with tmpfs(tmp_path_factory.mktemp("machine"), 2 << 30, 200_000) as machine:
        made = OwnRoot(machine / "root")
        home = made.path / "root"
        (made.path / "var/lib/kubelet/pods").mkdir(parents=True)
        for path in bundle.archive.parent.glob(f"{bundle.archive.name}*"):
            shutil.copy(path, home)
        bundle.unpack(home).rename(home / "reclaimd")
        yield made


@pytest.mark.parametrize(("name", "number"), stories_in("bundle.txt"))
def test_a_node_without_a_network_from_its_bundle_to_its_purge(
    root: OwnRoot, name: str, number: int
) -> None:
    """One story after the other, on one node."""

    def run(line: str) -> tuple[int, str]:
        process = root.run(f"{FUNCTIONS}{line}", timeout_seconds=150.0)
        return process.returncode, process.stdout

    assert_told(name, number, run, HIDDEN)

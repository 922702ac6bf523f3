"""The tests see nothing of what runs on the machine."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT
from tests.sockets.mounts import need_mounts, tmpfs

pytestmark = pytest.mark.house("tests/own_machine.py", "tests/conftest.py")

INSIDE = """
import json, os, socket, subprocess, sys, time
from pathlib import Path
from tests import own_machine
own_machine.enter()
port, left = sys.argv[1:]
def reached(*before):
    code = f"import socket; socket.create_connection(('127.0.0.1', {port}))"
    return subprocess.run([*before, sys.executable, "-c", code], capture_output=True).returncode == 0
child = subprocess.Popen([left, "1000"], start_new_session=True, stdout=subprocess.DEVNULL)
while Path(f"/proc/{child.pid}/comm").read_text() != "left\\n":
    time.sleep(0.01)  # its descriptors close before it has its name
print(json.dumps({
    "processes": sorted(p.read_text().strip() for p in Path("/proc").glob("[0-9]*/comm")),
    "run": sorted(os.listdir("/run")),
    "mounts": [line.split()[4] for line in open("/proc/self/mountinfo")],
    "own port": socket.create_server(("127.0.0.1", int(port))).getsockname()[1] == int(port),
    "its network": reached(*own_machine.on_the_network()),
}), flush=True)
os._exit(7)
"""


def named(path: Path) -> list[str]:
    """The processes that were started from a program at this path, by what /proc says of them."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [each.parent.name] * each.read_bytes().startswith(os.fsencode(path))
        except OSError:
            continue
    return found


def test_a_run_beside_a_kubelet_sees_nothing_of_it(tmp_path: Path) -> None:
    """Not its process, its socket, what it has mounted, or its port, which is free; and
    what the run starts ends with it. Its exit status is passed on, and what has to can use
    the machine's network."""
    need_mounts()
    if "4294967295" not in Path("/proc/self/uid_map").read_text():
        pytest.skip("needs root: in a user namespace the network is the machine's")
    kubelet, left = tmp_path / "kubelet", tmp_path / "left"
    for program in (kubelet, left):
        shutil.copy("/bin/sleep", program)
    Path("/run/kubelet.sock").touch()
    environment = {name: text for name, text in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
    try:
        with (
            tmpfs(Path("/run/a-container/rootfs"), 1 << 20, 10),
            socket.create_server(("127.0.0.1", 0)) as server,
            subprocess.Popen([kubelet, "1000"]) as process,
        ):
            port = server.getsockname()[1]
            command = [sys.executable, "-c", INSIDE, str(port), str(left)]
            run = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
            )
            process.kill()
    finally:
        shutil.rmtree("/run/a-container")
        Path("/run/kubelet.sock").unlink()
    assert run.returncode == 7, run.stderr
    seen = json.loads(run.stdout)
    assert "left" in seen["processes"]
    assert "kubelet" not in seen["processes"]
    assert not {"kubelet.sock", "a-container"} & set(seen["run"])
    assert "/run/a-container/rootfs" not in seen["mounts"]
    assert seen["own port"]
    assert seen["its network"]
    assert named(left) == []

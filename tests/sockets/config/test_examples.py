"""The worked examples run, each on a small node, if this machine has the programs that it needs.

Of the fleet's `plan.sh`, that a real `kubectl exec` gives its answers is tested in
`tests/kubelet/test_daemonset.py`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from signals.types import Signal
from tests import forked
from tests.nodes.small_node import MIB, SmallNode
from tests.pages import DOCS, code_blocks
from tests.ports import free_port
from tests.reclaimd_process import (
    PROGRAM,
    came_true,
    reclaimd_here,
    write_configuration,
)
from tests.repository import ROOT
from tests.rows import rows
from tests.schemas import assert_as_described
from tests.sockets.config.stories import TOLD, assert_told, in_shell, stories_in
from tests.sockets.monitoring import Alertmanager
from tests.sockets.mounts import tmpfs
from tests.tool import tool

pytestmark = pytest.mark.house(
    *("config", "docs/functions.md", "tests/sockets/config", "eviction", "reclaim", "signals")
)

CONFIG = ROOT / "config"
EXAMPLES = CONFIG / "examples"
RECEIVER = EXAMPLES / "alertmanager" / "alert_receiver.py"
INSTALLED, PYTHON = "/opt/reclaimd/bin/reclaimd", "/opt/reclaimd/bin/python3"
FILE, DROP_INS = "/etc/reclaimd/reclaimd.yaml", "/etc/reclaimd/reclaimd.conf.d"
BEARER = "a-secret-of-the-alertmanager"


def command_of(unit: Path, **given: str) -> list[str]:
    """The command that a unit starts, with what is given in place of its words."""
    (line,) = re.findall("^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    words = shlex.split(line)
    assert given.keys() <= {*words}
    return [given.get(word, word) for word in words]


# ---- what they name


@pytest.mark.parametrize(
    ("name", "number"),
    stories_in(
        *("names.txt", "dashboards.txt", "completions.txt", "fleet.txt", "cache.txt", "page.txt")
    ),
)
def test_an_example_does_what_its_story_tells(tmp_path: Path, name: str, number: int) -> None:
    """In `disk` there is a filesystem of 64 MiB; a drop-in in `conf.d` gives that of the cache a
    mark of 33 MiB. `kubectl` here knows nine nodes, and counts how many are asked at a time."""
    for program, package in {"jq": "jq", "systemd-analyze": "systemd", "man": "man-db"}.items():
        tool(program, package)
    for plan in json.loads((TOLD / "fleet" / "plans.json").read_text()):
        assert_as_described(plan)
    (page,) = code_blocks(DOCS / "functions.md", "sh")
    (tmp_path / "program").write_text(f"#!/bin/sh\n{page}\n")
    (tmp_path / "program").chmod(0o755)
    (tmp_path / "conf.d").mkdir()
    write_configuration(
        tmp_path / "conf.d" / "own.conf",
        containerRuntimeEndpoint="none",
        evictionHard={"buildcache.available": "33Mi"},
        evictionMinimumReclaim={"buildcache.available": "0"},
    )
    variables = {
        "CONFIG": str(CONFIG),
        "EXAMPLES": str(EXAMPLES),
        "OURS": sys.executable,
        "PATH": f"{forked.program().parent}:{os.environ['PATH']}",
        "TMPDIR": str(tmp_path),
        "COMPLETE": str(TOLD / "complete"),
        "MANWIDTH": "80",
        "KUBECTL": str(TOLD / "fleet" / "kubectl"),
        "PARALLEL": "4",
        "PATIENCE": "5s",
    }
    with tmpfs(tmp_path / "disk", 64 * MIB, 1000):
        assert_told(name, number, in_shell(tmp_path, variables), {str(tmp_path): "HERE"})


# ---- hooks and units on a node


def test_what_k3s_brings_along_is_kept(small_node: SmallNode) -> None:
    """Its images without a registry are kept; another one is removed."""
    keeps = yaml.safe_load((EXAMPLES / "k3s" / "reclaimd.yaml").read_text())["keepImages"]
    brought = small_node.add_image("docker.io/rancher/mirrored-coredns-coredns:1.10.1")
    other = small_node.add_image("docker.io/library/busybox:1")
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, 1 << 40, keepImages=keeps)
    reclaimd_here("reclaim", "--now", "--config", file)
    assert {brought, other} & small_node.images() == {brought}


# ---- an Alertmanager


def receiver(directory: Path, *command: str) -> list[str]:
    """The receiver of node-1, which starts a command."""
    token = directory / "token"
    token.write_text(BEARER + "\n")
    options = ["--node", "node-1", "--token-file", str(token), "--", *command]
    return [sys.executable, "-IB", str(RECEIVER), *options]


def test_an_alert_of_a_real_alertmanager_has_the_node_relieved(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """Its configuration is the example's, with the port and the token of this test; another
    node's alert does nothing."""
    small_node.add_images(2)
    receiver(tmp_path)
    given = {
        PYTHON: sys.executable,
        "/opt/reclaimd/alert_receiver.py": str(RECEIVER),
        "${CREDENTIALS_DIRECTORY}/token": str(tmp_path / "token"),
        "%H": "node-1",
        INSTALLED: PROGRAM,
        FILE: small_node.configuration(Signal.NODEFS_AVAILABLE, MIB),
        DROP_INS: str(tmp_path),
    }
    command = command_of(EXAMPLES / "alertmanager" / "reclaimd-alert@.service", **given)
    systemd, port = tool("systemd-socket-activate", "systemd"), free_port()
    text = (EXAMPLES / "alertmanager" / "alertmanager.yml").read_text()
    text = text.replace("127.0.0.1:9747", f"127.0.0.1:{port}")
    configuration, log = tmp_path / "alertmanager.yml", tmp_path / "log"
    configuration.write_text(
        text.replace("/etc/alertmanager/reclaimd.token", str(tmp_path / "token"))
    )
    listening = [systemd, "--accept", "--inetd", f"--listen=127.0.0.1:{port}", *command]
    with log.open("w") as opened, subprocess.Popen(listening, stderr=opened) as process:
        with Alertmanager(tmp_path, configuration) as alertmanager:
            for count, node in enumerate(("node-2", "node-1"), 1):
                assert small_node.removed() == []
                alertmanager.fire(alertname="NodeFilesystemSpaceFillingUp", instance=f"{node}:9100")
                assert came_true(lambda: log.read_text().count("died with code 0") == count)  # noqa: B023 # now
        process.terminate()
    assert "satisfied" in log.read_text()
    assert small_node.removed("image")


@rows("""
    bearer  | method | alert                                                            | length  | ended | status
    SECRET  | POST   | {"status": "firing", "labels": {"node": "node-1"}}               |         | 0     | 200
    SECRET  | POST   | {"status": "firing", "labels": {"node": "node-1"}}               |         | 1     | 200
    SECRET  | POST   | {"status": "firing", "labels": {"node": "node-1"}}               |         | 3     | 503
    SECRET  | POST   | {"status": "firing", "labels": {"node": "node-1"}}               |         | 4     | 503
    guessed | POST   | {"status": "firing", "labels": {"node": "node-1"}}               |         |       | 401
    SECRET  | GET    | {"status": "firing", "labels": {"node": "node-1"}}               |         |       | 400
    SECRET  | POST   | {"status": "firing", "labels": {"node": "node-2"}}               |         |       | 200
    SECRET  | POST   | {"status": "resolved", "labels": {"node": "node-1"}}             |         |       | 200
    SECRET  | POST   | {"status": "firing", "labels": {"instance": "node-1.example:9"}} |         |       | 200
    SECRET  | POST   | {"status": "firing", "labels": {"instance": 1}}                  |         |       | 400
    SECRET  | POST   | {"status": "firing"}                                             |         |       | 400
    SECRET  | POST   | DEEP                                                             |         |       | 400
    SECRET  | POST   | []                                                               |         |       | 400
    SECRET  | POST   | {"status": "firing", "labels": {"node": "node-1"}}               | -2      |       | 400
    SECRET  | POST   | {"status": "firing", "labels": {"node": "node-1"}}               | 9999999 |       | 413
    LONG    | POST   | {"status": "firing", "labels": {"node": "node-1"}}               |         |       | 400
            |        |                                                                  |         |       | 400
""")
def test_an_alert_about_the_node_starts_the_command_and_nothing_else_does(
    tmp_path: Path,
    bearer: str,
    method: str,
    alert: str,
    length: int | None,
    ended: int | None,
    status: int,
) -> None:
    """Refused with a status, or accepted without an action. Where the runtime or a filesystem did
    not answer, the Alertmanager may try again (503); remaining pressure raises the alert anew."""
    command = receiver(tmp_path, "sh", "-c", f"touch {tmp_path}/started; exit {ended}")
    body = alert.replace("DEEP", "[" * 100_000)
    if not body.startswith("["):
        body = f'{{"version": "4", "alerts": [{alert}]}}'
    token = bearer.replace("SECRET", BEARER).replace("LONG", "x" * 20_000)
    head = f"{method} / HTTP/1.1\r\nauthorization: Bearer {token}\r\nContent-Length: "
    request = f"{head}{len(body) if length is None else length}\r\n\r\n{body}" if method else ""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(request.encode())
        ours.shutdown(socket.SHUT_WR)
        end = theirs.fileno()
        subprocess.run(
            command, stdin=end, stdout=end, stderr=subprocess.DEVNULL, check=False, timeout=60.0
        )
        theirs.close()
        told = ours.recv(65536)
    assert told.startswith(f"HTTP/1.1 {status} ".encode())
    assert (tmp_path / "started").exists() is (ended is not None)
    if ended is not None:
        assert told.endswith(f"sh ended with {ended}\n".encode())

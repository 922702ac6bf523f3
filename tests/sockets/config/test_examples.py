"""The worked examples run, each on a small node, if this machine has the programs that it needs."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from eviction.configuration.effective import load
from eviction.drill.runtime.private_mounts import unmount
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import (
    ENVIRONMENT,
    PROGRAM,
    answer,
    came_true,
    reclaimd,
    reclaimd_here,
    write_configuration,
)
from tests.repository import ROOT
from tests.sockets.alertmanager import Alertmanager, Inetd
from tests.sockets.mounts import mounted_tmpfs
from tests.tool import tool

EXAMPLES = ROOT / "config" / "examples"
RECEIVER = EXAMPLES / "alertmanager" / "alert_receiver.py"
INSTALLED = "/opt/reclaimd/bin/reclaimd"
FILE, DROP_INS = "/etc/reclaimd/reclaimd.yaml", "/etc/reclaimd/reclaimd.conf.d"
BEARER = "a-secret-of-the-alertmanager"


def run(program: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """An example with this program in place of the installed one."""
    environment = {**ENVIRONMENT, "RECLAIMD": PROGRAM, **variables}
    return subprocess.run(
        [str(program), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=60.0,
    )


# ---- systemd


def installed(directory: Path) -> Path:
    """A unit directory as the comments in the files describe it, with programs
    and files of this machine.
    """
    made = directory / "units"
    shutil.copytree(EXAMPLES / "systemd", made)
    for unit in (
        *(EXAMPLES / "alertmanager").glob("reclaimd-alert*"),
        ROOT / "config" / "systemd" / "reclaimd.service",
    ):
        shutil.copy(unit, made)
    shutil.copytree(EXAMPLES / "k3s" / "reclaimd.service.d", made / "reclaimd.service.d")
    (made / "kubelet.service").write_text("[Service]\nExecStart=/bin/true\n")
    for path in made.rglob("*"):
        if path.is_file():
            text = (
                path.read_text()
                .replace(INSTALLED, PROGRAM)
                .replace("/opt/reclaimd/bin/python3", sys.executable)
            )
            path.write_text(text)
    return made


@pytest.mark.parametrize(
    "unit",
    [
        "reclaimd-reclaim.service",
        "reclaimd-reclaim.timer",
        "kubelet.service",
        "reclaimd-alert.socket",
        "reclaimd-alert@1.service",
        "reclaimd.service",
    ],
)
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path, unit: str) -> None:
    """With the drop-ins beside them; what they name exists."""
    analyzer = tool("systemd-analyze", "systemd")
    units = installed(tmp_path)
    if "@" in unit:
        shutil.copy(units / "reclaimd-alert@.service", units / unit)
    command = [analyzer, "verify", "--man=no", str(units / unit)]
    variables = {**ENVIRONMENT, "SYSTEMD_UNIT_PATH": f"{units}:"}
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


def command_of(unit: Path) -> list[str]:
    """The command that a unit starts."""
    (line,) = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    return shlex.split(line.removeprefix("ExecStart="))


@pytest.mark.parametrize(("above", "code"), [(MIB, 0), (1 << 40, 1)])
def test_the_command_of_the_unit_relieves_or_fails_visibly(
    small_node: SmallNode, tmp_path: Path, above: int, code: int
) -> None:
    """Exit 0 makes the unit inactive, 1 (pressure remains) makes it failed."""
    small_node.add_images(2)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, above)
    words = command_of(EXAMPLES / "systemd" / "reclaimd-reclaim.service")
    given = {INSTALLED: PROGRAM, FILE: file, DROP_INS: str(tmp_path)}
    assert set(given) <= set(words)
    command = [given.get(word, word) for word in words]
    assert command[0] == PROGRAM
    assert reclaimd_here(*command[1:]).returncode == code
    assert small_node.removed("image")


def options_of(words: list[str]) -> list[str]:
    return [word for word in words if word in (FILE, DROP_INS)]


def test_commands_name_the_same_configuration_as_the_daemon() -> None:
    """The same files: otherwise the daemon refuses, and drop-ins do not count."""
    daemon = command_of(ROOT / "config" / "systemd" / "reclaimd.service")
    units = (
        EXAMPLES / "systemd" / "reclaimd-reclaim.service",
        EXAMPLES / "alertmanager" / "reclaimd-alert@.service",
    )
    monitor = json.loads((EXAMPLES / "node-problem-detector" / "reclaim.json").read_text())
    others = [*map(command_of, units), monitor["rules"][0]["args"]]
    assert options_of(daemon) == [FILE, DROP_INS]
    assert [options_of(words) for words in others] == [[FILE, DROP_INS]] * 3


def test_a_kubelet_that_fails_starts_the_unit_that_is_there() -> None:
    """The drop-in names it."""
    drop_in = (EXAMPLES / "systemd" / "kubelet.service.d" / "reclaimd.conf").read_text()
    (name,) = [
        line.partition("=")[2] for line in drop_in.splitlines() if line.startswith("OnFailure=")
    ]
    assert (EXAMPLES / "systemd" / name).exists()


# ---- node-problem-detector


@pytest.mark.parametrize(
    ("above", "code", "line"),
    [(-MIB, 0, "no disk pressure"), (MIB, 0, "no disk pressure"), (1 << 40, 1, "pressure: ")],
)
def test_the_plugin_relieves_before_it_complains(
    small_node: SmallNode, above: int, code: int, line: str
) -> None:
    """0 OK, also after relief, and 1 a problem that is left; one line of at most 80 characters."""
    small_node.add_images(2)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, above)
    process = run(EXAMPLES / "node-problem-detector" / "reclaim.sh", "--config", file)
    assert (process.returncode, process.stderr) == (code, "")
    assert process.stdout.startswith(line)
    assert process.stdout.count("\n") == 1
    assert len(process.stdout.rstrip("\n")) <= 80
    assert bool(small_node.removed("image")) is (above > 0)


def test_a_plugin_without_a_result_reports_unknown(small_node: SmallNode) -> None:
    """Exit 2 and a line: the runtime is down, or the program is missing."""
    file = small_node.configuration(evictionHard={"imagefs.available": "1%"})
    small_node.server.stop()
    plugin = EXAMPLES / "node-problem-detector" / "reclaim.sh"
    away, missing = run(plugin, "--config", file), run(plugin, RECLAIMD="/nonexistent")
    assert (away.returncode, missing.returncode) == (2, 2)
    assert away.stdout.startswith("unknown")
    assert missing.stdout == "reclaimd exited with 127\n"


def test_the_monitor_names_what_is_installed() -> None:
    """The rule's condition is one of its conditions, and its time is enough for a pass."""
    monitor = json.loads((EXAMPLES / "node-problem-detector" / "reclaim.json").read_text())
    (rule,) = monitor["rules"]
    assert rule["condition"] in {condition["type"] for condition in monitor["conditions"]}
    assert Path(rule["path"]).name == "reclaim.sh"
    assert monitor["pluginConfig"]["timeout"] == rule["timeout"] == "5m"


# ---- a CI fleet


def test_space_is_freed_before_a_job(small_node: SmallNode) -> None:
    """As much as requested and not more; if there is enough, nothing is removed."""
    small_node.add_images(4)
    small_node.run(small_node.run_pod("web"))
    file = small_node.configuration()
    hook, room = EXAMPLES / "ci" / "before-job.sh", small_node.available() + 6 * MIB
    first = run(hook, "--config", file, RECLAIMD_ROOM=str(room))
    assert (first.returncode, first.stderr) == (0, "")
    assert small_node.available() >= room
    assert len(small_node.removed("image")) == 2
    assert run(hook, "--config", file, RECLAIMD_ROOM=str(room)).returncode == 0
    assert len(small_node.removed("image")) == 2


def test_a_job_without_space_does_not_begin(small_node: SmallNode) -> None:
    """Exit 1 with a sentence, and the same when the runtime is down."""
    small_node.fill(8 * MIB)
    file = small_node.configuration()
    hook = EXAMPLES / "ci" / "before-job.sh"
    full = run(hook, "--config", file, RECLAIMD_ROOM="99%")
    assert (full.returncode, full.stderr.count("\n")) == (1, 1)
    assert "less than 99% is available for images" in full.stderr
    small_node.server.stop()
    away = run(hook, "--config", file)
    assert away.returncode == 1
    assert "reclaimd exited with 3" in away.stderr


# ---- before a pull


def program(path: Path, *lines: str) -> str:
    """A stand-in for a program that this machine may not have: a script with
    these lines; its path.
    """
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)
    return str(path)


def test_an_image_is_pulled_where_there_is_room(small_node: SmallNode, tmp_path: Path) -> None:
    """Room is made for it, and then it is pulled; with --dry-run neither."""
    small_node.add_images(4)
    file, room = small_node.configuration(), str(small_node.available() + 6 * MIB)
    crictl = program(tmp_path / "crictl", 'echo "$@"')
    hook = EXAMPLES / "pull" / "pull.sh"
    dry = run(hook, "registry.example/model:1", room, "--config", file, "--dry-run", CRICTL=crictl)
    assert (dry.returncode, dry.stdout, small_node.removed()) == (0, "", [])
    pulled = run(hook, "registry.example/model:1", room, "--config", file, "--now", CRICTL=crictl)
    assert (pulled.returncode, pulled.stdout) == (0, "pull registry.example/model:1\n")
    assert len(small_node.removed("image")) == 2
    assert small_node.available() >= int(room)


def test_an_image_without_room_is_not_pulled(small_node: SmallNode, tmp_path: Path) -> None:
    """Exit 1 and a sentence, also while the runtime is down; without an amount exit 2."""
    file, crictl = small_node.configuration(), program(tmp_path / "crictl", 'echo "$@"')
    hook = EXAMPLES / "pull" / "pull.sh"
    words = ("registry.example/model:1", "1Ti", "--config", file, "--now")
    full = run(hook, *words, CRICTL=crictl)
    assert (full.returncode, full.stdout) == (1, "")
    assert (
        "model:1 is not pulled: reclaimd exited with 1, so 1Ti is not available for images"
        in full.stderr
    )
    small_node.server.stop()
    assert "reclaimd exited with 3" in run(hook, *words, CRICTL=crictl).stderr
    assert run(hook, "registry.example/model:1", CRICTL=crictl).returncode == 2


def test_only_nodes_with_room_are_named_by_the_job(small_node: SmallNode, tmp_path: Path) -> None:
    """Two nodes, of which one has the room that is made on it. The job selects the label."""
    small_node.add_images(2)
    file, room = small_node.configuration(), str(small_node.available() + 3 * MIB)
    told = tmp_path / "told"
    kubectl = program(
        tmp_path / "kubectl",
        'case "$1" in',
        '  get) printf "pod-a node-a\\npod-b node-b\\n" ;;',
        '  exec) [ "$4" = pod/pod-a ] || exit 1',
        f'    shift 6; exec "$RECLAIMD" "$@" --now --config {file} ;;',
        f'  *) echo "$@" >> {told} ;;',
        "esac",
    )
    job = EXAMPLES / "kruise" / "image-pull-job.yaml"
    process = run(EXAMPLES / "kruise" / "pre-pull.sh", room, str(job), KUBECTL=kubectl)
    assert process.returncode == 1, process.stderr
    assert f"node-b: no room for {room}" in process.stderr
    assert told.read_text().splitlines() == [
        "label node node-a reclaimd.io/room=true --overwrite",
        "label node node-b reclaimd.io/room-",
        f"apply -f {job}",
    ]
    assert len(small_node.removed("image")) == 1
    found = yaml.safe_load(job.read_text())
    assert (found["apiVersion"], found["kind"]) == ("apps.kruise.io/v1alpha1", "ImagePullJob")
    assert found["spec"]["selector"] == {"matchLabels": {"reclaimd.io/room": "true"}}


def test_the_pods_that_are_asked_are_those_of_the_daemonset() -> None:
    """Their label and namespace are those of the manifests."""
    script = (EXAMPLES / "kruise" / "pre-pull.sh").read_text()
    daemonset = yaml.safe_load(
        (ROOT / "config" / "kubernetes" / "base" / "daemonset.yaml").read_text()
    )
    (label,) = daemonset["spec"]["template"]["metadata"]["labels"].items()
    namespace = yaml.safe_load(
        (ROOT / "config" / "kubernetes" / "base" / "kustomization.yaml").read_text()
    )["namespace"]
    assert f"get pods -n {namespace} -l {'='.join(label)} " in script


# ---- beside k3s


def test_the_configuration_beside_k3s_acts_before_its_kubelet() -> None:
    """Its socket, and every threshold above the 5% that k3s sets."""
    found = load(str(EXAMPLES / "k3s" / "reclaimd.yaml"), {}, {})
    assert found.runtime_endpoint == "unix:///run/k3s/containerd/containerd.sock"
    marks = {str(one.signal): one.mark(1000) for one in found.thresholds}
    assert {signal for signal, mark in marks.items() if mark > 50} == {
        "nodefs.available",
        "imagefs.available",
    }
    assert len(marks) == 4
    assert all(one.hard and one.margin is None for one in found.thresholds)


def test_what_k3s_brings_along_is_kept(small_node: SmallNode) -> None:
    """Its images without a registry are kept; another one is removed."""
    keeps = yaml.safe_load((EXAMPLES / "k3s" / "reclaimd.yaml").read_text())["keepImages"]
    brought = small_node.add_image("docker.io/rancher/mirrored-coredns-coredns:1.10.1")
    other = small_node.add_image("docker.io/library/busybox:1")
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, 1 << 40, keepImages=keeps)
    reclaimd_here("reclaim", "--now", "--config", file)
    assert brought in small_node.images()
    assert other not in small_node.images()


# ---- a program of one's own

PRUNE = EXAMPLES / "program" / "prune-build-cache.sh"


def make_old(path: Path, hours: float) -> None:
    """The file was last written and read so many hours ago."""
    then = time.time() - hours * 3600.0
    os.utime(path, (then, then))


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 64 MiB with a cache of ten files of 5 MiB, the first one used 21
    hours ago and the last one 3.
    """
    disk = tmp_path / "disk"
    mounted_tmpfs(str(disk), 64 * MIB, 1000)
    directory = disk / "cache"
    directory.mkdir(mode=0o700)
    for number in range(10):
        path = directory / f"{number % 2}" / f"file {number}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(5 * MIB))
        make_old(path, 21 - 2 * number)
    yield directory
    unmount(str(disk))


def files_left(cache: Path) -> list[int]:
    """The numbers of the files that are left."""
    return sorted(int(path.name.split()[1]) for path in cache.rglob("file *"))


def pruning(tmp_path: Path, cache: Path) -> str:
    """The drop-in of the example with the places of this test, for a disk that
    needs 20 MiB more than it has.
    """
    installed = tmp_path / PRUNE.name
    shutil.copy(PRUNE, installed)
    text = (EXAMPLES / "program" / "reclaimd.yaml").read_text()
    fields = yaml.safe_load(
        text.replace("/usr/local/bin/prune-build-cache.sh", str(installed)).replace(
            "/var/cache/build", str(cache)
        )
    )
    marks = {
        "evictionHard": {"buildcache.available": "33Mi"},
        "evictionMinimumReclaim": {"buildcache.available": "0"},
    }
    return str(
        write_configuration(
            tmp_path / "c.yaml", **{**fields, "containerRuntimeEndpoint": "none", **marks}
        )
    )


def test_a_build_cache_is_pruned_until_what_is_missing_is_free(tmp_path: Path, cache: Path) -> None:
    """A plan names each file that was not used for 12 hours, with its size; a pass removes as many
    as are needed, the least recently used first."""
    file = pruning(tmp_path, cache)
    plan = answer(reclaimd("plan", "--config", file, "-o", "json"))
    assert [(each["name"], each["size"]) for each in plan["removals"]] == [
        (f"{number % 2}/file {number} (not used lately)", 5 * MIB) for number in range(5)
    ]
    assert files_left(cache) == list(range(10))
    done = reclaimd("reclaim", "--standalone", "--config", file, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert files_left(cache) == [4, 5, 6, 7, 8, 9]
    (function,) = answer(done)["functions"]
    assert (function["name"], function["measured"]["bytes"]) == ("prune-build-cache", 20 * MIB)


def test_what_is_no_plain_file_of_the_cache_alone_stays(tmp_path: Path) -> None:
    """A symlink and what it leads to, a file with two names, a name that JSON would escape, and a
    young file: only the plain old one is planned, and goes."""
    cache, elsewhere = tmp_path / "cache", tmp_path / "elsewhere"
    cache.mkdir()
    elsewhere.mkdir()
    kept = [
        elsewhere / "old",
        cache / "twice",
        cache / 'quo"ted',
        cache / "back\\slash",
        cache / "line\nfeed",
    ]
    young = cache / "young"
    for path in (*kept, cache / "old", young):
        path.write_text("x")
        make_old(path, 13)
    make_old(young, 11)
    os.link(cache / "twice", elsewhere / "twice")
    (cache / "link").symlink_to(elsewhere / "old")
    (cache / "directory").symlink_to(elsewhere)
    missing = {"RECLAIMD_MISSING_BYTES": str(1 << 40), "RECLAIMD_MISSING_INODES": "0"}
    _, *planned = run(PRUNE, str(cache), "12", "plan", **missing).stdout.splitlines()
    assert [json.loads(line)["name"] for line in planned] == ["old"]
    assert run(PRUNE, str(cache), "12", **missing).returncode == 0
    assert not (cache / "old").exists()
    assert all(path.exists() for path in (*kept, young))
    assert (cache / "link").is_symlink()


@pytest.mark.parametrize(("inodes", "left"), [("0", 3), ("2", 1)])
def test_a_build_cache_is_pruned_of_as_many_files_as_are_missing(
    tmp_path: Path, inodes: str, left: int
) -> None:
    """As for bytes; if nothing is missing, nothing goes."""
    for number in range(3):
        (tmp_path / f"{number}").write_text("x")
        make_old(tmp_path / f"{number}", 20 - number)
    done = run(
        PRUNE, str(tmp_path), "12", RECLAIMD_MISSING_BYTES="0", RECLAIMD_MISSING_INODES=inodes
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"][3 - left :]


# ---- an Alertmanager


@pytest.fixture
def pressed(small_node: SmallNode, tmp_path: Path) -> tuple[SmallNode, list[str]]:
    """A node under pressure, and the receiver's command for it as node-1."""
    small_node.add_images(2)
    token = tmp_path / "token"
    token.write_text(BEARER + "\n")
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, MIB)
    words = command_of(EXAMPLES / "alertmanager" / "reclaimd-alert@.service")
    given = {
        "/opt/reclaimd/bin/python3": sys.executable,
        "/opt/reclaimd/alert_receiver.py": str(RECEIVER),
        "${CREDENTIALS_DIRECTORY}/token": str(token),
        "%H": "node-1",
        INSTALLED: PROGRAM,
        FILE: file,
        DROP_INS: str(tmp_path),
    }
    assert set(given) <= set(words)
    return small_node, [given.get(word, word) for word in words]


def test_an_alert_of_a_real_alertmanager_has_the_node_relieved(
    pressed: tuple[SmallNode, list[str]], tmp_path: Path
) -> None:
    """Its configuration is the example's, with the port and the token of this test; another
    node's alert does nothing."""
    small_node, command = pressed
    program = tool("prometheus-alertmanager", "prometheus-alertmanager")
    with Inetd(command, ENVIRONMENT) as inetd:
        text = (EXAMPLES / "alertmanager" / "alertmanager.yml").read_text()
        configuration = tmp_path / "alertmanager.yml"
        configuration.write_text(
            text.replace("127.0.0.1:9747", f"127.0.0.1:{inetd.port}").replace(
                "/etc/alertmanager/reclaimd.token", str(tmp_path / "token")
            )
        )
        with Alertmanager(program, tmp_path, configuration) as alertmanager:
            alertmanager.fire(alertname="NodeFilesystemSpaceFillingUp", instance="node-2:9100")
            assert came_true(lambda: len(inetd.codes) == 1)
            assert small_node.removed() == []
            alertmanager.fire(alertname="NodeFilesystemSpaceFillingUp", instance="node-1:9100")
            assert came_true(lambda: len(inetd.codes) == 2)
        assert inetd.codes == [0, 0]
        assert "satisfied" in inetd.stderr
    assert small_node.removed("image")


def receiver_answer(command: list[str], request: bytes) -> bytes:
    """The receiver's answer to exactly these bytes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(request)
        ours.shutdown(socket.SHUT_WR)
        subprocess.run(
            command,
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=60.0,
        )
        theirs.close()
        return ours.recv(65536)


def webhook(body: bytes, bearer: str = BEARER, method: str = "POST") -> bytes:
    head = (
        f"{method} / HTTP/1.1\r\nauthorization: Bearer {bearer}\r\nContent-Length:"
        f" {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def firing(status: str = "firing", **labels: str) -> bytes:
    return json.dumps({"version": "4", "alerts": [{"status": status, "labels": labels}]}).encode()


def touching(directory: Path) -> tuple[list[str], Path]:
    """The command of a receiver for node-1 that creates a file, and the path of that file."""
    token, started = directory / "token", directory / "started"
    token.write_text(BEARER)
    touch = ["--", "touch", str(started)]
    return [
        sys.executable,
        "-IB",
        str(RECEIVER),
        "--node",
        "node-1",
        "--token-file",
        str(token),
        *touch,
    ], started


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (webhook(firing(node="node-1"), bearer="guessed"), 401),
        (webhook(firing(node="node-1"), method="GET"), 400),
        (webhook(firing(node="node-2")), 200),
        (webhook(firing("resolved", node="node-1")), 200),
        (webhook(firing(instance="node-1.example:9100")), 200),
        (webhook(b"[]"), 400),
        (webhook(b'{"alerts": [{"status": "firing"}]}'), 400),
        (webhook(b'{"alerts": [{"status": "firing", "labels": {"instance": 1}}]}'), 400),
        (webhook(b"[" * 100_000), 400),
        (webhook(b"").replace(b"Content-Length: 0", b"Content-Length: -1"), 400),
        (webhook(b"").replace(b"Content-Length: 0", b"Content-Length: 9999999"), 413),
        (b"", 400),
        (b"x" * 20_000, 400),
    ],
)
def test_what_is_no_alert_about_the_node_starts_nothing(
    tmp_path: Path, request_bytes: bytes, status: int
) -> None:
    """Refused with a status, or accepted without an action."""
    command, started = touching(tmp_path)
    assert receiver_answer(command, request_bytes).startswith(f"HTTP/1.1 {status} ".encode())
    assert not started.exists()


def test_an_alert_about_the_node_starts_the_command(tmp_path: Path) -> None:
    """The same receiver, so that it was the requests above that started nothing."""
    command, started = touching(tmp_path)
    assert receiver_answer(command, webhook(firing(node="node-1"))).startswith(b"HTTP/1.1 200 ")
    assert started.exists()


@pytest.mark.parametrize(("code", "status"), [(0, 200), (1, 200), (3, 503), (4, 503)])
def test_the_alertmanager_tries_again_where_that_may_help(
    tmp_path: Path, code: int, status: int
) -> None:
    """The runtime or a filesystem did not answer:

    503; remaining pressure raises the alert again by itself.
    """
    token = tmp_path / "token"
    token.write_text(BEARER)
    command = [sys.executable, "-IB", str(RECEIVER), "--node", "node-1", "--token-file", str(token)]
    answer = receiver_answer(
        [*command, "--", "sh", "-c", f"exit {code}"], webhook(firing(node="node-1"))
    )
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert answer.endswith(f"sh ended with {code}\n".encode())


def test_every_script_can_be_run() -> None:
    """The files are executable, and the shell finds no error."""
    scripts = sorted(EXAMPLES.rglob("*.sh"))
    assert len(scripts) == 6
    for script in scripts:
        assert os.access(script, os.X_OK)
        subprocess.run(["sh", "-n", str(script)], check=True)

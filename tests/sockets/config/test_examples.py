"""The worked examples run, each on a small node, if this machine has the programs that it needs.

Of the fleet's `plan.sh`, that a real `kubectl exec` gives its answers is tested in
`tests/kubelet/test_daemonset.py`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from eviction.cli.commands import COMMANDS
from eviction.configuration.effective import load
from eviction.drill.private_mounts import unmount
from signals.types import Signal
from tests.expected import expect
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
from tests.schemas import assert_as_described
from tests.sockets.alertmanager import Alertmanager, Inetd
from tests.sockets.config.transcripts import TOLD
from tests.sockets.mounts import mounted_tmpfs
from tests.tool import tool

CONFIG = ROOT / "config"
EXAMPLES = CONFIG / "examples"
RECEIVER = EXAMPLES / "alertmanager" / "alert_receiver.py"
INSTALLED, PYTHON = "/opt/reclaimd/bin/reclaimd", "/opt/reclaimd/bin/python3"
FILE, DROP_INS = "/etc/reclaimd/reclaimd.yaml", "/etc/reclaimd/reclaimd.conf.d"
BEARER = "a-secret-of-the-alertmanager"


def run(program: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """An example with this program in place of the installed one."""
    return subprocess.run(
        [str(program), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**ENVIRONMENT, "RECLAIMD": PROGRAM, **variables},
        timeout=120.0,
    )


def script(path: Path, *lines: str) -> str:
    """A stand-in for a program that this machine may not have; its path."""
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)
    return str(path)


def command_of(unit: Path, **given: str) -> list[str]:
    """The command that a unit starts, with what is given in place of its words."""
    (line,) = re.findall("^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    words = shlex.split(line)
    assert given.keys() <= {*words}
    return [given.get(word, word) for word in words]


def monitor(name: str) -> Any:
    """A configuration of node-problem-detector, whose one rule is about one of its conditions."""
    document = json.loads((CONFIG / name).read_text())
    (rule,) = document["rules"]
    assert rule["condition"] in {condition["type"] for condition in document["conditions"]}
    assert document["pluginConfig"]["max_output_length"] == 80
    return document


# ---- what they name


def test_every_script_can_be_run() -> None:
    """The files are executable, and the shell finds no error."""
    scripts = sorted(EXAMPLES.rglob("*.sh"))
    assert len(scripts) == 7
    for path in scripts:
        assert os.access(path, os.X_OK)
        subprocess.run(["sh", "-n", str(path)], check=True)


def test_systemd_finds_nothing_wrong_with_the_units_of_examples(tmp_path: Path) -> None:
    """As the comments in the files have them installed, with the drop-ins beside them; what they
    name exists, and a kubelet that fails starts the unit that is there."""
    analyzer, units = tool("systemd-analyze", "systemd"), tmp_path / "units"
    shutil.copytree(EXAMPLES / "systemd", units)
    shutil.copytree(EXAMPLES / "k3s" / "reclaimd.service.d", units / "reclaimd.service.d")
    alert = EXAMPLES / "alertmanager"
    for unit in (*alert.glob("reclaimd-alert*"), CONFIG / "systemd" / "reclaimd.service"):
        shutil.copy(unit, units)
    shutil.copy(alert / "reclaimd-alert@.service", units / "reclaimd-alert@1.service")
    (units / "kubelet.service").write_text("[Service]\nExecStart=/bin/true\n")
    for path in units.rglob("*.*"):
        if path.is_file():
            text = path.read_text().replace(INSTALLED, PROGRAM).replace(PYTHON, sys.executable)
            path.write_text(text)
    started = [str(path) for path in units.glob("*.*") if path.is_file() and "@." not in path.name]
    assert len(started) == 6
    process = run(Path(analyzer), "verify", "--man=no", *started, SYSTEMD_UNIT_PATH=f"{units}:")
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")
    drop_in = (units / "kubelet.service.d" / "reclaimd.conf").read_text()
    (name,) = re.findall("^OnFailure=(.*)$", drop_in, re.MULTILINE)
    assert (units / name).exists()


def test_commands_name_the_same_configuration_as_the_daemon() -> None:
    """Otherwise the daemon refuses, and drop-ins do not count. Monitors give a pass its time."""
    reclaims, checks = (
        monitor(f"{name}.json")
        for name in ("examples/node-problem-detector/reclaim", "node-problem-detector/reclaimd")
    )
    for words in (
        command_of(CONFIG / "systemd" / "reclaimd.service"),
        command_of(EXAMPLES / "systemd" / "reclaimd-reclaim.service"),
        command_of(EXAMPLES / "alertmanager" / "reclaimd-alert@.service"),
        reclaims["rules"][0]["args"],
        checks["rules"][0]["args"],
    ):
        assert [word for word in words if word in (FILE, DROP_INS)] == [FILE, DROP_INS]
    assert Path(reclaims["rules"][0]["path"]).name == "reclaim.sh"
    assert reclaims["pluginConfig"]["timeout"] == reclaims["rules"][0]["timeout"] == "5m"
    assert checks["rules"][0]["path"].endswith("/bin/" + Path(PROGRAM).name)


@pytest.mark.parametrize("name", ["kruise/pre-pull.sh", "fleet/plan.sh"])
def test_the_pods_that_are_asked_are_those_of_the_daemonset(name: str) -> None:
    """Their label and namespace are those of the manifests."""
    base = CONFIG / "kubernetes" / "base"
    daemonset = yaml.safe_load((base / "daemonset.yaml").read_text())
    (label,) = daemonset["spec"]["template"]["metadata"]["labels"].items()
    namespace = yaml.safe_load((base / "kustomization.yaml").read_text())["namespace"]
    asked = f"get pods -n {namespace} -l {'='.join(label)} "
    assert asked in (EXAMPLES / name).read_text()


def test_the_configurations_of_examples_mean_what_they_say() -> None:
    """A drop-in wins; beside k3s every threshold of space is above the 5% that k3s sets."""
    annotated, no_kubelet = str(CONFIG / "all-fields.yaml"), {"kubeletConfig": ""}
    found = load(annotated, {}, no_kubelet, directory=str(CONFIG / "reclaimd.conf.d"))
    assert found.effective["margin"] == "8%"
    assert found.keep_images.entries == ("registry.example/base/*",)
    assert found.origins["evictionSoft.nodefs.available"].endswith("10-example.conf")
    found = load(str(EXAMPLES / "k3s" / "reclaimd.yaml"), {}, {})
    assert found.runtime_endpoint == "unix:///run/k3s/containerd/containerd.sock"
    assert len(found.thresholds) == 4
    assert all(one.hard and one.margin is None for one in found.thresholds)
    above = {str(one.signal) for one in found.thresholds if one.mark(1000) > 50}
    assert above == {"nodefs.available", "imagefs.available"}


def test_the_containerfile_is_of_the_wheel_alone() -> None:
    """It copies wheels and nothing of the sources; the command exists."""
    text = (CONFIG / "Containerfile").read_text().replace("\\\n", " ")
    copied = [line.split() for line in re.findall("^(?:COPY|ADD) (.*)", text, re.MULTILINE)]
    assert [words for words in copied if "--from" not in words[0]] == [["*.whl", "/wheels/"]]
    (command,) = re.findall("^CMD (.*)", text, re.MULTILINE)
    assert json.loads(command)[0] in COMMANDS


# ---- hooks: relief before a job, a pull, a complaint

NPD, CI, PULL = "node-problem-detector/reclaim.sh", "ci/before-job.sh", "pull/pull.sh"
MODEL = "registry.example/model:1"
TIB = 1 << 40


@pytest.mark.parametrize(
    ("hook", "words", "above", "down", "code", "said", "removed"),
    [
        (NPD, "--config FILE", -MIB, False, 0, "no disk pressure", 0),
        (NPD, "--config FILE", MIB, False, 0, "no disk pressure", 1),
        (NPD, "--config FILE", TIB, False, 1, "pressure: ", 4),
        (NPD, "--config FILE", MIB, True, 2, "unknown", 0),
        (CI, "--config FILE", -MIB, False, 0, "", 2),
        (CI, "--config FILE --dry-run", -MIB, False, 0, "", 0),
        (CI, "--config FILE", -MIB, True, 1, "reclaimd exited with 3: could not make room", 0),
        (PULL, "MODEL ROOM --config FILE --now", -MIB, False, 0, "pull MODEL", 2),
        (PULL, "MODEL ROOM --config FILE --dry-run", -MIB, False, 0, "", 0),
        (
            PULL,
            "MODEL 64Mi --config FILE --now",
            -MIB,
            False,
            1,
            "MODEL is not pulled: reclaimd exited with 1, so 64Mi is",
            4,
        ),
        (
            PULL,
            "MODEL ROOM --config FILE --now",
            -MIB,
            True,
            1,
            "MODEL is not pulled: reclaimd exited with 3",
            0,
        ),
        (PULL, "MODEL", -MIB, False, 2, "", 0),
    ],
)
def test_a_hook_relieves_and_says_by_its_exit_code_whether_there_is_room(
    small_node: SmallNode,
    tmp_path: Path,
    hook: str,
    words: str,
    above: int,
    down: bool,
    code: int,
    said: str,
    removed: int,
) -> None:
    """As much as requested and not more. Node-problem-detector gets one line of 80 characters: 0
    OK, also after relief, 1 a problem that is left, 2 unknown. A pull follows only then."""
    small_node.add_images(4)
    small_node.run(small_node.run_pod("web"))
    room = small_node.available() + 6 * MIB
    given = {"FILE": small_node.configuration(Signal.IMAGEFS_AVAILABLE, above), "ROOM": str(room)}
    given["MODEL"] = MODEL
    if down:
        small_node.server.stop()
    variables = {"RECLAIMD_ROOM": str(room), "CRICTL": script(tmp_path / "crictl", 'echo "$@"')}
    arguments = [given.get(word, word) for word in words.split()]
    process = run(EXAMPLES / hook, *arguments, **variables)
    assert process.returncode == code, process.stderr
    told = process.stdout + process.stderr
    assert said.replace("MODEL", MODEL) in told
    assert len(small_node.removed("image")) == removed
    if hook == NPD:
        assert (process.stderr, process.stdout.count("\n")) == ("", 1)
        assert len(process.stdout.rstrip("\n")) <= 80
    elif removed == 2:
        assert small_node.available() >= room
        assert run(EXAMPLES / hook, *arguments, **variables).returncode == 0
        assert len(small_node.removed("image")) == 2, "there is enough"
    elif code:
        assert process.stdout == ""


def test_a_hook_without_the_program_or_room_says_so(small_node: SmallNode) -> None:
    """To node-problem-detector it is unknown; a job does not begin."""
    missing = run(EXAMPLES / NPD, RECLAIMD="/nonexistent")
    assert (missing.returncode, missing.stdout) == (2, "reclaimd exited with 127\n")
    small_node.fill(8 * MIB)
    full = run(EXAMPLES / CI, "--config", small_node.configuration(), RECLAIMD_ROOM="99%")
    assert (full.returncode, full.stderr.count("\n")) == (1, 1)
    assert "less than 99% is available for images" in full.stderr


@pytest.mark.parametrize(("above", "code"), [(MIB, 0), (TIB, 1), (-MIB, None)])
def test_the_command_of_the_unit_relieves_or_fails_visibly(
    small_node: SmallNode, tmp_path: Path, above: int, code: int | None
) -> None:
    """Exit 0 makes the unit inactive, 1 (pressure remains) makes it failed. That of the monitor
    only checks: 0 when clear, 1 when a mark is met."""
    small_node.add_images(2)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, above)
    given = {INSTALLED: PROGRAM, FILE: file, DROP_INS: str(tmp_path)}
    (rule,) = monitor("node-problem-detector/reclaimd.json")["rules"]
    checked = reclaimd_here(*[given.get(word, word) for word in rule["args"]])
    assert (checked.returncode, small_node.removed()) == (int(code is not None), [])
    assert len(checked.stdout.rstrip("\n")) <= 80
    if code is not None:
        _, *words = command_of(EXAMPLES / "systemd" / "reclaimd-reclaim.service", **given)
        assert reclaimd_here(*words).returncode == code
        assert small_node.removed("image")


def test_only_nodes_with_room_are_named_by_the_job(small_node: SmallNode, tmp_path: Path) -> None:
    """Two nodes, of which one has the room that is made on it. The job selects the label."""
    small_node.add_images(2)
    file, room = small_node.configuration(), str(small_node.available() + 3 * MIB)
    told = tmp_path / "told"
    kubectl = script(
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


def test_what_k3s_brings_along_is_kept(small_node: SmallNode) -> None:
    """Its images without a registry are kept; another one is removed."""
    keeps = yaml.safe_load((EXAMPLES / "k3s" / "reclaimd.yaml").read_text())["keepImages"]
    brought = small_node.add_image("docker.io/rancher/mirrored-coredns-coredns:1.10.1")
    other = small_node.add_image("docker.io/library/busybox:1")
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, TIB, keepImages=keeps)
    reclaimd_here("reclaim", "--now", "--config", file)
    assert {brought, other} & small_node.images() == {brought}


# ---- a program of one's own

PRUNE = EXAMPLES / "program" / "prune-build-cache.sh"


def make_old(path: Path, hours: float) -> None:
    """The file was last written and read so many hours ago."""
    then = time.time() - hours * 3600.0
    os.utime(path, (then, then))


def test_a_build_cache_is_pruned_until_what_is_missing_is_free(tmp_path: Path) -> None:
    """A plan names each file that was not used for 12 hours, with its size; a pass removes as many
    as are needed, the least recently used first."""
    mounted_tmpfs(str(tmp_path / "disk"), 64 * MIB, 1000)
    cache = tmp_path / "disk" / "cache"
    for number in range(10):
        path = cache / f"{number % 2}" / f"file {number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(5 * MIB))
        make_old(path, 21 - 2 * number)
    cache.chmod(0o700)
    text = (EXAMPLES / "program" / "reclaimd.yaml").read_text()
    text = text.replace(
        "/usr/local/bin/" + PRUNE.name, str(shutil.copy(PRUNE, tmp_path / PRUNE.name))
    )
    fields = yaml.safe_load(text.replace("/var/cache/build", str(cache)))
    fields |= {
        "containerRuntimeEndpoint": "none",
        "evictionHard": {"buildcache.available": "33Mi"},
        "evictionMinimumReclaim": {"buildcache.available": "0"},
    }
    file = str(write_configuration(tmp_path / "c.yaml", **fields))
    try:
        plan = answer(reclaimd("plan", "--config", file, "-o", "json"))
        assert [(each["name"], each["size"]) for each in plan["removals"]] == [
            (f"{number % 2}/file {number} (not used lately)", 5 * MIB) for number in range(5)
        ]
        assert len([*cache.rglob("file *")]) == 10
        done = answer(reclaimd("reclaim", "--standalone", "--config", file, "-o", "json"))
        left = sorted(int(path.name.split()[1]) for path in cache.rglob("file *"))
        assert left == [4, 5, 6, 7, 8, 9]
        (function,) = done["functions"]
        assert (function["name"], function["measured"]["bytes"]) == (PRUNE.stem, 20 * MIB)
    finally:
        unmount(str(tmp_path / "disk"))


def test_what_is_no_plain_old_file_of_the_cache_alone_stays(tmp_path: Path) -> None:
    """A symlink and what it leads to, a file with two names, a name that JSON would escape, and a
    young file: only plain old ones are planned, and as many of them go as are missing."""
    cache, elsewhere = tmp_path / "cache", tmp_path / "elsewhere"
    cache.mkdir()
    elsewhere.mkdir()
    names = (
        "elsewhere/old",
        "cache/twice",
        'cache/quo"ted',
        "cache/back\\slash",
        "cache/line\nfeed",
    )
    kept = [*(tmp_path / name for name in names), cache / "young"]
    old = [cache / f"{number}" for number in range(3)]
    for number, path in enumerate((*kept, *old)):
        path.write_text("x")
        make_old(path, 40 - number)
    make_old(cache / "young", 11)
    os.link(cache / "twice", elsewhere / "twice")
    (cache / "link").symlink_to(elsewhere / "old")
    (cache / "directory").symlink_to(elsewhere)

    def pruned(missing_inodes: int, *plan: str, missing_bytes: int = 0) -> list[str]:
        variables = {"RECLAIMD_MISSING_BYTES": str(missing_bytes)}
        variables["RECLAIMD_MISSING_INODES"] = str(missing_inodes)
        done = run(PRUNE, str(cache), "12", *plan, **variables)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()[1:]

    assert [json.loads(line)["name"] for line in pruned(0, "plan", missing_bytes=TIB)] == [*"012"]
    for inodes, left in ((0, old), (2, old[2:])):
        pruned(inodes)
        assert [path for path in old if path.exists()] == left
    pruned(0, missing_bytes=TIB)
    assert [path for path in (*kept, *old) if path.exists()] == kept
    assert (cache / "link").is_symlink()


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
    program = tool("prometheus-alertmanager", "prometheus-alertmanager")
    with Inetd(command, ENVIRONMENT) as inetd:
        text = (EXAMPLES / "alertmanager" / "alertmanager.yml").read_text()
        text = text.replace("127.0.0.1:9747", f"127.0.0.1:{inetd.port}")
        configuration = tmp_path / "alertmanager.yml"
        configuration.write_text(
            text.replace("/etc/alertmanager/reclaimd.token", str(tmp_path / "token"))
        )
        with Alertmanager(program, tmp_path, configuration) as alertmanager:
            asked = []
            for node in ("node-2", "node-1"):
                assert small_node.removed() == []
                asked.append(node)
                alertmanager.fire(alertname="NodeFilesystemSpaceFillingUp", instance=f"{node}:9100")
                assert came_true(lambda: len(inetd.codes) == len(asked))
        assert inetd.codes == [0, 0]
        assert "satisfied" in inetd.stderr
    assert small_node.removed("image")


def webhook(body: bytes, bearer: str = BEARER, method: str = "POST", length: int = -1) -> bytes:
    head = f"{method} / HTTP/1.1\r\nauthorization: Bearer {bearer}\r\nContent-Length: "
    return f"{head}{len(body) if length == -1 else length}\r\n\r\n".encode() + body


def firing(status: str = "firing", **labels: str) -> bytes:
    return json.dumps({"version": "4", "alerts": [{"status": status, "labels": labels}]}).encode()


ABOUT_US = webhook(firing(node="node-1"))


@pytest.mark.parametrize(
    ("request_bytes", "code", "status"),
    [
        (webhook(firing(node="node-1"), bearer="guessed"), None, 401),
        (webhook(firing(node="node-1"), method="GET"), None, 400),
        (webhook(firing(node="node-2")), None, 200),
        (webhook(firing("resolved", node="node-1")), None, 200),
        (webhook(firing(instance="node-1.example:9100")), None, 200),
        (webhook(b"[]"), None, 400),
        (webhook(b'{"alerts": [{"status": "firing"}]}'), None, 400),
        (webhook(b'{"alerts": [{"status": "firing", "labels": {"instance": 1}}]}'), None, 400),
        (webhook(b"[" * 100_000), None, 400),
        (webhook(b"", length=-2), None, 400),
        (webhook(b"", length=9999999), None, 413),
        (b"", None, 400),
        (b"x" * 20_000, None, 400),
        *((ABOUT_US, code, status) for code, status in ((0, 200), (1, 200), (3, 503), (4, 503))),
    ],
)
def test_an_alert_about_the_node_starts_the_command_and_nothing_else_does(
    tmp_path: Path, request_bytes: bytes, code: int | None, status: int
) -> None:
    """Refused with a status, or accepted without an action. Where the runtime or a filesystem did
    not answer, the Alertmanager may try again (503); remaining pressure raises the alert anew."""
    command = receiver(tmp_path, "sh", "-c", f"touch {tmp_path}/started; exit {code}")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(request_bytes)
        ours.shutdown(socket.SHUT_WR)
        end = theirs.fileno()
        subprocess.run(
            command, stdin=end, stdout=end, stderr=subprocess.DEVNULL, check=False, timeout=60.0
        )
        theirs.close()
        told = ours.recv(65536)
    assert told.startswith(f"HTTP/1.1 {status} ".encode())
    assert (tmp_path / "started").exists() is (code is not None)
    if code is not None:
        assert told.endswith(f"sh ended with {code}\n".encode())


# ---- a fleet

PLAN = EXAMPLES / "fleet" / "plan.sh"
SIDE_BY_SIDE = 4
# It counts how many of it run at a time. The first wait for each other, and who sees that all are
# there notes it: so it is seen that they are asked side by side.
KUBECTL = f"""cd "$FLEET" || exit 9
case "$1" in
  get) [ ! -e forbidden ] || {{ echo 'Error from server (Forbidden): pods is forbidden' >&2; exit 1; }}; cat pods ;;
  exec)
    pod=${{4#pod/}}
    : >"running/$pod"
    ls running | wc -l >>together
    until [ -e met ] || [ "$(ls running | wc -l | tee -a together)" = {SIDE_BY_SIDE} ]; do sleep 0.01; done
    : >met
    shift 5
    echo "$*" >>asked
    [ ! -e "$pod.hangs" ] || {{ rm "running/$pod"; exec sleep 1000; }}
    cat "$pod.said" >&2
    cat "$pod.answer"
    rm "running/$pod"
    exit "$(cat "$pod.code")" ;;
esac
"""


class Fleet:
    """What a second implementation of `kubectl` knows of the nodes, in files."""

    def __init__(self, directory: Path) -> None:
        (directory / "running").mkdir(parents=True)
        self.directory, self.count = directory, 0
        self.kubectl = script(directory / "kubectl", KUBECTL)
        (directory / "pods").touch()

    def add(self, answer: str = "", said: str = "", code: int = 0, phase: str = "Running") -> str:
        """A node, with what `kubectl exec` prints there; its name."""
        pod, node = f"reclaimd-{self.count:03}", f"node-{self.count:03}"
        self.count += 1
        with (self.directory / "pods").open("a") as pods:
            pods.write(f"{pod} {phase} {node}\n")
        for name, text in (("answer", answer), ("said", said), ("code", str(code))):
            (self.directory / f"{pod}.{name}").write_text(text)
        return node

    def plan(self, *options: str) -> subprocess.CompletedProcess[str]:
        """The example, which asks each node for at most five seconds."""
        variables = {"FLEET": str(self.directory), "TMPDIR": str(self.directory)}
        variables |= {"KUBECTL": self.kubectl, "PARALLEL": str(SIDE_BY_SIDE), "PATIENCE": "5s"}
        return run(PLAN, *options, **variables)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """No node yet."""
    tool("jq", "jq")
    return Fleet(tmp_path / "fleet")


PLANS: list[Any] = json.loads((TOLD / "plans.json").read_text())
"""Of a small node: nothing may go; images may; a dead container too; images are under pressure."""


def test_the_plans_of_a_fleet_are_one_table(fleet: Fleet) -> None:
    """Each row is what the plan says, those under pressure first, then those that lose most; who
    does not answer is named with the reason, and holds nobody up; never more are asked at a time
    than allowed."""
    for number in range(24):
        plan = PLANS[number % len(PLANS)]
        assert_as_described(plan)
        fleet.add(json.dumps(plan), "some warning\n", code=number % 2)
    away = "reclaimd: the container runtime was not available: it is down\n"
    fleet.add(said=f"{away}command terminated with exit code 3\n", code=3)
    fleet.add("{}")
    fleet.add(said='Error from server (NotFound): pods "x" not found\n', code=1)
    fleet.add(phase="Pending")
    (fleet.directory / f"reclaimd-{fleet.count:03}.hangs").touch()
    fleet.add()
    process = fleet.plan("--signal", "imagefs.available", "--until", "30%")
    head, *rows, total = process.stdout.splitlines()
    calm = [float(re.findall(r"([\d.]+)MiB", row)[0]) for row in rows if "imagefs" not in row]
    assert ["imagefs" in row for row in rows] == [True] * 6 + [False] * 18
    assert calm == sorted(calm, reverse=True)
    told = [head, *sorted(rows), total, *sorted(process.stderr.splitlines())]
    expect(
        TOLD / "fleet.txt", "\n".join([*map(str.rstrip, told), f"exit {process.returncode}", ""])
    )
    together = (fleet.directory / "together").read_text().split()
    assert max(map(int, together)) == SIDE_BY_SIDE
    asked = (fleet.directory / "asked").read_text().splitlines()
    assert {*asked} == {"reclaimd plan -o json --signal imagefs.available --until 30%"}
    assert not list(fleet.directory.glob("tmp.*"))


def test_a_cluster_that_does_not_answer_fails(fleet: Fleet) -> None:
    """With what kubectl says, and where there is no pod of reclaimd; nothing on stdout."""
    none = fleet.plan()
    (fleet.directory / "forbidden").touch()
    forbidden = fleet.plan()
    assert [(each.returncode, each.stdout) for each in (none, forbidden)] == [(1, "")] * 2
    assert none.stderr == "no pod of reclaimd in kube-system\n"
    assert "Forbidden" in forbidden.stderr

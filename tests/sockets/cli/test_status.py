"""`reclaimd status`, `config` and `reload`, and SIGHUP, as people use them.

No runtime is needed: a daemon without a runtime still observes its own filesystem.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eviction.cli.options import add_configuration
from eviction.cli.run import add_arguments, read_configuration
from eviction.surface.control_socket import ControlServer
from eviction.surface.daemon import Daemon as Loop
from eviction.surface.reload import LoadedConfiguration
from eviction.surface.systemd import Notifier
from eviction.wording.configuration_warnings import NO_THRESHOLD
from eviction.wording.log import Log
from signals.types import KUBELET_SIGNALS
from tests.expected import expect
from tests.nodes.small_node import SmallNode
from tests.printed import VARIES, commands_in, console, expect_console
from tests.reclaimd_process import (
    ENVIRONMENT,
    PATIENCE_SECONDS,
    Daemon,
    answer,
    came_true,
    reclaimd,
    reclaimd_here,
    write_configuration,
)
from tests.repository import ROOT

EXPECTED = Path(__file__).with_name("expected")
REJECTED = "the configuration was not reloaded, the old one stays in force: "
RELOADED = "the configuration was reloaded"
ANY_DISK = (
    *VARIES,
    (r"(available  )\S+", r"\1AMOUNT"),
    (r"(inodesFree  )\S+ inodes", r"\1AMOUNT"),
    (r'("(available|capacity)": )\d+', r"\1AMOUNT"),
    (r'("(device|type|path)": )"[^"]*"', r"\1…"),
    (r"next look in .*", "next look …"),
    (r"\n  \d+(?=\n)", "\n  SIZE"),
    (r'("next_look_\w+": ).*', r"\1…"),
)
"""What differs besides on the machine's own disk."""


class Machine:
    """A directory with a root directory and a configuration, without a runtime."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.control = directory / "run" / "control.sock"
        self.file = directory / "reclaimd.yaml"
        (directory / "kubelet").mkdir()
        self.configure()

    def configure(
        self, hard: dict[str, str] | None = None, name: str = "reclaimd", **fields: object
    ) -> str:
        """Writes a configuration; the path of it."""
        off = {str(each): "0%" for each in KUBELET_SIGNALS if each.filesystem != "containerfs"}
        values: dict[str, object] = {
            "rootDirectory": f"{self.directory}/kubelet",
            "containerRuntimeEndpoint": f"unix://{self.directory}/none.sock",
            "controlSocket": str(self.control),
            "holdOffAfterStart": "1h",
            "kubeletHealthzEndpoint": "",
            "evictionHard": off | (hard or {"nodefs.available": "1Ki"}),
            "pollCeiling": "200ms",
        }
        path = self.directory / f"{name}.yaml"
        return str(write_configuration(path, **{**values, **fields}))

    def kubelets(self, name: str = "kubelet", **fields: object) -> str:
        """The path of a configuration of the kubelet's."""
        path = self.directory / f"{name}-config.yaml"
        head = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
        path.write_text(json.dumps({**head, **fields}))
        return str(path)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command with this configuration."""
        return reclaimd_here(*words, "--config", str(self.file))

    def status(self) -> Any:
        """The status as JSON."""
        return answer(self.command("status", "-o", "json"))

    def has_observed(self) -> bool:
        """Whether the daemon answers, and has made its first observation."""
        return self.command("status").returncode == 0 and bool(self.status()["observations"])

    def marks(self) -> dict[str, str]:
        """Those in force."""
        return {each["signal"]: each["value"] for each in self.status()["thresholds"]}

    @property
    def known(self) -> dict[str, str]:
        """What stands for its paths."""
        return {"CONFIG": str(self.file), "DIRECTORY": str(self.directory)}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine without a daemon."""
    return Machine(tmp_path)


@pytest.fixture
def daemon(machine: Machine) -> Iterator[Daemon]:
    """A daemon on the machine after its first observation."""
    with Daemon("--config", str(machine.file)) as running:
        assert came_true(machine.has_observed)
        yield running


def reloaded(daemon: Daemon, begins: str) -> str:
    """Sends SIGHUP and waits for a message that begins so and is none of those before."""
    before = {id(event) for event in daemon.events}
    daemon.process.send_signal(signal.SIGHUP)
    event = daemon.wait_for(
        lambda event: id(event) not in before and event["message"].startswith(begins)
    )
    return str(event["message"])


def test_without_a_daemon_a_command_that_asks_it_says_so(machine: Machine) -> None:
    """Exit 3 and one sentence with the socket; with an older or another file nobody is told of."""
    expect_console(EXPECTED / "nobody.txt", machine.known)


def test_status_shows_signals_marks_conditions_and_passes(machine: Machine, daemon: Daemon) -> None:
    """As a table and as a document; the control socket is the daemon's alone, and that of a killed
    one is replaced by the next, which takes it along."""
    expect_console(EXPECTED / "status.txt", machine.known, varies=ANY_DISK)
    status = machine.status()
    assert status["heartbeat_age_seconds"] < PATIENCE_SECONDS
    assert status["next_look_seconds"] is None or status["next_look_seconds"] <= 0.2
    assert machine.control.stat().st_mode & 0o777 == 0o600
    daemon.process.kill()
    daemon.process.wait(PATIENCE_SECONDS)
    assert machine.control.exists()
    with Daemon("--config", str(machine.file)) as successor:
        assert came_true(machine.has_observed)
        assert successor.stop() == 0
    assert not machine.control.exists()


@pytest.mark.regression
@pytest.mark.parametrize(
    ("ours", "kubelets", "words"),
    [
        ("1Ki", "1Ki", "no ReclaimPressure, no DiskPressure"),
        ("8Ei", "1Ki", "ReclaimPressure (below our mark), no DiskPressure"),
        (
            "8Ei",
            "8Ei",
            "ReclaimPressure (below our mark), DiskPressure (below the kubelet's own mark)",
        ),
    ],
)
def test_our_mark_and_the_kubelets_are_told_apart(
    machine: Machine, ours: str, kubelets: str, words: str
) -> None:
    """In status, check, log and their JSON: ReclaimPressure is about our mark, DiskPressure about
    the kubelet's."""
    kubelet = machine.kubelets(evictionHard={"nodefs.available": kubelets})
    machine.configure({"nodefs.available": ours}, kubeletConfig=kubelet)
    check = partial(machine.command, "check", "--standalone")
    with Daemon("--config", str(machine.file)) as running:
        assert came_true(machine.has_observed)
        status, text = machine.status(), machine.command("status").stdout
        told = [
            running.logged("ReclaimPressure: nodefs.available "),
            running.logged("the kubelet would report DiskPressure: nodefs.av"),
        ]
    assert told == [ours == "8Ei", kubelets == "8Ei"]
    assert any("so it is never cleared" in each for each in status["warnings"]) == told[0]
    conditions = [*["DiskPressure"] * told[1], *["ReclaimPressure"] * told[0]]
    for document in (status, answer(check("-o", "json"))):
        assert (document["conditions"], document["disk_pressure"]) == (conditions, told[1])
    assert text.startswith(f"{words}; ")
    assert words in check().stdout.splitlines()


def test_a_daemon_without_a_control_socket_does_its_work(machine: Machine) -> None:
    """A file in the place of the directory: a warning, and the loop goes on."""
    machine.control.parent.write_text("")
    with Daemon("--config", str(machine.file)) as running:
        running.wait_for(lambda event: "no control socket: control socket" in event["message"])
        running.wait_for(lambda event: "cannot be asked" in event["message"])


# ---- SIGHUP, and the command


def test_a_reload_is_in_force_or_rejected_with_its_sentence(
    machine: Machine, daemon: Daemon
) -> None:
    """Whatever is wrong with the file, the old thresholds stay; status and doctor tell until a file
    is accepted. Fields that need a restart are named and keep their values."""
    old = {"nodefs.available": "1Ki"}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"margin": "51%"}, "margin: must be between 0% and 50%, but it was '51%'"),
        ({"evictionSoft": {"nodefs.available": "5%"}}, "evictionSoft: nodefs.available: needs a"),
        ({"containerRuntimeEndpoint": "tcp://x:1"}, "tcp://x:1"),
        ({"noSuchField": 1}, "unknown field 'noSuchField'"),
    ]

    def told() -> tuple[str | None, bool, bool]:
        found = answer(machine.command("doctor", "-o", "json"))["findings"]
        warned = f"warning: {REJECTED}" in machine.command("status").stdout
        return machine.status()["reload_problem"], warned, "reload" in [f["check"] for f in found]

    assert told() == (None, False, False)
    message = ""
    for fields, problem in wrong:
        machine.configure({"nodefs.available": "2Ki"}, **fields)
        message = reloaded(daemon, REJECTED)
        assert problem in message
        assert "\n" not in message
    for place in (Path.touch, Path.mkdir, lambda _: None):
        machine.file.unlink()
        place(machine.file)
        reloaded(daemon, REJECTED)
        if machine.file.is_dir():
            machine.file.rmdir()
        machine.configure({"nodefs.available": "1Ki"})
        assert machine.marks() == old
    machine.configure(noSuchField=1)
    assert reloaded(daemon, REJECTED) == message
    machine.configure()  # they read the corrected file, and do not know what the daemon has read
    assert told() == (message, True, True)
    moved = {"rootDirectory": f"{machine.directory}", "controlSocket": "/moved.sock"}
    moved |= {"containerRuntimeEndpoint": "unix:///other.sock", "holdOffAfterStart": "2h"}
    machine.configure({"nodefs.available": "2Ki", "nodefs.inodesFree": "3"}, **moved)
    sentence = reloaded(daemon, "")
    daemon.wait_for(lambda event: all(f in event["message"] for f in (*moved, "need a restart")))
    assert sentence
    machine.configure({"nodefs.available": "2Ki", "nodefs.inodesFree": "3"})
    wanted = {"nodefs.available": "2Ki", "nodefs.inodesFree": "3"}
    assert came_true(lambda: machine.marks() == wanted)
    assert came_true(lambda: told() == (None, False, False))
    where = machine.status()["observations"][0]["filesystem"]["path"]
    assert where == f"{machine.directory}/kubelet"


def test_a_defect_while_reloading_is_logged_and_changes_nothing(small_node: SmallNode) -> None:
    """Arguments that miss what is read from them: one sentence, the old configuration stays, and no
    client is served by the new one."""
    node, stream = small_node.node(), io.StringIO()
    log, before = Log(time.time, stream=stream), node.configuration
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    add_configuration(parser)
    arguments = parser.parse_args(["--config", small_node.configuration()])
    loaded = LoadedConfiguration(partial(read_configuration, arguments), log, Notifier({}, 0))
    loaded.first()
    assert loaded.fingerprint
    loaded.read = partial(read_configuration, argparse.Namespace())
    loaded.reload(Loop(node, log))
    assert f"{REJECTED}AttributeError: " in stream.getvalue()
    assert node.configuration == before
    assert loaded.fingerprint == {}


EARLY = """
import os, signal, sys

class Early:
    def find_spec(self, name, *_):
        if name == "eviction.cli.run":
            os.kill(os.getpid(), signal.SIGHUP)

sys.meta_path.insert(0, Early())
from eviction.__main__ import main
sys.exit(main())
"""


@pytest.mark.regression
def test_a_sighup_during_the_imports_is_remembered(machine: Machine) -> None:
    """A log rotation while the daemon starts: it does not end, and reads its configuration
    again."""
    command = [sys.executable, "-c", EARLY, "run", "--config", str(machine.file)]
    options: Any = {"stderr": subprocess.PIPE, "env": ENVIRONMENT, "text": True}
    with subprocess.Popen(command, **options) as daemon:
        assert daemon.stderr is not None
        assert any(RELOADED in line for line in daemon.stderr), "it has ended"
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(PATIENCE_SECONDS) == 0


def exec_reload(file: str, main_pid: str = "") -> tuple[int, str]:
    """What the unit runs, with this configuration and daemon: exit code and sentence."""
    unit = (ROOT / "config" / "systemd" / "reclaimd.service").read_text()
    (command,) = re.findall(r"^ExecReload=(.*)$", unit, re.MULTILINE)
    program, *words = shlex.split(command)
    assert program == "/opt/reclaimd/bin/reclaimd"
    here = {"/etc/reclaimd/reclaimd.yaml": file, "/etc/reclaimd/reclaimd.conf.d": ""}
    done = reclaimd(*(here.get(word, word) for word in words), MAINPID=main_pid)
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.parametrize("problem", ["", f"{REJECTED}it has a field that there is not"])
def test_systemctl_reload_has_the_answer_of_the_daemon(tmp_path: Path, problem: str) -> None:
    """Which is asked once, by a file that is broken besides, and is sent no signal, which would
    have it read everything twice."""
    control, file, asked = f"{tmp_path}/control.sock", tmp_path / "reclaimd.yaml", []

    def reload(_: object) -> Iterator[dict[str, str]]:
        asked.append("reload")
        yield {"problem": problem}

    server = ControlServer(control, {"reload": reload})
    server.start()
    file.write_text(f"controlSocket: {control}\nnoSuchField: 1\n")
    with subprocess.Popen(["sleep", "600"]) as process:
        told = exec_reload(str(file), str(process.pid))
        assert told == ((1, f"reclaimd: {problem}\n") if problem else (0, ""))
        assert (asked, process.poll()) == (["reload"], None)
        process.kill()
    server.stop()


def test_a_daemon_that_cannot_be_asked_is_sent_the_signal(machine: Machine) -> None:
    """What came of it is not known, so that the reload fails; by hand nobody is sent it."""
    # a suite under nohup would ignore it
    with subprocess.Popen(["env", "--default-signal=HUP", "sleep", "600"]) as process:
        code, sentence = exec_reload(str(machine.file), str(process.pid))
        assert process.wait(60.0) == -signal.SIGHUP
    assert code == 3
    assert sentence.startswith(f"reclaimd: no daemon answers on {machine.control}: ")
    assert f"; SIGHUP was sent to process {process.pid}, and its log says " in sentence


def test_a_daemon_says_what_came_of_a_reload(machine: Machine, daemon: Daemon) -> None:
    """In force once the command has ended; rejected, with its sentence; in force again."""
    for fields, code in (({"dryRun": True}, 0), ({"noSuchField": 1}, 1), ({}, 0)):
        machine.configure(**fields)
        done = machine.command("reload")
        assert (done.returncode, "unknown field 'noSuchField'" in done.stderr) == (code, code == 1)
        assert machine.status()["dry_run"] is (fields != {})


# ---- config


def test_config_prints_values_origins_and_the_ladder(machine: Machine) -> None:
    """Effective values, their origins, what is left to the kubelet, and the marks from the
    highest."""
    kubelet = machine.kubelets(evictionHard={"nodefs.available": "1Mi", "memory.available": "1Gi"})
    machine.configure({"nodefs.available": "2Mi"}, kubeletConfig=kubelet)
    expect_console(
        EXPECTED / "config.txt",
        machine.known,
        varies=[(r"(nodefs.available  )\S+(  \d+\.)", r"\1NOW\2"), (r" {2,}(?=\S)", "  ")],
    )


def test_config_says_what_differs_from_the_defaults_and_whose_it_is(machine: Machine) -> None:
    """By meaning, as 120s is 2m; also a default that the kubelet's file leaves nothing of; of what
    is installed nothing."""
    given: dict[str, Any] = {"imageMinimumGCAge": "120s", "healthzPort": 1}
    kubelet = machine.kubelets(evictionHard={"nodefs.available": "1Mi"}, **given)
    head = {"apiVersion": "reclaimd.io/v1alpha1", "kind": "ReclaimdConfiguration"}
    fields = {"margin": {"percent": "5.0%"}, "keepImages": ["a/b"]}
    machine.file.write_text(json.dumps({**head, **fields}))
    installed = machine.directory / "installed.yaml"
    installed.write_text((ROOT / "config" / "reclaimd.yaml").read_text())
    known = {"KUBELET": kubelet, "INSTALLED": str(installed), **machine.known}
    expect_console(EXPECTED / "config-diff.txt", known, varies=[(r" {2,}(?=\S)", "  ")])
    table = reclaimd_here("config", "--config", str(installed), "--kubelet-config", "").stdout
    yours = {line.split()[0] for line in table.splitlines() if "  yours: " in line}
    assert yours == {"apiVersion", "kind", "kubeletConfig"}


def test_config_and_the_daemon_warn_of_thresholds(machine: Machine) -> None:
    """One that acts later than the kubelet's, one without effect, none at all; a problem of the
    kubelet's file names that. The daemon logs each at its start, and after a reload."""
    late = machine.kubelets(
        evictionHard={"nodefs.available": "2Mi", "containerfs.available": "9Mi"},
        evictionSoft={"memory.available": "2Gi"},
        evictionSoftGracePeriod={"memory.available": "1m"},
    )
    none = machine.kubelets("none", evictionHard={"memory.available": "1Gi"})
    wrong = machine.kubelets("wrong", imageGCHighThresholdPercent=101)
    known = {
        "LATE": machine.configure({"nodefs.available": "1Mi"}, "late", kubeletConfig=late),
        "NONE": machine.configure(None, "none", kubeletConfig=none, evictionHard={}),
        "WRONG": machine.configure(None, "wrong", kubeletConfig=wrong),
        "DIRECTORY": str(machine.directory),
    }
    varies = [*VARIES, (r"(nodefs.available  )\S+(  \d+\.)", r"\1NOW\2")]
    text = console(known, *commands_in(EXPECTED / "config-warnings.txt"), varies=varies)
    expect(EXPECTED / "config-warnings.txt", text)
    containerfs = "containerfs.available: 8Mi has no effect: its threshold follows from nodefs"
    machine.configure(None, kubeletConfig=none, evictionHard={})
    with Daemon("--config", str(machine.file)) as daemon:
        daemon.wait_for(lambda event: event["message"] == NO_THRESHOLD)
        assert came_true(lambda: machine.status()["warnings"] == [NO_THRESHOLD])
        assert f"warning: {NO_THRESHOLD}\n" in machine.command("status").stdout
        machine.configure({"nodefs.available": "1Ki", "containerfs.available": "8Mi"})
        reloaded(daemon, containerfs)


# ---- which configuration, and which daemon


def test_a_command_with_another_configuration_than_the_daemons_says_so(
    machine: Machine, daemon: Daemon, tmp_path: Path
) -> None:
    """One line on stderr; nothing where the files are the same, nor where its own flags make the
    difference."""
    said = "a daemon runs here with another configuration, or with an older version of the same fil"
    other = tmp_path / "other.yaml"
    other.write_bytes(machine.file.read_bytes())
    other.chmod(0o600)
    for command in ("status", "plan", "config", "doctor"):
        same, flags = machine.command(command), machine.command(command, "--root-dir", "/")
        differs = reclaimd_here(command, "--config", str(other))
        assert [said in each.stderr for each in (same, flags, differs)] == [False, False, True]


def test_commands_read_the_file_that_the_environment_names(
    machine: Machine, daemon: Daemon
) -> None:
    """As the daemon of the machine does; an empty name is no file."""
    file = str(machine.file)
    assert reclaimd("status", RECLAIMD_CONFIG=file).returncode == 0
    for words, origin in (([], file), (["--config", ""], "default")):
        done = reclaimd("config", *words, "-o", "json", RECLAIMD_CONFIG=file)
        assert json.loads(done.stdout)["origins"]["controlSocket"] == origin


@pytest.mark.regression
@pytest.mark.parametrize("breaks", ["typo", "writable by all", "no YAML"])
def test_commands_that_only_ask_need_no_valid_configuration(
    machine: Machine, daemon: Daemon, breaks: str
) -> None:
    """The daemon goes on by the old one, and must be stoppable: one sentence says what is wrong,
    and who is asked. What acts is refused with 2."""
    machine.configure(historyFile=str(machine.directory / "history"))
    text = machine.file.read_text()
    machine.file.write_text(text + {"typo": "noSuchField: 1\n", "no YAML": "]\n"}.get(breaks, ""))
    machine.file.chmod(0o666 if breaks == "writable by all" else 0o600)
    expected, varies = (
        EXPECTED / "unusable.txt",
        [*ANY_DISK, (r"CONFIG: .*?(?=\); (asking|reading)|\n)", "CONFIG: WHY")],
    )
    expect(expected, console(machine.known, *commands_in(expected), varies=varies))
    for words in ("status", "top --count 1"):
        done = machine.command(*words.split())
        asks = f"; asking the daemon on {machine.control}\n"
        assert (done.returncode, done.stderr[-len(asks) :]) == (0, asks)
    found = answer(machine.command("doctor", "-o", "json"))
    first = found["findings"][0]
    assert (first["check"], first["level"], found["healthy"]) == ("configuration", "risk", False)
    assert first["evidence"].startswith(f"{machine.file}: ")
    assert "daemon" not in {each["check"] for each in found["findings"]}, "it was asked"


@pytest.mark.regression
def test_a_configuration_that_cannot_be_used_moves_no_pause_without_a_daemon(
    machine: Machine,
) -> None:
    """`resume` removes the stored pause only where the configuration says that it is."""
    stored = machine.directory / "state.json.pause"
    stored.write_text("a pause")
    machine.configure(stateFile=f"{machine.directory}/state.json", noSuchField=1)
    resumed = machine.command("resume")
    assert (resumed.returncode, stored.exists()) == (3, True)
    assert resumed.stderr.endswith(
        "a pause that is stored for its next start stays, as it is not known where\n"
    )


@pytest.mark.regression
def test_a_configuration_that_is_gone_or_hangs_leaves_the_usual_socket(tmp_path: Path) -> None:
    """A FIFO that nobody writes, and no file at all."""
    os.mkfifo(tmp_path / "fifo.yaml")
    for name in ("fifo.yaml", "gone.yaml"):
        done = reclaimd("status", "--config", f"{tmp_path}/{name}")
        sentence = done.stderr.splitlines()[0]
        assert done.returncode != 2
        assert sentence.startswith(
            f"reclaimd: the configuration cannot be used ({tmp_path}/{name}: "
        )
        assert sentence.endswith("; asking the daemon on /run/reclaimd/control.sock")

"""`reclaimd status`, `reclaimd config` and SIGHUP, as people use them.

No runtime is needed: a daemon without a runtime still observes its own filesystem.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eviction.wording.configuration_warnings import NO_THRESHOLD
from tests.reclaimd_process import (
    Daemon,
    answer,
    came_true,
    reclaimd,
    reclaimd_here,
    write_configuration,
)
from tests.repository import ROOT

WITHIN_SECONDS = 15.0  # the machine is shared
OFF = dict.fromkeys(
    ("nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree"), "0%"
)


class Machine:
    """A directory with a root directory and a configuration, without a runtime."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.root = directory / "kubelet"
        self.root.mkdir()
        self.control = directory / "run" / "control.sock"
        self.file = directory / "reclaimd.yaml"
        self.configure()

    def configure(self, hard: dict[str, str] | None = None, **fields: object) -> str:
        """Writes the configuration; the path of it."""
        values: dict[str, object] = {
            "rootDirectory": str(self.root),
            "containerRuntimeEndpoint": f"unix://{self.directory}/none.sock",
            "controlSocket": str(self.control),
            "holdOffAfterStart": "1h",
            "kubeletHealthzEndpoint": "",
            "evictionHard": {**OFF, **(hard or {"nodefs.available": "1Ki"})},
            "pollCeiling": "200ms",
        }
        write_configuration(self.file, **{**values, **fields})
        return str(self.file)

    def status(self, *arguments: str) -> Any:
        """The status as JSON."""
        return answer(reclaimd_here("status", "--config", str(self.file), "-o", "json", *arguments))

    def has_observed(self) -> bool:
        """Whether the daemon answers, and has made its first observation."""
        process = reclaimd_here("status", "--config", str(self.file), "-o", "json")
        return process.returncode == 0 and bool(answer(process)["observations"])

    def marks(self) -> dict[str, str]:
        """The marks of the thresholds in force, from the daemon's status."""
        return {
            threshold["signal"]: threshold["value"] for threshold in self.status()["thresholds"]
        }


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


def reloaded(daemon: Daemon, found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Sends SIGHUP and waits for the event, which is none of those before."""
    before = {id(event) for event in daemon.events}
    daemon.process.send_signal(signal.SIGHUP)
    return daemon.wait_for(lambda event: id(event) not in before and found(event))


def test_status_without_a_daemon_is_exit_3_and_one_sentence(machine: Machine) -> None:
    """It names the socket."""
    process = reclaimd("status", "--config", str(machine.file))
    assert (process.returncode, process.stdout) == (3, "")
    assert (
        process.stderr
        == f"reclaimd: no daemon answers on {machine.control}: No such file or directory\n"
    )


def test_status_shows_signals_marks_conditions_and_passes(machine: Machine, daemon: Daemon) -> None:
    """With a heartbeat of less than the interval."""
    status = machine.status()
    assert (status["conditions"], status["passes"], status["layout"]) == ([], [], None)
    (threshold,) = status["thresholds"]
    assert (threshold["signal"], threshold["effective"], threshold["hard"]) == (
        "nodefs.available",
        1024,
        True,
    )
    assert {"nodefs.available", "nodefs.inodesFree"} <= {
        one["signal"] for one in status["observations"]
    }
    assert status["heartbeat_age_seconds"] < WITHIN_SECONDS
    assert status["next_look_why"]
    assert status["next_look_seconds"] is None or status["next_look_seconds"] <= 0.2
    assert "history" not in status
    text = reclaimd_here("status", "--config", str(machine.file))
    assert text.returncode == 0
    lines = text.stdout.splitlines()
    assert lines[0].startswith("no ReclaimPressure; ")
    assert lines[0].endswith("; layout not known yet")
    assert lines[1].startswith(
        "held off: the kubelet does not answer on /healthz; nothing is removed for another "
    )
    assert lines[2].split() == ["SIGNAL", "AVAILABLE", "MARK", "TIME", "TO", "THE", "MARK"]
    assert lines[3].split()[:1] == ["nodefs.available"]
    assert lines[3].split()[2] == "1.0KiB"
    assert lines[-1] == "no passes yet"


@pytest.mark.regression
@pytest.mark.parametrize(("ours", "kubelets"), [("1Ki", "1Ki"), ("8Ei", "1Ki"), ("8Ei", "8Ei")])
def test_our_mark_and_the_kubelets_are_told_apart(
    machine: Machine, ours: str, kubelets: str
) -> None:
    """In status, check, log and their JSON:

    ReclaimPressure is about our mark, DiskPressure about the kubelet's.
    """
    hard = f"evictionHard: {{nodefs.available: {kubelets}}}\n"
    head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    (machine.directory / "kubelet.yaml").write_text(head + hard)
    machine.configure(
        {"nodefs.available": ours}, kubeletConfig=str(machine.directory / "kubelet.yaml")
    )
    expected = {"ReclaimPressure": ours == "8Ei", "DiskPressure": kubelets == "8Ei"}
    conditions = sorted(name for name, reported in expected.items() if reported)
    words = ", ".join(
        [
            (
                "ReclaimPressure (below our mark)"
                if expected["ReclaimPressure"]
                else "no ReclaimPressure"
            ),
            (
                "DiskPressure (below the kubelet's own mark)"
                if expected["DiskPressure"]
                else "no DiskPressure"
            ),
        ]
    )
    with Daemon("--config", str(machine.file)) as running:
        assert came_true(machine.has_observed)
        status = machine.status()
        text = reclaimd_here("status", "--config", str(machine.file)).stdout
        assert running.logged("ReclaimPressure: nodefs.available ") == expected["ReclaimPressure"]
        assert (
            running.logged("the kubelet would report DiskPressure: nodefs.av")
            == expected["DiskPressure"]
        )
    assert (status["conditions"], status["disk_pressure"]) == (conditions, expected["DiskPressure"])
    assert any("so it is never cleared" in each for each in status["warnings"]) == (ours == "8Ei")
    assert text.startswith(f"{words}; ")
    check = ("check", "--standalone", "--config", str(machine.file))
    document = json.loads(reclaimd_here(*check, "-o", "json").stdout)
    assert (document["conditions"], document["disk_pressure"]) == (
        conditions,
        expected["DiskPressure"],
    )
    assert words in reclaimd_here(*check).stdout.splitlines()


def test_the_control_socket_is_the_daemons_alone_and_goes_with_it(
    machine: Machine, daemon: Daemon
) -> None:
    """Mode 0600; removed at SIGTERM; the one of a killed daemon is replaced by the next daemon."""
    assert machine.control.stat().st_mode & 0o777 == 0o600
    daemon.process.kill()
    daemon.process.wait(WITHIN_SECONDS)
    assert machine.control.exists()
    with Daemon("--config", str(machine.file)) as successor:
        assert came_true(machine.has_observed)
        assert successor.stop() == 0
    assert not machine.control.exists()


def test_a_daemon_without_a_control_socket_does_its_work(machine: Machine) -> None:
    """A file in the place of the directory: a warning, and the loop goes on."""
    machine.control.parent.write_text("")
    with Daemon("--config", str(machine.file)) as running:
        running.wait_for(lambda event: "no control socket: control socket" in event["message"])
        running.wait_for(lambda event: "cannot be asked" in event["message"])
        assert running.stop() == 0


def test_sighup_applies_a_valid_file(machine: Machine, daemon: Daemon) -> None:
    """Status shows the new thresholds."""
    assert machine.marks() == {"nodefs.available": "1Ki"}
    machine.configure({"nodefs.available": "2Ki", "nodefs.inodesFree": "3"})
    reloaded(daemon, lambda event: event["message"] == "the configuration was reloaded")
    wanted = {"nodefs.available": "2Ki", "nodefs.inodesFree": "3"}
    assert came_true(lambda: machine.marks() == wanted)


def test_sighup_with_an_invalid_file_keeps_the_old_thresholds(
    machine: Machine, daemon: Daemon
) -> None:
    """One sentence names the file and what is wrong; a valid file is applied afterwards."""
    invalid: list[tuple[dict[str, object], str]] = [
        ({"margin": "51%"}, "margin: must be between 0% and 50%, but it was '51%'"),
        (
            {"evictionSoft": {"nodefs.available": "5%"}},
            "evictionSoft: nodefs.available: needs a grace period",
        ),
        ({"noSuchField": 1}, "unknown field 'noSuchField'"),
        ({"containerRuntimeEndpoint": "tcp://x:1"}, "tcp://x:1"),
    ]
    for fields, problem in invalid:
        machine.configure({"nodefs.available": "2Ki"}, **fields)
        event = reloaded(daemon, lambda event: "was not reloaded" in event["message"])
        assert event["level"] == "error"
        assert event["message"].startswith(
            "the configuration was not reloaded, the old one stays in force: "
        )
        assert problem in event["message"]
        assert "\n" not in event["message"]
        machine.configure({"nodefs.available": "1Ki"})
        assert machine.marks() == {"nodefs.available": "1Ki"}
    machine.configure({"nodefs.available": "4Ki"})
    reloaded(daemon, lambda event: event["message"] == "the configuration was reloaded")
    assert came_true(lambda: machine.marks() == {"nodefs.available": "4Ki"})


@pytest.mark.regression
def test_a_rejected_reload_is_told_until_one_is_accepted(machine: Machine, daemon: Daemon) -> None:
    """By status and doctor, which read the corrected file, and do not know
    what the daemon has read.
    """
    rejected = "the configuration was not reloaded, the old one stays in force: "

    def told() -> tuple[str | None, bool, bool]:
        text = reclaimd_here("status", "--config", str(machine.file)).stdout
        doctor = reclaimd_here("doctor", "--config", str(machine.file), "-o", "json")
        checks = [finding["check"] for finding in answer(doctor)["findings"]]
        return (
            machine.status()["reload_problem"],
            f"warning: {rejected}" in text,
            "reload" in checks,
        )

    assert told() == (None, False, False)
    machine.configure(noSuchField=1)
    message = reloaded(daemon, lambda event: "was not reloaded" in event["message"])["message"]
    machine.configure()
    assert message.startswith(f"{rejected}{machine.file}: ")
    assert told() == (message, True, True)
    reloaded(daemon, lambda event: event["message"] == "the configuration was reloaded")
    assert came_true(lambda: told() == (None, False, False))


def test_sighup_without_a_file_keeps_the_old_thresholds(machine: Machine, daemon: Daemon) -> None:
    """The file is missing, empty, or a directory."""
    for gone in ("removed", "empty", "directory"):
        machine.file.unlink()
        if gone == "empty":
            machine.file.touch()
        elif gone == "directory":
            machine.file.mkdir()
        reloaded(
            daemon,
            lambda event: "was not reloaded, the old one stays in force: " in event["message"],
        )
        if gone == "directory":
            machine.file.rmdir()
        machine.configure()
        assert machine.marks() == {"nodefs.available": "1Ki"}, gone


def test_sighup_names_the_fields_that_need_a_restart(machine: Machine, daemon: Daemon) -> None:
    """They keep their values; the thresholds of the same file are applied."""
    other = machine.directory / "other"
    other.mkdir()
    moved = str(machine.directory / "moved.sock")
    machine.configure(
        {"nodefs.available": "2Ki"},
        rootDirectory=str(other),
        containerRuntimeEndpoint=f"unix://{machine.directory}/other.sock",
        controlSocket=moved,
        holdOffAfterStart="2h",
    )
    event = reloaded(daemon, lambda event: "need a restart" in event["message"])
    for field in (
        "rootDirectory",
        "containerRuntimeEndpoint",
        "controlSocket",
        "holdOffAfterStart",
    ):
        assert field in event["message"]
    assert not os.path.exists(moved)
    machine.configure({"nodefs.available": "2Ki"})
    assert came_true(lambda: machine.marks() == {"nodefs.available": "2Ki"})
    assert machine.status()["observations"][0]["filesystem"]["path"] == str(machine.root)


def kubelets_file(machine: Machine, **fields: object) -> str:
    """A kubelet configuration with imagefs thresholds switched off."""
    path = machine.directory / "kubelet.yaml"
    head = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    path.write_text(json.dumps({**head, **fields}))
    return str(path)


def test_config_prints_values_origins_and_the_ladder(machine: Machine) -> None:
    """As JSON: effective values, their origins, what is left to the kubelet, and
    the marks from the highest.
    """
    kubelet = kubelets_file(
        machine, evictionHard={"nodefs.available": "1Mi", "memory.available": "1Gi"}
    )
    machine.configure({"nodefs.available": "2Mi"}, kubeletConfig=kubelet)
    process = reclaimd_here(
        "config", "--config", str(machine.file), "-o", "json", "--image-gc-high-threshold", "90"
    )
    assert (process.returncode, process.stderr) == (0, "")
    found = answer(process)
    assert found["values"]["evictionHard"]["nodefs.available"] == "2Mi"
    assert found["values"]["imageGCHighThresholdPercent"] == 90
    assert found["origins"]["evictionHard.nodefs.available"] == str(machine.file)
    assert found["origins"]["evictionHard.memory.available"] == kubelet
    assert found["origins"]["imageGCHighThresholdPercent"] == "flags"
    assert found["origins"]["margin.atMost"] == "default"
    assert found["left_to_kubelet"] == {
        "memory.available": "1Gi",
    }
    assert found["ladder"] == [
        {"signal": "nodefs.available", "mark": 2 << 20, "what": "hard 2Mi", "whose": "reclaimd"},
        {"signal": "nodefs.available", "mark": 1 << 20, "what": "hard 1Mi", "whose": "kubelet"},
    ]
    text = reclaimd_here("config", "--config", str(machine.file)).stdout.splitlines()
    assert text[0].split() == ["FIELD", "VALUE", "DEFAULT", "ORIGIN"]
    shown = {line.split()[0]: line.split()[1:] for line in text if line}
    assert shown["evictionHard.nodefs.available"] == ["2Mi", "10%", "yours:", str(machine.file)]
    assert shown["evictionHard.memory.available"] == ["1Gi", "100Mi", "kubelet:", kubelet]
    assert shown["margin.percent"] == ["5%", "5%", "default"]
    assert shown["margin.atMost"] == ["20Gi", "20Gi", "default"]
    assert any(
        line.split()[:1] == ["memory.available"] and line.endswith("left to the kubelet")
        for line in text
    )
    assert ["SIGNAL", "NOW", "MARK", "WHOSE", "WHAT"] in [line.split() for line in text]


def test_config_says_what_differs_from_the_defaults_and_whose_it_is(tmp_path: Path) -> None:
    """By meaning, as 120s is 2m; also a default that the kubelet's file leaves nothing of. A
    program gets the same fields, with their defaults."""
    machine = Machine(tmp_path)
    kubelet = kubelets_file(
        machine, evictionHard={"nodefs.available": "1Mi"}, imageMinimumGCAge="120s", healthzPort=1
    )
    arguments = ("config", "--diff", "--config", str(machine.file), "--kubelet-config", kubelet)
    head = {"apiVersion": "reclaimd.io/v1alpha1", "kind": "ReclaimdConfiguration"}
    machine.file.write_text(
        json.dumps({**head, "margin": {"percent": "5.0%"}, "keepImages": ["a/b"]})
    )
    values = answer(reclaimd_here(*arguments, "-o", "json"))
    assert values["values"].keys() == values["defaults"].keys()
    assert values["values"].keys() == {
        "kubeletConfig",
        "evictionHard",
        "keepImages",
        "kubeletHealthzEndpoint",
    }
    lines = [re.split("  +", line) for line in reclaimd_here(*arguments).stdout.splitlines()]
    assert lines[0] == ["FIELD", "VALUE", "DEFAULT", "ORIGIN"]
    assert lines[1:] == [
        ["kubeletConfig", kubelet, "-", "yours: flags"],
        ["evictionHard.memory.available", "-", "100Mi", "not set"],
        ["evictionHard.nodefs.available", "1Mi", "10%", f"kubelet: {kubelet}"],
        ["evictionHard.nodefs.inodesFree", "-", "5%", "not set"],
        ["evictionHard.imagefs.available", "-", "15%", "not set"],
        ["evictionHard.imagefs.inodesFree", "-", "5%", "not set"],
        ["keepImages", "a/b", "-", f"yours: {machine.file}"],
        ["kubeletHealthzEndpoint", "127.0.0.1:1", "127.0.0.1:10248", f"kubelet: {kubelet}"],
    ]


def test_config_with_what_is_installed_differs_in_nothing(tmp_path: Path) -> None:
    """Each value is a default, but for the two lines that say what the file is."""
    file = tmp_path / "reclaimd.yaml"
    file.write_text((ROOT / "config" / "reclaimd.yaml").read_text())
    arguments = ("config", "--config", str(file), "--kubelet-config", "")
    _, *differing = reclaimd_here(*arguments, "--diff").stdout.splitlines()
    assert [re.split("  +", line) for line in differing] == [
        ["kubeletConfig", '""', "-", "yours: flags"]
    ]
    table = reclaimd_here(*arguments).stdout.partition("\n\n")[0]
    yours = {line.split()[0] for line in table.splitlines() if "  yours: " in line}
    assert yours == {"apiVersion", "kind", "kubeletConfig"}


def test_config_warns_of_a_threshold_that_acts_later_than_the_kubelets(machine: Machine) -> None:
    """On stderr, with both marks; stdout is still a document. The daemon logs it too, once."""
    kubelet = kubelets_file(machine, evictionHard={"nodefs.available": "2Mi"})
    machine.configure({"nodefs.available": "1Mi"}, kubeletConfig=kubelet)
    process = reclaimd_here("config", "--config", str(machine.file), "-o", "json")
    assert process.returncode == 0
    assert (
        process.stderr
        == "warning: nodefs.available: the mark of 1Mi = 1.0MiB acts later than the kubelet's of"
        " 2Mi = 2.0MiB\n"
    )
    assert answer(process)["values"]["kubeletConfig"] == kubelet


NO_EFFECT = (
    "has no effect: its threshold follows from nodefs, or from imagefs where that is dedicated"
)


def test_config_reports_thresholds_without_effect_and_those_left_to_the_kubelet(
    machine: Machine,
) -> None:
    """A threshold of containerfs is a warning and no mark; hard and soft memory
    thresholds are both listed.
    """
    kubelet = kubelets_file(
        machine,
        evictionHard={
            "nodefs.available": "1Mi",
            "containerfs.available": "9Mi",
            "memory.available": "1Gi",
        },
        evictionSoft={"memory.available": "2Gi"},
        evictionSoftGracePeriod={"memory.available": "1m"},
    )
    machine.configure({"nodefs.available": "2Mi"}, kubeletConfig=kubelet)
    process = reclaimd_here("config", "--config", str(machine.file), "-o", "json")
    assert process.returncode == 0
    assert (
        process.stderr == f"warning: containerfs.available: 9Mi + 5% (at most 20Gi) {NO_EFFECT}\n"
    )
    found = answer(process)
    assert found["left_to_kubelet"]["memory.available"] == "1Gi, 2Gi (soft)"
    assert {rung["mark"] for rung in found["ladder"]} == {2 << 20, 1 << 20}


def test_the_daemon_logs_thresholds_without_effect(machine: Machine) -> None:
    """At its start, and after a reload."""
    machine.configure({"nodefs.available": "1Ki", "containerfs.available": "8Mi"})
    with Daemon("--config", str(machine.file)) as daemon:
        daemon.wait_for(lambda event: event["message"] == f"containerfs.available: 8Mi {NO_EFFECT}")
        machine.configure({"nodefs.available": "1Ki", "containerfs.available": "9Mi"})
        reloaded(
            daemon, lambda event: event["message"] == f"containerfs.available: 9Mi {NO_EFFECT}"
        )


def test_a_daemon_without_a_threshold_says_so(machine: Machine) -> None:
    """A kubelet's file that sets `evictionHard` for memory alone: at the start, in
    the status, and by `config`.
    """
    kubelet = kubelets_file(machine, evictionHard={"memory.available": "1Gi"})
    machine.configure(kubeletConfig=kubelet, evictionHard={})
    with Daemon("--config", str(machine.file)) as daemon:
        daemon.wait_for(
            lambda event: event["message"] == NO_THRESHOLD and event["level"] == "warning"
        )
        assert came_true(lambda: machine.status()["warnings"] == [NO_THRESHOLD])
        text = reclaimd_here("status", "--config", str(machine.file)).stdout
        assert f"warning: {NO_THRESHOLD}\n" in text
    assert (
        f"warning: {NO_THRESHOLD}\n"
        in reclaimd_here("config", "--config", str(machine.file)).stderr
    )


def test_an_invalid_configuration_is_one_sentence(machine: Machine) -> None:
    """Exit 2; the sentence names the kubelet's file if the problem is there."""
    kubelet = kubelets_file(machine, imageGCHighThresholdPercent=101)
    machine.configure(kubeletConfig=kubelet)
    process = reclaimd_here("config", "--config", str(machine.file))
    assert (process.returncode, process.stdout) == (2, "")
    problem = "imageGCHighThresholdPercent: must be at most 100, but it was 101"
    assert process.stderr == f"reclaimd: {kubelet}: {problem}\n"


def test_a_command_with_another_configuration_than_the_daemons_says_so(
    machine: Machine, daemon: Daemon, tmp_path: Path
) -> None:
    """One line on stderr; nothing where the files are the same, nor where its own
    flags make the difference.
    """
    said = (
        "a daemon runs here with another configuration, or with an older version of the same files"
    )
    other = tmp_path / "other.yaml"
    other.write_bytes(machine.file.read_bytes())
    other.chmod(0o600)
    for command in ("status", "plan", "config", "doctor"):
        assert said not in reclaimd_here(command, "--config", str(machine.file)).stderr
        assert (
            said
            not in reclaimd_here(command, "--config", str(machine.file), "--root-dir", "/").stderr
        )
        assert said in reclaimd_here(command, "--config", str(other)).stderr


def test_commands_read_the_file_that_the_environment_names(
    machine: Machine, daemon: Daemon
) -> None:
    """As the daemon of the machine does; an empty name is no file."""
    assert reclaimd("status", RECLAIMD_CONFIG=str(machine.file)).returncode == 0
    found = reclaimd("config", "-o", "json", RECLAIMD_CONFIG=str(machine.file))
    assert json.loads(found.stdout)["origins"]["controlSocket"] == str(machine.file)
    none = reclaimd("config", "--config", "", "-o", "json", RECLAIMD_CONFIG=str(machine.file))
    assert json.loads(none.stdout)["origins"]["controlSocket"] == "default"


def typo(file: Path) -> None:
    """A field that there is not."""
    file.write_text(f"{file.read_text()}noSuchField: 1\n")


def writable_by_all(file: Path) -> None:
    """It is not trusted."""
    file.chmod(0o666)


def no_yaml(file: Path) -> None:
    """Nothing after the first lines can be read as YAML."""
    file.write_text(f"{file.read_text()}]\n")


@pytest.mark.regression
@pytest.mark.parametrize("breaks", [typo, writable_by_all, no_yaml])
def test_commands_that_only_ask_need_no_valid_configuration(
    machine: Machine, daemon: Daemon, breaks: Callable[[Path], None]
) -> None:
    """The daemon goes on by the old one, and must be stoppable: one sentence says what
    is wrong, and who is asked.
    """
    machine.configure(historyFile=str(machine.directory / "history"))
    breaks(machine.file)
    asked = f"; asking the daemon on {machine.control}\n"
    file = ("--config", str(machine.file))
    for command in ("pause --for 1m", "status", "top --count 1", "resume"):
        done = reclaimd_here(*command.split(), *file)
        sentence, *others = done.stderr.splitlines(keepends=True)
        assert (done.returncode, len(others)) == (
            0,
            command.startswith("pause"),
        ), "stateFile is empty"
        assert sentence.startswith(f"reclaimd: the configuration cannot be used ({machine.file}: ")
        assert sentence.endswith(asked)
        assert done.stdout.startswith("the pause until ") == (command == "resume")
    history = reclaimd_here("history", *file)
    assert history.returncode == 0
    assert f"; reading the history {machine.directory / 'history'}\n" in history.stderr
    found = answer(reclaimd_here("doctor", *file, "-o", "json"))
    first = found["findings"][0]
    assert (first["check"], first["level"], found["healthy"]) == ("configuration", "risk", False)
    assert first["evidence"].startswith(f"{machine.file}: ")
    assert "daemon" not in {each["check"] for each in found["findings"]}, (
        "it was asked on its socket"
    )


@pytest.mark.regression
def test_a_configuration_that_cannot_be_used_moves_no_pause_without_a_daemon(
    machine: Machine,
) -> None:
    """`resume` removes the stored pause only where the configuration says that it
    is; 3, and 2 for what acts.
    """
    state = machine.directory / "state.json"
    machine.configure(stateFile=str(state))
    stored = Path(f"{state}.pause")
    stored.write_text("a pause")
    typo(machine.file)
    resumed = reclaimd_here("resume", "--config", str(machine.file))
    assert (resumed.returncode, stored.exists()) == (3, True)
    assert resumed.stderr.endswith(
        "a pause that is stored for its next start stays, as it is not known where\n"
    )
    for command in ("reclaim --standalone", "plan", "check --standalone", "config", "why x"):
        assert reclaimd_here(*command.split(), "--config", str(machine.file)).returncode == 2, (
            command
        )


@pytest.mark.regression
def test_a_configuration_that_is_gone_or_hangs_leaves_the_usual_socket(tmp_path: Path) -> None:
    """A FIFO that nobody writes, and no file at all."""
    fifo = tmp_path / "fifo.yaml"
    os.mkfifo(fifo)
    for file in (fifo, tmp_path / "gone.yaml"):
        done = reclaimd("status", "--config", str(file))
        assert done.returncode != 2
        sentence = done.stderr.splitlines()[0]
        assert sentence.startswith(f"reclaimd: the configuration cannot be used ({file}: ")
        assert sentence.endswith("; asking the daemon on /run/reclaimd/control.sock")

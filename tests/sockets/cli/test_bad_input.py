"""Invalid input: the exit code, exactly one sentence on stderr that names the
mistake, and nothing removed.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from signals.types import Signal
from tests.nodes.faults import Fail
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, answer, reclaimd, reclaimd_here

HEAD = "apiVersion: reclaimd.io/v1alpha1\nkind: ReclaimdConfiguration\n"
CONFIG = "CONFIG"  # stands for the path of a good configuration, under pressure

# Arguments, the exit code, and texts that the sentence holds.
ARGUMENTS: dict[str, tuple[list[str], int, list[str]]] = {
    "an unknown command": (["clean"], 2, ["clean", "reclaim"]),
    "an unknown option": (["reclaim", "--force"], 2, ["--force"]),
    "an abbreviated option": (["reclaim", "--dry"], 2, ["--dry"]),
    "an unknown signal": (["reclaim", "--signal", "rootfs.available"], 2, ["rootfs.available", "nodefs.available"]),
    "until without a signal": (["reclaim", "--config", CONFIG, "--until", "5%"], 2, ["--until", "--signal"]),
    "an until that is no amount": (
        ["reclaim", "--config", CONFIG, "--signal", "nodefs.available", "--until", "much"], 2,
        ["--until", "'much'", "500Mi"],
    ),
    "an until without a unit": (
        ["reclaim", "--config", CONFIG, "--signal", "nodefs.available", "--until", "12"], 2,
        ["--until", "'12'", "at least 1Mi"],
    ),
    "an until above 100%": (
        ["reclaim", "--config", CONFIG, "--signal", "nodefs.available", "--until", "101%"], 2,
        ["--until", "101%", "100%"],
    ),
    "a file that is not there": (["reclaim", "--config", "/nowhere.yaml"], 2, ["/nowhere.yaml", "No such file"]),
    "a directory as file": (["check", "--config", "/"], 2, ["Is a directory"]),
    "hard: no pair": (["check", "--eviction-hard", "nodefs.available"], 2, ["--eviction-hard", "signal<value"]),
    "hard: wrong operator": (["check", "--eviction-hard", "nodefs.available=10%"], 2, ["--eviction-hard", "<"]),
    "hard: unknown signal": (["check", "--eviction-hard", "memory.free<1Gi"], 2, ["memory.free", "nodefs"]),
    "hard: no amount": (["check", "--eviction-hard", "nodefs.available<1GiB"], 2, ["1GiB", "500Mi"]),
    "hard: a negative amount": (["check", "--eviction-hard", "nodefs.available<-1Gi"], 2, ["-1Gi", "above 0"]),
    "a wrong percentage": (["check", "--image-gc-high-threshold", "120"], 2, ["imageGCHighThresholdPercent", "100"]),
    "low above high": (["check", "--image-gc-low-threshold", "90"], 2, ["imageGCLowThresholdPercent", "85"]),
    "a period without a unit": (
        ["check", "--eviction-pressure-transition-period", "300"], 2, ["evictionPressureTransitionPeriod", "30s"],
    ),
    "a relative root": (["check", "--root-dir", "kubelet"], 2, ["rootDirectory", "absolute"]),
    "an endpoint that is tcp": (["check", "--container-runtime-endpoint", "tcp://1.2.3.4"], 2, ["tcp", "unix:///"]),
    "an endpoint too long": (
        ["check", "--container-runtime-endpoint", "unix:///" + "x" * 120], 2, ["107 bytes"],
    ),
    "a root that is not there": (["run", "--root-dir", "/nowhere/kubelet"], 2, ["/nowhere/kubelet", "No such file"]),
    "a socket that is not there": (
        ["reclaim", "--config", CONFIG, "--container-runtime-endpoint", "/nowhere.sock"], 3, ["/nowhere.sock"],
    ),
    "a plan without a runtime": (
        ["plan", "--config", CONFIG, "--container-runtime-endpoint", "/nowhere.sock"], 3, ["/nowhere.sock"],
    ),
    "nothing readable": (
        ["reclaim", "--root-dir", "/nowhere", "--container-runtime-endpoint", "/nowhere.sock"], 4, ["/nowhere"],
    ),
    "an unknown scenario": (["drill", "no-such-drill"], 2, ["no-such-drill", "drill --list"]),
    "an unknown form of output": (["check", "-o", "yaml"], 2, ["yaml", "json"]),
}  # fmt: skip

# Text of the file below the head, and texts that the sentence holds besides the name of the file.
FILES: dict[str, tuple[str, list[str]]] = {
    "an unknown field": ("evictionhard: {}", ["evictionhard", "evictionHard"]),
    "a field that stands twice": ("extent: all\nextent: enough", ["extent", "twice"]),
    "a number for a text": ("rootDirectory: 12", ["rootDirectory", "12"]),
    "a text for a number": ("parallelRemovals: two", ["parallelRemovals", "two"]),
    "a number out of bounds": ("parallelRemovals: 0", ["parallelRemovals", "0"]),
    "an unknown choice": ("extent: most", ["extent", "most", "enough"]),
    "an unknown signal": ("evictionHard: {rootfs.available: 5%}", ["rootfs.available", "nodefs"]),
    "a value without quotes": (
        "evictionHard: {nodefs.available: 10}",
        ["evictionHard", "nodefs.available", "10"],
    ),
    "not a number": ("evictionHard: {nodefs.available: .nan}", ["nodefs.available", ".nan"]),
    "a negative duration": ("imageMinimumGCAge: -1m", ["imageMinimumGCAge", "-1m"]),
    "a rate of nothing": ("assumedFillRate: '0'", ["assumedFillRate", "0"]),
    "a floor above the ceiling": ("pollFloor: 20s", ["pollFloor", "pollCeiling"]),
    "an alias": ("evictionHard: &a {}\nevictionMinimumReclaim: *a", ["alias"]),
    "a tag": ("extent: !!python/object/apply:os.system [id]", ["tag"]),
    "broken YAML": ("extent: [", ["line"]),
    "a list": ("- extent", ["YAML"]),
    "two documents": ("---\nextent: all", ["more than one document"]),
    "an endpoint without a path": ("containerRuntimeEndpoint: unix://", ["unix:///"]),
}


def assert_one_sentence(stderr: str, *texts: str) -> None:
    """Asserts exactly one sentence, without a traceback, that contains these texts."""
    assert stderr.count("\n") == 1, stderr
    assert stderr.endswith("\n")
    assert "Traceback" not in stderr
    for text in texts:
        assert text in stderr


@pytest.fixture
def pressured(small_node: SmallNode) -> tuple[SmallNode, str]:
    """A node under pressure with something to remove, and its configuration."""
    small_node.add_images(2)
    small_node.run(small_node.run_pod("web"))
    return small_node, small_node.configuration(Signal.NODEFS_AVAILABLE, above=40 * MIB)


@pytest.mark.parametrize("wrong", ARGUMENTS)
def test_a_wrong_command_line_is_one_sentence(pressured: tuple[SmallNode, str], wrong: str) -> None:
    """The exit code of the table, the sentence on stderr, nothing on stdout and nothing removed."""
    small_node, configuration = pressured
    arguments, code, texts = ARGUMENTS[wrong]
    process = reclaimd_here(*(configuration if each == CONFIG else each for each in arguments))
    assert process.returncode == code, process.stderr
    assert process.stdout == ""
    assert_one_sentence(process.stderr, *texts)
    assert small_node.removed() == []


@pytest.mark.parametrize("wrong", FILES)
def test_a_wrong_file_is_one_sentence_with_its_name(tmp_path: Path, wrong: str) -> None:
    """Every command exits with 2 before it reads anything else."""
    text, texts = FILES[wrong]
    path = tmp_path / "reclaimd.yaml"
    path.write_text(HEAD + text + "\n")
    process = reclaimd_here("check", "--config", str(path))
    assert process.returncode == 2, process.stdout
    assert process.stdout == ""
    assert_one_sentence(process.stderr, *texts)
    if wrong != "an endpoint without a path":
        assert str(path) in process.stderr


@pytest.mark.parametrize("command", ["run", "reclaim", "plan", "check"])
def test_every_command_refuses_a_wrong_file(tmp_path: Path, command: str) -> None:
    """The daemon too: no part of an invalid configuration is used."""
    path = tmp_path / "reclaimd.yaml"
    path.write_text("kind: KubeletConfiguration\n")
    run = reclaimd if command == "run" else reclaimd_here
    process = run(command, "--config", str(path))
    assert process.returncode == 2
    assert_one_sentence(process.stderr, str(path), "apiVersion", "reclaimd.io/v1alpha1")


def test_a_file_that_is_too_large_or_not_text_is_refused(tmp_path: Path) -> None:
    """Over 1 MiB, and bytes that are not UTF-8: one sentence each."""
    for name, data, text in (
        ("large", b"#" * (1 << 20) + b"\n", "1048576"),
        ("bytes", b"\xff\xfe", "UTF-8"),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        process = reclaimd_here("check", "--config", str(path))
        assert process.returncode == 2
        assert_one_sentence(process.stderr, str(path), text)


def test_a_wrong_endpoint_in_the_environment_is_refused(small_node: SmallNode) -> None:
    """The environment is used where no flag is given, and is checked in the same way."""
    process = reclaimd("check", CONTAINER_RUNTIME_ENDPOINT="npipe://x")
    assert process.returncode == 2
    assert_one_sentence(process.stderr, "npipe", "unix:///")


HOSTILE = "evil\n2026-01-01T00:00:00Z info started\x1b[2J\x1b]0;owned\x07\u202e"


def test_hostile_names_stay_one_line_in_tables(small_node: SmallNode) -> None:
    """A pod named with newlines and escape sequences adds no line to a table and sends
    no commands to a terminal.
    """
    small_node.add_images(1)
    small_node.gone_pod(HOSTILE.replace("/", "_"))
    plan = reclaimd_here("plan", "--config", small_node.configuration())
    assert plan.returncode == 0
    lines = plan.stdout.splitlines()
    assert sum("evil" in line for line in lines) == 2, "its container and its sandbox"
    assert not any(line.startswith("2026-01-01") for line in lines)
    assert "\x1b" not in plan.stdout
    assert "\x07" not in plan.stdout
    assert "\u202e" not in plan.stdout
    document = answer(reclaimd_here("plan", "--config", small_node.configuration(), "-o", "json"))
    names = [outcome["name"] for outcome in document["removals"] + document["kept"]]
    assert sum(HOSTILE in name for name in names) == 2


@pytest.mark.parametrize("form", ["json", "text"])
def test_hostile_words_of_a_runtime_stay_one_event_in_the_log(
    small_node: SmallNode, form: str
) -> None:
    """An error of the runtime with newlines and escape sequences is one line
    of the log, in both forms.
    """
    small_node.add_images(1)
    small_node.run(small_node.run_pod("web"))
    small_node.failpoints["ListImages"] = Fail(message=HOSTILE)
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    daemon = subprocess.Popen(
        [PROGRAM, "run", "--config", configuration, "--logging-format", form],
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        text=True,
        encoding="utf-8",
    )
    try:
        small_node.wait_for("ListImages", 3)
        time.sleep(0.5)
    finally:
        daemon.terminate()
        _, log = daemon.communicate(timeout=60.0)
    lines = log.splitlines()
    assert daemon.returncode == 0
    assert any("evil" in line for line in lines)
    assert not any(line.startswith("2026-01-01") for line in lines)
    assert not set("\x1b\x07\u202e") & set(log)
    if form == "json":
        assert all(isinstance(json.loads(line), dict) for line in lines)

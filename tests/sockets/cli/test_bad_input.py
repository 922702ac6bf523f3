"""Invalid input: the exit code, exactly one sentence that names the mistake, nothing removed."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from signals.types import Signal
from tests.expected import expect
from tests.nodes.faults import Fail
from tests.nodes.small_node import MIB, SmallNode
from tests.printed import expect_console, normalized
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, answer, reclaimd, reclaimd_here

EXPECTED = Path(__file__).with_name("expected")
HEAD = "apiVersion: reclaimd.io/v1alpha1\nkind: ReclaimdConfiguration\n"

# What stands in a file below the head.
WRONG = [
    "evictionhard: {}",
    "extent: all\nextent: enough",
    "rootDirectory: 12",
    "parallelRemovals: two",
    "parallelRemovals: 0",
    "extent: most",
    "evictionHard: {rootfs.available: 5%}",
    "evictionHard: {nodefs.available: 10}",
    "evictionHard: {nodefs.available: .nan}",
    "imageMinimumGCAge: -1m",
    "assumedFillRate: '0'",
    "pollFloor: 20s",
    "evictionHard: &a {}\nevictionMinimumReclaim: *a",
    "extent: !!python/object/apply:os.system [id]",
    "extent: [",
    "- extent",
    "---\nextent: all",
    "containerRuntimeEndpoint: unix://",
    "evictionHard: {nodefs.available<10%}",
    "holdOffAfterStart: 5",
    "pollFloor: 0s",
    "containerRuntimeEndpoint: tcp://here:1",
    "imageServiceEndpoint: tcp://here:1",
    "historyFile: history",
    "historySize: 1000Ki",
    "historySize: 2Gi",
    "historySize: much",
]
HOSTILE = "evil\n2026-01-01T00:00:00Z info started\x1b[2J\x1b]0;owned\x07\u202e"


def test_a_wrong_command_line_is_one_sentence(small_node: SmallNode, tmp_path: Path) -> None:
    """1 for what is there, 2 for what was written, 3 without the runtime, 4 where nothing can be read; nothing on stdout
    and nothing removed, although the node is under pressure."""
    small_node.add_images(2)
    (tmp_path / "wrong.yaml").write_text("kind: KubeletConfiguration\n")
    (tmp_path / "large.yaml").write_bytes(b"#" * (1 << 20) + b"\n")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe")
    (tmp_path / "bell.yaml").write_text("extent: \a\n")
    (tmp_path / "there").mkdir()
    (tmp_path / "scenario.yaml").write_text(json.dumps({"name": "../../etc/x"}))
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    expected = EXPECTED / "refusals.txt"
    known = {"CONFIG": file, "DIRECTORY": str(tmp_path)}
    expect_console(expected, known, varies=[(r"choose from [^)]*", "choose from …")])
    for each in expected.read_text().strip().split("\n\n"):
        assert re.fullmatch(r"\$ .*\n! reclaimd\b.*: .*\n\[exit [1-4]\]", each)
    assert small_node.removed() == []
    assert not (tmp_path / "report").exists()


def test_a_wrong_file_is_one_sentence_with_its_name(tmp_path: Path) -> None:
    """Exit 2 before anything else is read."""
    path, said = tmp_path / "reclaimd.yaml", ""
    for text in WRONG:
        path.write_text(f"{HEAD}{text}\n")
        done = reclaimd_here("check", "--config", str(path))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        said += f"{text}\n! {normalized(done.stderr, {'FILE': str(path)}, ())}\n"
    expect(EXPECTED / "wrong-files.txt", said)


@pytest.mark.regression
def test_a_wrong_endpoint_in_the_environment_is_refused() -> None:
    """The environment is used where no flag is given, and is checked in the same way."""
    done = reclaimd("check", "--config", "", CONTAINER_RUNTIME_ENDPOINT="npipe://x")
    refused = "reclaimd: environment: containerRuntimeEndpoint: 'npipe://x' is not a unix socket: "
    allowed = "allowed is unix:///path/to.sock with an absolute path of at most 107 bytes\n"
    assert (done.returncode, done.stderr) == (2, refused + allowed)


def test_hostile_names_stay_one_line_in_tables(small_node: SmallNode) -> None:
    """A pod named with newlines and escape sequences adds no line to a table and sends no commands
    to a terminal; a document has it as it is."""
    small_node.add_images(1)
    small_node.gone_pod(HOSTILE.replace("/", "_"))
    file = small_node.configuration()
    lines = reclaimd_here("plan", "--config", file).stdout.splitlines()
    assert sum("evil" in line for line in lines) == 2, "its container and its sandbox"
    assert not any(line.startswith("2026-01-01") for line in lines)
    assert not set("\x1b\x07\u202e") & set("".join(lines))
    plan = answer(reclaimd_here("plan", "--config", file, "-o", "json"))
    assert sum(HOSTILE in each["name"] for each in plan["removals"] + plan["kept"]) == 2


@pytest.mark.parametrize("form", ["json", "text"])
def test_hostile_words_of_a_runtime_stay_one_event_in_the_log(
    small_node: SmallNode, form: str
) -> None:
    """An error of the runtime with newlines and escape sequences is one line, in both forms."""
    small_node.run(small_node.run_pod("web"))
    small_node.failpoints["ListImages"] = Fail(message=HOSTILE)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    command = [PROGRAM, "run", "--config", file, "--logging-format", form]
    options: Any = {"stderr": subprocess.PIPE, "env": ENVIRONMENT, "text": True}
    with subprocess.Popen(command, **options) as daemon:
        assert daemon.stderr is not None
        log = ""
        while "evil" not in log:
            log += daemon.stderr.readline()
        daemon.terminate()
        log += daemon.communicate(timeout=60.0)[1]
    lines = log.splitlines()
    assert daemon.returncode == 0
    assert any("evil" in line for line in lines)
    assert not any(line.startswith("2026-01-01") for line in lines)
    assert not set("\x1b\x07\u202e") & set(log)
    if form == "json":
        assert all(isinstance(json.loads(line), dict) for line in lines)

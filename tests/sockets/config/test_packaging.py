"""The files in config/ name only what exists: the plugin of node-problem-detector, a
drop-in, the Containerfile.
"""

from __future__ import annotations

import json
from pathlib import Path

from eviction.cli.commands import COMMANDS
from eviction.configuration.effective import load
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import PROGRAM, reclaimd, reclaimd_here
from tests.repository import ROOT

CONFIG = ROOT / "config"


def test_the_plugin_of_node_problem_detector_runs_what_exists(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """Its command, with this program and this node: exit 0 when clear, 1 when a mark is met, within
    80 characters. It names the files of the unit, or the daemon would not answer it."""
    monitor = json.loads((CONFIG / "node-problem-detector" / "reclaimd.json").read_text())
    (rule,) = monitor["rules"]
    assert rule["condition"] in {condition["type"] for condition in monitor["conditions"]}
    assert monitor["pluginConfig"]["max_output_length"] == 80
    assert " ".join(rule["args"][2:]) in (CONFIG / "systemd" / "reclaimd.service").read_text()
    drop_ins = tmp_path / "reclaimd.conf.d"
    drop_ins.mkdir()
    timeout_seconds = float(rule["timeout"].removesuffix("s")) * 4
    for above, code in ((-MIB, 0), (MIB, 1)):
        file = small_node.configuration(Signal.NODEFS_AVAILABLE, above)
        here = {"/etc/reclaimd/reclaimd.yaml": file, "/etc/reclaimd/reclaimd.conf.d": str(drop_ins)}
        arguments = [here.get(argument, argument) for argument in rule["args"]]
        process = (
            reclaimd(*arguments, timeout_seconds=timeout_seconds)
            if code
            else reclaimd_here(*arguments)
        )
        assert process.returncode == code
        assert len(process.stdout.rstrip("\n")) <= 80
    assert rule["path"].endswith("/bin/" + Path(PROGRAM).name)


def test_the_example_of_a_drop_in_is_one(tmp_path: Path) -> None:
    """Beside the annotated file: its values win."""
    configuration = load(
        str(CONFIG / "all-fields.yaml"),
        {},
        {"kubeletConfig": ""},
        directory=str(CONFIG / "reclaimd.conf.d"),
    )
    assert configuration.effective["margin"] == "8%"
    assert configuration.keep_images.entries == ("registry.example/base/*",)
    assert configuration.origins["evictionSoft.nodefs.available"].endswith("10-example.conf")


def test_the_containerfile_is_of_the_wheel_alone() -> None:
    """It copies wheels and nothing of the sources; the command exists."""
    lines = (CONFIG / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    copied = [
        line.split()[1:]
        for line in lines
        if line.startswith(("COPY ", "ADD ")) and "--from" not in line
    ]
    assert copied == [["*.whl", "/wheels/"]]
    (command,) = [
        json.loads(line.removeprefix("CMD ")) for line in lines if line.startswith("CMD ")
    ]
    assert command[0] in COMMANDS

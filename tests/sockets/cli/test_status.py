"""`reclaimd status`, `config`, `reload` and SIGHUP, and `history`, where no story tells it."""

from __future__ import annotations

import argparse
import io
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
from eviction.wording.log import Log
from tests.nodes.small_node import SmallNode
from tests.reclaimd_process import (
    ENVIRONMENT,
    PATIENCE_SECONDS,
    answer,
    came_true,
    reclaimd,
    reclaimd_here,
    started,
)
from tests.repository import ROOT
from tests.sockets.stage import Stage

REJECTED = "the configuration was not reloaded, the old one stays in force: "
RELOADED = "the configuration was reloaded"


def test_commands_read_the_file_that_the_environment_names(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the daemon of the machine does; an empty name is no file."""
    stage.configure()
    monkeypatch.setenv("RECLAIMD_CONFIG", stage.file)
    for words, origin in (([], stage.file), (["--config", ""], "default")):
        found = answer(reclaimd_here("config", *words, "-o", "json"))
        assert found["origins"]["controlSocket"] == origin


# ---- reload, and SIGHUP


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
def test_a_sighup_during_the_imports_is_remembered(stage: Stage) -> None:
    """A log rotation while the daemon starts: it does not end, and reads its configuration
    again."""
    stage.configure()
    command = [sys.executable, "-c", EARLY, "run", "--config", stage.file]
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


def test_a_daemon_that_cannot_be_asked_is_sent_the_signal(stage: Stage) -> None:
    """What came of it is not known, so that the reload fails; by hand nobody is sent it."""
    stage.configure()
    # a suite under nohup would ignore it
    with subprocess.Popen(["env", "--default-signal=HUP", "sleep", "600"]) as process:
        code, sentence = exec_reload(stage.file, str(process.pid))
        assert process.wait(60.0) == -signal.SIGHUP
    assert code == 3
    assert sentence.startswith(f"reclaimd: no daemon answers on {stage.control}: ")
    assert f"; SIGHUP was sent to process {process.pid}, and its log says " in sentence


# ---- history


def test_what_is_written_is_followed(stage: Stage) -> None:
    """From the last record on, until Ctrl-C, and beyond the end of the daemon. The pass is the one
    of the log, which has no line for each of its removals in JSON."""
    for step in ("images 2", "node {above: 2Mi}", "daemon starts", "reclaimd history | grep pass"):
        stage.does(step)
    printed = Path(f"{stage.directory}/printed")
    words = ("history", "--config", stage.file)
    with printed.open("w") as out:
        follow = (*words, "--follow", "--limit", "1")
        following = started(*follow, streams=(0, out.fileno(), out.fileno()))
    assert came_true(lambda: "satisfied" in printed.read_text())
    stage.does("daemon ends")
    assert came_true(lambda: "stopped" in printed.read_text())
    following.send_signal(signal.SIGINT)
    assert following.wait(PATIENCE_SECONDS) == 130
    assert re.findall("satisfied|started|stopped", printed.read_text()) == ["satisfied", "stopped"]
    _, record, _ = answer(reclaimd_here(*words, "-o", "json"))["records"]
    assert record["removals"] == stage.daemon.passes[0]["removals"]
    assert not stage.daemon.logged("removed image")

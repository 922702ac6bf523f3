"""A reload in which something unforeseen happens, or that comes too early; and who waits
for one, and fails with it.
"""

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
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from eviction.cli.options import add_configuration
from eviction.cli.run import add_arguments, read_configuration
from eviction.surface.control_socket import ControlServer
from eviction.surface.daemon import Daemon as Loop
from eviction.surface.reload import LoadedConfiguration
from eviction.surface.systemd import Notifier
from eviction.wording.log import Log
from tests.nodes.small_node import SmallNode
from tests.reclaimd_process import ENVIRONMENT, PATIENCE_SECONDS, Daemon, answer, reclaimd
from tests.repository import ROOT

UNIT = ROOT / "config" / "systemd" / "reclaimd.service"


def test_a_defect_while_reloading_is_logged_and_changes_nothing(small_node: SmallNode) -> None:
    """Arguments that miss what is read from them: one sentence, the old configuration stays, and no
    client is served by the new one."""
    node, stream, notifier = small_node.node(), io.StringIO(), Notifier({}, 0)
    log = Log(time.time, stream=stream)
    before = node.configuration
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    add_configuration(parser)
    arguments = parser.parse_args(["--config", small_node.configuration()])
    loaded = LoadedConfiguration(partial(read_configuration, arguments), log, notifier)
    loaded.first()
    assert loaded.fingerprint
    loop = Loop(node, log)
    loaded.read = partial(read_configuration, argparse.Namespace())
    loaded.reload(loop)
    assert (
        "the configuration was not reloaded, the old one stays in force: AttributeError: "
        in stream.getvalue()
    )
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
def test_a_sighup_during_the_imports_is_remembered(small_node: SmallNode) -> None:
    """A log rotation or an impatient administrator while the daemon starts: it does not end, and
    reads its configuration again."""
    command = [sys.executable, "-c", EARLY, "run", "--config", small_node.configuration()]
    daemon = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=ENVIRONMENT, text=True
    )
    try:
        assert daemon.stderr is not None
        assert any("the configuration was reloaded" in line for line in daemon.stderr), (
            "it has ended"
        )
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(PATIENCE_SECONDS) == 0
    finally:
        daemon.kill()
        daemon.communicate()


# ---- the command, and systemctl reload


@contextmanager
def daemon_that_answers(directory: Path, problem: str) -> Iterator[tuple[str, list[str]]]:
    """A control socket whose daemon says what came of a reload; a configuration that names it,
    which is broken besides; and the reloads so far."""
    path, asked = str(directory / "control.sock"), list[str]()

    def reload() -> str:
        asked.append("reload")
        return problem

    server = ControlServer(path, {"reload": lambda _: iter([{"problem": reload()}])})
    server.start()
    file = directory / "reclaimd.yaml"
    file.write_text(f"controlSocket: {path}\nnoSuchField: 1\n")
    try:
        yield str(file), asked
    finally:
        server.stop()


def exec_reload(file: str, main_pid: str = "") -> subprocess.CompletedProcess[str]:
    """What the unit runs, with this configuration and daemon."""
    (command,) = re.findall(r"^ExecReload=(.*)$", UNIT.read_text(), re.MULTILINE)
    program, *words = shlex.split(command)
    assert program == "/opt/reclaimd/bin/reclaimd"
    here = {"/etc/reclaimd/reclaimd.yaml": file, "/etc/reclaimd/reclaimd.conf.d": ""}
    return reclaimd(*(here.get(word, word) for word in words), MAINPID=main_pid)


def test_systemctl_reload_succeeds_once_the_configuration_is_in_force(tmp_path: Path) -> None:
    """The daemon is asked once, and is not sent a signal, which would have
    it read everything twice.
    """
    with (
        subprocess.Popen(["sleep", "600"]) as process,
        daemon_that_answers(tmp_path, "") as (file, asked),
    ):
        ended = exec_reload(file, str(process.pid))
        assert (ended.returncode, ended.stdout, ended.stderr, asked) == (0, "", "", ["reload"])
        assert process.poll() is None
        process.kill()


def test_systemctl_reload_fails_with_the_sentence_of_the_daemon(tmp_path: Path) -> None:
    """The daemon's, and not one about the file that the command reads the socket's address from."""
    problem = (
        "the configuration was not reloaded, the old one stays in force: it has a field that there"
        " is not"
    )
    with daemon_that_answers(tmp_path, problem) as (file, _):
        ended = exec_reload(file)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", f"reclaimd: {problem}\n")


def test_a_daemon_that_cannot_be_asked_is_sent_the_signal(tmp_path: Path) -> None:
    """What came of it is not known, so that the reload fails; by hand there is nobody to send it
    to.
    """
    file = tmp_path / "reclaimd.yaml"
    file.write_text(f"controlSocket: {tmp_path}/control.sock\n")
    # which a suite under nohup would ignore
    ended_by_it = ["env", "--default-signal=HUP", "sleep", "600"]
    with subprocess.Popen(ended_by_it) as process:
        ended = exec_reload(str(file), str(process.pid))
        assert process.wait(60.0) == -signal.SIGHUP
    assert ended.returncode == 3
    assert ended.stderr.startswith(f"reclaimd: no daemon answers on {tmp_path}/control.sock: ")
    assert f"; SIGHUP was sent to process {process.pid}, and its log says " in ended.stderr
    alone = reclaimd("reload", "--config", str(file))
    assert (alone.returncode, "SIGHUP" in alone.stderr) == (3, False)


def test_a_daemon_says_what_came_of_a_reload(small_node: SmallNode) -> None:
    """In force once the command has ended; rejected, with its sentence; in force again."""
    control = str(small_node.disk.parent / "control.sock")
    file = Path(small_node.configuration(controlSocket=control))
    valid = file.read_text()
    with Daemon("--config", str(file)) as daemon:
        daemon.wait_for(lambda event: event["message"].startswith("started on"))
        file.write_text(valid.replace("{", '{"dryRun": true, ', 1))
        assert reclaimd("reload", "--config", str(file)).returncode == 0
        assert answer(reclaimd("status", "--config", str(file), "-o", "json"))["dry_run"] is True
        file.write_text(valid.replace("{", '{"noSuchField": 1, ', 1))
        rejected = reclaimd("reload", "--config", str(file))
        assert (rejected.returncode, "unknown field 'noSuchField'" in rejected.stderr) == (1, True)
        file.write_text(valid)
        assert reclaimd("reload", "--config", str(file)).returncode == 0
        assert daemon.stop() == 0

"""`reclaimd status`, `config`, `reload` and SIGHUP, and `history`, where no story tells it."""

from __future__ import annotations

import argparse
import io
import signal
import subprocess
import sys
import time
from functools import partial
from typing import Any

import pytest

from eviction.cli.parser import command_of
from eviction.cli.run import read_configuration
from eviction.surface.daemon import Daemon as Loop
from eviction.surface.reload import LoadedConfiguration
from eviction.surface.systemd import Notifier
from eviction.wording.log import Log
from tests.nodes.small_node import SmallNode
from tests.reclaimd_process import (
    ENVIRONMENT,
    PATIENCE_SECONDS,
)
from tests.sockets.stage import Stage

REJECTED = "the configuration was not reloaded, the old one stays in force: "
RELOADED = "the configuration was reloaded"


# ---- reload, and SIGHUP


def test_a_defect_while_reloading_is_logged_and_changes_nothing(small_node: SmallNode) -> None:
    """Arguments that miss what is read from them: one sentence, the old configuration stays, and no
    client is served by the new one."""
    node, stream = small_node.node(), io.StringIO()
    log, before = Log(time.time, stream=stream), node.configuration
    arguments = command_of("run")[0].parse_args(["--config", small_node.configuration()])
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


# ---- history

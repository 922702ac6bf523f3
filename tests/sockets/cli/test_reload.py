"""A reload in which something unforeseen happens."""

from __future__ import annotations

import argparse
import io
import time

from eviction.cli.options import add_configuration
from eviction.cli.run import LoadedConfiguration, add_arguments
from eviction.daemon.manager import Manager
from eviction.reporting.log import Log
from eviction.telemetry.systemd import Notifier
from tests.nodes.small_node import SmallNode


def test_a_defect_while_reloading_is_logged_and_changes_nothing(small_node: SmallNode) -> None:
    """Arguments that miss what is read from them: one sentence, the old configuration stays, and no client is served
    by the new one."""
    node, stream, notifier = small_node.node(), io.StringIO(), Notifier({}, 0)
    log = Log(time.time, stream=stream)
    before = node.configuration
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    add_configuration(parser)
    loaded = LoadedConfiguration(parser.parse_args(["--config", small_node.configuration()]), log, notifier)
    loaded.first()
    assert loaded.fingerprint
    manager = Manager(node, log)
    loaded.arguments = argparse.Namespace()
    loaded.reload(manager)
    assert "the configuration was not reloaded, the old one stays in force: AttributeError: " in stream.getvalue()
    assert node.configuration == before
    assert loaded.fingerprint == {}

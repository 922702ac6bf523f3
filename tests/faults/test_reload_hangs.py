"""Nothing that a reload does ends or blocks the thread that waits for SIGTERM."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.faults.silent_filesystem import Silence, SilentFilesystem
from tests.nodes.small_node import SmallNode
from tests.reclaimd_process import Daemon


@pytest.mark.regression
@pytest.mark.parametrize(
    "text", ["/var/lib/\0/config.yaml", "/var/lib/\ud800/config.yaml"], ids=["NUL", "surrogate"]
)
def test_a_reload_of_what_the_kernel_does_not_take_is_refused_and_sigterm_works(
    small_node: SmallNode, text: str
) -> None:
    """One sentence names the field; the old configuration stays, a later reload
    works, and so does SIGTERM.
    """
    file = Path(small_node.configuration())
    good = file.read_text()
    with Daemon("--config", str(file)) as daemon:
        file.write_text(json.dumps({**json.loads(good), "kubeletConfig": text}))
        daemon.process.send_signal(signal.SIGHUP)
        refused = daemon.wait_for(lambda event: "not reloaded" in event["message"])
        assert "kubeletConfig: must hold no " in refused["message"]
        file.write_text(good)
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for(lambda event: event["message"] == "the configuration was reloaded")
        assert daemon.stop() == 0


@pytest.mark.regression
def test_sigterm_works_while_a_reload_hangs(small_node: SmallNode, tmp_path: Path) -> None:
    """The drop-ins are on a filesystem that does not answer any more."""
    drop_ins = tmp_path / "drop-ins"
    drop_ins.mkdir()
    with SilentFilesystem(str(drop_ins)) as filesystem:
        daemon = Daemon("--config", small_node.configuration(), "--config-dir", str(drop_ins))
        with daemon:
            filesystem.fall_silent(Silence.UNREAD)
            daemon.process.send_signal(signal.SIGHUP)
            with pytest.raises(AssertionError, match="no such event"):
                daemon.wait_for(lambda event: "reloaded" in event["message"], 1.0)
            assert daemon.stop() == 0
            assert daemon.logged("stopped")

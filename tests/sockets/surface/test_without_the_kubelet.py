"""`reclaimd reclaim` says on stderr that the kubelet's list of pods, which was
configured, could not be had.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.ports import free_port
from tests.reclaimd_process import Daemon, came_true, reclaimd_here
from tests.sockets.kubelet_server import KubeletServer, answer, pod_list
from tests.sockets.surface.test_reclaim_by_daemon import located, sentences

SENTENCE = (
    "reclaimd: the states of pods are from the kubelet's directories: the kubelet at {url} refuses"
    " connections"
)


@pytest.mark.regression
@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize("by_daemon", [True, False])
def test_a_kubelet_that_does_not_answer_is_said_in_one_line(
    small_node: SmallNode, tmp_path: Path, by_daemon: bool, output: str
) -> None:
    """Whoever does the work; the pass goes on, and stdout and the exit code are
    those of the pass.
    """
    small_node.add_images(2)
    url = f"http://127.0.0.1:{free_port()}"
    control = str(tmp_path / "run" / "control.sock")
    fields = {"controlSocket": control, "holdOffAfterStart": "1h", "kubeletEndpoint": url}
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, MIB, **fields)
    with ExitStack() as stack:
        if by_daemon:
            stack.enter_context(Daemon("--config", file))
            assert came_true(lambda: located(file))
        done = reclaimd_here("reclaim", "--now", "--config", file, "-o", output)
    assert done.returncode == 0
    (line,) = sentences(done)
    assert line.startswith(SENTENCE.format(url=url))
    assert small_node.removed("image")
    assert output == "table" or json.loads(done.stdout)["result"] == "satisfied"


def test_a_kubelet_that_answers_is_not_mentioned(small_node: SmallNode) -> None:
    """Nor is one that nobody configured."""
    small_node.add_images(2)
    with KubeletServer(answer(pod_list())) as kubelet:
        for fields in ({"kubeletEndpoint": kubelet.url}, {}):
            file = small_node.configuration(Signal.NODEFS_AVAILABLE, MIB, **fields)
            done = reclaimd_here("reclaim", "--now", "--config", file)
            assert (done.returncode, done.stderr) == (0, "")
        assert kubelet.requests

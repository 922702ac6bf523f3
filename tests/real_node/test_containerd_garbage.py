"""`CollectContainerdGarbage` beside a real containerd: content that nothing refers to
goes, measured by statvfs.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from eviction.configuration.effective import load
from eviction.configuration.threshold_config import KUBELET_EVICTION_HARD
from eviction.decision.reclaim_table import RowEntry
from eviction.engine.node import Node
from eviction.records.passes import PassResult
from reclaim.functions.containerd_garbage import (
    ID_PREFIX,
    OBJECT_ID,
    collect_garbage_function,
    examine,
)
from reclaim.functions.table import FUNCTIONS, table_of
from signals.types import KUBELET_SIGNALS, FilesystemRole
from tests.nodes.real_node import RealNode
from tests.nodes.small_node import outcome_of, relieve
from tests.real_node.loopfs import ToolError, find_tool, run_tool

MIB = 1 << 20
NAME = "CollectContainerdGarbage"


def ctr(node: RealNode, *arguments: str) -> str:
    """What containerd's own client prints in CRI's namespace."""
    return run_tool("ctr", "--address", node.containerd.socket, "--namespace", "k8s.io", *arguments)


def ingest(node: RealNode, name: str, size_bytes: int) -> Path:
    """Content that nothing refers to; its file."""
    content = os.urandom(size_bytes)
    program = find_tool("ctr")
    assert program is not None
    command = [
        program,
        "--address",
        str(node.containerd.socket),
        "--namespace",
        "k8s.io",
        "content",
        "ingest",
        name,
    ]
    done = subprocess.run(command, input=content, capture_output=True, timeout=60.0, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return node.containerd.age_stamp(f"sha256:{hashlib.sha256(content).hexdigest()}")


def kept(node: RealNode, size_bytes: int) -> Path:
    """Content that a label keeps; its file. containerd's client labels what is there already, so
    that a collection may come in between: then there is other content."""
    for attempt in range(5):
        path = ingest(node, f"kept-{attempt}", size_bytes)
        try:
            ctr(node, "content", "label", f"sha256:{path.name}", "containerd.io/gc.root=kept")
        except ToolError:
            continue
        return path
    raise AssertionError("containerd collected content five times before it could be labelled")


def product_of(node: RealNode, above: int) -> Node:
    """The product under pressure until `above` more bytes are free, with the
    function alone in every row.
    """
    function = collect_garbage_function(NAME, 60.0, FilesystemRole.NODEFS)
    marks = {str(signal): "0%" for signal in KUBELET_EVICTION_HARD}
    fields = {
        "rootDirectory": str(node.kubelet.root_dir),
        "podLogsDir": str(node.kubelet.pod_logs_dir),
        "stateFile": "",
        "kubeletConfig": "",
        "kubeletHealthzEndpoint": "",
        "containerRuntimeEndpoint": f"unix://{node.containerd.socket}",
        "holdOffAfterStart": "0s",
        "evictionMinimumReclaim": {"nodefs.available": "0", "imagefs.available": "0"},
        "evictionHard": {
            **marks,
            "nodefs.available": f"{node.filesystem.available_bytes() + above}e0",
        },
    }
    rows = dict.fromkeys(KUBELET_SIGNALS, (RowEntry(NAME),))
    configuration = load(None, {}, fields).model_copy(update={"rows": rows})
    return Node(configuration, functions=table_of(function, *FUNCTIONS.values()))


def test_content_that_nothing_refers_to_goes_and_what_is_labelled_stays(
    containerd_on_ext4: RealNode,
) -> None:
    """32 MiB of garbage beside 8 MiB that a label keeps; the images that CRI lists
    stay, and no lease is left.
    """
    node = containerd_on_ext4
    # containerd's own collection comes after deletions and some time: let it be over
    ctr(node, "leases", "create", "--id", "nothing")
    ctr(node, "leases", "rm", "--sync", "nothing")
    labelled = kept(node, 8 * MIB)
    garbage = ingest(node, "garbage", 32 * MIB)
    assert (garbage.stat().st_size, labelled.stat().st_size) == (32 * MIB, 8 * MIB)
    images = node.cri.image_ids()
    product = product_of(node, 24 * MIB)
    try:
        examine(NAME, product.client)
        before = node.filesystem.available_bytes()
        record = relieve(product)
        gained = node.filesystem.available_bytes() - before
    finally:
        product.close()
    assert (record.result, record.errors) == (PassResult.SATISFIED, ())
    assert 31 * MIB <= gained <= 33 * MIB
    outcome = outcome_of(record, OBJECT_ID)
    assert outcome.result == "removed"
    assert abs(outcome.freed.bytes - gained) < MIB
    assert (garbage.exists(), labelled.exists()) == (False, True)
    assert node.cri.image_ids() == images
    assert ID_PREFIX not in ctr(node, "leases", "ls")

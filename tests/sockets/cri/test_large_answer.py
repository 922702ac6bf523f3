"""A list that is almost as large as one message may be: it is held once, and the
process stays below its limit.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from reclaim.cri import cri_pb2 as pb
from reclaim.cri.channel import LARGEST_MESSAGE_BYTES
from tests.nodes.small_node import MIB
from tests.repository import ROOT

CONTAINERS = 64
SIZE_BYTES = 80 * MIB  # what CRI-O sends at most (grpc_max_send_msg_size)


LIST = """
import sys
from reclaim.cri.client import CriClient

def peak_bytes():  # proc_pid_status(5)
    with open("/proc/self/status") as file:
        return int(next(line for line in file if line.startswith("VmHWM:")).split()[1]) * 1024

client = CriClient(sys.argv[1], read_deadline_seconds=60.0)
client.list_pod_sandboxes()  # everything is imported and connected
before = peak_bytes()
print(len(client.list_containers()), peak_bytes() - before)
"""


@contextmanager
def serving(socket_path: Path, answers: dict[str, bytes]) -> Iterator[str]:
    """A server that answers each call of the RuntimeService with bytes that are ready."""
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        method: grpc.unary_unary_rpc_method_handler(lambda _, __, answer=answer: answer)
        for method, answer in answers.items()
    }
    server = grpc.server(ThreadPoolExecutor(2), options=(("grpc.max_send_message_length", -1),))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", handlers),)
    )
    server.add_insecure_port(f"unix:{socket_path}")
    server.start()
    try:
        yield f"unix://{socket_path}"
    finally:
        server.stop(grace=None).wait()


def test_a_large_list_is_held_once(tmp_path: Path) -> None:
    """By a list of 80 MiB the process grows by little more than that; it grew by twice as much."""
    one = pb.Container(
        state=pb.CONTAINER_EXITED, annotations={"filler": "x" * (SIZE_BYTES // CONTAINERS)}
    )
    answer = pb.ListContainersResponse()
    for number in range(CONTAINERS):
        one.id = f"{number:064x}"
        answer.containers.append(one)
    with serving(
        tmp_path / "cri.sock", {"ListContainers": answer.SerializeToString(), "ListPodSandbox": b""}
    ) as endpoint:
        done = subprocess.run(
            [sys.executable, "-c", LIST, endpoint],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    listed, grown = map(int, done.stdout.split())
    assert listed == CONTAINERS
    assert grown < 1.5 * SIZE_BYTES


def test_the_largest_message_and_the_daemon_fit_into_the_limit_of_the_unit() -> None:
    """The unit's and the DaemonSet's limit leave room for the largest message, the values
    made of it, and the rest.
    """
    unit = (ROOT / "config" / "systemd" / "reclaimd.service").read_text()
    daemonset = (ROOT / "config" / "kubernetes" / "base" / "daemonset.yaml").read_text()
    (of_unit,) = re.findall(r"^MemoryMax=(\d+)M$", unit, re.MULTILINE)
    of_container = max(
        int(each) for each in re.findall(r"^ +memory: (\d+)Mi$", daemonset, re.MULTILINE)
    )
    assert min(int(of_unit), of_container) * MIB >= LARGEST_MESSAGE_BYTES + 100 * MIB

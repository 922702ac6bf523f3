"""The tools of this ring do what they say: meters count leaks, a distortion is one. (A proxy is
demanded by what a containerd does behind one.)"""

from __future__ import annotations

import subprocess
import sys

import pytest

from reclaim.cri import cri_pb2 as pb
from tests.faults.meters import MIB, Meters
from tests.nodes.distortions import Distortion, distorted

pytestmark = pytest.mark.house("tests/faults", "tests/nodes")

LEAK = """
import os, threading, time
input(), print()
input()
kept = [os.open("/dev/null", os.O_RDONLY) for _ in range(7)]
for _ in range(3):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
block = bytearray(b"x") * (64 << 20)
print("leaked", flush=True)
input()
"""
LIST = pb.ListContainersResponse(
    containers=[
        pb.Container(
            id=letter * 64,
            created_at=5,
            metadata=pb.ContainerMetadata(name=f"app-{letter}"),
            labels={"io.kubernetes.pod.name": "web", "io.kubernetes.pod.uid": "u"},
        )
        for letter in "abc"
    ]
)
IMAGES = pb.ListImagesResponse(
    images=[pb.Image(id="sha256:" + "12" * 32, size=7, repo_tags=["app:1"])]
)


def test_what_a_process_leaks_is_counted() -> None:
    """7 descriptors, 3 threads and 64 MiB more in another process are 7, 3 and at least 64 MiB in
    the report."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-uc", LEAK], stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        with Meters(process.pid, every_seconds=0.01) as meters:
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"leaked\n"
        process.communicate(b"\n")
    report = meters.report
    assert (report.descriptors_more, report.threads_more) == (7, 3)
    assert report.peak.rss_bytes - report.first.rss_bytes >= 60 * MIB


def test_a_distortion_changes_a_copy() -> None:
    """The answer itself stays as it was, for every distortion; each changes something of some
    answer, and never the label that decides."""
    before = LIST.SerializeToString(deterministic=True)
    status = pb.ContainerStatusResponse(status=pb.ContainerStatus(log_path="/x"))
    for how in Distortion:
        assert any(distorted(answer, how) != answer for answer in (LIST, IMAGES, status)), how
        entries = distorted(LIST, how).containers
        assert {each.labels["io.kubernetes.pod.uid"] for each in entries} == {"u"}
    assert LIST.SerializeToString(deterministic=True) == before

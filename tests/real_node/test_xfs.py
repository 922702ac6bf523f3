"""What a real XFS allocated ahead of a file that grows is given back, before anything is removed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import pytest

from eviction.configuration.effective import load
from eviction.node.node import Node
from eviction.record import Pass, PassResult, Trigger
from tests.nodes.real_node import RealNode
from tests.nodes.xfs_helper import asked, running_helper
from tests.real_node.conftest import NodeFactory
from tests.real_node.loopfs import LoopFilesystem, run_tool
from tests.real_node.oci import Image, random_layer
from tests.real_node.test_relief import configure
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd_here, write_configuration

MIB = 1 << 20
SIZE = 512 * MIB
AHEAD = 64 * MIB  # a step of less is not what a file of more than 64 MiB has ahead
FUNCTION = "ReleaseSpeculativePreallocation"


@pytest.fixture
def socket_path() -> Iterator[str]:
    """A path that leaves room for a name."""
    with TemporaryDirectory() as short:
        yield str(Path(short) / "s")


@pytest.fixture
def xfs(tmp_path: Path) -> Iterator[LoopFilesystem]:
    """An XFS of 512 MiB."""
    with LoopFilesystem(tmp_path / "xfs", SIZE, "xfs") as filesystem:
        yield filesystem


def grow(file: BinaryIO, filesystem: LoopFilesystem, most: int) -> int:
    """Writes MiB by MiB until XFS allocates ahead, or up to `most` bytes; how many bytes fewer are available then."""
    for _ in range(most // MIB):
        before = filesystem.available_bytes()
        file.write(b"\1" * MIB)
        if before - filesystem.available_bytes() >= AHEAD:
            return before - filesystem.available_bytes()
    return 0


@contextmanager
def growing(filesystem: LoopFilesystem) -> Iterator[BinaryIO]:
    """A file of 65 MiB or more that is kept open; what it has ahead lasts for the next MiB."""
    with open(filesystem.mountpoint / "grows", "wb", buffering=0) as file:
        assert grow(file, filesystem, 100 * MIB), "XFS allocates ahead"
        file.write(b"\1" * MIB)
        yield file


def test_the_helper_has_a_real_xfs_give_back_and_the_file_keeps_its_bytes(
    xfs: LoopFilesystem, socket_path: str
) -> None:
    """Of a file with unwritten pages, too; `check` gives nothing back; a file can go on growing."""
    with running_helper(socket_path, str(xfs.mountpoint)), growing(xfs) as file:
        place = os.fsencode(xfs.mountpoint)
        low = xfs.available_bytes()
        assert asked(socket_path, b"check " + place) == b"ok"
        assert xfs.available_bytes() == low
        assert asked(socket_path, b"release " + place) == b"ok"
        assert xfs.available_bytes() >= low + AHEAD // 2
        written = file.tell()
        file.write(b"\2")
        assert os.stat(xfs.mountpoint / "grows").st_size == written + 1
        assert (xfs.mountpoint / "grows").read_bytes() == b"\1" * written + b"\2"


def test_the_helper_works_on_a_read_only_bind_mount_of_a_part(
    xfs: LoopFilesystem, socket_path: str, tmp_path: Path
) -> None:
    """As in the second container of the DaemonSet: the mount is read-only there, and of one directory."""
    part, here = xfs.mountpoint / "part", tmp_path / "here"
    part.mkdir()
    here.mkdir()
    run_tool("mount", "--bind", part, here)
    try:
        run_tool("mount", "-o", "remount,bind,ro", here)
        with running_helper(socket_path, str(here), str(xfs.mountpoint / "part")), growing(xfs):
            low = xfs.available_bytes()
            assert asked(socket_path, b"release " + os.fsencode(part)) == b"not-a-mount-point"
            assert asked(socket_path, b"release " + os.fsencode(here)) == b"ok"
            assert xfs.available_bytes() >= low + AHEAD // 2
    finally:
        run_tool("umount", here)


def test_a_mount_that_was_replaced_is_looked_at_anew(xfs: LoopFilesystem, socket_path: str) -> None:
    """Unmounted, hidden behind another filesystem, mounted again: each request sees what is there."""
    place = os.fsencode(xfs.mountpoint)
    with running_helper(socket_path, str(xfs.mountpoint)):
        assert asked(socket_path, b"release " + place) == b"ok"
        run_tool("mount", "-t", "tmpfs", "other", xfs.mountpoint)
        assert asked(socket_path, b"release " + place) == b"not-xfs"
        run_tool("umount", xfs.mountpoint)
        run_tool("umount", xfs.mountpoint)
        assert asked(socket_path, b"release " + place) == b"not-a-mount-point"
        run_tool("mount", "-t", "xfs", "-o", "loop", xfs.image, xfs.mountpoint)
        assert asked(socket_path, b"release " + place) == b"ok"


def test_the_helper_needs_its_one_capability_and_no_other(xfs: LoopFilesystem, socket_path: str) -> None:
    """With CAP_SYS_ADMIN alone it works, without it the kernel refuses, and `check` knows that beforehand."""
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv (Debian package util-linux)")
    place = os.fsencode(xfs.mountpoint)
    for bounding, expected in (("-all,+sys_admin", b"ok"), ("-all", b"EPERM")):
        before = ["setpriv", f"--bounding-set={bounding}", "--inh-caps=-all", "--no-new-privs"]
        with running_helper(socket_path, str(xfs.mountpoint), before=before):
            for what in (b"release ", b"check "):
                assert asked(socket_path, what + place) == expected


def add_images(node: RealNode, count: int) -> list[str]:
    """Unused images of 8 MiB; packed and unpacked they take twice as much."""
    return node.import_images(
        [Image(f"registry.example/old:{number}", (random_layer(number, 8 * MIB),)) for number in range(count)]
    )


def one_pass(file: str) -> Pass:
    """One pass of the product in this process."""
    node = Node(load(file, {}, {}))
    try:
        assert node.locate() is None
        observations, decision = node.responder.synchronize()
        return node.responder.reclaim(observations, decision, Trigger.INTERVAL)
    finally:
        node.close()


@pytest.mark.parametrize("images", [0, 2])
def test_a_file_that_grows_is_relieved_without_a_removal(
    make_node: NodeFactory, socket_path: str, tmp_path: Path, images: int
) -> None:
    """The pass ends satisfied with no object removed, and its measured bytes are what statvfs gained."""
    node = make_node(SIZE, fstype="xfs")
    there = set(add_images(node, images)) if images else set()
    with running_helper(socket_path, str(node.mountpoint)), growing(node.filesystem):
        low = node.filesystem.available_bytes()
        mark = {"nodefs.available": str(low + 16 * MIB)}
        record = one_pass(configure(tmp_path, node, evictionHard=mark, xfsHelperSocket=socket_path))
        gained = node.filesystem.available_bytes() - low
    assert (record.result, record.removals) == (PassResult.SATISFIED, ())
    assert gained >= AHEAD // 2
    assert record.measured_bytes == pytest.approx(gained, abs=MIB)
    assert record.released is not None
    assert record.released.bytes == pytest.approx(gained, abs=MIB)
    assert record.released.mount_points == (str(node.mountpoint),)
    assert record.row[0] == FUNCTION
    assert record.timings.list_seconds == 0.0
    assert there <= node.cri.image_ids()


def test_without_the_helper_images_go_for_space_that_nobody_uses(
    make_node: NodeFactory, socket_path: str, tmp_path: Path
) -> None:
    """That is what it costs, and the record says why."""
    node = make_node(SIZE, fstype="xfs")
    images = set(add_images(node, 2))
    with growing(node.filesystem):
        mark = {"nodefs.available": str(node.filesystem.available_bytes() + 16 * MIB)}
        file = configure(tmp_path, node, evictionHard=mark, xfsHelperSocket=socket_path, imageMinimumGCAge="0s")
        record = one_pass(file)
    assert record.released is not None
    assert record.released.skipped.startswith("no XFS helper answers at ")
    assert images - node.cri.image_ids()


def test_a_daemon_on_a_real_xfs_keeps_its_images_while_a_file_is_kept_open(
    make_node: NodeFactory, socket_path: str, tmp_path: Path
) -> None:
    """At the step that XFS takes ahead the mark is crossed, and relief needs no removal; log and status say so."""
    node = make_node(SIZE, fstype="xfs")
    images = set(add_images(node, 2))
    control = str(Path(socket_path).with_name("c"))
    with running_helper(socket_path, str(node.mountpoint)), growing(node.filesystem) as file:
        mark = node.filesystem.available_bytes() - 24 * MIB
        configuration = configure(
            tmp_path,
            node,
            evictionHard={"nodefs.available": str(mark)},
            xfsHelperSocket=socket_path,
            controlSocket=control,
        )
        with Daemon("--config", configuration) as daemon:
            assert grow(file, node.filesystem, 200 * MIB), "XFS allocates ahead again"
            assert came_true(lambda: bool(daemon.passes) and node.filesystem.available_bytes() >= mark)
            assert came_true(
                lambda: bool(answer(reclaimd_here("status", "--config", configuration, "-o", "json"))["passes"])
            )
            status = answer(reclaimd_here("status", "--config", configuration, "-o", "json"))
            assert daemon.stop() == 0
        assert status["xfs_helper"]["problem"] is None
        assert status["xfs_helper"]["calls"]["released"] >= 1
        record = status["passes"][-1]
        assert (record["result"], record["removals"]) == ("satisfied", [])
        assert record["released"]["bytes"] >= AHEAD // 2
        assert record["reason"].startswith("XFS gave back ")
    assert images <= node.cri.image_ids()


def test_a_file_that_is_written_all_the_time_does_not_keep_relief_from_its_way(
    make_node: NodeFactory, socket_path: str, tmp_path: Path
) -> None:
    """It takes again with each write what was given back. The kubelet counts that as used, so images make the room."""
    node = make_node(SIZE, fstype="xfs")
    images = set(add_images(node, 2))
    with running_helper(socket_path, str(node.mountpoint)), growing(node.filesystem) as file:
        mark = {"nodefs.available": str(node.filesystem.available_bytes() + 16 * MIB)}
        configuration = configure(
            tmp_path, node, evictionHard=mark, xfsHelperSocket=socket_path, imageMinimumGCAge="0s"
        )
        with Daemon("--config", configuration) as daemon:

            def image_went() -> bool:
                if file.tell() < 150 * MIB:  # it goes on until then; more has no room
                    file.write(b"\1" * 65536)
                return bool(images - node.cri.image_ids())

            assert came_true(image_went)
            assert came_true(lambda: any(one["result"] == "satisfied" for one in daemon.passes))
            assert daemon.stop() == 0
        assert daemon.logged("XFS gave back ")


@pytest.mark.parametrize(
    ("options", "helper", "found"), [((), False, True), ((), True, False), (("allocsize=64k",), False, False)]
)
def test_doctor_says_what_is_lost_without_the_helper(
    tmp_path: Path, socket_path: str, options: tuple[str, ...], helper: bool, found: bool
) -> None:
    """A finding with both cures; none with the helper, and none with the mount option."""
    with LoopFilesystem(tmp_path / "xfs", SIZE, "xfs", mount_options=options) as xfs:
        file = write_configuration(
            tmp_path / "reclaimd.yaml", rootDirectory=str(xfs.mountpoint), xfsHelperSocket=socket_path
        )

        def findings() -> list[dict[str, str]]:
            told = answer(reclaimd_here("doctor", "--config", str(file), "-o", "json"))["findings"]
            return [one for one in told if one["check"] == "xfs-preallocation"]

        if helper:
            with running_helper(socket_path, str(xfs.mountpoint)):
                assert findings() == []
            return
        assert len(findings()) == int(found)
        for one in findings():
            assert str(xfs.mountpoint) in one["sentence"]
            assert "no XFS helper answers at" in one["evidence"]
            assert "reclaimd-xfs.socket" in one["remedy"]
            assert "allocsize=64k" in one["remedy"]


def test_small_files_take_more_than_twice_their_size_until_they_are_written_back(xfs: LoopFilesystem) -> None:
    """For each XFS sets blocks aside that its extents might need; `check` and `doctor` say so of the type."""
    before, files, size = xfs.available_bytes(), 4000, 16 << 10
    for number in range(files):
        (xfs.mountpoint / str(number)).write_bytes(b"\1" * size)
    assert before - xfs.available_bytes() > 1.5 * files * size
    run_tool("sync", "--file-system", xfs.mountpoint)
    assert files * size <= before - xfs.available_bytes() < 1.2 * files * size

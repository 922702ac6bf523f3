"""What a real XFS takes beyond what was written, and what `doctor` says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real_node.loopfs import LoopFilesystem, run_tool
from tests.reclaimd_process import answer, reclaimd_here, write_configuration

MIB = 1 << 20
SIZE = 512 * MIB


@pytest.mark.parametrize(("options", "told"), [((), True), (("allocsize=64k",), False)])
def test_doctor_says_that_space_which_nobody_uses_counts_as_used(
    tmp_path: Path, options: tuple[str, ...], told: bool
) -> None:
    """A finding with its cure, the mount option; none where that is set."""
    with LoopFilesystem(tmp_path / "xfs", SIZE, "xfs", mount_options=options) as xfs:
        file = write_configuration(tmp_path / "reclaimd.yaml", rootDirectory=str(xfs.mountpoint))
        findings = answer(reclaimd_here("doctor", "--config", str(file), "-o", "json"))["findings"]
        found = [one for one in findings if one["check"] == "xfs-preallocation"]
        assert len(found) == int(told)
        for one in found:
            assert str(xfs.mountpoint) in one["sentence"]
            assert "allocsize=64k" in one["remedy"]


@pytest.mark.parametrize(("options", "most"), [((), None), (("allocsize=64k",), 2 * MIB)])
def test_allocsize_bounds_what_is_allocated_ahead(
    tmp_path: Path, options: tuple[str, ...], most: int | None
) -> None:
    """Of a file that grows to 100 MiB: without it some MiB cost 32 MiB and more, with
    it none costs more than 2.
    """
    with LoopFilesystem(tmp_path / "xfs", SIZE, "xfs", mount_options=options) as xfs:
        falls = []
        with open(xfs.mountpoint / "grows", "wb", buffering=0) as file:
            for _ in range(100):
                before = xfs.available_bytes()
                file.write(b"\1" * MIB)
                falls.append(before - xfs.available_bytes())
        assert max(falls) >= 32 * MIB if most is None else max(falls) <= most


def test_small_files_take_more_than_twice_their_size_until_they_are_written_back(
    tmp_path: Path,
) -> None:
    """For each XFS sets blocks aside that its extents might need; `check` and `doctor` say so of
    the type. Looked at all the while, as the kernel may write some back meanwhile."""
    with LoopFilesystem(tmp_path / "xfs", SIZE, "xfs") as xfs:
        before, files, size, shares = xfs.available_bytes(), 4000, 16 << 10, list[float]()
        for number in range(1, files + 1):
            (xfs.mountpoint / str(number)).write_bytes(b"\1" * size)
            if number % 200 == 0:
                shares.append((before - xfs.available_bytes()) / (number * size))
        assert max(shares) > 1.5
        run_tool("sync", "--file-system", xfs.mountpoint)
        assert files * size <= before - xfs.available_bytes() < 1.2 * files * size

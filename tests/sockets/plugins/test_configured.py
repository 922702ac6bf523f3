"""The example plugin, installed by pip and named in a configuration: planned and called by the commands."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.plugin_distributions import EXAMPLE, install, wheel_of
from tests.reclaimd_process import answer, reclaimd, write_configuration
from tests.sockets.mounts import mounted_tmpfs, unmount

MIB = 1 << 20
AN_HOUR = 3600.0


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 64 MiB with a cache of ten files of 5 MiB, the first one ten hours old and the last one one."""
    disk = tmp_path / "disk"
    mounted_tmpfs(str(disk), 64 * MIB, 1000)
    (disk / "cache").mkdir(mode=0o700)
    for number in range(10):
        path = disk / "cache" / f"{number}"
        path.write_bytes(os.urandom(5 * MIB))
        then = time.time() - (10 - number) * AN_HOUR
        os.utime(path, (then, then))
    yield disk / "cache"
    unmount(str(disk))


@pytest.fixture
def site(tmp_path: Path) -> str:
    """A directory with the plugin."""
    directory = tmp_path / "site"
    install(wheel_of(EXAMPLE, tmp_path), directory)
    return str(directory)


def configured(tmp_path: Path, cache: Path, **options: Any) -> str:
    """A configuration with the plugin in the row of a filesystem that needs 20 MiB more than it has."""
    given = {"directory": str(cache), "olderThan": "90m", **options}
    entry = {"name": "PruneBuildCache", "plugin": "reclaimd-prune-build-cache", "frees": "data", "options": given}
    return str(
        write_configuration(
            tmp_path / "reclaimd.yaml",
            containerRuntimeEndpoint="none",
            filesystems=[{"name": "data", "path": str(cache.parent)}],
            reclaimFunctions=[entry],
            reclaimTable={"data.available": ["PruneBuildCache"]},
            evictionHard={"data.available": "33Mi"},
            evictionMinimumReclaim={"data.available": "0"},
        )
    )


def test_it_is_planned_and_called_until_the_disk_is_relieved(tmp_path: Path, cache: Path, site: str) -> None:
    """A plan names every file with its reason; a pass removes as many as are needed, the oldest first."""
    file = configured(tmp_path, cache)
    plan = answer(reclaimd("plan", "--config", file, "-o", "json", PYTHONPATH=site))
    assert [each["name"] for each in plan["removals"]] == [str(cache / f"{number}") for number in range(9)]
    assert [each["name"] for each in plan["kept"]] == [str(cache / "9")]
    assert len(list(cache.iterdir())) == 10
    done = reclaimd("reclaim", "--standalone", "--config", file, "-o", "json", PYTHONPATH=site)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in cache.iterdir()) == ["4", "5", "6", "7", "8", "9"]
    (function,) = answer(done)["functions"]
    assert (function["name"], function["removed"], function["measured"]["bytes"]) == ("PruneBuildCache", 4, 20 * MIB)


@pytest.mark.parametrize("command", [("plan",), ("reclaim", "--standalone"), ("doctor",), ("run",)])
def test_one_that_refuses_its_options_is_an_error_of_the_configuration(
    tmp_path: Path, cache: Path, site: str, command: tuple[str, ...]
) -> None:
    """Exit 2 with the plugin's own sentence, also of the daemon."""
    refused = reclaimd(*command, "--config", configured(tmp_path, cache, olderThan="yesterday"), PYTHONPATH=site)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("reclaimd: reclaimFunctions: PruneBuildCache: ")
    assert "refuses its options" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1

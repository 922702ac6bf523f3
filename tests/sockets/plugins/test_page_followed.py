"""The page "Write your own reclaim function" is followed: the example is made into a wheel, installed by pip, tested by
its own test, and loaded as the page configures it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from eviction.configuration.strict_yaml import parse_document
from reclaim.plugins import load
from tests.pages import code_blocks
from tests.plugin_distributions import EXAMPLE, install, on_the_path, wheel_of
from tests.repository import ROOT

PAGE = EXAMPLE / "README.md"
SECONDS = 60.0


def test_who_follows_the_page_has_a_function_that_works(tmp_path: Path) -> None:
    """Its test passes in a process of its own, and reclaimd loads what its configuration names."""
    site, cache = tmp_path / "site", tmp_path / "cache"
    install(wheel_of(EXAMPLE, tmp_path), site)
    tested = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-c",
            os.devnull,
            "--rootdir",
            str(EXAMPLE),
            str(EXAMPLE),
        ],
        env={**os.environ, "PYTHONPATH": f"{site}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert "2 passed" in tested.stdout, textwrap.indent(tested.stdout + tested.stderr, "  ")
    (entry,) = parse_document(code_blocks(PAGE, "yaml")[0], "the page")["reclaimFunctions"]
    cache.mkdir()
    old = cache / "object"
    old.write_text("x")
    os.utime(old, (0, 0))
    with on_the_path(site):
        plugin = load(entry["name"], entry["plugin"], {**entry["options"], "directory": str(cache)})
        (found,) = plugin.plan()
        assert (found.id, found.remove) == (str(old), True)
        assert plugin.check(found) is True
        plugin.remove(found)
        assert not plugin.present(found)

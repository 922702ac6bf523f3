"""A run with `HOUSE=1` is not green if tests were skipped that nothing allows to be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT

pytestmark = pytest.mark.house("tests/skips.py", "tests/conftest.py")

TESTS = """
import pytest
def test_alone(): pass
@pytest.mark.skip(reason="no loop device")
def test_marked(): raise AssertionError
def test_fixture(absent): pass
@pytest.fixture
def absent(): pytest.skip("no runc (Debian package runc)")
@pytest.mark.skipif(True, reason="root may read everything")
def test_of_another_user(): raise AssertionError
@pytest.mark.xfail
def test_known(): raise AssertionError
"""
WHOLE = "import pytest\npytest.importorskip('no_such_module', reason='not installed')\n"


def outcomes(directory: Path, *options: str, **variables: str) -> tuple[int, str]:
    """The exit status of a run of these tests, and pytest's last line."""
    (directory / "test_some.py").write_text(TESTS)
    (directory / "test_whole.py").write_text(WHOLE)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.skips",
        "-p",
        "no:cacheprovider",
        *options,
    ]
    kept = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("HOUSE", "ALLOW_SKIPS", "PYTEST"))
    }
    environment = {**kept, **variables, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [*command, str(directory)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    print(run.stdout, run.stderr)  # shown if a test fails: what ended pytest before its last line
    return run.returncode, run.stdout.strip().splitlines()[-1].partition(" in ")[0]


def test_without_it_a_skip_is_a_skip(tmp_path: Path) -> None:
    """As everywhere."""
    assert outcomes(tmp_path) == (0, "1 passed, 4 skipped, 1 xfailed")


def test_with_it_a_skip_that_nothing_allows_fails(tmp_path: Path) -> None:
    """A mark, a fixture and a file; what root cannot test is allowed."""
    code, last = outcomes(tmp_path, "--continue-on-collection-errors", HOUSE="1")
    assert (code, last) == (1, "1 passed, 1 skipped, 1 xfailed, 3 errors")


def test_allow_skips_names_more(tmp_path: Path) -> None:
    """Patterns, and one of three is not named."""
    assert outcomes(tmp_path, HOUSE="1", ALLOW_SKIPS="no loop *;not installed") == (
        1,
        "1 passed, 3 skipped, 1 xfailed, 1 error",
    )
    assert outcomes(tmp_path, HOUSE="1", ALLOW_SKIPS="no *;not installed")[0] == 0

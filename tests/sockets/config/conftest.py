"""Fixtures of the tests of packaging: the wheel and the source distribution of this tree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT

EPOCH = "1700000000"


def build(kind: str, directory: Path, **variables: str) -> Path:
    """The distribution that hatchling makes: `wheel` or `sdist`. Skips without hatchling."""
    pytest.importorskip("hatchling", reason="hatchling, of the extra dev, makes distributions")
    code = f"import sys; from hatchling.build import build_{kind}; print(build_{kind}(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(directory)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH, **variables}
    made = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True, timeout=60.0
    )
    return directory / made.stdout.strip()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    return build("wheel", tmp_path_factory.mktemp("wheel"))

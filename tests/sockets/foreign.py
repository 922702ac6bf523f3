"""What somebody else does with a file of ours, in words of the shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


def happens(changed: str, directory: Path, **paths: Path) -> None:
    """Runs them there; the paths are variables. Skips the test where they need root."""
    if "chown" in changed and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    variables = {**os.environ, **{name: str(path) for name, path in paths.items()}}
    subprocess.run(["sh", "-euc", changed], cwd=directory, env=variables, check=True)

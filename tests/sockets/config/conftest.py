"""Fixtures of the tests of packaging."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributions import build


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    return build("wheel", tmp_path_factory.mktemp("wheel"))

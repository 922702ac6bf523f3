"""Whatever answers at the runtime's socket: a call is answered or fails, with nothing but a CallError, and in time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hostile_http2 import ANY_BYTES, assert_clean

pytestmark = pytest.mark.timeout(3600)


@given(ANY_BYTES, st.booleans())
def test_servers(said: bytes, greeted: bool) -> None:
    """Any frames in any order, any bytes, after a greeting or in its place; then the server hangs up."""
    assert_clean(said, greeted)

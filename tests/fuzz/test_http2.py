"""Whatever the server on the runtime's socket sends, a call is answered or
raises a CallError, in time.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hostile_http2 import ANY_BYTES, assert_clean

pytestmark = pytest.mark.timeout(3600)


@given(ANY_BYTES, st.booleans())
def test_servers(sent: bytes, greeted: bool) -> None:
    """Any frames in any order, or any bytes, after a greeting or instead of
    it; then the server closes.
    """
    assert_clean(sent, greeted)

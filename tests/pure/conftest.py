"""Settings of ring 1: properties are searched without a time limit per example, since
the machine may be shared.

`PROPERTY_EXAMPLES` sets the examples of each property, 50 if it is not set.
"""

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "50"))

settings.register_profile(
    "pure", deadline=None, database=None, print_blob=True, max_examples=EXAMPLES
)
settings.load_profile("pure")


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)

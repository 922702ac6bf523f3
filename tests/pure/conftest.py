"""Settings of ring 1: properties are searched without a time limit per example, since the machine may be shared."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("pure", deadline=None, database=None, print_blob=True, max_examples=100)
settings.load_profile("pure")

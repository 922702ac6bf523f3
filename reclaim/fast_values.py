"""Values of which there are tens of thousands: frozen to the type checker, plain at run time.

A frozen dataclass sets each field by a call: 5 µs for a verdict of 13 fields, 50 ms for those of 10 000 containers. A
plain one takes half of it. mypy, which checks all of the project and its tests, refuses an assignment either way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["fast_value"]

if TYPE_CHECKING:
    from dataclasses import dataclass as fast_value
else:
    from dataclasses import dataclass

    def fast_value(*, frozen, slots):
        """`dataclass(frozen=True, slots=True)`, but for the refusal at run time; the hash is by value as well."""
        assert frozen
        return dataclass(slots=slots, unsafe_hash=True)

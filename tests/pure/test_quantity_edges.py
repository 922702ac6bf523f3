"""Amounts at the very edge of what is read and printed."""

from __future__ import annotations

from fractions import Fraction

import pytest

from signals.quantity import (
    QuantityError,
    format_bytes,
    format_duration,
    format_quantity,
    parse_duration,
    parse_percentage,
    parse_quantity,
)


def test_a_text_of_64_characters_is_read_and_one_of_65_is_refused() -> None:
    """No meaningful number is longer."""
    for read, unit in ((parse_quantity, ""), (parse_duration, "s"), (parse_percentage, "%")):
        longest = "1." + "0" * (62 - len(unit)) + unit
        assert len(longest) == 64
        assert read(longest) == read(f"1{unit}")
        with pytest.raises(QuantityError):
            read("1." + "0" * (63 - len(unit)) + unit)


def test_the_longest_duration_is_that_of_a_signed_64_bit_number_of_nanoseconds() -> None:
    """As in Go's time.Duration: one nanosecond more is refused."""
    assert parse_duration("9223372036854775807ns") == pytest.approx(2**63 / 1e9)
    with pytest.raises(QuantityError):
        parse_duration("9223372036854775808ns")


def test_billionths_are_the_finest_amounts() -> None:
    """`5n` is exactly five of them; less than one is rounded up to one."""
    assert parse_quantity("5n") == Fraction(5, 10**9)
    assert parse_quantity("1e-10") == Fraction(1, 10**9)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0ms"), (0.9994, "999ms"), (1.0, "1s"), (59.0, "59s"), (60.0, "1m"), (-1.0, "-1s"), (3600.0, "1h")],
)
def test_durations_change_their_unit_at_the_unit(seconds: float, text: str) -> None:
    """One second is `1s`, one minute is `1m`; nothing is `0ms`."""
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0B"), (1023, "1023B"), (2**10, "1.0KiB"), (2**20, "1.0MiB"), (2**30, "1.0GiB"), (2**40, "1.0TiB"),
     (2**50, "1.0PiB"), (2**60, "1024.0PiB"), (-(2**20), "-1.0MiB")],
)  # fmt: skip
def test_bytes_change_their_unit_at_the_unit(amount: int, text: str) -> None:
    """Binary units up to PiB."""
    assert format_bytes(amount) == text


def test_an_amount_beyond_the_largest_suffix_keeps_it() -> None:
    """There is nothing above Ei."""
    assert format_quantity(1024**7) == "1024Ei"

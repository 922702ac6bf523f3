"""A percentage is rounded once to single precision, as Go's `strconv.ParseFloat(s, 32)` does.

Source: kubelet, `pkg/kubelet/eviction/helpers.go` (parsePercentage).
"""

from __future__ import annotations

import math
import struct
from dataclasses import FrozenInstanceError
from decimal import Context, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signals.quantity import Percentage, QuantityError, nearest_single, parse_percentage

EXACTLY = Context(prec=400)


def single(bits: int) -> float:
    """The single-precision number with this bit pattern."""
    return float(struct.unpack("f", struct.pack("I", bits))[0])


def written(amount: Fraction) -> str:
    """A fraction whose denominator is a power of two, exactly, as decimal digits."""
    return format(EXACTLY.divide(Decimal(amount.numerator), Decimal(amount.denominator)), "f")


def held(number: str) -> float:
    """The fraction that `parse_percentage` makes of this number."""
    return parse_percentage(f"{number}%").fraction


def in_hundredths(number: float) -> float:
    """A single-precision number divided by 100 in single precision."""
    return math.copysign(nearest_single(Fraction(abs(number / 100))), number)


def test_a_decimal_a_little_above_the_middle_of_two_singles_is_rounded_up() -> None:
    """Rounded to a double first, 1 + 2**-24 + 2**-60 would lose its last bit and then
    be rounded to even, to 1.
    """
    above, one = single(0x3F800001), single(0x3F800000)
    middle = "1.000000059604644775390625"
    assert held(middle) == in_hundredths(one)
    assert held(middle + "0000000000000000000000000001") == in_hundredths(above)
    assert held("-" + middle + "0000000000000000000000000001") == -in_hundredths(above)
    assert held("1.000000059604644775390624999999999999999") == in_hundredths(one)
    assert in_hundredths(above) != in_hundredths(one)


@given(st.integers(0x3E800000, 0x42C80000), st.sampled_from([-1, 0, 1]), st.integers(30, 40))
def test_every_middle_goes_to_even_and_what_is_beside_it_to_its_side(
    bits: int, side: int, digits: int
) -> None:
    """Between 0.25 % and 100 %: the middle of two neighbours, and 10**-30 beside it."""
    low, high = Fraction(single(bits)), Fraction(single(bits + 1))
    text = written((low + high) / 2 + Fraction(side, 10**digits))
    if len(text) > 60:
        return
    nearest = {-1: low, 0: low if bits % 2 == 0 else high, 1: high}[side]
    assert held(text) == in_hundredths(float(nearest))


@given(st.integers(0, 0x7F7FFFFF))
def test_a_single_precision_number_reads_as_itself(bits: int) -> None:
    """Each is exact when written with 9 digits, denormal ones too."""
    number = single(bits)
    assert held(f"{number:.9g}") == in_hundredths(number)
    assert held(f"-{number:.9g}") == -in_hundredths(number)


@given(st.integers(0, 10**12), st.integers(-52, 38))
def test_the_value_is_the_nearest_one(digits: int, exponent: int) -> None:
    """No single-precision number is nearer to what was written."""
    exact = digits * Fraction(10) ** exponent
    try:
        # A division in single precision hides the last bit: the bounds below
        # are those of the quotient.
        found = Fraction(held(f"{digits}e{exponent}")) * 100
    except QuantityError:
        assert exact > Fraction(single(0x7F7FFFFF))
        return
    assert abs(found - exact) <= exact / 2**22 + Fraction(1, 2**140)


@pytest.mark.parametrize(
    "number", ["3.4028235e38", "340282346638528859811704183484516925440", "3.40282356e38"]
)
def test_the_largest_single_precision_number_is_read(number: str) -> None:
    """Up to the middle between it and 2**128."""
    assert held(number) == in_hundredths(single(0x7F7FFFFF))


@pytest.mark.parametrize(
    "number",
    [
        "3.4028236e38",
        "340282356779733661637539395458142568448",
        "340282366920938463463374607431768211456",
        "1e39",
        "1e9999",
        "0.0001e9999",
    ],
)
def test_what_would_be_infinite_is_refused(number: str) -> None:
    """From the middle between the largest and 2**128 on, as Go reports a value out of range."""
    for sign in ("", "-", "+"):
        with pytest.raises(QuantityError):
            parse_percentage(f"{sign}{number}%")


@pytest.mark.parametrize(
    ("number", "value"),
    [
        ("1e-9999", 0.0),
        ("0e9999", 0.0),
        ("7e-46", 0.0),
        ("0" * 40 + "1e-50", 0.0),
        ("." + "0" * 50 + "1e53", 1.0),
    ],
)
def test_what_is_too_small_is_0_and_zeros_do_not_matter(number: str, value: float) -> None:
    """Half the smallest denormal number and less is 0."""
    assert held(number) == value or math.isclose(held(number), value, rel_tol=1e-6)


@pytest.mark.parametrize("number", ["3.4e38", "1e-43", "1e-44", "7.1e-45"])
def test_a_percentage_at_the_ends_of_the_range_is_printed_and_reads_back(number: str) -> None:
    """Nearly the largest one, and denormal ones; the largest of all is at least printed."""
    assert str(parse_percentage("3.4028235e38%")) == "3.40282359e+38%"
    percentage = parse_percentage(f"{number}%")
    assert parse_percentage(str(percentage)) == percentage


@pytest.mark.parametrize(("bits", "text"), [(0, "0%"), (1, "1e-43%"), (2, "3e-43%")])
def test_the_shortest_text_that_reads_back_has_one_digit_where_one_is_enough(
    bits: int, text: str
) -> None:
    """The smallest denormal numbers are so far apart that one digit is enough."""
    assert str(Percentage(single(bits))) == text
    assert parse_percentage(text) == Percentage(single(bits))


def test_a_percentage_is_a_value() -> None:
    """It is equal by its content, can be a key, and cannot be changed."""
    assert {parse_percentage("10%"): 1}[parse_percentage("10.0%")] == 1
    with pytest.raises(FrozenInstanceError):
        parse_percentage("10%").fraction = 0.5  # type: ignore[misc] # that is the point


@given(st.integers(0, 0x7F7FFFFF))
def test_a_share_that_no_text_gives_is_printed_with_9_digits(bits: int) -> None:
    """Not every single-precision number is another one divided by 100; then
    9 digits are close enough.
    """
    share = Percentage(single(bits))
    printed = float(str(share).removesuffix("%"))
    assert math.isclose(printed, share.fraction * 100, rel_tol=2e-7, abs_tol=1e-43)

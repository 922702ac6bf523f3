"""Parsing and printing at the limits: the longest text, the largest amounts, the
smallest steps, changes of unit.
"""

from __future__ import annotations

from collections.abc import Callable
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


@pytest.mark.parametrize(
    ("parse", "unit"), [(parse_quantity, ""), (parse_percentage, "%"), (parse_duration, "s")]
)
def test_a_text_of_64_characters_is_read_and_one_of_65_is_not(
    parse: Callable[[str], object], unit: str
) -> None:
    """No meaningful number is longer."""
    assert parse("0" * (63 - len(unit)) + "7" + unit) == parse("7" + unit)
    with pytest.raises(QuantityError) as refused:
        parse("0" * (64 - len(unit)) + "7" + unit)
    shown = ("0" * (64 - len(unit)) + "7" + unit)[:64]
    assert str(refused.value).startswith(f"'{shown}…' is not ")
    with pytest.raises(QuantityError, match=f"^'{'x' * 64}' is not "):
        parse("x" * 64)


@pytest.mark.parametrize(
    ("parse", "sentence"),
    [
        (parse_quantity, "'1K' is not a Kubernetes quantity such as 500Mi, 1.5Gi, 2G or 1e9"),
        (parse_percentage, "'1K' is not a percentage such as 10% or 7.5%"),
        (parse_duration, "'1K' is not a Go duration such as 30s, 1m30s, 1.5h or 250ms"),
    ],
)
def test_a_refusal_is_a_sentence_with_examples_that_are_accepted(
    parse: Callable[[str], object], sentence: str
) -> None:
    """The whole message; each example in it can be parsed."""
    with pytest.raises(QuantityError) as refused:
        parse("1K")
    assert str(refused.value) == sentence
    for example in sentence.partition("such as ")[2].replace(" or ", ", ").split(", "):
        parse(example)


@pytest.mark.parametrize(
    ("text", "billionths"),
    [("2n", 2), ("2u", 2000), ("1.5n", 2), ("2e-9", 2), ("2e-10", 1), ("1e-101", 1)],
)
def test_nothing_is_finer_than_a_billionth(text: str, billionths: int) -> None:
    """A smaller amount is rounded up to it."""
    assert parse_quantity(text) == Fraction(billionths, 10**9)


def test_the_longest_duration_is_gos() -> None:
    """2**63 - 1 ns; one more is refused."""
    assert parse_duration("9223372036854775807ns") == (2**63 - 1) / 10**9
    with pytest.raises(QuantityError):
        parse_duration("9223372036854775808ns")
    with pytest.raises(QuantityError):
        parse_duration("-9223372036854775809ns")


@pytest.mark.parametrize(
    ("steps", "held"), [("50.6", 2.0**-149), ("50.3", 0.0), ("150.3", 2.0**-148)]
)
def test_denormal_numbers_have_steps_of_2_to_the_minus_149(steps: str, held: float) -> None:
    """A hundredth of 51 steps is rounded to one step, of 50 to none; the number itself
    is rounded to a step first.
    """
    exact = Fraction(steps) / 2**149
    digits = round(exact * 10**60)
    assert parse_percentage(f"{digits}e-60%").fraction == held


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (1024**6, "1Ei"),
        (1024**7, "1024Ei"),
        (1024**7 * 3, "3072Ei"),
        (1024**5, "1Pi"),
        (1024**4 * 3, "3Ti"),
    ],
)
def test_the_largest_suffix_is_ei(amount: int, text: str) -> None:
    """A larger amount has a larger number before it."""
    assert format_quantity(amount) == text


@pytest.mark.parametrize(
    ("power", "text"),
    [(1, "1.0KiB"), (2, "1.0MiB"), (3, "1.0GiB"), (4, "1.0TiB"), (5, "1.0PiB"), (6, "1024.0PiB")],
)
def test_bytes_for_people_have_every_unit(power: int, text: str) -> None:
    """An amount just below a unit is not shown as 1024 of the smaller unit."""
    assert format_bytes(1024**power) == text
    assert not format_bytes(1024**power - 1).startswith("1024.0") or power == 6
    assert format_bytes(1048535) == "1.0MiB", "1023.96 KiB"
    assert format_bytes(1048166) == "1023.6KiB"
    assert format_bytes(-1) == "-1B"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0ms"),
        (-0.5, "-500ms"),
        (-1.0, "-1s"),
        (0.999, "999ms"),
        (0.9996, "1s"),
        (1.0, "1s"),
        (1.5, "1.5s"),
        (59.9, "59.9s"),
        (60.0, "1m"),
        (60.4, "1m"),
        (3599.0, "59m59s"),
        (3601.0, "1h1s"),
        (86400.0, "1d"),
        (93784.0, "1d2h"),
    ],
)
def test_seconds_for_people_turn_at_a_second_a_minute_an_hour_a_day(
    seconds: float, text: str
) -> None:
    """Milliseconds below a second, one number below a minute."""
    assert format_duration(seconds) == text

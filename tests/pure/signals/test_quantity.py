"""Quantities, percentages and durations mean what they mean to Kubernetes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signals.quantity import (
    DURATION_FORMS,
    PERCENTAGE_FORMS,
    QUANTITY_FORMS,
    QuantityError,
    counted,
    format_bytes,
    format_duration,
    format_quantity,
    nearest_single,
    parse_duration,
    parse_percentage,
    parse_quantity,
    whole,
)
from tests.work import lines_run, most_allocated

LARGEST = 2**63 - 1
NO_QUANTITIES = """1K 1ki 1KB 1GB 1Gib 1_000 1,5 abc Gi . - + --1 1.2.3 1e 1e+ 1e5-3 1e1.5 1Eie 1Mi5 0x10 NaN inf 10% 1e99999"""
NO_PERCENTAGES = """
    % %% 10 foo% 12%345 1_0_% 1,5% NaN% nan% inf% -Inf% 0x1% 1e% 1e5-3% 1e400% 1e99999%
    9e38% --1% 1Gi% 10X% 0x1p3% 0X1.8P+1% 0x.8p4% -0x1.p1% 1_0% 1__0% _10% 10_% 1e0_1% 0b1p1%
"""
NO_DURATIONS = """- + 1 30 1d 1w 1h30 s 1S --1s 1e3s .s 3000000h"""


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", Fraction(0)),
        ("1", Fraction(1)),
        ("+1", Fraction(1)),
        ("-1", Fraction(-1)),
        ("1.5", Fraction(3, 2)),
        ("12.5", Fraction(25, 2)),
        ("12.", Fraction(12)),
        (".25", Fraction(1, 4)),
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
        ("007", Fraction(7)),
        ("1Ki", Fraction(1024)),
        ("1Mi", Fraction(1024**2)),
        ("1Gi", Fraction(1024**3)),
        ("1Ti", Fraction(1024**4)),
        ("1Pi", Fraction(1024**5)),
        ("1Ei", Fraction(1024**6)),
        ("1.5Gi", Fraction(3 * 1024**3, 2)),
        ("1n", Fraction(1, 10**9)),
        ("1u", Fraction(1, 10**6)),
        ("100m", Fraction(1, 10)),
        ("1k", Fraction(1000)),
        ("1M", Fraction(10**6)),
        ("1G", Fraction(10**9)),
        ("1T", Fraction(10**12)),
        ("1P", Fraction(10**15)),
        ("1E", Fraction(10**18)),
        ("1E3", Fraction(1000)),
        ("1e3", Fraction(1000)),
        ("2E+3", Fraction(2000)),
        ("1.5e1", Fraction(15)),
        ("25e-1", Fraction(5, 2)),
        ("0.1n", Fraction(1, 10**9)),
        ("-0.1n", Fraction(-1, 10**9)),
        ("1e-400", Fraction(1, 10**9)),
        ("0e400", Fraction(0)),
        ("9223372036854775807", Fraction(LARGEST)),
        ("9223372036854775808", Fraction(LARGEST)),
        ("8Ei", Fraction(LARGEST)),
        ("1e400", Fraction(LARGEST)),
        ("-1e400", Fraction(-LARGEST)),
    ],
)
def test_a_quantity_names_an_exact_amount(text: str, amount: Fraction) -> None:
    """Every suffix and exponent is exact; amounts are rounded up to a
    billionth, and capped at 2**63 - 1.
    """
    assert parse_quantity(text) == amount


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1Gi", "1024Mi"),
        ("1024", "1Ki"),
        ("1000m", "1"),
        ("1e3", "1k"),
        ("1E", "1e18"),
        ("0.5Ki", "512"),
        ("1.50", "1.5"),
    ],
)
def test_spellings_of_one_amount_are_equal(one: str, other: str) -> None:
    """Amounts are compared, not texts."""
    assert parse_quantity(one) == parse_quantity(other)


@pytest.mark.parametrize(
    "text",
    [
        *NO_QUANTITIES.split(),
        "",
        " ",
        "1 Gi",
        " 1Gi",
        "1Gi ",
        "1Gi\n",
        "\u0661",
        "\uff11Gi",
        "\u00b2",
    ],
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    """The message quotes the text and names the allowed form."""
    with pytest.raises(QuantityError) as refused:
        parse_quantity(text)
    assert str(refused.value) == f"{text!r} is not {QUANTITY_FORMS}"


@pytest.mark.parametrize("parse", [parse_quantity, parse_percentage, parse_duration])
@pytest.mark.parametrize(
    "monster", ["9" * 2**20, "9" * 2**20 + "Gi", "." * 2**20, "1e" + "9" * 2**20, "%" * 2**20]
)
def test_a_megabyte_of_digits_is_refused_by_its_length(
    parse: Callable[[str], object], monster: str
) -> None:
    """A megabyte of text is refused without parsing or copying it, and the message
    shows only its beginning.
    """
    with pytest.raises(QuantityError) as refused:
        parse(monster)
    assert len(str(refused.value)) < 200

    def refuse() -> None:
        with contextlib.suppress(QuantityError):
            parse(monster)

    assert most_allocated(refuse) < len(monster) // 8
    assert lines_run(refuse) < 200


@pytest.mark.parametrize(
    ("text", "number"), [("1", 1), ("1.1", 2), ("100m", 1), ("1n", 1), ("-100m", -1), ("0", 0)]
)
def test_a_fraction_is_rounded_away_from_zero_where_a_whole_number_is_needed(
    text: str, number: int
) -> None:
    """One tenth of a byte is one byte, as with Kubernetes' Value()."""
    assert whole(parse_quantity(text)) == number


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0"), (1, "1"), (1000, "1000"), (1024, "1Ki"), (536870912, "512Mi"), (-2048, "-2Ki")],
)
def test_a_whole_amount_is_printed_as_a_binary_quantity(amount: int, text: str) -> None:
    """The largest binary suffix that divides the amount is used."""
    assert format_quantity(amount) == text


@given(
    st.integers(-LARGEST, LARGEST)
    | st.builds(lambda n, e: n * 1024**e, st.integers(-99, 99), st.integers(0, 5))
)
def test_a_printed_quantity_reads_back_equal(amount: int) -> None:
    """A whole amount that is printed and parsed is the same."""
    assert parse_quantity(format_quantity(amount)) == amount


@pytest.mark.parametrize("parse", [parse_quantity, parse_percentage, parse_duration])
@given(text=st.text(max_size=80) | st.text(alphabet="0123456789.+-eEkKMGinsmhu%", max_size=12))
def test_any_text_is_read_or_refused(parse: Callable[[str], object], text: str) -> None:
    """Parsing a text raises QuantityError and nothing else."""
    with contextlib.suppress(QuantityError):
        parse(text)


@pytest.mark.parametrize(
    ("text", "capacity", "share"),
    [
        ("10%", 100 * 1024**3, 10737418400),
        ("70%", 100, 69),
        ("10%", 100, 10),
        ("15%", 1000, 150),
        ("5%", 1000, 50),
        ("10.5%", 1000, 104),
        ("1E1%", 100, 10),
        ("1e-99999%", 10**12, 0),
        (".25%", 1000, 2),
        ("12.%", 1000, 119),
        ("0%", 10**12, 0),
        ("0.0%", 10**12, 0),
        ("100%", 12345, 12345),
        ("200%", 100, 200),
        ("+10%", 100, 10),
        ("1e1%", 100, 10),
        ("10%%", 100, 10),
        ("-10%", 100, -10),
        ("10%", 0, 0),
    ],
)
def test_a_percentage_is_held_in_single_precision_and_truncated(
    text: str, capacity: int, share: int
) -> None:
    """10% of 100Gi is 10 737 418 400 bytes, 160 more than an exact tenth; 70% of 100 is 69."""
    assert parse_percentage(text).of(capacity) == share


@pytest.mark.parametrize(
    "text",
    [*NO_PERCENTAGES.split(), "", " 10%", "10 %", "10%\n", "\uff11\uff10%", "10\uff05"],
)
def test_what_is_no_percentage_is_refused(text: str) -> None:
    """NaN, infinities and whatever exceeds single precision are refused like any other text; so
    are the hexadecimal numbers and underscores that Go reads."""
    with pytest.raises(QuantityError) as refused:
        parse_percentage(text)
    assert str(refused.value) == f"{text!r} is not {PERCENTAGE_FORMS}"


@pytest.mark.parametrize("text", ["10%", "7.5%", "0%", "100%", "33.3%", "0.001%", "250%"])
def test_a_percentage_is_printed_as_it_was_written(text: str) -> None:
    """It is printed as a person would write it: the shortest text that parses to the same."""
    assert str(parse_percentage(text)) == text


@given(st.floats(0, 1e6, width=32) | st.floats(-1e38, 1e38))
def test_a_printed_percentage_reads_back_equal(number: float) -> None:
    """A percentage that is printed and parsed is the same, to the last bit of single precision."""
    percentage = parse_percentage(f"{number!r}%")
    assert parse_percentage(str(percentage)) == percentage


@pytest.mark.parametrize(
    ("exact", "held"), [(0.1, 0.10000000149011612), (0.5, 0.5), (1e300, math.inf), (0.0, 0.0)]
)
def test_single_precision_is_gos_float32(exact: float, held: float) -> None:
    """A double is rounded to the nearest single; beyond its range it is infinite."""
    assert nearest_single(Fraction(exact)) == held


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("-0", 0.0),
        ("+0", 0.0),
        ("0s", 0.0),
        ("30s", 30.0),
        ("+30s", 30.0),
        ("-30s", -30.0),
        ("1m30s", 90.0),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("12.25s", 12.25),
        (".25s", 0.25),
        ("5.s", 5.0),
        ("250ms", 0.25),
        ("100us", 0.0001),
        ("100µs", 0.0001),
        ("100μs", 0.0001),
        ("1ns", 1e-9),
        ("0.5ns", 0.0),
        ("0.5ns0.5ns", 0.0),  # cut part by part
        ("1.9ns", 1e-9),
        ("1h1m1s1ms", 3661.001),
        ("1s1h", 3601.0),
        ("2562047h47m16.854775807s", LARGEST / 10**9),
    ],
)
def test_a_go_duration_is_so_many_seconds(text: str, seconds: float) -> None:
    """Every unit of Go's time.ParseDuration, added up and cut to whole nanoseconds."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", [*NO_DURATIONS.split(), "", " 1s", "1s ", "1 s", "\uff11s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """A bare number other than 0, days, and more than 292 years are refused."""
    with pytest.raises(QuantityError) as refused:
        parse_duration(text)
    assert str(refused.value) == f"{text!r} is not {DURATION_FORMS}"


@given(st.integers(0, 9 * 10**12))
def test_a_whole_number_of_milliseconds_reads_exactly(milliseconds: int) -> None:
    """Parsing is exact for whole milliseconds."""
    assert parse_duration(f"{milliseconds}ms") == milliseconds / 1000


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0B"),
        (17, "17B"),
        (1023, "1023B"),
        (1024, "1.0KiB"),
        (1500000000, "1.4GiB"),
        (-2048, "-2.0KiB"),
        (2**60, "1024.0PiB"),
    ],
)
def test_bytes_for_people_have_one_decimal_and_a_binary_unit(amount: int, text: str) -> None:
    """Exact below 1024 bytes, one decimal above."""
    assert format_bytes(amount) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.008, "8ms"),
        (2.5, "2.5s"),
        (200.0, "3m20s"),
        (15000.0, "4h10m"),
        (273600.0, "3d4h"),
        (3600.0, "1h"),
        (-2.5, "-2.5s"),
    ],
)
def test_seconds_for_people_have_at_most_two_units(seconds: float, text: str) -> None:
    """The two largest units that are not zero are shown."""
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 objects"), (1, "1 object"), (2, "2 objects"), (-1, "-1 objects")]
)
def test_a_number_of_things_has_their_plural(number: int, text: str) -> None:
    """One object, all other numbers objects."""
    assert counted(number, "object") == text

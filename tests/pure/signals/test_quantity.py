"""Quantities, percentages and durations mean what they mean to Kubernetes.

Source: `apimachinery/pkg/api/resource/quantity.go`, Go's `time.ParseDuration` and
`strconv.ParseFloat(s, 32)`, `pkg/kubelet/eviction/helpers.go` (parsePercentage).
"""

import contextlib
import math
import struct
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signals.quantity import (
    DURATION_FORMS,
    PERCENTAGE_FORMS,
    QUANTITY_FORMS,
    Percentage,
    QuantityError,
    format_bytes,
    format_duration,
    format_quantity,
    nearest_single,
    parse_duration,
    parse_percentage,
    parse_quantity,
    whole,
)
from tests.rows import rows
from tests.work import lines_run, most_allocated

Parse = Callable[[str], object]
LARGEST = 2**63 - 1
LARGEST_SINGLE = 0x7F7FFFFF
POWERS = {
    suffix: Fraction(1000) ** power
    for power, suffix in enumerate(["n", "u", "m", "", *"kMGTPE"], -3)
}
POWERS |= {f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGTPE", 1)}
POWERS |= {f"{e}{power}": Fraction(10) ** power for power in range(-30, 31) for e in "eE"}
NANOSECONDS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9}
NANOSECONDS |= {"m": 60 * 10**9, "h": 3600 * 10**9}
EXACTLY = Context(prec=400)


digits = st.text("0123456789", min_size=1, max_size=12)
numbers = st.one_of(
    digits,
    digits.map("{}.".format),
    digits.map(".{}".format),
    st.builds("{}.{}".format, digits, digits),
)
signs = st.sampled_from(["", "+", "-"])


@given(signs, numbers, st.sampled_from(sorted(POWERS)))
def test_a_quantity_is_its_number_times_its_unit(sign: str, number: str, unit: str) -> None:
    """Exactly, but for two limits: a billionth, to which amounts are rounded up, and 2**63 - 1;
    where a whole number is needed, a fraction is rounded away from zero."""
    amount = min(
        Fraction(math.ceil(Fraction(number) * POWERS[unit] * 10**9), 10**9),
        Fraction(LARGEST),
    )
    side = -1 if sign == "-" else 1
    found = parse_quantity(sign + number + unit)
    assert (found, whole(found)) == (side * amount, side * math.ceil(amount))


@rows("""
    text                | amount
    1E                  | 1000000000000000000
    1E3                 | 1000
    1e-400              | 1/1000000000
    0e400               | 0
    1e-101              | 1/1000000000
    9223372036854775807 | 9223372036854775807
    8Ei                 | 9223372036854775807
    -1e400              | -9223372036854775807
""")
def test_the_limits_of_a_quantity(text: str, amount: str) -> None:
    """`E` alone is one exa, and the longest exponents change nothing."""
    assert parse_quantity(text) == Fraction(amount)


@given(
    signs,
    st.lists(st.tuples(numbers, st.sampled_from(sorted(NANOSECONDS))), min_size=1, max_size=4),
)
def test_a_duration_is_the_sum_of_its_parts(sign: str, parts: list[tuple[str, str]]) -> None:
    """Each cut to whole nanoseconds; more than 292 years are refused."""
    text = sign + "".join(number + unit for number, unit in parts)
    total = sum(math.floor(Fraction(number) * NANOSECONDS[unit]) for number, unit in parts)
    if total > LARGEST or len(text) > 64:
        with pytest.raises(QuantityError):
            parse_duration(text)
    else:
        assert parse_duration(text) == (-1 if sign == "-" else 1) * total / 10**9


@rows("""
    text                     | seconds
    0                        | 0
    -0                       | 0
    1h1m1s1ms                | 3661.001
    0.5ns0.5ns               | 0
    9223372036854775807ns    | 9223372036.854775807
    2562047h47m16.854775807s | 9223372036.854775807
""")
def test_the_limits_of_a_duration(text: str, seconds: float) -> None:
    """0 needs no unit; the longest one is Go's."""
    assert parse_duration(text) == seconds


def single(bits: int) -> float:
    """The single-precision number with this bit pattern."""
    return float(struct.unpack("f", struct.pack("I", bits))[0])


def nearest(amount: Fraction) -> float:
    """The single-precision number that is nearest to an amount, of two the even one."""
    (near,) = struct.unpack("I", struct.pack("f", float(amount)))
    beside = range(max(near - 1, 0), near + 2)
    return single(min(beside, key=lambda bits: (abs(Fraction(single(bits)) - amount), bits % 2)))


def beside_a_middle(bits: int, side: int, place: int) -> str:
    """The middle between two neighbours, or what is 10**-place beside it."""
    middle = EXACTLY.divide(
        EXACTLY.add(Decimal(single(bits)), Decimal(single(bits + 1))), Decimal(2)
    )
    return format(EXACTLY.add(middle, Decimal(side).scaleb(-place)), "f")


@given(
    st.builds("{}.{}e{}".format, digits, digits, st.integers(-60, 24))
    | st.builds(
        beside_a_middle,
        st.integers(0x3E800000, 0x42C80000),
        st.sampled_from([-1, 0, 1]),
        st.integers(30, 40),
    )
)
def test_a_percentage_is_rounded_once_to_single_precision(number: str) -> None:
    """And divided by 100 there: by way of a double, 1 + 2**-24 + 2**-60 would lose its last bit,
    and then be rounded to even, to 1."""
    share = nearest(Fraction(nearest(Fraction(number))) / 100)
    if len(number) < 63:
        assert parse_percentage(f"{number}%").fraction == share
        assert parse_percentage(f"-{number}%").fraction == -share


@rows("""
    text      | capacity      | share
    10%       | 107374182400  | 10737418400
    70%       | 100           | 69
    10%%      | 100           | 10
    +1E1%     | 100           | 10
    -10%      | 100           | -10
    200%      | 100           | 200
    .25%      | 1000          | 2
    12.%      | 1000          | 119
    1e-99999% | 1000000000000 | 0
    0e9999%   | 1000000000000 | 0
    10%       | 0             | 0
""")
def test_a_share_of_a_capacity_is_truncated(text: str, capacity: int, share: int) -> None:
    """10% of 100Gi is 160 bytes more than an exact tenth; 70% of 100 is 69."""
    assert parse_percentage(text).of(capacity) == share


@rows("""
    number                                  | largest
    3.4028235e38                            | yes
    340282346638528859811704183484516925440 | yes
    3.40282356e38                           | yes
    3.4028236e38                            | no
    340282356779733661637539395458142568448 | no
    340282366920938463463374607431768211456 | no
    0.0001e9999                             | no
""")
def test_from_the_middle_between_the_largest_and_2_to_the_128_on_a_number_is_refused(
    number: str, largest: str
) -> None:
    """As Go reports a value out of range."""
    if largest == "yes":
        assert parse_percentage(f"{number}%").fraction == nearest(
            Fraction(single(LARGEST_SINGLE)) / 100
        )
    else:
        for sign in ("", "-", "+"):
            with pytest.raises(QuantityError):
                parse_percentage(f"{sign}{number}%")
    assert nearest_single(Fraction(10**39)) == math.inf


@given(st.integers(0, LARGEST_SINGLE), st.sampled_from([1, -1]))
def test_a_printed_percentage_reads_back_equal(bits: int, side: int) -> None:
    """To the last bit. Not every single is another one divided by 100; then 9 digits are close
    enough, and the largest of all is at least printed."""
    read = Percentage(side * nearest(Fraction(single(bits)) / 100))
    with contextlib.suppress(QuantityError):
        assert parse_percentage(str(read)) == read
        assert bits < LARGEST_SINGLE
    any_share = Percentage(side * single(bits))
    printed = float(str(any_share).removesuffix("%"))
    assert math.isclose(printed, any_share.fraction * 100, rel_tol=2e-7, abs_tol=1e-43)


@rows("""
    read          | text
    10%           | 10%
    7.5%          | 7.5%
    0%            | 0%
    100%          | 100%
    33.3%         | 33.3%
    0.001%        | 0.001%
    250%          | 250%
    1e-43%        | 1e-43%
    3.4028235e38% | 3.40282359e+38%
""")
def test_a_percentage_is_printed_as_a_person_would_write_it(read: str, text: str) -> None:
    """The shortest text that parses to the same."""
    assert str(parse_percentage(read)) == text


@pytest.mark.parametrize(
    ("parse", "forms", "refused"),
    [
        (
            parse_quantity,
            QUANTITY_FORMS,
            """1K 1ki 1KB 1Gib 1_000 1,5 abc Gi . - + --1 1.2.3 1e 1e+ 1e5-3 1e1.5 1Eie 1Mi5 0x10 NaN
            inf 10% 1e99999 \u0661 \uff11Gi \u00b2""",
        ),
        (
            parse_percentage,
            PERCENTAGE_FORMS,
            """% %% 10 1K foo% 12%345 1_0% 1,5% NaN% inf% -Inf% 0x1% 1e% 1e5-3% 1e400% --1% 1Gi% 0x1p3%
            0b1p1% 10_% \uff11\uff10% 10\uff05""",
        ),
        (
            parse_duration,
            DURATION_FORMS,
            "- + 1 1K 30 1d 1w 1h30 s 1S --1s 1e3s .s 3000000h 9223372036854775808ns \uff11s",
        ),
    ],
)
def test_what_is_none_is_refused_with_what_is_allowed(
    parse: Parse, forms: str, refused: str
) -> None:
    """The text is quoted, and each of the examples that are named can be parsed: one of 64
    characters, too, but a longer one is refused without reading or copying it."""
    examples = forms.partition("such as ")[2].replace(" or ", ", ").split(", ")
    good = examples[0]
    for example in examples:
        parse(example)
    for text in [
        "",
        " ",
        f" {good}",
        f"{good} ",
        f"{good}\n",
        good.replace("0", "0 "),
        *refused.split(),
    ]:
        with pytest.raises(QuantityError) as error:
            parse(text)
        assert str(error.value) == f"{text!r} is not {forms}"
    assert parse(good.rjust(64, "0")) == parse(good)
    for monster in (good.rjust(65, "0"), "9" * 2**20, "." * 2**20, "1e" + "9" * 2**20, "%" * 2**20):
        with pytest.raises(QuantityError) as error:
            parse(monster)
        assert str(error.value) == f"'{monster[:64]}…' is not {forms}"

        def refuse(monster: str = monster) -> None:
            with contextlib.suppress(QuantityError):
                parse(monster)

        assert most_allocated(refuse) < 2**17
        assert lines_run(refuse) < 200


@given(st.integers(-9999, 9999), st.integers(0, 8))
def test_a_whole_amount_is_printed_with_the_largest_suffix_that_divides_it(
    number: int, power: int
) -> None:
    """`Ei` is the last one; what is printed reads back equal."""
    text = format_quantity(number * 1024**power)
    if number % 1024:
        assert text == (
            f"{number * 1024 ** max(power - 6, 0)}"
            + ["", *map("{}i".format, "KMGTPE")][min(power, 6)]
        )
    assert parse_quantity(text) == max(min(number * 1024**power, LARGEST), -LARGEST)


@rows("""
    amount              | text
    0                   | 0B
    1023                | 1023B
    1024                | 1.0KiB
    1048166             | 1023.6KiB
    1048535             | 1.0MiB
    1500000000          | 1.4GiB
    -2048               | -2.0KiB
    1099511627775       | 1.0TiB
    1125899906842624    | 1.0PiB
    1152921504606846976 | 1024.0PiB
""")
def test_bytes_for_people_have_one_decimal_and_a_binary_unit(amount: int, text: str) -> None:
    """Exact below 1024 bytes; 1023.96 KiB are not shown as 1024 of the smaller unit."""
    assert format_bytes(amount) == text


@rows("""
    seconds | text
    0       | 0ms
    0.008   | 8ms
    -0.5    | -500ms
    0.999   | 999ms
    0.9996  | 1s
    -2.5    | -2.5s
    59.9    | 59.9s
    60.4    | 1m
    200     | 3m20s
    3599    | 59m59s
    3601    | 1h1s
    15000   | 4h10m
    86400   | 1d
    93784   | 1d2h
""")
def test_seconds_for_people_have_at_most_two_units(seconds: float, text: str) -> None:
    """The two largest units that are not zero; one below a minute."""
    assert format_duration(seconds) == text

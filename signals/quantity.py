"""Kubernetes quantities, percentages and Go durations: parsing and printing.

Rules (https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/,
`apimachinery/pkg/api/resource/quantity.go`, Go's `time.ParseDuration`):

* quantity: an optional sign, digits with an optional point, at most one suffix: binary `Ki Mi
  Gi Ti Pi Ei`, decimal `n u m k M G T P E`, or an exponent `e`/`E` with a signed integer. `1E`
  is one exa, `1E3` is one thousand. Amounts are compared exactly; where a whole number is
  needed, a fraction is rounded up.
* percentage: text that ends in `%`. The number is kept in single precision, as in the kubelet:
  `10%` of 100Gi is 160 bytes more than an exact tenth.
* duration: `30s`, `1m30s`, `1.5h`, `250ms`, `0`.
"""

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from signals.types import SignalsError

QUANTITY_FORMS = "a Kubernetes quantity such as 500Mi, 1.5Gi, 2G or 1e9"
PERCENTAGE_FORMS = "a percentage such as 10% or 7.5%"
DURATION_FORMS = "a Go duration such as 30s, 1m30s, 1.5h or 250ms"

_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<digits>[0-9]+\.?[0-9]*|\.[0-9]+)"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,4}))?",
    re.ASCII,
)
_DURATION_UNITS_NS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_DURATION_UNIT = "|".join(_DURATION_UNITS_NS)
_DURATION_PART = re.compile(rf"([0-9]+\.?[0-9]*|\.[0-9]+)({_DURATION_UNIT})", re.ASCII)
_SOME_TIME = f"0|(?:{_DURATION_PART.pattern})+"
_DURATION = re.compile(f"[+-]?(?:{_SOME_TIME})", re.ASCII)
_PERCENT = re.compile(
    r"(?P<sign>[+-]?)(?P<digits>[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE](?P<exponent>[+-]?[0-9]+))?",
    re.ASCII,
)
LONGEST_TEXT = 64  # no meaningful number is longer; bounds the work on hostile input
# Kubernetes' amounts and Go's nanoseconds are signed 64-bit; larger amounts are capped
_LARGEST = 2**63 - 1
_SINGLE_BITS = 24
_SINGLE_LEAST_EXPONENT = -149
_BEYOND_SINGLE = 2**128
_NANO = 10**9


def _unnamed(pattern: re.Pattern[str]) -> str:
    """The pattern without group names, which ECMA-262 (JSON Schema) spells differently."""
    return re.sub(r"\?P<[a-z]+>", "", pattern.pattern)


# For JSON Schema: text that matches none of these is rejected below too.
QUANTITY_PATTERN = _unnamed(_QUANTITY)
AMOUNT_PATTERN = (  # a quantity with a unit or an exponent, or zero
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[KMGTPE]i|[kMGTPE]|[eE][+-]?[0-9]{1,4})|0+\.?0*|\.0+)"
)
PERCENTAGE_PATTERN = f"{_unnamed(_PERCENT)}%+"
# not negative
DURATION_PATTERN = rf"\+?(?:{_SOME_TIME})|-(?:0|(?:(?:0+\.?0*|\.0+)(?:{_DURATION_UNIT}))+)"


class QuantityError(SignalsError, ValueError):
    """Text that cannot be parsed. The message quotes it and names the allowed form."""


def _refuse(text: str, forms: str) -> QuantityError:
    shown = repr(text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…")
    return QuantityError(f"{shown} is not {forms}")


def parse_quantity(text: str) -> Fraction:
    """The exact amount of a Kubernetes quantity in units (bytes or inodes).

    It may be negative or a fraction. Raises QuantityError if the text is not a quantity or is
    longer than 64 characters. Amounts of 2**63 and more are capped at 2**63 - 1, as in Kubernetes.
    Source: `apimachinery/pkg/api/resource/quantity.go` (ParseQuantity).
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= LONGEST_TEXT else None
    if match is None:
        raise _refuse(text, QUANTITY_FORMS)
    amount = Fraction(match["digits"])
    suffix = match["suffix"] or ""
    if suffix in _BINARY:
        amount *= 1024 ** _BINARY[suffix]
    else:
        # with at most 64 digits, a larger power is above the cap anyway, and a
        # smaller one below a billionth
        exponent = match["exponent"]
        amount *= Fraction(10) ** (_clamped(exponent, 100) if exponent else _DECIMAL[suffix])
    amount = Fraction(-(-amount * _NANO // 1), _NANO)  # rounded up to a billionth
    amount = min(amount, Fraction(_LARGEST))
    return -amount if match["sign"] == "-" else amount


def whole(amount: Fraction) -> int:
    """The amount as a whole number, fractions rounded away from zero (`Quantity.Value()`)."""
    up = -(-abs(amount.numerator) // amount.denominator)
    return up if amount >= 0 else -up


def format_quantity(amount: int) -> str:
    """A whole amount as a quantity with the largest exact binary suffix.

    536870912 -> `512Mi`, 1000 -> `1000`. `parse_quantity` returns the same amount.
    """
    for suffix, power in reversed(_BINARY.items()):
        if amount and amount % 1024**power == 0:
            return f"{amount // 1024**power}{suffix}"
    return str(amount)


def format_bytes(amount: int) -> str:
    """Bytes for people: one decimal and a binary unit, `1.4GiB`; exact below 1024 (`17B`)."""
    value = float(abs(amount))
    sign = "-" if amount < 0 else ""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if round(value, 1) < 1024:
            return f"{sign}{value:.0f}B" if unit == "B" else f"{sign}{value:.1f}{unit}"
        value /= 1024
    return f"{sign}{value:.1f}PiB"


def counted(number: int, noun: str) -> str:
    """A count for people: `1 object`, `2 objects`, `2 sandboxes`."""
    plural = "es" if noun.endswith("x") else "s"
    return f"{number} {noun}{'' if number == 1 else plural}"


def reason_of(error: BaseException) -> str:
    """The operating system's words for an error, else its own."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


@dataclass(frozen=True)
class Percentage:
    """A share of a capacity; `fraction` is in single precision: `10%` is 0.100000001490116…"""

    fraction: float

    def of(self, capacity: int) -> int:
        """The share of `capacity`, truncated (kubelet: `api.GetThresholdQuantity`)."""
        return int(float(capacity) * self.fraction)

    def __str__(self) -> str:
        """The shortest text that `parse_percentage` turns into exactly this percentage."""
        for digits in range(1, 17):
            text = f"{float(f'{self.fraction * 100:.{digits}g}'):.16g}%"
            if _percentage(text) == self:
                return text
        # no text does: not every float32 is another float32 divided by 100
        return f"{self.fraction * 100:.9g}%"


def parse_percentage(text: str) -> Percentage:
    """Text that ends in `%`, as a share of a capacity.

    Raises QuantityError; NaN and infinities are rejected. All trailing `%` are dropped; the rest is
    read in single precision and divided by 100 in single precision, as in the kubelet
    (`pkg/kubelet/eviction/helpers.go`, parsePercentage). Any size is allowed, including negative
    ones. The kubelet also reads Go's hexadecimal numbers and underscores, which nobody writes.
    """
    percentage = _percentage(text)
    if percentage is None:
        raise _refuse(text, PERCENTAGE_FORMS)
    return percentage


def _percentage(text: str) -> Percentage | None:
    match = (
        _PERCENT.fullmatch(text.rstrip("%"))
        if text.endswith("%") and len(text) <= LONGEST_TEXT
        else None
    )
    if match is None:
        return None
    # an exponent that is clamped is beyond single precision anyway
    exponent = _clamped(match["exponent"] or "0", 200)
    value = nearest_single(Fraction(match["digits"]) * Fraction(10) ** exponent)
    if math.isinf(value):
        return None
    share = nearest_single(Fraction(value / 100))
    return Percentage(-share if match["sign"] == "-" else share)


def _clamped(exponent: str, limit: int) -> int:
    return max(-limit, min(limit, int(exponent)))


def nearest_single(amount: Fraction) -> float:
    """The nearest single-precision number to a non-negative amount.

    Ties go to even; beyond the range it is infinite. Rounded once, as in Go's
    `strconv.ParseFloat(s, 32)`. Rounding to a double first would turn a decimal slightly above the
    midpoint of two singles into exactly the midpoint, and then into the lower of the two.
    """
    if amount >= _BEYOND_SINGLE:
        return math.inf
    exponent = max(math.frexp(float(amount))[1] - _SINGLE_BITS, _SINGLE_LEAST_EXPONENT)
    value = math.ldexp(round(amount / Fraction(2) ** exponent), exponent)
    return value if value < _BEYOND_SINGLE else math.inf


def parse_duration(text: str) -> float:
    """The seconds of a Go duration; may be negative. Raises QuantityError.

    Bare numbers other than 0 are rejected, and so are days (Go has no such unit) and more than
    2**63 - 1 ns (292 years). Source: `time.ParseDuration` (https://pkg.go.dev/time#ParseDuration).
    """
    if len(text) > LONGEST_TEXT or not _DURATION.fullmatch(text):
        raise _refuse(text, DURATION_FORMS)
    # Go truncates each part
    total_ns = sum(
        int(Fraction(number) * _DURATION_UNITS_NS[unit])
        for number, unit in _DURATION_PART.findall(text)
    )
    if total_ns > _LARGEST:
        raise _refuse(text, DURATION_FORMS)
    seconds = total_ns / _NANO
    return -seconds if text[0] == "-" else seconds


def format_duration(seconds: float) -> str:
    """Seconds for people: `8ms`, `2.5s`, `3m20s`, `4h10m`, `3d4h`."""
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    if round(seconds, 3) < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.3g}s"
    days, rest = divmod(round(seconds), 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [
        f"{value}{unit}"
        for value, unit in ((days, "d"), (hours, "h"), (minutes, "m"), (rest, "s"))
        if value
    ]
    return "".join(parts[:2])

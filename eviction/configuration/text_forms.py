"""The forms of texts in files, for JSON Schema, and the functions that read them.

A form, such as `Duration`, is the type of a text for a schema, and checks nothing. A type such as
`Seconds` checks the text and reads its value. Functions that read raise ValueError with the end of
a sentence about the field. Whether a path or an address exists is not checked.

A number without a unit is rejected for an amount of disk space: `margin: 5` was meant as 5 percent
or as 5Gi, and would be five bytes. Inodes are counted, so `nodefs.inodesFree: "1000"` is what it
says; and zero is zero in any unit. In the kubelet's own file such a number is legal, and a small
one worth a warning (`wording.configuration_warnings`).
"""

import math
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field
from pydantic_core import PydanticCustomError

from eviction.configuration.models import read_as
from eviction.configuration.strict_yaml import quoted
from eviction.configuration.threshold_config import LEFT_TO_KUBELET, read_value
from eviction.configuration.threshold_config import read_duration as read_duration
from eviction.types import Extent, Fields, ThresholdValue
from reclaim.cri.client import socket_path
from reclaim.kubelet.client import address_in
from reclaim.types import ImageOrder
from signals.quantity import (
    AMOUNT_PATTERN,
    DURATION_PATTERN,
    LONGEST_TEXT,
    PERCENTAGE_PATTERN,
    QUANTITY_PATTERN,
    parse_quantity,
    whole,
)
from signals.types import AVAILABLE

ADDRESS_FORMS = (
    "an address of this machine and a port, like 127.0.0.1:9746 or [::1]:9746 (empty: nowhere)"
)
HEALTHZ_FORMS = (
    "an address and a port, like 127.0.0.1:10248, or unix:///path (empty: it is not asked)"
)
WHETHER: Any = {"enum": [True, False, "auto"]}
NODE_NAME = r"(?!.{254})([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?"  # RFC 1123 subdomain, or empty

BY_SIGNAL = "bySignal"

# not zero; `5m` is five thousandths
_BARE = re.compile(r"\+?(?=[0.]*[1-9])[0-9]*(?:\.[0-9]*)?[num]?", re.ASCII)

Number = TypeVar("Number", int, float)


def text_form(*patterns: str, examples: tuple[str, ...] = ()) -> Any:
    """The form of a number's text: all of it matches one of these regular expressions."""
    return Field(
        json_schema_extra={
            "pattern": f"^({'|'.join(patterns)})$",
            "maxLength": LONGEST_TEXT,
            "examples": [*examples],
        }
    )


def map_by_signal(*others: str, amounts: bool = False) -> Any:
    """The form of a map whose keys are signals, which `.ci/schemas.py` spells out. `others`:
    signals that only the kubelet acts on. `amounts`: the values are amounts, of which small ones
    need a unit unless they are inodes."""
    return Field(json_schema_extra={BY_SIGNAL: {"others": [*others], "amounts": amounts}})


Duration = Annotated[str, text_form(DURATION_PATTERN, examples=("30s", "1m30s", "250ms"))]
"""A Go duration, not negative."""

Quantity = Annotated[str, text_form(QUANTITY_PATTERN, examples=("500Mi", "1.5Gi", "1e9"))]
"""A Kubernetes quantity, not negative."""

QuantityOrPercentage = Annotated[
    str, text_form(QUANTITY_PATTERN, PERCENTAGE_PATTERN, examples=("10Gi", "7.5%"))
]
"""A Kubernetes quantity, or a percentage of the capacity."""

Amount = Annotated[str, text_form(AMOUNT_PATTERN, PERCENTAGE_PATTERN, examples=("10Gi", "7.5%"))]
"""An amount of disk space: a quantity or a percentage of the capacity.

Less than 1 MiB needs a unit.
"""

Percent = Annotated[str, text_form(PERCENTAGE_PATTERN, examples=("5%", "7.5%"))]
"""A percentage of the capacity."""

AbsolutePath = Annotated[str, Field(json_schema_extra={"pattern": "^/"})]
AbsolutePathOrEmpty = Annotated[str, Field(json_schema_extra={"pattern": "^(/|$)"})]

Marks = Annotated[dict[str, QuantityOrPercentage], map_by_signal(*LEFT_TO_KUBELET, amounts=True)]
"""Signal -> value, with a unit if it is a small amount of disk space.

`0%` switches a signal off.
"""

GracePeriods = Annotated[dict[str, Duration], map_by_signal(*LEFT_TO_KUBELET)]
"""Signal -> how long its soft threshold must have been met."""


def read_size(text: str) -> int:
    """Bytes, rounded up. Raises ValueError."""
    return whole(parse_quantity(text))


def within(read: Callable[[str], Number], least: str, most: str = "") -> Callable[[str], Number]:
    """A function that reads a number within these bounds, which are written like the number."""
    lowest = read(least)
    highest = read(most) if most else math.inf
    allowed = f"between {least} and {most}" if most else f"at least {least}"

    def read_within(text: str) -> Number:
        number = read(text)
        if not lowest <= number <= highest:
            raise ValueError(f"must be {allowed}, but it was {text!r}")
        return number

    return read_within


def matching(pattern: str, allowed: str) -> Callable[[str], str]:
    """A function that returns a text if all of it matches this pattern.

    `allowed`: the pattern in words.
    """
    form = re.compile(pattern, re.ASCII | re.DOTALL)

    def read_matching(text: str) -> str:
        if form.fullmatch(text) is None:
            raise ValueError(f"must be {allowed}, but it was {quoted(text)}")
        return text

    return read_matching


read_path = matching("/.*", "an absolute path")


def read_log_directory(path: str) -> str:
    """The path of a directory that the kubelet's validation accepts for logs. Raises ValueError."""
    if (
        posixpath.normpath(path) != path
        or not path.startswith("/")
        or path.startswith("//")
        or not path.isascii()
    ):
        raise ValueError(
            "must be an absolute path in ASCII without '..', '.', double or trailing slashes, but"
            f" it was {quoted(path)}"
        )
    return path


def read_endpoint(text: str) -> str:
    """A socket as it was written, or the empty text. Raises ValueError."""
    if text:
        socket_path(text)
    return text


def parse_address(text: str, forms: str = ADDRESS_FORMS) -> tuple[str, int] | None:
    """Host and port; None for the empty text. Raises ValueError.

    Names are not looked up, as a resolver may hang on a node in trouble: `localhost` is 127.0.0.1.
    Port 0 is any free port. A port alone, which would listen on every interface, is rejected;
    0.0.0.0 says that explicitly.
    """
    address = address_in(text)
    if text and address is None:
        raise ValueError(f"must be {forms}, but it was {quoted(text)}")
    return address


def read_whether(value: Any) -> bool | Literal["auto"]:
    """True, false or `auto`; nothing that only equals them, such as 1."""
    if value is True or value is False or value == "auto":
        return value  # type: ignore[no-any-return] # one of the three
    raise PydanticCustomError("whether", "must be true, false or 'auto'")


Seconds = Annotated[float, read_as(Duration, read_duration)]
PodStart = Annotated[float, read_as(Duration, within(read_duration, "0s", "10s"))]
# Large images take longer than this even on a healthy node; only tests of a
# stuck runtime use so little.
Patience = Annotated[float, read_as(Duration, within(read_duration, "0.5s"))]
read_extent_size = within(read_size, "4Ki", "1Gi")
ExtentSize = Annotated[int, read_as(Quantity, read_extent_size)]
HistorySize = Annotated[int, read_as(Quantity, within(read_size, "1Mi", "1Gi"))]
Rate = Annotated[int, read_as(Quantity, within(read_size, "1"))]
Mark = Annotated[ThresholdValue, read_as(QuantityOrPercentage, read_value)]
Lead = Annotated[bool, read_as(Literal["auto", "0s"], lambda text: text == "auto")]
HowFar = Annotated[Extent, read_as(Literal["enough", "all"], Extent)]
Order = Annotated[ImageOrder, read_as(Literal["lru", "cost"], ImageOrder)]
Directory = Annotated[str, read_as(AbsolutePath, read_path)]
LogDirectory = Annotated[str, read_as(AbsolutePath, read_log_directory)]
PathOrEmpty = Annotated[
    str, read_as(AbsolutePathOrEmpty, matching("(/.*)?", "an absolute path or empty"))
]
SocketOrEmpty = Annotated[
    str,
    read_as(
        AbsolutePathOrEmpty,
        matching("(/.{0,106})?", "an absolute path of at most 107 bytes, or empty"),
    ),
]
NodeName = Annotated[str, read_as(str, matching(NODE_NAME, "the name of a Node or empty"))]
Address = Annotated[tuple[str, int] | None, read_as(str, parse_address)]
Endpoint = Annotated[str, read_as(str, read_endpoint)]
# where the kubelet serves `/healthz`: host and port, or the path of a unix socket
HealthzEndpoint = Annotated[
    tuple[str, int] | str | None,
    read_as(
        str,
        lambda text: (
            socket_path(text) if text.startswith("unix://") else parse_address(text, HEALTHZ_FORMS)
        ),
    ),
]
WhetherOrAuto = Annotated[bool | Literal["auto"], read_as(Any, read_whether)]


def bare_numbers(document: Fields) -> Iterator[tuple[str, str]]:
    """What is not written as a mark, or without a unit: each with its field, and the end of a
    sentence."""
    for field, place, signal, value in _amounts(document):
        if value is None and "<" in signal:
            yield (
                field,
                f"{quoted(signal)} is no signal; a mark is written as in nodefs.available: 10%",
            )
        of_disk_space = signal.endswith(AVAILABLE) and signal not in LEFT_TO_KUBELET
        if of_disk_space and _BARE.fullmatch(str(value)):
            yield field, f"{place}needs a unit, as in 10Gi or 10%, but it was {quoted(value)}"


def _amounts(document: Fields) -> Iterator[tuple[str, str, str, Any]]:
    """The amounts in a document of any shape: field, place in it, signal, value."""
    yield "margin", "", AVAILABLE, document.get("margin")
    for field in ("evictionHard", "evictionSoft", "evictionMinimumReclaim", "reclaimTable"):
        signals = document.get(field)
        for signal, value in signals.items() if isinstance(signals, Mapping) else ():
            if field != "reclaimTable":
                yield field, f"{signal}: ", str(signal), value
                continue
            for entry in value if isinstance(value, list) else ():
                if isinstance(entry, Mapping):
                    yield field, f"{signal}: below: ", str(signal), entry.get("below")

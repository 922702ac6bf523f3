"""Texts in files: their forms, as JSON Schema has them, and what they mean.

A form, such as `Duration`, checks nothing: it is the type of a text, for a schema. What reads it, such as `Seconds`,
checks it, and makes its value: a text that has not the form is refused with the end of a sentence about its field, a
ValueError. Whether something is at a path or an address is not checked.
"""

from __future__ import annotations

import ipaddress
import math
import posixpath
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from eviction.configuration.models import Field, read_as
from eviction.configuration.strict_yaml import quoted
from eviction.configuration.threshold_config import LEFT_TO_KUBELET, read_margin
from eviction.types import Extent, ThresholdValue
from signals.quantity import (
    AMOUNT_PATTERN,
    DURATION_PATTERN,
    LONGEST_TEXT,
    PERCENTAGE_PATTERN,
    QUANTITY_PATTERN,
    parse_duration,
    parse_quantity,
    whole,
)
from signals.types import AVAILABLE, INODES_FREE, KUBELET_SIGNALS, ROLE_NAME

ADDRESS_FORMS = "an address of this machine and a port, like 127.0.0.1:9746 or [::1]:9746 (empty: nowhere)"
HEALTHZ_FORMS = "an address and a port, like 127.0.0.1:10248, or unix:///path (empty: nobody is asked)"
LARGEST_PORT = 65535
UNIX = "unix://"
LONGEST_SOCKET_PATH_BYTES = 107  # unix(7): sun_path, without the NUL at its end
LONGEST_NODE_NAME = 253  # RFC 1123 subdomain
SMALLEST_HISTORY_BYTES, LARGEST_HISTORY_BYTES = 1 << 20, 1 << 30

_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)

Schema = dict[str, Any]

NULL: Schema = {"type": "null"}


def text_form(*patterns: str, examples: tuple[str, ...] = ()) -> Any:
    """The form of the text of a number: whole, by one of these regular expressions."""
    pattern = f"^({'|'.join(patterns)})$"
    return Field(json_schema_extra={"pattern": pattern, "maxLength": LONGEST_TEXT, "examples": [*examples]})


def map_by_signal(*others: str, amounts: bool = False) -> Any:
    """The form of a map whose keys are signals. `others`: signals that only the kubelet acts on. `amounts`: a small
    amount of a disk needs a unit, unlike one of inodes."""

    def name_the_signals(schema: Schema) -> None:
        value = schema["additionalProperties"]
        amount = {**value, "pattern": f"^({AMOUNT_PATTERN}|{PERCENTAGE_PATTERN})$"} if amounts else value
        disks = {str(signal): value if signal.counts_inodes else amount for signal in KUBELET_SIGNALS}
        schema["properties"] = {**disks, **dict.fromkeys(others, value)}
        schema["patternProperties"] = {
            rf"^{ROLE_NAME.pattern}\.{name}$": each for name, each in ((AVAILABLE, amount), (INODES_FREE, value))
        }
        schema["additionalProperties"] = False

    return Field(json_schema_extra=name_the_signals)


def or_null(schema: Schema) -> Schema:
    """The same schema, with null allowed: in a file it takes a value away, from a map too, whatever its name."""
    rest = {word: value for word, value in schema.items() if word not in ("default", "title")}
    for word in rest.keys() & {"properties", "patternProperties"}:
        rest[word] = {name: or_null(value) for name, value in rest[word].items()}
    if "patternProperties" in rest:
        rest["additionalProperties"] = NULL
    alternatives = rest["anyOf"] if rest.keys() == {"anyOf"} else [rest]
    default = {"default": schema["default"]} if "default" in schema else {}
    return {**default, "anyOf": [*alternatives, *([] if NULL in alternatives else [NULL])]}


Duration = Annotated[str, text_form(DURATION_PATTERN, examples=("30s", "1m30s", "250ms"))]
"""A Go duration, not negative."""

Lead = Annotated[str, text_form("auto", "0s")]
"""`auto`, or `0s` for none."""

Quantity = Annotated[str, text_form(QUANTITY_PATTERN, examples=("500Mi", "1.5Gi", "1e9"))]
"""A Kubernetes quantity, not negative."""

QuantityOrPercentage = Annotated[str, text_form(QUANTITY_PATTERN, PERCENTAGE_PATTERN, examples=("10Gi", "7.5%"))]
"""A Kubernetes quantity, or a percentage of the capacity."""

Amount = Annotated[str, text_form(AMOUNT_PATTERN, PERCENTAGE_PATTERN, examples=("10Gi", "7.5%"))]
"""An amount of a disk: a quantity, with a unit if it is less than 1 MiB, or a percentage of the capacity."""

AbsolutePath = Annotated[str, Field(json_schema_extra={"pattern": "^/"})]
AbsolutePathOrEmpty = Annotated[str, Field(json_schema_extra={"pattern": "^(/|$)"})]

Marks = Annotated[dict[str, QuantityOrPercentage], map_by_signal(*LEFT_TO_KUBELET, amounts=True)]
"""Signal -> value, with a unit where it is a small amount of a disk. `0%` switches a signal off."""

GracePeriods = Annotated[dict[str, Duration], map_by_signal(*LEFT_TO_KUBELET)]
"""Signal -> how long its soft threshold must have been met."""


class AddressError(ValueError):
    """A text that is no address. The message is the end of a sentence about its field."""


def read_duration(text: str) -> float:
    """Seconds, not negative."""
    seconds = parse_duration(text)
    if seconds < 0:
        raise ValueError(f"must not be negative, but it was {text!r}")
    return seconds


def duration_within(least: float = 0.0, most: float = math.inf) -> Callable[[str], float]:
    """Reads a duration with these bounds, in seconds."""

    def read(text: str) -> float:
        seconds = read_duration(text)
        if seconds < least:
            raise ValueError(f"must be at least {least:g}s, but it was {text!r}")
        if seconds > most:
            raise ValueError(f"must be at most {most:g}s, but it was {text!r}")
        return seconds

    return read


def read_history_size(text: str) -> int:
    """Bytes, 1Mi to 1Gi."""
    size_bytes = whole(parse_quantity(text))
    if not SMALLEST_HISTORY_BYTES <= size_bytes <= LARGEST_HISTORY_BYTES:
        raise ValueError(f"must be between 1Mi and 1Gi, but it was {text!r}")
    return size_bytes


def read_rate(text: str) -> int:
    """Bytes a second, above 0."""
    rate = whole(parse_quantity(text))
    if rate <= 0:
        raise ValueError(f"must be above 0 bytes a second, but it was {text!r}")
    return rate


def read_lead(text: str) -> bool:
    """Whether passes may begin before their mark is reached."""
    if text not in ("auto", "0s"):
        raise ValueError(f"must be auto or 0s, but it was {text!r}")
    return text == "auto"


def read_path(path: str) -> str:
    """An absolute path."""
    if not path.startswith("/"):
        raise ValueError(f"must be an absolute path, but it was {quoted(path)}")
    return path


def read_path_or_empty(path: str) -> str:
    """An absolute path, or nothing."""
    if path and not path.startswith("/"):
        raise ValueError(f"must be an absolute path or empty, but it was {quoted(path)}")
    return path


def read_log_directory(path: str) -> str:
    """A directory of logs, as the kubelet's validation takes it."""
    read_path(path)
    if posixpath.normpath(path) != path or path.startswith("//"):
        raise ValueError(f"must be a path without '..', '.', double or trailing slashes, but it was {quoted(path)}")
    if not path.isascii():
        raise ValueError(f"must hold ASCII characters only, but it was {quoted(path)}")
    return path


def read_node_name(name: str) -> str:
    """The name of a Node, or nothing."""
    if name and not (_NODE_NAME.fullmatch(name) and len(name) <= LONGEST_NODE_NAME):
        raise ValueError(f"must be the name of a Node or empty, but it was {quoted(name)}")
    return name


def read_address(text: str) -> str:
    """An address that `parse_address` takes, as it was written."""
    parse_address(text)
    return text


def parse_healthz_endpoint(text: str) -> tuple[str, int] | str | None:
    """Where the kubelet's `/healthz` is: host and port, or the path of a unix socket; None for the empty text.

    Raises AddressError.
    """
    if text.startswith(UNIX):
        path = text.removeprefix(UNIX)
        size = len(path.encode(errors="surrogateescape"))
        if not path.startswith("/") or "\0" in path or size > LONGEST_SOCKET_PATH_BYTES:
            raise AddressError(f"must be {HEALTHZ_FORMS}, but it was {quoted(text)}")
        return path
    return parse_address(text, HEALTHZ_FORMS)


def parse_address(text: str, forms: str = ADDRESS_FORMS) -> tuple[str, int] | None:
    """Host and port; None for the empty text. Raises AddressError.

    Names are not looked up, as a resolver may hang on a node in trouble: `localhost` is 127.0.0.1. Port 0 is any free
    one. A port alone, which would listen on every interface, is refused; 0.0.0.0 asks for that explicitly.
    """
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else "127.0.0.1" if host == "localhost" else host
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise AddressError(f"must be {forms}, but it was {quoted(text)}") from None
    if not colon or bracketed != (address.version == 6) or not (port.isascii() and port.isdigit() and len(port) <= 5):
        raise AddressError(f"must be {forms}, but it was {quoted(text)}")
    if int(port) > LARGEST_PORT:
        raise AddressError(f"the port must be between 0 and {LARGEST_PORT}, but it was {port}")
    return host, int(port)


LONGEST_HOLD_OFF_FOR_NEW_PODS = 10.0
SHORTEST_TERMINATED_POD_AGE = 10.0  # two observations lie a minute apart; only tests want less than some minutes
SHORTEST_REMOVAL_PATIENCE = 0.5  # large images take longer on a good day; the tests of a stuck runtime want a short one

Seconds = Annotated[float, read_as(Duration, read_duration)]
PodStart = Annotated[float, read_as(Duration, duration_within(most=LONGEST_HOLD_OFF_FOR_NEW_PODS))]
TerminatedPodAge = Annotated[float, read_as(Duration, duration_within(SHORTEST_TERMINATED_POD_AGE))]
Patience = Annotated[float, read_as(Duration, duration_within(SHORTEST_REMOVAL_PATIENCE))]
HistorySize = Annotated[int, read_as(Quantity, read_history_size)]
Rate = Annotated[int, read_as(Quantity, read_rate)]
Margin = Annotated[ThresholdValue, read_as(Amount, read_margin)]
LeadOrNone = Annotated[bool, read_as(Lead, read_lead)]
HowFar = Annotated[Extent, read_as(Literal["enough", "all"], Extent)]
Directory = Annotated[str, read_as(AbsolutePath, read_path)]
LogDirectory = Annotated[str, read_as(AbsolutePath, read_log_directory)]
PathOrEmpty = Annotated[str, read_as(AbsolutePathOrEmpty, read_path_or_empty)]
NodeName = Annotated[str, read_as(str, read_node_name)]
Address = Annotated[str, read_as(str, read_address)]
HealthzEndpoint = Annotated[tuple[str, int] | str | None, read_as(str, parse_healthz_endpoint)]
Texts = Annotated[tuple[str, ...], read_as(list[str], tuple)]

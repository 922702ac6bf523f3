"""Reads the texts of fields: durations, amounts, paths, addresses, the name of a Node.

Each function raises ValueError with the end of a sentence about the field. Covers: `127.0.0.1:9746`, `[::1]:9746`,
`localhost:9746`, `unix:///path`. Does not cover: whether something is there.
"""

from __future__ import annotations

import ipaddress
import math
import posixpath
import re
from collections.abc import Callable

from eviction.configuration.strict_yaml import quoted
from signals.quantity import parse_duration, parse_quantity, whole

ADDRESS_FORMS = "an address of this machine and a port, like 127.0.0.1:9746 or [::1]:9746 (empty: nowhere)"
HEALTHZ_FORMS = "an address and a port, like 127.0.0.1:10248, or unix:///path (empty: nobody is asked)"
LARGEST_PORT = 65535
UNIX = "unix://"
LONGEST_SOCKET_PATH_BYTES = 107  # unix(7): sun_path, without the NUL at its end
LONGEST_NODE_NAME = 253  # RFC 1123 subdomain
SMALLEST_HISTORY_BYTES, LARGEST_HISTORY_BYTES = 1 << 20, 1 << 30

_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)


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

"""An address of this machine as it is written: `127.0.0.1:9746`, `[::1]:9746`, `localhost:9746`. Pure."""

from __future__ import annotations

import ipaddress

from eviction.configuration.strict_yaml import shown

FORMS = "an address of this machine and a port, like 127.0.0.1:9746 or [::1]:9746 (empty: nowhere)"
HEALTHZ_FORMS = "an address and a port, like 127.0.0.1:10248, or unix:///path (empty: nobody is asked)"
LARGEST_PORT = 65535
UNIX = "unix://"


class AddressError(ValueError):
    """A text that is no address. The message is the end of a sentence about its field."""


def parse_healthz_endpoint(text: str) -> tuple[str, int] | str | None:
    """Where the kubelet's `/healthz` is: host and port, or the path of a unix socket that leads there; None for the
    empty text. Raises AddressError."""
    if text.startswith(UNIX):
        path = text.removeprefix(UNIX)
        if not path.startswith("/") or "\0" in path or len(path.encode(errors="surrogateescape")) > 107:
            raise AddressError(f"must be {HEALTHZ_FORMS}, but it was {shown(text)}")
        return path
    return parse_address(text, HEALTHZ_FORMS)


def parse_address(text: str, forms: str = FORMS) -> tuple[str, int] | None:
    """Host and port; None for the empty text. Raises AddressError.

    Names are not looked up, as a resolver may hang on a node in trouble: `localhost` is 127.0.0.1. Port 0 is any free
    one. A port alone, which would listen on every interface, is refused: 0.0.0.0 says that aloud.
    """
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else "127.0.0.1" if host == "localhost" else host
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise AddressError(f"must be {forms}, but it was {shown(text)}") from None
    if not colon or bracketed != (address.version == 6) or not (port.isascii() and port.isdigit() and len(port) <= 5):
        raise AddressError(f"must be {forms}, but it was {shown(text)}")
    if int(port) > LARGEST_PORT:
        raise AddressError(f"the port must be between 0 and {LARGEST_PORT}, but it was {port}")
    return host, int(port)

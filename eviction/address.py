"""An address to listen on as it is written: `127.0.0.1:9746`, `[::1]:9746`, `localhost:9746`. Pure."""

from __future__ import annotations

import ipaddress

from eviction.documents import shown

FORMS = "an address of this machine and a port, like 127.0.0.1:9746 or [::1]:9746 (empty: nowhere)"
LARGEST_PORT = 65535


class AddressError(ValueError):
    """A text that is no address to listen on. The message is the end of a sentence about its field."""


def parse_address(text: str) -> tuple[str, int] | None:
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
        raise AddressError(f"must be {FORMS}, but it was {shown(text)}") from None
    if not colon or bracketed != (address.version == 6) or not (port.isascii() and port.isdigit() and len(port) <= 5):
        raise AddressError(f"must be {FORMS}, but it was {shown(text)}")
    if int(port) > LARGEST_PORT:
        raise AddressError(f"the port must be between 0 and {LARGEST_PORT}, but it was {port}")
    return host, int(port)

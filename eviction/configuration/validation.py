"""Checks of the fields that say where something is: paths, addresses, the name of the Node.

Covers: `127.0.0.1:9746`, `[::1]:9746`, `localhost:9746`, `unix:///path`, and what is wrong with such a field. Does not
cover: whether something is there.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from eviction.configuration.file import ConfigurationFile
from eviction.configuration.kubelet import log_directory_problem
from eviction.configuration.strict_yaml import quoted

FORMS = "an address of this machine and a port, like 127.0.0.1:9746 or [::1]:9746 (empty: nowhere)"
HEALTHZ_FORMS = "an address and a port, like 127.0.0.1:10248, or unix:///path (empty: nobody is asked)"
LARGEST_PORT = 65535
UNIX = "unix://"
LONGEST_SOCKET_PATH_BYTES = 107  # unix(7): sun_path, without the NUL at its end
LONGEST_NODE_NAME = 253  # RFC 1123 subdomain

_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)


class AddressError(ValueError):
    """A text that is no address. The message is the end of a sentence about its field."""


def location_problems(written: ConfigurationFile) -> Iterator[tuple[str, str]]:
    """For each such field with a problem: its name, and the end of a sentence about it."""
    for name in ("rootDirectory", "lockDirectory"):
        path = getattr(written, name)
        if not path.startswith("/"):
            yield name, f"must be an absolute path, but it was {quoted(path)}"
    for name in ("stateFile", "historyFile", "controlSocket", "kubeconfig"):
        path = getattr(written, name)
        if path and not path.startswith("/"):
            yield name, f"must be an absolute path or empty, but it was {quoted(path)}"
    node = written.nodeName
    if node and not (_NODE_NAME.fullmatch(node) and len(node) <= LONGEST_NODE_NAME):
        yield "nodeName", f"must be the name of a Node or empty, but it was {quoted(node)}"
    for name, parse in (("metricsAddress", parse_address), ("kubeletHealthzEndpoint", parse_healthz_endpoint)):
        try:
            parse(getattr(written, name))
        except AddressError as error:
            yield name, str(error)
    for name in ("podLogsDir", "containerLogsDir"):
        problem = log_directory_problem(getattr(written, name))
        if problem:
            yield name, problem


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


def parse_address(text: str, forms: str = FORMS) -> tuple[str, int] | None:
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

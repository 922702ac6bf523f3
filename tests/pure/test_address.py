"""Addresses to listen on, as they are written."""

from __future__ import annotations

import pytest

from eviction.address import AddressError, parse_address
from eviction.configuration import ConfigurationError, load


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", None),
        ("127.0.0.1:9746", ("127.0.0.1", 9746)),
        ("localhost:1", ("127.0.0.1", 1)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
        ("[::1]:9746", ("::1", 9746)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int] | None) -> None:
    """IPv4, IPv6 in brackets, localhost without a look-up; the empty text is no address."""
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    ["9746", ":9746", "127.0.0.1", "127.0.0.1:", "127.0.0.1:-1", "127.0.0.1:x", "127.0.0.1:65536", "::1:9746",
     "[::1]9746", "[127.0.0.1]:1", "example.org:80", "127.0.0.1:१", "[fe80::1%eth0:80", "1" * 5000 + ":1"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    """A port alone, names, brackets in the wrong place: one sentence, the text in it cut to its beginning."""
    with pytest.raises(AddressError) as refused:
        parse_address(text)
    assert len(str(refused.value)) < 300


def test_the_configuration_names_the_field() -> None:
    """Where the address stood, and what is allowed."""
    with pytest.raises(ConfigurationError) as refused:
        load(None, {}, {"kubeletConfig": "", "metricsAddress": ":9746"})
    assert str(refused.value).startswith("flags: metricsAddress: must be an address of this machine and a port")
    assert load(None, {}, {"kubeletConfig": ""}).metrics_address == "127.0.0.1:9746"

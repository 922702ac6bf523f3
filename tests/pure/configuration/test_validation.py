"""Addresses and endpoints as they are written: parsed, or refused with the allowed forms."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from eviction.configuration.effective import ConfigurationError, load
from eviction.configuration.file import FIELDS
from eviction.configuration.kubelet import read_kubelet_configuration
from eviction.configuration.text_forms import parse_address, parse_healthz_endpoint


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
    """IPv4, IPv6 in brackets, localhost without name resolution; the empty text is no address."""
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    ["9746", ":9746", "127.0.0.1", "127.0.0.1:", "127.0.0.1:-1", "127.0.0.1:x", "127.0.0.1:65536", "::1:9746",
     "[::1]9746", "[127.0.0.1]:1", "example.org:80", "127.0.0.1:१", "[fe80::1%eth0:80", "1" * 5000 + ":1"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    """A port alone, names, brackets in the wrong place: one sentence, the text
    in it cut to its beginning.
    """
    with pytest.raises(ValueError, match="must be") as refused:
        parse_address(text)
    assert len(str(refused.value)) < 300


def test_the_configuration_names_the_field() -> None:
    """The message names its source, the field, and what is allowed."""
    with pytest.raises(ConfigurationError) as refused:
        load(None, {}, {"kubeletConfig": "", "metricsAddress": ":9746"})
    assert str(refused.value).startswith(
        "flags: metricsAddress: must be an address of this machine and a port"
    )
    assert load(None, {}, {"kubeletConfig": ""}).metrics_address == ("127.0.0.1", 9746)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("127.0.0.1:10248", ("127.0.0.1", 10248)),
        ("[::1]:10248", ("::1", 10248)),
        ("unix:///run/reclaimd-healthz.sock", "/run/reclaimd-healthz.sock"),
        # not UTF-8, as the environment may have it
        ("unix:///run/\udcff.sock", "/run/\udcff.sock"),
        ("", None),
    ],
)
def test_where_a_kubelets_healthz_is(text: str, where: tuple[str, int] | str | None) -> None:
    """A port, a unix socket, or nowhere."""
    assert parse_healthz_endpoint(text) == where


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("unix://", "unix:///path/to.sock"),
        ("unix://relative", "unix:///path/to.sock"),
        ("unix:///" + "x" * 107, "unix:///path/to.sock"),
        ("10248", "an address and a port, like 127.0.0.1:10248, or unix:///path"),
        ("http://127.0.0.1:10248", "an address and a port, like 127.0.0.1:10248, or unix:///path"),
    ],
)
def test_an_invalid_healthz_endpoint_is_refused(text: str, allowed: str) -> None:
    """The message says what is allowed."""
    with pytest.raises(ValueError, match=re.escape(allowed)):
        parse_healthz_endpoint(text)


TEXTS = [
    name
    for name, field in FIELDS.items()
    if isinstance(field.default, str) or name == "kubeletConfig"
]
UNFIT = {"NUL": "/x\0y", "lone surrogate": "/x\ud800y"}


@pytest.mark.regression
@pytest.mark.parametrize("what", UNFIT)
@pytest.mark.parametrize("name", [*TEXTS, "keepImages", "evictionHard"])
def test_a_text_that_the_kernel_does_not_take_is_refused_by_name(
    tmp_path: Path, name: str, what: str
) -> None:
    """In a file, and from a flag or the environment: one sentence with the source and the field."""
    text = UNFIT[what]
    value = {"keepImages": [text], "evictionHard": {"nodefs.available": text}}.get(name, text)
    head = {
        "apiVersion": "reclaimd.io/v1alpha1",
        "kind": "ReclaimdConfiguration",
        "kubeletConfig": "",
    }
    file = tmp_path / "reclaimd.yaml"
    file.write_text(json.dumps({**head, name: value}))
    for path, flags in ((str(file), {}), (None, {name: value})):
        with pytest.raises(ConfigurationError, match=name) as refused:
            load(path, {}, flags)
        assert "\n" not in str(refused.value)
        str(refused.value).encode()
        assert name in head or "must hold no NUL and no lone surrogate" in str(refused.value)


@pytest.mark.regression
@pytest.mark.parametrize("what", UNFIT)
@pytest.mark.parametrize("name", ["podLogsDir", "containerRuntimeEndpoint", "imageServiceEndpoint"])
def test_a_text_of_the_kubelet_that_the_kernel_does_not_take_is_refused(
    tmp_path: Path, name: str, what: str
) -> None:
    """Those of its fields that are read; its others are its own."""
    head = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps({**head, name: UNFIT[what]}))
    with pytest.raises(ConfigurationError, match=f"{name}: must hold no NUL and no lone surrogate"):
        read_kubelet_configuration(str(file))
    file.write_text(json.dumps({**head, "clusterDomain": UNFIT[what]}))
    read_kubelet_configuration(str(file))

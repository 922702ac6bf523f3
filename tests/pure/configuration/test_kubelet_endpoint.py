"""Address, credentials and trust for the kubelet: contradictory or careless ones are
refused when they are written.

Source: https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.configuration.effective import ConfigurationError, load
from reclaim.kubelet.client import InvalidEndpoint, KubeletEndpoint

HTTPS = "https://127.0.0.1:10250"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:10255", ("127.0.0.1", 10255)),
        ("http://127.0.0.1", ("127.0.0.1", 10255)),
        ("http://localhost:10255/", ("127.0.0.1", 10255)),
        ("http://[::1]:10255", ("::1", 10255)),
        ("http://10.0.0.7:1", ("10.0.0.7", 1)),
        ("http://[fd00::7]:65535", ("fd00::7", 65535)),
    ],
)
def test_an_endpoint_is_an_address_and_a_port(url: str, address: tuple[str, int]) -> None:
    """Without a port the kubelet's default; no name has to be resolved."""
    assert KubeletEndpoint(url).address == address


def test_over_https_the_usual_port_is_10250() -> None:
    """And 10255 is that of the read-only port."""
    endpoint = KubeletEndpoint("https://[::1]", ca_file="/ca.crt")
    assert endpoint.secure
    assert endpoint.address == ("::1", 10250)


NO_URLS = """127.0.0.1 127.0.0.1:10250 unix://kubelet.sock unix:/run/kubelet.sock ftp://127.0.0.1 HTTP://127.0.0.1
http:// http://:10255 http://kubelet:10255 http://node-1.example.com http://localhost.evil:1
http://user@127.0.0.1 http://user:secret@127.0.0.1 http://127.0.0.1@203.0.113.9
http://127.0.0.1/pods http://127.0.0.1// http://127.0.0.1?x=1 http://127.0.0.1#x http://127.0.0.1\\x
http://127.0.0.1: http://127.0.0.1:0 http://127.0.0.1:65536 http://127.0.0.1:99999 http://127.0.0.1:-1
http://127.1 http://2130706433 http://256.0.0.1 http://0177.0.0.1 http://1.2.3.4.5
http://::1 http://[127.0.0.1] http://[::1 http://[fe80::1%eth0] http://[]
http://0.0.0.0 http://[::] http://224.0.0.1 http://[ff02::1]"""
WITH_SPACE = [
    " http://127.0.0.1",
    "http://127.0.0.1 ",
    "http://127.0.0.1\n",
    "http://127.0.0.1\r\nX: y",
    "http://127.0.0.1:\u0661",
]


@pytest.mark.parametrize("url", ["", *NO_URLS.split(), *WITH_SPACE])
def test_what_is_no_url_of_a_kubelet_is_refused(url: str) -> None:
    """In a sentence that does not repeat it, as it may hold a password."""
    with pytest.raises(InvalidEndpoint) as caught:
        KubeletEndpoint(url)
    assert caught.value.field == "kubeletEndpoint"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({}, "kubeletCAFile"),
        ({"token_file": "/token"}, "kubeletCAFile"),
        ({"ca_file": "/ca", "insecure_skip_verify": True}, "kubeletInsecureSkipVerify"),
        (
            {"ca_file": "/ca", "token_file": "/token", "certificate_file": "/certificate"},
            "kubeletTokenFile",
        ),
        ({"ca_file": "/ca", "key_file": "/key"}, "kubeletKeyFile"),
        ({"ca_file": "/ca", "server_name": "a b"}, "kubeletServerName"),
        ({"ca_file": "/ca", "server_name": ".node"}, "kubeletServerName"),
        ({"ca_file": "/ca", "server_name": "nöde"}, "kubeletServerName"),
        ({"ca_file": "/ca", "server_name": "x" * 300}, "kubeletServerName"),
    ],
)
def test_over_https_trust_has_to_be_configured(fields: dict[str, Any], at_fault: str) -> None:
    """A CA, or explicitly no verification; one identity."""
    with pytest.raises(InvalidEndpoint) as caught:
        KubeletEndpoint(HTTPS, **fields)
    assert caught.value.field == at_fault


@pytest.mark.parametrize(
    "fields",
    [
        {"ca_file": "/ca", "token_file": "/token"},
        {"ca_file": "/ca", "certificate_file": "/both.pem"},
        {
            "ca_file": "/ca",
            "certificate_file": "/certificate",
            "key_file": "/key",
            "server_name": "node-1.example.com",
        },
        {"insecure_skip_verify": True, "token_file": "/token"},
        {"ca_file": "/ca"},
    ],
)
def test_a_whole_endpoint_is_taken(fields: dict[str, Any]) -> None:
    """Token or certificate, or neither where the kubelet accepts anonymous requests."""
    assert KubeletEndpoint(HTTPS, **fields).secure


@pytest.mark.parametrize(
    "fields",
    [
        {"token_file": "/token"},
        {"certificate_file": "/certificate"},
        {"key_file": "/key"},
        {"ca_file": "/ca"},
        {"server_name": "node-1"},
        {"insecure_skip_verify": True},
    ],
)
def test_no_credentials_go_over_http(fields: dict[str, Any]) -> None:
    """Nor any other setting of https."""
    with pytest.raises(InvalidEndpoint, match=r"^kubeletEndpoint: must be https://"):
        KubeletEndpoint("http://127.0.0.1:10255", **fields)


@pytest.mark.parametrize(
    "field", ["kubeletTokenFile", "kubeletCertificateFile", "kubeletKeyFile", "kubeletCAFile"]
)
def test_files_of_an_identity_have_absolute_paths(field: str) -> None:
    """A relative path would depend on the daemon's working directory."""
    with pytest.raises(
        ConfigurationError, match=f"^flags: {field}: must be an absolute path or empty, but it was "
    ):
        load(None, {}, {"kubeletConfig": "", "kubeletEndpoint": HTTPS, field: "./file"})


@given(st.text("htps:/[]@?#.0123456789%abcdef ", max_size=40) | st.text(max_size=40))
def test_any_text_is_an_address_or_refused(url: str) -> None:
    """Never another error, and never a host with a user before it."""
    for text in (url, "http://" + url):
        try:
            endpoint = KubeletEndpoint(text)
        except InvalidEndpoint:
            continue
        assert "@" not in text
        assert 0 < endpoint.address[1] < 65536

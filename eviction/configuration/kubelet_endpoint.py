"""Address, credentials and trust for requests to the kubelet: a value that is validated when it is made.

The kubelet offers the list of its pods at two addresses:

* `https://127.0.0.1:10250`, as a bearer token or a client certificate. The identity must be allowed to `get`
  `nodes/proxy`; where the kubelet has the feature gate KubeletFineGrainedAuthz (beta and on since Kubernetes 1.33),
  `nodes/pods` is enough. That grants much less: `nodes/proxy` allows running commands in every pod of the node.
  Source: https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/, KEP-2862.
* `http://127.0.0.1:10255`, the read-only port, without credentials. It is off unless `readOnlyPort` is set. There
  the server is not authenticated: where the kubelet does not listen, any process in the node's network namespace can.
  Use it only if `readOnlyPort` is set.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields

from reclaim.types import ReclaimError

USUAL_PORTS = {"http": 10255, "https": 10250}  # kubelet: readOnlyPort where it was on by default, port

_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>localhost|[0-9.]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?/?", re.ASCII
)
_SERVER_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.:_-]{0,252})", re.ASCII)
_FILES = ("token_file", "certificate_file", "key_file", "ca_file")


class KubeletEndpointError(ReclaimError, ValueError):
    """An invalid endpoint. `field` is the attribute, the message says what is allowed.

    The message quotes no value: a URL may hold a password where none belongs.
    """

    def __init__(self, field: str, message: str):
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class KubeletEndpoint:
    """Validated when it is made: raises KubeletEndpointError. Empty texts are unset; no file is read here.

    `url`: scheme, IP address (or localhost, which is 127.0.0.1 and is not looked up) and port. The client connects only
    to an address of this node.
    `ca_file`: the trusted certificates, in PEM. A kubelet that signs its own certificate keeps it, with the CA, in
    `/var/lib/kubelet/pki/kubelet.crt`; it contains the node's name, not 127.0.0.1, so set `server_name` to that name.
    `key_file`: empty when the key is in `certificate_file`, as in the kubelet's own `*-current.pem`.
    `insecure_skip_verify`: any process that listens on the port is trusted, and gets the token.
    `pinned_files`: the server must show the first certificate of one of these files, which the kubelet keeps with the
    key that belongs to it; then neither authority nor name counts.
    `certificate_pem`: a client certificate and its key as text, where a kubeconfig holds them itself.
    """

    url: str
    token_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    server_name: str = ""
    insecure_skip_verify: bool = False
    pinned_files: tuple[str, ...] = ()
    certificate_pem: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        _check_url(self.url)
        if not self.secure:
            for each in fields(self):
                if each.name != "url" and getattr(self, each.name):
                    raise KubeletEndpointError(each.name, "is for https only, and the URL of the kubelet is http")
            return
        for name in _FILES:
            path = getattr(self, name)
            if path and not (path.startswith("/") and path.isprintable()):
                raise KubeletEndpointError(name, "must be an absolute path or empty")
        if self.token_file and self.certificate_file:
            raise KubeletEndpointError("token_file", "and a client certificate are two identities: give one of them")
        if self.key_file and not self.certificate_file:
            raise KubeletEndpointError("key_file", "needs the client certificate that it belongs to")
        if self.ca_file and self.insecure_skip_verify:
            raise KubeletEndpointError("insecure_skip_verify", "contradicts the CA file: give one of them")
        if not self.ca_file and not self.insecure_skip_verify and not self.pinned_files:
            raise KubeletEndpointError(
                "ca_file", "is needed to know that it is the kubelet who answers over https, unless that is waived"
            )
        if self.server_name and not _SERVER_NAME.fullmatch(self.server_name):
            raise KubeletEndpointError("server_name", "must be a host name or an IP address, or empty")

    @property
    def secure(self) -> bool:
        """Whether it is https."""
        return self.url.startswith("https://")

    @property
    def address(self) -> tuple[str, int]:
        """IP address and port; without a port the kubelet's usual one."""
        match = _URL.fullmatch(self.url)
        assert match is not None  # checked when the value was made
        host = match["host"].strip("[]")
        return "127.0.0.1" if host == "localhost" else host, int(match["port"] or USUAL_PORTS[match["scheme"]])

    @property
    def expected_name(self) -> str:
        """The name or address that the certificate has to contain."""
        return self.server_name or self.address[0]


def _check_url(url: str) -> None:
    import ipaddress

    match = _URL.fullmatch(url)
    if match is None:
        raise KubeletEndpointError(
            "url",
            "must be http:// or https://, an IP address of this node (or localhost) and a port, like "
            "https://127.0.0.1:10250; without a user, a path or a query; or auto",
        )
    if match["port"] and not 0 < int(match["port"]) < 65536:
        raise KubeletEndpointError("url", "has a port that is not within 1 and 65535")
    if match["host"] == "localhost":
        return
    try:
        address = ipaddress.ip_address(match["host"].strip("[]"))
    except ValueError:
        raise KubeletEndpointError("url", "has a host that is not an IP address") from None
    if (address.version == 6) != match["host"].startswith("[") or address.is_unspecified or address.is_multicast:
        raise KubeletEndpointError("url", "has an address at which no kubelet can be asked")

"""A client for one request to the kubelet: `GET /pods`, `/configz` or `/metrics`.

Plain HTTP/1.1 on one connection. A `KubeletEndpoint` says where, with which identity, and which
server is trusted. Proxies are not used, names are not looked up, redirects are not followed. One
deadline spans everything from connecting to the last byte, so a server that sends a byte now and
then is late. The connection is bound to the address it connects to, which only works for an
address of this node: neither the request nor the token ever leaves the node.

The kubelet serves the list of its pods at three addresses:

* `https://127.0.0.1:10250`, for a bearer token or a client certificate. The identity must be
  allowed to `get` `nodes/proxy`; where the kubelet has the feature gate KubeletFineGrainedAuthz
  (beta and on since Kubernetes 1.33), `nodes/pods` is enough. That grants much less: `nodes/proxy`
  allows running commands in every pod of the node. Source:
  https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/, KEP-2862.
* `http://127.0.0.1:10255`, the read-only port, without credentials. Use it only if the kubelet's
  configuration sets `readOnlyPort`: the server is not authenticated, and where the kubelet does not
  listen, any process in the node's network namespace can.
* `unix:///var/lib/kubelet/pods-api/pods-api.sock`, where the kubelet has its Pods API: its pods
  alone, for root without credentials (`reclaim.kubelet.pods_api`).

The modules for TLS, HTTP and gRPC are imported with the first request.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import astuple, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from reclaim.evidence.pod_list import KubeletLate, KubeletUnavailable, WayRefused

if TYPE_CHECKING:
    import http.client
    import socket
    import ssl

ANSWER_SECONDS = 2.0
PODS = "/pods"
CONFIGZ = "/configz"
METRICS = "/metrics"
LARGEST_BODY_BYTES = 64 * 1024 * 1024  # 500 pods of 20 KiB are 10 MiB
LARGEST_PEM_BYTES = 1024 * 1024
# kubelet: readOnlyPort where it was on by default, port
USUAL_PORTS = {"http": 10255, "https": 10250}

_ADDRESS = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f.]*:[0-9A-Fa-f.:]*)\]|(?P<four>localhost|[0-9.]+))"
    r"(?::(?P<port>[0-9]{1,5}))?",
    re.ASCII,
)
LARGEST_PORT = 65535
Address = tuple[str, int]
"""IP address and port."""
_SERVER_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.:_-]{0,252})", re.ASCII)
_READ_AT_ONCE_BYTES = 64 * 1024
# visible ASCII, so that it cannot end the header line
_TOKEN = re.compile(rb"[\x21-\x7e]{1,65536}")
_FIRST_CERTIFICATE = re.compile(
    "-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL
)

_REMEDIES = {
    400: "is this an https port?",
    401: (
        "it accepts tokens only with authentication.webhook.enabled, and certificates only of its "
        "clientCAFile; is the given one valid?"
    ),
    403: "is the identity allowed to get {permission}?",
    404: "is this the kubelet's port? The one for /healthz does not list pods",
}
_OUT_OF_REACH = {
    errno.EADDRNOTAVAIL: "the address does not belong to this node",
    errno.EAFNOSUPPORT: (
        "this process has no network; the service has with network.conf.example as network.conf"
    ),
}
# https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/#kubelet-authorization
_PERMISSIONS = {
    PODS: "nodes/proxy (from Kubernetes 1.33 on, nodes/pods is enough)",
    CONFIGZ: "nodes/proxy (from Kubernetes 1.33 on, nodes/configz is enough)",
    METRICS: "nodes/metrics (nodes/proxy does not include it)",
}


class InvalidEndpoint(ValueError):
    """What an endpoint says is not possible.

    `problem`: the end of a sentence about `field`, of the configuration.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


@dataclass(frozen=True)
class KubeletEndpoint:
    """Where and as whom the kubelet is asked, and which server is trusted.

    Validated when it is made: raises InvalidEndpoint with the field of our configuration. No
    message quotes a value, as a URL may hold a password where none belongs. Empty texts are
    unset; no file is read here.

    `url`: scheme, IP address (or localhost, which is 127.0.0.1 and is not looked up) and port; or
    unix:// and a path. The client connects only to an address of this node. `ca_file`: the trusted
    certificates, in PEM. A kubelet that signs its own certificate keeps it, with the CA, in
    `/var/lib/kubelet/pki/kubelet.crt`. It contains the node's name, not 127.0.0.1, so set
    `server_name` to that name. `key_file`: empty when the key is in `certificate_file`, as in the
    kubelet's own `*-current.pem`. `insecure_skip_verify`: any process that listens on the port is
    trusted, and gets the token. `pinned_files`: the server must present the first certificate of
    one of these files; then neither authority nor name is checked.
    """

    url: str
    token_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    server_name: str = ""
    insecure_skip_verify: bool = False
    pinned_files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.socket:
            _address_of(self.url)
        if not self.secure:
            if any(astuple(self)[1:]):  # anything but `url`
                raise InvalidEndpoint(
                    "kubeletEndpoint",
                    "must be https:// for an identity, a CA file or a server name",
                )
            return
        if self.token_file and self.certificate_file:
            raise InvalidEndpoint(
                "kubeletTokenFile",
                "and a client certificate are two identities: give only one of them",
            )
        if self.key_file and not self.certificate_file:
            raise InvalidEndpoint(
                "kubeletKeyFile", "needs the client certificate that it belongs to"
            )
        if self.ca_file and self.insecure_skip_verify:
            raise InvalidEndpoint(
                "kubeletInsecureSkipVerify", "contradicts the CA file: give only one of them"
            )
        if not self.ca_file and not self.insecure_skip_verify and not self.pinned_files:
            raise InvalidEndpoint(
                "kubeletCAFile",
                "is needed to verify the kubelet's certificate, unless that is waived",
            )
        if self.server_name and not _SERVER_NAME.fullmatch(self.server_name):
            raise InvalidEndpoint(
                "kubeletServerName",
                f"must be a host name or an IP address, or empty, but it was {self.server_name!r}",
            )

    @property
    def socket(self) -> str:
        """The path of its socket; empty if it is asked over TCP."""
        return self.url.removeprefix("unix://") if self.url.startswith("unix:///") else ""

    @property
    def secure(self) -> bool:
        """Whether it is https."""
        return self.url.startswith("https://")

    @property
    def address(self) -> Address:
        """IP address and port; without a port the kubelet's usual one."""
        return _address_of(self.url)


def address_in(text: str, usual_port: int = -1) -> Address | None:
    """IP address and port in `127.0.0.1:80`, `[::1]:80` or `localhost:80`; None if it is no such.

    `localhost` is 127.0.0.1: no name is looked up. `usual_port`: if none is written; without it,
    one must be.
    """
    import ipaddress

    parts = _ADDRESS.fullmatch(text)
    if parts is None:
        return None
    host = parts["six"] or parts["four"].replace("localhost", "127.0.0.1")
    port = int(parts["port"] or usual_port)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return None
    return (host, port) if 0 <= port <= LARGEST_PORT else None


def _address_of(url: str) -> Address:
    """IP address and port. Raises InvalidEndpoint."""
    import ipaddress

    scheme, _, rest = url.partition("://")
    if scheme in USUAL_PORTS and (found := address_in(rest.removesuffix("/"), USUAL_PORTS[scheme])):
        host = ipaddress.ip_address(found[0])
        if found[1] > 0 and not (host.is_unspecified or host.is_multicast):
            return found
    raise InvalidEndpoint(
        "kubeletEndpoint",
        "must be http:// or https://, an IP address of this node (or localhost) and a port, like"
        " https://127.0.0.1:10250, without a user, a path or a query; unix:// and the path of its"
        " socket; or auto",
    )


def ask_kubelet(
    endpoint: KubeletEndpoint,
    seconds: float = ANSWER_SECONDS,
    path: str = PODS,
    *,
    all_sources: bool = False,
) -> bytes:
    """The body of the kubelet's answer to a GET, complete by the rules of HTTP.

    Token and certificates are read again for each request, as they rotate. No message contains the
    token, which is sent once the server's certificate is verified, unless the endpoint waives that.

    At its socket, the list of pods in the same form; `all_sources`: as for `list_pods`, which is
    for the socket. At most 64 MiB, in at most `seconds`. Raises only KubeletUnavailable.
    """
    kubelet = f"the kubelet at {endpoint.url}"
    if endpoint.socket:
        from reclaim.kubelet.pods_api import list_pods

        if path != PODS:
            raise WayRefused(f"{kubelet} lists its pods and answers nothing else")
        return list_pods(endpoint.socket, seconds, all_sources)
    headers = {"Accept": "application/json"}
    if endpoint.token_file:
        headers["Authorization"] = f"Bearer {_token(endpoint.token_file)}"
    with answer_to(
        Request("GET", path, headers),
        kubelet,
        endpoint.address,
        seconds=seconds,
        connected=partial(_connected, endpoint),
    ) as response:
        if response.status != 200:
            words = f"{kubelet} answered {_status(response.status, path)}"
            raise (WayRefused if response.status in (401, 403) else KubeletUnavailable)(words)
        if response.length is None and not response.chunked:
            # It would end with the connection, so a part would look like the whole. Go's
            # server always sends the length.
            raise KubeletUnavailable(f"{kubelet} gave an answer without its length")
        body = response.read(LARGEST_BODY_BYTES + 1)
        if len(body) > LARGEST_BODY_BYTES:
            raise KubeletUnavailable(
                f"{kubelet} answered with more than {LARGEST_BODY_BYTES >> 20} MiB"
            )
        if response.length:  # read() with a limit accepts a body that ends early
            raise KubeletUnavailable(f"{kubelet} gave an answer that was cut short")
        return body


class Request(NamedTuple):
    """One request in HTTP."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None = None


@contextmanager
def answer_to(
    request: Request,
    server: str,
    address: Address,
    *,
    seconds: float,
    connected: Callable[[float], AbstractContextManager[socket.socket]],
) -> Iterator[http.client.HTTPResponse]:
    """The response, whose body is still to be read.

    `seconds`: from connecting to the end of the `with` block. `server`: what sentences call it.
    `connected`: makes the connection, until then (monotonic seconds). Raises
    only KubeletUnavailable, also for what goes wrong while the body is read.
    """
    import http.client
    import ssl

    until = time.monotonic() + seconds
    try:
        exchange = http.client.HTTPConnection(*address)
        with connected(until) as connection:
            exchange.sock = _Timed(connection, until)
            exchange.request(
                request.method,
                request.path,
                request.body,
                {**request.headers, "Connection": "close"},
            )
            with exchange.getresponse() as response:
                yield response
    except TimeoutError:
        raise KubeletLate(f"{server} gave no complete answer within {seconds:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise KubeletUnavailable(
            f"{server} has a certificate that is not trusted ({error.verify_message.rstrip('.')}): "
            "check the CA file, and whether the certificate contains the server name"
        ) from None
    except ssl.SSLError as error:
        raise WayRefused(
            f"TLS with {server} failed ({error.reason}): is this its https port, and does it"
            " require a certificate?"
        ) from None
    except ConnectionRefusedError:
        raise KubeletUnavailable(
            f"{server} refuses connections: is it running, and is this its port?"
        ) from None
    except OSError as error:
        if unreachable := _OUT_OF_REACH.get(error.errno or 0):
            raise WayRefused(f"{server} is not asked: {unreachable}") from None
        why = error.strerror or "the connection was lost"
        raise KubeletUnavailable(f"{server} cannot be asked: {why}") from None
    except (http.client.HTTPException, ValueError):
        raise KubeletUnavailable(
            f"{server} gave no answer in HTTP, or one that was cut short"
        ) from None


@contextmanager
def _connected(endpoint: KubeletEndpoint, until: float) -> Iterator[socket.socket]:
    """A connection to the kubelet whose certificate is trusted."""
    import ssl

    with secured(
        endpoint.address,
        _context(endpoint) if endpoint.secure else None,
        endpoint.server_name,
        until=until,
        source_address=(endpoint.address[0], 0),
    ) as connection:
        if isinstance(connection, ssl.SSLSocket) and endpoint.pinned_files:
            _check_pinned(endpoint, connection.getpeercert(binary_form=True))
        yield connection


@contextmanager
def secured(
    address: Address,
    context: ssl.SSLContext | None,
    server_name: str,
    *,
    until: float,
    source_address: Address | None = None,
) -> Iterator[socket.socket]:
    """A connection with TLS; without a context, a plain one. Raises OSError.

    `server_name`: in the certificate, if not the host.
    """
    import socket

    with socket.create_connection(address, _left(until), source_address=source_address) as plain:
        if context is None:
            yield plain
            return
        plain.settimeout(_left(until))
        with context.wrap_socket(plain, server_hostname=server_name or address[0]) as connection:
            yield connection


def _status(code: int, path: str) -> str:
    """The status with the standard's phrase, never the server's, and a hint what to check."""
    from http.client import responses

    status = f"{code} {responses.get(code, '')}".rstrip()
    remedy = _REMEDIES.get(code, "redirects are not followed" if 300 <= code < 400 else "")
    return f"{status}: {remedy.format(permission=_PERMISSIONS[path])}" if remedy else status


class _Timed(io.RawIOBase):
    """A connection with one deadline for everything, as HTTPConnection uses a socket."""

    def __init__(self, connection: socket.socket, until: float):
        self._connection = connection
        self._until = until

    def sendall(self, data: bytes) -> None:
        """Raises TimeoutError."""
        self._connection.settimeout(_left(self._until))
        self._connection.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        assert mode == "rb"
        return io.BufferedReader(self, _READ_AT_ONCE_BYTES)

    def close(self) -> None:
        """Does nothing: `_connected` closes the connection, after the body has been read."""

    def readable(self) -> bool:
        return True

    # a writable buffer, which has no type before Python 3.12
    def readinto(self, buffer: Any) -> int:
        """Reads what has arrived, waiting at most until the deadline. Raises TimeoutError."""
        self._connection.settimeout(_left(self._until))
        return self._connection.recv_into(buffer)


def _left(until: float) -> float:
    """Seconds left, always more than 0. Raises TimeoutError."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def client_context(verifies: bool) -> ssl.SSLContext:
    """For a connection by TLS 1.2 or later.

    `verifies`: whether the server's certificate and name are checked, by authorities that are still
    to be loaded. It accepts the certificates that Go accepts: `ssl.create_default_context` asks for
    all of RFC 5280 since Python 3.13, which the authorities of many clusters fail.
    """
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificate and name by default
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def load_identity(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Has the client present this certificate. `key`: empty if the certificate's file has it too.
    Raises OSError, ssl.SSLError."""
    # With an empty password an encrypted key fails; without one OpenSSL
    # would prompt on the terminal.
    context.load_cert_chain(certificate, key or None, password="")


def _context(endpoint: KubeletEndpoint) -> ssl.SSLContext:
    verifies = not (endpoint.insecure_skip_verify or endpoint.pinned_files)
    context = client_context(verifies)
    if verifies:
        with _usable("CA file", endpoint.ca_file):
            context.load_verify_locations(endpoint.ca_file)
    if endpoint.certificate_file:
        with _usable("client certificate", endpoint.certificate_file, endpoint.key_file):
            load_identity(context, endpoint.certificate_file, endpoint.key_file)
    return context


def _check_pinned(endpoint: KubeletEndpoint, shown: bytes | None) -> None:
    """Raises KubeletUnavailable unless `shown` is the first certificate of a pinned file."""
    import ssl

    for path in endpoint.pinned_files:
        with (
            suppress(WayRefused),
            _usable("certificate", path),
            open(path, encoding="ascii") as file,
        ):
            first = _FIRST_CERTIFICATE.search(file.read(LARGEST_PEM_BYTES))
            if first is not None and ssl.PEM_cert_to_DER_cert(first[0]) == shown:
                return
    kept = " or ".join(endpoint.pinned_files)
    raise KubeletUnavailable(
        f"{endpoint.url} is not trusted: it presents a certificate other than {kept}"
    )


def _token(path: str) -> str:
    """The bearer token in a file, without the white space around it. Raises WayRefused."""
    with _usable("token file", path), open(path, "rb") as file:
        content = file.read(LARGEST_PEM_BYTES).strip()
    if not _TOKEN.fullmatch(content):
        raise WayRefused(f"the kubelet is not asked: the token file {path} holds no token")
    return content.decode()


@contextmanager
def _usable(what: str, *paths: str | None) -> Iterator[None]:
    """Raises WayRefused if one of these files cannot be used.

    A failure of the `with` block names the first. Anything but a regular file is rejected
    beforehand: opening a FIFO would hang.
    """
    named = what
    try:
        for path in filter(None, reversed(paths)):
            named = f"{what} {path}"
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise WayRefused(f"the kubelet is not asked: the {named} is not a file")
        yield
    except (OSError, ValueError) as error:
        why = (
            getattr(error, "reason", None)
            or getattr(error, "strerror", None)
            or "it holds nothing usable"
        )
        raise WayRefused(f"the kubelet is not asked: the {named} cannot be used ({why})") from None

"""One request to the API server, over the HTTP and TLS of `reclaim.kubelet.client`.

Where it is, and with which identity it is asked, is read anew each time, as tokens and certificates
rotate: from the current context of a kubeconfig, or from what Kubernetes puts into a pod. Of a
kubeconfig these fields are used, as kubectl does: server (https), certificate-authority (without
it, the system's authorities), tls-server-name and insecure-skip-tls-verify; token, tokenFile,
client-certificate and client-key. A program (exec), a password or a proxy is not.

The name of the server is looked up, which has no deadline: ask only on a
thread that nothing waits for.
"""

from __future__ import annotations

import base64
import os
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from eviction.configuration.strict_yaml import ConfigurationError, read_document
from eviction.types import EvictionError
from reclaim.evidence.pod_list import KubeletUnavailable
from reclaim.kubelet.client import Request, answer_to, client_context, load_identity, secured

THIS_POD = "the service account of this pod"
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
SKIP = "insecure-skip-tls-verify"
FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
LARGEST_ANSWER_BYTES = 64 * 1024

Fields = Mapping[str, Any]
"""The fields of a cluster or a user, as in a kubeconfig."""


class NoAnswer(EvictionError):
    """The API server did not answer, or was not asked. The message is the end of a sentence."""


def ask_api_server(kubeconfig: str, request: Request, seconds: float) -> tuple[str, int, bytes]:
    """The server in words, and the status and at most 64 KiB of its answer. `kubeconfig`:
    empty for the pod's service account. Raises NoAnswer; no message quotes a value of the
    kubeconfig but the server."""
    try:
        cluster, user = _in_kubeconfig(kubeconfig) if kubeconfig else _in_a_pod()
        server = f"the API server at {cluster['server']}"
        host, port, prefix = _place(cluster["server"])
        headers = {**request.headers, **_authorization(user)}
        context = _context(cluster, user)
    except ConfigurationError as error:
        raise NoAnswer(str(error)) from None
    except (ssl.SSLError, ValueError):
        raise NoAnswer(
            f"{kubeconfig or THIS_POD} cannot be used: a certificate, key or token of it is none"
        ) from None
    except OSError as error:
        raise NoAnswer(f"{kubeconfig or THIS_POD} cannot be used: {error.strerror}") from None
    server_name = cluster.get("tls-server-name", "")
    try:
        with answer_to(
            request._replace(path=prefix + request.path, headers=headers),
            server,
            (host, port),
            seconds=seconds,
            connected=lambda until: secured((host, port), context, server_name, until=until),
        ) as response:
            return server, response.status, response.read(LARGEST_ANSWER_BYTES)
    except KubeletUnavailable as error:
        raise NoAnswer(str(error)) from None


def _in_a_pod() -> tuple[Fields, Fields]:
    """What Kubernetes puts into each pod that may ask its API server, as cluster and user."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "")
    token = f"{SERVICE_ACCOUNT}/token"
    if not host or not os.path.exists(token):
        why = "this process does not run in a pod, or its token is not mounted"
        raise ConfigurationError(f"{THIS_POD} cannot be used: {why}")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    authority = f"{SERVICE_ACCOUNT}/ca.crt"
    return {"server": server, "certificate-authority": authority}, {"tokenFile": token}


def _in_kubeconfig(path: str) -> tuple[Fields, Fields]:
    """Cluster and user of the current context. Raises ConfigurationError.

    It names the server that gets the token, so it must be as trusted as our own file.
    """
    document = read_document(path)
    named = partial(_named, document, directory=os.path.dirname(path))
    context = named("context", document.get("current-context"))
    cluster = named("cluster", context.get("cluster"))
    user = named("user", context.get("user"))
    if "server" not in cluster:
        raise ConfigurationError(f"{path}: its current context names no cluster with a server")
    if not {"token", "tokenFile", "client-certificate", "client-certificate-data"} & user.keys():
        raise ConfigurationError(
            f"{path}: its current context names no user with a token or a client certificate"
        )
    return cluster, user


def _named(document: Fields, kind: str, name: object, *, directory: str) -> Fields:
    """The context, cluster or user of this name; empty if there is none. Its paths start from the
    directory of the kubeconfig."""
    entries = document.get(f"{kind}s")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name:
            fields = entry.get(kind)
            if isinstance(fields, dict):
                return {
                    field: os.path.join(directory, value) if field in FILES and value else value
                    for field, value in fields.items()
                    if isinstance(value, str) or field == SKIP
                }
    return {}


def _place(server: str) -> tuple[str, int, str]:
    """Host, port, and the path before that of each request. Raises ConfigurationError."""
    with suppress(ValueError):  # of a port, or of brackets
        url = urlsplit(server)
        port = url.port or 443
        if url.scheme == "https" and re.fullmatch(r"[\w.:-]+", url.hostname or "", re.ASCII):
            return url.hostname or "", port, url.path.rstrip("/")
    raise ConfigurationError(f"{server} is not the https address of an API server")


def _authorization(user: Fields) -> dict[str, str]:
    """The header for the user's token; none without one. Raises OSError and ValueError."""
    token = user.get("token", "")
    if path := user.get("tokenFile"):
        with open(path, encoding="ascii") as file:
            token = file.read(LARGEST_ANSWER_BYTES).strip()
    if not token.isascii() or not token.isprintable():
        raise ValueError  # it could end the header line
    return {"Authorization": f"Bearer {token}"} if token else {}


def _context(cluster: Fields, user: Fields) -> ssl.SSLContext:
    """Raises OSError and ValueError."""
    verifies = cluster.get(SKIP) is not True
    context = client_context(verifies=verifies)
    if verifies:
        with _file(cluster, "certificate-authority") as authority:
            if authority:
                context.load_verify_locations(authority)
            else:
                context.load_default_certs()
    with _file(user, "client-certificate") as certificate, _file(user, "client-key") as key:
        if certificate:
            load_identity(context, certificate, key)
    return context


@contextmanager
def _file(fields: Fields, name: str) -> Iterator[str]:
    """The path of the file that a field names, or of one in memory with NAME-data, as OpenSSL reads
    keys only from files; empty without either."""
    data = fields.get(f"{name}-data")
    if not data:
        yield fields.get(name, "")
        return
    with os.fdopen(os.memfd_create(name), "wb") as file:
        file.write(base64.b64decode(data, validate=True))
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"

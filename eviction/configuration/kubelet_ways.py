"""The ways in which this node can ask its own kubelet, for `kubeletEndpoint: auto`.

For its pods, the kubelet's own socket comes first, if there is one: root needs no identity
(`reclaim.kubelet.pods_api`).

Otherwise over HTTPS. Where: the kubelet's `address` and `port`, on the loopback if it listens on
all interfaces. Which server is trusted: only one that presents the very certificate that the
kubelet keeps on this node (`tlsCertFile`, else the usual ones). With which identity: these in
order, if their files exist and only root (or our own user) may write them:

* The service account's token of a pod. The kubelet reviews it where
  `authentication.webhook.enabled` is true (the default of its configuration file); the account
  needs a role to get `nodes/pods`, or `nodes/proxy` before Kubernetes 1.33 (component `kubelet`).
* The node's own client certificate. The kubelet knows it (`authentication.x509.clientCAFile`), but
  its group `system:nodes` may read only Nodes and other objects, not `nodes/proxy` or `nodes/pods`:
  with `authorization.mode: Webhook` the answer is 403 unless a role is bound to it. With
  `AlwaysAllow` it is enough.
* No identity: enough where anonymous requests are authorized.

Sources: https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/,
https://kubernetes.io/docs/reference/access-authn-authz/node/,
https://kubernetes.io/docs/setup/best-practices/certificates/.

Does not cover: the request itself (`reclaim.kubelet.client`).
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from os.path import join
from typing import NamedTuple

from eviction.configuration.kubelet import (
    DEFAULT_PORT,
    KubeletConfiguration,
    host_at,
    kubelet_configuration,
)
from eviction.configuration.strict_yaml import ConfigurationError
from reclaim.evidence.pod_list import KubeletLate, KubeletUnavailable, WayRefused
from reclaim.kubelet.client import (
    ANSWER_SECONDS,
    CONFIGZ,
    METRICS,
    PODS,
    InvalidEndpoint,
    KubeletEndpoint,
    ask_kubelet,
)
from reclaim.kubelet.versions import LISTS_ALL_SOURCES, NEWEST, KubeletVersion, version_in
from reclaim.trust import file_refusal
from reclaim.workers import NoThread, ReadingHangs, ReadingsInTime, Workers
from signals.clock import LATE_SECONDS, Clock

K3S = ("/var/lib/rancher/k3s", "/var/lib/rancher/rke2")
# each search is handshakes, and questions of the kubelet to the API server
SEARCH_AGAIN_SECONDS = 600.0
# where a way was accepted before: a certificate was rotated, or the kubelet restarted
REFUSED_LATER_SECONDS = 60.0
MOST_ASKING = 8  # at a time
TOLD_BY_THE_KUBELET = "the kubelet's /configz"
PODS_SOCKET = "pods-api/pods-api.sock"  # below the kubelet's root directory


class KubeletWay(NamedTuple):
    """One way to ask the kubelet: the identity in words, and the endpoint, or why there is none."""

    identity: str
    endpoint: KubeletEndpoint | None
    problem: str = ""


@dataclass(frozen=True)
class IdentityFiles:
    """Files that may hold an identity.

    `certificates`: each with the file of its key, empty if that is the same.
    """

    tokens: tuple[str, ...] = ("/var/run/secrets/kubernetes.io/serviceaccount/token",)
    certificates: tuple[tuple[str, str], ...] = tuple(
        (f"{root}/agent/client-kubelet.crt", f"{root}/agent/client-kubelet.key") for root in K3S
    )
    serving: tuple[str, ...] = tuple(f"{root}/agent/serving-kubelet.crt" for root in K3S)


class KubeletPlace(NamedTuple):
    """Where the node's kubelet listens, by its own configuration; the defaults are the kubelet's.

    `root_directory`: its `--root-dir`, whose `pki` holds its certificates.
    """

    root_directory: str
    address: str = ""
    port: int = DEFAULT_PORT
    tls_cert_file: str = ""
    files: IdentityFiles = IdentityFiles()


KubeletAccess = KubeletEndpoint | KubeletPlace
"""How the kubelet is asked: at a configured endpoint, or by a way that is found at a place."""


def asking_for_pods(
    access: KubeletAccess | None, clock: Clock, version: KubeletVersion
) -> Callable[[], bytes] | None:
    """A function that asks the kubelet for its pods; None if it is not asked."""
    if access is None:
        return None
    return answered_in_time(PodsOfKubelet(access, clock, version=version).get)


def answered_in_time(ask: Callable[[], bytes]) -> Callable[[], bytes]:
    """The same question with a deadline, for when a file of the identity hangs.

    While it does, others fail at once. The answer itself may take 2 s. Raises KubeletUnavailable
    within 2 s more. Any thread may call.
    """
    asked = ReadingsInTime(Workers("the kubelet", MOST_ASKING), ANSWER_SECONDS + LATE_SECONDS)

    def ask_in_time() -> bytes:
        try:
            return asked(ask)
        except ReadingHangs as error:
            raise KubeletLate(f"the kubelet is not asked: {error}; is a file hanging?") from None
        except NoThread:  # none can be started
            return ask()

    return ask_in_time


class PodsOfKubelet:
    """Asks the node's own kubelet for its pods.

    For `kubeletEndpoint: auto` it finds an identity that the kubelet accepts. A way that was
    accepted is used again. After a search that found none, or was late, no request is sent for ten
    minutes (one, if a way was accepted before), unless the kubelet's socket has appeared: a node
    under pressure has no time for a search in every pass. A kubelet that says *not yet* has not
    refused the way: it is the one that is asked next, and no other. `endpoint`: the configured one,
    or the one that last answered; None before that, and after its identity was refused.
    """

    def __init__(
        self,
        access: KubeletAccess,
        clock: Clock,
        seconds: float = ANSWER_SECONDS,
        *,
        version: KubeletVersion = NEWEST,
    ):
        self.endpoint = access if isinstance(access, KubeletEndpoint) else None
        self._access = access
        self._clock = clock
        self._seconds = seconds
        self._all_sources = version.has(LISTS_ALL_SOURCES)
        self._in_vain = ""
        self._socket = ""  # at the last search
        self._search_from = float("-inf")
        self._search_again_seconds = SEARCH_AGAIN_SECONDS

    def get(self) -> bytes:
        """The body of the kubelet's answer, after at most `seconds` in all.

        Raises KubeletUnavailable.
        """
        until = time.monotonic() + self._seconds
        known = self.endpoint  # another thread may replace it meanwhile
        if known is not None:
            try:
                return ask_kubelet(known, self._seconds, PODS, all_sources=self._all_sources)
            except WayRefused:
                if known is self._access:
                    raise
            # a certificate was rotated, or a role removed
            self.endpoint = None
            self._search_from = float("-inf")
        socket = pods_socket(self._access)
        if self._clock.monotonic() < self._search_from and socket in ("", self._socket):
            raise KubeletUnavailable(self._in_vain)
        self._socket = socket
        try:
            self.endpoint, body = asked_by_the_first(
                ways_to_pods(self._access), until, PODS, all_sources=self._all_sources
            )
        except (WayRefused, KubeletLate) as error:
            self._in_vain = str(error)
            self._search_from = self._clock.monotonic() + self._search_again_seconds
            raise
        self._search_again_seconds = REFUSED_LATER_SECONDS
        return body


def asked_by_the_first(
    ways: Iterable[KubeletWay], until: float, path: str, *, all_sources: bool = False
) -> tuple[KubeletEndpoint, bytes]:
    """The endpoint of the first way that the kubelet accepts, and its answer to a GET of this path.

    The next way is tried only if the kubelet refuses one (401, 403, TLS) or it cannot be
    used: another identity does not help with a kubelet that does not listen or is late.
    `until`: monotonic seconds. Raises KubeletUnavailable; if every way was refused,
    WayRefused, which lists them.
    """
    tried: list[str] = []
    for way in ways:
        problem = way.problem
        if way.endpoint is not None:
            try:
                return way.endpoint, ask_kubelet(
                    way.endpoint, max(until - time.monotonic(), 0.0), path, all_sources=all_sources
                )
            except WayRefused as error:
                problem = str(error)
        tried.append(f"as {way.identity}: {problem}")
    raise WayRefused(f"no way was found to ask the kubelet for {path}: {'; '.join(tried)}")


def asked_once(access: KubeletAccess, path: str) -> bytes:
    """The answer to a GET of this path by any way but the kubelet's socket.

    That answers nothing but its pods. Takes at most 2 s, or 2 s more if a file of the identity
    hangs. Raises KubeletUnavailable.
    """
    until = time.monotonic() + ANSWER_SECONDS
    return answered_in_time(lambda: asked_by_the_first(kubelet_ways(access), until, path)[1])()


def ways_to_pods(place: KubeletAccess) -> Iterator[KubeletWay]:
    """The ways to the list of pods: also the kubelet's socket, which answers nothing else."""
    if socket := pods_socket(place):
        yield KubeletWay("root at its socket", KubeletEndpoint(f"unix://{socket}"))
    yield from kubelet_ways(place)


def pods_socket(place: KubeletAccess) -> str:
    """The path of the kubelet's socket; empty if there is none now, or it is not `auto`."""
    if not isinstance(place, KubeletPlace):
        return ""
    path = join(place.root_directory, PODS_SOCKET)
    return path if os.path.exists(path) else ""


def kubelet_ways(place: KubeletAccess) -> Iterator[KubeletWay]:
    """The configured way, or those that this node has now, in the order in which they are tried."""
    if isinstance(place, KubeletEndpoint):
        yield KubeletWay("the configured identity", place)
        return
    files = place.files
    pki = join(place.root_directory, "pki")
    serving = [place.tls_cert_file]
    if not place.tls_cert_file:
        serving = [
            *(join(pki, name) for name in ("kubelet-server-current.pem", "kubelet.crt")),
            *files.serving,
        ]
    pinned = tuple(path for path in serving if _refusal(path) is None)
    if not pinned:
        refused = [f"{path} {_refusal(path)}" for path in serving if os.path.exists(path)]
        why = (*refused, f"there is no {' or '.join(serving)}")[0]
        yield KubeletWay("anyone", None, f"the kubelet cannot be verified: {why}")
        return
    try:
        nobody = KubeletEndpoint(
            f"https://{host_at(place.address)}:{place.port}", pinned_files=pinned
        )
    except InvalidEndpoint as error:
        yield KubeletWay("anyone", None, str(error))
        return
    for path in filter(os.path.exists, files.tokens):
        yield _way(f"the service account's token {path}", replace(nobody, token_file=path))
    for certificate, key in ((join(pki, "kubelet-client-current.pem"), ""), *files.certificates):
        if os.path.exists(certificate):
            yield _way(
                f"the node's client certificate {certificate}",
                replace(nobody, certificate_file=certificate, key_file=key),
            )
    yield KubeletWay("nobody", nobody)


def _way(identity: str, endpoint: KubeletEndpoint) -> KubeletWay:
    """A way, if all files that hold its identity are trusted."""
    for path in (endpoint.token_file, endpoint.certificate_file, endpoint.key_file):
        if path and (refusal := _refusal(path)) is not None:
            return KubeletWay(identity, None, f"{path} {refusal}")
    return KubeletWay(identity, endpoint)


def _refusal(path: str) -> str | None:
    """Why a file is not used, as the end of a sentence; None: it is trusted."""
    try:
        refusal = file_refusal(path, os.stat(path))
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None if refusal is None else f"is not trusted: {refusal}"


def asked_of_kubelet(access: KubeletAccess) -> KubeletConfiguration:
    """The configuration that the kubelet itself reports. Takes at most 4 s.
    Raises ConfigurationError.

    `GET /configz` answers with the whole configuration in force, with defaults, drop-ins and flags
    (`pkg/kubelet/server/server.go`, `staging/src/k8s.io/component-base/configz`). An identity that
    may get the pods need not be allowed to get this: a role must name `nodes/configz`, or
    `nodes/proxy` before Kubernetes 1.33.
    """
    try:
        match json.loads(asked_once(access, CONFIGZ)):
            case {"kubeletconfig": dict(document)}:
                return kubelet_configuration(document, TOLD_BY_THE_KUBELET)
        why = "has no object kubeletconfig"
    except KubeletUnavailable as error:
        why = f"was not available: {error}"
    except (ValueError, RecursionError):
        why = "is not JSON"
    raise ConfigurationError(f"{TOLD_BY_THE_KUBELET} {why}")


def version_of_kubelet(access: KubeletAccess | None) -> KubeletVersion:
    """The version that the kubelet tells, if it is asked for its pods; else the newest, and why.

    Takes at most 4 s.
    """
    if access is None:
        return KubeletVersion()
    try:
        body = asked_once(access, METRICS)
    except KubeletUnavailable as error:
        return KubeletVersion(assumed=str(error))
    return version_in(body) or KubeletVersion(assumed="its metrics do not tell it")

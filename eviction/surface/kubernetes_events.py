"""Events to the API server, in the form of the kubelet's: about the Node, in the namespace
`default`.

Each reason is one object, which counts its events and has the message of the latest. It is written
at once, and then at most once a minute. What could not be written is tried again with the first
observation after a minute, with what came meanwhile, so no event waits in a queue: `warned` only
counts. One thread writes, for which an API server may be down, hang, refuse or answer garbage.

A request goes over the HTTP and TLS of `reclaim.kubelet.client`. Where the API server is, and with
which identity it is asked, is read anew each time, as tokens and certificates rotate: from the
current context of a kubeconfig, or from what Kubernetes puts into a pod. Of a kubeconfig these
fields are used, as kubectl does: server (https), certificate-authority (without it, the system's
authorities), tls-server-name and insecure-skip-tls-verify; token, tokenFile, client-certificate and
client-key. A program (exec), a password or a proxy is not. The name of the server is looked up,
which has no deadline: ask only on a thread that nothing waits for.
"""

import base64
import json
import os
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from urllib.parse import quote, urlsplit

from eviction.configuration.strict_yaml import ConfigurationError, read_document
from eviction.records.json_shapes import timestamp
from eviction.records.listener import Backlog
from eviction.types import Decision, EvictionError, Fields
from eviction.wording.log import Log, ThrottledLog
from reclaim.evidence.pod_list import KubeletUnavailable
from reclaim.kubelet.client import Request, answer_to, client_context, load_identity, secured
from reclaim.types import EventReason, GCEvent
from signals.clock import Clock
from signals.types import SignalObservations

WRITE_SECONDS = 60.0  # at most one write of a reason in this time
ANSWER_SECONDS = 5.0
LONGEST_MESSAGE = 1024  # characters: what events.k8s.io allows for its note
NAMESPACE = "default"  # where client-go puts events about objects without a namespace
COMPONENT = "reclaimd"
REFUSED = (
    ": is the token or certificate valid, and may it create and patch events in the namespace"
    f" {NAMESPACE}?"
)

Event = Fields
"""An object of core/v1 in the kubelet's form."""


def counted(event: GCEvent, known: Event | None, node_name: str, *, wall: float) -> Event:
    """The object of its reason after this event, which happened at `wall`. `known`: before
    it; None: it is the first.

    As in `pkg/kubelet/kubelet.go`, the uid is the Node's name; as in client-go, the
    object's name has the time.
    """
    now = timestamp(wall)
    before = known or {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{node_name}.{event.reason.lower()}.{int(wall * 1e9):x}",
            "namespace": NAMESPACE,
        },
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_name},
        "type": "Normal" if event.reason is EventReason.RELIEVED else "Warning",
        "reason": str(event.reason),
        "source": {"component": COMPONENT, "host": node_name},
        "reportingComponent": COMPONENT,
        "reportingInstance": node_name,
        "firstTimestamp": now,
        "count": 0,
    }
    return {
        **before,
        "message": event.message[:LONGEST_MESSAGE],
        "lastTimestamp": now,
        "count": before["count"] + 1,
    }


class EventRecorder(Backlog):
    """Writes events on a thread of its own.

    `write`: writes the object of a reason; may wait, but not forever, and raises NoAnswer.
    """

    def __init__(
        self, write: Callable[[Event], None], node_name: str, log: Log, *, clock: Clock
    ) -> None:
        super().__init__("events", 1)
        self._write = write
        self._node_name = node_name
        self._clock = clock
        self._throttled_log = ThrottledLog(log, clock)
        self._events: dict[EventReason, Event] = {}  # replaced, never changed: two threads have it
        self._written: dict[EventReason, int] = {}  # the counts that the API server has
        self._due: dict[EventReason, float] = {}  # from when on the next write may be

    def warned(self, event: GCEvent) -> None:
        """Counts an event, and has it written. Takes microseconds."""
        changed = counted(
            event, self._events.get(event.reason), self._node_name, wall=self._clock.wall()
        )
        self._events = {**self._events, event.reason: changed}
        self.put(self.write_due)

    def observed(self, _: SignalObservations, __: Decision) -> None:
        """Has written what was not, once it may be."""
        self.put(self.write_due)

    def finish(self, seconds: float) -> bool:
        """Writes what is due, and waits for it at most `seconds`."""
        self.put(self.write_due)
        return super().finish(seconds)

    def write_due(self) -> None:
        """Writes each object that has changed, if none of its reason was tried within the last
        minute."""
        warn = self._throttled_log.warn
        for reason, event in self._events.items():
            now = self._clock.monotonic()
            if event["count"] != self._written.get(reason) and now >= self._due.get(reason, now):
                self._due[reason] = now + WRITE_SECONDS
                try:
                    self._write(event)
                except NoAnswer as error:
                    warn(f"an event did not reach the API server: {error}", key="server")
                except Exception as error:  # noqa: BLE001 # a defect in one event must not stop the others
                    warn(f"sending an event: {type(error).__name__}: {error}", key="defect")
                else:
                    self._throttled_log.resolved("server", "the API server accepts events again")
                    self._written[reason] = event["count"]


def write_event(event: Event, kubeconfig: str, seconds: float = ANSWER_SECONDS) -> None:
    """Creates the event, or updates its count, last time and message; creates it again if it no
    longer exists. Raises NoAnswer.

    The API server deletes an event an hour after its last change. If an event to be created already
    exists, the response to an earlier try was lost, so this is not an error.
    """

    def send(method: str, path: str, body: Event, *, form: str, fine: int) -> int:
        """The status of the answer, which is `fine` or a success. Raises NoAnswer."""
        headers = {
            "Content-Type": f"application/{form}",
            "Accept": "application/json",
            "User-Agent": COMPONENT,
        }
        path = f"/api/v1/namespaces/{NAMESPACE}/events{path}"
        request = Request(method, path, headers, json.dumps(body).encode())
        server, status, answer = ask_api_server(kubeconfig, request, seconds)
        if status == fine:
            return status
        if not 200 <= status < 300:
            raise NoAnswer(f"{server} answered {status}{REFUSED if status in (401, 403) else ''}")
        with suppress(ValueError, RecursionError):
            document = json.loads(answer)
            if isinstance(document, dict) and document.get("kind") == "Event":
                return status
        raise NoAnswer(f"{server} answered {status} with something that is not an event")

    if event["count"] > 1:
        changed = {field: event[field] for field in ("count", "lastTimestamp", "message")}
        name = quote(event["metadata"]["name"], safe="")
        if send("PATCH", f"/{name}", changed, form="merge-patch+json", fine=404) != 404:
            return
    send("POST", "", event, form="json", fine=409)


# ---- the API server

THIS_POD = "the service account of this pod"
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
SKIP = "insecure-skip-tls-verify"
FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
LARGEST_ANSWER_BYTES = 64 * 1024


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
    return (
        {"server": server, "certificate-authority": f"{SERVICE_ACCOUNT}/ca.crt"},
        {"tokenFile": token},
    )


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
        if url.scheme == "https" and re.fullmatch(r"[\w.:-]+", url.hostname or "", re.ASCII):
            return url.hostname or "", url.port or 443, url.path.rstrip("/")
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
    context = client_context(verifies)
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

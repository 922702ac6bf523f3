"""Events to the API server, as the kubelet writes its own: about the Node, in the namespace `default`.

`EventCorrelator` aggregates and limits them by the rules of client-go (`tools/record/events_cache.go`):

* Equal events become one object with a count.
* From the tenth message with the same reason on, never more than 10 minutes apart, new messages become one object too,
  with the latest message.
* After a burst of 25 events about one node, only one is sent every 5 minutes. All are counted.

`EventRecorder` has a bounded queue, and one thread that sends. An API server that is down, hangs, refuses or answers
garbage delays no other work: `warn` only queues the event, and an event that does not fit into the queue is lost (but
logged). A failed event is retried as in client-go (`tools/record/event.go`): every 10 s, twelve times, while later
events wait.

`KubernetesEvents` talks to the server with the library kubernetes, which nothing else uses, and which is imported only
if events to the API server are on. The library reads server and credentials (from a kubeconfig, or the pod's service
account) and connects. It does not limit the size of a response, so both requests go through its connection pool, and at
most 64 KiB of a response are read. Each event has a connection of its own: events are few, and tokens and certificates
rotate.
"""

from __future__ import annotations

import json
import os
import queue
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from eviction.reporting.log import Log, ThrottledLog
from eviction.reporting.observations_json import timestamp
from eviction.types import EvictionError
from reclaim.trust import file_refusal
from reclaim.types import EventReason, GCEvent
from reclaim.workers import Workers
from signals.clock import Clock

BURST = 25
REFILL_SECONDS = 300.0
MOST_REMEMBERED = 64  # different events
LONGEST_MESSAGE = 1024  # characters: what events.k8s.io allows for its note
FEWEST_SIMILAR = 10  # messages of one reason
SIMILAR_SECONDS = 600.0
COMBINED = "(combined from similar events): "

MOST_QUEUED = 1000  # as in client-go: a pass a second, and an API server that is away for a quarter of an hour
AGAIN_SECONDS = 10.0
MOST_TRIES = 12

NAMESPACE = "default"  # where client-go puts events about objects without a namespace
COMPONENT = "reclaimd"
CONNECT_SECONDS = 2.0
READ_SECONDS = 5.0
LARGEST_ANSWER_BYTES = 64 * 1024
THIS_POD = "the service account of this pod"
REFUSED = f": is the token or certificate valid, and may it create and patch events in the namespace {NAMESPACE}?"


Event = dict[str, Any]
"""An object of core/v1 in the kubelet's form."""


class EventCorrelator:
    """Decides which object is sent for each event. `node_name`: the prefix of the objects' names, as in the kubelet."""

    def __init__(self, node_name: str):
        self._node_name = node_name
        self._known: dict[tuple[EventReason, str], Event] = {}
        self._similar: dict[EventReason, tuple[dict[str, None], float]] = {}  # the last messages, and when one came
        self._number = 0
        self._tokens = 0.0
        self._filled_at = float("-inf")

    def correlate(self, event: GCEvent, wall: float, now: float) -> Event | None:
        """The object to send: a new one, or a known one with a higher count. None if the rate limit is reached.

        `wall`: when it happened, wall seconds. `now`: monotonic seconds, for the rate limit.
        """
        message = event.message[:LONGEST_MESSAGE]
        key = (event.reason, message)
        if self._is_one_of_many(event.reason, message, now):
            message, key = f"{COMBINED}{message}"[:LONGEST_MESSAGE], (event.reason, COMBINED)
        latest = {"message": message, "lastTimestamp": timestamp(wall)}
        known = self._known.pop(key, None) or self._new(event.reason, wall)
        counted = self._known[key] = {**known, **latest, "count": known["count"] + 1}
        if len(self._known) > MOST_REMEMBERED:
            del self._known[next(iter(self._known))]
        self._tokens = min(self._tokens + (now - self._filled_at) / REFILL_SECONDS, float(BURST))
        self._filled_at = now
        if self._tokens < 1.0:
            return None
        self._tokens -= 1.0
        return counted

    def _new(self, reason: EventReason, wall: float) -> Event:
        """As in `pkg/kubelet/kubelet.go`: the uid is the Node's name."""
        name = self._node_name
        self._number = max(int(wall * 1e9), self._number + 1)  # as in client-go; never the same twice
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.{self._number:x}", "namespace": NAMESPACE},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": name, "uid": name},
            "type": "Warning",
            "reason": str(reason),
            "source": {"component": COMPONENT, "host": name},
            "reportingComponent": COMPONENT,
            "reportingInstance": name,
            "firstTimestamp": timestamp(wall),
            "count": 0,
        }

    def _is_one_of_many(self, reason: EventReason, message: str, now: float) -> bool:
        """Whether this reason has had so many different messages lately that they are combined."""
        messages, last = self._similar.get(reason, ({}, now))
        if now - last > SIMILAR_SECONDS:
            messages = {}
        messages[message] = None
        self._similar[reason] = messages, now
        if len(messages) < FEWEST_SIMILAR:
            return False
        del messages[next(iter(messages))]
        return True


class EventNotSent(EvictionError):
    """The API server did not accept an event. The message is the end of a sentence.

    `retriable`: the server may accept it later.
    """

    def __init__(self, message: str, *, retriable: bool = False):
        super().__init__(message)
        self.retriable = retriable


@dataclass(eq=False)
class EventRecorder:
    """Sends events on a thread of its own.

    `connect` makes the function that writes an event to the server. That function may wait, but not forever, and raises
    EventNotSent. `connect` runs on the thread, as it may import a lot, and raises EventNotSent if it cannot connect.
    `pause` makes the threading.Event that the thread waits on between two tries.
    """

    connect: Callable[[], Callable[[Event], None]]
    node_name: str
    log: Log
    clock: Clock
    pause: Callable[[], threading.Event] = threading.Event

    def __post_init__(self) -> None:
        self._correlator = EventCorrelator(self.node_name)
        self._throttled_log = ThrottledLog(self.log, self.clock)
        self._queue: queue.Queue[tuple[GCEvent, float] | None] = queue.Queue(MOST_QUEUED)
        self._stopping, self._ended = self.pause(), threading.Event()

    def start(self) -> None:
        """Starts the thread. Raises NoThread."""
        Workers("events", 1).run(self._run, self._ended.set)

    def warn(self, event: GCEvent) -> None:
        """Queues an event, or drops it if the queue is full. May be called from any thread; takes microseconds."""
        try:
            self._queue.put_nowait((event, self.clock.wall()))
        except queue.Full:
            self._throttled_log.warn("events are lost: the API server accepts none, and the queue is full", key="lost")

    def finish(self, seconds: float) -> None:
        """Waits at most `seconds` for the queued events, and as long for room in the queue; then stops sending."""
        with suppress(queue.Full):
            self._queue.put(None, timeout=seconds)
        self._ended.wait(seconds)
        self._stopping.set()

    def _run(self) -> None:
        try:
            write = self.connect()
        except EventNotSent as error:
            self.log.warning(f"events go only to the log: {error}")
            return
        while (queued := self._queue.get()) is not None and not self._stopping.is_set():
            event = self._correlator.correlate(*queued, self.clock.monotonic())
            if event is not None:
                self._send(write, event)

    def _send(self, write: Callable[[Event], None], event: Event) -> None:
        for _ in range(MOST_TRIES):
            try:
                write(event)
            except EventNotSent as error:
                self._throttled_log.warn(f"an event did not reach the API server: {error}", key="server")
                if not error.retriable or self._stopping.wait(AGAIN_SECONDS):
                    return
            except Exception as error:  # noqa: BLE001 # a defect in one event must not stop the others
                self._throttled_log.warn(f"sending an event: {type(error).__name__}: {error}", key="defect")
                return
            else:
                if self._throttled_log.resolved("server"):
                    self.log.info("the API server accepts events again")
                return


class KubernetesEvents:
    """The API server, over the library kubernetes. Raises EventNotSent if that is not installed.

    `kubeconfig`: a path, or empty for the pod's service account. `read_seconds`: how long the server may send nothing.
    """

    def __init__(self, kubeconfig: str, read_seconds: float = READ_SECONDS):
        try:
            from kubernetes import client, config
        except ImportError as error:
            raise EventNotSent(f"the extra [kubernetes] is not installed ({error})") from None
        import logging

        import urllib3  # which the library uses for HTTP

        # Errors of these libraries become one line of our log; their own logging must not write to stderr.
        logging.getLogger().addHandler(logging.NullHandler())
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        self._client: Any = client  # typed only in part, and not in every release
        self._config: Any = config
        self._urllib3 = urllib3
        self._kubeconfig = kubeconfig
        self._read_seconds = read_seconds

    def write(self, event: Event) -> None:
        """Creates the event, or updates its count, last time and message (the latest of combined events); creates it
        again if it no longer exists. Raises EventNotSent.

        The API server deletes an event an hour after its last change. If an event to be created already exists, the
        response to an earlier try was lost, so this is not an error.
        """
        if event["count"] > 1:
            counted = {field: event[field] for field in ("count", "lastTimestamp", "message")}
            path = f"/{quote(event['metadata']['name'], safe='')}"
            if self._send("PATCH", path, counted, "application/merge-patch+json", fine=404) != 404:
                return
        self._send("POST", "", event, "application/json", fine=409)

    def _send(self, method: str, path: str, body: Mapping[str, Any], content_type: str, fine: int) -> int:
        """The status of the response, which is `fine` or a success. Raises EventNotSent."""
        configuration = self._identity()
        host = str(configuration.host).rstrip("/")
        server = f"the API server at {host}"
        headers = {"Content-Type": content_type, "Accept": "application/json", "User-Agent": COMPONENT}
        headers |= {each["key"]: each["value"] for each in configuration.auth_settings().values()}
        errors = self._urllib3.exceptions
        try:
            with self._client.ApiClient(configuration) as connection:
                pool = connection.rest_client.pool_manager
                pool.connection_pool_kw["ssl_context"] = self._context(bool(configuration.verify_ssl))
                asked = pool.request(
                    method,
                    f"{host}/api/v1/namespaces/{NAMESPACE}/events{path}",
                    body=json.dumps(body),
                    headers=headers,
                    timeout=self._urllib3.Timeout(connect=CONNECT_SECONDS, read=self._read_seconds),
                    retries=False,
                    preload_content=False,
                )
                with closing(asked) as response:
                    status, answer = int(response.status), response.read(LARGEST_ANSWER_BYTES)
        except (errors.HTTPError, OSError, ValueError) as error:
            known = (
                (errors.NewConnectionError, "cannot be reached"),
                (errors.TimeoutError, "does not answer"),
                (errors.SSLError, "has a certificate that is not trusted, or wants one"),
                (Exception, "did not answer in HTTP, or is not the address of a server"),
            )
            why = next(words for kind, words in known if isinstance(error, kind))
            raise EventNotSent(f"{server} {why}", retriable=True) from None
        if status != fine:
            _judge(server, status, answer)
        return status

    def _context(self, verify: bool) -> ssl.SSLContext:
        """A TLS context that accepts the certificates that Go accepts.

        Since Python 3.13 the default is stricter (all of RFC 5280), which the CA certificates of many clusters fail.
        """
        wanted = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
        context = self._urllib3.util.ssl_.create_urllib3_context(cert_reqs=wanted)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context

    def _identity(self) -> Any:
        """Server and credentials, read anew. Raises EventNotSent, without quoting the file, which may hold a token."""
        configuration = self._client.Configuration()
        path = self._kubeconfig
        try:
            if not path:
                self._config.load_incluster_config(client_configuration=configuration)
                return configuration
            # It names the server that gets the token, and may name a program, so it must be as trusted as our own file.
            why = file_refusal(path, os.stat(path))
            if why is None:
                self._config.load_kube_config(path, client_configuration=configuration, persist_config=False)
                return configuration
        except Exception as error:  # noqa: BLE001 # a kubeconfig may contain anything, and the library may raise anything
            why = (isinstance(error, OSError) and error.strerror) or "it is no kubeconfig with a server and an identity"
            if not path:
                why = "this process does not run in a pod, or its token is not mounted"
        raise EventNotSent(f"{path or THIS_POD} cannot be used: {why}", retriable=True)


def _judge(server: str, status: int, answer: bytes) -> None:
    """Raises EventNotSent unless the response is the written event."""
    if 200 <= status < 300:
        try:
            document = json.loads(answer)
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, dict) and document.get("kind") == "Event":
            return
        raise EventNotSent(f"{server} answered {status} with something that is not an event", retriable=True)
    retriable = status in (401, 408, 429) or status >= 500
    raise EventNotSent(f"{server} answered {status}{REFUSED * (status in (401, 403))}", retriable=retriable)

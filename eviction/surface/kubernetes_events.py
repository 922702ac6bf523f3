"""Events to the API server, as the kubelet writes its own: about the Node,
in the namespace `default`.

Each reason is one object, which counts its events and has the message of the latest. It is written
at once, and then at most once a minute. What could not be written is tried again a minute later,
with what came meanwhile, so nothing waits in a queue: `warn` only counts. One thread writes, for
which an API server may be down, hang, refuse or answer garbage.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from eviction.records.observations_json import timestamp
from eviction.surface.api_server import NoAnswer, ask_api_server
from eviction.wording.log import Log, ThrottledLog
from reclaim.kubelet.client import Request
from reclaim.types import EventReason, GCEvent
from reclaim.workers import Workers
from signals.clock import Clock

WRITE_SECONDS = 60.0  # at most one write of a reason in this time
ANSWER_SECONDS = 5.0
LONGEST_MESSAGE = 1024  # characters: what events.k8s.io allows for its note
NAMESPACE = "default"  # where client-go puts events about objects without a namespace
COMPONENT = "reclaimd"
REFUSED = (
    ": is the token or certificate valid, and may it create and patch events in the namespace"
    f" {NAMESPACE}?"
)

Event = Mapping[str, Any]
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
        "type": "Warning",
        "reason": str(event.reason),
        "source": {"component": COMPONENT, "host": node_name},
        "reportingComponent": COMPONENT,
        "reportingInstance": node_name,
        "firstTimestamp": now,
        "count": 0,
    }
    latest = {"message": event.message[:LONGEST_MESSAGE], "lastTimestamp": now}
    return {**before, **latest, "count": before["count"] + 1}


@dataclass(eq=False)
class EventRecorder:
    """Writes events on a thread of its own."""

    write: Callable[[Event], None]
    """Writes the object of a reason; may wait, but not forever, and raises NoAnswer."""
    node_name: str
    log: Log
    clock: Clock
    changed: threading.Event = field(default_factory=threading.Event)
    """The thread waits for it."""

    def __post_init__(self) -> None:
        self._throttled_log = ThrottledLog(self.log, self.clock)
        self._lock = threading.Lock()  # `warn` counts on the threads of whoever has an event
        self._events: dict[EventReason, Event] = {}
        self._written: dict[EventReason, int] = {}  # the counts that the API server has
        self._due: dict[EventReason, float] = {}  # from when on the next write may be
        self._stopping = threading.Event()
        self._ended = threading.Event()

    def start(self) -> None:
        """Starts the thread. Raises NoThread."""
        Workers("events", 1).run(self._run, self._ended.set)

    def warn(self, event: GCEvent) -> None:
        """Counts an event, to be written. May be called from any thread; takes microseconds."""
        with self._lock:
            known = self._events.get(event.reason)
            self._events[event.reason] = counted(
                event, known, self.node_name, wall=self.clock.wall()
            )
        self.changed.set()

    def finish(self, seconds: float) -> None:
        """Writes what is due, and waits for it at most `seconds`."""
        self._stopping.set()
        self.changed.set()
        self._ended.wait(seconds)

    def _run(self) -> None:
        while True:
            stopping = self._stopping.is_set()
            self.changed.clear()
            seconds = self.write_due()
            if stopping:
                return
            self.changed.wait(seconds)

    def write_due(self) -> float | None:
        """Writes each object that has changed, and was not written within the last minute. Returns
        the seconds until another may be written; None if all are."""
        with self._lock:
            events = dict(self._events)
        waiting = []
        for reason, event in events.items():
            if event["count"] == self._written.get(reason):
                continue
            now = self.clock.monotonic()
            due = self._due.get(reason, now)
            if due <= now:
                due = now + WRITE_SECONDS
                self._due[reason] = due
                if self._is_written(event):
                    self._written[reason] = event["count"]
                    continue
            waiting.append(due)
        return max(min(waiting) - self.clock.monotonic(), 0.0) if waiting else None

    def _is_written(self, event: Event) -> bool:
        warn = self._throttled_log.warn
        try:
            self.write(event)
        except NoAnswer as error:
            warn(f"an event did not reach the API server: {error}", key="server")
        except Exception as error:  # noqa: BLE001 # a defect in one event must not stop the others
            warn(f"sending an event: {type(error).__name__}: {error}", key="defect")
        else:
            self._throttled_log.resolved("server", "the API server accepts events again")
            return True
        return False


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

"""Events to the API server, in the form of the kubelet's: about the Node, in the namespace
`default`.

Each reason is one object, which counts its events and has the message of the latest. It is written
at once, and then at most once a minute. What could not be written is tried again with the first
observation after a minute, with what came meanwhile, so no event waits in a queue: `warned` only
counts. One thread writes, for which an API server may be down, hang, refuse or answer garbage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from eviction.records.listener import Backlog, Listener
from eviction.records.observations_json import timestamp
from eviction.surface.api_server import NoAnswer, ask_api_server
from eviction.types import Decision
from eviction.wording.log import Log, ThrottledLog
from reclaim.kubelet.client import Request
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
        "type": "Normal" if event.reason is EventReason.RELIEVED else "Warning",
        "reason": str(event.reason),
        "source": {"component": COMPONENT, "host": node_name},
        "reportingComponent": COMPONENT,
        "reportingInstance": node_name,
        "firstTimestamp": now,
        "count": 0,
    }
    latest = {"message": event.message[:LONGEST_MESSAGE], "lastTimestamp": now}
    return {**before, **latest, "count": before["count"] + 1}


class EventRecorder(Backlog, Listener):
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
        known = self._events.get(event.reason)
        changed = counted(event, known, self._node_name, wall=self._clock.wall())
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
        for reason, event in self._events.items():
            now = self._clock.monotonic()
            if event["count"] != self._written.get(reason) and now >= self._due.get(reason, now):
                self._due[reason] = now + WRITE_SECONDS
                if self._is_written(event):
                    self._written[reason] = event["count"]

    def _is_written(self, event: Event) -> bool:
        warn = self._throttled_log.warn
        try:
            self._write(event)
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

"""Writes events to the API server as the kubelet writes its own: about the Node, in the namespace `default`.

The only module that uses the library kubernetes, which is imported only if events to the API server are switched on.
The library reads server and credentials (a kubeconfig, or the service account of the pod) and connects. It does not
limit the size of a response, so both requests go through its connection pool, and at most 64 KiB of a response are
read.

Each event has a connection of its own: events are few, and tokens and certificates rotate.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from eviction.configuration.effective import Configuration
from eviction.reporting.log import Log
from eviction.reporting.observations_json import timestamp
from eviction.telemetry.event_correlator import NodeEvent
from eviction.telemetry.event_recorder import EventNotSent, EventRecorder
from reclaim.trust import file_refusal
from signals.clock import Clock

NAMESPACE = "default"  # where client-go puts events about objects without a namespace
COMPONENT = "reclaimd"
CONNECT_SECONDS = 2.0
READ_SECONDS = 5.0
LARGEST_ANSWER_BYTES = 64 * 1024
_REMEDIES = {
    401: "is its token or certificate valid?",
    403: f"may it create and patch events in the namespace {NAMESPACE}?",
}


def node_name_of(configuration: Configuration) -> str:
    """The name of the Node: as configured, else the host name in lower case, as in the kubelet."""
    return configuration.node_name or socket.gethostname().strip().lower()


def event_recorder(configuration: Configuration, log: Log, clock: Clock) -> EventRecorder:
    """The recorder of events as configured; it connects and imports nothing before it is started."""
    node_name = node_name_of(configuration)
    return EventRecorder(lambda: KubernetesEvents(configuration.kubeconfig, node_name), node_name, log, clock)


def event_object(event: NodeEvent, node_name: str) -> dict[str, Any]:
    """The event as a core/v1 object in the kubelet's form (`pkg/kubelet/kubelet.go`: the uid is the Node's name)."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event.name, "namespace": NAMESPACE},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_name},
        "type": "Warning",
        "reason": str(event.reason),
        "message": event.message,
        "source": {"component": COMPONENT, "host": node_name},
        "reportingComponent": COMPONENT,
        "reportingInstance": node_name,
        "firstTimestamp": timestamp(event.first),
        "lastTimestamp": timestamp(event.last),
        "count": event.count,
    }


class KubernetesEvents:
    """An EventWriter over the library kubernetes. Raises EventNotSent if that is not installed.

    `kubeconfig`: a path; empty: the service account of the pod. `read_seconds`: how long the server may send nothing.
    """

    def __init__(self, kubeconfig: str, node_name: str, read_seconds: float = READ_SECONDS):
        try:
            from kubernetes import client, config
        except ImportError as error:
            raise EventNotSent(f"the extra [kubernetes] is not installed ({error})") from None
        import logging

        import urllib3  # the library's own way to speak HTTP

        # Errors of these libraries become one line of our log; their own logging must not write to stderr.
        logging.getLogger().addHandler(logging.NullHandler())
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        self._client: Any = client  # typed only in part, and not in every release
        self._config: Any = config
        self._urllib3 = urllib3
        self._kubeconfig = kubeconfig
        self._node_name = node_name
        self._read_seconds = read_seconds

    def create(self, event: NodeEvent) -> None:
        """Sends a `POST`. That the event exists already is no failure: the response to an earlier try was lost."""
        self._send("POST", "", event_object(event, self._node_name), "application/json", fine=409)

    def update_count(self, event: NodeEvent) -> None:
        """Sends a `PATCH` of the count, the last time, and the message, which is the latest of combined events."""
        counted = {"count": event.count, "lastTimestamp": timestamp(event.last), "message": event.message}
        self._send("PATCH", f"/{quote(event.name, safe='')}", counted, "application/merge-patch+json")

    def _send(self, method: str, path: str, body: Mapping[str, Any], content_type: str, fine: int = 0) -> None:
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
                response = pool.request(
                    method,
                    f"{host}/api/v1/namespaces/{NAMESPACE}/events{path}",
                    body=json.dumps(body),
                    headers=headers,
                    timeout=self._urllib3.Timeout(connect=CONNECT_SECONDS, read=self._read_seconds),
                    retries=False,
                    preload_content=False,
                )
                try:
                    status, answer = int(response.status), response.read(LARGEST_ANSWER_BYTES)
                finally:
                    response.close()
        except errors.NewConnectionError:
            raise EventNotSent(f"{server} cannot be reached", retriable=True) from None
        except errors.TimeoutError:
            raise EventNotSent(f"{server} does not answer", retriable=True) from None
        except errors.SSLError:
            raise EventNotSent(
                f"{server} has a certificate that is not trusted, or wants one", retriable=True
            ) from None
        except errors.LocationValueError:
            raise EventNotSent(f"{server} cannot be asked: that is no address of a server", retriable=True) from None
        except (errors.HTTPError, OSError):
            raise EventNotSent(f"{server} gave no answer in HTTP", retriable=True) from None
        except ValueError:
            raise EventNotSent(
                f"{server} cannot be asked: its address or the token has characters that HTTP does not allow"
            ) from None
        if status != fine:
            _judge(server, status, answer)

    def _context(self, verify: bool) -> ssl.SSLContext:
        """A TLS context that accepts the certificates that Go accepts.

        Since Python 3.13 the default is stricter (all of RFC 5280), and the CA certificates of many clusters fail it.
        """
        wanted = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
        context = self._urllib3.util.ssl_.create_urllib3_context(cert_reqs=wanted)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context

    def _identity(self) -> Any:
        """Server and credentials, read anew. Raises EventNotSent, without a quote of the file: it may hold a token."""
        configuration = self._client.Configuration()
        what = self._kubeconfig or "the service account of this pod"
        try:
            if self._kubeconfig:
                _check_trusted(self._kubeconfig)
                self._config.load_kube_config(
                    config_file=self._kubeconfig, client_configuration=configuration, persist_config=False
                )
            else:
                self._config.load_incluster_config(client_configuration=configuration)
        except EventNotSent:
            raise
        except Exception as error:  # noqa: BLE001 # a kubeconfig may contain anything, and the library may raise anything
            raise EventNotSent(f"{what} cannot be used: {self._why_unusable(error)}", retriable=True) from None
        return configuration

    def _why_unusable(self, error: Exception) -> str:
        """Why server and credentials cannot be read, in words that quote nothing of them."""
        match error:
            case OSError() if error.strerror:
                return error.strerror
            case self._config.ConfigException() if self._kubeconfig:
                return "it names no server, or no whole identity"
            case self._config.ConfigException():
                return "this process runs in no pod, or its token is not mounted"
        return "it is not valid YAML, or not a kubeconfig"


def _judge(server: str, status: int, answer: bytes) -> None:
    """Raises EventNotSent unless the response is the written event."""
    if 200 <= status < 300:
        try:
            document = json.loads(answer)
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, dict) and document.get("kind") == "Event":
            return
        raise EventNotSent(f"{server} answered {status} with something that is no event", retriable=True)
    remedy = f": {_REMEDIES[status]}" if status in _REMEDIES else ""
    retriable = status in (401, 408, 429) or status >= 500
    raise EventNotSent(f"{server} answered {status}{remedy}", retriable=retriable, not_found=status == 404)


def _check_trusted(path: str) -> None:
    """A kubeconfig names the server that gets the token, and may name a program, so it must be trusted as ours is."""
    refusal = file_refusal(path, os.stat(path))
    if refusal is not None:
        raise EventNotSent(f"{path} is not used, as {refusal}", retriable=True)

"""A client of the API server: JSON over HTTPS, one request at a time."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 30.0
MERGE = "application/merge-patch+json"


class ApiError(RuntimeError):
    """The API server refused; `status` is its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """Speaks to an API server as the bearer of a token. `server`: https://127.0.0.1:port."""

    def __init__(self, server: str, authority: Path, token: str) -> None:
        self.server = server
        self.authority = authority
        self.token = token
        self._tls = ssl.create_default_context(cafile=str(authority))

    def get(self, path: str) -> Any:
        """The object at a path of the API. ApiError."""
        return json.loads(self._ask("GET", path))

    def text(self, path: str) -> str:
        """What is at a path, as text. ApiError."""
        return self._ask("GET", path).decode(errors="replace")

    def create(self, path: str, thing: dict[str, Any]) -> Any:
        """Makes an object. ApiError."""
        return json.loads(self._ask("POST", path, thing))

    def patch(self, path: str, change: dict[str, Any], kind: str = MERGE) -> Any:
        """Changes an object. ApiError."""
        return json.loads(self._ask("PATCH", path, change, kind))

    def delete(self, path: str, grace_seconds: int | None = None) -> None:
        """Deletes an object; no error if there is none."""
        options = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        try:
            self._ask("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options})
        except ApiError as error:
            if error.status != http.client.NOT_FOUND:
                raise

    def pods(self, namespace: str = "default") -> dict[str, dict[str, Any]]:
        """All pods of a namespace, by name."""
        items = self.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        return {pod["metadata"]["name"]: pod for pod in items}

    def events(self) -> list[dict[str, Any]]:
        """All events, those of nodes too."""
        found: list[dict[str, Any]] = self.get("/api/v1/events")["items"]
        return found

    def wait(
        self, what: str, condition: Callable[[], bool], seconds: float, pause_seconds: float = 0.1
    ) -> None:
        """Waits until it is true; errors of the API server count as not yet.

        TimeoutError names `what`.
        """
        deadline = time.monotonic() + seconds
        while True:
            last = ""
            try:
                if condition():
                    return
            except (ApiError, OSError, KeyError, http.client.HTTPException) as error:
                last = f" ({type(error).__name__}: {error})"
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{what}: not within {seconds:g} s{last}")
            time.sleep(pause_seconds)

    def _ask(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        kind: str = "application/json",
    ) -> bytes:
        address = self.server.removeprefix("https://")
        connection = http.client.HTTPSConnection(
            address, timeout=TIMEOUT_SECONDS, context=self._tls
        )
        try:
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status >= http.client.BAD_REQUEST:
            try:
                message = json.loads(content)["message"]
            except (ValueError, KeyError, TypeError):
                message = content[:300].decode(errors="replace")
            raise ApiError(answer.status, message)
        return content

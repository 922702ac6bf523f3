"""Clients of the API server: JSON over HTTPS, one request at a time; kubectl; and who they are."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.real_node.loopfs import find_tool, run_tool
from tests.reclaimd_process import came_true

TIMEOUT_SECONDS = 30.0
MERGE = "application/merge-patch+json"
DAYS = 2
NEW_KEY = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"


Fields = dict[str, Any]
"""An object of the API, or fields of one or of a configuration, as JSON has them."""


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

    def create(self, path: str, thing: Fields) -> Any:
        """Makes an object. ApiError."""
        return json.loads(self._ask("POST", path, thing))

    def patch(self, path: str, change: Fields) -> Any:
        """Changes an object. ApiError."""
        return json.loads(self._ask("PATCH", path, change, MERGE))

    def delete(self, path: str, grace_seconds: int | None = None) -> None:
        """Deletes an object; no error if there is none."""
        options = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        try:
            self._ask("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options})
        except ApiError as error:
            if error.status != http.client.NOT_FOUND:
                raise

    def pods(self, namespace: str = "default") -> dict[str, Fields]:
        """All pods of a namespace, by name."""
        items = self.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        return {pod["metadata"]["name"]: pod for pod in items}

    def events(self) -> list[Fields]:
        """All events, those of nodes too."""
        found: list[Fields] = self.get("/api/v1/events")["items"]
        return found

    def wait(self, what: str, condition: Callable[[], bool], seconds: float) -> None:
        """Waits until it is true; errors of the API server count as not yet.

        TimeoutError names `what`.
        """
        last = ""

        def is_true() -> bool:
            nonlocal last
            try:
                return condition()
            except (ApiError, OSError, KeyError, http.client.HTTPException) as error:
                last = f" ({type(error).__name__}: {error})"
                return False

        if not came_true(is_true, seconds, every_seconds=0.1):
            raise TimeoutError(f"{what}: not within {seconds:g} s{last}")

    def _ask(
        self,
        method: str,
        path: str,
        body: Fields | None = None,
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
            raise ApiError(answer.status, content[:300].decode(errors="replace"))
        return content


KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: tests
contexts: [{{name: tests, context: {{cluster: tests, user: tests}}}}]
clusters: [{{name: tests, cluster: {{server: "{server}", certificate-authority: "{authority}"}}}}]
users: [{{name: tests, user: {user}}}]
"""


def write_kubeconfig(path: Path, api: Api, user: dict[str, str]) -> Path:
    """A kubeconfig for the server of `api`; `user`: the fields of its credentials. JSON is YAML."""
    path.touch(mode=0o600)
    path.write_text(
        KUBECONFIG.format(server=api.server, authority=api.authority, user=json.dumps(user))
    )
    return path


class Kubectl:
    """The program kubectl, whose home is a directory, as the bearer of a client's token."""

    def __init__(self, directory: Path, api: Api) -> None:
        directory.mkdir(parents=True)
        self._program = find_tool("kubectl") or "kubectl"
        file = write_kubeconfig(directory / "kubeconfig", api, {"token": api.token})
        variables = {"HOME": str(directory), "KUBECONFIG": str(file), "KUBECTL": self._program}
        self.environment = {**os.environ, **variables}
        """For scripts that call it, too."""

    def __call__(self, *arguments: str, given: str | None = None) -> str:
        """Runs a command and returns what it printed. Fails with what it said.

        `given`: on its standard input.
        """
        process = self.run(self._program, *arguments, given=given)
        assert process.returncode == 0, f"kubectl {' '.join(arguments)}: {process.stderr}"
        return str(process.stdout)

    def run(self, *command: str | Path, given: str | None = None) -> Any:
        """Runs a program that calls it."""
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=120.0,
            env=self.environment,
            input=given,
        )


class Authority:
    """Signs certificates for one cluster, by openssl, in a directory.

    `certificate`: the file that whoever trusts it has to read.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True)
        self._directory = directory
        self.certificate = directory / "ca.crt"
        openssl(
            f"req -x509 {NEW_KEY} -keyout {directory}/ca.key -out {self.certificate} -days {DAYS}"
            " -subj /CN=reclaimd-tests -addext basicConstraints=critical,CA:TRUE"
        )

    def sign(self, name: str, group: str = "", *, serves: bool = False) -> tuple[Path, Path]:
        """A certificate of this name (and group, an organisation) and its key: for a client, or for
        a server on 127.0.0.1."""
        own, stem = self._directory, self._directory / name.replace(":", "-")
        subject = (f"/O={group}" if group else "") + f"/CN={name}"
        openssl(f"req -new {NEW_KEY} -keyout {stem}.key -out {stem}.csr -subj {subject}")
        Path(f"{stem}.ext").write_text(
            "extendedKeyUsage=serverAuth\nsubjectAltName=IP:127.0.0.1,DNS:localhost\n"
            if serves
            else "extendedKeyUsage=clientAuth\n"
        )
        openssl(
            f"x509 -req -in {stem}.csr -CA {self.certificate} -CAkey {own}/ca.key -CAcreateserial"
            f" -out {stem}.crt -days {DAYS} -extfile {stem}.ext"
        )
        return Path(f"{stem}.crt"), Path(f"{stem}.key")

    def signing_key(self) -> tuple[Path, Path]:
        """A private and a public key for the tokens of service accounts."""
        private, public = self._directory / "tokens.key", self._directory / "tokens.pub"
        openssl(f"ecparam -name prime256v1 -genkey -noout -out {private}")
        openssl(f"ec -in {private} -pubout -out {public}")
        return private, public


def openssl(line: str) -> None:
    """Runs it with this command line."""
    run_tool("openssl", *line.split())

"""etcd and kube-apiserver on loopback, for one node: no scheduler, and only those
controllers that a test starts.

So a pod has to name its node and to do without a token of a service account, nobody makes its
namespace but `default`, and nobody taints a node under pressure.

`KUBELET`, `KUBE_APISERVER` and `ETCD` name the programs, else they are looked for on PATH. Only
some tests need `KUBE_CONTROLLER_MANAGER`.
"""

from __future__ import annotations

import functools
import os
import secrets
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

from tests.kubelet.api import Api, ApiError, Authority, write_kubeconfig
from tests.ports import free_port
from tests.real_node.conftest import CONTAINERD_TOOLS
from tests.real_node.conftest import what_is_missing as missing_for_a_node
from tests.real_node.crio import crio_tools
from tests.real_node.loopfs import find_tool, run_tool
from tests.real_node.runtime import wait_or_kill
from tests.reclaimd_process import came_true

ADMISSION_OFF = (
    "ServiceAccount,TaintNodesByCondition,DefaultTolerationSeconds,StorageObjectInUseProtection"
)
VARIABLES = {
    "KUBELET": "kubelet",
    "KUBE_APISERVER": "kube-apiserver",
    "ETCD": "etcd",
    "KUBE_CONTROLLER_MANAGER": "kube-controller-manager",
}


def found(variable: str) -> str | None:
    """Where the program that this variable names is."""
    return find_tool(os.environ.get(variable) or VARIABLES[variable])


def program(variable: str) -> Path:
    """The same. FileNotFoundError where it is missing."""
    if (path := found(variable)) is None:
        raise FileNotFoundError(f"no {VARIABLES[variable]}: neither {variable}= nor PATH names one")
    return Path(path)


@functools.cache
def what_is_missing() -> str | None:
    """One sentence that names what this machine lacks for a real kubelet, or None."""
    if sentence := missing_for_a_node(crio_tools() or CONTAINERD_TOOLS):
        return sentence
    missing = [
        f"{VARIABLES[variable]} ({variable}=)"
        for variable in ("KUBELET", "KUBE_APISERVER", "ETCD")
        if found(variable) is None
    ]
    missing += [] if find_tool("openssl") else ["openssl"]
    return f"no real kubelet can be started here: no {', no '.join(missing)}" if missing else None


@functools.cache
def kubelet_version() -> tuple[int, ...]:
    """The kubelet's version, such as 1, 36, 2."""
    said = run_tool(str(program("KUBELET")), "--version").split()[1]
    return tuple(map(int, said.removeprefix("v").split("-")[0].split(".")))


class NotStarted(RuntimeError):
    """A server did not come up; the message ends with the tail of its log."""


class Server:
    """One program that runs until `stop`. `command`: its words, none of which has a space.

    `log`: the file that it writes to, over several starts.
    """

    def __init__(self, command: str, log: Path, **environment: str) -> None:
        self._command = command
        self._environment = {**os.environ, **environment}
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def log_text(self) -> str:
        """All that it has logged."""
        return self.log.read_text(errors="replace")

    def start(self, is_ready: Callable[[], bool], seconds: float = 60.0) -> None:
        """Starts it and waits until it is ready. NotStarted."""
        with open(self.log, "ab") as log:
            process = self._process = subprocess.Popen(
                self._command.split(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
            )
        came_true(lambda: process.poll() is not None or is_ready(), seconds, every_seconds=0.05)
        if process.poll() is not None or not is_ready():
            tail = "\n".join(self.log_text().splitlines()[-30:])
            self.stop()
            raise NotStarted(f"{self._command} is not ready; the end of its log:\n{tail}")

    def kill(self) -> None:
        """Ends it by SIGKILL."""
        if self._process is not None:
            self._process.kill()
        self.stop()

    def stop(self) -> None:
        """Ends it by SIGTERM, later by SIGKILL. May be called twice."""
        if self._process is not None:
            self._process.terminate()
            wait_or_kill(self._process)
            self._process = None


class ControlPlane:
    """A cluster without nodes while its `with` block lasts.

    `api`: a client that may do everything.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._directory.mkdir(parents=True)
            self.authority = Authority(self._directory / "pki")
            etcd = self._start_etcd(stack)
            self._start_api_server(stack, etcd)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def service_account_token(self, name: str, namespace: str = "default") -> str:
        """A token of a service account that exists, valid for an hour."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        asked = {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "spec": {"expirationSeconds": 3600},
        }
        return str(self.api.create(path, asked)["status"]["token"])

    @contextmanager
    def controllers(self, *names: str) -> Iterator[None]:
        """A kube-controller-manager with these controllers alone, while the `with` block lasts."""
        port, at = free_port(), self._directory / "controllers"
        kubeconfig = write_kubeconfig(
            at.with_suffix(".kubeconfig"), self.api, {"token": self.api.token}
        )
        manager = Server(
            f"{program('KUBE_CONTROLLER_MANAGER')} --kubeconfig {kubeconfig}"
            f" --controllers {','.join(names)} --leader-elect=false --bind-address 127.0.0.1"
            f" --secure-port {port} --cert-dir {at}",
            at.with_suffix(".log"),
        )
        manager.start(lambda: _listens(port))
        try:
            yield
        finally:
            manager.stop()

    def _start_etcd(self, stack: ExitStack) -> str:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        etcd = Server(
            f"{program('ETCD')} --data-dir {self._directory}/etcd --listen-client-urls {client}"
            f" --advertise-client-urls {client} --listen-peer-urls {peer}"
            f" --initial-advertise-peer-urls {peer} --initial-cluster default={peer}"
            " --unsafe-no-fsync",
            self._directory / "etcd.log",
        )
        stack.callback(etcd.stop)
        etcd.start(lambda: "ready to serve client requests" in etcd.log_text())
        return client

    def _start_api_server(self, stack: ExitStack, etcd: str) -> None:
        port, authority = free_port(), self.authority
        certificate, key = authority.sign("kube-apiserver", serves=True)
        client, client_key = authority.sign("kube-apiserver-kubelet-client", "system:masters")
        private, public = authority.signing_key()
        token, tokens = secrets.token_hex(16), self._directory / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f'{token},tests,tests,"system:masters"\n')
        command = (
            f"{program('KUBE_APISERVER')} --etcd-servers {etcd} --bind-address 127.0.0.1"
            f" --advertise-address 127.0.0.1 --secure-port {port} --cert-dir {self._directory}/api"
            f" --tls-cert-file {certificate} --tls-private-key-file {key}"
            f" --client-ca-file {authority.certificate} --token-auth-file {tokens}"
            f" --kubelet-client-certificate {client} --kubelet-client-key {client_key}"
            " --kubelet-preferred-address-types Hostname"
            " --service-account-issuer https://kubernetes.default.svc"
            f" --service-account-signing-key-file {private} --service-account-key-file {public}"
            " --service-cluster-ip-range 10.96.0.0/16 --authorization-mode Node,RBAC"
            f" --disable-admission-plugins {ADMISSION_OFF}"
            " --enable-admission-plugins NodeRestriction --endpoint-reconciler-type none"
        )
        server = Server(command, self._directory / "api.log")
        stack.callback(server.stop)
        self.api = Api(f"https://127.0.0.1:{port}", self.authority.certificate, token)

        def is_ready() -> bool:
            with suppress(OSError, ApiError):
                return self.api.text("/readyz") == "ok" and bool(
                    self.api.get("/api/v1/namespaces/default")
                )
            return False

        server.start(is_ready, seconds=120.0)


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False

"""etcd and kube-apiserver on loopback, for one node: no scheduler, and only those
controllers that a test starts.

So a pod has to name its node and to do without a token of a service account, nobody makes its
namespace but `default`, and nobody taints a node under pressure.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kubelet.api import Api, ApiError
from tests.kubelet.certificates import Authority
from tests.kubelet.kubeconfig import write_kubeconfig
from tests.kubelet.process import Server
from tests.kubelet.programs import program
from tests.ports import free_port

ADMISSION_OFF = (
    "ServiceAccount,TaintNodesByCondition,DefaultTolerationSeconds,StorageObjectInUseProtection"
)


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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
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
        port = free_port()
        kubeconfig = write_kubeconfig(
            self._directory / "controllers.kubeconfig", self.api, {"token": self.api.token}
        )
        command = [
            program("KUBE_CONTROLLER_MANAGER"), "--kubeconfig", kubeconfig, "--controllers", ",".join(names),
            "--leader-elect=false", "--bind-address", "127.0.0.1", "--secure-port", str(port),
            "--cert-dir", self._directory / "controllers",
        ]  # fmt: skip
        manager = Server(command, self._directory / "controllers.log", dict(os.environ))
        manager.start(lambda: _listens(port))
        try:
            yield
        finally:
            manager.stop()

    def _start_etcd(self, stack: ExitStack) -> str:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        command = [
            program("ETCD"), "--data-dir", self._directory / "etcd", "--listen-client-urls", client,
            "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"default={peer}", "--unsafe-no-fsync",
        ]  # fmt: skip
        etcd = Server(command, self._directory / "etcd.log", dict(os.environ))
        stack.callback(etcd.stop)
        etcd.start(lambda: "ready to serve client requests" in etcd.log.read_text(errors="replace"))
        return client

    def _start_api_server(self, stack: ExitStack, etcd: str) -> None:
        port = free_port()
        certificate, key = self.authority.sign("kube-apiserver", serves=True)
        to_kubelet = self.authority.sign("kube-apiserver-kubelet-client", "system:masters")
        private, public = self.authority.signing_key()
        token = secrets.token_hex(16)
        tokens = self._directory / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f'{token},tests,tests,"system:masters"\n')
        command = [
            program("KUBE_APISERVER"), "--etcd-servers", etcd, "--bind-address", "127.0.0.1",
            "--advertise-address", "127.0.0.1", "--secure-port", str(port), "--cert-dir", self._directory / "api",
            "--tls-cert-file", certificate, "--tls-private-key-file", key,
            "--client-ca-file", self.authority.certificate, "--token-auth-file", tokens,
            "--kubelet-client-certificate", to_kubelet[0], "--kubelet-client-key", to_kubelet[1],
            "--kubelet-preferred-address-types", "Hostname",
            "--service-account-issuer", "https://kubernetes.default.svc",
            "--service-account-signing-key-file", private, "--service-account-key-file", public,
            "--service-cluster-ip-range", "10.96.0.0/16", "--authorization-mode", "Node,RBAC",
            "--disable-admission-plugins", ADMISSION_OFF, "--enable-admission-plugins", "NodeRestriction",
            "--endpoint-reconciler-type", "none",
        ]  # fmt: skip
        server = Server(command, self._directory / "api.log", dict(os.environ))
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

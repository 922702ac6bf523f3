"""Who may ask the kubelet of a node for its pods: a service account with a
token, or a client certificate.

Roles and bindings are of the cluster, which all nodes share, so each has a name of its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from tests.kubelet.node import KubeletNode

RBAC = "/apis/rbac.authorization.k8s.io/v1"
SERVICE_ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


def service_account(node: KubeletNode, *resources: str) -> str:
    """A new service account whose role is `get` on these resources of the cluster
    (none: no role); its token.
    """
    name = f"asks-{secrets.token_hex(4)}"
    node.api.create(SERVICE_ACCOUNTS, {"metadata": {"name": name}})
    if resources:
        subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
        _allow_get(node, name, resources, subject)
    return node.plane.service_account_token(name)


def allow_group(node: KubeletNode, group: str, *resources: str) -> Callable[[], None]:
    """Lets everybody whose certificate names this group `get` these resources; what
    is returned takes it back.
    """
    subject = {"kind": "Group", "name": group, "apiGroup": "rbac.authorization.k8s.io"}
    name = f"{group.replace(':', '-')}-{secrets.token_hex(4)}"
    _allow_get(node, name, resources, subject)

    def take_back() -> None:
        node.api.delete(f"{RBAC}/clusterrolebindings/{name}")
        node.api.delete(f"{RBAC}/clusterroles/{name}")

    return take_back


def token_fields(node: KubeletNode, token: str) -> dict[str, Any]:
    """The fields of a configuration of reclaimd that asks the kubelet with this token."""
    file = node.disk.parent / f"token-{secrets.token_hex(4)}"
    file.touch(mode=0o600)
    file.write_text(token + "\n")
    return {**_endpoint(node), "kubeletTokenFile": str(file)}


def certificate_fields(node: KubeletNode, name: str, group: str) -> dict[str, Any]:
    """The same, with a new client certificate of this name and group."""
    certificate, key = node.plane.authority.sign(name, group)
    return {
        **_endpoint(node),
        "kubeletCertificateFile": str(certificate),
        "kubeletKeyFile": str(key),
    }


def kubelet_fields(node: KubeletNode) -> dict[str, Any]:
    """The same, with whatever is allowed to: for tests that are not about the access."""
    return token_fields(node, service_account(node, "nodes/pods", "nodes/proxy"))


def _endpoint(node: KubeletNode) -> dict[str, Any]:
    return {
        "kubeletEndpoint": node.kubelet.endpoint,
        "kubeletCAFile": str(node.plane.authority.certificate),
    }


def _allow_get(
    node: KubeletNode, name: str, resources: tuple[str, ...], subject: dict[str, str]
) -> None:
    rule = {"apiGroups": [""], "resources": list(resources), "verbs": ["get"]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    node.api.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    node.api.create(
        f"{RBAC}/clusterrolebindings",
        {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]},
    )

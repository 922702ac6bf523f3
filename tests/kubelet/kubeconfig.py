"""Writes the file by which a client finds the API server and says who it is."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kubelet.api import Api


def write_kubeconfig(path: Path, api: Api, user: dict[str, str]) -> Path:
    """A kubeconfig for the server of `api`; `user`: the fields of its credentials. JSON is YAML."""
    cluster = {"server": api.server, "certificate-authority": str(api.authority)}
    path.touch(mode=0o600)
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "tests",
                "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
                "clusters": [{"name": "tests", "cluster": cluster}],
                "users": [{"name": "tests", "user": user}],
            }
        )
    )
    return path

"""The program kubectl with a kubeconfig of its own, as the bearer of a client's token."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.kubelet.api import Api
from tests.kubelet.kubeconfig import write_kubeconfig
from tests.real_node.loopfs import find_tool

SECONDS = 60.0


def missing_kubectl() -> str | None:
    """One sentence that says why kubectl cannot be used here, or None."""
    if find_tool("kubectl") is None:
        return "no kubectl (Debian package kubernetes-client)"
    return None


class Kubectl:
    """kubectl whose home is a directory."""

    def __init__(self, directory: Path, api: Api) -> None:
        directory.mkdir(parents=True)
        self._command = [find_tool("kubectl") or "kubectl"]
        file = write_kubeconfig(directory / "kubeconfig", api, {"token": api.token})
        variables = {"HOME": str(directory), "KUBECONFIG": str(file), "KUBECTL": self._command[0]}
        self._environment = {**os.environ, **variables}  # for scripts that call it, too

    def __call__(self, *arguments: str, given: str | None = None) -> str:
        """Runs a command and returns what it printed. Fails with what it said.

        `given`: on its standard input.
        """
        process = self.run(*arguments, given=given)
        assert process.returncode == 0, (
            f"kubectl {' '.join(arguments)}: {process.stderr or process.stdout}"
        )
        return process.stdout

    def run(self, *arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a command."""
        command = [*self._command, *arguments]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
            env=self._environment,
            input=given,
        )

"""The programs of the ring: where they are, and what is missing.

`KUBELET`, `KUBE_APISERVER` and `ETCD` name them, else they are looked for on PATH. `CRIO` names a
CRI-O to take in the place of containerd; pinns is in the same directory. Only some tests need
`KUBE_CONTROLLER_MANAGER`.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from tests.real_node.conftest import CONTAINERD_TOOLS
from tests.real_node.conftest import what_is_missing as missing_for_a_node
from tests.real_node.containerd import Containerd
from tests.real_node.crio import Crio, crio_program, crio_tools
from tests.real_node.loopfs import find_tool, run_tool
from tests.real_node.runtime import ContainerRuntime

VARIABLES = {"KUBELET": "kubelet", "KUBE_APISERVER": "kube-apiserver", "ETCD": "etcd"}
OPTIONAL = {"KUBE_CONTROLLER_MANAGER": "kube-controller-manager"}


@functools.cache
def what_is_missing() -> str | None:
    """One sentence that names what this machine lacks for a real kubelet, or None."""
    if sentence := missing_for_a_node(crio_tools() or CONTAINERD_TOOLS):
        return sentence
    missing = [
        f"{name} ({variable}=)"
        for variable, name in VARIABLES.items()
        if _found(variable, name) is None
    ]
    missing += [tool for tool in ("openssl",) if find_tool(tool) is None]
    return f"no real kubelet can be started here: no {', no '.join(missing)}" if missing else None


def has_program(variable: str) -> bool:
    """Whether a program that only some tests need is there."""
    return _found(variable, OPTIONAL[variable]) is not None


def program(variable: str) -> Path:
    """Where the program that this variable names is. FileNotFoundError where it is missing."""
    name = (VARIABLES | OPTIONAL)[variable]
    found = _found(variable, name)
    if found is None:
        raise FileNotFoundError(f"no {name}: neither {variable}= nor PATH names one")
    return Path(found)


def new_runtime(root: Path, images: Path | None = None) -> ContainerRuntime:
    """The runtime that the environment names, with its data in a directory. `images`: where CRI-O
    keeps its images apart from the rest, of which containerd knows nothing."""
    crio = crio_program()
    return Containerd(root) if crio is None else Crio(root, crio, images)


@functools.cache
def kubelet_version() -> str:
    """The kubelet's version, such as 1.36.2."""
    return run_tool(str(program("KUBELET")), "--version").split()[1].removeprefix("v")


@functools.cache
def versions() -> str:
    """What runs, for the head of a table."""
    if (crio := crio_program()) is not None:
        runtime = f"CRI-O {run_tool(str(crio), '--version').split()[2]}"
    else:
        runtime = f"containerd {run_tool('containerd', '--version').split()[2]}"
    return f"{run_tool(str(program('KUBELET')), '--version').strip()}, {runtime}"


def _found(variable: str, name: str) -> str | None:
    named = os.environ.get(variable)
    return find_tool(named) if named else find_tool(name)

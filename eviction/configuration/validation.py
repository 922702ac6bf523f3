"""What is wrong with the fields that say where something is: paths, addresses, the name of the Node (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from eviction.configuration.address import AddressError, parse_address, parse_healthz_endpoint
from eviction.configuration.file import ConfigurationFile
from eviction.configuration.kubelet import log_directory_problem
from eviction.configuration.strict_yaml import shown

_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)
LONGEST_NODE_NAME = 253


def place_problems(written: ConfigurationFile) -> Iterator[tuple[str, str]]:
    """The name of each such field, and the end of the sentence about it."""
    if not written.rootDirectory.startswith("/"):
        yield "rootDirectory", f"must be an absolute path, but it was {shown(written.rootDirectory)}"
    for name in ("stateFile", "controlSocket", "kubeconfig"):
        path = getattr(written, name)
        if path and not path.startswith("/"):
            yield name, f"must be an absolute path or empty, but it was {shown(path)}"
    node = written.nodeName
    if node and not (_NODE_NAME.fullmatch(node) and len(node) <= LONGEST_NODE_NAME):
        yield "nodeName", f"must be the name of a Node or empty, but it was {shown(node)}"
    for name, parse in (("metricsAddress", parse_address), ("kubeletHealthzEndpoint", parse_healthz_endpoint)):
        try:
            parse(getattr(written, name))
        except AddressError as error:
            yield name, str(error)
    for name in ("podLogsDir", "containerLogsDir"):
        problem = log_directory_problem(getattr(written, name))
        if problem:
            yield name, problem

"""Where third-party libraries may be imported, and which of them each start loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.repository import ROOT

ROOMS = ("signals", "reclaim", "eviction")

HOMES = {
    "grpc": {"eviction/drill/runtime/", "eviction/drill/run/embedded.py"},
    "h2": {"reclaim/cri/channel.py"},
    "google": {
        "reclaim/cri/status.py",
        "reclaim/cri/cri_pb2.py",
        "reclaim/cri/cri_pb2.pyi",
        "reclaim/cri/leases_pb2.py",
        "reclaim/cri/leases_pb2.pyi",
        "reclaim/kubelet/pods_api.py",
        "reclaim/kubelet/pods_pb2.py",
        "reclaim/kubelet/pods_pb2.pyi",
        "reclaim/cri/stores_pb2.py",
        "reclaim/cri/stores_pb2.pyi",
        "eviction/drill/runtime/",
    },
    "prometheus_client": {"eviction/surface/metrics.py"},
    "psutil": {"signals/filesystems.py", "reclaim/functions/containerd_garbage.py"},
    "pyinotify": {"signals/watcher.py"},
    "pydantic": {
        "eviction/configuration/",
        "eviction/drill/scenario.py",
        "eviction/records/state_file.py",
        "eviction/surface/pause.py",
    },
    "pydantic_core": {"eviction/configuration/"},
    "yaml": {"eviction/configuration/strict_yaml.py"},
    "tenacity": {"reclaim/cri/inventory.py"},
}


@cache
def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def modules() -> list[Path]:
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


@pytest.mark.parametrize("library", HOMES)
def test_a_library_is_imported_only_in_its_home(library: str) -> None:
    """No module outside its home imports the library."""
    users = {str(path.relative_to(ROOT)) for path in modules() if library in imports_of(path)}
    strangers = {
        user for user in users if not any(user.startswith(home) for home in HOMES[library])
    }
    assert users
    assert not strangers


def test_every_third_party_import_has_a_home() -> None:
    """A new dependency needs an entry in the table above."""
    used = set().union(*(imports_of(path) for path in modules()))
    assert used - set(sys.stdlib_module_names) - set(ROOMS) == set(HOMES)


def loaded_by(statement: str) -> set[str]:
    """The third-party libraries that are loaded after a statement, in a fresh interpreter."""
    program = (
        f"import sys\ntry:\n    {statement}\nexcept SystemExit:\n    pass\nprint(*sys.modules,"
        " file=sys.stderr)"
    )
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in process.stderr.split()} & set(HOMES)


def test_help_loads_nothing_but_the_standard_library() -> None:
    """`reclaimd --help` answers without any third-party import."""
    assert loaded_by("from eviction.cli.main import main; main(['--help'])") == set()


def test_the_hook_loads_neither_inotify_nor_tenacity() -> None:
    """`reclaimd reclaim` does not load what only the daemon, or a failure, needs."""
    assert not {"pyinotify", "tenacity"} & loaded_by("import eviction.cli.reclaim")


def test_the_daemon_loads_prometheus_only_where_metrics_are_on() -> None:
    """Without `metricsAddress` the library is not loaded."""
    assert "prometheus_client" not in loaded_by("import eviction.cli.run")


def test_the_daemon_loads_tls_only_where_events_are_sent() -> None:
    """And for a kubelet that is asked over https."""
    assert "ssl" not in loaded_by("import eviction.cli.run")


def test_only_the_embedded_runtime_needs_grpcio() -> None:
    """Daemon and commands have their own gRPC client: grpcio would cost 12 MiB and 40 to 80 ms."""
    assert "grpc" not in loaded_by(
        "import eviction.cli.run, eviction.cli.reclaim, eviction.cli.check"
    )
    assert "grpc" in loaded_by("import eviction.drill.runtime.server"), (
        "the check finds it where it is loaded"
    )


def test_the_pure_core_loads_no_library() -> None:
    """The decision and the plans are standard library only."""
    pure = (
        "eviction.decision.synchronize, eviction.decision.reclaim_table",
        "reclaim.containers.plan, reclaim.images.plan, signals.interval",
    )
    assert loaded_by(f"import {', '.join(pure)}") == set()

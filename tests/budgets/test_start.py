"""The cost of a start, counted in modules, as times on a shared machine vary; where third-party
libraries may be imported, and which of them each start loads.

A module of the standard library costs about 0.3 ms to import, argparse and typing several,
dataclasses with inspect ten, protobuf twenty, h2 thirty, pydantic sixty.
"""

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.reclaimd_process import PROGRAM
from tests.repository import ROOT
from tests.rows import rows, rows_of

ROOMS = ("signals", "reclaim", "eviction")
HOMES = {
    row["library"]: tuple(row["modules"].split())
    for row in rows_of("""
        library           | modules
        grpc              | eviction/drill/runtime.py eviction/drill/embedded.py
        h2                | reclaim/cri/channel.py
        google            | reclaim/cri/status.py reclaim/kubelet/pods_api.py eviction/drill/runtime.py reclaim/cri/cri_pb2.py reclaim/cri/leases_pb2.py reclaim/cri/stores_pb2.py reclaim/kubelet/pods_pb2.py
        prometheus_client | eviction/surface/metrics.py
        psutil            | reclaim/functions/containerd_garbage.py
        pyinotify         | signals/watcher.py
        pydantic          | eviction/configuration/ eviction/drill/report/document.py eviction/drill/scenario.py eviction/records/json_shapes.py eviction/records/state_file.py eviction/surface/pause.py
        pydantic_core     | eviction/configuration/
        yaml              | eviction/configuration/strict_yaml.py eviction/cli/output.py
        rich              | eviction/cli/top_screen.py
        tenacity          | reclaim/cri/inventory.py
    """)
}
"""Where each library may be imported: files and folders."""
HEAVY = "typing dataclasses inspect email importlib.metadata http ssl asyncio"
REMOVING = """eviction.engine.node eviction.records.pass_json eviction.engine.owner eviction.engine.relief
eviction.engine.step reclaim.functions.table reclaim.removals reclaim.images.plan
reclaim.functions.unused_containers reclaim.functions.unused_images eviction.survey.space"""


@cache
def imports() -> dict[str, set[str]]:
    """By third-party library, the modules that import it."""
    users: dict[str, set[str]] = {}
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        names: list[str] = []
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import(names=aliases):
                    names += [alias.name for alias in aliases]
                case ast.ImportFrom(module=str() as module, level=0):
                    names.append(module)
        for name in {each.partition(".")[0] for each in names}:
            users.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    known = {*sys.stdlib_module_names, *ROOMS}
    return {name: paths for name, paths in users.items() if name not in known}


def test_a_library_is_imported_only_in_its_home() -> None:
    """A new dependency needs an entry in the table above."""
    assert imports().keys() == HOMES.keys()
    for library, users in imports().items():
        assert [user for user in users if not user.startswith(HOMES[library])] == []


def python(program: str, *arguments: str, **environment: str) -> list[str]:
    """The lines that a program prints, in a process of its own."""
    command = [sys.executable, "-c", program, *arguments]
    variables = {**os.environ, **environment}
    process = subprocess.run(command, capture_output=True, text=True, check=True, env=variables)
    assert process.stderr == ""
    return process.stdout.splitlines()


@cache
def loaded_by(statements: str, *arguments: str) -> set[str]:
    """The modules that statements load beyond those of the bare interpreter, however they end."""
    program = (
        "import io, sys\nout, sys.stderr = sys.stdout, io.StringIO()\nsys.stdout = io.StringIO()\n"
        f"before = set(sys.modules)\ntry:\n    {statements}\nexcept SystemExit:\n    pass\n"
        "print(*set(sys.modules) - before, sep='\\n', file=out)"
    )
    return set(python(program, *arguments))


def imported_by(*arguments: str) -> set[str]:
    """The modules that a command imports."""
    return loaded_by("from eviction.cli.main import main; main(sys.argv[1:])", *arguments)


def split(loaded: set[str]) -> tuple[set[str], set[str]]:
    """Modules of this project, and third-party libraries."""
    ours = {name for name in loaded if name.partition(".")[0] in ROOMS}
    packages = {name.partition(".")[0] for name in loaded - ours}
    return ours, packages - sys.stdlib_module_names


CLI = "eviction eviction.cli eviction.cli.main eviction.cli.streams eviction.exit_codes"
CONTROL = """eviction.cli.client eviction.cli.progress eviction.configuration
eviction.configuration.fingerprint eviction.printable eviction.surface eviction.surface.control_client reclaim reclaim.trust"""
# one that is made, as it imports what reads the node no earlier
NODE = ("--root-dir", "/nonexistent", "--kubelet-config", "")
A_CHECK = ("check", "--standalone", "--config", "", *NODE)


def test_what_begins_a_command_imports_little() -> None:
    """Few modules of ours, nothing heavy, no third party: a new import on this path fails here. 42
    before it is known whether a daemon answers, and 44 for `--help`, on Python 3.11."""
    asking = loaded_by("import eviction.cli.main, eviction.cli.client")
    helping = imported_by("--help")
    of_help = "eviction.cli.commands eviction.cli.parser"
    for loaded, ours, most in ((asking, CONTROL, 50), (helping, of_help, 52)):
        assert split(loaded) == ({*CLI.split(), *ours.split()}, set())
        assert not {*HEAVY.split()} & loaded
        assert len(loaded) <= most, sorted(loaded)
    assert "argparse" not in asking


@pytest.mark.parametrize("command", ["check", "reclaim", "plan"])
def test_a_one_shot_command_does_not_load_what_only_the_daemon_or_a_failure_needs(
    command: str,
) -> None:
    """No inotify, no retries, no HTTP client, no grpcio (which would cost 12 MiB and 40 to 80 ms), no
    other command, no drill and no control server; 464 modules at most on Python 3.11: pydantic,
    protobuf and h2, and what they import."""
    loaded = imported_by(command, *NODE, "--now", "--wrong-option")
    if command == "check":
        loaded |= imported_by(*A_CHECK)
    assert "eviction.engine.view" in loaded
    strangers = {"pyinotify", "tenacity", "http.client", "grpc"}
    strangers |= {"eviction.surface.control_socket", "eviction.surface.daemon"}
    others = {"run", "check", "plan", "status", "config", "drill", "reclaim"} - {command}
    strangers |= {f"eviction.cli.{other}" for other in others}
    assert not strangers & loaded
    assert not {name for name in loaded if name.startswith("eviction.drill")}
    assert len(loaded) <= 470, sorted(loaded)


def test_a_check_does_not_load_what_removes() -> None:
    """`check` imports no collector, no remover, and nothing that plans or explains a pass."""
    assert not {*REMOVING.split()} & imported_by(*A_CHECK)
    assert imported_by("reclaim", "--wrong-option") >= {*REMOVING.split()}


@rows("""
    statement                                         | strangers                      | what
    import eviction.cli.run                           | prometheus_client ssl grpc     | the daemon: metrics, TLS only where they are configured
    import eviction.decision.synchronize, eviction.decision.reclaim_table, reclaim.containers.plan, reclaim.images.plan, signals.interval | | the decision and the plans: the standard library only
    import reclaim.evidence.states, reclaim.evidence.pod_list, reclaim.kubelet.client, reclaim.kubelet.pods | ssl http json socket ipaddress urllib email | what is loaded at the first request to the kubelet: nothing that speaks TLS or HTTP, so that `reclaimd reclaim` starts without it
""")
def test_a_part_of_the_program_loads_no_library_that_it_does_not_need(
    statement: str, strangers: str
) -> None:
    """The embedded runtime alone needs grpcio."""
    loaded = {name.partition(".")[0] for name in loaded_by(statement)}
    assert not loaded & {*(strangers.split() or HOMES)}
    assert "grpc" in loaded_by("import eviction.drill.runtime"), "it is found"


def test_a_start_looks_for_garbage_seldom() -> None:
    """15 times on Python 3.11, and not 124 times, which took a tenth of it; from
    then on as often as usual.
    """
    times, as_usual = python(
        "import gc\nusual = gc.get_threshold()\nfrom eviction.cli.parser import command_of\n"
        "command_of('reclaim')\nprint(sum(each['collections'] for each in gc.get_stats()))\n"
        "print(gc.get_threshold() == usual)"
    )
    assert int(times) <= 40
    assert as_usual == "True"


PLUGIN = """
print("loaded")
class Plugin:
    def new_schema_validator(self, *_):
        return None, None, None
plugin = Plugin()
"""
LOADED = "import eviction.configuration.effective"


@pytest.mark.parametrize("variables", [{}, {"PYDANTIC_DISABLE_PLUGINS": "bar"}], ids=["", "bar"])
def test_the_program_loads_no_plugin_of_pydantic(tmp_path: Path, variables: dict[str, str]) -> None:
    """reclaimd loads no plugin under any environment; another program still does."""
    (tmp_path / "foo.py").write_text(PLUGIN)
    about = tmp_path / "foo-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: foo\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[pydantic]\nfoo = foo:plugin\n")
    variables = {"PYTHONPATH": str(tmp_path), **variables}
    assert "loaded" in python(LOADED, **variables)
    process = subprocess.run(
        [PROGRAM, "config"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **variables},
    )
    assert "loaded" not in process.stdout.splitlines()


MESSAGES = """
from google.protobuf.internal import api_implementation
from reclaim.cri import cri_pb2 as pb
from reclaim.cri.status import CallError, parsed
images = pb.ListImagesResponse(images=[pb.Image(id="sha256:1", size=3)])
assert parsed(pb.ListImagesResponse, images.SerializeToString()) == images
try:
    parsed(pb.ListImagesResponse, b"\\xff")
except CallError:
    print(api_implementation.Type())
"""


@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_messages_are_read_and_written_by_either_implementation(implementation: str) -> None:
    """The implementation in C and the one in pure Python both work."""
    variable = "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"
    assert python(MESSAGES, **{variable: implementation}) == [implementation]

"""The cost of a start, counted in modules, as times on a shared machine vary.

A module of the standard library costs about 0.3 ms to import, argparse and typing several,
dataclasses with inspect ten, protobuf twenty, h2 thirty, pydantic sixty.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {
    "argparse",
    "typing",
    "dataclasses",
    "inspect",
    "email",
    "importlib.metadata",
    "http",
    "ssl",
    "asyncio",
}
MOST_OF_ASKING = 49  # 41 on Python 3.11: those of json, re and socket, and 13 of ours
REMOVING = {
    "eviction.engine.node",
    "eviction.records.pass_json",
    "eviction.engine.owner",
    "eviction.engine.relief",
    "eviction.engine.step",
    "reclaim.functions.table",
    "reclaim.removals",
    "reclaim.images.plan",
    "reclaim.functions.unused_containers",
    "reclaim.functions.unused_images",
    "eviction.survey.space",
}
# 464 at most on Python 3.11: pydantic, protobuf and h2, and what they import
MOST_OF_A_COMMAND = 470
MOST_OF_HELP = 52  # 44 on Python 3.11: those of argparse and gettext
MOST_COLLECTIONS = 40
# one that is made, as it imports what reads the node no earlier
A_CHECK = (
    "check",
    "--standalone",
    "--config",
    "",
    "--root-dir",
    "/nonexistent",
    "--kubelet-config",
    "",
)


def imported_by(*arguments: str) -> set[str]:
    """The modules that a command imports beyond those of the bare interpreter,
    however the command exits.
    """
    program = (
        "import sys\nbefore = set(sys.modules)\nfrom eviction.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print(*set(sys.modules) - before, file=sys.stderr)"
    )
    command = [sys.executable, "-I", "-c", program, *arguments]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(process.stderr.splitlines()[-1].split())


def asking() -> set[str]:
    """The modules that a command imports before it knows whether a daemon answers."""
    program = (
        "import sys\nbefore = set(sys.modules)\nimport"
        " eviction.cli.main, eviction.cli.client\nprint(*set(sys.modules) - before)"
    )
    process = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    return set(process.stdout.split())


def ours(modules: set[str]) -> set[str]:
    """The modules of this project."""
    return {
        name for name in modules if name.partition(".")[0] in ("signals", "reclaim", "eviction")
    }


def test_asking_the_daemon_imports_little_of_the_standard_library() -> None:
    """Few modules of ours, nothing heavy, no third party: a new import on this path fails here."""
    loaded = asking()
    assert ours(loaded) == {
        "eviction",
        "eviction.cli",
        "eviction.cli.client",
        "eviction.cli.main",
        "eviction.cli.progress",
        "eviction.cli.streams",
        "eviction.configuration",
        "eviction.configuration.fingerprint",
        "eviction.exit_codes",
        "eviction.surface",
        "eviction.surface.control_client",
        "reclaim",
        "reclaim.trust",
    }
    assert {name.partition(".")[0] for name in loaded - ours(loaded)} <= set(
        sys.stdlib_module_names
    )
    assert not HEAVY & loaded
    assert len(loaded) <= MOST_OF_ASKING, sorted(loaded)


def test_help_imports_argparse_and_little_else() -> None:
    """`--help` lists the subcommands from a table, without importing their modules."""
    loaded = imported_by("--help")
    assert ours(loaded) == {
        "eviction",
        "eviction.cli",
        "eviction.cli.commands",
        "eviction.cli.main",
        "eviction.cli.parser",
        "eviction.cli.streams",
        "eviction.exit_codes",
    }
    assert not (HEAVY - {"argparse"}) & loaded
    assert len(loaded) <= MOST_OF_HELP, sorted(loaded)


@pytest.mark.parametrize("command", ["check", "reclaim", "plan"])
def test_a_one_shot_command_does_not_load_what_only_the_daemon_or_a_failure_needs(
    command: str,
) -> None:
    """No inotify, no retries, no HTTP client, no other command, no drill and no control server."""
    loaded = imported_by(
        command, "--root-dir", "/nonexistent", "--kubelet-config", "", "--now", "--wrong-option"
    )
    if command == "check":
        loaded |= imported_by(*A_CHECK)
    assert "eviction.engine.view" in loaded
    strangers = {
        "pyinotify",
        "tenacity",
        "http.client",
        "eviction.surface.control_socket",
        "eviction.surface.daemon",
    }
    assert not strangers & loaded
    assert not {name for name in loaded if name.startswith("eviction.drill")}
    others = {"run", "check", "plan", "status", "config", "drill", "reclaim"} - {command}
    assert not {f"eviction.cli.{other}" for other in others} & loaded
    assert len(loaded) <= MOST_OF_A_COMMAND, sorted(loaded)


def test_a_check_does_not_load_what_removes() -> None:
    """`check` imports no collector, no remover, and nothing that plans or explains a pass."""
    checking = imported_by(*A_CHECK)
    removing = imported_by("reclaim", "--wrong-option")
    assert "eviction.engine.view" in checking
    assert not REMOVING & checking
    assert removing >= REMOVING, "`reclaim` does load them"


def test_a_start_looks_for_garbage_seldom() -> None:
    """15 times on Python 3.11, and not 124 times, which took a tenth of it; from
    then on as often as usual.
    """
    program = (
        "import gc\nusual = gc.get_threshold()\nfrom eviction.cli.parser import"
        " command_of\ncommand_of('reclaim')\nprint(sum(each['collections'] for each in"
        " gc.get_stats()), gc.get_threshold() == usual)"
    )
    process = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    times, as_usual = process.stdout.split()
    assert (int(times) <= MOST_COLLECTIONS, as_usual) == (True, "True"), process.stdout

"""Filesystems, reclaim functions and rows of the table that a configuration adds."""

from __future__ import annotations

from typing import Any

import pytest

from eviction.configuration.effective import Configuration, ConfigurationError, load
from eviction.configuration.file import FunctionKind
from eviction.decision.reclaim_table import RowEntry
from eviction.types import ThresholdValue
from signals.quantity import parse_percentage
from signals.types import KUBELET_SIGNALS, ROLE_NAMES_ALLOWED, FilesystemRole, Signal

CACHE = {"name": "buildcache", "path": "/var/lib/buildkit"}
PRUNE = {"name": "prune", "exec": ["/usr/local/bin/prune", "--all"], "frees": "buildcache"}
NO_PROGRAM = (
    "must have exec; only ReleaseBallast, DeleteRotatedLogs and CollectContainerdGarbage have none"
)
BYTES, INODES = Signal("buildcache.available"), Signal("buildcache.inodesFree")


def loaded(**fields: Any) -> Configuration:
    """A configuration with these fields and no kubelet's."""
    return load(None, {}, {"kubeletConfig": "", **fields})


def refused(**fields: Any) -> str:
    """Why such a configuration is refused."""
    with pytest.raises(ConfigurationError) as error:
        loaded(**fields)
    return str(error.value).removeprefix("flags: ")


def test_a_filesystem_has_signals_and_thresholds_like_any_other() -> None:
    """Hard and soft marks, a grace, a minimum reclaim; no margin, as nobody else acts on it."""
    found = loaded(
        filesystems=[CACHE],
        evictionHard={"buildcache.available": "10%", "buildcache.inodesFree": "5%"},
        evictionSoft={"buildcache.available": "20%"},
        evictionSoftGracePeriod={"buildcache.available": "30s"},
    )
    assert found.filesystems == {FilesystemRole("buildcache"): "/var/lib/buildkit"}
    assert found.signals == (*KUBELET_SIGNALS, BYTES, INODES)
    own = [threshold for threshold in found.thresholds if not threshold.signal.filesystem.kubelets]
    assert [(t.signal, t.text(), t.grace_seconds) for t in own] == [
        (BYTES, "10%", 0.0),
        (INODES, "5%", 0.0),
        (BYTES, "20%", 30.0),
    ]
    assert [str(t.min_reclaim) for t in own] == ["2%", "None", "2%"]
    assert len(found.thresholds) == 4 + len(own), "the kubelet's stay"


def test_a_mark_for_a_filesystem_that_nobody_named_is_refused_with_the_names() -> None:
    """A misspelt name must not be a mark that never acts."""
    assert (
        refused(filesystems=[CACHE], evictionHard={"buildcach.available": "10%"})
        == "evictionHard: unknown signal 'buildcach.available'; allowed are"
        f" {', '.join((*KUBELET_SIGNALS, BYTES, INODES))}, memory.available,"
        " allocatableMemory.available, pid.available"
    )


@pytest.mark.parametrize(
    ("filesystems", "problem"),
    [
        (
            [{"name": "nodefs", "path": "/a"}],
            "nodefs: has a meaning of its own; choose another name",
        ),
        (
            [{"name": "memory", "path": "/a"}],
            "memory: has a meaning of its own; choose another name",
        ),
        (
            [{"name": "Cache", "path": "/a"}],
            f"0: name: 'Cache' is not a filesystem name; allowed are {ROLE_NAMES_ALLOWED}",
        ),
        ([CACHE, CACHE], "buildcache: occurs twice"),
        ([{"name": "cache", "path": "a"}], "cache: path: must be an absolute path, but it was 'a'"),
    ],
)
def test_a_filesystem_that_cannot_be_is_refused(
    filesystems: list[dict[str, str]], problem: str
) -> None:
    """With the name, what it was, and what is allowed."""
    assert refused(filesystems=filesystems) == f"filesystems: {problem}"


def test_what_cannot_be_counted_on_is_refused() -> None:
    """More filesystems and functions than metrics have values for, one function twice,
    and fewer logs than none.
    """
    twice = refused(filesystems=[CACHE], reclaimFunctions=[PRUNE, PRUNE])
    assert twice == "reclaimFunctions: prune: occurs twice"
    nine = [{"name": f"cache{number}", "path": "/a"} for number in range(9)]
    assert refused(filesystems=nine).startswith(
        "filesystems: must have at most 8 of them, but it was [{name: 'cache0'"
    )
    thirty = [{**PRUNE, "name": f"prune{number}"} for number in range(30)]
    assert refused(reclaimFunctions=thirty).startswith(
        "reclaimFunctions: must have at most 29 of them"
    )
    logs = refused(reclaimFunctions=[{"name": "DeleteRotatedLogs", "keep": -1}])
    assert logs == "reclaimFunctions.0.keep: must be at least 0, but it was -1"


def test_each_kind_of_function_is_read() -> None:
    """By its name, or by the field that makes it one."""
    found = loaded(
        filesystems=[CACHE],
        reclaimFunctions=[
            {**PRUNE, "timeout": "1m", "cooldown": "5m", "user": "root", "plan": False},
            {"name": "ReleaseBallast", "file": "/var/lib/kubelet/reclaimd.ballast", "size": "1Gi"},
            {"name": "DeleteRotatedLogs", "keep": 2},
            {"name": "CollectContainerdGarbage"},
        ],
    )
    program, ballast, logs, garbage = found.functions
    assert [each.kind for each in found.functions] == [
        FunctionKind.PROGRAM,
        FunctionKind.BALLAST,
        FunctionKind.ROTATED_LOGS,
        FunctionKind.CONTAINERD_GARBAGE,
    ]
    assert (program.argv, program.user, program.frees) == (
        ("/usr/local/bin/prune", "--all"),
        (0, 0),
        "buildcache",
    )
    assert (program.timeout_seconds, program.cooldown_seconds, program.asks_plan) == (
        60.0,
        300.0,
        False,
    )
    assert (ballast.path, ballast.size_bytes, ballast.frees) == (
        "/var/lib/kubelet/reclaimd.ballast",
        1 << 30,
        "nodefs",
    )
    assert (logs.keep, logs.frees) == (2, "nodefs")
    assert (garbage.timeout_seconds, garbage.frees) == (60.0, "imagefs")


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (
            {"name": "prune", "frees": "nodefs"},
            f"prune: {NO_PROGRAM}",
        ),
        ({"name": "prune", "exec": ["/a"]}, "prune: frees is missing"),
        (
            {"name": "prune", "exec": ["/a"], "frees": "cache"},
            "prune: frees: must be one of nodefs, imagefs, containerfs, but it was 'cache'",
        ),
        (
            {"name": "prune", "exec": ["a"], "frees": "nodefs"},
            "prune: exec: must begin with an absolute path, but it was ['a']",
        ),
        (
            {"name": "prune", "exec": [], "frees": "nodefs"},
            "prune: exec: must begin with an absolute path, but it was []",
        ),
        (
            {"name": "prune", "exec": ["/a"], "frees": "nodefs", "timeout": "1h"},
            "prune: timeout: must be between 1s and 10m, but it was '1h'",
        ),
        (
            {"name": "prune", "exec": ["/a"], "frees": "nodefs", "user": "nobody-of-this-name"},
            "prune: user: there is no user 'nobody-of-this-name' on this machine",
        ),
        (
            {"name": "prune", "exec": ["/a"], "frees": "nodefs", "keep": 1},
            (
                "prune: keep: is not a field of this kind of function; allowed are exec, frees,"
                " user, timeout, plan, cooldown"
            ),
        ),
        ({"name": "ReleaseBallast", "file": "/a"}, "ReleaseBallast: size is missing"),
        (
            {"name": "ReleaseBallast", "file": "/a", "size": "1Ki"},
            "ReleaseBallast: size: must be at least 1Mi, but it was '1Ki'",
        ),
        (
            {"name": "ReleaseBallast", "file": "a", "size": "1Mi"},
            "ReleaseBallast: file: must be the absolute path of a file, but it was 'a'",
        ),
        (
            {"name": "DeleteRotatedLogs", "cooldown": ""},
            (
                "DeleteRotatedLogs: cooldown: '' is not a Go duration such as 30s, 1m30s, 1.5h or"
                " 250ms"
            ),
        ),
        (
            {"name": "prune", "exec": ["/a"], "frees": "nodefs", "timeout": ""},
            "prune: timeout: '' is not a Go duration such as 30s, 1m30s, 1.5h or 250ms",
        ),
        (
            {"name": "DeleteRotatedLogs", "cooldown": "-1s"},
            "DeleteRotatedLogs: cooldown: must not be negative, but it was '-1s'",
        ),
        ({"name": "DeleteUnusedImages"}, "DeleteUnusedImages: is built in; it needs no entry"),
        (
            {"name": "a b", "exec": ["/a"], "frees": "nodefs"},
            (
                "0: name: must be a letter, and up to 62 letters, digits, underscores, dots and"
                " hyphens, but it was 'a b'"
            ),
        ),
    ],
)
def test_a_function_that_cannot_be_is_refused(entry: dict[str, Any], problem: str) -> None:
    """With its name, the field, what it was, and what is allowed."""
    assert refused(reclaimFunctions=[entry]) == f"reclaimFunctions: {problem}"


def test_a_plugin_of_an_earlier_version_is_refused_with_what_to_use() -> None:
    """By the name of its field."""
    assert refused(reclaimFunctions=[{"name": "Prune", "plugin": "a", "frees": "nodefs"}]) == (
        "the field 'reclaimFunctions.0.plugin' is gone; use a program (exec) that answers `plan`"
        " with names and sizes"
    )


def test_rows_are_read_with_the_marks_below_which_alone_they_call() -> None:
    """A name, or a function with a mark."""
    found = loaded(
        filesystems=[CACHE],
        reclaimFunctions=[PRUNE, {"name": "ReleaseBallast", "file": "/a", "size": "1Gi"}],
        reclaimTable={
            "nodefs.available": [
                "DeleteUnusedImages",
                {"function": "ReleaseBallast", "below": "3%"},
            ],
            "buildcache.available": ["prune"],
            "imagefs.inodesFree": [],
        },
    )
    assert found.rows == {
        Signal.NODEFS_AVAILABLE: (
            RowEntry("DeleteUnusedImages"),
            RowEntry("ReleaseBallast", ThresholdValue(percentage=parse_percentage("3%"))),
        ),
        BYTES: (RowEntry("prune"),),
        Signal.IMAGEFS_INODES_FREE: (),
    }


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (
            {"nodefs.availabel": []},
            "unknown signal 'nodefs.availabel'; allowed are "
            + ", ".join((*KUBELET_SIGNALS, BYTES, INODES)),
        ),
        (
            {"nodefs.available": ["Prune"]},
            (
                "nodefs.available: unknown function 'Prune'; allowed are DeleteAllUnusedContainers,"
                " DeleteUnusedImages, prune"
            ),
        ),
        (
            {"nodefs.available": ["prune", {"function": "prune"}]},
            "nodefs.available: prune: occurs twice",
        ),
        (
            {"nodefs.available": [{"function": "prune", "below": "1x"}]},
            "nodefs.available: 0: below: '1x' is neither",
        ),
    ],
)
def test_a_row_that_can_never_run_is_refused(table: dict[str, Any], problem: str) -> None:
    """With the signal, what it was, and what is allowed."""
    found = refused(filesystems=[CACHE], reclaimFunctions=[PRUNE], reclaimTable=table)
    assert found.startswith(f"reclaimTable: {problem}")


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (
            {"nodefs.available": [1]},
            "reclaimTable.nodefs.available.0: must be a function's name, or function and below",
        ),
        (
            {"nodefs.available": [{"below": "1%"}]},
            "reclaimTable.nodefs.available.0.function: is missing",
        ),
        (
            {"nodefs.available": [{"function": "a", "over": "1%"}]},
            "unknown field 'reclaimTable.nodefs.available.0.over'",
        ),
    ],
)
def test_an_entry_of_a_row_of_another_shape_is_refused(table: dict[str, Any], problem: str) -> None:
    """The sentence names the entry, and no word of a library."""
    assert refused(reclaimTable=table).startswith(problem)


def test_without_a_runtime_only_filesystems_of_ones_own_are_watched() -> None:
    """Nothing is inherited from a kubelet that is not there, and nothing waits for it."""
    found = loaded(
        containerRuntimeEndpoint="none",
        filesystems=[CACHE],
        reclaimFunctions=[PRUNE],
        reclaimTable={"buildcache.available": ["prune"]},
        evictionHard={"buildcache.available": "10%"},
    )
    assert not found.has_runtime
    assert found.signals == (BYTES, INODES)
    assert [threshold.signal for threshold in found.thresholds] == [BYTES]
    assert found.hold_off_seconds == 0.0


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {},
            (
                "containerRuntimeEndpoint: none needs at least one entry of filesystems, or there"
                " is nothing to watch"
            ),
        ),
        (
            {"filesystems": [CACHE], "periodicGC": True},
            "periodicGC: must be false while containerRuntimeEndpoint is none",
        ),
        (
            {"filesystems": [CACHE], "reclaimTable": {"nodefs.available": []}},
            (
                "reclaimTable: unknown signal 'nodefs.available'; allowed are buildcache.available,"
                " buildcache.inodesFree"
            ),
        ),
        (
            {
                "filesystems": [CACHE],
                "reclaimTable": {"buildcache.available": ["DeleteUnusedImages"]},
            },
            (
                "reclaimTable: buildcache.available: unknown function 'DeleteUnusedImages'; allowed"
                " are none"
            ),
        ),
        (
            {
                "filesystems": [CACHE],
                "reclaimFunctions": [{"name": "CollectContainerdGarbage", "frees": "buildcache"}],
            },
            (
                "reclaimFunctions: CollectContainerdGarbage: needs containerd, but"
                " containerRuntimeEndpoint is none"
            ),
        ),
        (
            {"filesystems": [CACHE], "evictionHard": {"nodefs.available": "10%"}},
            (
                "evictionHard: unknown signal 'nodefs.available'; allowed are buildcache.available,"
                " buildcache.inodesFree, memory.available, allocatableMemory.available,"
                " pid.available"
            ),
        ),
    ],
)
def test_what_needs_a_runtime_is_refused_without_one(fields: dict[str, Any], problem: str) -> None:
    """At the start, not at pressure."""
    assert refused(containerRuntimeEndpoint="none", **fields) == problem


def test_rows_and_functions_are_shown_as_they_would_be_written() -> None:
    """With the source of each, and without fields that an entry leaves out."""
    found = loaded(
        reclaimFunctions=[{"name": "DeleteRotatedLogs"}],
        reclaimTable={"nodefs.available": ["DeleteRotatedLogs"]},
    )
    assert found.effective["reclaimFunctions"] == [{"name": "DeleteRotatedLogs"}]
    assert found.effective["reclaimTable"] == {"nodefs.available": ["DeleteRotatedLogs"]}
    nothing = [{"name": "DeleteRotatedLogs", "keep": None, "cooldown": None}]
    assert loaded(reclaimFunctions=nothing).effective["reclaimFunctions"] == [
        {"name": "DeleteRotatedLogs"}
    ]
    assert refused(reclaimFunctions=[{"name": None}]) == "reclaimFunctions: 0: name: is missing"
    assert refused(filesystems=[{"name": None, "path": "/a"}]) == "filesystems: 0: name: is missing"
    row = [{"function": None, "below": "1%"}]
    missing = refused(reclaimTable={"nodefs.available": row})
    assert missing == "reclaimTable: nodefs.available: 0: function: is missing"
    assert found.origins["reclaimTable.nodefs.available"] == "flags"
    assert found.origins["reclaimFunctions"] == "flags"

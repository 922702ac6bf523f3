"""`reclaimd ballast`: exit codes, one document or one sentence on stdout, refusals on stderr."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.reclaimd_process import answer, reclaimd, reclaimd_here, write_configuration

MIB = 1 << 20
SIZE = 4 * MIB


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Where the ballast is to be."""
    return str(tmp_path / "ballast")


def test_it_is_made_shown_and_removed(file: str) -> None:
    """As a program of its own, and in the same words each time."""
    given = ("--file", file, "--size", "4Mi")
    missing, made = (
        reclaimd_here("ballast", "status", *given),
        reclaimd("ballast", "create", *given),
    )
    again, shown = (
        reclaimd_here("ballast", "create", *given),
        reclaimd_here("ballast", "status", *given),
    )
    assert (missing.returncode, missing.stdout) == (1, f"{file}: does not exist\n")
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.startswith(f"{file}: {SIZE} bytes (4.0MiB), {SIZE} allocated")
    assert (again.returncode, again.stdout) == (
        0,
        made.stdout.rstrip("\n") + "; it already existed\n",
    )
    assert (shown.returncode, shown.stdout) == (0, made.stdout)
    assert os.stat(file).st_size == SIZE
    removed, gone = (
        reclaimd_here("ballast", "remove", *given),
        reclaimd_here("ballast", "remove", *given),
    )
    assert (removed.returncode, removed.stdout) == (0, f"{file}: removed, 4.0MiB were allocated\n")
    assert (gone.returncode, gone.stdout) == (0, f"{file}: does not exist\n")
    assert not os.path.lexists(file)


def test_the_same_as_documents(file: str) -> None:
    """Of each command, in the same form."""
    given = ("--file", file, "--size", "4Mi", "-o", "json")
    document = answer(reclaimd_here("ballast", "create", *given))
    head = {"apiVersion": "reclaimd.io/v1alpha1", "kind": "Ballast"}
    whole = {
        **head,
        "file": file,
        "size_bytes": SIZE,
        "there": True,
        "whole": True,
        "allocated_bytes": SIZE,
        "problem": "",
    }
    assert document == whole
    assert answer(reclaimd_here("ballast", "status", *given)) == whole
    none = {**whole, "there": False, "whole": False, "allocated_bytes": 0}
    assert answer(reclaimd_here("ballast", "remove", *given)) == {**none, "removed_bytes": SIZE}
    assert answer(reclaimd_here("ballast", "remove", *given)) == {**none, "removed_bytes": None}
    assert answer(reclaimd_here("ballast", "status", *given)) == none


def test_a_sparse_file_is_shown_as_what_it_is(file: str) -> None:
    """It is there and not whole: exit 1; and it is not taken for the
    ballast when that is to be made.
    """
    Path(file).touch(0o600)
    os.truncate(file, SIZE)
    given = ("--file", file, "--size", "4Mi")
    shown, made = (
        reclaimd_here("ballast", "status", *given),
        reclaimd_here("ballast", "create", *given),
    )
    words = f"it is sparse: 0 of its {SIZE} bytes are allocated"
    assert (shown.returncode, made.returncode) == (1, 1)
    assert shown.stdout.endswith(f"; {words}\n")
    assert made.stderr == f"reclaimd: {file} is not the ballast: {words}\n"


@pytest.mark.parametrize("action", ["create", "status", "remove"])
def test_what_is_refused_is_said_in_one_sentence_and_stays(file: str, action: str) -> None:
    """Exit 1, and nothing on stdout."""
    Path(file).symlink_to("elsewhere")
    refused = reclaimd_here("ballast", action, "--file", file, "--size", "4Mi")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == f"reclaimd: {file} is not the ballast: it is not a regular file\n"
    assert os.path.islink(file)


def test_more_than_half_of_what_is_available_is_not_made(file: str, tmp_path: Path) -> None:
    """It would bring the filesystem under pressure by itself."""
    found = os.statvfs(tmp_path)
    size = found.f_bavail * found.f_frsize * 3 // 4
    refused = reclaimd_here("ballast", "create", "--file", file, "--size", str(size))
    assert refused.returncode == 1
    assert "it needs twice its size" in refused.stderr
    assert os.listdir(tmp_path) == []


def test_file_and_size_are_those_of_the_configuration(tmp_path: Path) -> None:
    """Made, shown and removed without naming them again; its filesystem keeps its marks."""
    found = os.statvfs(tmp_path)
    room = found.f_bavail * found.f_frsize
    fields = {
        "containerRuntimeEndpoint": "none",
        "filesystems": [{"name": "data", "path": str(tmp_path)}],
        "reclaimFunctions": [
            {
                "name": "ReleaseBallast",
                "file": str(tmp_path / "ballast"),
                "size": "4Mi",
                "frees": "data",
            }
        ],
        "evictionMinimumReclaim": {"data.available": "0"},
    }
    low = write_configuration(
        tmp_path / "low.yaml", **fields, evictionHard={"data.available": "1Mi"}
    )
    high = write_configuration(
        tmp_path / "high.yaml", **fields, evictionHard={"data.available": str(room - 1)}
    )
    refused = reclaimd_here("ballast", "create", "--config", str(high))
    assert (refused.returncode, "it needs twice its size" in refused.stderr) == (1, True)
    made = reclaimd_here("ballast", "create", "--config", str(low), "-o", "json")
    assert json.loads(made.stdout)["allocated_bytes"] == 4 << 20
    assert reclaimd_here("ballast", "remove", "--config", str(low)).returncode == 0
    assert not (tmp_path / "ballast").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("create", "--size", "1Gi"), "--file and --size go together"),
        (
            ("create",),
            "reclaimFunctions has no ReleaseBallast; add it there, or give --file and --size",
        ),
        (("create", "--file", "/a"), "--file and --size go together"),
        (
            ("create", "--file", "a", "--size", "1Gi"),
            "--file: must be the absolute path of a file, but it was 'a'",
        ),
        (("create", "--file", "/a", "--size", "a lot"), "--size: 'a lot' is not"),
        (
            ("create", "--file", "/a", "--size", "1Ki"),
            "--size: must be at least 1Mi, but it was '1Ki'",
        ),
        (("create", "--file", "/a", "--size", "-1Gi"), "size"),
        (("inflate", "--file", "/a", "--size", "1Gi"), "inflate"),
        (("--file", "/a", "--size", "1Gi"), "action"),
    ],
)
def test_usage_errors_are_one_sentence(arguments: tuple[str, ...], words: str) -> None:
    """Exit 2, and it names what was given."""
    refused = reclaimd_here("ballast", *arguments)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert words in refused.stderr
    assert len(refused.stderr.splitlines()) == 1

"""Filesystems and functions of the configuration on the embedded node: entries to be removed, and programs that remove
them, or misbehave.

The programs are run as those of an operator: by path, with what is missing in their environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from eviction.drill.scenario.types import FunctionSpec, ProgramKind
from signals.types import FilesystemRole

ENTRIES = "entries"
SPACING_SECONDS = 60  # between the ages of two entries
_BLOCK = os.urandom(1 << 16)

FREES = """\
mode=$1
left=${RECLAIMD_MISSING_BYTES:-0}
for file in $(ls -tr "$entries"); do
    [ "$left" -gt 0 ] || [ "$mode" = plan ] || break
    size=$(stat -c %s "$entries/$file")
    if [ "$mode" = plan ]; then
        printf '{"name": "%s", "size": %s, "reason": "old"}\\n' "$file" "$size"
    else
        rm -- "$entries/$file"
    fi
    left=$((left - size))
done
"""
BODIES: Mapping[ProgramKind, str] = {
    ProgramKind.FREES: FREES,
    ProgramKind.HANGS: "trap '' TERM\nwhile :; do sleep 1; done\n",
    ProgramKind.LIES: "echo freed everything\n",
    ProgramKind.FAILS: "echo cannot >&2\nexit 3\n",
    ProgramKind.FLOODS: "while :; do echo too many words; done\n",
    ProgramKind.LEAVES: "sleep 600 &\nexit 0\n",
}


def entries_of(disk: str) -> list[str]:
    """The names of the entries that are left on a filesystem."""
    try:
        return os.listdir(os.path.join(disk, ENTRIES))
    except FileNotFoundError:
        return []


def write_entries(disk: str, count: int, size_bytes: int) -> None:
    """Entries of so many bytes, numbered from 0001, the first one the oldest. Raises OSError."""
    directory = os.path.join(disk, ENTRIES)
    os.mkdir(directory, 0o755)
    for number in range(1, count + 1):
        path = os.path.join(directory, f"{number:04}")
        with open(path, "wb") as file:
            left = size_bytes
            while left > 0:
                left -= file.write(_BLOCK[:left])
        modified = os.stat(path).st_mtime - SPACING_SECONDS * (count + 1 - number)
        os.utime(path, (modified, modified))


def write_programs(directory: str, functions: Iterable[FunctionSpec], disks: Mapping[FilesystemRole, str]) -> None:
    """The programs of these functions, each by the name of its function. Raises OSError."""
    os.mkdir(directory, 0o755)
    for function in functions:
        if function.does is None:
            continue
        disk = disks.get(FilesystemRole(function.fields["frees"]), disks[FilesystemRole.NODEFS])
        path = os.path.join(directory, function.name)
        text = f"#!/bin/sh\nentries={os.path.join(disk, ENTRIES)}\n{BODIES[function.does]}"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700), "w", encoding="utf-8") as file:
            file.write(text)

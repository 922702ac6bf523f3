"""Output that nobody reads, or that cannot be written, delays no relief and no end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import ENVIRONMENT, PATIENCE_SECONDS, PROGRAM, came_true


@contextmanager
def full_pipe() -> Iterator[int]:
    """The writing end of a pipe that holds all that it can, and that nobody reads."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    try:
        yield writer
    finally:
        os.close(reader)
        os.close(writer)


def relieves_and_ends(small_node: SmallNode, process: subprocess.Popen[bytes]) -> None:
    """The daemon removes what is to be removed, and ends on SIGTERM."""
    try:
        assert came_true(lambda: len(small_node.removed("image")) >= 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.regression
def test_a_daemon_whose_log_is_not_read_relieves_and_ends(small_node: SmallNode) -> None:
    """Not a byte of its log can be written from its start on; it removes, and SIGTERM ends it."""
    small_node.add_images(3)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, MIB)
    with full_pipe() as unread:
        command = [PROGRAM, "run", "--config", file]
        relieves_and_ends(
            small_node, subprocess.Popen(command, stderr=unread, stdout=unread, env=ENVIRONMENT)
        )


@pytest.mark.regression
@pytest.mark.parametrize("output", ["2>&-", ">&- 2>&-", "2>/dev/full", "2> >(true)"])
def test_a_daemon_without_a_log_relieves_and_ends(small_node: SmallNode, output: str) -> None:
    """Standard error closed, on a full disk, or a reader that has gone."""
    small_node.add_images(3)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, MIB)
    command = ["bash", "-c", f'exec "$0" run --config "$1" {output}', PROGRAM, file]
    relieves_and_ends(
        small_node, subprocess.Popen(command, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    )


@pytest.mark.regression
def test_a_hook_whose_words_are_not_read_relieves(small_node: SmallNode, tmp_path: Path) -> None:
    """`reclaim` has something to say before it removes, as its records cannot
    be read; nobody reads it.
    """
    small_node.add_images(3)
    records = tmp_path / "images.json"
    records.write_text("garbage")
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, MIB, stateFile=str(records))
    with full_pipe() as unread:
        process = subprocess.Popen(
            [PROGRAM, "reclaim", "--standalone", "--now", "--config", file],
            stderr=unread,
            stdout=subprocess.DEVNULL,
            env=ENVIRONMENT,
        )
        try:
            assert process.wait(PATIENCE_SECONDS) == 0
            assert small_node.removed("image")
        finally:
            process.kill()

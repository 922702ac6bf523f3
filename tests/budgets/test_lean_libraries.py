"""No plugin of pydantic's runs in the program, and either implementation of protobuf does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reclaimd_process import PROGRAM

PLUGIN = """
print("loaded")


class Plugin:
    def new_schema_validator(self, *_):
        return None, None, None


plugin = Plugin()
"""
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


def python(program: str, **environment: str) -> list[str]:
    """The lines that a program prints, in a process of its own."""
    command = [sys.executable, "-c", program]
    process = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    assert process.stderr == ""
    return process.stdout.splitlines()


@pytest.fixture
def plugin_path(tmp_path: Path) -> str:
    """A directory with an installed pydantic plugin that prints when it is loaded."""
    (tmp_path / "foo.py").write_text(PLUGIN)
    about = tmp_path / "foo-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: foo\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[pydantic]\nfoo = foo:plugin\n")
    return str(tmp_path)


@pytest.mark.parametrize("variables", [{}, {"PYDANTIC_DISABLE_PLUGINS": "bar"}])
def test_the_program_loads_no_plugin_of_pydantic(
    plugin_path: str, variables: dict[str, str]
) -> None:
    """reclaimd loads no plugin under any environment; another program still does."""
    environment = {**os.environ, "PYTHONPATH": plugin_path, **variables}
    for command, loaded in (
        ([PROGRAM, "config"], False),
        ([sys.executable, "-c", "import eviction.configuration.effective"], True),
    ):
        process = subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment
        )
        assert ("loaded" in process.stdout.splitlines()) is loaded


@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_messages_are_read_and_written_by_either_implementation(implementation: str) -> None:
    """The implementation in C and the one in pure Python both work."""
    assert python(MESSAGES, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=implementation) == [
        implementation
    ]

"""What pydantic and protobuf bring for others is left out for us, and for us alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = """
class Plugin:
    def new_schema_validator(self, schema, schema_type, schema_type_path, *_):
        print(schema_type_path.name.rpartition(".")[2])
        return None, None, None

plugin = Plugin()
"""
OURS = "import eviction.configuration.effective, eviction.drill.report.document, eviction.drill.scenario.schema"
MESSAGES = """
from google.protobuf.internal import api_implementation
from reclaim.cri.messages import DecodeError, pb
images = pb.ListImagesResponse(images=[pb.Image(id="sha256:1", size=3)])
assert pb.ListImagesResponse.FromString(images.SerializeToString()) == images
try:
    pb.ListImagesResponse.FromString(b"\\xff")
except DecodeError:
    print(api_implementation.Type())
"""


def python(program: str, **environment: str) -> list[str]:
    """The lines that a program prints, in a process of its own."""
    command = [sys.executable, "-c", program]
    process = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    assert process.stderr == ""
    return process.stdout.splitlines()


@pytest.fixture
def plugin_path(tmp_path: Path) -> str:
    """Where a package with a plugin for pydantic is installed that tells which models it was shown."""
    (tmp_path / "foo.py").write_text(PLUGIN)
    about = tmp_path / "foo-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: foo\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[pydantic]\nfoo = foo:plugin\n")
    return str(tmp_path)


def test_a_plugin_of_another_package_sees_no_model_of_ours_and_every_other(plugin_path: str) -> None:
    """Whoever uses pydantic in this process, before us or after us, has its plugins."""
    before, after = (f"from pydantic import BaseModel\nclass {name}(BaseModel): ..." for name in ("Before", "After"))
    assert python(f"{before}\n{OURS}\n{after}", PYTHONPATH=plugin_path) == ["Before", "After"]
    assert python(f"{OURS}\n{after}", PYTHONPATH=plugin_path) == ["After"]


def test_models_of_ours_are_complete_when_they_are_made() -> None:
    """None is left to be built at its first use, when plugins would be looked for."""
    program = (
        f"{OURS}\nimport sys\nfrom eviction.configuration.models import Model\n"
        "def all_of(model):\n    return [model, *(one for sub in model.__subclasses__() for one in all_of(sub))]\n"
        "assert len(all_of(Model)) > 20\n"
        "print([model.__name__ for model in all_of(Model) if not model.__pydantic_complete__])\n"
        "print('pydantic.plugin._loader' in sys.modules)"
    )
    assert python(program) == ["[]", "False"]


def test_secrets_are_there_for_who_has_some() -> None:
    """What is loaded lazily is loaded when it is used, by pydantic or by anybody else."""
    program = (
        "import sys, eviction.configuration.models, pydantic\nassert 'hashlib' not in sys.modules\n"
        "print(pydantic.SecretStr('a') == pydantic.SecretStr('a'))\n"
        "import secrets\nprint(secrets.compare_digest('a', 'a'))"
    )
    assert python(program) == ["True", "True"]


@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_messages_are_read_and_written_by_either_implementation(implementation: str) -> None:
    """Where protobuf has to do with pure Python, that is loaded after all."""
    assert python(MESSAGES, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=implementation) == [implementation]

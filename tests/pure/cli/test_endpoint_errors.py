"""An endpoint that is no unix socket: the sentence names its source and its field."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from eviction.cli.options import add_configuration, configuration_of
from eviction.configuration.strict_yaml import ConfigurationError


def refusal(*words: str) -> str:
    """The sentence about these options."""
    parser = argparse.ArgumentParser()
    add_configuration(parser)
    with pytest.raises(ConfigurationError) as caught:
        configuration_of(parser.parse_args(["--kubelet-config", "", *words]))
    return str(caught.value)


@pytest.mark.regression
@pytest.mark.parametrize("field", ["containerRuntimeEndpoint", "imageServiceEndpoint"])
def test_an_endpoint_of_a_file_is_refused_with_file_and_field(field: str, tmp_path: Path) -> None:
    """And with the form that is allowed."""
    file = tmp_path / "c.yaml"
    file.write_text(
        f"apiVersion: reclaimd.io/v1alpha1\nkind: ReclaimdConfiguration\n{field}: tcp://here:1\n"
    )
    assert (
        refusal("--config", str(file))
        == f"{file}: {field}: 'tcp://here:1' is not a unix socket: allowed is unix:///path/to.sock"
        " with an absolute path of at most 107 bytes"
    )


@pytest.mark.regression
def test_an_endpoint_of_the_command_line_or_the_environment_is_refused_with_its_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The field is named as in the file."""
    flag = ("--config", "", "--image-service-endpoint", "x")
    assert refusal(*flag).startswith("flags: imageServiceEndpoint: 'x' is not a unix socket")
    monkeypatch.setenv("CONTAINER_RUNTIME_ENDPOINT", "y")
    assert refusal("--config", "").startswith(
        "environment: containerRuntimeEndpoint: 'y' is not a unix socket"
    )

"""The annotated configuration file: every field, with its default, and nothing that the kubelet says is overridden."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eviction.configuration.effective import ConfigurationError, load
from tests.repository import ROOT

CONFIGURATION = ROOT / "config" / "reclaimd.yaml"


def test_the_annotated_configuration_is_the_defaults() -> None:
    """Loading the annotated file gives what no file gives."""
    annotated, defaults = load(str(CONFIGURATION), {}, {}), load(None, {}, {})
    assert annotated.model_copy(update={"origins": {}}) == defaults.model_copy(update={"origins": {}})


def test_the_annotated_configuration_has_every_field() -> None:
    """A field that the refusal of an unknown one lists stands in the annotated file."""
    fields = set(re.findall(r"^#?([a-zA-Z]+):", CONFIGURATION.read_text(), re.MULTILINE))
    with pytest.raises(ConfigurationError) as refusal:
        load(None, {}, {"noSuchField": 1})
    allowed = str(refusal.value).partition("allowed are ")[2].split(", ")
    assert fields == set(allowed)


@pytest.mark.regression
def test_the_annotated_configuration_changes_nothing_that_is_inherited(tmp_path: Path) -> None:
    """Who installs it as it is has the kubelet's values: a field that is inherited is a comment, with its default."""
    kubelet = tmp_path / "kubelet.yaml"
    kubelet.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nimageMinimumGCAge: 7m\n"
        "imageMaximumGCAge: 9h\nimageGCHighThresholdPercent: 71\nimageGCLowThresholdPercent: 61\npodLogsDir: /logs\n"
        "containerRuntimeEndpoint: unix:///other.sock\nimageServiceEndpoint: unix:///images.sock\nhealthzPort: 1\n"
        "evictionPressureTransitionPeriod: 11m\n"
    )
    inherited = {"kubeletConfig": str(kubelet)}
    annotated, bare = load(str(CONFIGURATION), {}, inherited), load(None, {}, inherited)
    assert annotated.model_copy(update={"origins": {}}) == bare.model_copy(update={"origins": {}})
    commented = dict(re.findall(r"^#([a-zA-Z]+): (.*)$", CONFIGURATION.read_text(), re.MULTILINE))
    defaults = load(None, {}, {"kubeletConfig": ""}).effective
    assert {name: text.strip('"') for name, text in commented.items()} == {n: str(defaults[n]) for n in commented}

"""The annotated configuration has every field, with its default.

It and the one that is installed change nothing.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eviction.configuration.effective import load
from eviction.configuration.file import FIELDS
from tests.repository import ROOT

CONFIGURATION, INSTALLED = ROOT / "config" / "all-fields.yaml", ROOT / "config" / "reclaimd.yaml"


@pytest.mark.parametrize("file", [CONFIGURATION, INSTALLED])
def test_what_is_delivered_is_the_defaults(file: Path) -> None:
    """Loading the annotated file, or the one that is installed, gives what no file gives."""
    annotated, defaults = load(str(file), {}, {}), load(None, {}, {})
    assert annotated.model_copy(update={"origins": {}}) == defaults.model_copy(
        update={"origins": {}}
    )


def test_the_annotated_configuration_has_every_field() -> None:
    """And no other."""
    assert (
        set(re.findall(r"^#?([a-zA-Z]+):", CONFIGURATION.read_text(), re.MULTILINE))
        == FIELDS.keys()
    )


@pytest.mark.regression
@pytest.mark.parametrize("file", [CONFIGURATION, INSTALLED])
def test_what_is_delivered_changes_nothing_that_is_inherited(tmp_path: Path, file: Path) -> None:
    """Who installs it as it is has the kubelet's values: a field that is inherited is a
    comment, with its default.
    """
    kubelet = tmp_path / "kubelet.yaml"
    kubelet.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nimageMinimumGCAge:"
        " 7m\nimageMaximumGCAge: 9h\nimageGCHighThresholdPercent: 71\nimageGCLowThresholdPercent:"
        " 61\npodLogsDir: /logs\ncontainerRuntimeEndpoint:"
        " unix:///other.sock\nimageServiceEndpoint: unix:///images.sock\nhealthzPort:"
        " 1\nevictionPressureTransitionPeriod: 11m\n"
    )
    inherited = {"kubeletConfig": str(kubelet)}
    annotated, bare = load(str(file), {}, inherited), load(None, {}, inherited)
    assert annotated.model_copy(update={"origins": {}}) == bare.model_copy(update={"origins": {}})


def test_a_field_behind_a_mark_of_a_comment_has_its_default() -> None:
    """In the annotated file; without a kubelet's configuration that is what is in force."""
    commented = dict(re.findall(r"^#([a-zA-Z]+): (.*)$", CONFIGURATION.read_text(), re.MULTILINE))
    defaults = load(None, {}, {"kubeletConfig": ""}).effective
    assert {name: text.strip('"') for name, text in commented.items()} == {
        n: str(defaults[n]) for n in commented
    }


def test_what_is_installed_is_short_and_its_suggestions_are_accepted(tmp_path: Path) -> None:
    """At most ten lines; one says where every field is explained.

    Without the marks of comments they are valid.
    """
    text = INSTALLED.read_text()
    assert 3 <= len(text.splitlines()) <= 10
    assert "`reclaimd help configuration`" in text
    file = tmp_path / "c.yaml"
    file.write_text(re.sub(r"^#([a-zA-Z]+:)", r"\1", text, flags=re.MULTILINE))
    assert set(load(str(file), {}, {}).origins.values()) >= {str(file), "default"}

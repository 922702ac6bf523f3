"""Defaults, file, environment and flags become one value, or one sentence that
says what is wrong.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.configuration.effective import Configuration, ConfigurationError, load
from eviction.configuration.file import FIELDS, GONE_FIELDS, KIND
from eviction.configuration.kubelet import parse_pairs
from eviction.configuration.kubelet_ways import KubeletPlace
from eviction.configuration.threshold_config import read_minimum_reclaim, read_value
from eviction.types import API_VERSION, Extent
from signals.quantity import parse_percentage
from signals.types import Signal
from tests.pure.values import GIB, MIB, value

HEAD = f"apiVersion: {API_VERSION}\nkind: {KIND}\n"


def written(tmp_path: Path, text: str, head: str = HEAD) -> str:
    """The path of a file with this text."""
    path = tmp_path / "c.yaml"
    path.write_text(head + text, encoding="utf-8")
    return str(path)


def marks(configuration: Configuration) -> dict[str, str]:
    """The values of the thresholds, as texts."""
    return {str(one.signal): one.text() for one in configuration.thresholds}


def refusal(path: str | None, flags: dict[str, Any] | None = None) -> str:
    """The sentence with which a configuration is refused."""
    with pytest.raises(ConfigurationError) as refused:
        load(path, {}, flags or {})
    return str(refused.value)


def test_the_defaults_act_5_percent_before_the_kubelet() -> None:
    """Without a file the thresholds are the kubelet's Linux defaults plus the margin, and
    release is above trigger.
    """
    found = load(None, {}, {})
    assert marks(found) == {
        "nodefs.available": "10% + 5% (at most 20Gi)",
        "nodefs.inodesFree": "5% + 5%",
        "imagefs.available": "15% + 5% (at most 20Gi)",
        "imagefs.inodesFree": "5% + 5%",
    }
    assert all(one.hard for one in found.thresholds)
    assert {
        str(one.signal): str(one.min_reclaim) for one in found.thresholds if one.min_reclaim
    } == {
        "nodefs.available": "2%",
        "imagefs.available": "2%",
    }
    assert found.thresholds[0].origin == "the kubelet's default plus margin 5% (at most 20Gi)"


def test_the_other_defaults() -> None:
    """Seconds, bytes a second, numbers: as documented."""
    found = load(None, {}, {})
    assert (found.root_directory, found.runtime_endpoint, found.image_endpoint) == (
        "/var/lib/kubelet",
        "",
        "",
    )
    assert (found.transition_period_seconds, found.image_minimum_gc_age_seconds) == (300.0, 120.0)
    assert (found.image_gc_high_threshold_percent, found.image_gc_low_threshold_percent) == (85, 80)
    assert (found.minimum_container_ttl_seconds, found.maximum_dead_containers_per_container) == (
        0.0,
        1,
    )
    assert (found.hold_off_seconds, found.parallel_removals, found.extent) == (
        300.0,
        2,
        Extent.ENOUGH,
    )
    assert (found.poll_floor_seconds, found.poll_ceiling_seconds) == (0.01, 10.0)
    assert found.assumed_fill_rate == 500 * MIB
    assert (
        found.image_maximum_gc_age_seconds,
        found.maximum_dead_containers,
        found.periodic_gc,
    ) == (0.0, -1, False)
    assert (found.pod_logs_dir, found.container_logs_dir) == (
        "/var/log/pods",
        "/var/log/containers",
    )
    assert (found.keep_images.entries, found.state_file) == ((), "/var/lib/reclaimd/images.json")
    assert (found.kubelet_access, found.keep_newest_per_repository) == (
        KubeletPlace("/var/lib/kubelet"),
        0,
    )


@pytest.mark.parametrize(
    ("margin", "mark"),
    [
        ("0%", "10%"),
        ("0.0%", "10%"),
        ("0", "10%"),
        ("5%", "10% + 5%"),
        ("2Gi", "10% + 2Gi"),
        ("50%", "10% + 50%"),
    ],
)
def test_the_margin_is_added_to_the_kubelets_default(margin: str, mark: str) -> None:
    """Of nodefs.available, whose default is 10%."""
    assert marks(load(None, {}, {"margin": margin}))["nodefs.available"] == mark


def test_a_file_replaces_the_thresholds_that_it_names(tmp_path: Path) -> None:
    """Each named signal replaces the inherited one; the others are inherited."""
    path = written(tmp_path, "evictionHard: {nodefs.available: 1Gi, imagefs.inodesFree: 7%}\n")
    found = load(path, {}, {})
    assert marks(found) == {
        "nodefs.available": "1Gi",
        "nodefs.inodesFree": "5% + 5%",
        "imagefs.available": "15% + 5% (at most 20Gi)",
        "imagefs.inodesFree": "7%",
    }
    assert {one.origin for one in found.thresholds if str(one.signal) == "nodefs.available"} == {
        path
    }


@pytest.mark.parametrize("off", ["0%", "100%"])
def test_0_and_100_percent_switch_a_signal_off(tmp_path: Path, off: str) -> None:
    """The kubelet's way to have no threshold on a signal."""
    path = written(tmp_path, f"evictionHard: {{nodefs.available: {off}}}\n")
    assert "nodefs.available" not in marks(load(path, {}, {}))


@pytest.mark.parametrize("kept", ["0.0%", "00%", "100.0%", "99%"])
def test_other_spellings_of_0_and_100_percent_stay_thresholds(kept: str) -> None:
    """Only the two texts switch a signal off, as in the kubelet."""
    found = load(None, {}, {"evictionHard": {"nodefs.available": kept}})
    assert found.thresholds[0].value.percentage == parse_percentage(kept)


def test_a_later_source_wins(tmp_path: Path) -> None:
    """Defaults, file, environment, flags; an empty variable counts as not set."""
    path = written(
        tmp_path, "containerRuntimeEndpoint: unix:///file\npollCeiling: 3s\nextent: all\n"
    )
    environment = {
        "CONTAINER_RUNTIME_ENDPOINT": "unix:///environment",
        "IMAGE_SERVICE_ENDPOINT": "",
    }
    flag = {"containerRuntimeEndpoint": "unix:///flag"}
    assert load(path, {}, {}).runtime_endpoint == "unix:///file"
    assert load(path, environment, {}).runtime_endpoint == "unix:///environment"
    assert load(path, environment, flag).runtime_endpoint == "unix:///flag"
    assert load(path, environment, flag).image_endpoint == ""
    assert load(path, {"IMAGE_SERVICE_ENDPOINT": "unix:///i"}, {}).image_endpoint == "unix:///i"
    assert (load(path, {}, {}).poll_ceiling_seconds, load(path, {}, {}).extent) == (3.0, Extent.ALL)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("margin: 7\n", "c.yaml: margin: needs a unit, as in 10Gi or 10%, but it was 7"),
        ("margin: '7x'\n", "c.yaml: margin: '7x' is neither a Kubernetes quantity such as"),
        ("margin: '-1Gi'\n", "c.yaml: margin: must be at least 0 and less than 1Ei, but it was '-1Gi'"),
        ("margin: 1e308\n", "c.yaml: margin: must be at least 0 and less than 1Ei, but it was '1e308'"),
        ("margin: 1Ei\n", "c.yaml: margin: must be at least 0 and less than 1Ei, but it was '1Ei'"),
        ("controlSocket: run/x\n", "c.yaml: controlSocket: must be an absolute path or empty, but it was 'run/x'"),
        ("kubeletTokenFile: /t\n", "c.yaml: kubeletTokenFile: has no effect while kubeletEndpoint is auto"),
        ("kubeletEndpoint: kubelet:10250\n", "c.yaml: kubeletEndpoint: must be http:// or https://, an IP address"),
        ("kubeletEndpoint: https://127.0.0.1\n", "c.yaml: kubeletCAFile: is needed to verify the kubelet"),
        ("kubeletEndpoint: http://127.0.0.1\nkubeletTokenFile: /t\n", "c.yaml: kubeletEndpoint: must be https://"),
        ("stateFile: images.json\n", "c.yaml: stateFile: must be an absolute path or empty, but it was 'images.json'"),
        ("podLogsDir: ''\n", "c.yaml: podLogsDir: must be an absolute path in ASCII without '..',"),
        ("podLogsDir: var/log\n", "c.yaml: podLogsDir: must be an absolute path in ASCII without '..',"),
        ("podLogsDir: /var/../log\n", "c.yaml: podLogsDir: must be an absolute path in ASCII without '..',"),
        ("containerLogsDir: /var/log/\n", "c.yaml: containerLogsDir: must be an absolute path in ASCII without"),
        ("podLogsDir: /var/l\xf6g\n", "c.yaml: podLogsDir: must be an absolute path in ASCII without '..',"),
        ("imageMaximumGCAge: 2m\n", "c.yaml: imageMaximumGCAge: must be above imageMinimumGCAge (120s), but"),
        ("imageMaximumGCAge: -1s\n", "c.yaml: imageMaximumGCAge: must not be negative, but it was '-1s'"),
        ("keepImages: pause\n", "c.yaml: keepImages: must be a list, but it was 'pause'"),
        ("keepImages: [1]\n", "c.yaml: keepImages.0: must be a text, in quotes where YAML would read it otherwise"),
        ("keepImages: [a, A]\n", "c.yaml: keepImages: 'A' cannot be used; allowed are"),
        ("periodicGC: 1\n", "c.yaml: periodicGC: must be true or false, but it was 1"),
        ("maximumDeadContainers: '5'\n", "c.yaml: maximumDeadContainers: must be a whole number, but it"),
        ("evictionSoft: {nodefs.available: 5%}\n", "c.yaml: evictionSoft: nodefs.available: needs a grace period"),
        ("evictionSoftGracePeriod: {nodefs.available: 5}\n", "evictionSoftGracePeriod.nodefs.available: must be a"),
        ("evictionSoftGracePeriod: {nodefs.available: 5d}\n", "evictionSoftGracePeriod: nodefs.available: '5d' is not"),
        ("margin: 51%\n", "c.yaml: margin: must be between 0% and 50%, but it was '51%'"),
        ("margin: {percent: 51%}\n", "c.yaml: margin: percent: must be between 0% and 50%, but it was '51%'"),
        ("margin: {percent: 5Gi}\n", "c.yaml: margin: percent: must be a percentage, but it was '5Gi'"),
        ("margin: {atMost: -1Gi}\n", "c.yaml: margin: atMost: must be at least 1Mi, but it was '-1Gi'"),
        ("margin: {atLeast: 1Gi}\n", "c.yaml: unknown field 'margin.atLeast'; did you mean atMost?"),
        ("margin: []\n", "c.yaml: margin: must be a quantity, a percentage, or percent and atMost, but it was []"),
        ("margin: -1%\n", "c.yaml: margin: must be between 0% and 50%, but it was '-1%'"),
        ("nope: 1\n", "c.yaml: unknown field 'nope'; `reclaimd help configuration` explains all"),
        ("keepImage: []\n", "c.yaml: unknown field 'keepImage'; did you mean keepImages or keepImagesNotPulled?"),
        ("pollFlor: 1s\n", "c.yaml: unknown field 'pollFlor'; did you mean pollFloor?"),
        (
            "filesystems: [{name: x, path: /x, pth: /y}]\n",
            "c.yaml: unknown field 'filesystems.0.pth'; did you mean path?",
        ),
        (
            "reclaimFunctions: [{name: x, timout: 1s}]\n",
            "c.yaml: unknown field 'reclaimFunctions.0.timout'; did you mean timeout?",
        ),
        (
            "reclaimTable: {nodefs.available: [{function: x, over: 1%}]}\n",
            "c.yaml: unknown field 'reclaimTable.nodefs.available.0.over'; allowed are function, below",
        ),
        (
            "filesystems: [{name: x, path: /x, pth: null}]\n",
            "c.yaml: unknown field 'filesystems.0.pth'; did you mean path?",
        ),
        ("lead: 1s\n", "c.yaml: lead: must be 'auto' or '0s', but it was '1s'"),
        ("rootDirectory: var\n", "c.yaml: rootDirectory: must be an absolute path, but it was 'var'"),
        ("extent: some\n", "c.yaml: extent: must be 'enough' or 'all', but it was 'some'"),
        ("imageMinimumGCAge: 1d\n", "c.yaml: imageMinimumGCAge: '1d' is not a Go duration such as 30s"),
        ("imageMinimumGCAge: -1s\n", "c.yaml: imageMinimumGCAge: must not be negative, but it was '-1s'"),
        ("holdOffAfterStart: 5\n", "c.yaml: holdOffAfterStart: must be a text, in quotes"),
        ("pollFloor: 20s\n", "c.yaml: pollFloor: must be at least 1ms and not above pollCeiling"),
        ("pollFloor: 0s\n", "c.yaml: pollFloor: must be at least 1ms and not above pollCeiling"),
        ("assumedFillRate: '0'\n", "c.yaml: assumedFillRate: must be at least 1, but it was '0'"),
        ("assumedFillRate: fast\n", "c.yaml: assumedFillRate: 'fast' is not a Kubernetes quantity"),
        (
            "keepNewestPerRepository: -1\n",
            "c.yaml: keepNewestPerRepository: must be at least 0",
        ),
        ("parallelRemovals: 0\n", "c.yaml: parallelRemovals: must be at least 1"),
        ("parallelRemovals: yes\n", "c.yaml: parallelRemovals: must be a whole number, but it was 'yes'"),
        ("parallelRemovals: 012\n", "c.yaml: parallelRemovals: must be a whole number, but it was '012'"),
        ("parallelRemovals: true\n", "c.yaml: parallelRemovals: must be a whole number, but it was true"),
        ("imageGCHighThresholdPercent: 101\n", "c.yaml: imageGCHighThresholdPercent: must be at most"),
        ("imageGCLowThresholdPercent: 85\n", "c.yaml: imageGCLowThresholdPercent: must be below imageGCHigh"),
        ("evictionHard: [a]\n", "c.yaml: evictionHard: must be a mapping of names to values, but it was ['a']"),
        ("evictionHard: {nodefs.inodesfree: 1%}\n", "c.yaml: evictionHard: unknown signal 'nodefs.inodesfree'"),
        ("evictionHard: {nodefs.available: 1}\n", "c.yaml: evictionHard: nodefs.available: needs a unit, as in"),
        ("evictionHard: {nodefs.available: x}\n", "c.yaml: evictionHard: nodefs.available: 'x' is neither a"),
        ("evictionHard: {nodefs.available: '0'}\n", "c.yaml: evictionHard: nodefs.available: must be above 0 (0%"),
        ("evictionHard: {nodefs.available: 101%}\n", "evictionHard: nodefs.available: must be between 0% and 100%"),
        ("evictionMinimumReclaim: {x: 1}\n", "c.yaml: evictionMinimumReclaim.x: must be a text, in quotes"),
        ("evictionMinimumReclaim: {x: '1'}\n", "c.yaml: evictionMinimumReclaim: unknown signal 'x'; allowed"),
        ("pollFloor: 1s\npollFloor: 2s\n", "c.yaml: not readable as YAML in line 4: the key 'pollFloor' occurs"),
        ("margin: &m 5%\npollFloor: *m\n", "c.yaml: not readable as YAML in line 4: aliases are not allowed"),
        ("---\nmargin: 5%\n", "c.yaml: holds more than one document; one is allowed"),
    ],
)  # fmt: skip
def test_a_file_is_refused_in_one_sentence(tmp_path: Path, text: str, problem: str) -> None:
    """The sentence names the file, the field and what is allowed."""
    sentence = refusal(written(tmp_path, text))
    assert problem in sentence
    assert sentence.startswith(str(tmp_path))
    assert "\n" not in sentence


@pytest.mark.regression
def test_an_unknown_field_is_refused_with_a_null_too(tmp_path: Path) -> None:
    """A null takes a value away, and there is none of this name."""
    assert "c.yaml: unknown field 'keepImage'; did you mean keepImages or " in refusal(
        written(tmp_path, "keepImage: null\n")
    )


@pytest.mark.parametrize("field", GONE_FIELDS)
@pytest.mark.parametrize("value", ["200Gi", '"0"', "null"])
def test_a_field_that_is_gone_is_refused_with_what_to_use_instead(
    tmp_path: Path, field: str, value: str
) -> None:
    """Whatever its value: who wrote it relies on what is no longer done."""
    refused = refusal(written(tmp_path, f"{field}: {value}\n"))
    assert refused.endswith(f"c.yaml: the field '{field}' is gone; {GONE_FIELDS[field]}")


@pytest.mark.parametrize("field", GONE_FIELDS)
def test_a_field_that_is_gone_is_none_of_the_fields(field: str) -> None:
    """Or it would never be refused."""
    assert field not in FIELDS


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        ("", "apiVersion is missing; it must be 'reclaimd.io/v1alpha1'"),
        ("apiVersion: v1\n", "apiVersion must be 'reclaimd.io/v1alpha1', but it was 'v1'"),
        (
            f"apiVersion: {API_VERSION}\nkind: Pod\n",
            "kind must be 'ReclaimdConfiguration', but it was 'Pod'",
        ),
    ],
)
def test_a_file_says_what_it_is(tmp_path: Path, head: str, problem: str) -> None:
    """A file of another kind is refused."""
    assert refusal(written(tmp_path, "margin: 5%\n", head)).endswith(f"c.yaml: {problem}")


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (
            {"margin": "x"},
            "flags: margin: 'x' is neither a Kubernetes quantity such as",
        ),
        (
            {"evictionHard": {"nodefs.available": "0"}},
            "flags: evictionHard: nodefs.available: must be above 0",
        ),
        (
            {"evictionHard": {"memory": "1"}},
            "flags: evictionHard: unknown signal 'memory'; allowed",
        ),
        (
            {"evictionHard": {"memory.available": "0"}},
            "flags: evictionHard: memory.available: must be above 0",
        ),
    ],
)
def test_a_flag_is_refused_as_a_flag(tmp_path: Path, flags: dict[str, Any], problem: str) -> None:
    """The sentence does not blame the file for it."""
    assert refusal(written(tmp_path, "margin: 5%\n"), flags).startswith(problem)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """A configuration that was named must be there."""
    assert refusal(str(tmp_path / "none")).endswith(
        "none: cannot be read: No such file or directory"
    )


@pytest.mark.parametrize(
    ("text", "as_threshold", "as_minimum_reclaim"),
    [
        ("1Gi", True, True),
        ("100m", True, True),
        ("0", False, True),
        ("-1", False, False),
        ("0%", True, False),
        ("0.0%", True, False),
        ("200%", False, True),
        ("-1%", False, False),
    ],
)
def test_a_minimum_reclaim_may_be_0_and_above_100_percent(
    text: str, as_threshold: bool, as_minimum_reclaim: bool
) -> None:
    """A threshold may be neither; nothing may be negative."""
    for read, allowed in ((read_value, as_threshold), (read_minimum_reclaim, as_minimum_reclaim)):
        with contextlib.nullcontext() if allowed else pytest.raises(ValueError, match=r"^must "):
            assert read(text) == value(text)


def test_a_minimum_reclaim_belongs_to_its_signal() -> None:
    """It replaces the default of its signal only."""
    found = load(
        None, {}, {"evictionMinimumReclaim": {"nodefs.available": "1Gi", "nodefs.inodesFree": "0"}}
    )
    reclaims = {one.signal: one.min_reclaim for one in found.thresholds}
    assert reclaims[Signal.NODEFS_AVAILABLE] == value("1Gi")
    assert reclaims[Signal.NODEFS_INODES_FREE] == value("0")
    assert reclaims[Signal.IMAGEFS_AVAILABLE] == value("2%")
    assert value("1Gi").amount(0) == GIB


@pytest.mark.parametrize(
    ("text", "operator", "pairs"),
    [
        ("", "<", {}),
        ("nodefs.available<10%", "<", {"nodefs.available": "10%"}),
        ("a<1,b<2", "<", {"a": "1", "b": "2"}),
        ("a<1,a<2", "<", {"a": "2"}),
        ("a=1,,b=2,", "=", {"a": "1", "b": "2"}),
        ("a<1<2", "<", {"a": "1<2"}),
    ],
)
def test_the_flag_form_of_pairs(text: str, operator: str, pairs: dict[str, str]) -> None:
    """The kubelet's form: commas between, the later of two equal signals wins."""
    assert parse_pairs("eviction-hard", text, operator) == pairs


@pytest.mark.parametrize("text", ["a", "a=1", "<1", "a<", "a<1,b", "<"])
def test_a_pair_without_its_parts_is_refused(text: str) -> None:
    """The sentence shows the form."""
    with pytest.raises(
        ConfigurationError,
        match=r"^--eviction-hard: '.*' is not of the form signal<value, for example",
    ):
        parse_pairs("eviction-hard", text, "<")


fields = st.sampled_from(
    [
        "margin",
        "evictionHard",
        "evictionMinimumReclaim",
        "pollFloor",
        "extent",
        "kind",
        "parallelRemovals",
    ]
)
texts = (
    st.sampled_from(
        ["5%", "1Gi", "x", "{}", "[]", "12", "null", "{nodefs.available: 5%}", "1e-9999%"]
    )
    | st.text()
)


@given(st.lists(st.tuples(fields, texts), max_size=4) | st.text(max_size=60))
def test_any_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: list[tuple[str, str]] | str
) -> None:
    """Nothing but ConfigurationError comes out of a file, and no part of a refused one is used."""
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    body = (
        content
        if isinstance(content, str)
        else "".join(f"{field}: {text}\n" for field, text in content)
    )
    path.write_bytes((HEAD + body).encode("utf-8", "surrogatepass"))
    with contextlib.suppress(ConfigurationError):
        assert isinstance(load(str(path), {}, {}), Configuration)


@pytest.mark.parametrize("name", ["Node-1", "node_1", "-node", "node/1", "a" * 254, "node-1\n"])
def test_a_name_that_no_node_has_is_refused(name: str) -> None:
    """It becomes a part of a URL, and of the name of an object."""
    assert refusal(None, {"nodeName": name}).startswith(
        "flags: nodeName: must be the name of a Node or empty"
    )


def test_the_node_is_named_by_the_configuration_or_the_environment() -> None:
    """A field wins over $NODE_NAME; without either the name is left to the host."""
    assert load(None, {"NODE_NAME": "node-1"}, {}).node_name == "node-1"
    assert (
        load(None, {"NODE_NAME": "node-1"}, {"nodeName": "node-2.example"}).node_name
        == "node-2.example"
    )
    assert load(None, {}, {}).node_name == ""


def test_a_kubeconfig_has_an_absolute_path() -> None:
    """A relative path would depend on the daemon's working directory."""
    assert "kubeconfig: must be an absolute path or empty" in refusal(
        None, {"kubeconfig": "kubelet.conf"}
    )


def test_events_are_only_logged_unless_switched_on() -> None:
    """Off by default: no request is sent to an API server."""
    assert load(None, {}, {}).kubernetes_events is False


@pytest.mark.parametrize(
    ("field", "signal", "value"),
    [
        ("margin", "", 5),
        ("margin", "", "5"),
        ("margin", "", "0.05"),
        ("margin", "", "5m"),
        ("margin", "", 1048575),
        ("margin", "", "104857600"),
        ("evictionHard", "nodefs.available", 5368709120),
        ("evictionHard", "nodefs.available", "0.1"),
        ("evictionHard", "imagefs.available", 100),
        ("evictionSoft", "nodefs.available", "+7."),
        ("evictionMinimumReclaim", "nodefs.available", ".2"),
        ("evictionHard", "cache.available", 3),
    ],
)
def test_a_number_without_a_unit_is_no_amount_of_a_disk(
    tmp_path: Path, field: str, signal: str, value: int | str
) -> None:
    """Not in a file, and not by a flag."""
    document = {field: {signal: value} if signal else value}
    path = written(
        tmp_path, "".join(f"{name}: {json.dumps(each)}\n" for name, each in document.items())
    )
    place = f"{field}: {signal}: " if signal else f"{field}: "
    assert refusal(path) == f"{path}: {place}needs a unit, as in 10Gi or 10%, but it was {value!r}"
    assert (
        refusal(None, document)
        == f"flags: {place}needs a unit, as in 10Gi or 10%, but it was {value!r}"
    )


def test_the_mark_of_an_entry_of_a_row_needs_a_unit_too(tmp_path: Path) -> None:
    """`below` is an amount of the signal's filesystem."""
    path = written(
        tmp_path, "reclaimTable: {nodefs.available: [{function: DeleteUnusedImages, below: 3}]}\n"
    )
    assert refusal(path).endswith(
        "c.yaml: reclaimTable: nodefs.available: below: needs a unit, as in 10Gi or 10%, but it"
        " was 3"
    )


@pytest.mark.parametrize(
    "text",
    [
        "margin: '0'\n",
        "margin: 10737418240e0\n",
        "margin: 5e9\n",
        "margin: 5k\n",
        "evictionMinimumReclaim: {nodefs.available: '0'}\n",
        (
            "evictionHard: {nodefs.inodesFree: '1000', memory.available: '104857600',"
            " pid.available: '1000'}\n"
        ),
        "evictionHard: {nodefs.available: 10Mi}\n",
    ],
)
def test_what_has_a_unit_or_counts_something_else_is_accepted(tmp_path: Path, text: str) -> None:
    """Zero in any unit, an exponent, inodes, and the signals that are left to the kubelet."""
    assert isinstance(load(written(tmp_path, text), {}, {}), Configuration)


def test_the_flags_need_units_too() -> None:
    """`--eviction-hard nodefs.available<10` on our command line."""
    pairs = parse_pairs("eviction-hard", "nodefs.available<10", "<")
    assert (
        refusal(None, {"evictionHard": pairs})
        == "flags: evictionHard: nodefs.available: needs a unit, as in 10Gi or 10%, but it was '10'"
    )

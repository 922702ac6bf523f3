"""`reclaimd config`: the effective values, where each comes from, and the ladder of marks.

Read-only.
"""

from argparse import Namespace
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from eviction.cli.local_files import LocalFiles
from eviction.cli.output import answer, columns
from eviction.cli.parser import OUTPUT
from eviction.cli.progress import print_message
from eviction.configuration.effective import DEFAULT, Configuration, eviction_config, load
from eviction.configuration.file import ConfigurationFile
from eviction.configuration.kubelet import KUBELETS_DEFAULTS
from eviction.exit_codes import EXIT_OK
from eviction.records.json_shapes import Versioned
from eviction.types import Fields, Json
from eviction.wording.configuration_warnings import configuration_warnings, warnings_on_node
from eviction.wording.explain import LadderMark, amount, ladder, not_readable, table
from reclaim.kubelet.versions import KubeletVersion
from signals.types import SignalObservations

HEADS = ["FIELD", "VALUE", "DEFAULT", "ORIGIN"]


class EffectiveConfiguration(Versioned):
    """The configuration in force: the answer of `reclaimd config`."""

    values: Fields
    """Every field as it would be written in the file; the maps of thresholds
    include inherited entries.
    """
    origins: Mapping[str, str]
    """Field, or field.key of a map -> the source of its value."""
    defaults: Fields
    """Every field as it is if no source has it."""
    left_to_kubelet: Mapping[str, str]
    """Signal -> its thresholds, which reclaimd leaves to the kubelet."""
    kubelet_version: KubeletVersion
    """As which version the kubelet is taken."""
    ladder: tuple[LadderMark, ...]
    """The marks of each signal in the order in which a filling disk reaches them."""


OPTIONS = {**OUTPUT, "--diff": "only what differs from the defaults"}


def run(arguments: Namespace) -> int:
    """Exit 0; 2 usage, or the configuration is invalid.

    Example: reclaimd config --diff
    """
    node = LocalFiles(arguments, asks_version=True)
    configuration = node.configuration
    defaults = load(None, {}, {})
    node.mention_other_configuration()
    with node.view() as view:
        observations = view.summary.observe()
    thresholds = eviction_config(configuration)
    kubelet = configuration.kubelet
    image_gc = None
    if kubelet is not None and kubelet.image_gc_high_threshold_percent < 100:
        image_gc = kubelet.image_gc_high_threshold_percent, kubelet.image_gc_low_threshold_percent
    marks = ladder(
        thresholds.in_layout(observations.layout),
        thresholds.kubelets_in_layout(observations.layout),
        image_gc,
        observations=observations.signals,
    )
    left = configuration.left_to_kubelet
    names: Collection[str] = configuration.effective
    if arguments.diff:  # what is written otherwise and means something else: 120s and 2m do not
        names = [
            name
            for attribute, field in ConfigurationFile.model_fields.items()
            if configuration.effective[name := str(field.alias)] != defaults.effective[name]
            and getattr(configuration, attribute) != getattr(defaults, attribute)
        ]
    record = EffectiveConfiguration(
        values={name: configuration.effective[name] for name in names},
        defaults={name: defaults.effective[name] for name in names},
        origins={
            field: origin
            for field, origin in configuration.origins.items()
            if field.partition(".")[0] in names
        },
        left_to_kubelet={
            signal: ", ".join(value for name, value in left if name == signal) for signal, _ in left
        },
        kubelet_version=configuration.kubelet_version,
        ladder=marks,
    )

    def lines() -> list[str]:
        rows = [HEADS, *_values(record, configuration, differing=arguments.diff)]
        if arguments.diff:
            return table(rows, columns()) if names else ["nothing differs from the defaults"]
        version = configuration.kubelet_version
        rows += [[signal, text, "-", "left to the kubelet"] for signal, text in left]
        rows.append(["kubelet version", version.version, "-", version.origin])
        return [*table(rows, columns()), "", *_ladder(marks, observations)]

    answer(arguments, record, lines)
    for sentence in (
        *configuration_warnings(configuration),
        *warnings_on_node(configuration, observations),
    ):
        print_message(f"warning: {sentence}")
    return EXIT_OK


def _values(
    record: EffectiveConfiguration, configuration: Configuration, *, differing: bool
) -> Iterator[list[str]]:
    """A row for each value, and for each default that nothing is in place of; only
    those that differ, if asked.
    """
    for name in record.values:
        values = _keyed(name, record.values[name])
        defaults = _keyed(name, record.defaults[name])
        for field in defaults | values or (name,):
            value = values.get(field)
            default = defaults.get(field)
            if value != default or not differing:
                yield [field, _shown(value), _shown(default), _origin(field, configuration)]


def _keyed(name: str, value: Any) -> Json:
    """A field, or the entries of a map as `field.key`, with their values."""
    return (
        {f"{name}.{key}": each for key, each in value.items()}
        if isinstance(value, Mapping)
        else {name: value}
    )


def _origin(field: str, configuration: Configuration) -> str:
    """Whose a value is: a default, the kubelet's, or yours; and where it stands."""
    origin = configuration.origins.get(field, "not set" if "." in field else DEFAULT)
    if origin in ("not set", DEFAULT, KUBELETS_DEFAULTS.name):
        return origin
    kubelets = configuration.kubelet is not None and origin == configuration.kubelet.name
    return f"{'kubelet' if kubelets else 'yours'}: {origin}"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) or "-"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_shown(each)}' for key, each in value.items())}}}"
    return "-" if value is None else str(value) or '""'  # of kubeletConfig they differ


def _ladder(marks: tuple[LadderMark, ...], observations: SignalObservations) -> list[str]:
    rows = [["SIGNAL", "NOW", "MARK", "WHOSE", "WHAT"]]
    for mark in marks:
        seen = observations.signals[mark.signal]
        if mark.whose == "kubelet":
            seen = seen.shown()
        rows.append(
            [
                mark.signal,
                amount(mark.signal, seen.available),
                amount(mark.signal, mark.mark),
                mark.whose,
                mark.what,
            ]
        )
    if len(rows) == 1:
        return ["no filesystem could be read: no ladder", *not_readable(observations)]
    return table(rows, columns())

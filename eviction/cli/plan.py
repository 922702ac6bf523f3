"""`reclaimd plan`: what would be removed now, why everything else is kept, and what uses the space.

Read-only.
"""

from argparse import Namespace
from collections.abc import Iterator

from eviction.cli.local_node import LocalNode, Pods
from eviction.cli.output import answer, columns
from eviction.cli.parser import OBJECTS
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK
from eviction.records.json_shapes import Seconds
from eviction.records.pass_json import PassFieldsJson, pass_json
from eviction.records.passes import Pass
from eviction.wording.explain import (
    attribution_lines,
    counts_table,
    lead_sentence,
    outcomes_table,
    signals_table,
)
from signals.quantity import counted

GONE = {
    "--leaks": (
        "the function CollectContainerdGarbage collects what belongs to nobody in containerd;"
        " crio check --repair does in CRI-O"
    ),
    "--pods": "the kubelet ranks pods; kubectl describe node shows their requests",
}
MOST_KEPT_LISTED = 20
IN_GROUPS = "; by reason (--all lists them):"


class PlanJson(PassFieldsJson):
    """What would be removed now, and why everything else is kept: the answer of `reclaimd plan`, a
    pass without removals."""

    pods: Pods
    """The source of the pods' states."""
    enough: bool | None
    """With --signal: whether the planned removals clear the signal; null without
    it, or if that is not known.
    """
    lead_seconds: Seconds
    """A pass begins before its mark if the kubelet's mark would be reached
    within this time; 0: never.
    """


OPTIONS = {
    **OBJECTS,
    "--signal SIGNAL": "only what clears it, and whether that is enough",
    "--until VALUE": "with --signal: the mark to reach, a quantity or a percentage",
    "--all": (
        f"on a terminal: list each kept object, even if there are more than {MOST_KEPT_LISTED}"
    ),
}


def run(arguments: Namespace) -> int:
    """Exit 0; 1 the planned removals are not enough for --signal; 2 usage or configuration; 3
    no runtime; 4 no reading.

    Example: reclaimd plan --signal nodefs.available --until 20Gi
    """
    node = LocalNode(arguments)
    planned = node.plan(arguments.signal, arguments.until, surveyed=True)
    record = planned.record
    width = columns()

    def lines() -> Iterator[str]:
        yield from signals_table(record.observations, planned.thresholds, width)
        yield ""
        yield from plan_lines(
            record, width, everything=arguments.all, lead_seconds=planned.lead_seconds
        )
        yield ""
        pods = planned.pods
        if node.configuration.has_runtime and pods.told_by == "kubelet":
            yield "pods: as the kubelet itself knows them"
        elif node.configuration.has_runtime:
            why = f" ({pods.problem})" if pods.problem else ""
            yield f"pods: from the kubelet's directories{why}"
        if pods.directories.sentence is not None:
            yield f"pods: {pods.directories.sentence}"
        yield record.reason

    answer(arguments, PlanJson.of(pass_json(record), planned, kind="Plan"), lines)
    return EXIT_NOT_RELIEVED if planned.enough is False else EXIT_OK


def plan_lines(
    record: Pass, width: int | None = None, *, everything: bool = False, lead_seconds: float = 0.0
) -> list[str]:
    """The planned removals in order, the kept objects, and where the bytes are.

    `lead_seconds`: how long before the kubelet's mark a pass begins; 0: not before ours.
    On a terminal (`width` is known), many kept objects are only counted, by reason,
    unless `everything` is true.
    """
    in_groups = width is not None and not everything and len(record.kept) > MOST_KEPT_LISTED
    return [
        *outcomes_table(record.removals + (() if in_groups else record.kept), width),
        "",
        f"kept: {counted(len(record.kept), 'object')}{IN_GROUPS if in_groups else ''}",
        *(counts_table(record.kept, width) if in_groups else ()),
        *filter(None, [lead_sentence(lead_seconds)]),
        "removals go in this order, and a pass stops as soon as the thresholds are clear",
        *attribution_lines(record.attributions, width),
    ]

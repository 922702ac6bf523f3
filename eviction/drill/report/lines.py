"""What a drill measured, as lines for a terminal."""

from __future__ import annotations

from eviction.drill.judgement.judge import DrillResult
from eviction.drill.measurement.measurements import PLURALS, Measurements
from eviction.drill.report.document import signals_of
from eviction.reporting.tables import amount, table
from signals.quantity import format_duration

NAMED = 5  # objects of each kind named on a terminal; the report names all


def verdict_lines(result: DrillResult, width: int | None = None) -> list[str]:
    """The expectations with what was measured, the times, and the verdict."""
    rows = [["HELD", "WHAT", "EXPECTED", "MEASURED"]]
    words = {True: "ok", False: "NOT", None: "-"}
    rows += [[words[check.held], check.name, check.expected, check.seen] for check in result.checks]
    lines, measured = table(rows, width) if result.checks else [], result.measurements
    if measured.to_first_removal is not None and measured.to_relief is not None:
        lines += [
            "",
            f"from crossing the mark to the first removal: {format_duration(measured.to_first_removal)}",
            f"from crossing the mark to relief:            {format_duration(measured.to_relief)}",
            f"lowest point:                                {lowest(measured)}",
        ]
    verdict = "everything held" if result.held else "NOT everything held"
    open_ = sum(check.held is None for check in result.checks)
    if open_:
        verdict += f" of what could be judged; {open_} of {len(result.checks)} could not be judged"
    return [*lines, "", f"{result.name}: {verdict}{' (simulated filesystem)' * result.simulated}"]


def observation_lines(measured: Measurements, width: int | None = None) -> list[str]:
    """What was measured on a real node, for a run without expectations."""
    rows = [["WHAT", "MEASURED"]]
    rows += [["crossed a mark", "never" if measured.crossed is None else f"after {format_duration(measured.crossed)}"]]
    for what, took in (
        ("from crossing to the first removal", measured.to_first_removal),
        ("from crossing to the first relief", measured.to_first_relief),
        ("from crossing to relief", measured.to_relief),
    ):
        if measured.crossed is not None:
            rows.append([what, "not measured" if took is None else format_duration(took)])
    for signal in signals_of(measured):
        found = measured.lowest(signal)
        rows.append([f"lowest {signal}", "not measured" if found is None else amount(signal, found)])
    for kind, plural in PLURALS.items():
        removed = [removal.name for removal in measured.removals if removal.kind == kind]
        rows.append(
            [f"{plural} removed", ", ".join([str(len(removed)), *removed[:NAMED], *["…"] * (len(removed) > NAMED)])]
        )
    pods = [pod.name for pod in measured.ended_pods]
    rows.append(["pods that ended", ", ".join([str(len(pods)), *pods[:NAMED], *["…"] * (len(pods) > NAMED)])])
    rows += [["meanwhile", f"{fault.what}, after {format_duration(fault.seconds)}"] for fault in measured.faults]
    return table(rows, width)


def lowest(measured: Measurements) -> str:
    """The lowest amount of the signal that a pass first acted on, as text; `-` if there is none."""
    acted_on = (one.record.decision.acted_on for one in measured.passes)
    signal = next((threshold.signal for threshold in acted_on if threshold is not None), None)
    value = None if signal is None else measured.lowest(signal)
    return "-" if signal is None or value is None else amount(signal, value)

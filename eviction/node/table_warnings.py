"""What is wrong with the rows of a configuration on this node, as sentences: for the start and `reclaimd config`."""

from __future__ import annotations

from eviction.configuration.decision import eviction_config
from eviction.configuration.effective import Configuration
from eviction.decision.reclaim_table import FREES
from eviction.reporting.table_problems import row_problems, rows_of
from signals.types import SignalObservations


def table_warnings(configuration: Configuration, observations: SignalObservations) -> list[str]:
    """One sentence for each row, or function of a row, that cannot relieve its signal. Only of configured rows."""
    config = eviction_config(configuration)
    rows = {signal: config.row(signal, observations) for signal in configuration.rows}
    frees = {**FREES, **{function.name: function.frees for function in configuration.functions}}
    marked = {threshold.signal for threshold in config.in_layout(observations.layout)}
    problems = row_problems(rows_of(rows, configuration.rows, frees), marked, observations)
    return [f"{problem.sentence}: {problem.evidence}; {problem.remedy}" for problem in problems]

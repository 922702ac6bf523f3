"""`reclaimd doctor`: what is wrong or risky on this node, and what to do about it. Read-only."""

from __future__ import annotations

import argparse
from collections import Counter
from contextlib import closing

from eviction.cli.options import add_output, answer, configuration_of, mention_other_configuration
from eviction.cli.progress import Progress
from eviction.doctor.checks import examine
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK
from eviction.node.node import Node
from eviction.reporting.configuration_warnings import Finding
from eviction.reporting.log import escaped
from signals.quantity import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0 without findings, not counting notes; 1 with findings; 2 usage or configuration.

    Example: reclaimd doctor -o json
    """
    configuration = configuration_of(arguments, asks_version=True)
    mention_other_configuration(arguments, configuration.control_socket)
    doing = "asking the runtime, the kernel and the daemon"
    with closing(Node(configuration, read_deadline_seconds=2.0)) as node, Progress(doing):
        report = examine(node)
    version = configuration.kubelet_version
    answer(arguments, report, lambda: [*lines(report.findings), f"kubelet: {version.version}, {version.origin}"])
    return EXIT_OK if report.healthy else EXIT_NOT_RELIEVED


def lines(findings: tuple[Finding, ...]) -> list[str]:
    """The findings for people, the worst first."""
    texts = []
    for finding in findings:
        texts += [
            f"{finding.level.upper()}  {escaped(finding.sentence)}  [{finding.check}]",
            f"  seen: {escaped(finding.evidence)}",
            f"  do:   {escaped(finding.remedy)}",
        ]
    counts = Counter(str(finding.level) for finding in findings)
    total = ", ".join(counted(counts[level], level) for level in sorted(counts))
    return [*texts, *([""] if texts else []), total or "nothing wrong or risky was found"]

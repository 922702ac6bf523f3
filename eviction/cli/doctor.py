"""`reclaimd doctor`: what is wrong or risky on this node, each with what to do. Read-only."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from eviction.cli import EXIT_NOT_RELIEVED, EXIT_OK
from eviction.cli.daemon_configuration import mention_other_configuration
from eviction.cli.options import add_configuration, add_output, answer_json, answer_lines, configuration_of
from eviction.cli.progress import Progress
from eviction.doctor.examine import examine, healthy
from eviction.doctor.facts import gather
from eviction.doctor.findings import Finding
from eviction.node.node import Node
from eviction.reporting.filesystem_facts import facts_json
from eviction.reporting.log import escaped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_configuration(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0 without findings (notes do not count), 1 with findings."""
    configuration = configuration_of(arguments)
    mention_other_configuration(arguments, configuration.control_socket)
    node = Node(configuration, read_deadline_seconds=2.0)
    try:
        with Progress("asking the runtime, the kernel and the daemon"):
            facts = gather(node)
            findings = examine(facts)
    finally:
        node.close()
    if arguments.output == "json":
        answer_json(
            {
                "healthy": healthy(findings),
                "findings": [asdict(finding) for finding in findings],
                "filesystems": [facts_json(filesystem) for filesystem in facts.filesystems],
            }
        )
    else:
        answer_lines(lines(findings))
    return EXIT_OK if healthy(findings) else EXIT_NOT_RELIEVED


def lines(findings: tuple[Finding, ...]) -> list[str]:
    """The findings for people, the worst first."""
    texts = []
    for finding in findings:
        texts += [
            f"{finding.level.upper()}  {escaped(finding.sentence)}  [{finding.check}]",
            f"  seen: {escaped(finding.evidence)}",
            f"  do:   {escaped(finding.remedy)}",
        ]
    counts = {level: sum(1 for finding in findings if finding.level is level) for level in {f.level for f in findings}}
    total = ", ".join(f"{counts[level]} {level}s" if counts[level] > 1 else f"1 {level}" for level in sorted(counts))
    return [*texts, *([""] if texts else []), total or "nothing is wrong or risky as far as can be seen"]

"""`reclaimd doctor`: what is wrong or risky on this node, each with what to do. Read-only."""

from __future__ import annotations

import argparse
from typing import Annotated, Literal, TypedDict

from eviction.cli.daemon_configuration import mention_other_configuration
from eviction.cli.options import add_configuration, add_output, answer_json, answer_lines, configuration_of
from eviction.cli.progress import Progress
from eviction.doctor.examine import examine, healthy
from eviction.doctor.facts import gather
from eviction.doctor.findings import Finding, Severity
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK
from eviction.node.node import Node
from eviction.reporting.filesystem_facts import FilesystemFactsJson, facts_json
from eviction.reporting.json_shapes import one_of
from eviction.reporting.log import escaped
from eviction.types import API_VERSION


class FindingJson(TypedDict):
    """What is wrong or risky."""

    check: str
    """The name of the check; those of a release are in `eviction/README.md`."""
    level: Annotated[str, one_of(Severity)]
    """A problem prevents reclaim, a risk may prevent it, a note needs no action."""
    sentence: str
    """What is wrong."""
    evidence: str
    """What shows it."""
    remedy: str
    """What to do."""


class DoctorJson(TypedDict):
    """What is wrong or risky on this node: the answer of `reclaimd doctor`."""

    apiVersion: Literal["reclaimd.io/v1alpha1"]
    """The version of this format. Fields may be added to it."""
    kind: Literal["Doctor"]
    """What the document is."""
    healthy: bool
    """Whether there is no finding but notes."""
    findings: list[FindingJson]
    """The worst first."""
    filesystems: list[FilesystemFactsJson]
    """What the filesystems of the signals are."""


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
        report: DoctorJson = {
            "apiVersion": API_VERSION,
            "kind": "Doctor",
            "healthy": healthy(findings),
            "findings": [finding_json(finding) for finding in findings],
            "filesystems": [facts_json(filesystem) for filesystem in facts.filesystems],
        }
        answer_json(report)
    else:
        answer_lines(lines(findings))
    return EXIT_OK if healthy(findings) else EXIT_NOT_RELIEVED


def finding_json(finding: Finding) -> FindingJson:
    """One finding, for programs."""
    return {
        "check": finding.check,
        "level": str(finding.level),
        "sentence": finding.sentence,
        "evidence": finding.evidence,
        "remedy": finding.remedy,
    }


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

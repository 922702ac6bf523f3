"""`reclaimd doctor`: what is wrong or risky on this node, and what to do about it. Read-only."""

from argparse import Namespace
from collections import Counter
from dataclasses import replace

from eviction.cli.local_node import LocalNode
from eviction.cli.output import answer
from eviction.cli.parser import OUTPUT
from eviction.doctor.checks import examine
from eviction.doctor.facts import facts_of
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK
from eviction.printable import escaped
from eviction.wording.configuration_warnings import Finding, risk
from signals.quantity import counted

OPTIONS = OUTPUT


def run(arguments: Namespace) -> int:
    """Exit 0 without findings, not counting notes; 1 with findings, of which a configuration that
    cannot be used is the first; 2 usage.

    Example: reclaimd doctor -o json
    """
    node = LocalNode(arguments, "", asks_version=True)
    node.mention_other_configuration()
    report = examine(node.facts(facts_of))
    if node.problem:
        broken = risk(
            "configuration",
            "the configuration cannot be used: a daemon that runs goes on with its old one, and"
            " does not start again",
            node.problem,
            remedy="correct it until reclaimd config accepts it; what follows is by the defaults",
        )
        report = replace(report, healthy=False, findings=(broken, *report.findings))
    version = node.configuration.kubelet_version
    answer(
        arguments,
        report,
        lambda: [*lines(report.findings), f"kubelet: {version.version}, {version.origin}"],
    )
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
    if not texts:
        return ["nothing wrong or risky was found"]
    return [*texts, "", f"{total}; more about each, by its name: reclaimd help {findings[0].check}"]

"""`reclaimd doctor`: what is wrong or risky on this node, and what to do about it. Read-only."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from contextlib import closing
from dataclasses import replace

from eviction.cli.options import (
    ASKED,
    add_output,
    answer,
    configuration_of,
    fields_of_flags,
    mention_other_configuration,
    places_of,
)
from eviction.cli.progress import Progress
from eviction.configuration.effective import Configuration, ConfigurationError, load
from eviction.doctor.checks import examine
from eviction.doctor.facts import facts_of
from eviction.engine.node import Node
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK
from eviction.wording.configuration_warnings import Finding, risk
from eviction.wording.log import escaped
from signals.quantity import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0 without findings, not counting notes; 1 with findings, of which a configuration that
    cannot be used is the first; 2 usage.

    Example: reclaimd doctor -o json
    """
    broken = None
    try:
        configuration = configuration_of(arguments, asks_version=True)
        mention_other_configuration(arguments, configuration.control_socket)
    except ConfigurationError as error:
        configuration, broken = without_files(arguments), _broken(error)
    doing = "asking the runtime, the kernel and the daemon"
    with closing(Node(configuration, read_deadline_seconds=2.0)) as node, Progress(doing):
        report = examine(facts_of(node))
    if broken is not None:
        report = replace(report, healthy=False, findings=(broken, *report.findings))
    version = configuration.kubelet_version
    answer(
        arguments,
        report,
        lambda: [*lines(report.findings), f"kubelet: {version.version}, {version.origin}"],
    )
    return EXIT_OK if report.healthy else EXIT_NOT_RELIEVED


def without_files(arguments: argparse.Namespace) -> Configuration:
    """What the environment, the flags and the kubelet say, to look by if the own files cannot be
    used; without the kubelet's, if that is why. The daemon is asked where they seem to say.
    Raises ConfigurationError."""
    socket = places_of(arguments, ASKED).control_socket
    flags = {**fields_of_flags(arguments), "controlSocket": socket}
    try:
        return load(None, os.environ, flags, root="/")
    except ConfigurationError:
        return load(None, os.environ, {**flags, "kubeletConfig": ""}, root="/")


def _broken(error: ConfigurationError) -> Finding:
    what = (
        "the configuration cannot be used: a daemon that runs goes on with its old one, and does"
        " not start again"
    )
    remedy = "correct it until reclaimd config accepts it; what follows is by the defaults"
    return risk("configuration", what, str(error), remedy=remedy)


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

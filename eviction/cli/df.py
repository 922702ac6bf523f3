"""`reclaimd df`: what uses the bytes of each filesystem, and what may be freed. Read-only."""

from argparse import Namespace
from itertools import islice

from eviction.cli.local_node import LocalNode
from eviction.cli.output import answer, columns
from eviction.cli.parser import OUTPUT
from eviction.exit_codes import EXIT_OK
from eviction.records.attribution import Attribution
from eviction.records.json_shapes import Versioned
from eviction.wording.explain import attribution_lines


class DiskUsageJson(Versioned):
    """What uses the bytes of each filesystem: the answer of `reclaimd df`."""

    attribution: tuple[Attribution, ...]
    """Of each filesystem once."""


OPTIONS = OUTPUT


def run(arguments: Namespace) -> int:
    """Exit 0; 2 usage or configuration; 3 no runtime; 4 no reading.

    Example: reclaimd df -o json
    """
    found = LocalNode(arguments).plan(surveyed=True).record.attributions
    answer(
        arguments,
        DiskUsageJson(attribution=found),
        lambda: islice(attribution_lines(found, columns()), 1, None),
    )
    return EXIT_OK

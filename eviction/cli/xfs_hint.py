"""`reclaimd xfs-hint`: has XFS allocate in units of a fixed size below the node's directories."""

from argparse import Namespace

from eviction.cli.local_node import LocalNode
from eviction.cli.output import answer_lines
from eviction.cli.progress import mention
from eviction.configuration.text_forms import read_extent_size
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK


def read_size(text: str) -> int:
    """Bytes. 64k and 1m are powers of 1024 too, as mkfs.xfs and xfs_io have it.

    Raises ValueError.
    """
    if text.endswith(("k", "m", "g")):
        text = f"{text[:-1]}{text[-1].upper()}i"
    return read_extent_size(text)


OPTIONS = {
    "directories* DIR": (
        "for what is made below it from now on; default: the kubelet's pods, their logs, and the"
        " runtime's snapshots or layers"
    ),
    "--size SIZE": ("a multiple of the block size, 4k to 1g (1m)", read_size, "1m"),
    "--remove": "take the hint away",
    "--dry-run": "change nothing, and say what would change",
}


def run(arguments: Namespace) -> int:
    """Exit 0; 1 a directory is refused, or the runtime's is not known; 2 usage or configuration.

    Example: reclaimd xfs-hint --dry-run
    """
    size_bytes = 0 if arguments.remove else arguments.size
    problems = []
    for well, sentence in LocalNode(arguments).set_xfs_hints(
        arguments.directories, size_bytes, dry_run=arguments.dry_run
    ):
        if well:
            answer_lines([sentence])
        else:
            problems.append(sentence)
    for problem in problems:
        mention(problem)
    return EXIT_NOT_RELIEVED if problems else EXIT_OK

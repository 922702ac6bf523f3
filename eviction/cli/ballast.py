"""`reclaimd ballast`: creates, shows or removes the file that `ReleaseBallast`
removes when the disk is full.
"""

from argparse import Namespace

from eviction.cli.local_node import CREATE, REMOVE, STATUS, LocalNode
from eviction.cli.output import answer, exit_with
from eviction.cli.parser import OUTPUT
from eviction.configuration.file import ballast_path, ballast_size
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK, EXIT_USAGE
from signals.quantity import format_bytes

OPTIONS = {
    f"action {CREATE}|{STATUS}|{REMOVE}": (
        "create: needs twice its size; status: whether it exists and is fully allocated; remove:"
        " unlink it"
    ),
    "--file FILE": ("its absolute path; default: as configured", ballast_path),
    "--size QUANTITY": ("its size, like 1Gi; default: as configured", ballast_size),
    **OUTPUT,
}


def run(arguments: Namespace) -> int:
    """Exit 0; 1 refused or failed, and for `status` also if it does not exist or is not whole; 2
    usage or configuration, or file or size are not allowed.

    Example: reclaimd ballast create --file /var/lib/kubelet/ballast --size 1Gi
    """
    action = arguments.action
    file = arguments.file
    size_bytes = arguments.size
    if (file is None) != (size_bytes is None):
        exit_with(
            EXIT_USAGE, "--file and --size go together; without them the configuration's are used"
        )
    ballast, created = LocalNode(arguments).ballast(action, file, size_bytes)
    if isinstance(ballast.removed_bytes, int):
        state = f"removed, {format_bytes(ballast.removed_bytes)} were allocated"
    elif not ballast.there:
        state = "does not exist"
    else:
        state = (
            f"{ballast.size_bytes} bytes ({format_bytes(ballast.size_bytes)}),"
            f" {ballast.allocated_bytes} allocated"
        )
        if ballast.problem:
            state += f"; {ballast.problem}"
    if not created:
        state += "; it already existed"
    answer(arguments, ballast, lambda: [f"{ballast.file}: {state}"])
    return EXIT_OK if ballast.whole or action == REMOVE else EXIT_NOT_RELIEVED

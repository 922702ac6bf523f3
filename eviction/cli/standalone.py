"""The first steps of a command that does the work itself: the records of images, the runtime's directories, and an
observation."""

from __future__ import annotations

from eviction.cli.options import mention
from eviction.cli.progress import Progress
from eviction.node.node import Node
from eviction.types import Decision
from signals.types import SignalObservations


def observe(node: Node) -> tuple[str | None, SignalObservations, Decision]:
    """Why the runtime cannot be reached, or None; what was observed; and what follows from it.

    Progress, and why records could not be restored, go to stderr.
    """
    not_restored = node.restore_image_records()
    if not_restored:
        mention(not_restored)
    if node.configuration.xfs_helper_socket and not node.executor.dry_run:
        node.xfs_helper.connect()  # systemd starts it meanwhile
    with Progress("asking the runtime where the images are") as progress:
        problem = node.locate()
        progress.step("looking at the filesystems")
        observations, decision = node.responder.synchronize()
    return problem, observations, decision

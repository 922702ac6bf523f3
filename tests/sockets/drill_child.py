"""Runs a drill with fewer rights, in a process of its own.

    python -m tests.sockets.drill_child without-capabilities|locked-down ARGUMENTS...

Without capabilities a mount needs a user namespace; locked down, not even that is
allowed. The rights are given up here and not before the interpreter starts, as an exec
would give root its own back.
"""

from __future__ import annotations

import os
import sys

from eviction.cli.main import main
from eviction.drill.private_mounts import enter_private_mounts
from tests.sockets.namespace_child import drop_all_capabilities

CAP_SETFCAP = 1 << 31  # without it no process may map root into a user namespace (Linux 5.12)


def lock_down() -> None:
    """Enter a user namespace that may have no children, and give up all rights in it."""
    if enter_private_mounts() == "in a user namespace":
        # of this namespace
        with open("/proc/sys/user/max_user_namespaces", "w", encoding="utf-8") as limit:
            limit.write("0")
    drop_all_capabilities()


if __name__ == "__main__":
    if os.geteuid() == 0:
        drop_all_capabilities(but=CAP_SETFCAP)
    if sys.argv[1] == "locked-down":
        lock_down()
    sys.exit(main(["drill", *sys.argv[2:]]))

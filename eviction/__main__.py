"""The start of the program: `reclaimd`, or `python -m eviction`."""

from __future__ import annotations

import sys


def main() -> int:
    """Runs the command line without writing bytecode; returns its exit code.

    On a full disk Python (before 3.12.8 and 3.13.2, python/cpython#126606) leaves truncated bytecode files, with which
    every later start fails. This program has to start on full disks; its bytecode is compiled at installation.
    """
    sys.dont_write_bytecode = True
    from eviction.cli import main as run  # imported after the switch, so that its bytecode is not written either

    return run()


if __name__ == "__main__":
    sys.exit(main())

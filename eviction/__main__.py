"""The start of the program: `reclaimd`, or `python -m eviction`."""

from __future__ import annotations

import sys


def main() -> int:
    """Runs the command line without ever writing bytecode; returns its exit code.

    On a disk that is full Python writes what fits of a module's bytecode and puts it in place all the same (before
    3.12.8 and 3.13.2, python/cpython#126606): every start after that fails, and that is where this program is needed.
    An installed package was compiled when it was installed.
    """
    sys.dont_write_bytecode = True
    from eviction.cli import main as run  # only now: what is imported from here on is not written down

    return run()


if __name__ == "__main__":
    sys.exit(main())

"""The start of the program: `reclaimd`, or `python -m eviction`."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Runs the command line without ever writing bytecode and without plugins of pydantic's; returns its exit code.

    On a disk that is full Python writes what fits of a module's bytecode and puts it in place all the same (before
    3.12.8 and 3.13.2, python/cpython#126606): every start after that fails, and that is where this program is needed.
    An installed package was compiled when it was installed.

    pydantic looks through all installed packages for plugins and has them see every validation: code of whoever happens
    to be installed beside us, run by root. It is switched off whatever the environment says of it. Programs that we
    start inherit that; they are our own fillers, which import nothing but the standard library.
    Source: https://docs.pydantic.dev/latest/concepts/plugins/
    """
    sys.dont_write_bytecode = True
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    from eviction.cli import main as run  # only now: what is imported from here on is not written down

    return run()


if __name__ == "__main__":
    sys.exit(main())

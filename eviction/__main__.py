"""The start of the program: `reclaimd`, or `python -m eviction`."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Runs the command line without writing bytecode and without pydantic's plugins; returns its exit code.

    On a full disk Python (before 3.12.8 and 3.13.2, python/cpython#126606) leaves truncated bytecode files, with which
    every later start fails. This program has to start on full disks; its bytecode is compiled at installation.

    pydantic searches all installed packages for plugins and passes every validation to them, which would run foreign
    code as root. It is switched off whatever the environment says. Programs that we start inherit the setting; they are
    our own fill programs, which import only the standard library.
    Source: https://docs.pydantic.dev/latest/concepts/plugins/
    """
    sys.dont_write_bytecode = True
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    from eviction.cli import main as run  # imported after the switches, so that they apply

    return run()


if __name__ == "__main__":
    sys.exit(main())

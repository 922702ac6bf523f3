"""The start of the program: `reclaimd`, or `python -m eviction`."""

from __future__ import annotations

import os
import sys

STANDARD_STREAMS = ("stdin", "stdout", "stderr")


def _open_standard_streams() -> None:
    for descriptor, name in enumerate(STANDARD_STREAMS):
        if getattr(sys, name) is None:
            try:
                os.fstat(descriptor)
            except OSError:
                os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
            setattr(sys, name, open(descriptor, "w" if descriptor else "r", closefd=False))  # noqa: SIM115 # stays open


def main() -> int:
    """Runs the command line without writing bytecode and without pydantic's plugins; returns its exit code.

    On a full disk Python (before 3.12.8 and 3.13.2, python/cpython#126606) leaves truncated bytecode files, with which
    every later start fails. This program has to start on full disks; its bytecode is compiled at installation.

    pydantic searches all installed packages for plugins and passes every validation to them, which would run foreign
    code as root. It is switched off whatever the environment says. Programs that we start inherit the setting; they are
    our own fill programs, which import only the standard library.

    A standard stream that was closed becomes /dev/null, or the next file that is opened would be in its place.
    Source: https://docs.pydantic.dev/latest/concepts/plugins/
    """
    sys.dont_write_bytecode = True
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    _open_standard_streams()
    from eviction.cli import main as run  # imported after the switches, so that they apply

    return run()


if __name__ == "__main__":
    sys.exit(main())

"""The program's entry point: `reclaimd`, or `python -m eviction`."""

import os
import sys


def _open_standard_streams() -> None:
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            try:
                os.fstat(descriptor)
            except OSError:
                os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor, which is this one
            setattr(sys, name, open(descriptor, "w" if descriptor else "r", closefd=False))  # noqa: SIM115 # stays open


def main() -> int:
    """Runs the command line; returns its exit code.

    No bytecode is written: on a full disk Python (before 3.12.8 and 3.13.2,
    python/cpython#126606) leaves truncated bytecode files, which break every later start. Ours is
    compiled at installation.

    pydantic's plugins are switched off: it searches all installed packages for them and passes
    every validation to them, which would run foreign code as root. Child processes inherit the
    setting. Source: https://docs.pydantic.dev/latest/concepts/plugins/

    A closed standard stream is replaced by /dev/null, or the next file to be
    opened would take its place.

    SIGHUP, which would end a daemon that is still importing, waits until
    `cli.process.on_signals` takes it.
    """
    sys.dont_write_bytecode = True
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    _open_standard_streams()
    if sys.argv[1:2] == ["run"]:
        import signal  # other commands take no time for it

        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    from eviction.cli.main import main as run  # imported after the switches, so that they apply

    return run()


if __name__ == "__main__":
    sys.exit(main())

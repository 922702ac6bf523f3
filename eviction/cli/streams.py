"""What a command writes on stdout and stderr."""

import sys


class OutputLost(Exception):
    """The output cannot be written. The message is one sentence. It is no OSError, so that no
    command takes it for an error of its own work."""


def write_out(text: str, *, flush: bool = True) -> None:
    """Writes data on stdout, as everything does that prints there. Raises OutputLost, and
    BrokenPipeError if whoever read it is gone."""
    try:
        sys.stdout.write(text)
        if flush:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputLost(
            f"the output could not be written: {error.strerror}; what was done stays done"
        ) from None


def write_err(text: str) -> None:
    """Writes on stderr, if that can be written: words that nobody can read end no work."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):  # a full disk, or it is closed
        pass

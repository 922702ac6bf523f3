"""The beginning and the end of every command.

This module imports nothing but the exit codes and the streams: `reclaimd reclaim` and `reclaimd
check` ask the daemon first, and an emergency must not wait for imports (`tests/budgets` counts
them).
"""

import os
import sys
from collections.abc import Sequence

from eviction.cli.streams import OutputLost
from eviction.exit_codes import EXIT_INTERRUPTED, EXIT_OK, EXIT_OUTPUT


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit code. Exits with 2 for arguments that argparse rejects."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if arguments[:1] in (["reclaim"], ["check"]):
            from eviction.cli.client import ask_daemon

            code = ask_daemon(arguments[0], arguments[1:])
            if code is not None:
                return code
        from eviction.cli.parser import run_command

        return run_command(arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # whoever read our output is gone, which is not a failure
        sys.stderr.close()
        return EXIT_OK
    except OutputLost as error:
        from eviction.cli.progress import print_message

        # or Python tries again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print_message(f"reclaimd: {error}")
        return EXIT_OUTPUT

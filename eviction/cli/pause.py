"""`reclaimd pause` stops all removals for a while; `reclaimd resume` ends
that, as a pause of 0 seconds.
"""

from argparse import Namespace

from eviction.cli.client import NotAskedError
from eviction.cli.local_files import ASKED, LocalFiles
from eviction.cli.output import answer_lines, exit_with
from eviction.cli.progress import mention
from eviction.configuration.text_forms import read_duration, within
from eviction.exit_codes import EXIT_OK, EXIT_RUNTIME

OPTIONS = {"--for D": ("at most 24h (1h)", within(read_duration, "1ms", "24h"), "1h")}


def run(arguments: Namespace) -> int:
    """Exit 0, also without a pause to end; 2 usage; 3 no daemon answers, but `resume` still removes
    a pause that is stored for the daemon's next start, if the configuration says where.

    Example: reclaimd pause --for 30m, and later reclaimd resume
    """
    seconds = vars(arguments).get("for", 0.0)
    files = LocalFiles(arguments, ASKED)
    try:
        answer = files.client.ask("pause", seconds=seconds)
    except NotAskedError as error:
        exit_with(EXIT_RUNTIME, str(error) if seconds else f"{error}{files.forget_pause()}")
    answer_lines([answer["sentence"]])
    mention(answer.get("warning", ""))  # an older daemon does not report it
    return EXIT_OK

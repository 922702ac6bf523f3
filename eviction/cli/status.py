"""`reclaimd status`: what the running daemon is doing, and its last passes."""

from argparse import Namespace
from collections.abc import Iterator

from eviction.cli.client import NotAskedError
from eviction.cli.local_files import ASKED, LocalFiles
from eviction.cli.output import answer, columns, exit_on
from eviction.cli.parser import OUTPUT
from eviction.cli.progress import Progress
from eviction.exit_codes import EXIT_OK, EXIT_RUNTIME
from eviction.records.json_shapes import shortened
from eviction.types import Json
from eviction.wording.explain import (
    BELOW_OURS,
    COMING,
    NOTHING_IS_REMOVED,
    amount,
    conditions_in_words,
    layout_in_words,
    lead_sentence,
    needed_in_words,
    promised_in_words,
    table,
)
from signals.quantity import format_bytes, format_duration

BELOW = "below"
OPTIONS = OUTPUT
GONE = {"--history": "reclaimd history shows the passes and removals that were kept"}


def run(arguments: Namespace) -> int:
    """Exit 0; 2 usage; 3 no daemon answers.

    Example: reclaimd status -o json
    """
    files = LocalFiles(arguments, ASKED)
    with exit_on(EXIT_RUNTIME, NotAskedError), Progress("asking the daemon"):
        status = files.client.ask("status")
    files.mention_other_configuration(status)
    answer(arguments, status, lambda: lines(status, columns()))
    return EXIT_OK


def lines(status: Json, width: int | None = None) -> list[str]:
    """The answer for people."""
    observed = {observation["signal"]: observation for observation in status["observations"]}
    rows = [["SIGNAL", "AVAILABLE", "MARK", "TIME TO THE MARK"]]
    for threshold in status["thresholds"]:
        signal = threshold["signal"]
        mark = threshold["effective"]
        left_seconds = threshold["headroom_seconds"]
        observation = observed.get(signal, {})
        available = observation.get("available")
        if observation.get("stale"):
            until = "stale"
        elif available is not None and mark is not None and available < mark:
            until = BELOW
        elif available is not None and available < threshold.get("needed", 0):
            until = COMING
        else:
            until = "-" if left_seconds is None else format_duration(left_seconds)
        amounts = ["-" if value is None else amount(signal, value) for value in (available, mark)]
        rows.append([signal, *amounts, until])
    states = [until for *_, until in rows]
    why = BELOW_OURS if BELOW in states else COMING if COMING in states else None
    conditions = conditions_in_words(status["conditions"], status["disk_pressure"] is not None, why)
    layout = layout_in_words(status["layout"], observed)
    shown = [f"{conditions}; {status['doing'] or 'watching'}; layout {layout}"]
    if status["held_off"]:
        shown.append(f"held off: {status['held_off']}")
    if status["dry_run"]:
        shown.append(NOTHING_IS_REMOVED)
    shown += [*table(rows, width), *ahead_lines(status)]
    # an older daemon does not report it
    if (seconds := status.get("next_look_seconds")) is not None:
        shown.append(f"next look in {format_duration(seconds)}: {status['next_look_why']}")
    shown += filter(None, [lead_sentence(status["lead_seconds"])])
    if seconds := status["paused_for_seconds"]:
        shown.append(f"a row that was not enough is tried again in {format_duration(seconds)}")
    rejected = status.get("reload_problem")  # an older daemon does not report it
    shown += [f"warning: {sentence}" for sentence in filter(None, (rejected, *status["warnings"]))]
    for parked in status["parked"]:
        what = f"{parked['kind']} {shortened(parked['name'])}"
        seconds = parked["seconds"]
        since = f"has not been answered for {format_duration(seconds)}"
        shown.append(f"parked: the removal of {what} {since}")
    if distrust := status["pod_directories"]["sentence"]:
        shown += ["", f"pods: {distrust}"]
    shown += [*function_lines(status["functions"], width), ""]
    passes = [["STARTED", "SIGNAL", "RESULT", "REASON"]]
    for record in status["passes"]:
        signal = record["acted_on"]["signal"] if record["acted_on"] else "-"
        passes.append([f"{record['started'][:19]}Z", signal, record["result"], record["reason"]])
    return [*shown, *(table(passes, width) if len(passes) > 1 else ["no passes yet"])]


def ahead_lines(status: Json) -> Iterator[str]:
    """What filesystems will take and statvfs does not show."""
    for seen in status["observations"]:
        if promised := seen.get("promised"):
            yield promised_in_words(seen["signal"], promised)
    for threshold in status["thresholds"]:
        if needed := threshold.get("needed"):
            yield f"{threshold['signal']}: {needed_in_words(needed)}"


def function_lines(functions: Json, width: int | None = None) -> list[str]:
    """What each reclaim function has done since the daemon started; empty before the first call."""
    rows = [["FUNCTION", "CALLS", "REMOVED", "FREED", "INODES", "SECONDS", "LAST CALL"]]
    for name, total in functions.items():
        last = total["last"]
        measured = total["measured"]
        freed = format_bytes(measured["bytes"])
        seconds = f"{total['seconds']:.1f}"
        last_call = last["error"] or last["skipped"] or f"{last['started'][:19]}Z"
        rows.append(
            [
                name,
                *map(str, (total["calls"], total["removed"], freed, measured["inodes"], seconds)),
                last_call,
            ]
        )
    return ["", *table(rows, width)] if functions else []

"""Whether a row held: relief, what must stay, `/livez`, and the end after SIGTERM.

Pure: it reads a `Run` only.
"""

from __future__ import annotations

from tests.faults.matrix.bench import RELIEFS_UNDER, Run
from tests.faults.matrix.rows import SLACK_SECONDS, Kind, Livez, When

STILL_SECONDS = 5.0  # /livez may say 503 while nothing has been removed for so long
OK, UNAVAILABLE = 200, 503


def seconds_until_relief(run: Run) -> float | None:
    """From the end of the fault to the next relief; under a fault that does not end, or
    through which relief goes on, the longest time from crossing the mark to the relief.
    None if there was none."""
    if run.row.relief.when is When.GOES_ON or run.ended is None:
        under = [
            cycle.relieved - cycle.crossed for cycle in run.cycles if cycle.crossed >= run.began
        ]
        return max(under, default=None)
    return min(
        (cycle.relieved - run.ended for cycle in run.cycles if cycle.relieved > run.ended),
        default=None,
    )


def broken_promises(run: Run) -> list[str]:
    """What did not hold, a sentence each; empty if the row held."""
    wrong = [] if run.was_healthy else ["without the fault the disk was not relieved either"]
    wrong += [f"{each} is gone, and must stay" for each in run.lost]
    if not run.row.restarts:
        wrong += [f"the process ended by itself, with {code}" for code in run.ended_by_itself]
    return wrong + _relief(run) + _livez(run) + _end(run) + run.problems


def _relief(run: Run) -> list[str]:
    relief, wrong = run.row.relief, []
    limit = relief.within_seconds + SLACK_SECONDS
    until = run.terminated if run.ended is None else run.ended
    for kind in sorted(relief.meanwhile):
        if not any(run.began < at <= until for at in run.removed_at[Kind(kind)]):
            wrong.append(f"no {kind} went while the fault lasted, {until - run.began:.1f} s")
    seconds = seconds_until_relief(run)
    if relief.when is When.GOES_ON:
        under = [
            cycle for cycle in run.cycles if cycle.crossed >= run.began and cycle.relieved <= until
        ]
        if len(under) < RELIEFS_UNDER:
            wrong.append(
                f"{len(under)} reliefs while the fault lasted, {until - run.began:.1f} s: it must"
                " go on"
            )
        elif seconds is not None and seconds > limit:
            wrong.append(f"a relief under the fault took {seconds:.1f} s of {limit:g} s")
    if relief.when is not When.NOT_EXPECTED and run.ended is not None:
        after = min(
            (each.relieved - run.ended for each in run.cycles if each.relieved > run.ended),
            default=None,
        )
        if after is None or after > limit:
            words = "no relief" if after is None else f"a relief only after {after:.1f} s"
            wrong.append(f"{words} within {limit:g} s of the end of the fault")
    return wrong


def _livez(run: Run) -> list[str]:
    expected = run.row.livez
    first = next((each.asked for each in run.answers if each.status is not None), None)
    after = [] if run.ended is None else [each for each in run.answers if each.asked >= run.ended]
    if expected is Livez.NOBODY:
        return []
    if first is None:
        return (
            [] if expected is Livez.UNHEARD and run.ended is None else ["/livez was never answered"]
        )
    heard = [each for each in run.answers if each.asked >= first]
    if expected is Livez.UNHEARD:
        heard = [each for each in heard if each.answered < run.began or each in after]
    wrong = [
        f"/livez was not answered, {each.asked - run.began:.1f} s after the fault"
        for each in heard
        if not each.status
    ]
    removed = sorted(at for times in run.removed_at.values() for at in times)
    for each in heard:
        if each.status in (OK, None):
            continue
        moving = any(each.answered - STILL_SECONDS < at < each.asked for at in removed)
        if expected is not Livez.TRUTH or each.status != UNAVAILABLE or moving:
            wrong.append(
                f"/livez said {each.status}, {each.asked - run.began:.1f} s after the beginning of"
                " the fault"
            )
    if (
        after
        and run.row.relief.when is not When.NOT_EXPECTED
        and after[-1].status != OK
        and expected is not Livez.OK
    ):
        wrong.append(f"/livez said {after[-1].status} after the fault had ended")
    return wrong[:3]


def _end(run: Run) -> list[str]:
    limit = run.row.exit_seconds + SLACK_SECONDS
    if run.exit_code is None:
        return [f"SIGTERM did not end it within {limit:g} s"]
    return (
        []
        if run.exit_code == 0 or run.ended_by_itself
        else [f"it ended with {run.exit_code} after SIGTERM"]
    )

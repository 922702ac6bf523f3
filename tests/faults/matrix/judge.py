"""Whether a row held: relief, what must stay, `/livez`, and the end after SIGTERM.

Pure: it reads a `Run` only.
"""

from __future__ import annotations

from tests.faults.matrix.bench import RELIEFS_UNDER, Run
from tests.faults.matrix.table import PROMISED_EXIT_SECONDS, SLACK_SECONDS, Livez, When

STILL_SECONDS = 5.0  # /livez may say 503 while nothing has been removed for so long
OK, UNAVAILABLE = 200, 503


def broken_promises(run: Run) -> list[str]:
    """What did not hold, a sentence each; empty if the row held."""
    wrong = [] if run.was_healthy else ["without the fault the disk was not relieved either"]
    wrong += [f"{each} is gone, and must stay" for each in run.lost]
    if not run.row.restarts:
        wrong += [f"the process ended by itself, with {code}" for code in run.ended_by_itself]
    wrong += [*_relief(run), *_livez(run)[:3]]
    if run.exit_code is None:
        limit = PROMISED_EXIT_SECONDS + SLACK_SECONDS
        wrong.append(f"SIGTERM did not end it within {limit:g} s")
    elif run.exit_code != 0 and not run.ended_by_itself:
        wrong.append(f"it ended with {run.exit_code} after SIGTERM")
    return wrong + run.problems


def _relief(run: Run) -> list[str]:
    row, wrong = run.row, []
    limit = row.within_seconds + SLACK_SECONDS
    until = run.terminated if run.ended is None else run.ended
    for kind in sorted(row.meanwhile):
        if not any(run.began < at <= until for at in run.removed_at[kind]):
            wrong.append(f"no {kind} went while the fault lasted, {until - run.began:.1f} s")
    if row.relief is When.GOES_ON:
        crossed = [cycle for cycle in run.cycles if cycle.crossed >= run.began]
        under = sum(cycle.relieved <= until for cycle in crossed)
        longest = max((cycle.relieved - cycle.crossed for cycle in crossed), default=0.0)
        if under < RELIEFS_UNDER:
            wrong.append(f"{under} reliefs while the fault lasted, {until - run.began:.1f} s")
        elif longest > limit:
            wrong.append(f"a relief under the fault took {longest:.1f} s of {limit:g} s")
    if row.relief is not When.NOT_EXPECTED and run.ended is not None:
        later = [each.relieved - run.ended for each in run.cycles if each.relieved > run.ended]
        if not later or min(later) > limit:
            words = f"a relief only after {min(later):.1f} s" if later else "no relief"
            wrong.append(f"{words} within {limit:g} s of the end of the fault")
    return wrong


def _livez(run: Run) -> list[str]:
    expected = run.row.livez
    if expected is Livez.NOBODY:
        return []
    first = next((each.asked for each in run.answers if each.status is not None), None)
    if first is None:
        silent = expected is Livez.UNHEARD and run.ended is None
        return [] if silent else ["/livez was never answered"]
    after = [each for each in run.answers if run.ended is not None and each.asked >= run.ended]
    removed = [at for times in run.removed_at.values() for at in times]
    wrong = []
    for each in run.answers:
        unheard = expected is Livez.UNHEARD and each.answered >= run.began and each not in after
        if each.asked < first or each.status == OK or unheard:
            continue
        when = f"{each.asked - run.began:.1f} s after the beginning of the fault"
        moving = any(each.answered - STILL_SECONDS < at < each.asked for at in removed)
        if each.status is None:
            wrong.append(f"/livez was not answered, {when}")
        elif expected is not Livez.TRUTH or each.status != UNAVAILABLE or moving:
            wrong.append(f"/livez said {each.status}, {when}")
    relieved = run.row.relief is not When.NOT_EXPECTED
    if after and relieved and after[-1].status != OK and expected is not Livez.OK:
        wrong.append(f"/livez said {after[-1].status} after the fault had ended")
    return wrong

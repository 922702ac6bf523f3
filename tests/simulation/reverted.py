"""Reverts one mend or one guard at a time in a copy of the tree, and says
whether the simulation finds it.

    python -m tests.simulation.reverted [NAME …] [--seeds 200] [--hours 0.1]

A text that is not there exactly once is an error: the list is of the program as it is.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.repository import ROOT

PACKAGES = ("eviction", "reclaim", "signals", "tests", "config")


class Revert(NamedTuple):
    """One change: `new` in place of `old`, which the file has once. `of`: the hazard, by its row in
    safety_case.md or in words. `also`: more of them (file, old, new), where one guard stands behind
    another. `test`: what finds it if the simulation does not."""

    name: str
    of: str
    file: str
    old: str
    new: str
    also: tuple[tuple[str, str, str], ...] = ()
    test: str = ""


STEP, RELIEF, GATE, FOLD = (
    f"eviction/engine/{name}.py" for name in ("step", "relief", "gate", "fold")
)
IMAGES, CONTAINERS, REMOVALS = (
    "reclaim/functions/unused_images.py",
    "reclaim/functions/unused_containers.py",
    "reclaim/removals.py",
)
STARTS, STATES, INVENTORY = (
    "reclaim/evidence/starts.py",
    "reclaim/evidence/states.py",
    "reclaim/cri/inventory.py",
)
PLAN, REFERENCES = "reclaim/images/plan.py", "reclaim/evidence/references.py"
DEAD, RECORDS, THRESHOLDS = (
    "reclaim/containers/plan.py",
    "reclaim/images/records.py",
    "eviction/decision/thresholds.py",
)
TABLE = "eviction/decision/reclaim_table.py"

REVERTS = (
    # ---- what stops it
    Revert(
        "a pause stops no pass",
        "a pause while a pass runs",
        RELIEF,
        "    return Reason.PAUSED if paused else None",
        "    return None",
    ),
    Revert(
        "another configuration stops no pass",
        "a reload while a pass runs",
        RELIEF,
        "    if running.configuration is not world.configuration:\n        return"
        " Reason.RECONFIGURED\n",
        "",
    ),
    Revert(
        "a stop stops no pass",
        "a stop while a pass runs",
        RELIEF,
        "    if world.stopping:\n        return Reason.STOPPING\n    if running.dry_run",
        "    if running.dry_run",
    ),
    Revert(
        "nothing stands before a send",
        "one gate before each send",
        GATE,
        "    if (braked := brake(running, world)) is not None:\n        return braked\n",
        "",
    ),
    Revert("a dry run removes", "a dry run", STEP, "    if claim.dry_run:\n", "    if False:\n"),
    Revert(
        "the hold-off after a start holds nothing off",
        "the first minutes after a start",
        STEP,
        "    if held_off := world.held_off():\n",
        '    if held_off := "":\n',
    ),
    # ---- what is in use
    Revert(
        "the last look sees nothing",
        "a container that begins",
        IMAGES,
        "        if evidence.holds(self._context.pods.pod_directories()):\n",
        "        if True:\n",
    ),
    Revert(
        "a container being made is not seen",
        "an old pod begins its next container",
        STARTS,
        "    return not any(being_made(changed, containers))\n",
        "    return True\n",
    ),
    Revert(
        "images do not wait for pods",
        "a pod that begins",
        IMAGES,
        "        if seconds > 0:\n",
        "        if False:\n",
    ),
    Revert(
        "who uses an image is not asked again",
        "an image of a container",
        IMAGES,
        "    if verdict.id in evidence.usage.by_containers:\n",
        "    if False:\n",
        ((IMAGES, "    if status.id in usage.by_containers:\n", "    if False:\n"),),
    ),
    Revert(
        "a check is never too old",
        "a slow machine",
        GATE,
        "world.now - checked.looked_at > STATUS_FRESH_SECONDS",
        "False",
    ),
    Revert(
        "the state of a container is not asked again",
        "a container",
        CONTAINERS,
        "        if status.state in NOT_DEAD and (",
        "        if False and (",
    ),
    Revert(
        "a pod that has come back is not seen",
        "directories",
        CONTAINERS,
        "            or pods.gone(verdict.pod_uid)\n        ):\n            return None\n",
        "            or True\n        ):\n            return None\n",
    ),
    Revert(
        "other directories are believed",
        "directories that are not the kubelet's",
        STATES,
        "    if listing is None:\n        return not_compared(path)\n    parts",
        "    return None\n    parts",
    ),
    Revert(
        "a pin is not asked for again",
        "an image that is pinned while a pass runs",
        IMAGES,
        "    if status.pinned:\n",
        "    if False:\n",
    ),
    Revert(
        "a pod that begins while there is patience is forgotten",
        "found by this simulation",
        STARTS,
        "        pods = unfinished if patience > 0 else pods & unfinished",
        "        pods = pods & unfinished",
        test="test_an_image_waits_for_a_pod_that_began_while_there_was_patience",
    ),
    Revert(
        "a status that says nothing counts as gone",
        "the runtime lies",
        CONTAINERS,
        "        return status is not None and status.id in (verdict.id, NO_STATUS.id)\n",
        "        return status is not None and status.id == verdict.id\n",
    ),
    # ---- what must stay
    Revert(
        "an image is removed by its name",
        "A2",
        REFERENCES,
        "if own else (entries[0].id,)",
        "if own else (entries[0].title,)",
    ),
    Revert(
        "the newest copy of a live pod may go",
        "A3",
        DEAD,
        "if judge.guarded else set[str]()",
        "if False else set[str]()",
    ),
    Revert(
        "a sandbox with containers may go",
        "A6",
        DEAD,
        "if sandbox.id in occupied:",
        "if False:",
        (
            (
                CONTAINERS,
                "return Refused(Reason.HAS_CONTAINERS) if occupied else None",
                "return None",
            ),
        ),
    ),
    Revert(
        "an image is in use by its id alone",
        "A7",
        REFERENCES,
        "found, missing = _resolve(references, index, listing.resolved)",
        "found, missing = set(references), []",
    ),
    Revert(
        "an image that is mounted is unused",
        "A7",
        REFERENCES,
        "needed.update((own, *volumes))",
        "needed.add(own)",
    ),
    Revert(
        "what a runtime can do is asked once",
        "A7b",
        INVENTORY,
        "if learned.facts is not None and made == learned.facts_asked_at:",
        "if learned.facts is not None:",
    ),
    Revert(
        "a list that fails is empty",
        "A9",
        INVENTORY,
        "        return self._pods.pod_directories(),"
        " retried(self._runtime.list_containers, self._sleep)\n",
        "        try:\n            return self._pods.pod_directories(),"
        " retried(self._runtime.list_containers, self._sleep)\n        except RuntimeUnavailable:\n       "
        "     return self._pods.pod_directories(), ()\n",
    ),
    Revert(
        "the image of sandboxes may go", "A10", REFERENCES, "        by_sandboxes |= found\n", ""
    ),
    Revert(
        "an unknown sandbox image stops nothing",
        "A10",
        PLAN,
        "if usage.sandbox_image_known else",
        "if True else",
    ),
    Revert(
        "a pinned image may go",
        "A10",
        PLAN,
        "    if image.pinned:\n",
        "    if False:\n",
        ((IMAGES, "    if status.pinned:\n", "    if False:\n"),),
    ),
    Revert(
        "a keep list keeps nothing",
        "A11",
        PLAN,
        "    if image.id in kept_ids:\n",
        "    if False:\n",
        ((IMAGES, "    if keep.kept_ids((status,)):\n", "    if False:\n"),),
    ),
    Revert(
        "the minimum age is not asked",
        "A12",
        PLAN,
        "if wait > 0:  # equal is old enough",
        "if False:",
    ),
    Revert(
        "an image that comes again keeps its age",
        "A12",
        RECORDS,
        "            self.records = records\n",
        "",
        (
            (
                RECORDS,
                "            self.records = found\n",
                "            self.records = {**self.records, **found}\n",
            ),
        ),
    ),
    Revert(
        "what no kubelet has made may go",
        "A16",
        DEAD,
        "return Reason.NOT_KUBELETS if guarded else None",
        "return None",
    ),
    Revert(
        "a sandbox that no kubelet has made may go",
        "A16",
        DEAD,
        "if judge.guarded and not (sandbox.labelled and uid):",
        "if False:",
    ),
    # ---- what goes wrong
    Revert(
        "a stuck runtime is asked on",
        "B6",
        REMOVALS,
        "    if len(unanswered) <= parallel:\n",
        "    if True:\n",
    ),
    Revert(
        "any number of removals is in flight",
        "B6",
        RELIEF,
        "    return len(in_flight) < limit and disk_of",
        "    return disk_of",
    ),
    Revert(
        "a signal has no row",
        "B9",
        TABLE,
        "        FilesystemRole.IMAGEFS: (_C, _I),\n        FilesystemRole.CONTAINERFS: (_C, _I),\n",
        "        FilesystemRole.IMAGEFS: (),\n        FilesystemRole.CONTAINERFS: (),\n",
    ),
    Revert(
        "what freed nothing begins at once again",
        "B11",
        STEP,
        "    after = BackOff(world.now + min([seconds, *waits]), seconds)\n",
        "    after = BackOff(world.now, seconds)\n",
    ),
    Revert(
        "a disk that cannot be read is relieved",
        "C2",
        RELIEF,
        "    elif goal.stops and any(observation.stale for observation in of_goal):\n",
        "    elif False:\n",
        ((THRESHOLDS, "        and not observation.stale\n", ""),),
        test="test_nothing_is_removed_blind",
    ),
    Revert(
        "a mount does not end a pass",
        "C5",
        RELIEF,
        "    if moved(running.observations, seen):\n",
        "    if False:\n",
        ((STEP, "    if unread:\n        return reads(", "    if False:\n        return reads("),),
        test="test_a_mount_that_appears_costs_no_image",
    ),
    Revert(
        "an age is that of the wall clock",
        "A12, C6",
        RECORDS,
        "        self._smallest_offset = min(self._smallest_offset, wall - monotonic)\n",
        "        self._smallest_offset = wall - monotonic\n",
        ((RECORDS, "max(pulled, self._known_since, self._detected_at)", "pulled"),),
        test="test_what_is_remembered_of_images_is_as_told",
    ),
    Revert(
        "a pod is as old as the wall clock says",
        "C6",
        STARTS,
        "now - age if 0 <= age <= oldest_seconds else now",
        "now - age",
        test="test_a_step_of_the_wall_clock_hides_no_pod_and_makes_none_new_for_ever",
    ),
    Revert(
        "a removal that hangs is waited for",
        "B2b",
        STEP,
        "        if world.now >= overdue_at(claim, world):\n",
        "        if False:\n",
    ),
    Revert(
        "an error about one object ends its stage",
        "B10c",
        REMOVALS,
        "    except AnsweredWithError as error:\n"
        "        return Checked(Refused(result=Result.FAILED, error=str(error)))\n",
        "",
    ),
    # ---- removals
    Revert(
        "one object is sent twice",
        "a claim",
        RELIEF,
        "    if any(claim.verdict.id == verdict.id for claim in world.under_way()):\n",
        "    if False:\n",
    ),
    Revert(
        "a late removal is forgotten",
        "a claim is held until its call has ended",
        STEP,
        "            world = world.with_claim(lonely)\n",
        "            world = world._replace(removals={k: c for k, c in world.removals.items() if k"
        " != claim.id})\n",
    ),
    Revert(
        "what was not asked counts as gone",
        "the runtime lies",
        REMOVALS,
        "        if stage.present(verdict):\n",
        "        if False:\n",
    ),
    # ---- passes
    Revert(
        "the last resort comes after errors",
        "the last resort",
        RELIEF,
        " and not under_way and settled(running):\n",
        ":\n",
    ),
    Revert(
        "nothing is measured after a removal",
        "more goes than needed",
        RELIEF,
        "    relieved = not goal.met(with_promised(seen, promised))\n",
        "    relieved = False\n",
    ),
    Revert(
        "gains count for every pass",
        "bookings by device",
        FOLD,
        'running = passes.get(world.booked_to.get(identity.device_id, ""))',
        "running = next(iter(passes.values()), None)",
    ),
    Revert(
        "a gain counts twice",
        "bookings by device",
        FOLD,
        "        del known[identity.device_id]  # another role of the same filesystem\n",
        "",
    ),
    Revert(
        "a plan that hangs is waited for",
        "a runtime that hangs",
        STEP,
        "            if run.plan is None and world.now >= run.progress_at + HANGS_SECONDS:\n",
        "            if False:\n",
    ),
    # ---- the loop
    Revert(
        "a reading that is late is due for ever",
        "found by this simulation",
        STEP,
        "    due += [at for at in late_at if at > world.now]",
        "    due += late_at",
    ),
    Revert(
        "settling is due while it waits",
        "found by this simulation",
        STEP,
        "        if running.settling is not None and running.settling.read_at > world.now:\n",
        "        if running.settling is not None:\n",
        test="test_what_becomes_of_each_object",
    ),
    Revert(
        "a pass waits for a filesystem that hangs",
        "found by this simulation",
        RELIEF,
        "not published.problem and not published.late(world.now)",
        "not published.problem",
        test="test_what_becomes_of_each_object",
    ),
    Revert(
        "a pass stopped while it plans has no record",
        "found by this simulation",
        "eviction/engine/ended.py",
        "    planned = () if stage.plan is None else stage.plan.remove",
        "    planned = stage.plan.remove",
    ),
    Revert(
        "a look waits for every filesystem",
        "a slow filesystem delays all",
        STEP,
        "    return look.began_at + patience\n",
        "    return look.began_at + 600.0\n",
    ),
    Revert(
        "one pass at a time on the whole node",
        "a slow filesystem delays all",
        STEP,
        "    if (running := running_in(name, world)) is not None:\n",
        "    if (running := next(iter(world.passes.values()), None)) is not None:\n",
        test="test_what_happens_to_a_daemon",
    ),
    Revert(
        "a back-off is for ever",
        "a back-off",
        STEP,
        "        seconds = min(max(seconds * 2, RETRY_SECONDS), SELDOM_SECONDS)\n",
        "        seconds = max(seconds * 2, RETRY_SECONDS) * 50\n",
    ),
)


def tree_with(revert: Revert, made: Path) -> Path:
    """A copy of the tree with this one change.

    Raises ValueError if the text is not there exactly once.
    """
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, made / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for file, text in changed(revert).items():
        (made / file).write_text(text, encoding="utf-8")
    return made


def changed(revert: Revert) -> dict[str, str]:
    """Its files with the change. Raises ValueError if a text is not there exactly once."""
    texts: dict[str, str] = {}
    for file, old, new in ((revert.file, revert.old, revert.new), *revert.also):
        text = texts.get(file) or (ROOT / file).read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise ValueError(
                f"{file}: the text of {revert.name!r} is there {text.count(old)} times"
            )
        texts[file] = text.replace(old, new)
    return texts


def found(revert: Revert, seeds: int, hours: float) -> str:
    """What the simulation says of it, empty if nothing."""
    arguments = ("--from", "1", "--runs", str(seeds), "--hours", str(hours), "--no-shrink")
    with tempfile.TemporaryDirectory() as made:
        tree = tree_with(revert, Path(made))
        command = [sys.executable, "-m", "tests.simulation", *arguments]
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": made}
        ran = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, check=False
        )
    if ran.returncode == 0:
        return ""
    return (ran.stdout.strip().splitlines() or [ran.stderr.strip()[-300:]])[0][:300]


def main() -> int:
    """Exit code 1: something is not found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.reverted", description=__doc__.splitlines()[0]
    )
    parser.add_argument("names", nargs="*", help="these alone")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--hours", type=float, default=0.1)
    given = parser.parse_args()
    missed = 0
    for revert in REVERTS:
        if given.names and revert.name not in given.names:
            continue
        began = time.monotonic()
        problem = found(revert, given.seeds, given.hours)
        seconds = time.monotonic() - began
        missed += not problem
        print(
            f"| {revert.name} | {revert.of} | {problem or 'not found'} | {seconds:.0f} s |",
            flush=True,
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

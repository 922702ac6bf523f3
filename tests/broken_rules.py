"""Breaks one guard or rule of the product at a time, on purpose, and looks which test notices.

    python -m tests.broken_rules [NAME …] [--rings 2] [--to FILE]

Each break is one piece of text replaced in a copy of the repository, in which the rings of
tests then run until one fails: those of its own room first, then pure ones, real nodes last. A
break that no test notices is a test that is missing, or a rule that nobody needs. A text that
is not there any more, or that is there twice, is an error: the list is of the program as it is.
So is a test that fails in a copy in which nothing is broken, which each ring is run in first:
it would notice anything.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.repository import ROOT

RINGS: tuple[tuple[str, ...], ...] = (
    ("tests/pure",),
    ("tests/simulation", "tests/sockets"),
    ("tests/faults", "tests/drill", "tests/budgets", "tests/real_node"),
)
# no test of the product
WHAT_PAGES_SAY = ("tests/pure/test_pages.py", "tests/pure/test_console_pages.py")
MADE_HERE = shutil.ignore_patterns("__pycache__", "*.egg-info")
# at the top of the repository
NOT_COPIED = re.compile(r"\.git|\.venv.*|\.\w+_cache|\.hypothesis|dist|report")
SECONDS = 1200.0  # of one ring: a break may make something wait for ever


@dataclass(frozen=True)
class Break:
    """One change: `new` in place of `old`, which the file has once."""

    name: str
    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Noticed:
    """What became of one break. `by`: the tests that failed, of the first ring in which one did;
    none: nobody has noticed it. `rings`: how many of them ran, the tests of its room among them."""

    name: str
    by: tuple[str, ...]
    rings: int
    seconds: float


IMAGES, UNUSED_IMAGES = "reclaim/images/plan.py", "reclaim/functions/unused_images.py"
KEEP_LIST, REFERENCES = "reclaim/images/keep_list.py", "reclaim/evidence/references.py"
RECORDS, PULL_RECORDS = "reclaim/images/records.py", "reclaim/kubelet/pull_records.py"
STATE_FILE = "eviction/records/state_file.py"
CONTAINERS, UNUSED_CONTAINERS = (
    "reclaim/containers/plan.py",
    "reclaim/functions/unused_containers.py",
)
TREES = "reclaim/pod_logs/directories.py"
STATES = "reclaim/evidence/states.py"
PODS_API = "reclaim/kubelet/pods_api.py"
KUBELET_PODS, STARTS = "reclaim/kubelet/pods.py", "reclaim/evidence/starts.py"
INVENTORY = "reclaim/cri/inventory.py"
REMOVALS, LISTENER = "reclaim/removals.py", "eviction/records/listener.py"
THRESHOLDS, SYNCHRONIZE = "eviction/decision/thresholds.py", "eviction/decision/synchronize.py"
HEADROOM, HOLD_OFF, TYPES = (
    "eviction/decision/headroom.py",
    "eviction/engine/hold_off.py",
    "reclaim/types.py",
)
RELIEF, GATE, STEP = (
    "eviction/engine/relief.py",
    "eviction/engine/gate.py",
    "eviction/engine/step.py",
)
WORLD, PASS_RECORDS = "eviction/engine/world.py", "eviction/engine/ended.py"
TRUST, INTERVAL, ROTATED = (
    "reclaim/trust.py",
    "signals/interval.py",
    "reclaim/functions/rotated_logs.py",
)

UNITS, CACHES = "reclaim/functions/units.py", "reclaim/functions/caches.py"
CHECKPOINTS = "reclaim/functions/checkpoints.py"
FILES_IN_USE = "reclaim/evidence/files_in_use.py"
BREAKS = (
    # ---- images
    Break(
        "an image of a container may go",
        IMAGES,
        "if image.id in usage.by_containers:",
        "if False:",
    ),
    Break(
        "the image of sandboxes may go",
        IMAGES,
        "if image.id in usage.by_sandboxes:",
        "if False:",
    ),
    Break("a pinned image may go", IMAGES, "if image.pinned:", "if False:"),
    Break("an image on the keep-list may go", IMAGES, "if image.id in kept_ids:", "if False:"),
    Break("the newest of a repository may go", IMAGES, "if image.id in newest_ids:", "if False:"),
    Break(
        "what may not come back is not held back",
        UNUSED_IMAGES,
        "return part_of(plan, last=last)\n",
        "return plan\n",
    ),
    Break(
        "no record of a pull is proof by itself", PULL_RECORDS, "os.stat(pulled).st_ctime", "0.0"
    ),
    Break(
        "others may write records of pulls",
        PULL_RECORDS,
        "(refusal := directory_refusal(directory))",
        "(refusal := None)",
    ),
    Break(
        "an image that was just used may go",
        IMAGES,
        "if known.record.last_use >= now:",
        "if False:",
    ),
    Break("an unresolved reference stops nothing", IMAGES, "if usage.unresolved:", "if False:"),
    Break(
        "an unknown sandbox image stops nothing",
        IMAGES,
        "if usage.sandbox_image_known",
        "if True",
    ),
    Break(
        "the minimum age is not asked",
        IMAGES,
        "if wait > 0:  # equal is old enough",
        "if wait > 1e9:",
    ),
    Break(
        "an image as old as the minimum age stays",
        IMAGES,
        "if wait > 0:  # equal",
        "if wait >= 0:  # equal",
    ),
    Break(
        "the newest image goes first",
        IMAGES,
        "key=lambda known: (known.record.last_use, known.record.first_detected, known.image.id),",
        "key=lambda known: (-known.record.last_use, -known.record.first_detected, known.image.id),",
    ),
    Break(
        "usage is rounded down",
        IMAGES,
        "usage = 100 - free * 100 // capacity",
        "usage = (capacity - free) * 100 // capacity",
    ),
    Break(
        "the high mark itself is no pressure",
        IMAGES,
        "usage >= policy.high_threshold_percent",
        "usage > policy.high_threshold_percent",
    ),
    Break(
        "the loop runs at a high mark of 100",
        IMAGES,
        "self.high_threshold_percent != 100 or",
        "True or",
    ),
    Break(
        "the maximum age counts from the start",
        IMAGES,
        "maximum == 0 or now - started_at <= maximum",
        "maximum == 0",
    ),
    Break(
        "an image that no container names is unused although its tag is short",
        REFERENCES,
        '    if is_short(name):\n        head = "docker.io"\n',
        '    if is_short(name):\n        head = ""\n',
    ),
    Break(
        "a digest is found by its tag",
        REFERENCES,
        'return f"{head}/{repository}@{digest}" if at else',
        "return",
    ),
    Break(
        "what specs name is unused",
        REFERENCES,
        "for reference in listing.named_images:",
        "for reference in ():",
    ),
    Break(
        "an image volume is unused",
        REFERENCES,
        "needed.update((own, *volumes))",
        "needed.add(own)",
    ),
    Break(
        "in use is not looked for again",
        UNUSED_IMAGES,
        "if verdict.id in evidence.usage.by_containers:",
        "if False:",
    ),
    Break(
        "an unknown user is not looked for again",
        UNUSED_IMAGES,
        "    if evidence.usage.unresolved:\n",
        "    if False:\n",
    ),
    Break(
        "a pin is not looked for again", UNUSED_IMAGES, "    if status.pinned:\n", "    if False:\n"
    ),
    Break(
        "the keep-list is not looked at again",
        UNUSED_IMAGES,
        "if keep.kept_ids((status,)):",
        "if False:",
    ),
    Break(
        "newest is not looked at again", UNUSED_IMAGES, "and self._is_newest(status):", "and False:"
    ),
    Break(
        "a list serves for ever", UNUSED_IMAGES, "LIST_AGE_SECONDS = 0.25", "LIST_AGE_SECONDS = 1e9"
    ),
    Break(
        "no pod is waited for", UNUSED_IMAGES, "        if seconds > 0:\n", "        if False:\n"
    ),
    Break(
        "a removed image keeps its age",
        UNUSED_IMAGES,
        "if not there or verdict.id in self._answered:",
        "if False:",
    ),
    Break(
        "an image without a record is old",
        RECORDS,
        "                return new\n",
        "                return replace(new, first_detected=0.0)\n",
    ),
    Break(
        "a witness makes older than the clocks are known",
        RECORDS,
        "max(pulled, self._known_since, self._detected_at)",
        "pulled",
    ),
    Break(
        "an added entry is as old as its id",
        RECORDS,
        "if not set(handlers) <= set(known.handlers):",
        "if False:",
    ),
    Break(
        "the time off counts after a reboot",
        STATE_FILE,
        "min(age, max(now.wall - time, 0.0))",
        "max(now.wall - time, 0.0)",
    ),
    Break(
        "records of another machine count",
        STATE_FILE,
        "self.machine_id and now.machine_id and self.machine_id != now.machine_id",
        "False",
    ),
    # ---- containers, sandboxes, logs
    Break(
        "a running container is dead",
        CONTAINERS,
        "container.state is ContainerState.RUNNING or (",
        "False or (",
    ),
    Break(
        "one that was created is dead",
        CONTAINERS,
        "(\n        guarded and container.state is not ContainerState.EXITED\n    )",
        "False",
    ),
    Break(
        "the newest copy of a live pod may go",
        CONTAINERS,
        "if judge.guarded else set[str]()",
        "if False else set[str]()",
    ),
    Break(
        "a gone pod need not settle",
        CONTAINERS,
        "settle_seconds=SETTLE_SECONDS if gone else 0.0",
        "settle_seconds=0.0",
    ),
    Break(
        "a pod of which something runs is gone",
        CONTAINERS,
        "held = uid in self.alive",
        "held = False",
    ),
    Break(
        "a static pod leaves nothing behind",
        STATES,
        "return state is not None and state.static",
        "return False",
    ),
    Break(
        "a ready sandbox may go",
        CONTAINERS,
        "if sandbox.state is PodSandboxState.READY:",
        "if False:",
    ),
    Break(
        "a sandbox with containers may go",
        CONTAINERS,
        "if sandbox.id in occupied:",
        "if False:",
    ),
    Break(
        "the newest sandbox may go",
        CONTAINERS,
        "if fate.removable is None and sandbox is newest[uid]:",
        "if False:",
    ),
    Break(
        "the newest dead container goes first",
        CONTAINERS,
        "key=lambda removal: (removal[0], _age_order(removal[1]))",
        "key=lambda removal: (removal[0], -removal[1].created_at_ns)",
    ),
    Break(
        "sources that are not ready do not matter",
        CONTAINERS,
        "if judge.pods.sources_ready else",
        "if True else",
    ),
    Break(
        "a status is not read again",
        UNUSED_CONTAINERS,
        "if status.state in NOT_DEAD and (",
        "if False and (",
    ),
    Break(
        "another object under the same id may go",
        UNUSED_CONTAINERS,
        "if None not in (verdict.identity, identity) and verdict.identity != identity:",
        "if False:",
    ),
    Break(
        "the newer copy need not be there",
        UNUSED_CONTAINERS,
        "        if not verdict.superseded_by:\n",
        "        if True:\n",
    ),
    Break(
        "an occupied sandbox is not looked for again",
        UNUSED_CONTAINERS,
        "return Refused(Reason.HAS_CONTAINERS) if occupied else None",
        "return None",
    ),
    Break(
        "a sandbox that is ready by now may go",
        UNUSED_CONTAINERS,
        "        if status.state is PodSandboxState.READY:\n",
        "        if False:\n",
    ),
    Break(
        "a pod that has come back loses its remains",
        UNUSED_CONTAINERS,
        "if (\n            verdict.reason is not Reason.POD_GONE\n            or not is_pod_uid(verdict.pod_uid)\n            or pods.gone(verdict.pod_uid)\n        ):",
        "if True:",
    ),
    Break(
        "logs go although sources are not ready",
        CONTAINERS,
        "if not pods.sources_ready:",
        "if False:",
    ),
    Break("logs of a pod with containers go", CONTAINERS, "if uid in in_runtime:", "if False:"),
    Break(
        "logs go without complete lists",
        CONTAINERS,
        "return Reason.INCOMPLETE_LISTING, Rule.GUARD\n        if uid in",
        "return Reason.POD_GONE, Rule.GUARD\n        if uid in",
    ),
    Break(
        "a link is dangling while its container runs",
        CONTAINERS,
        "return Reason.ROTATING, Rule.KUBELET",
        "return Reason.DANGLING, Rule.KUBELET",
    ),
    Break(
        "another directory of the name is removed",
        TREES,
        "if (\n                expected is not None\n                and identity_of(os.lstat(name, dir_fd=self._lowest)) != expected\n            ):",
        "if False:",
    ),
    Break(
        "a log that is compressed goes",
        ROTATED,
        'return BEING_ROTATED if compressing or may_be_written else ""',
        'return ""',
    ),
    # ---- which pods exist
    Break(
        "directories without those of running pods are believed",
        STATES,
        "    if without:\n",
        "    if False:\n",
    ),
    Break(
        "exchanged directories are believed",
        STATES,
        "if trusted is None or states.identity == trusted:",
        "if True:",
    ),
    Break(
        "empty directories are believed",
        STATES,
        "if not present.isdisjoint(held) or (states.known and states.sources_ready):",
        "if True:",
    ),
    Break(
        "with a doubt a pod is gone",
        STATES,
        "        if self.doubt is not None:\n            return False\n",
        "",
    ),
    Break(
        "a listed pod is gone without its directory",
        STATES,
        "return uid not in self.kubelet and uid not in (self.present or ())",
        "return uid not in (self.present or ())",
    ),
    Break(
        "a check believes directories for ever",
        KUBELET_PODS,
        "doubt_now = self._doubt_now(states.identity)",
        "doubt_now = self._comparison.doubt",
    ),
    Break(
        "whoever listens at the kubelet's socket is believed",
        PODS_API,
        "if (refusal := socket_refusal(path)) is not None:",
        "if (refusal := None) is not None:",
    ),
    Break(
        "a list of any length is read",
        PODS_API,
        "if len(answer) > LARGEST_LIST_BYTES:",
        "if False:",
    ),
    Break(
        "a pod that is being made needs no image",
        STARTS,
        "if part.held_off and age < self.hold_off_seconds:",
        "if False:",
    ),
    Break(
        "a new pod does not make a list old",
        STARTS,
        "    if now is None:\n        return False\n",
        "    return True\n",
    ),
    Break(
        "the next container of a pod does not make a list old",
        STARTS,
        "if directory != before.get(uid)}",
        "if uid not in before}",
    ),
    Break(
        "a container that is being made is not waited for", STARTS, "changed - SAME_SECONDS:", "0:"
    ),
    Break(
        "an exchanged runtime answers for the old one",
        INVENTORY,
        "if str(facts) != listing.runtime:",
        "if False:",
    ),
    # ---- removing
    Break(
        "a dry run removes",
        STEP,
        "    if claim.dry_run:\n        planned =",
        "    if False:\n        planned =",
    ),
    Break(
        "nothing brakes right before the call",
        GATE,
        "if (braked := brake(running, world)) is not None:",
        "if (braked := None) is not None:",
    ),
    Break(
        "nothing brakes between two objects",
        RELIEF,
        "    braked = brake(running, world)\n",
        "    braked = None\n",
    ),
    Break(
        "a mount does not end a pass",
        RELIEF,
        "    if moved(running.observations, seen):\n",
        "    if False:\n",
    ),
    Break(
        "a mount right before the call is not seen",
        STEP,
        "    if unread:\n        return reads(",
        "    if False:\n        return reads(",
    ),
    Break(
        "a pause comes with the next pass",
        RELIEF,
        "return Reason.PAUSED if paused else None",
        "return None",
    ),
    Break(
        "what is loaded is not waited for",
        RELIEF,
        "    if running.configuration is not world.configuration:\n",
        "    if False:\n",
    ),
    Break(
        "the last resort comes after errors",
        RELIEF,
        "and not under_way and settled(running):",
        "and not under_way:",
    ),
    Break(
        "the last resort comes while a removal is under way",
        RELIEF,
        "and not under_way and settled(running):",
        "and settled(running):",
    ),
    Break(
        "an error about one object ends its stage",
        REMOVALS,
        "    except AnsweredWithError as error:\n"
        "        return Checked(Refused(result=Result.FAILED, error=str(error)))\n",
        "",
    ),
    Break(
        "what is still there was removed",
        REMOVALS,
        "        if stage.present(verdict):\n",
        "        if False:\n",
    ),
    Break(
        "a check is fresh for ever",
        REMOVALS,
        "if not in_time or not answer.holds():",
        "if not answer.holds():",
    ),
    Break(
        "a last look is fresh for ever",
        GATE,
        "world.now - checked.looked_at > STATUS_FRESH_SECONDS",
        "False",
    ),
    Break(
        "a parked removal is sent",
        STEP,
        "    if not claim.awaited:  # nothing was sent, and nothing is\n",
        "    if False:\n",
    ),
    Break(
        "a stuck runtime is asked on",
        REMOVALS,
        "    if len(unanswered) <= parallel:\n",
        "    if True:\n",
    ),
    Break(
        "relief stops nothing",
        RELIEF,
        "    elif goal.stops and relieved:\n",
        "    elif False:\n",
    ),
    Break(
        "what is in flight promises nothing",
        RELIEF,
        "promised = sum(claim.verdict.promised_bytes for claim in in_flight)",
        "promised = 0",
    ),
    Break(
        "one object is sent twice",
        RELIEF,
        "    if any(claim.verdict.id == verdict.id for claim in world.under_way()):\n",
        "    if False:\n",
    ),
    Break(
        "what its neighbour has freed is an object's own",
        RELIEF,
        "alone = len(running.unmeasured) == 1 and not world.claims_of(running) and not others",
        "alone = True",
    ),
    Break(
        "a plan that hangs keeps those beside it",
        RELIEF,
        "    planning = any(stage.plan is None for stage in running.current)\n",
        "    planning = any(stage.plan is None for stage in running.current)\n    if planning:\n        return running, ()\n",
    ),
    Break(
        "a program of a command gives way to nobody",
        RELIEF,
        "if world.lane(running.lane).another_waits:",
        "if False:",
    ),
    Break(
        "layers that images share are promised with each",
        "reclaim/images/order.py",
        "return sum(size for layer, size in layers.items() if self._count[layer] == 0)",
        "return sum(layers.values())",
    ),
    Break(
        "layers that stay are promised",
        "reclaim/images/plan.py",
        "held = layers.held.union(*(layers.of_images.get(verdict.id, ()) for verdict in stays))",
        "held = layers.held",
    ),
    # ---- deciding
    Break(
        "at the mark is below it",
        THRESHOLDS,
        "and mark(threshold, observation) > observation.available",
        "and mark(threshold, observation) >= observation.available",
    ),
    Break("a stale reading counts", THRESHOLDS, "        and not observation.stale\n", ""),
    Break(
        "a grace period is over at once",
        THRESHOLDS,
        "if now - seen >= threshold.grace_seconds\n    )",
        "if True)",
    ),
    Break("an old reading is acted on", THRESHOLDS, "observation.time > last.time", "True"),
    Break(
        "the smallest deficit first",
        THRESHOLDS,
        "                -deficit(threshold, observations),\n",
        "                deficit(threshold, observations),\n",
    ),
    Break(
        "the minimum reclaim is forgotten",
        SYNCHRONIZE,
        "unresolved = rules.thresholds_met(still_in_force, usable, enforce_min_reclaim=True)",
        "unresolved = rules.thresholds_met(still_in_force, usable, enforce_min_reclaim=False)",
    ),
    Break(
        "a failed reading clears a threshold",
        SYNCHRONIZE,
        "dict.fromkeys((*met, *unresolved, *frozen))",
        "dict.fromkeys((*met, *unresolved))",
    ),
    Break(
        "a grace period survives a gap",
        SYNCHRONIZE,
        "if last is not None and now - last > state.config.longest_gap_seconds:",
        "if False:",
    ),
    Break(
        "a row that is empty is chosen",
        SYNCHRONIZE,
        "key=lambda threshold: not config.row(threshold.signal, observations)",
        "key=lambda threshold: True",
    ),
    Break(
        "a soft threshold is led",
        THRESHOLDS,
        "if ahead and threshold.hard else reached",
        "if ahead else reached",
    ),
    Break(
        "a jump is a rate",
        INTERVAL,
        "            if fall is not largest:\n",
        "            if True:\n",
    ),
    Break(
        "an unreadable disk is reclaimed on",
        RELIEF,
        "    elif goal.stops and any(observation.stale for observation in of_goal):\n",
        "    elif False:\n",
    ),
    Break(
        "a function that waits for a lower mark is called",
        RELIEF,
        "    if goal.waits and not goal.met(",
        "    if False and not goal.met(",
    ),
    Break(
        "the room is passed by",
        "eviction/surface/requests.py",
        "extent = Extent.ENOUGH",
        "extent = Extent.ALL",
    ),
    Break(
        "a cooldown is over at once",
        STEP,
        "world.now + world.functions[name].cooldown_seconds",
        "0.0",
    ),
    Break(
        "a pass of the lead aims at every threshold",
        RELIEF,
        "if each == running.decision.acted_on)",
        "if True)",
    ),
    Break(
        "the lead takes the last resort",
        RELIEF,
        " and reached(running, world)\n    if untried",
        "\n    if untried",
    ),
    Break(
        "nothing is held off after a start",
        WORLD,
        "        left = self.hold_off_until - self.now\n",
        "        left = 0.0\n",
    ),
    Break(
        "a pause holds nothing",
        WORLD,
        "if paused := self.pause.why(self.now, self.wall):",
        'if paused := "":',
    ),
    Break(
        "a row waits for the last object",
        STEP,
        "world.now + min([seconds, *waits])",
        "world.now + max(waits, default=0.0)",
    ),
    Break(
        "pressure that flaps is new pressure",
        STEP,
        "elif world.now - lane.met_at >= KUBELET_INTERVAL_SECONDS and lane.back_offs:",
        "elif lane.back_offs:",
    ),
    Break(
        "where images are is not asked while a pass runs",
        STEP,
        "    if now >= asking.locate_due:\n",
        "    if now >= asking.locate_due and not world.asks_the_runtime():\n",
    ),
    Break(
        "a defect in a pass ends all relief",
        STEP,
        "    except Exception as defect:  # noqa: BLE001 # a defect in one pass ends that pass, and not all relief\n",
        "    except KeyError as defect:\n",
    ),
    Break(
        "a listener that raises ends those of all",
        LISTENER,
        "            except BaseException as error:",
        "            except KeyboardInterrupt as error:",
    ),
    Break(
        "a plan waits for the last object",
        TYPES,
        "return min(waits, default=None)",
        "return max(waits, default=None)",
    ),
    Break(
        "a pass names the last object",
        "eviction/records/passes.py",
        "{min(waits):.0f} s",
        "{max(waits):.0f} s",
    ),
    Break(
        "stages wait for the last object",
        PASS_RECORDS,
        "=min((wait for wait",
        "=max((wait for wait",
    ),
    Break(
        "room for inodes is room for bytes",
        THRESHOLDS,
        "if not threshold.signal.counts_inodes\n        and",
        "if",
    ),
    Break(
        "a slow kubelet is none",
        HOLD_OFF,
        "kubelet.settimeout(LATE_SECONDS)",
        "kubelet.settimeout(0.001)",
    ),
    # ---- locks
    Break(
        "a detection brings back what was forgotten",
        RECORDS,
        "        with self._lock:\n            self._compare_clocks(now, wall_now)\n            if earlier",
        "        if True:\n            self._compare_clocks(now, wall_now)\n            if earlier",
    ),
    Break(
        "an ended pause is kept",
        "eviction/surface/pause.py",
        "        with self._lock:\n",
        "        if True:\n",
    ),
    # ---- files
    Break("anybody's file is trusted", TRUST, "    if trusts(status.st_uid):\n", "    if True:\n"),
    Break(
        "what every user may write is trusted",
        TRUST,
        "if status.st_mode & stat.S_IWOTH:",
        "if False:",
    ),
    # ---- caches and checkpoints
    Break(
        "what a process uses may go", UNITS, "if self._used.has(status, self._device):", "if False:"
    ),
    Break(
        "what was used since the plan may go",
        UNITS,
        "return found.problem or (",
        "return found.problem and (",
    ),
    Break(
        "another unit of the name may go",
        UNITS,
        "if found.identity != planned.identity:",
        "if False:",
    ),
    Break("any directory is a cache", CACHES, "== SIGNATURE", "!= b''"),
    Break(
        "a tag that has gone does not matter",
        CACHES,
        'return "" if is_tagged(tagged) else NOT_TAGGED',
        'return ""',
    ),
    Break(
        "what was used lately may go",
        CACHES,
        "young = age < settings.min_age_seconds",
        "young = False",
    ),
    Break(
        "not all processes need be seen",
        FILES_IN_USE,
        "if not _sees_all(runtime_path):",
        "if False:",
    ),
    Break("a checkpoint of a pod may go", CHECKPOINTS, "elif _is_of(of, pods):", "elif False:"),
    Break(
        "unknown pods are gone",
        CHECKPOINTS,
        "if states.doubt is not None or states.present is None:",
        "if False:",
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Returns 1 if a break was not noticed, 2 if one could not be made or a
    test fails without any.
    """
    asked = _parser().parse_args(arguments)
    chosen = [each for each in BREAKS if not asked.names or each.name in asked.names]
    for wrong in (name for name in asked.names if name not in {each.name for each in BREAKS}):
        print(f"no break is named {wrong!r}", file=sys.stderr)
        return 2
    if wrong := [problem for each in chosen if (problem := problem_of(each))]:
        print("\n".join(wrong), file=sys.stderr)
        return 2
    if failed := unbroken(RINGS[: asked.rings]):
        print(f"fails without any break: {failed[0]}", file=sys.stderr)
        return 2
    found: list[Noticed] = []
    for each in chosen:
        found.append(tried(each, RINGS[: asked.rings]))
        print(_line(found[-1]), flush=True)
        if asked.to is not None:
            asked.to.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
    missed = [one.name for one in found if not one.by]
    print(f"{len(found) - len(missed)} of {len(found)} breaks were noticed")
    print("\n".join(f"not noticed: {name}" for name in missed))
    return 1 if missed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.broken_rules")
    parser.add_argument("names", metavar="NAME", nargs="*", help="of breaks (all)")
    parser.add_argument(
        "--rings", type=int, default=len(RINGS), help="how many rings of tests run at most (all)"
    )
    parser.add_argument("--to", type=Path, help="a file for what was found, as JSON")
    return parser


def problem_of(each: Break) -> str:
    """Why a break cannot be made, as a sentence; empty: it can."""
    count = (ROOT / each.file).read_text().count(each.old)
    return (
        ""
        if count == 1
        else f"{each.name}: {each.file} has {each.old!r} {count} times, and not once"
    )


def tried(each: Break, rings: Sequence[Sequence[str]]) -> Noticed:
    """Makes the break in a copy, and runs one ring after the other until a test fails."""
    began = time.monotonic()
    own = [
        path
        for ring in ("tests/pure", "tests/sockets")
        for path in _folders(ring)
        if Path(path).name in each.file
    ]
    rings = (own, *rings) if own else rings
    with copied() as copy:
        broken = copy / each.file
        broken.write_text(broken.read_text().replace(each.old, each.new))
        failed: tuple[str, ...] = ()
        ran = 0
        while not failed and ran < len(rings):
            failed = failures(copy, rings[ran])
            ran += 1
    return Noticed(each.name, failed, ran, round(time.monotonic() - began, 1))


def _folders(ring: str) -> list[str]:
    """The folders of a ring, which have the names of rooms: their paths in the repository."""
    return sorted(f"{ring}/{path.name}" for path in (ROOT / ring).iterdir() if path.is_dir())


def unbroken(rings: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The tests that fail in a copy in which nothing is broken, of the
    first ring in which one does.
    """
    with copied() as copy:
        return next(filter(None, (failures(copy, ring) for ring in rings)), ())


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the repository, without what is made in it."""
    with tempfile.TemporaryDirectory(prefix="broken-") as directory:
        copy = Path(directory)
        copy.chmod(0o755)  # tests also run the program as another user
        for path in ROOT.iterdir():
            if path.is_dir() and not NOT_COPIED.fullmatch(path.name):
                shutil.copytree(path, copy / path.name, ignore=MADE_HERE)
            elif path.is_file():
                shutil.copy(path, copy)
        yield copy


def failures(copy: Path, ring: Sequence[str]) -> tuple[str, ...]:
    """The tests of a ring that fail in the copy; none if all pass.

    Programs that tests start run from it too.
    """
    environment = {**os.environ, "PYTHONPATH": str(copy), "PROPERTY_EXAMPLES": "25"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n",
        "2",
        "--dist",
        "loadfile",
        "-p",
        "no:cacheprovider",
    ]
    try:
        run = subprocess.run(
            [*command, *(f"--ignore={name}" for name in WHAT_PAGES_SAY), *ring],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ("it does not end",)
    lines = [
        line.split(" - ")[0]
        for line in run.stdout.splitlines()
        if line.startswith(("FAILED ", "ERROR "))
    ]
    return tuple(lines) or (() if run.returncode == 0 else (run.stdout[-300:] + run.stderr[-300:],))


def _line(found: Noticed) -> str:
    by = found.by[0] if found.by else "NOBODY"
    return f"{found.name}: {by} ({found.seconds:.0f} s)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

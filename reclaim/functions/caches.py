"""`DeleteFromCaches`: removes what has not been used for longest from directories that declare
themselves caches.

A directory is a cache if a `CACHEDIR.TAG` with the right signature lies in it
(https://bford.info/cachedir/): its owner says that what is in it can be made or fetched again.
Hugging Face's hub, uv, cargo, pip, ccache and others write one. Only tagged directories below the
configured roots count, and only whole *units* go: a model, an archive, a crate (`LAYOUTS`), else
whatever lies in the tagged directory itself.

How one goes: `units`.
"""

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import NamedTuple

from reclaim.evidence.files_in_use import FilesInUse, files_in_use
from reclaim.function import ReclaimFunction
from reclaim.functions.units import (
    HIDDEN,
    USED_LATELY,
    Unit,
    UnitStage,
    directory_of,
    examine_roots,
    measured,
)
from reclaim.pod_logs.directories import names_in, open_beneath, opened
from reclaim.pod_logs.names import printable
from reclaim.trust import identity_of
from reclaim.types import FileIdentity, Plan, Reason, ReclaimError, Runtime, Verdict
from signals.clock import Clock
from signals.mounts import read_mounts
from signals.types import FilesystemRole

CACHE_UNIT = "cache_unit"
NOT_TAGGED = "not_tagged"
REASONS = ("cached", "over_limit_of_cache", NOT_TAGGED)
"""Why a unit is removed or kept, besides those of `units`."""
TAG = b"CACHEDIR.TAG"
ENVIRONMENT = b"pyvenv.cfg"
SIGNATURE = b"Signature: 8a477f597d28d172789f06886806bc55"
LAYOUTS = (
    ("models--*", "datasets--*", "spaces--*"),  # Hugging Face's hub: a repository
    ("archive-v*/*",),  # uv: an unpacked wheel
    ("cache/*/*", "src/*/*"),  # cargo's registry: a crate, packed and unpacked
    ("*",),
)
"""Where units lie in a tagged directory: the first that fits something."""
DEEPEST = 16  # levels of directories below a root that may be tagged


class CacheSettings(NamedTuple):
    """`roots`: directories below which tagged ones are looked for. `min_age_seconds`: since the
    last use. `keep`: patterns of a unit's name, or of its path below its root. `max_bytes`: of all
    units below one root; what is over it goes first. 0: no limit."""

    roots: tuple[str, ...]
    min_age_seconds: float
    keep: tuple[str, ...] = ()
    max_bytes: int = 0


def delete_from_caches_function(
    name: str, settings: CacheSettings, frees: FilesystemRole
) -> ReclaimFunction:
    """The entry of the table. `frees`: the filesystem that holds the roots."""
    return ReclaimFunction(
        name,
        frees,
        (CACHE_UNIT,),
        stages=lambda context: (CacheUnits(settings, context.runtime, context.clock),),
        examine=lambda runtime, _: examine_roots(settings.roots, "what is in caches", runtime),
    )


# ---- the plan, from ages and sizes alone


def plan_cache_units(units: Iterable[Unit], settings: CacheSettings, now: float) -> Plan:
    """The plan for every unit: what was left behind, what is over the limit of its root, then the
    longest unused. `now`: wall seconds."""
    in_order = sorted(units, key=lambda unit: (unit.used_at, unit.id))
    excess = Counter[str]()
    for unit in in_order:
        excess[unit.root] += unit.size_bytes
    over = set[str]()
    for unit in in_order:
        if settings.max_bytes and excess[unit.root] > settings.max_bytes:
            excess[unit.root] -= unit.size_bytes
            over.add(unit.id)
    in_order.sort(key=lambda unit: (not unit.left_behind, unit.id not in over))

    def verdict_on(unit: Unit) -> Verdict:
        age = now - unit.used_at
        kept = any(
            fnmatchcase(name, pattern)
            for name in (unit.below, printable(unit.names[-1]))
            for pattern in settings.keep
        )
        young = age < settings.min_age_seconds and not unit.left_behind
        why = unit.problem or (Reason.KEEP_LIST if kept else USED_LATELY if young else "")
        goes = "over_limit_of_cache" if unit.id in over else "cached"
        return unit.verdict(CACHE_UNIT, why, goes, age=age, min_age=settings.min_age_seconds)

    return Plan.of(map(verdict_on, in_order))


# ---- reading


class CacheUnits(UnitStage):
    """The stage: the units of all tagged directories below the roots."""

    def __init__(self, settings: CacheSettings, runtime: Runtime, clock: Clock):
        super().__init__(runtime, clock)
        self._settings = settings
        self._tagged: dict[str, int] = {}  # by unit: how many of its names are the tagged one's

    def plan(self) -> Plan | None:
        """None if nothing below the roots is tagged. Raises ReclaimError."""
        used, overlays = files_in_use(self.runtime.runtime_path), layers_of_containers()
        for root in self._settings.roots:
            try:
                with opened(root) as directory:
                    for names in tagged_below(directory, overlays):
                        for unit in units_of(root, names, used):
                            self.units[unit.id] = unit
                            self._tagged[unit.id] = len(names)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise ReclaimError(f"{root} cannot be read: {error.strerror}") from error
        if not self.units:
            return None
        return plan_cache_units(self.units.values(), self._settings, self._clock.wall())

    def still_kept(self, unit: Unit) -> str:
        """Nothing, while it lies in a tagged directory."""
        with opened(unit.root, *unit.names[: self._tagged[unit.id]]) as tagged:
            return "" if is_tagged(tagged) else NOT_TAGGED


def is_tagged(directory: int) -> bool:
    """Whether a regular file CACHEDIR.TAG with the signature lies in an opened directory, and it is
    no environment of Python, which uv tags, too, and programs run from."""
    with suppress(OSError):
        os.lstat(ENVIRONMENT, dir_fd=directory)
        return False
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(TAG, flags, dir_fd=directory)
    except OSError:
        return False
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return regular and os.read(descriptor, len(SIGNATURE)) == SIGNATURE
    except OSError:
        return False
    finally:
        os.close(descriptor)


def layers_of_containers() -> frozenset[FileIdentity]:
    """The directories into which mounted overlays write: what lies there belongs to a container,
    which alone may change it (the kernel's Documentation/filesystems/overlayfs.rst)."""
    found = set()
    for mount in read_mounts():
        if mount.type == "overlay" and (upper := mount.option("upperdir")):
            with suppress(OSError):  # it cannot be reached
                found.add(identity_of(os.stat(upper)))
    return frozenset(found)


def tagged_below(
    directory: int, not_in: frozenset[FileIdentity], names: tuple[bytes, ...] = ()
) -> Iterator[tuple[bytes, ...]]:
    """The paths of tagged directories, from an opened one on, which may be tagged itself. What
    cannot be entered is left out, and so is what is tagged within a tagged one. Raises OSError if
    `directory` cannot be listed."""
    if identity_of(os.fstat(directory)) in not_in:
        return
    if is_tagged(directory):
        yield names
        return
    if len(names) == DEEPEST:
        return
    with os.scandir(directory) as entries:
        below = [
            os.fsencode(entry.name) for entry in entries if entry.is_dir(follow_symlinks=False)
        ]
    for name in sorted(below):
        with suppress(OSError):
            child = open_beneath(directory, name)
            try:
                yield from tagged_below(child, not_in, (*names, name))
            finally:
                os.close(child)


def units_of(root: str, names: tuple[bytes, ...], used: FilesInUse) -> Iterator[Unit]:
    """The units of a tagged directory below a root. Raises OSError if it cannot be listed."""
    fitting: list[tuple[bytes, ...]] = []
    with opened(root, *names) as tagged:
        for layout in LAYOUTS:
            fitting = [path for pattern in layout for path in _fitting(tagged, pattern.split("/"))]
            if fitting:
                break
    for path in fitting:
        unit = Unit(root, (*names, *path))
        with suppress(OSError), directory_of(unit) as directory:
            yield measured(directory, unit, used)


def _fitting(directory: int, patterns: Sequence[str]) -> Iterator[tuple[bytes, ...]]:
    """The paths beneath an opened directory that fit these patterns, a name each; and what an
    interrupted removal has left there."""
    for name in names_in(directory):
        last = len(patterns) == 1
        fits = fnmatchcase(os.fsdecode(name), patterns[0]) or (last and name.startswith(HIDDEN))
        if not fits or name == TAG:
            continue
        if last:
            mode = os.lstat(name, dir_fd=directory).st_mode
            if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
                yield (name,)
            continue
        with suppress(OSError):
            child = open_beneath(directory, name)
            try:
                for path in _fitting(child, patterns[1:]):
                    yield (name, *path)
            finally:
                os.close(child)

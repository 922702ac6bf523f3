"""The checks of doctor: facts of a node, and all that is printed of them (`doctor.txt`)."""

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from eviction.cli.doctor import lines
from eviction.configuration.effective import Configuration, load
from eviction.doctor import checks
from eviction.doctor.checks import CHECKS, examine
from eviction.doctor.facts import Facts, Runtime
from eviction.survey.filesystem_facts import filesystem_facts
from eviction.survey.space import Cache
from eviction.types import Threshold
from eviction.wording.configuration_warnings import Finding, Severity
from reclaim.evidence.states import Distrust, Why
from reclaim.kubelet.pull_records import PullRecords, record_names
from reclaim.types import ImageRecord, Listing, RuntimeVersion
from signals.mounts import Mount
from signals.quantity import parse_quantity
from signals.types import (
    FilesystemIdentity,
    FilesystemRole,
    FsLayout,
    FsStats,
    Signal,
    SignalObservations,
    Unavailable,
)
from tests.expected import expect
from tests.pure.values import (
    GIB,
    NOW_NS,
    container,
    image,
    observation,
    observations_of,
    threshold,
)

NODEFS, IMAGEFS = FilesystemRole.NODEFS, FilesystemRole.IMAGEFS
SIGNALS = (Signal.NODEFS_AVAILABLE, Signal.IMAGEFS_AVAILABLE)
CACHE = Signal("buildcache.available")
STORES = "/var/lib/containerd/io.containerd.snapshotter.v1"
KUBELET = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}


def filesystem(**fields: int) -> FsStats:
    """10 GiB, half of it available, no reserve; `fields` replace values."""
    usual = {"available_bytes": 5 * GIB, "free_bytes": 5 * GIB, "capacity_bytes": 10 * GIB}
    return FsStats(**{**usual, "inodes_free": 500, "inodes_total": 1000, **fields}, time=0.0)


def seen(kind: str = "ext4", **fields: int) -> SignalObservations:
    """Both filesystems on one device; `fields` replace values of it."""
    stats = filesystem(**fields)
    observations = [observation(signal, stats.available_bytes, 10 * GIB) for signal in SIGNALS]
    filesystems = {
        role: (FilesystemIdentity(f"/{role}", 1, "/dev/sda", kind), stats)
        for role in (NODEFS, IMAGEFS)
    }
    return observations_of(*observations)._replace(filesystems=filesystems)


def marks(*texts: str) -> tuple[Threshold, ...]:
    return tuple(threshold(signal, text) for signal, text in zip(SIGNALS, texts, strict=False))


SEEN, MARKS = seen(), marks("15%", "15%")
PAUSE, APP = image(1, "registry.k8s.io/pause:3.10", pinned=True), image(2, "registry.example/app:1")
LISTING = Listing((PAUSE, APP), (container("c", references=(APP.id,)),))
SIDE_LOADED = {
    APP.id: ImageRecord(0.0, 5.0, pulled=False),
    PAUSE.id: ImageRecord(0.0, pulled=False),
}
OF_GONE_IMAGES = PullRecords(frozenset().union(*map(record_names, (image(2), image(7), image(8)))))


def configured(thresholds: tuple[Threshold, ...] = MARKS, **fields: object) -> Configuration:
    """Beside no kubelet; these marks are in force whatever the fields say."""
    return load(None, {}, fields).model_copy(update={"thresholds": thresholds})


def at_endpoint(mode: int, owner: int = 0) -> os.stat_result:
    return os.stat_result((stat.S_IFSOCK | mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))


RUNTIME = Runtime(
    RuntimeVersion("containerd", "2.1.4"),
    LISTING,
    "registry.k8s.io/pause:3.10",
    records={APP.id: ImageRecord(0.0, 5.0, pulled=True)},
    pulls=PullRecords(record_names(APP)),
)
IN_ORDER: dict[str, Any] = {
    "configuration": configured(),
    "observations": SEEN,
    "wall": NOW_NS / 1e9,
    "runtime": RUNTIME,
    "socket": at_endpoint(0o660),
    "imagefs": f"{STORES}.overlayfs",
    **yaml.safe_load("""
        filesystems: []
        xfs_hints: {}
        caches: []
        buildkitd: {}
        runtime_problem: ""
        endpoint: /s
        snapshotters: {overlayfs: 40, native: 0}
        content_device: 1
        function_problems: []
        unwritable: {}
        symlinks: {}
        inotify_limit: 1024
        inotify_used: 12
        history_problem: ""
        daemon_problem: ""
        daemon: {}
        installed: true
    """),
}


def node(**fields: Any) -> Facts:
    """A node in order, of which everything is known; `fields` replace facts, also those of the
    runtime."""
    of_runtime = {name: fields.pop(name) for name in list(fields) if name in Runtime._fields}
    return Facts(**{**IN_ORDER, "runtime": RUNTIME._replace(**of_runtime), **fields})


def unknown(**fields: Any) -> Facts:
    """A node whose runtime is down, and of which nothing was read."""
    nothing = dict.fromkeys(("socket", "imagefs", "content_device", "inotify_limit"))
    usual = {
        "observations": observations_of(),
        "runtime": Runtime(),
        "endpoint": "",
        "snapshotters": {},
    }
    return node()._replace(**{**nothing, **usual, "inotify_used": 0, **fields})


def of_mount(text: str, observations: SignalObservations = SEEN) -> Any:
    """What is said of both filesystems, by the type and the options of their mount."""
    kind, *options = text.split() or [""]
    mounts = {"/nodefs": Mount("/", "8:1", kind, "/dev/sda", tuple(options))} if kind else {}
    return filesystem_facts(observations, mounts)


FACTS: dict[str, Callable[[Any], Any]] = {
    "version": lambda text: RuntimeVersion(*text.split(" ")),
    "socket": lambda words: at_endpoint(*words),
    "filesystems": of_mount,
    "caches": lambda found: [Cache(*each) for each in found],
    "pulls": lambda problem: PullRecords(problem=problem),
    "records": lambda _: SIDE_LOADED,
}
"""Facts that a table writes in another way."""


def told(path: Path, what: dict[str, Any]) -> Facts:
    """A node in order but for what a table says: `seen` of both filesystems, `marks` that are in
    force, what is `configured` of ours and of the `kubelet`, `rows`, or other facts."""
    layout: Any = {"layout": FsLayout(what["layout"])} if what.get("layout") else {}
    if "rows" in what:
        return with_rows(**{**what, **layout})
    fields: dict[str, Any] = {
        name: FACTS.get(name, lambda fact: fact)(fact) for name, fact in what.items()
    }
    given = fields.pop("configured", {})
    if "kubelet" in what:
        path.write_text(yaml.safe_dump({**KUBELET, **fields.pop("kubelet")}))
        given = {**given, "kubeletConfig": str(path)}
    configuration = configured(marks(*fields.pop("marks", ("15%", "15%"))), **given)
    remark = {"kubelet_remark": fields.pop("remark")} if "remark" in what else {}
    fields["configuration"] = configuration.model_copy(update=remark)
    amounts: Any = {
        name: int(parse_quantity(str(each))) for name, each in fields.pop("seen", {}).items()
    }
    observed = seen(**amounts)
    if "unavailable" in what:
        role, problem = fields.pop("unavailable").split(": ")
        layout["unavailable"] = (Unavailable(FilesystemRole(role), problem),)
    fields.pop("layout", None)
    if (observed := observed._replace(**layout)) != SEEN:
        fields["observations"] = observed
    return unknown(**fields) if fields.pop("unknown", False) else node(**fields)


def holding(*references: str, age_seconds: float = 3600.0) -> Facts:
    """With one container: what it says of its image, and how long ago it was created."""
    one = container("4711", references=references, age_seconds=age_seconds)
    return node(listing=LISTING._replace(containers=(one,)))


def with_rows(
    rows: Mapping[str, list[str]], frees: str = "nodefs", mark: str = "", **observed: Any
) -> Facts:
    """With a disk for a cache, these rows, and a program `prune`; `observed` replaces
    observations."""
    configuration = configured(
        (*MARKS, threshold(CACHE, mark)) if mark else MARKS,
        filesystems=[{"name": "buildcache", "path": "/buildcache"}],
        reclaimFunctions=[{"name": "prune", "exec": ["/bin/true"], "frees": frees}],
        reclaimTable=rows,
    )
    cache = FilesystemIdentity("/buildcache", 2, "/dev/sdb", "ext4"), filesystem()
    signals = {**SEEN.signals, CACHE: observation(CACHE, 5 * GIB, 10 * GIB)}
    filesystems = {**SEEN.filesystems, CACHE.filesystem: cache}
    observations = SEEN._replace(signals=signals, filesystems=filesystems)
    return node(configuration=configuration, observations=observations._replace(**observed))


SOUND = """
- {}
- {rows: {buildcache.available: [prune]}, frees: buildcache, mark: 15%}
- {configured: {keepImagesNotPulled: auto}, pulls: no such directory}
- {version: cri-o 2.0.1}
- {version: containerd 1.7.24}
- {version: containerd 2.0.5}
- {version: containerd v2.3.4}
- {version: containerd 2.0.40}
- {version: "containerd "}
- {version: containerd unknown}
- {filesystems: ext4 rw relatime}
- {filesystems: zfs rw}
- {filesystems: ""}
"""


def test_a_sound_node_has_no_findings(tmp_path: Path) -> None:
    """Nothing wrong, nothing risky, nothing to note; of what is not known, and of one whose runtime
    is down, no guesses."""
    kept: dict[str, Any] = {"keepImages": ["registry.example/ap"], "keepImagesNotPulled": True}
    side_loaded = Runtime(records=SIDE_LOADED)
    for facts in (
        unknown(configuration=configured(**kept)),
        unknown(runtime=side_loaded, observations=observations_of()._replace(layout=None)),
        *(told(tmp_path, what) for what in yaml.safe_load(SOUND)),
    ):
        found = examine(facts)
        assert (found.findings, found.healthy) == ((), True)
        assert lines(found.findings) == ["nothing wrong or risky was found"]


PLAIN = """
the runtime is down: {unknown: true, runtime_problem: no connection}
so is a reading, which has no finding of its own: {unknown: true, runtime_problem: no connection, unavailable: "imagefs: no connection"}
a reading failed: {unavailable: "nodefs: no answer within 2 s"}
no mark, and no runtime: {unknown: true, marks: []}
a clock before any release: {unknown: true, wall: 1735689599}
by the daemon: {daemon: {pod_directories: {why: exchanged, sentence: it was exchanged}}}
nobody collects a cache: {caches: [["/var/lib/kubelet/pods/u1/volumes/kubernetes.io~empty-dir/hub", 12884901888, 1]]}
several kubelets: {kubelet: {}, remark: several kubelets run here}
several, and none is taken: {remark: several kubelets run here}
a kubelet that gives up on split filesystems: {kubelet: &off {featureGates: {KubeletSeparateDiskGC: false}}, version: cri-o 1.36.0, layout: split}
not where it sees no split: {kubelet: *off, version: cri-o 1.36.0}
nor beside containerd: {kubelet: *off, layout: split}
every user may connect: {socket: [0666]}
another user owns the socket: {socket: [0600, 1000]}
space comes late: {version: containerd 2.0.0}
up to this version: {version: containerd v2.0.4}
of any build: {version: containerd 2.0.4+k3s1}
one mark of two: {marks: [15%]}
no mark: {marks: []}
a mark above the capacity: {marks: [11Gi]}
marks of 0, which no pressure meets: {marks: [0%, 0%], seen: {available_bytes: 1Gi}}
a kubelet's mark of a few bytes: {kubelet: {evictionHard: {nodefs.available: '10', imagefs.available: 5%}}}
marks later than the kubelet's, whose image GC is off: {kubelet: {evictionHard: {nodefs.available: 20%}, imageGCHighThresholdPercent: 100}}
marks before it: {marks: [25%, 25%], kubelet: {evictionHard: {nodefs.available: 20%}, imageGCHighThresholdPercent: 100}}
no inodes are counted: {seen: {inodes_free: 0, inodes_total: 0}}
a reserve for root: {seen: {free_bytes: 5320Mi}}
only the reserve is left: {seen: {available_bytes: 0, free_bytes: 1Mi}}
pressure: {seen: {available_bytes: 1Gi}}
pressure, not below the kubelet's mark: {seen: {available_bytes: 1Gi}, kubelet: {evictionHard: {nodefs.available: 1Mi}}}
pressure, below it: {seen: {available_bytes: 1Gi}, kubelet: {evictionHard: {nodefs.available: 2Gi}}}
the store is elsewhere: {imagefs: /var/lib/containerd/io.containerd.snapshotter.v1.devmapper}
an entry keeps nothing: {configured: {keepImages: [registry.example/ap]}}
what no kubelet pulled, kept to the last: {configured: {keepImagesNotPulled: auto}, records: side-loaded}
kept always: {configured: {keepImagesNotPulled: true}, records: side-loaded}
kept never: {configured: {keepImagesNotPulled: false}, records: side-loaded}
it is to be kept, and is not known: {configured: {keepImagesNotPulled: true}, pulls: no such directory}
the kubelet refuses: {configured: {kubeletEndpoint: 'http://127.0.0.1:10255'}, pod_list_problem: 401 Unauthorized}
a row is empty: {rows: {nodefs.available: []}}
of a layout, too: {rows: {}, layout: dedicated-imagefs}
a row without a mark: {rows: {buildcache.available: [prune]}}
a row that frees elsewhere: {rows: {buildcache.available: [prune]}, mark: 15%}
on the same device: {rows: {nodefs.available: [prune]}, frees: imagefs}
there is no row to judge yet: {rows: {}, layout: null}
XFS takes ahead: {filesystems: xfs rw}
not where allocsize is set: {filesystems: xfs rw allocsize=64k}
nothing limits BuildKit's cache: {buildkitd: {worker: {oci: {reservedSpace: 20GB}}}}
something does: {buildkitd: {worker: {oci: {reservedSpace: 20GB, maxUsedSpace: 60GB}}}}
a read-only mount: {filesystems: ext4 ro}
a tmpfs: {filesystems: tmpfs rw}
few inotify instances: {inotify_limit: 128}
few are left: {inotify_used: 1000}
a second snapshotter: {snapshotters: {native: 3}}
content on another device: {content_device: 2}
a dead clock: {wall: 1000.0}
a read-only directory: {unwritable: {/var/log/pods: read-only}}
a symlink: {symlinks: {podLogsDir: /proc/self/cwd}}
no history: {history_problem: '/h is left alone: it is not a regular file'}
the kubelet is not found: {pod_list_problem: no way was found}
terminated pods hold space: {held: '90.0MiB; images: 3'}
no daemon answers: {daemon_problem: no daemon answers}
none is installed: {daemon_problem: no daemon answers, installed: false}
it is paused: {daemon: {held_off: paused until 2027}}
it removes nothing: {daemon: {dry_run: true}}
it was not reloaded: {daemon: {reload_problem: 'not reloaded: no such field'}}
a function cannot run: {function_problems: [[prune, it does not exist]]}
all at once, the worst first: {unwritable: {/v: read-only}, inotify_limit: 128, runtime_problem: no connection}
"""


def nodes(path: Path) -> dict[str, Facts]:
    """What is wrong, risky or worth a note; one name for each, and where it is not by chance, why
    nothing else is said."""
    unpinned, unseen = PAUSE._replace(pinned=False), {"kubelet_remark": "no kubelet is seen"}
    return {
        "the sandbox image is not known": node(listing=Listing(), sandbox_image=None),
        "it is not pinned": node(listing=LISTING._replace(images=(unpinned, APP))),
        "it is not there": node(listing=Listing()),
        "an image cannot be told": holding(),
        "records of images that have gone": node(pulls=OF_GONE_IMAGES),
        "a container of the future": holding(APP.id, age_seconds=-3600.0),
        "no kubelet is seen": node(configuration=load(None, {}, {}).model_copy(update=unseen)),
        "directories are not believed": node(doubt=Distrust(Why.EXCHANGED, "it was exchanged")),
        "XFS, while its options are not known": node(filesystems=of_mount("", seen("xfs"))),
        **{name: told(path, what) for name, what in yaml.safe_load(PLAIN).items()},
    }


def test_each_check_makes_its_finding(tmp_path: Path) -> None:
    """With its level, what was seen, and what to do; the worst first, and the count at the end."""
    shown = []
    for name, facts in nodes(tmp_path / "kubelet.yaml").items():
        found = examine(facts).findings
        shown += [f"# {name}", *lines(found), ""]
        assert examine(facts).healthy is ({finding.level for finding in found} <= {Severity.NOTE})
        assert all(finding.sentence and finding.evidence and finding.remedy for finding in found)
    expect(Path(__file__).with_name("doctor.txt"), "\n".join(shown).replace(str(tmp_path), "/etc"))


def test_control_characters_do_not_reach_the_terminal() -> None:
    """A keep-list entry may hold anything."""
    shown = lines((Finding("keep-unmatched", "s", "\x1b[2J\n", remedy="r", level=Severity.RISK),))
    assert all(line.isprintable() for line in shown)


def test_every_check_is_in_the_tuple() -> None:
    """Every function of the module that takes facts, but the one that runs them all."""
    takes_facts = {
        one
        for one in vars(checks).values()
        if getattr(one, "__annotations__", {}).get("facts") == "Facts"
    }
    assert takes_facts - {examine} <= set(CHECKS)

"""What a node is made of: its reclaim functions, what shows which objects are used, what measures
where its bytes are, and how many threads it has. Making it does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple, assert_never, cast

from eviction.configuration.effective import Configuration
from eviction.configuration.file import FunctionEntry, FunctionKind
from eviction.configuration.kubelet_ways import asking_for_pods
from eviction.engine.effects import Refreshed
from eviction.engine.view import NodeView
from eviction.engine.world import SELDOM_SECONDS
from eviction.survey.space import ASK_SECONDS, DiskSurvey, Places
from eviction.types import Extent
from reclaim.containers.plan import ContainerGCPolicy
from reclaim.cri.client import CriClient
from reclaim.cri.containers_storage import store_of, stored_at, stored_layers
from reclaim.cri.inventory import GivenUp, Inventory
from reclaim.evidence.directories import KubeletDirectories
from reclaim.evidence.starts import PartAges, parts_of_pods
from reclaim.evidence.states import Distrust
from reclaim.function import Policies, ReclaimFunction
from reclaim.functions.containerd_garbage import HeldLayers, brought_at, clocks_at_start
from reclaim.functions.table import FUNCTIONS, FunctionTable, table_of
from reclaim.images.plan import ImageGCPolicy
from reclaim.images.records import ImageRecords, Returned
from reclaim.kubelet.pods import KubeletPods
from reclaim.kubelet.pull_records import PullRecords
from reclaim.kubelet.versions import SAYS_USAGE
from reclaim.removals import limit_in_flight
from reclaim.types import Container, Layers, RuntimeUnavailable
from reclaim.workers import Workers
from signals.clock import Clock

# workers besides those that remove: plans of passes and dry runs, a refresh, and some that hang
READERS = 4

Log = Callable[[str, str], None]
"""Takes the name of a function, and a line that its program prints."""


def at_work_at_once(parallel: int) -> int:
    """How many workers there are before they are needed: for the removals of an urgent pass, and
    two that read. More are started when they are needed; what finds none waits if none can be."""
    return max(limit_in_flight(parallel) + 2, most_at_work(1))


def most_at_work(parallel: int) -> int:
    """How many workers there are at most: for urgent removals, late ones, and those that read."""
    return limit_in_flight(parallel) + parallel + 1 + READERS


# ---- the reclaim functions


def policies_of(configuration: Configuration) -> Policies:
    """With `extent: all`, as the kubelet does, our stricter guards are off."""
    return Policies(
        ContainerGCPolicy(
            min_age_seconds=configuration.minimum_container_ttl_seconds,
            max_per_pod_container=configuration.maximum_dead_containers_per_container,
            max_containers=configuration.maximum_dead_containers,
            cautious=configuration.extent is not Extent.ALL,
        ),
        ImageGCPolicy(
            min_age_seconds=configuration.image_minimum_gc_age_seconds,
            max_age_seconds=configuration.image_maximum_gc_age_seconds,
            high_threshold_percent=configuration.image_gc_high_threshold_percent,
            low_threshold_percent=configuration.image_gc_low_threshold_percent,
            keep=configuration.keep_images,
            keep_not_pulled=configuration.keep_images_not_pulled,
            pod_start_seconds=configuration.pod_start_seconds,
            keep_newest_per_repository=configuration.keep_newest_per_repository,
            says_usage=configuration.kubelet_version.has(SAYS_USAGE),
            order=configuration.image_order,
        ),
    )


def functions_of(configuration: Configuration, log: Log) -> FunctionTable:
    """The built-in ones, and those that the configuration names, by name."""
    if not configuration.functions:  # as on most nodes, which do not load what makes them
        return FUNCTIONS
    own = [
        made(entry, configuration.root_directory, log)._replace(
            cooldown_seconds=entry.cooldown_seconds
        )
        for entry in configuration.functions
    ]
    return table_of(*FUNCTIONS.values(), *own)


def made(entry: FunctionEntry, root_dir: str, log: Log) -> ReclaimFunction:
    """A function of the configuration. `root_dir`: the kubelet's."""
    from reclaim.functions.ballast import BallastSettings, release_ballast_function
    from reclaim.functions.caches import CacheSettings, delete_from_caches_function
    from reclaim.functions.checkpoints import CheckpointSettings, delete_checkpoints_function
    from reclaim.functions.containerd_garbage import collect_garbage_function
    from reclaim.functions.rotated_logs import delete_rotated_logs_function
    from reclaim.program.function import Program, ProgramUser, program_function

    name = entry.name
    frees = entry.frees
    match entry.kind:
        case FunctionKind.PROGRAM:
            program = Program(
                name,
                entry.argv,
                entry.timeout_seconds,
                log=partial(log, name),
                user=None if entry.user is None else ProgramUser(*entry.user),
                asks_plan=entry.asks_plan,
            )
            return program_function(program, frees)
        case FunctionKind.BALLAST:
            settings = BallastSettings(entry.path, entry.size_bytes)
            return release_ballast_function(name, settings, frees)
        case FunctionKind.ROTATED_LOGS:
            return delete_rotated_logs_function(name, cast(int, entry.keep), frees)
        case FunctionKind.CONTAINERD_GARBAGE:
            return collect_garbage_function(name, entry.timeout_seconds, frees)
        case FunctionKind.CACHES:
            caches = CacheSettings(
                entry.caches,
                entry.min_age_seconds,
                cast(tuple[str, ...], entry.keep),
                entry.max_size_bytes,
            )
            return delete_from_caches_function(name, caches, frees)
        case FunctionKind.CHECKPOINTS:
            checkpoints = CheckpointSettings(root_dir, entry.min_age_seconds, cast(int, entry.keep))
            return delete_checkpoints_function(name, checkpoints, frees)
        case _:
            assert_never(entry.kind)


# ---- what shows which objects are used


class ImageStore:
    """What the store of images says beside CRI: containerd over its own services, CRI-O by its
    files. Of whichever runtime answers at the time, where it says that its images are.
    """

    def __init__(self, view: NodeView):
        self._view = view
        self._held = HeldLayers(view.client)

    def layers(self, left: Callable[[], float]) -> Layers | None:
        """What each image holds on the disk; None if that is not known.

        `left`: how many seconds there are to ask.
        """
        return self._held.read(left) or stored_layers(self._imagefs)

    def pulled_at(self) -> Mapping[str, float]:
        """When each image was last pulled: wall seconds by image id. Empty if that is not known."""
        return brought_at(self._view.client) or stored_at(self._imagefs)

    def clocks_at_start(self) -> tuple[float, float] | None:
        """How many seconds ago the runtime started, and the wall time then;
        None if that is not known.
        """
        return clocks_at_start(self._view.client.runtime_path)

    @property
    def _imagefs(self) -> str:
        return self._view.summary.paths.imagefs or ""


class Detection(NamedTuple):
    """Keeps the image records, the layers of images and the ages of pods' parts up to date.

    May block.
    """

    inventory: Inventory
    pods: KubeletPods
    records: ImageRecords
    part_ages: PartAges
    clock: Clock

    def refresh(self, something_urgent: Callable[[], bool]) -> Refreshed:
        """Pods and images, until something more urgent comes, until the next is due at
        most. Who uses them takes a call for each container on some runtimes, minutes for
        thousands of them: the next one does not ask again about those already answered for,
        and a pass asks for itself."""
        began = self.clock.monotonic()

        def goes_on() -> bool:
            return self.clock.monotonic() - began < SELDOM_SECONDS and not something_urgent()

        try:
            self.compare_pods()
            self.images(goes_on)
        except GivenUp:
            return Refreshed(given_up=True)
        except RuntimeUnavailable as error:
            return Refreshed(str(error))
        return Refreshed()

    def images(self, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Lists images and who uses them. `goes_on`: checked from time to time; once it is false,
        GivenUp is raised. Raises RuntimeUnavailable."""
        detected_at = self.clock.monotonic()
        wall = self.clock.wall()
        evidence = self.inventory.snapshot(detected_at, goes_on)
        listing = evidence.listing
        # an older list must not bring back the record of an image that a pass has removed meanwhile
        if not goes_on():
            raise GivenUp("something more urgent has begun")
        self.records.update(
            listing.images,
            evidence.usage.ids,
            detected_at,
            wall_now=wall,
            containers=listing.containers,
        )
        directories = self.pods.pod_directories() or {}
        self.part_ages.ages(parts_of_pods(listing.containers, listing.sandboxes, directories))
        self.inventory.learn_layers(listing.images, goes_on)

    def compare_pods(self) -> Distrust | None:
        """Compares the kubelet's directories with what the runtime holds now.

        Raises RuntimeUnavailable.
        """
        return self.inventory.pods_and_containers(self.clock.monotonic())[0].doubt


def detection_of(
    view: NodeView,
    directories: KubeletDirectories,
    workers: Workers,
    *,
    records: ImageRecords | None,
    on_return: Callable[[Returned], None],
    pulls: Callable[[Iterable[Container]], PullRecords],
) -> Detection:
    """What keeps up to date who uses the images of a node, and which pods exist. `records`, and if
    there are none yet, `on_return` and `pulls`: as for `ImageRecords`."""
    configuration = view.first_configuration
    client = view.client
    store = ImageStore(view)
    ask = asking_for_pods(configuration.kubelet_access, view.clock, configuration.kubelet_version)
    pods = KubeletPods(directories, view.clock, ask)
    inventory = Inventory(client, pods, clock=view.clock, read_layers=store.layers, workers=workers)
    records = records or ImageRecords(
        store.pulled_at, earlier=store.clocks_at_start, on_return=on_return, pulls=pulls
    )
    part_ages = PartAges(view.clock)
    return Detection(inventory, pods, records, part_ages=part_ages, clock=view.clock)


# ---- where its bytes are


def survey_of(view: NodeView, pods: KubeletPods, directories: KubeletDirectories) -> DiskSurvey:
    """What measures the directories of the kubelet and of the runtime, as far as it has been
    located."""

    def places() -> Places:
        configuration = view.configuration
        paths = view.summary.paths
        stores = tuple(map(store_of, filter(None, (paths.imagefs, paths.containerfs))))
        caches = tuple(path for entry in configuration.functions for path in entry.caches)
        frees = {entry.name: entry.frees for entry in configuration.functions}
        return Places(
            configuration.root_directory, configuration.pod_logs_dir, stores, caches, frees
        )

    def service() -> CriClient | None:
        if not view.configuration.has_runtime:
            return None
        return CriClient(view.endpoint.runtime, view.endpoint.image, ASK_SECONDS)

    return DiskSurvey(
        view.summary.observe,
        places,
        lambda: pods.marked(directories.pod_states()),
        service=service,
        clock=view.clock,
    )

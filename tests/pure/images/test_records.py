"""What is remembered of images: first seen, last used, and who can testify to an age."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.containers.policy import ContainerGCPolicy
from reclaim.execution.executor import Executor
from reclaim.execution.stages import never_relieved
from reclaim.functions import Collector, Policies, ReclaimContext
from reclaim.images.plan import ImageGCPolicy
from reclaim.images.records import ImageRecords, containerd_witness
from reclaim.pod_logs.names import LogPaths
from reclaim.types import ImageRecord, Reason, Result
from tests.pure.memory_runtime import MemoryPods, MemoryRuntime
from tests.pure.values import SteppedClock, SteppedEvent, image, image_id

NONE: frozenset[str] = frozenset()
ONE, TWO = image_id(1), image_id(2)


def test_a_new_image_is_first_seen_now_and_never_used() -> None:
    """Unknown is young."""
    assert ImageRecords().update([image(1)], NONE, 100.0, 5000.0) == {ONE: ImageRecord(100.0, None)}


def test_first_detected_is_kept_and_last_used_moves() -> None:
    """Seen at 100 s, used until 200 s, unused at 300 s."""
    records = ImageRecords()
    records.update([image(1)], NONE, 100.0, 0.0)
    assert records.update([image(1)], frozenset({ONE}), 200.0, 0.0) == {ONE: ImageRecord(100.0, 200.0)}
    assert records.update([image(1)], NONE, 300.0, 0.0) == {ONE: ImageRecord(100.0, 200.0)}
    assert records.records == {ONE: ImageRecord(100.0, 200.0)}


def test_an_image_that_comes_back_starts_a_new_age() -> None:
    """Removed and pulled again it is new."""
    records = ImageRecords()
    records.update([image(1), image(2)], frozenset({ONE}), 100.0, 0.0)
    assert records.update([image(2)], NONE, 200.0, 0.0) == {TWO: ImageRecord(100.0)}
    assert records.update([image(1), image(2)], NONE, 300.0, 0.0)[ONE] == ImageRecord(300.0)


def test_what_is_in_use_but_not_listed_gets_no_record() -> None:
    """Records are those of the listed images."""
    assert ImageRecords().update([], frozenset({ONE}), 100.0, 0.0) == {}


def test_one_id_listed_twice_is_one_record() -> None:
    """As in the kubelet."""
    records = ImageRecords()
    assert records.update([image(1, "a:1"), image(1, "b:1")], NONE, 5.0, 0.0) == {ONE: ImageRecord(5.0)}


def test_a_seed_is_what_was_remembered_before() -> None:
    """A record that survived keeps its times; the seed itself is not changed."""
    seed = {ONE: ImageRecord(-50.0, -10.0)}
    records = ImageRecords(seed=seed)
    records.update([image(1)], frozenset({ONE}), 100.0, 0.0)
    assert records.records == {ONE: ImageRecord(-50.0, 100.0)}
    assert seed == {ONE: ImageRecord(-50.0, -10.0)}


KATA = image(1)._replace(runtime_handler="kata")


@pytest.mark.regression
def test_each_runtime_handler_of_one_id_has_a_record() -> None:
    """As in the kubelet (getImageTuple). A container's use is known by the id, so it counts for both."""
    records = ImageRecords()
    records.update([image(1)], NONE, 5.0, 0.0)
    both = {ONE: ImageRecord(5.0, 9.0), f"{ONE},kata": ImageRecord(9.0, 9.0)}
    assert records.update([image(1), KATA], frozenset({ONE}), 9.0, 0.0) == both
    assert records.update([KATA], NONE, 10.0, 0.0) == {f"{ONE},kata": ImageRecord(9.0, 9.0)}
    records.forget([ONE])
    assert records.records == {}


@pytest.mark.regression
def test_a_witness_of_an_id_says_nothing_of_an_entry_that_is_added_to_it() -> None:
    """It has seen the first pull; the one for another runtime handler is new, whether or not the first is still there.
    Of two that are seen for the first time together neither is known to be the old one."""
    records = ImageRecords(witness=lambda _: 4000.0)
    records.update([image(1)], NONE, 100.0, 5000.0)
    assert records.update([image(1), KATA], NONE, 200.0, 5100.0)[f"{ONE},kata"] == ImageRecord(200.0)
    records.update([image(2)], NONE, 300.0, 5200.0)
    others = [image(2)._replace(runtime_handler="kata")]
    assert records.update(others, NONE, 400.0, 5300.0) == {f"{TWO},kata": ImageRecord(400.0)}
    together = ImageRecords(witness=lambda _: 4000.0).update([image(1), KATA], NONE, 100.0, 5000.0)
    assert together == {ONE: ImageRecord(100.0), f"{ONE},kata": ImageRecord(100.0)}


@pytest.mark.parametrize(
    ("witnessed", "first_detected"), [(None, 100.0), (4000.0, -900.0), (5000.0, 100.0), (9000.0, 100.0)]
)
def test_a_witness_makes_an_image_as_old_as_it_provably_is(witnessed: float | None, first_detected: float) -> None:
    """There for 1000 s, it was first seen 1000 s ago; a time in the future makes it no younger than now."""
    records = ImageRecords(witness=lambda _: witnessed)
    assert records.update([image(1)], NONE, 100.0, 5000.0) == {ONE: ImageRecord(first_detected)}


def test_a_witness_is_asked_once_for_each_image() -> None:
    """What is known by record needs no witness."""
    asked: list[str] = []

    def witness(asked_id: str) -> float | None:
        asked.append(asked_id)
        return None

    records = ImageRecords(witness)
    for now in (1.0, 2.0, 3.0):
        records.update([image(1), image(2)], NONE, now, 0.0)
    assert asked == [ONE, TWO]


def test_a_copy_of_the_records_is_given_out() -> None:
    """Changing the answer changes no record."""
    records = ImageRecords()
    answer = dict(records.update([image(1)], NONE, 1.0, 0.0))
    answer.clear()
    assert ONE in records.records


def test_a_removed_image_that_is_pulled_again_before_the_next_detection_starts_a_new_age() -> None:
    """Without that it would be as old as the one that was removed, and could go at once again."""
    records = ImageRecords()
    records.update([image(1)], frozenset({ONE}), 100.0, 0.0)
    records.forget([ONE, TWO])
    assert records.records == {}
    assert records.update([image(1)], NONE, 900.0, 0.0) == {ONE: ImageRecord(900.0)}


def test_a_look_that_began_earlier_forgets_nothing_and_sets_nothing_back() -> None:
    """Two passes at a time: the one that listed before a pull reports after the one that saw the new image used."""
    records = ImageRecords()
    records.update([image(1), image(2)], frozenset({ONE, TWO}), 200.0, 0.0)
    expected = {ONE: ImageRecord(200.0, 200.0), TWO: ImageRecord(200.0, 200.0)}
    assert records.update([image(1)], frozenset({ONE}), 150.0, 0.0) == expected
    assert records.update([image(1)], NONE, 250.0, 0.0) == {ONE: ImageRecord(200.0, 200.0)}


def test_a_record_that_a_late_look_confirmed_is_not_forgotten_by_an_earlier_one() -> None:
    """An old image, seen at 300 s, is missing in a list of 250 s: that list is not the newest word."""
    records = ImageRecords(witness=lambda _: 0.0)
    records.update([image(1)], NONE, 300.0, 1000.0)
    records.update([image(1)], NONE, 200.0, 900.0)
    assert records.update([], NONE, 250.0, 950.0) == {ONE: ImageRecord(-700.0)}
    assert records.update([], NONE, 301.0, 1001.0) == {}


def test_what_was_brought_back_keeps_its_times_until_it_is_no_longer_listed() -> None:
    """After a restart: the first detection confirms one image and forgets the other."""
    records = ImageRecords()
    records.restore({ONE: ImageRecord(-500.0, -100.0), TWO: ImageRecord(-500.0)})
    assert records.update([image(1)], NONE, 10.0, 5000.0) == {ONE: ImageRecord(-500.0, -100.0)}


def test_what_this_process_knows_is_not_overwritten_by_what_is_brought_back() -> None:
    """A file that is read late brings back only what is not known."""
    records = ImageRecords()
    records.update([image(1)], NONE, 10.0, 5000.0)
    records.restore({ONE: ImageRecord(-500.0), TWO: ImageRecord(-500.0)})
    assert records.records == {ONE: ImageRecord(10.0), TWO: ImageRecord(-500.0)}


@pytest.mark.parametrize(
    ("witnessed", "expected"),
    [
        (None, ImageRecord(-500.0, -100.0)),
        (4000.0, ImageRecord(-500.0, -100.0)),  # there for 1000 s: not younger than remembered
        (4700.0, ImageRecord(-290.0, -100.0)),  # there for 300 s, used 110 s ago
        (4950.0, ImageRecord(-40.0, None)),  # pulled 50 s ago: the use was another image's
        (9000.0, ImageRecord(10.0, None)),  # in the future: as young as can be
    ],
)
def test_what_was_brought_back_is_no_older_than_the_witness_says(
    witnessed: float | None, expected: ImageRecord
) -> None:
    """It may have been removed and pulled again while no process detected images."""
    records = ImageRecords(witness=lambda _: witnessed)
    records.restore({ONE: ImageRecord(-500.0, -100.0)})
    assert records.update([image(1)], NONE, 10.0, 5000.0) == {ONE: expected}
    assert records.update([image(1)], NONE, 20.0, 5000.0) == {ONE: expected}  # asked once


def test_a_pressure_pass_forgets_what_it_removed() -> None:
    """The kubelet pulls the image again before the next detection: it is new, and has to be known for 2 minutes."""
    clock = SteppedClock()
    runtime = MemoryRuntime(clock)
    runtime.hold(image(1, "app:1"), image(2, "registry.k8s.io/pause:3.9"))
    records = ImageRecords(seed={ONE: ImageRecord(0.0)})
    context = ReclaimContext(
        runtime,
        runtime,
        MemoryPods(),
        records,
        Executor(clock, SteppedEvent(clock)),
        clock,
        Policies(ContainerGCPolicy(), ImageGCPolicy()),
        LogPaths("/nowhere/pods", "/nowhere/containers"),
    )
    collector = Collector(context)
    result = collector.call("DeleteUnusedImages", never_relieved)
    assert [(o.verdict.id, o.result) for o in result.outcomes] == [(ONE, Result.REMOVED)]
    assert records.records.keys() == {TWO}
    runtime.hold(image(1, "app:1"))
    again = collector.call("DeleteUnusedImages", never_relieved)
    assert {o.verdict.id: o.verdict.reason for o in again.kept}[ONE] is Reason.TOO_YOUNG


def test_two_threads_share_the_records() -> None:
    """A thousand detections and removals on each of two threads: no error, and no record of what is not listed."""
    records, errors = ImageRecords(), list[BaseException]()

    def work(own: int) -> None:
        try:
            for step in range(1000):
                records.update([image(1), image(own)], frozenset({ONE}), float(step), 0.0)
                records.forget([image_id(own)])
                assert records.records[ONE].last_used is not None
        except BaseException as error:  # noqa: BLE001 # the test reports what a thread raised
            errors.append(error)

    threads = [threading.Thread(target=work, args=(own,)) for own in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert records.update([image(1)], NONE, 2000.0, 0.0) == {ONE: ImageRecord(0.0, 999.0)}


@given(st.lists(st.tuples(st.frozensets(st.integers(1, 4)), st.frozensets(st.integers(1, 4)), st.floats(0, 100))))
def test_times_never_lie_in_the_future(detections: list[tuple[frozenset[int], frozenset[int], float]]) -> None:
    """After any history: listed ids have a record, first seen at most now, last used between."""
    records, now = ImageRecords(), 0.0
    for listed, used, step in detections:
        now += step
        found = records.update([image(n) for n in listed], frozenset(map(image_id, used)), now, 0.0)
        assert found.keys() == {image_id(n) for n in listed}
        assert all(record.first_detected <= (record.last_used or now) <= now for record in found.values())


def store(tmp_path: Path) -> tuple[str, Path]:
    """A containerd root: the snapshotter's path, and the directory of blobs beside it."""
    blobs = tmp_path / "io.containerd.content.v1.content" / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    return str(tmp_path / "io.containerd.snapshotter.v1.overlayfs"), blobs


def test_containerd_testifies_by_the_file_of_the_image_configuration(tmp_path: Path) -> None:
    """The later of modification and change time counts: a file from a backup is not older than its return."""
    image_filesystem, blobs = store(tmp_path)
    blob = blobs / ONE.removeprefix("sha256:")
    blob.write_text("{}")
    os.utime(blob, (1.0, 1.0))
    assert containerd_witness(image_filesystem)(ONE) == blob.lstat().st_ctime


@pytest.mark.parametrize(
    "hostile", ["", "../../etc/passwd", "sha256:../" + "a" * 61, "a" * 63, "a/" * 32, "sha256:" + "." * 64]
)
def test_what_is_no_id_has_no_witness(tmp_path: Path, hostile: str) -> None:
    """No path is made of a text that the runtime supplied unless it is 64 plain characters."""
    image_filesystem, _ = store(tmp_path)
    assert containerd_witness(image_filesystem)(hostile) is None


def test_a_store_of_another_shape_has_no_witness(tmp_path: Path) -> None:
    """Beside another runtime nothing is known, and images are young."""
    assert containerd_witness(str(tmp_path / "overlay"))(ONE) is None

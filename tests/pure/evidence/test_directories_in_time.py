"""The kubelet's directories on a filesystem that does not answer: nothing is known, and
nobody waits for it twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from reclaim.evidence.directories import KubeletDirectories
from reclaim.kubelet.pods import KubeletPods
from reclaim.workers import ReadingsInTime, Workers
from signals.clock import SystemClock
from tests.reclaimd_process import came_true

Answer = TypeVar("Answer")


class DeadDisk(ReadingsInTime):
    """Reads a disk that can stop to answer: each reading then hangs until it answers again."""

    def __init__(self) -> None:
        self.workers = Workers("directories", 4)
        self.answers = threading.Event()
        self.answers.set()
        self.hung = 0
        super().__init__(self.workers, 0.05)

    def __call__(self, read: Callable[[], Answer], /) -> Answer:
        """One reading."""

        def when_it_answers() -> Answer:
            self.hung += not self.answers.is_set()
            assert self.answers.wait(60.0)
            return read()

        return super().__call__(when_it_answers)


@pytest.mark.regression
def test_directories_that_do_not_answer_are_unknown_and_are_asked_once(tmp_path: Path) -> None:
    """No pod counts as gone, and only the first reading waits.

    When the disk answers again, all is as before.
    """
    (tmp_path / "pods" / "uid-1").mkdir(parents=True)
    disk = DeadDisk()
    directories = KubeletDirectories(str(tmp_path), disk)
    assert directories.pod_states().gone("uid-2")
    disk.answers.clear()
    states = directories.pod_states()
    assert states.present is None
    assert states.doubt is not None
    assert states.doubt.sentence.startswith(
        f"{tmp_path}/pods cannot be read (it did not answer within 0.05 s)"
    )
    assert not directories.pod_states().gone("uid-2")
    assert states.identity is None
    assert directories.pod_directories() is None
    assert disk.hung == 1
    disk.answers.set()
    assert came_true(lambda: directories.pod_states().present == frozenset({"uid-1"}))
    assert directories.pod_states().gone("uid-2")
    disk.workers.close()


class HeldLook(ReadingsInTime):
    """Reads at once, but gives its first answer only when that is let go."""

    def __init__(self) -> None:
        self.workers = Workers("directories", 4)
        self.begun, self.let_go = threading.Event(), threading.Event()
        super().__init__(self.workers, 60.0)

    def __call__(self, read: Callable[[], Answer], /) -> Answer:
        """One reading."""

        def held() -> Answer:
            found, first = read(), not self.begun.is_set()
            self.begun.set()
            assert not first or self.let_go.wait(60.0)
            return found

        return super().__call__(held)


def test_who_asks_while_a_look_is_under_way_gets_a_later_one(tmp_path: Path) -> None:
    """Three removals ask for the directories of pods while a look has read them
    already: then a pod's appears.
    """
    (tmp_path / "pods").mkdir()
    disk = HeldLook()
    pods = KubeletPods(KubeletDirectories(str(tmp_path), disk), SystemClock())
    found: list[set[str]] = []

    def ask() -> None:
        found.append(set(pods.pod_directories() or ()))

    earlier = threading.Thread(target=ask)
    earlier.start()
    assert disk.begun.wait(60.0)
    (tmp_path / "pods" / "uid-1").mkdir()
    later = [threading.Thread(target=ask) for _ in range(3)]
    for thread in later:
        thread.start()
    disk.let_go.set()
    for thread in (earlier, *later):
        thread.join(60.0)
    assert sorted(found, key=len) == [set(), {"uid-1"}, {"uid-1"}, {"uid-1"}]
    disk.workers.close()

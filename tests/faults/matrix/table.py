"""The fault matrix as data: a row for each resource and fault, and the reason
where a cell cannot exist.

What each method of the runtime is needed for is said once (`NEEDED_FOR`); the rows of
the methods follow from it.

Covers: what must hold. Does not cover: how a fault is made (`injectors`), running a row (`bench`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import grpc

from tests.faults.matrix.rows import Fault, Kind, Livez, Relief, Row, When
from tests.nodes.distortions import Distort, Distortion
from tests.nodes.faults import ActThenFail, Cut, Failpoint, Hang, Pretend

IMAGE, CONTAINER, SANDBOX = Kind.IMAGE, Kind.CONTAINER, Kind.SANDBOX
GOES_ON, COMES_BACK = Relief(When.GOES_ON), Relief(When.COMES_BACK)

# removalPatience of the bench: then others go on beside a removal that hangs
PATIENCE_SECONDS = 1.0
QUESTION_SECONDS = 10.0  # how long a question waits for the runtime

NEEDED_FOR: dict[str, frozenset[Kind]] = {
    "Version": frozenset({IMAGE}),
    "Status": frozenset({IMAGE}),
    "ListContainers": frozenset(Kind),
    "ListPodSandbox": frozenset(Kind),
    "ContainerStatus": frozenset({IMAGE, CONTAINER}),
    "PodSandboxStatus": frozenset({SANDBOX}),
    "ListImages": frozenset({IMAGE}),
    "ImageStatus": frozenset({IMAGE}),
    "ImageFsInfo": frozenset(),
    "RemoveContainer": frozenset({CONTAINER}),
    "StopPodSandbox": frozenset({SANDBOX}),
    "RemovePodSandbox": frozenset({SANDBOX}),
    "RemoveImage": frozenset({IMAGE}),
    "StopContainer": frozenset({CONTAINER}),
    "ListContainerStats": frozenset(),
}
"""What cannot be removed without an answer of this method, once the program runs. (Version: which
images containers mount. ContainerStatus: what a new container mounts.)"""

NEEDED_AT_START: dict[str, frozenset[Kind]] = {
    # of ready sandboxes, which say what they were made from
    "PodSandboxStatus": frozenset({IMAGE, SANDBOX}),
    # without it the layout of the filesystems is not known, and so no row of the table
    "ImageFsInfo": frozenset(Kind),
}
"""The same before the method has ever answered."""

REMOVALS = ("RemoveContainer", "StopPodSandbox", "RemovePodSandbox", "RemoveImage", "StopContainer")

WRONG: dict[str, Failpoint] = {
    "Version": Pretend(),
    "Status": Pretend(),
    "ListContainers": Distort(Distortion.ROTATED_IDS),
    "ListPodSandbox": Distort(Distortion.ROTATED_IDS),
    "ContainerStatus": Distort(Distortion.UNKNOWN_IDS),
    "PodSandboxStatus": Distort(Distortion.UNKNOWN_IDS),
    "ListImages": Distort(Distortion.ROTATED_IDS),
    "ImageStatus": Distort(Distortion.UNKNOWN_IDS),
    "ImageFsInfo": Distort(Distortion.HOSTILE_PATHS),
    "RemoveContainer": Pretend(),
    "StopPodSandbox": Pretend(),
    "RemovePodSandbox": Pretend(),
    "RemoveImage": Pretend(),
    "StopContainer": Pretend(),
    "ListContainerStats": Distort(Distortion.LARGEST_SIZES),
}
"""The wrong answer of each method. (A list that leaves entries out, without an error, is not among
them: nobody could tell it from a true one.)"""

IN_SUITE = frozenset(
    {
        "thread-start-absent-at-start",
        "thread-start-absent-for-3s",
        "descriptor-absent-for-3s",
        "message-memory-absent-for-3s",
        "statvfs-absent-for-3s",
        "statvfs-hangs",
        "runtime-socket-absent-for-3s",
        "runtime-socket-wrong",
        "Version-absent-at-start",
        "Status-absent-for-3s",
        "ListContainers-wrong",
        "ListPodSandbox-absent-for-3s",
        "ContainerStatus-wrong",
        "PodSandboxStatus-slow",
        "ListImages-wrong",
        "ImageStatus-absent-for-3s",
        "ImageFsInfo-hangs",
        "RemoveContainer-absent-for-3s",
        "StopPodSandbox-absent-at-start",
        "RemovePodSandbox-slow",
        "RemoveImage-hangs",
        "RemoveImage-wrong-acted",
        "StopContainer-absent-for-3s",
        "ListContainerStats-hangs",
        "log-hangs",
        "log-comes-back",
        "state-file-wrong",
        "pause-file-hangs",
        "pause-file-wrong",
        "history-file-hangs-at-start",
        "history-file-wrong",
        "control-socket-hangs",
        "metrics-port-absent-at-start",
        "metrics-port-hangs",
        "kubelet-directories-wrong",
        "kubelet-directories-hangs",
        "kubelet-api-hangs",
        "kubelet-api-wrong-empty",
        "kubelet-socket-hangs",
    }
)
"""In `make test`: one or two of each resource, the harmful ones; the others are in `make soak`."""


def _of_method(method: str, fault: Fault) -> Row:
    """The row of one method and fault."""
    needed = NEEDED_FOR[method]
    if fault is Fault.ABSENT_AT_START:
        needed |= NEEDED_AT_START.get(method, frozenset())
    others = frozenset({CONTAINER, SANDBOX}) - needed
    how = WRONG[method] if fault is Fault.WRONG else None
    if fault is Fault.SLOW:
        within = Relief(
            When.GOES_ON,
            8.0,
            reason="each question of a pass takes 0.3 s longer, and there are many",
        )
        return Row(method, fault, within)
    if fault is Fault.HANGS and method in REMOVALS:
        within = Relief(
            When.GOES_ON,
            2.0 + PATIENCE_SECONDS,
            reason="the removal that hangs is left after removalPatience",
        )
        return Row(method, fault, within, how=Hang(times=1))
    if method == "ImageFsInfo" and fault is Fault.WRONG:
        # where the runtime says that its images are is believed
        return Row(method, fault, COMES_BACK, how=how)
    if IMAGE not in needed:
        if fault in (Fault.HANGS, Fault.COMES_BACK) and method in REMOVALS:
            patient = Relief(
                When.GOES_ON,
                2.0 + 3 * PATIENCE_SECONDS,
                reason="each that hangs is left after removalPatience",
            )
            return Row(method, fault, patient)
        if fault in (Fault.HANGS, Fault.COMES_BACK) and needed:
            late = Relief(
                When.GOES_ON, QUESTION_SECONDS + 2.0, reason="a question waits 10 s for its answer"
            )
            return Row(method, fault, late, Livez.TRUTH)
        return Row(method, fault, GOES_ON, how=how)
    if fault is Fault.HANGS:
        reason = f"no image may go while {method} says nothing"
        never = Relief(
            When.NOT_EXPECTED,
            meanwhile=others,
            meanwhile_seconds=2 * QUESTION_SECONDS,
            reason=reason,
        )
        return Row(method, fault, never, Livez.TRUTH)
    if fault is Fault.COMES_BACK:
        later = Relief(When.COMES_BACK, meanwhile=others, meanwhile_seconds=2 * QUESTION_SECONDS)
        return Row(method, fault, later, Livez.TRUTH)
    if fault is Fault.WRONG:
        return Row(method, fault, COMES_BACK, how=how)
    return Row(method, fault, Relief(When.COMES_BACK, meanwhile=others))


def _of_methods() -> Iterator[Row]:
    for method in NEEDED_FOR:
        for fault in Fault:
            if (method, fault) not in IMPOSSIBLE:
                yield _of_method(method, fault)
    yield Row("ListContainers", Fault.WRONG, COMES_BACK, how=Cut(), variant="cut")
    yield Row("ListImages", Fault.WRONG, COMES_BACK, how=Pretend(), variant="empty")
    yield Row("ImageStatus", Fault.WRONG, COMES_BACK, how=Pretend(), variant="empty")
    acted = ActThenFail(grpc.StatusCode.DEADLINE_EXCEEDED)
    for method in ("RemoveImage", "RemoveContainer", "RemovePodSandbox"):
        yield Row(method, Fault.WRONG, GOES_ON, how=acted, variant="acted")


_RESTARTED = Relief(
    When.COMES_BACK,
    9.0,
    reason="the process may end; its service manager starts it after 5 s, and a start takes one",
)
_NO_READING = Relief(When.NOT_EXPECTED, reason="nothing is removed while the disk cannot be read")
_NO_RUNTIME = Relief(When.NOT_EXPECTED, reason="nothing can be removed without the runtime")
_SLOW_DISK = Relief(When.GOES_ON, 8.0, reason="each access takes longer, and there are many")
_SLOW_KUBELET = Relief(
    When.GOES_ON, 5.0, reason="the kubelet is given 2 s, and then not asked for 10 s"
)
_NO_PAUSE_KNOWN = Relief(
    When.NOT_EXPECTED, reason="nothing is removed while a pause may be in force"
)
_PAUSE_KNOWN = Relief(
    When.COMES_BACK, 7.0, reason="a pause that cannot be read is looked at again every 5 s"
)
_LARGE = Relief(When.GOES_ON, 8.0, reason="lists of many MiB are read again and again")


def _of_the_process() -> Iterator[Row]:
    for resource in ("thread-start", "descriptor"):
        livez = Livez.OK if resource == "thread-start" else Livez.UNHEARD  # accept(2) needs one
        yield Row(resource, Fault.ABSENT_AT_START, _RESTARTED, Livez.UNHEARD, restarts=True)
        yield Row(resource, Fault.ABSENT, GOES_ON, livez)
        yield Row(resource, Fault.COMES_BACK, GOES_ON, livez)
    yield Row("descriptor", Fault.ABSENT, GOES_ON, variant="used-up")
    yield Row("message-memory", Fault.ABSENT, COMES_BACK)
    yield Row("message-memory", Fault.WRONG, _LARGE)
    yield Row("message-memory", Fault.COMES_BACK, COMES_BACK)
    yield Row("log", Fault.ABSENT_AT_START, GOES_ON)
    for fault in list(Fault)[1:]:
        yield Row("log", fault, GOES_ON)


def _of_what_it_reads() -> Iterator[Row]:
    yield Row("statvfs", Fault.ABSENT_AT_START, COMES_BACK)
    yield Row("statvfs", Fault.ABSENT, COMES_BACK)
    yield Row("statvfs", Fault.HANGS, _NO_READING)
    yield Row("statvfs", Fault.SLOW, _SLOW_DISK)
    yield Row("statvfs", Fault.WRONG, COMES_BACK)
    yield Row("statvfs", Fault.COMES_BACK, COMES_BACK)
    yield Row("runtime-socket", Fault.ABSENT_AT_START, COMES_BACK)
    yield Row("runtime-socket", Fault.ABSENT, COMES_BACK)
    yield Row("runtime-socket", Fault.HANGS, _NO_RUNTIME, Livez.TRUTH)
    yield Row("runtime-socket", Fault.WRONG, COMES_BACK)
    yield Row("runtime-socket", Fault.COMES_BACK, COMES_BACK, Livez.TRUTH)
    for file in ("state-file", "history-file"):
        for fault in Fault:
            yield Row(file, fault, GOES_ON)
        yield Row(file, Fault.WRONG, GOES_ON, variant="directory")
    yield Row("history-file", Fault.HANGS, GOES_ON, variant="at-start")
    yield Row("pause-file", Fault.HANGS, _NO_PAUSE_KNOWN)
    yield Row("pause-file", Fault.SLOW, _SLOW_DISK)
    yield Row("pause-file", Fault.WRONG, _PAUSE_KNOWN)
    yield Row("pause-file", Fault.WRONG, _PAUSE_KNOWN, variant="directory")
    yield Row("pause-file", Fault.COMES_BACK, _PAUSE_KNOWN)
    for fault in Fault:
        yield Row("kubelet-directories", fault, _SLOW_DISK if fault is Fault.SLOW else GOES_ON)
    yield Row("kubelet-directories", Fault.WRONG, GOES_ON, variant="replaced")
    yield Row("kubelet-directories", Fault.WRONG, GOES_ON, variant="foreign")


def _of_who_it_talks_to() -> Iterator[Row]:
    for fault in Fault:
        yield Row("control-socket", fault, GOES_ON)
    yield Row("metrics-port", Fault.ABSENT_AT_START, GOES_ON, Livez.NOBODY)
    for fault in (Fault.HANGS, Fault.SLOW, Fault.WRONG, Fault.COMES_BACK):
        yield Row("metrics-port", fault, GOES_ON)
    for fault in Fault:
        late = fault in (Fault.HANGS, Fault.COMES_BACK)
        for resource in ("kubelet-api", "kubelet-socket"):
            yield Row(resource, fault, _SLOW_KUBELET if late else GOES_ON)
    yield Row("kubelet-api", Fault.SLOW, _SLOW_KUBELET, variant="dripping")
    for resource in ("kubelet-api", "kubelet-socket"):
        yield Row(resource, Fault.WRONG, GOES_ON, variant="empty")


IMPOSSIBLE: dict[tuple[str, Fault], str] = {
    ("thread-start", Fault.HANGS): "clone(2) answers at once",
    (
        "thread-start",
        Fault.SLOW,
    ): "clone(2) answers at once; a machine on which it does not is slow in everything",
    ("thread-start", Fault.WRONG): "a thread that has started runs",
    ("descriptor", Fault.HANGS): "that no descriptor is left is known at once",
    ("descriptor", Fault.SLOW): "that no descriptor is left is known at once",
    ("descriptor", Fault.WRONG): "a number that the kernel gives is a descriptor",
    (
        "message-memory",
        Fault.ABSENT_AT_START,
    ): "a program without memory does not start, and later it is the next row",
    (
        "message-memory",
        Fault.HANGS,
    ): "mmap(2) answers at once; to be killed for its page faults is test_death's",
    (
        "message-memory",
        Fault.SLOW,
    ): "memory that is slow (swap) makes everything slow, not the message",
    (
        "runtime-socket",
        Fault.SLOW,
    ): "slow to accept is test_slow_to_accept's; slow to answer is a row of each method",
    ("pause-file", Fault.ABSENT_AT_START): "without a pause there is no file: every other row",
    ("pause-file", Fault.ABSENT): "it is read at the start",
    ("metrics-port", Fault.ABSENT): "nobody takes away a port that is bound",
}
"""Cells that cannot exist, and why."""

RESOURCES = (
    "thread-start",
    "descriptor",
    "message-memory",
    "statvfs",
    "runtime-socket",
    *NEEDED_FOR,
    "log",
    "state-file",
    "pause-file",
    "history-file",
    "control-socket",
    "metrics-port",
    "kubelet-directories",
    "kubelet-api",
    "kubelet-socket",
)


def _rows() -> Iterator[Row]:
    for rows in (_of_the_process(), _of_what_it_reads(), _of_methods(), _of_who_it_talks_to()):
        for row in rows:
            yield replace(row, in_suite=row.id in IN_SUITE)


TABLE: tuple[Row, ...] = tuple(_rows())
"""All rows."""

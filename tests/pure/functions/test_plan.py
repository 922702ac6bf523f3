"""Which rotated logs go, in which order, and why each other file in a log directory stays."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.functions.rotated_logs import LogFile, plan_rotated_logs, temporary_of
from reclaim.types import Plan, Reason
from tests.pure.values import MIB, NOW_NS, SECOND_NS

POD = b"shop_web-0_6b6a1b0a-4bd8-4b1a-a0a3-1c5f2f0f8e11"
AN_HOUR = 3600.0


def log(
    name: str,
    age_seconds: float = AN_HOUR,
    container: str = "app",
    pod: bytes = POD,
    **fields: object,
) -> LogFile:
    """A file of a container, written so long ago."""
    made = LogFile(
        pod,
        container.encode(),
        name.encode(),
        (1, hash(name) & 0xFFFF),
        MIB,
        NOW_NS - int(age_seconds * SECOND_NS),
    )
    return made._replace(**fields)  # type: ignore[arg-type] # fields of the row of a table


def planned(*files: LogFile, keep: int = 1) -> Plan:
    """The plan for these files, and the current logs of which they were rotated."""
    given = {file.id: file for file in files}
    for file in files:
        if file.stamp:
            current = file._replace(
                name=file.name[: file.name.index(b".log.")] + b".log", plain=True
            )
            given.setdefault(current.id, current)
    return plan_rotated_logs(given.values(), keep, NOW_NS)


def names(plan: Plan) -> list[str]:
    """What goes, by the last part of the name, in order."""
    return [verdict.name.rpartition("/")[2] for verdict in plan.remove]


def kept(plan: Plan) -> dict[str, str]:
    """What stays beside the current logs, and why."""
    stays = {verdict.name.rpartition("/")[2]: str(verdict.reason) for verdict in plan.keep}
    return {name: reason for name, reason in stays.items() if reason != "current"}


FIRST, SECOND, THIRD = (f"0.log.2026112{day}-120000" for day in (1, 2, 3))


def test_all_but_the_newest_go_and_the_current_log_never() -> None:
    """The oldest first; the newest rotated one and the current one stay."""
    plan = planned(log(THIRD), log(f"{FIRST}.gz"), log("0.log", 0.0), log(f"{SECOND}.gz"))
    assert names(plan) == [f"{FIRST}.gz", f"{SECOND}.gz"]
    assert kept(plan) == {THIRD: "newest_rotated"}
    assert [verdict.id for verdict in plan.keep if verdict.reason == "current"] == [
        f"{POD.decode()}/app/0.log"
    ]
    assert {verdict.reason for verdict in plan.remove} == {"rotated"}


def test_a_verdict_names_pod_container_and_file() -> None:
    """Its id is the path below the log root, which leads to one file."""
    (verdict,) = planned(log(f"{FIRST}.gz"), log(SECOND)).remove
    assert verdict.id == f"{POD.decode()}/app/{FIRST}.gz"
    assert verdict.name == f"shop/web-0/app/{FIRST}.gz"
    assert verdict.pod_uid == "6b6a1b0a-4bd8-4b1a-a0a3-1c5f2f0f8e11"
    assert (verdict.kind, verdict.size_bytes) == ("rotated_log", MIB)
    assert verdict.age_seconds == pytest.approx(AN_HOUR)


@pytest.mark.parametrize(("keep", "left"), [(0, 0), (1, 1), (2, 2), (3, 3), (9, 3)])
def test_as_many_stay_as_are_wanted(keep: int, left: int) -> None:
    """The newest by the times in their names."""
    plan = planned(log(THIRD), log(SECOND), log(FIRST), keep=keep)
    assert names(plan) == [FIRST, SECOND, THIRD][: 3 - left]


def test_of_several_copies_of_a_container_the_newest_log_stays() -> None:
    """The newest rotated log of the container, of whichever restart, not one of each."""
    plan = planned(
        log("0.log.20261120-000000"), log("1.log.20261119-000000"), log("1.log.20261121-000000.gz")
    )
    assert names(plan) == ["1.log.20261119-000000", "0.log.20261120-000000"]


def test_the_oldest_goes_first_over_all_containers() -> None:
    """Each container keeps its own newest one."""
    other = b"shop_db-0_7b6a1b0a-4bd8-4b1a-a0a3-1c5f2f0f8e11"
    plan = planned(
        log("0.log.20261105-000000"), log("0.log.20261101-000000"), log("0.log.20261103-000000"),
        log("0.log.20261106-000000", pod=other), log("0.log.20261102-000000", pod=other),
        log("0.log.20261104-000000", pod=other),
    )  # fmt: skip
    assert [name[12:14] for name in names(plan)] == ["01", "02", "03", "04"]


def test_both_forms_of_one_rotation_count_once() -> None:
    """After a compression whose end was cut, the log and its compressed copy are there."""
    plan = planned(log(SECOND), log(f"{SECOND}.gz"), log(f"{FIRST}.gz"))
    assert names(plan) == [f"{FIRST}.gz"]
    assert set(kept(plan).values()) == {"newest_rotated"}


@pytest.mark.parametrize(("age_seconds", "goes"), [(299.0, False), (301.0, True)])
def test_what_a_compression_writes_stays_with_its_log_for_five_minutes(
    age_seconds: float, goes: bool
) -> None:
    """After that it was left behind by a kubelet that died, and both go."""
    plan = planned(log(f"{FIRST}.tmp", age_seconds), log(FIRST), log(SECOND))
    if goes:
        assert [(v.name.rpartition("/")[2], v.reason) for v in plan.remove] == [
            (FIRST, "rotated"),
            (f"{FIRST}.tmp", "left_behind"),
        ]
    else:
        assert names(plan) == []
        assert kept(plan) == {
            FIRST: "being_rotated",
            f"{FIRST}.tmp": "being_rotated",
            SECOND: "newest_rotated",
        }


def test_what_is_being_compressed_does_not_count_as_the_newest() -> None:
    """A temporary file is no rotated log that could be kept in the place of one."""
    plan = planned(log(f"{THIRD}.tmp"), log(SECOND), log(FIRST))
    assert (kept(plan)[SECOND], names(plan)) == ("newest_rotated", [FIRST, f"{THIRD}.tmp"])


@pytest.mark.parametrize(("name", "stays"), [(FIRST, True), (f"{FIRST}.gz", False)])
def test_a_rotated_log_that_was_just_written_may_be_the_one_that_is_written(
    name: str, stays: bool
) -> None:
    """Between the rename and the opening of a new log; also where a clock that was set
    back made it no newest one.
    """
    assert (name in kept(planned(log(name, 9.0), log(SECOND)))) is stays
    assert (name in kept(planned(log(name, 9.0), keep=0))) is stays
    assert names(planned(log(name, 11.0), keep=0)) == [name]


def test_while_there_is_no_current_log_what_was_rotated_may_be_the_one_that_is_written() -> None:
    """The runtime has not opened a new one, for however long; a compressed log
    is not written by anybody.
    """
    files = [log(name) for name in (FIRST, f"{SECOND}.gz", "1.log")]
    plan = plan_rotated_logs(files, 0, NOW_NS)
    assert (names(plan), kept(plan)) == ([f"{SECOND}.gz"], {FIRST: "being_rotated"})
    assert names(plan_rotated_logs([*files, log("0.log")], 0, NOW_NS)) == [FIRST, f"{SECOND}.gz"]


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt", "0.log.bak", "0.log.20261121", "0.log.20261121-120000.gz.tmp", "0.log.20261121-120000.zst",
        "x.log", "0.log.20261121-120000\n", "00000000000.log", "0.log.2026112a-120000", ".0.log.20261121-120000",
    ],
)  # fmt: skip
def test_what_the_kubelet_does_not_name_so_stays(name: str) -> None:
    """However old it is."""
    plan = planned(log(name), keep=0)
    assert (plan.remove, [verdict.reason for verdict in plan.keep]) == ((), [Reason.NOT_KUBELETS])


def test_what_is_no_plain_file_stays() -> None:
    """A symlink or a directory of such a name, or a file with a second one; it counts
    for no rotated log either.
    """
    plan = planned(log(SECOND, plain=False), log("0.log", plain=False), log(FIRST))
    assert kept(plan) == {SECOND: "not_kubelets", "0.log": "not_kubelets", FIRST: "newest_rotated"}


def test_a_directory_that_was_not_entered_is_kept_with_its_reason() -> None:
    """It is one object in the plan."""
    plan = planned(
        LogFile(b"lost+found", problem=Reason.NOT_KUBELETS),
        LogFile(POD, b"app", problem=Reason.UNREADABLE),
    )
    assert [(verdict.id, verdict.reason, verdict.age_seconds) for verdict in plan.keep] == [
        ("lost+found", "not_kubelets", None),
        (f"{POD.decode()}/app", "unreadable", None),
    ]


def test_the_name_that_a_compression_writes_to() -> None:
    """The kubelet's: the name of the log with `.tmp` behind it."""
    assert (
        temporary_of(FIRST.encode())
        == temporary_of(f"{FIRST}.gz".encode())
        == f"{FIRST}.tmp".encode()
    )


FILES = st.builds(
    log,
    st.builds(
        lambda restart, day, end: (
            f"{restart}.log" + (f".202611{day:02}-000000{end}" if day else "")
        ),
        st.integers(0, 2),
        st.integers(0, 5),
        st.sampled_from(["", ".gz", ".tmp"]),
    ),
    st.sampled_from([0.0, 5.0, 100.0, AN_HOUR]),
    st.sampled_from(["app", "sidecar"]),
)


@given(st.lists(FILES, unique_by=lambda file: file.id), st.integers(0, 3))
def test_whatever_is_there_the_newest_and_the_current_ones_stay(
    files: list[LogFile], keep: int
) -> None:
    """Every file has one verdict; what goes is older than all that is kept as the
    newest; the order is total.
    """
    plan = planned(*files, keep=keep)
    verdicts = Counter(verdict.id for verdict in (*plan.remove, *plan.keep))
    assert all(verdicts[file.id] == 1 for file in files)
    by_id = {file.id: file for file in files}
    gone = [by_id[verdict.id] for verdict in plan.remove]
    assert [file.stamp for file in gone] == sorted(file.stamp for file in gone)
    assert all(file.stamp for file in gone)
    for container in (b"app", b"sidecar"):
        stamps = {
            f.stamp
            for f in files
            if f.container == container and f.stamp and not f.name.endswith(b".tmp")
        }
        left = {f.stamp for f in files if f.container == container and f.stamp and f not in gone}
        assert set(sorted(stamps, reverse=True)[:keep]) <= left

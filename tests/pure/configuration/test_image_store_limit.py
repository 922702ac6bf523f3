"""imageStoreLimit: one threshold of its own, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from eviction.configuration.effective import ConfigurationError, load, needing_restart
from eviction.configuration.file import ConfigurationFile
from eviction.types import Threshold
from signals.types import FilesystemRole, Signal

STORE = Signal.IMAGESTORE_AVAILABLE
NO_KUBELET: dict[str, Any] = {"kubeletConfig": ""}


def of_the_store(**fields: Any) -> tuple[Threshold, ...]:
    """The thresholds on the image store with these fields."""
    return tuple(one for one in load(None, {}, {**NO_KUBELET, **fields}).thresholds if one.signal is STORE)


def test_a_limit_is_a_hard_threshold_at_nothing_left() -> None:
    """Without a margin and a minimum reclaim: a store over its limit is brought below it, and not further."""
    (found,) = of_the_store(imageStoreLimit="200Gi")
    assert (found.mark(1 << 40), found.mark_with_min_reclaim(1 << 40), found.hard) == (0, 0, True)
    assert (found.origin, found.margin) == ("flags", None)
    assert load(None, {}, {"imageStoreLimit": "200Gi"}).image_store_limit == 200 << 30


def test_without_a_limit_there_is_no_such_signal() -> None:
    """By default, with 0, and with null."""
    for fields in ({}, {"imageStoreLimit": "0"}, {"imageStoreLimit": None}):
        assert of_the_store(**fields) == ()
        assert STORE not in load(None, {}, {**NO_KUBELET, **fields}).signals
    with pytest.raises(ConfigurationError, match="unknown signal 'imagestore\\.available'; allowed are nodefs"):
        of_the_store(evictionHard={"imagestore.available": "10Gi"})


def test_the_maps_of_thresholds_apply_to_it_as_to_any_signal() -> None:
    """A minimum reclaim to the limit; a mark of one's own replaces it."""
    (found,) = of_the_store(imageStoreLimit="200Gi", evictionMinimumReclaim={"imagestore.available": "10Gi"})
    assert found.mark_with_min_reclaim(200 << 30) == 10 << 30
    (own,) = of_the_store(imageStoreLimit="200Gi", evictionHard={"imagestore.available": "5%"})
    assert own.mark(200 << 30) == pytest.approx(10 << 30, abs=1024)
    found_row = load(None, {}, {"imageStoreLimit": "1Gi", "reclaimTable": {"imagestore.available": []}}).rows
    assert found_row[STORE] == ()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"imageStoreLimit": "200"}, "flags: imageStoreLimit: needs a unit, as in 10Gi or 10%, but it was '200'"),
        ({"imageStoreLimit": "-1Gi"}, "imageStoreLimit: must be at least 0, but it was '-1Gi'"),
        ({"imageStoreLimit": "80%"}, "imageStoreLimit: '80%' is not a Kubernetes quantity"),
        ({"imageStoreLimit": 200}, "imageStoreLimit"),
        (
            {
                "imageStoreLimit": "1Gi",
                "containerRuntimeEndpoint": "none",
                "filesystems": [{"name": "a", "path": "/a"}],
            },
            "imageStoreLimit: must be 0 while containerRuntimeEndpoint is none",
        ),
        (
            {"filesystems": [{"name": "imagestore", "path": "/a"}]},
            "imagestore: has a meaning of its own; choose another name",
        ),
        (
            {"imageStoreLimit": "1Gi", "evictionMinimumReclaim": {"imagestore.available": "0%"}},
            "evictionMinimumReclaim: imagestore.available: must be above 0%",
        ),
    ],
)
def test_what_is_no_limit_is_refused(fields: dict[str, Any], sentence: str) -> None:
    """By name, with what is allowed."""
    with pytest.raises(ConfigurationError) as refusal:
        load(None, {}, fields)
    assert sentence in str(refusal.value)


def test_a_changed_limit_needs_a_restart_and_nothing_frees_space_there() -> None:
    """The daemon knows its signals from its start; the store is no filesystem of a function."""
    small, large = (load(None, {}, {**NO_KUBELET, "imageStoreLimit": text}) for text in ("1Gi", "2Gi"))
    assert needing_restart(small, large) == ("imageStoreLimit",)
    assert FilesystemRole.IMAGESTORE not in small.roles
    assert ConfigurationFile.model_fields["image_store_limit"].default == "0"

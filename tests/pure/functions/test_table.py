"""The table of reclaim functions, and that the reclaim table calls no other."""

from __future__ import annotations

from eviction.decision.synchronize import EvictionConfig
from eviction.wording.explain import REASONS
from reclaim.functions import ballast, rotated_logs
from reclaim.functions.containerd_garbage import UNREFERENCED
from reclaim.functions.table import FUNCTIONS
from reclaim.program import function as programs
from reclaim.types import FREES, Kind, Reason
from signals.types import FilesystemRole


def test_the_rows_call_exactly_these_functions() -> None:
    """A name without an entry could not be called, and an entry that no row
    names would never be.
    """
    assert EvictionConfig().functions == FUNCTIONS.keys()


def test_the_table_knows_where_each_function_frees() -> None:
    """So that a row of the configuration is examined without the functions themselves."""
    assert {name: function.frees for name, function in FUNCTIONS.items()} == FREES
    assert FREES == {
        "DeleteAllUnusedContainers": FilesystemRole.CONTAINERFS,
        "DeleteUnusedImages": FilesystemRole.IMAGEFS,
    }


def test_every_kind_of_object_belongs_to_a_function() -> None:
    """Metrics count removals by the kinds that the functions name."""
    assert set(Kind) <= {kind for function in FUNCTIONS.values() for kind in function.kinds}


def test_every_reason_has_words_for_people() -> None:
    """Those of the functions that are off until they are named too."""
    assert set(REASONS) == {
        *Reason,
        *ballast.REASONS,
        *programs.REASONS,
        *rotated_logs.REASONS,
        UNREFERENCED,
    }

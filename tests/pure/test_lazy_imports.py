"""Modules that are loaded when they are touched."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from reclaim.lazy_imports import lazily

LOADED: list[str] = []  # what the modules below say when they are loaded


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`outer` imports `inner` and does not use it before it is called."""
    say = f"from {__name__} import LOADED\nLOADED.append(__name__)\n"
    (tmp_path / "inner.py").write_text(f"{say}ANSWER = 42\n")
    (tmp_path / "outer.py").write_text(f"{say}import inner\ndef answer():\n    return inner.ANSWER\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    LOADED.clear()
    for name in ("inner", "outer"):
        sys.modules.pop(name, None)


def outer() -> ModuleType:
    """The module, imported anew or as it is."""
    return import_module("outer")


def test_a_module_is_loaded_when_it_is_touched_and_once() -> None:
    """Until then it is there and empty."""
    with lazily("inner"):
        module = outer()
    assert (LOADED, "inner" in sys.modules) == (["outer"], True)
    assert module.answer() == module.answer() == 42
    assert LOADED == ["outer", "inner"]


def test_to_import_it_again_is_to_touch_it() -> None:
    """Whoever else imports it has the whole module."""
    with lazily("inner"):
        outer()
    assert import_module("inner").ANSWER == 42


def test_what_was_loaded_before_stays_as_it_is() -> None:
    """It costs nothing any more."""
    inner = import_module("inner")
    with lazily("inner"):
        assert outer().inner is inner
    assert LOADED == ["inner", "outer"]


def test_other_modules_and_later_imports_are_loaded_at_once() -> None:
    """Only what is named, and only within."""
    with lazily("outer"):
        pass
    outer()
    assert LOADED == ["outer", "inner"]


def test_an_import_that_fails_leaves_nothing_behind() -> None:
    """The finder goes, whatever happened."""
    finders = list(sys.meta_path)
    with pytest.raises(ModuleNotFoundError), lazily("nowhere"):
        import_module("nowhere")
    assert sys.meta_path == finders

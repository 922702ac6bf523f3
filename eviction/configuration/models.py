"""Models of what comes from outside. The one home of pydantic, imported without what no model of ours uses.

* **No plugins.** pydantic looks through all installed packages for plugins when the first model is built, and has them
  see every validation: code of whoever happens to be installed beside us, run by root, and 4 MiB of the standard
  library to find it. While a model of ours is built there are none. Other users of pydantic in this process (the suite
  that uses our pytest plugin, the Kubernetes client) have theirs before and after.
* **No OpenSSL.** pydantic imports `secrets` for types that hold secrets; it is loaded when somebody compares one.

Should pydantic ever look elsewhere for plugins, all this has no effect: they are found, and the start is slower.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from reclaim.lazy_imports import lazily

with lazily("secrets"):
    from pydantic import BaseModel, ConfigDict, Field, ValidationError

__all__ = ["ConfigDict", "Field", "Model", "ValidationError"]

_LOADER = "pydantic.plugin._loader"  # pydantic imports `get_plugins` from it each time it builds a model


class _NoPlugins(ModuleType):
    """Stands in for pydantic's module that finds plugins."""

    _theirs: ModuleType | None = None

    def stand_in(self) -> None:
        """From here on no plugins are found."""
        if sys.modules.get(_LOADER) is not self:
            self._theirs = sys.modules.get(_LOADER)
            sys.modules[_LOADER] = self

    def step_aside(self) -> None:
        """As it was before; what was not loaded yet will be loaded by whoever needs it."""
        if self._theirs is not None:
            sys.modules[_LOADER] = self._theirs
        else:
            sys.modules.pop(_LOADER, None)

    def get_plugins(self) -> tuple[()]:
        """What pydantic asks for."""
        return ()


_NO_PLUGINS = _NoPlugins(_LOADER)
_NO_PLUGINS.stand_in()  # for the model below, which is not yet a subclass of itself


class Model(BaseModel):
    """A model that no plugin sees: pydantic builds it between the first of these two calls and the second."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _NO_PLUGINS.stand_in()

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        _NO_PLUGINS.step_aside()


_NO_PLUGINS.step_aside()

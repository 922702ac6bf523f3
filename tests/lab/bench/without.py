"""The program without some of its rules: sets attributes of its modules,
then calls its command line.

    python -m tests.lab.bench.without '{"module:attribute": "expression", …}' run --config FILE

An expression is evaluated in its module's own namespace. No switch of the product does that.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from types import ModuleType

ROOMS = ("signals", "reclaim", "eviction")


def find(target: str) -> tuple[ModuleType, str, object]:
    """The module, the name of its attribute, and what that is. Raises ImportError or
    AttributeError."""
    module_name, _, name = target.partition(":")
    module = importlib.import_module(module_name)
    return module, name, getattr(module, name)


def set_attributes(expressions: Mapping[str, str]) -> None:
    """Gives each attribute (`module:attribute`) the value of its expression, also where modules have
    imported it by name. Raises ImportError or AttributeError for one that is not there."""
    for target, expression in expressions.items():
        module, name, before = find(target)
        value = eval(expression, vars(module))  # noqa: S307 # from our own table
        for other in list(sys.modules.values()):
            if other.__name__.partition(".")[0] in ROOMS and vars(other).get(name) is before:
                setattr(other, name, value)


def main() -> int:
    """Runs the rest of the arguments as the program's; returns its exit code."""
    set_attributes(json.loads(sys.argv.pop(1)))
    from eviction.__main__ import main as program

    return program()


if __name__ == "__main__":
    sys.exit(main())

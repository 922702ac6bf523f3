"""What people may write is read: each field of the configuration, and each option of a command."""

from __future__ import annotations

import ast
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from eviction.cli.commands import COMMANDS
from eviction.cli.options import configuration_flags
from eviction.cli.parser import command_of
from eviction.configuration.file import ConfigurationFile
from tests.repository import ROOT

MODULES = {
    path: ast.parse(path.read_text())
    for package in ("signals", "reclaim", "eviction")
    for path in (ROOT / package).rglob("*.py")
}


def read_in(modules: Iterable[Path]) -> set[str]:
    """The names of attributes, and the texts, in their code."""
    return {name for path in modules for name in _names(MODULES[path])}


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Load()):
                yield name
            case ast.Constant(value=str() as text):
                yield text
            case ast.AnnAssign(
                target=ast.Name(id=name)
            ):  # a field of a value that is filled by name
                yield name


ROOM = ROOT / "eviction"
BEYOND_THE_FILE = read_in(MODULES.keys() - {ROOM / "configuration" / "file.py"})
GIVEN = {"standalone"}  # that it is given is enough: the daemon is asked by other options alone
FIELDS_OF_OPTIONS = {flag.replace("-", "_") for flag in configuration_flags(Namespace())}
BY_COMMANDS = read_in(
    path for path in MODULES if {ROOM / "cli", ROOM / "surface"} & {*path.parents}
)


@pytest.mark.parametrize("field", sorted(ConfigurationFile.model_fields))
def test_each_field_is_read(field: str) -> None:
    """Elsewhere than where its form is: as an attribute, or by its name in the document."""
    alias = ConfigurationFile.model_fields[field].alias
    assert {field, alias} & BEYOND_THE_FILE


@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_is_read(command: str) -> None:
    """By its name in the code of commands, or as a field of the configuration."""
    parser, _ = command_of(command)
    wanted = {action.dest for action in parser._actions} - {"help"}
    assert wanted - BY_COMMANDS - FIELDS_OF_OPTIONS - GIVEN == set()

"""The types of a scenario's filesystems: how small each may be, and a scenario on another type than its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from eviction.drill.scenario.amounts import ScenarioError
from eviction.drill.scenario.types import ON_LOOP_DEVICES, FilesystemSpec, FilesystemType, Scenario
from signals.quantity import format_bytes

_Spec = TypeVar("_Spec", bound=FilesystemSpec)


def refuse_too_small(field: str, spec: FilesystemSpec) -> None:
    """Raises ScenarioError if no filesystem of that type can be so small."""
    least = ON_LOOP_DEVICES.get(spec.type, 0)
    if spec.size_bytes < least:
        is_, was = format_bytes(least), format_bytes(spec.size_bytes)
        raise ScenarioError(f"{field}: must be at least {is_} for {spec.type}, but it was {was}")


def on_filesystems(scenario: Scenario, fstype: FilesystemType) -> Scenario:
    """The scenario with filesystems of this type where it has tmpfs. Raises ScenarioError if one is too small."""
    node = scenario.node

    def changed(name: str, spec: _Spec) -> _Spec:
        if spec.type is not FilesystemType.TMPFS:
            return spec
        found = replace(spec, type=fstype)
        refuse_too_small(f"{scenario.name}: the size of {name}", found)
        return found

    return replace(
        scenario,
        node=replace(
            node,
            nodefs=changed("nodefs", node.nodefs),
            imagefs=None if node.imagefs is None else changed("imagefs", node.imagefs),
            own={role: changed(role, spec) for role, spec in node.own.items()},
        ),
    )

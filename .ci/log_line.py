"""The fields of a line of the log in JSON, for its schema: the program gives
each event those that it has.
"""

from __future__ import annotations

from typing import Literal

from eviction.records.attribution import Attribution
from eviction.records.json_shapes import LEFT_OUT, Count, Document, LeftOut, RoleName, Time
from eviction.records.pass_json import PassJson
from eviction.records.passes import PassResult
from eviction.types import NodeCondition
from reclaim.evidence.states import Why
from reclaim.types import EventReason


class LogLineJson(Document):
    """One event, as one line of the log. The message is for people, the fields are for programs."""

    pass_: str | LeftOut = LEFT_OUT
    """The id of the pass that it is about."""
    time: Time
    """When it was written."""
    level: Literal["error", "warning", "info", "debug"]
    """warning: an operator should look at it."""
    message: str
    """A sentence."""
    result: PassResult | LeftOut = LEFT_OUT
    """How a pass ended."""
    record: PassJson | LeftOut = LEFT_OUT
    """The record of the pass, with its first 32 removals."""
    attribution: Attribution | LeftOut = LEFT_OUT
    """What uses the bytes of a filesystem, some seconds after a pass that was not enough."""
    condition: NodeCondition | LeftOut = LEFT_OUT
    """The node condition that changed."""
    status: bool | LeftOut = LEFT_OUT
    """Whether it is reported now."""
    event: EventReason | LeftOut = LEFT_OUT
    """The reason of an event about the node."""
    usage_percent: int | LeftOut = LEFT_OUT
    """In an event: how full imagefs is."""
    capacity_bytes: Count | LeftOut = LEFT_OUT
    """In an event: how large imagefs is."""
    target_bytes: Count | LeftOut = LEFT_OUT
    """In an event: how much was to be freed."""
    freed_bytes: Count | LeftOut = LEFT_OUT
    """In an event: how much was freed."""
    function: str | LeftOut = LEFT_OUT
    """The reclaim function whose program printed the line."""
    id: str | LeftOut = LEFT_OUT
    """The runtime's id for the object that the line is about."""
    signal: RoleName | LeftOut = LEFT_OUT
    """The filesystem that could not be read: its role, not a signal."""
    reason: Literal["held_off"] | LeftOut = LEFT_OUT
    """Why there is no pass although a threshold is met."""
    why: Why | LeftOut = LEFT_OUT
    """Why the kubelet's pod directories are not believed."""
    endpoint: str | LeftOut = LEFT_OUT
    """In the first line: the endpoint of the runtime."""
    address: str | LeftOut = LEFT_OUT
    """Where metrics and health are served."""

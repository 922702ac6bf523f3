"""The shape of a line of `--logging-format json`. It has no version of its own: a stream of lines is no document. The
record of a pass in it has one."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from eviction.record import PassResult
from eviction.reporting.attribution import Attribution
from eviction.reporting.json_shapes import Count, Keywords, RoleName, Time, one_of
from eviction.reporting.pass_shapes import PassJson
from eviction.types import NodeCondition
from reclaim.events import EventReason
from reclaim.pods.states import Why

# `pass` is a word of Python's, so it cannot be a field of a class.
_OfAPass = TypedDict(
    "_OfAPass",
    {"pass": NotRequired[Annotated[str, Keywords({"description": "The id of the pass that the line is about."})]]},
)


class LogLineJson(_OfAPass):
    """One event, as one line of the log. What a sentence says is for people; the fields are for programs."""

    time: Time
    """When it was written."""
    level: Literal["error", "warning", "info", "debug"]
    """warning: something that an operator should look at."""
    message: str
    """A sentence."""
    result: NotRequired[Annotated[str, one_of(PassResult)]]
    """How a pass ended."""
    record: NotRequired[PassJson]
    """The record of the pass, with its first 32 removals."""
    attribution: NotRequired[Attribution]
    """Where the bytes of a filesystem are, some seconds after a pass that was not enough."""
    condition: NotRequired[Annotated[str, one_of(NodeCondition)]]
    """The node condition that has changed."""
    status: NotRequired[bool]
    """Whether it is reported now."""
    event: NotRequired[Annotated[str, one_of(EventReason)]]
    """The kubelet's reason of an event about the node."""
    usage_percent: NotRequired[int]
    """Of an event: how full the filesystem of images is."""
    capacity_bytes: NotRequired[Count]
    """Of an event: how large it is."""
    target_bytes: NotRequired[Count]
    """Of an event: how much was to be freed."""
    freed_bytes: NotRequired[Count]
    """Of an event: how much was freed."""
    function: NotRequired[str]
    """The reclaim function whose program has printed the line."""
    id: NotRequired[str]
    """The runtime's id of the object that the line is about."""
    signal: NotRequired[RoleName]
    """The filesystem that could not be read: its role, not a signal."""
    reason: NotRequired[Literal["held_off"]]
    """Why there is no pass, although a threshold is met."""
    why: NotRequired[Annotated[str, one_of(Why)]]
    """Why the kubelet's directories of pods are not believed."""
    endpoint: NotRequired[str]
    """Of the first line: the runtime's."""
    address: NotRequired[str]
    """Where metrics and health are served."""

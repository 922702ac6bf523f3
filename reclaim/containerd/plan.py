"""What containerd is asked to collect, as a plan: one object. Values only."""

from __future__ import annotations

from typing import Final

from reclaim.types import Action, Plan, Verdict

CONTENT: Final = "content"
UNREFERENCED: Final = "unreferenced"
OBJECT_ID: Final = "containerd-garbage"
PLAN: Final = Plan((Verdict(CONTENT, OBJECT_ID, "content that nothing refers to", Action.REMOVE, UNREFERENCED),))
"""One object without a promised size: only containerd knows what it would delete."""

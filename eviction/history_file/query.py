"""What is asked of the history: since when, which object, how many. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from eviction.history_file.entries import Document
from eviction.reporting.observations_json import timestamp
from signals.quantity import QuantityError, parse_duration

SINCE_FORMS = "a duration such as 2h, 90m or 7d, or a time such as 2026-11-22T10:00:00Z"
DAY_SECONDS = 86400

_DAYS = re.compile(r"([0-9]{1,4})d", re.ASCII)


class QueryError(ValueError):
    """A text that says no time. The message is the end of a sentence about the option."""


def since(text: str, now: float) -> str:
    """The time that the option means, as the records have it. `now`: wall seconds. Raises QueryError."""
    days = _DAYS.fullmatch(text)
    try:
        if days is not None:
            return timestamp(now - int(days[1]) * DAY_SECONDS)
        if "T" in text or "-" in text[1:]:
            found = datetime.fromisoformat(text)
            return timestamp((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())
        seconds = parse_duration(text)
        if seconds >= 0:
            return timestamp(now - seconds)
    except (ValueError, OverflowError, OSError, QuantityError):
        pass
    raise QueryError(f"must be {SINCE_FORMS}, but it was {text!r}")


def selected(
    documents: Iterable[Document], *, start: str = "", about: str = "", limit: int | None = None
) -> list[Document]:
    """The documents from the time `start` on; with `about` only those with such an object, and of a pass only such
    removals; of these the newest `limit`."""
    found = [document for document in documents if str(document.get("time", "")) >= start]
    if about:
        found = list(chain.from_iterable(_about(document, about) for document in found))
    return found if limit is None else found[max(len(found) - limit, 0) :]


def _about(document: Document, text: str) -> list[Document]:
    removals = [removal for removal in document.get("removals", ()) if is_about(removal, text)]
    return [{**document, "removals": removals}] if removals else []


def is_about(removal: Mapping[str, Any], text: str) -> bool:
    """Whether the name of the object contains the text, or its id begins with it, with or without `sha256:`."""
    identity = str(removal.get("id", ""))
    return text in str(removal.get("name", "")) or identity.startswith((text, f"sha256:{text}"))

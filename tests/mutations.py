"""Small changes of a JSON document: one value replaced, left out, or a field added."""

import copy
import re
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

Path = tuple[str | int, ...]

PLAIN_TEXTS = """
0 1 -1 5 1.5 0s 5m 1m30s -1s +2s 1d 250ms µs 1µs 5% 100% 101% 7.5% 5%% -5% % 1e1% 10Gi 500Mi
1.5Gi 1e9 1E 1E3 10GiB -1Gi +1Gi fast full never / /x /x/y x/y unix:///x none auto 127.0.0.1:1
nodefs nodefs.available imagefs.inodesFree memory.available buildcache buildcache.available
Nodefs all enough running gone bytes inodes tmpfs single DeleteUnusedImages true
"""
TEXTS = ("", *PLAIN_TEXTS.split(), "a" * 70, "9" * 65)
SCALARS = (*TEXTS, None, True, False, 0, 1, -1, 2, 64, 65, 100, 101, 10_000, 2**40)
VALUES = st.one_of(
    st.sampled_from(SCALARS),
    st.sampled_from(
        [[], {}, [""], ["/x"], [1], [None], [{}], {"x": 1}, {"nodefs.available": "5%"}, {"x": None}]
    ),
    st.text("0123456789.-+%KMGTimnsuhe/", max_size=8),
)


def places(document: Any, above: Path = ()) -> Iterator[Path]:
    """The place of every value below the document."""
    entries = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in entries:
        yield (*above, key)
        if isinstance(value, dict | list):
            yield from places(value, (*above, key))


def changed(document: Any, place: Path, *value: Any) -> Any:
    """A copy with this value at that place, or with none."""
    copied = copy.deepcopy(document)
    holder = copied
    for key in place[:-1]:
        holder = holder[key]
    if value:
        (holder[place[-1]],) = value
    else:
        del holder[place[-1]]
    return copied


@st.composite
def mutations(draw: st.DrawFn, document: Any) -> Any:
    """A document with one small change."""
    place = draw(st.sampled_from(list(places(document))))
    match draw(st.sampled_from(["replace", "replace", "replace", "leave out", "add"])):
        case "leave out":
            return changed(document, place)
        case "add" if isinstance(place[-1], str):
            name = draw(
                st.sampled_from(
                    [f"{place[-1]}s", "x", "name", "size", re.sub(r"^.", "N", place[-1])]
                )
            )
            return changed(document, (*place[:-1], name), draw(VALUES))
        case _:
            return changed(document, place, draw(VALUES))

"""The keep-list: images that are kept whatever their age and however full the disk is.

An entry of `keepImages` has one of four forms, told apart by how it is written:

| Form | Example | Keeps |
|---|---|---|
| glob | `registry.example/team/*`, `*:stable` | every image with a name that matches |
| digest | `sha256:<64 hex digits>`, `app@sha256:…` | the image with this id, or with this manifest digest |
| reference | `registry.example/app:1.2`, `busybox:1.36` | the image that carries this tag |
| repository | `registry.example/app`, `busybox` | every tag and digest of the repository |

Short names are Docker's: `busybox` is `docker.io/library/busybox`
(https://github.com/distribution/reference, ParseNormalizedNamed). In a glob `*` stands for any run of characters, `/`
and `:` included, so `registry.example/*` keeps all images of that registry; no other character is special. A
glob is matched against the whole of a name (registry, repository and tag, or registry, repository and digest), for
images of Docker Hub also against their short names, and for an image without a name against its id: `*` keeps all.

Where an entry could mean more than one image it means all of them: an image that is kept by mistake can be removed
later.

Covers: reading entries, which images they keep, which entries keep none. Does not cover: the plan (`plan`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from reclaim.images.references import bare_hex, normalized, repository_of
from reclaim.types import Image, PolicyError

LONGEST_ENTRY = 512  # characters; a repository has at most 255, a tag 128, a digest 71

_HEX = re.compile(r"[0-9a-f]{64}")
_GLOB = re.compile(r"[A-Za-z0-9._:/@*-]+")
# Host, path and tag as the reference grammar has them. Each separator is a character that the parts around it
# cannot hold, so that a match never backtracks.
_PATH = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_NAME = re.compile(
    rf"(?:(?:[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(?::[0-9]+)?/)?{_PATH}(?:/{_PATH})*(?::[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}})?"
)
_DOCKER_HUB = "docker.io/"
_DOCKER_LIBRARY = "docker.io/library/"


class KeepForm(StrEnum):
    """How an entry says what it keeps."""

    REFERENCE = "reference"
    REPOSITORY = "repository"
    DIGEST = "digest"
    GLOB = "glob"


@dataclass(frozen=True, slots=True)
class KeepEntry:
    """One entry: as it was written, its form, and what is compared (a full name, 64 hex digits, or the glob)."""

    text: str
    form: KeepForm
    pattern: str


@dataclass(frozen=True, slots=True)
class KeepList:
    """All entries, in the order in which they were written."""

    entries: tuple[KeepEntry, ...] = ()

    def kept_ids(self, images: Iterable[Image]) -> frozenset[str]:
        """The ids of the images that any entry keeps."""
        if not self.entries:
            return frozenset()
        plain = self._patterns_but_globs()
        globs = _Globs(entry.pattern for entry in self.entries if entry.form is KeepForm.GLOB)
        return frozenset(
            image.id for image in images if not plain.isdisjoint(_exact_names(image)) or globs.match_any(_names(image))
        )

    def unmatched(self, images: Iterable[Image]) -> tuple[str, ...]:
        """The entries, as written, that keep none of these images: misspelt, or not needed any more."""
        exact: set[tuple[KeepForm, str]] = set()
        names: set[str] = set()
        for image in images:
            exact.update(_exact_names(image))
            names.update(_names(image))

        def keeps_one(entry: KeepEntry) -> bool:
            if entry.form is KeepForm.GLOB:
                return _Globs([entry.pattern]).match_any(names)
            return (entry.form, entry.pattern) in exact

        return tuple(entry.text for entry in self.entries if not keeps_one(entry))

    def _patterns_but_globs(self) -> frozenset[tuple[KeepForm, str]]:
        return frozenset((entry.form, entry.pattern) for entry in self.entries if entry.form is not KeepForm.GLOB)


KEEP_NOTHING = KeepList()


def parse_keep_list(entries: Iterable[str]) -> KeepList:
    """The entries of `keepImages`, each once. Raises PolicyError, which names the entry and the allowed forms."""
    return KeepList(tuple(_parse(entry) for entry in dict.fromkeys(entries)))


def _parse(text: str) -> KeepEntry:
    if not 0 < len(text) <= LONGEST_ENTRY:
        raise _refused(text, f"it has {len(text)} characters, 1 to {LONGEST_ENTRY} are allowed")
    if "*" in text:
        if not _GLOB.fullmatch(text):
            raise _refused(text, "a glob holds letters, digits and ._:/@- besides *")
        return KeepEntry(text, KeepForm.GLOB, text)
    if _HEX.fullmatch(text):  # an id as CRI-O shows it; no repository may be named so
        return KeepEntry(text, KeepForm.DIGEST, text)
    name, _, digest = text.rpartition("@")
    if "@" in text or text.startswith("sha256:"):
        hexadecimal = bare_hex(digest)
        if digest == hexadecimal or not _HEX.fullmatch(hexadecimal):
            raise _refused(text, "a digest is sha256: and all 64 of its hexadecimal digits in lower case")
        if "@" in text and not _NAME.fullmatch(name):
            raise _refused(text, "what stands before the @ is no image name")
        return KeepEntry(text, KeepForm.DIGEST, hexadecimal)
    if not _NAME.fullmatch(text):
        hint = "repositories are written in lower case" if _NAME.fullmatch(text.lower()) else "it is no image name"
        raise _refused(text, hint)
    if ":" in text.rpartition("/")[2]:
        return KeepEntry(text, KeepForm.REFERENCE, normalized(text))
    return KeepEntry(text, KeepForm.REPOSITORY, repository_of(normalized(text)))


def _refused(text: str, why: str) -> PolicyError:
    shown = text if len(text) <= 80 else f"{text[:80]}…"
    return PolicyError(
        f"keepImages: {shown!r} cannot be used: {why}; allowed are a reference (registry/repository:tag), "
        "a repository, a digest (sha256:…) and a glob (registry/team/*)"
    )


def _exact_names(image: Image) -> list[tuple[KeepForm, str]]:
    """All forms in which an entry that is no glob can name this image."""
    found = [(KeepForm.DIGEST, bare_hex(image.id))]
    for tag in map(normalized, image.repo_tags):
        found += ((KeepForm.REFERENCE, tag), (KeepForm.REPOSITORY, repository_of(tag)))
    for name in map(normalized, image.repo_digests):
        found += ((KeepForm.DIGEST, bare_hex(name.rpartition("@")[2])), (KeepForm.REPOSITORY, repository_of(name)))
    return found


def _names(image: Image) -> list[str]:
    """What globs are matched against: full names, and the short ones of Docker Hub; the id where there is no name."""
    found = [normalized(name) for name in (*image.repo_tags, *image.repo_digests)] or [image.id]
    hub = [name for name in found if name.startswith(_DOCKER_HUB)]
    found += [name.removeprefix(_DOCKER_HUB) for name in hub]
    found += [name.removeprefix(_DOCKER_LIBRARY) for name in hub]
    return found


class _Globs:
    """Globs, prepared so that 100 of them cost little for each image.

    Those with one star at an end are one call for all of them. Of each other glob the literal parts are first searched
    in all names at once. Matching searches each literal part once, from left to right: its time is linear in the name.
    """

    def __init__(self, patterns: Iterable[str]):
        parts = [tuple(pattern.split("*")) for pattern in patterns]
        self._heads = tuple(head for head, *rest in parts if rest == [""])
        self._tails = tuple(rest[0] for head, *rest in parts if len(rest) == 1 and head == "" and rest[0])
        self._others = [
            ([part for part in (*literals[1:], literals[0]) if part], literals)  # a head is shared by many names
            for literals in parts
            if len(literals) > 2 or (len(literals) == 2 and all(literals))
        ]

    def match_any(self, names: Collection[str]) -> bool:
        """Whether one of the names matches one of the globs."""
        if any(name.startswith(self._heads) or name.endswith(self._tails) for name in names):
            return True
        together = "\n".join(names)  # no part of a glob holds a line break
        for needed, literals in self._others:
            for part in needed:
                if part not in together:
                    break
            else:
                if any(_matches(name, literals) for name in names):
                    return True
        return False


def _matches(name: str, literals: tuple[str, ...]) -> bool:
    """Whether the name begins with the first literal part, ends with the last, and has the others in their order in
    between. The earliest match of each part leaves the most text for the next, so one try is enough."""
    head, *middles, tail = literals
    if not (name.startswith(head) and name.endswith(tail)):
        return False
    at, end = len(head), len(name) - len(tail)
    for part in middles:
        found = name.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return at <= end

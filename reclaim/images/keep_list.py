"""The keep-list: images that are kept whatever their age and however full the disk is.

An entry of `keepImages` has one of four forms, distinguished by how it is written:

| Form | Example | Keeps |
|---|---|---|
| glob | `registry.example/team/*`, `*:stable` | every image with a name that matches |
| digest | `sha256:<64 hex digits>`, `app@sha256:…` | the image with this id or manifest digest |
| reference | `registry.example/app:1.2`, `busybox:1.36` | the image that carries this tag |
| repository | `registry.example/app`, `busybox` | every tag and digest of the repository |

Short names are Docker's: `busybox` is `docker.io/library/busybox`
(https://github.com/distribution/reference, ParseNormalizedNamed). In a glob, `*` matches any run of
characters, including `/` and `:`, so `registry.example/*` keeps all images of that registry; no
other character is special. A glob is matched against a whole name (registry, repository and tag, or
registry, repository and digest), for images of Docker Hub also against their short names, and for
an image without a name against its id: `*` keeps all.

An entry that could mean several images means all of them: an image that is kept by
mistake can be removed later.

Covers: reading entries, which images they keep, which entries keep none. Does not
cover: the plan (`plan`).
"""

import fnmatch
import re
from collections.abc import Iterable
from typing import NamedTuple

from reclaim.evidence.references import NAME, bare_hex, names_one_image, normalized, repository_of
from reclaim.types import Image, PolicyError

LONGEST_ENTRY = 512  # characters; a repository has at most 255, a tag 128, a digest 71

_GLOB = re.compile(r"[A-Za-z0-9._:/@*-]+")
# of a full name in its short forms, by which globs find images of Docker Hub, too
_LEFT_OUT = ("", "docker.io/", "docker.io/library/")


class KeepList(NamedTuple):
    """All entries, as written and in order, and what is compared with the names of images.

    `exact`: full names, full repositories, and 64 hex digits, none of which can be mistaken
    for another. `globs`: all globs as one expression that never tries a position for a star
    twice (`fnmatch.translate`).
    """

    entries: tuple[str, ...]
    exact: frozenset[str]
    globs: re.Pattern[str]

    def kept_ids(self, images: Iterable[Image]) -> frozenset[str]:
        """The ids of the images that any entry keeps."""
        if not self.entries:
            return frozenset()
        return frozenset(image.id for image in images if self._keeps(image))

    def unmatched(self, images: Iterable[Image]) -> tuple[str, ...]:
        """The entries that keep none of these images: misspelt, or no longer needed."""
        images = tuple(images)
        return tuple(
            entry for entry in self.entries if not parse_keep_list([entry]).kept_ids(images)
        )

    def _keeps(self, image: Image) -> bool:
        names = [normalized(name) for name in image.names]
        digests = [name.rpartition("@")[2] for name in names]
        exact = {*names, *map(repository_of, names), *map(bare_hex, [image.id, *digests])}
        return not self.exact.isdisjoint(exact) or any(
            self.globs.match(name.removeprefix(prefix))
            for name in names or [image.id]
            for prefix in _LEFT_OUT
        )


def parse_keep_list(entries: Iterable[str]) -> KeepList:
    """The entries of `keepImages`, each once.

    Raises PolicyError, which names the entry and the allowed forms.
    """
    compared = {entry: _parse(entry) for entry in entries}
    globs = "|".join(fnmatch.translate(entry) for entry in compared if "*" in entry)
    # nothing matches (?!)
    return KeepList(tuple(compared), frozenset(compared.values()), re.compile(globs or "(?!)"))


def _parse(text: str) -> str:
    """What is compared: a glob as it is, a full name, a full repository, or 64 hex digits.

    Raises PolicyError.
    """
    name, at, digest = text.rpartition("@")
    if len(text) <= LONGEST_ENTRY:
        if "*" in text and _GLOB.fullmatch(text):
            return text
        # 64 digits alone are an id as CRI-O shows it; no repository may have such a name
        if names_one_image(text) and (
            not at or (digest.startswith("sha256:") and NAME.fullmatch(name))
        ):
            return bare_hex(digest)
        if NAME.fullmatch(text) and not text.startswith("sha256:"):
            tagged = ":" in text.rpartition("/")[2]
            return normalized(text) if tagged else repository_of(normalized(text))
    raise PolicyError(
        f"{text[:80]!r}{'…' * (len(text) > 80)} cannot be used; allowed are, in at most"
        f" {LONGEST_ENTRY} characters, a reference (registry/repository:tag) and a repository, both"
        " in lower case, a digest (sha256: and 64 hexadecimal digits, also behind a reference and"
        " @), and a glob (registry/team/*: letters, digits, ._:/@- and *)"
    )


KEEP_NOTHING = parse_keep_list(())

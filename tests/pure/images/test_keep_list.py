"""The keep-list: what each form of entry keeps, what is refused, what it costs."""

from __future__ import annotations

import pytest

from reclaim.images.keep_list import KEEP_NOTHING, LONGEST_ENTRY, parse_keep_list
from reclaim.types import Image, PolicyError
from tests.pure.values import image, image_id
from tests.rows import rows
from tests.work import lines_run

DIGEST = "sha256:" + "d" * 64
BUSYBOX = image(
    1, "docker.io/library/busybox:1.36", digests=(f"docker.io/library/busybox@{DIGEST}",)
)
TEAM = image(2, "registry.example/team/app:stable")
NESTED = image(3, "registry.example/team/sub/app:1")
PORT = image(4, "localhost:5000/app:2")
DANGLING = image(5)
HUB_TEAM = image(6, "docker.io/team/app:1")
DIGEST_ONLY = image(7, digests=(f"registry.example/signed@{DIGEST}",))
ALL = (BUSYBOX, TEAM, NESTED, PORT, DANGLING, HUB_TEAM, DIGEST_ONLY)
NUMBERS = {one.id: number for number, one in enumerate(ALL, start=1)}


@rows("""
    entry                                   | kept          | what
    docker.io/library/busybox:1.36          | 1             | a tag, in full
    busybox:1.36                            | 1             | in Docker's short form
    library/busybox:1.36                    | 1             | in its longer one
    index.docker.io/library/busybox:1.36    | 1             | by the old registry
    busybox:1.37                            | -             | another tag
    busybox:latest                          | -             | no tag is not `latest`
    localhost:5000/app:2                    | 4             | a registry with a port
    team/app:1                              | 6             | of Docker Hub alone
    busybox                                 | 1             | a repository: every tag and digest
    docker.io/library/busybox               | 1             | in full
    localhost:5000/app                      | 4             | a port is no tag
    registry.example/team/app               | 2             | one repository
    registry.example/team                   | -             | no part of one
    registry.example/signed                 | 7             | by digest alone
    app                                     | -             | of Docker Hub alone
    DIGEST                                  | 1 7           | a digest, whatever the repository
    busybox@DIGEST                          | 1 7           | behind a repository
    busybox:1.36@DIGEST                     | 1 7           | behind a tag
    ID5                                     | 5             | an id
    HEX5                                    | 5             | a bare id
    OTHER                                   | -             | another digest
    registry.example/team/*                 | 2 3           | a glob crosses `/`
    registry.example/*                      | 2 3 7         | and `:`
    *:stable                                | 2             | by tag
    */app:*                                 | 2 3 4 6       | in the middle
    registry.example/*/app:1                | 3             | between
    *team*                                  | 2 3 6         | anywhere
    busybox:*                               | 1             | of a short name
    busy*                                   | 1             | of a part of it
    library/busy*                           | 1             | in its longer form
    docker.io/*                             | 1 6           | of Docker Hub
    team/*                                  | 6             | the same
    *@sha256:dddd*                          | 1 7           | of digests
    *                                       | 1 2 3 4 5 6 7 | everything
    **                                      | 1 2 3 4 5 6 7 | as well
    registry.example/team/app:stable*       | 2             | a star for nothing
    registry.example/team/app:stable*stable | -             | no overlap
    *stable*stable*                         | -             | nor here
""")
def test_what_an_entry_keeps(entry: str, kept: str) -> None:
    """By its form; and an entry that keeps nothing is reported."""
    for word, text in (
        ("DIGEST", DIGEST),
        ("OTHER", "sha256:" + "e" * 64),
        ("ID5", DANGLING.id),
        ("HEX5", DANGLING.id.removeprefix("sha256:")),
    ):
        entry = entry.replace(word, text)
    keep = parse_keep_list([entry])
    found = sorted(NUMBERS[image_id] for image_id in keep.kept_ids(ALL))
    assert found == [int(number) for number in kept.split() if number != "-"]
    assert keep.unmatched(ALL) == (() if found else (entry,))


def test_several_entries_keep_what_any_of_them_keeps() -> None:
    """And each is asked by itself whether it keeps anything."""
    keep = parse_keep_list(["busybox", "gone:1", "*:stable", "gone:1", "nothing/*"])
    assert keep.kept_ids(ALL) == {BUSYBOX.id, TEAM.id}
    assert keep.unmatched(ALL) == ("gone:1", "nothing/*")
    assert parse_keep_list([]) == KEEP_NOTHING
    assert (KEEP_NOTHING.kept_ids(ALL), KEEP_NOTHING.unmatched(ALL)) == (frozenset(), ())


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "a" * (LONGEST_ENTRY + 1),
        "BusyBox",
        "registry.example/Team/app:1",
        " busybox",
        "busybox\n",
        "https://registry.example/app",
        "registry.example/team/",
        "busybox:",
        "busybox:-1",
        "busy..box",
        "app?",
        "[ab]*",
        "app *",
        "sha256:abc",
        "sha256:" + "D" * 64,
        "busybox@sha512:" + "d" * 64,
        "busybox@" + "d" * 64,
        "BusyBox@" + DIGEST,
        "@" + DIGEST,
    ],
)
def test_a_bad_entry_is_refused_in_a_sentence(entry: str) -> None:
    """It names the entry, and the allowed forms."""
    with pytest.raises(PolicyError) as refusal:
        parse_keep_list(["busybox", entry])
    sentence = str(refusal.value)
    assert sentence.startswith(repr(entry[:80])[:-1])
    for form in ("a reference", "a repository", "a digest", "a glob"):
        assert form in sentence


@pytest.mark.parametrize(
    "entry", ["registry.example/*/gone-{}:*", "*gone-{}*", "gone-{}", "sha256:{:064x}"]
)
def test_what_an_image_costs_does_not_grow_with_the_entries(entry: str) -> None:
    """Counted, not timed: all globs are one expression, and all other entries are looked up."""

    def lines(images: int, entries: int) -> int:
        listed = [
            image(
                n,
                f"registry.example/t-{n % 50}/app-{n}:v{n % 7}",
                digests=(f"registry.example/app-{n}@{DIGEST}",),
            )
            for n in range(1, images + 1)
        ]
        keep = parse_keep_list(entry.format(number) for number in range(entries))
        assert keep.kept_ids(listed) == frozenset()
        return lines_run(lambda: keep.kept_ids(listed))

    assert (lines(200, 100) - lines(100, 100)) / 100 <= 160
    assert lines(100, 100) == lines(100, 10)


def test_no_glob_makes_matching_explode() -> None:
    """A glob as long as an entry may be, over a name as long: one search for each part, not one try
    for each way to place the stars, which would not end."""
    keep = parse_keep_list(["*a" * 250 + "*b*1"])
    long_name = Image(image_id(1), ("registry.example/b" + "a" * 490 + ":1",))
    assert keep.kept_ids([long_name]) == frozenset()

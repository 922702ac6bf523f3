"""What a container says about its image, in any of its spellings, finds the image.

Source of the short forms: https://github.com/distribution/reference (ParseNormalizedNamed).
"""

from hypothesis import given
from hypothesis import strategies as st

from reclaim.evidence.references import (
    ImageIndex,
    bare_hex,
    is_full_name,
    normalized,
    removal_references,
)
from reclaim.images.plan import ImageGCPolicy, plan_image_gc
from reclaim.types import Image, Listing, Reason
from tests.pure.values import image, image_id
from tests.rows import rows

DIGEST, OTHER_DIGEST = ("sha256:" + digit * 64 for digit in "de")
WORDS = {"DIGEST": DIGEST, "OTHER": OTHER_DIGEST, "ID": image_id(0xABCDEF12)}
WORDS |= {"HEX": bare_hex(WORDS["ID"]), "MANIFEST": "a" * 64, "OWN": "b" * 64}


def spelt(text: str) -> str:
    """A reference, with digests and ids in place of these words; nothing for a dash."""
    for word, meant in WORDS.items():
        text = text.replace(word, meant)
    return text.removeprefix("-") if text == "-" else text


@rows("""
    reference                   | full
    busybox                     | docker.io/library/busybox:latest
    busybox:1.36                | docker.io/library/busybox:1.36
    grafana/loki                | docker.io/grafana/loki:latest
    docker.io/busybox           | docker.io/library/busybox:latest
    index.docker.io/library/a:1 | docker.io/library/a:1
    docker.io/library/busybox:1 | docker.io/library/busybox:1
    quay.io/a/b/c:1             | quay.io/a/b/c:1
    localhost/a                 | localhost/a:latest
    localhost:5000/a            | localhost:5000/a:latest
    registry:5000/a/b:1         | registry:5000/a/b:1
    busybox@DIGEST              | docker.io/library/busybox@DIGEST
    busybox:1.36@DIGEST         | docker.io/library/busybox@DIGEST
    localhost:5000/a@DIGEST     | localhost:5000/a@DIGEST
    DIGEST                      | DIGEST
    -                           | -
""")
def test_a_name_in_full(reference: str, full: str) -> None:
    """Registry, repository, and tag or digest; an id is no name."""
    assert normalized(spelt(reference)) == spelt(full)


NAMED = [
    image(0xABCDEF12, "docker.io/library/app:1", digests=(f"docker.io/library/app@{DIGEST}",)),
    image(2, "localhost/app:1"),
    image(3, "registry.example/team/app:1"),
    image(4, "registry.example/myapp:1"),
    image(5, "docker.io/library/app:2", "docker.io/library/new:latest"),
    image(5, "other:1"),  # CRI-O lists an image once per name in some versions
    image(0xFFF00000),
    image(0xFFF00001),
    Image(bare_hex(image_id(5)), ("bare:1",)),
]


@rows("""
    reference                     | found | what
    ID                            | 1     | an id
    HEX                           | 1     | a bare one
    ID[:63]                       | 1     | a short one
    HEX[:12]                      | 1     | a bare short one
    docker.io/library/app:1       | 1     | a tag
    docker.io/app:1               | 1     | of the default registry
    index.docker.io/library/app:1 | 1     | the same
    docker.io/library/app@DIGEST  | 1     | a digest
    app:1@DIGEST                  | 1     | with a tag
    app:gone@DIGEST               | 1     | with one that has gone
    elsewhere.io/x@DIGEST         | 1     | under any name
    DIGEST                        | 1     | under none
    app:1                         | 1 2 3 | without a registry: every name that ends so
    library/app:1                 | 1 2 3 | in a longer form
    team/app:1                    | 3     | of any registry
    localhost/app:1               | 2     | with a registry it means itself
    team.example/app:1            | -     | this one is another
    other:1                       | 5     | of the second entry of an id
    new                           | 5     | `latest`
    bare:1                        | 6     | an id without algorithm
    fff000                        | 7 8   | a short id means all that it fits
    fff00                         | -     | fewer than 6 digits are no id
    app                           | -     | another tag
    app:3                         | -     | nor this
    app@OTHER                     | -     | another digest
    app:1@OTHER                   | -     | is not found by a tag
    app:2@OTHER                   | -     | nor by this
    OTHER                         | -     | nor alone
    @                             | -     | no name
    -                             | -     | nothing
""")
def test_every_spelling_finds_the_image(reference: str, found: str) -> None:
    """Everything that a reference could mean is meant: that errs on the side of keeping. Nothing is
    guessed from what is merely similar."""
    name, _, end = reference.partition("[:")
    said = spelt(name)[: int(end.rstrip("]"))] if end else spelt(name)
    numbers = {0: "1", 1: "2", 2: "3", 3: "4", 4: "5", 6: "7", 7: "8", 8: "6"}
    ids = {NAMED[place].id: number for place, number in numbers.items()}
    assert " ".join(sorted(ids[each] for each in ImageIndex(NAMED).find(said))) == spelt(found)


@rows("""
    identity        | names                                             | removed_by                                       | what
    MANIFEST        | a.example/model:1                                 | a.example/model@sha256:MANIFEST                  | an artifact by its digest
    MANIFEST        | a.example/model:1 a.example/model:2 b.example/m:1 | a.example/model@sha256:MANIFEST a.example/model@sha256:MANIFEST b.example/m@sha256:MANIFEST | by each name with it
    MANIFEST        |                                                   |                                                  | without a name by nothing
    sha256:OWN      | a.example/app:1 a.example/app:1                   | sha256:OWN                                       | an image by its id
    OWN             | a.example/app:1                                   | OWN                                              | which is another digest
    sha256:MANIFEST | a.example/app:1                                   | sha256:MANIFEST                                  | with an algorithm in front it is no artifact's
""")
def test_by_what_an_image_or_an_artifact_is_removed(
    identity: str, names: str, removed_by: str
) -> None:
    """An artifact's id is the digest of its manifest, and CRI-O does nothing for that."""
    end = spelt("@sha256:MANIFEST")
    entries = [
        Image(spelt(identity), (name,), (f"{name.rpartition(':')[0]}{end}",))
        for name in names.split()
    ] or [Image(spelt(identity), (), (f"unknown{end}",))]
    assert removal_references(entries) == tuple(spelt(removed_by).split())
    listing = Listing(images=tuple(entries), sandbox_image_references=frozenset())
    plan = plan_image_gc(listing, {}, ImageGCPolicy(min_age_seconds=0), now=0.0)
    reasons = [each.reason for each in plan.remove + plan.keep]
    assert reasons == [Reason.UNUSED if removed_by else Reason.PINNED]


names = st.sampled_from(
    ["app", "app:1", "docker.io/library/app", "quay.io/a/b:2", "x:latest", "localhost:5000/x"]
)
digests = st.sampled_from(["a", "b", "c"]).map(lambda digit: "sha256:" + digit * 64)
named_images = st.lists(
    st.builds(
        lambda number, tags, repo_digests: image(number, *tags, digests=tuple(repo_digests)),
        st.integers(1, 2**32 - 1),
        st.lists(names, max_size=2),
        st.lists(
            st.builds(
                "{}@{}".format, names.map(lambda name: name.rpartition(":")[0] or name), digests
            ),
            max_size=2,
        ),
    ),
    max_size=5,
)


@given(named_images, names, digests, st.text(max_size=40) | st.text("abc019/:@.", max_size=30))
def test_a_digest_is_never_resolved_through_a_tag(
    images: list[Image], name: str, digest: str, text: str
) -> None:
    """Whatever name stands before it, a digest means the images that are listed with that very
    digest, and no other. Every image is found by everything that it carries; any text means listed
    images or none, and the order of the list changes nothing."""
    index = ImageIndex(images)
    carrying = {
        one.id for one in images if any(each.endswith(f"@{digest}") for each in one.repo_digests)
    }
    assert index.find(f"{name}@{digest}") == carrying == index.find(digest)
    for one in images:
        bare = bare_hex(one.id)
        for reference in (one.id, bare, bare[:12], *one.repo_tags, *one.repo_digests):
            assert one.id in index.find(reference)
    found = index.find(text)
    assert found <= {one.id for one in images}
    assert found == ImageIndex(reversed(images)).find(text)
    assert normalized(f"registry.example/{text}").startswith("registry.example/")


@rows("""
    name                            | full
    registry.example/team/app:1     | yes
    localhost:5000/app              | yes
    [2001:db8::1]:5000/app:1        | yes
    registry.example/app:1@DIGEST   | yes
    registry.example/app@SHA512     | yes
    registry.example/LONG           | yes
    registry.example/LONGa          | no
    busybox:1                       | no
    registry.example/Team/app       | no
    registry..example/app           | no
    -registry.example/app           | no
    registry.example/app:           | no
    registry.example/app:TAG        | no
    registry.example/app@           | no
    registry.example/app@sha256:abc | no
    registry.example/app@UPPER      | no
    registry.example/app@MD5        | no
    registry.example/app@DIGESTx    | no
    DIGEST                          | no
    -                               | no
""")
def test_only_what_every_runtime_understands_is_a_full_name(name: str, full: str) -> None:
    """A CRI-O fails for anything else that a pod's spec may say, and that must not stop the removal
    of images."""
    for word, text in (
        ("SHA512", "sha512:" + "d" * 128),
        ("UPPER", "sha256:" + "D" * 64),
        ("MD5", "md5:" + "d" * 32),
        ("LONG", "a" * 238),
        ("TAG", "1" * 129),
    ):
        name = name.replace(word, text)
    assert is_full_name(spelt(name)) is (full == "yes")
    assert not is_full_name(f"{spelt(name)} ")

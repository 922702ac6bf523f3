"""What a container says about its image, in any of its spellings, finds the image.

Source of the short forms: https://github.com/distribution/reference (ParseNormalizedNamed).
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.evidence.references import (
    ImageIndex,
    ImagesInUse,
    bare_hex,
    is_full_name,
    normalized,
    removal_references,
)
from reclaim.images.plan import ImageGCPolicy, plan_image_gc
from reclaim.types import Image, Listing, Reason
from tests.pure.values import image, image_id

DIGEST = "sha256:" + "d" * 64


@pytest.mark.parametrize(
    ("reference", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1.36", "docker.io/library/busybox:1.36"),
        ("grafana/loki", "docker.io/grafana/loki:latest"),
        ("grafana/loki:2", "docker.io/grafana/loki:2"),
        ("docker.io/library/busybox:1.36", "docker.io/library/busybox:1.36"),
        ("quay.io/a/b/c:1", "quay.io/a/b/c:1"),
        ("localhost/a", "localhost/a:latest"),
        ("localhost:5000/a", "localhost:5000/a:latest"),
        ("registry:5000/a/b:1", "registry:5000/a/b:1"),
        (f"busybox@{DIGEST}", f"docker.io/library/busybox@{DIGEST}"),
        (f"busybox:1.36@{DIGEST}", f"docker.io/library/busybox@{DIGEST}"),
        (f"localhost:5000/a@{DIGEST}", f"localhost:5000/a@{DIGEST}"),
        (DIGEST, DIGEST),
        ("", ""),
    ],
)
def test_a_name_in_full(reference: str, full: str) -> None:
    """Registry, repository, and tag or digest; an id is no name."""
    assert normalized(reference) == full


@pytest.mark.parametrize(
    "reference",
    [
        image_id(0xABCDEF12),
        bare_hex(image_id(0xABCDEF12)),
        image_id(0xABCDEF12)[: len("sha256:") + 56],
        bare_hex(image_id(0xABCDEF12))[:55],
        "docker.io/library/app:1",
        "app:1",
        f"docker.io/library/app@{DIGEST}",
        f"app@{DIGEST}",
        f"app:1@{DIGEST}",
        f"app:gone@{DIGEST}",
        f"elsewhere.io/other@{DIGEST}",
        DIGEST,
    ],
)
def test_every_spelling_finds_the_image(reference: str) -> None:
    """Id, short id, tag in full and in short, repository digest, digest under any name."""
    wanted = image(
        0xABCDEF12, "docker.io/library/app:1", digests=(f"docker.io/library/app@{DIGEST}",)
    )
    other = image(0xFFF00000, "docker.io/library/app:2")
    assert ImageIndex([other, wanted]).find(reference) == {wanted.id}


@pytest.mark.parametrize(
    "reference",
    ["", "app", "app:3", "other:1", "00000", f"app@sha256:{'e' * 64}", image_id(7), "@"],
)
def test_what_no_image_carries_finds_nothing(reference: str) -> None:
    """Nothing is guessed from what is merely similar; fewer than 6 hexadecimal digits are no id."""
    assert ImageIndex([image(1, "docker.io/library/app:1")]).find(reference) == set()


def test_a_short_id_that_fits_several_images_means_all_of_them() -> None:
    """Everything that a reference could mean is meant: that errs on the side of keeping."""
    images = [image(1), image(2), image(0xFFF00000)]
    assert ImageIndex(images).find("000000") == {image_id(1), image_id(2)}


def test_a_tag_that_two_images_carry_means_both() -> None:
    """A list read while a tag moves may show it twice."""
    images = [image(1, "app:1"), image(2, "docker.io/library/app:1")]
    assert ImageIndex(images).find("app:1") == {image_id(1), image_id(2)}


def test_one_id_listed_twice_is_found_by_the_tags_of_both() -> None:
    """CRI-O lists an image once per name in some versions."""
    index = ImageIndex([image(1, "a:1"), image(1, "b:1")])
    assert index.find("a:1") == index.find("b:1") == {image_id(1)}


@pytest.mark.parametrize(
    ("reference", "numbers"),
    [
        ("app:1", {1, 2, 3}),
        ("library/app:1", {1, 2, 3}),
        ("team/app:1", {3}),
        ("app", set()),
        ("docker.io/app:1", {1}),
        ("localhost/app:1", {2}),
        ("team.example/app:1", set()),
    ],
)
def test_a_name_without_a_registry_means_every_name_that_ends_so(
    reference: str, numbers: set[int]
) -> None:
    """CRI-O may take it for one of any registry of its configuration; a name
    with a registry means itself.
    """
    names = (
        "docker.io/library/app:1",
        "localhost/app:1",
        "registry.example/team/app:1",
        "registry.example/myapp:1",
    )
    index = ImageIndex([image(number, name) for number, name in enumerate(names, 1)])
    assert index.find(reference) == {image_id(number) for number in numbers}


MANIFEST = "a" * 64


@pytest.mark.parametrize(
    ("names", "sent"),
    [
        ((("registry.example/model:1", f"registry.example/model@sha256:{MANIFEST}"),), (1,)),
        (
            (
                ("registry.example/model:1", f"registry.example/model@sha256:{MANIFEST}"),
                ("registry.example/model:2", f"registry.example/model@sha256:{MANIFEST}"),
                ("other.example/model:1", f"other.example/model@sha256:{MANIFEST}"),
            ),
            (1, 1, 1),
        ),
        ((("", f"unknown@sha256:{MANIFEST}"),), ()),
    ],
    ids=["one name", "three names", "no name"],
)
def test_an_artifact_is_removed_by_each_name_with_its_digest(
    names: tuple[tuple[str, str], ...], sent: tuple[int, ...]
) -> None:
    """Its id is that digest, and CRI-O does nothing for the id; one without a
    name is removed by nothing.
    """
    entries = [Image(MANIFEST, (tag,) if tag else (), (digest,)) for tag, digest in names]
    expected = tuple(digest for _, digest in names)[: len(sent)]
    assert removal_references(entries) == expected
    usage = ImagesInUse(frozenset(), frozenset(), (), sandbox_image_known=True)
    plan = plan_image_gc(
        Listing(images=tuple(entries)), {}, ImageGCPolicy(min_age_seconds=0), now=0.0, usage=usage
    )
    assert [each.reason for each in plan.remove + plan.keep] == [
        Reason.UNUSED if sent else Reason.PINNED
    ]


@pytest.mark.parametrize("prefix", ["sha256:", ""])
def test_an_image_is_removed_by_its_id(prefix: str) -> None:
    """Its digest is of the manifest, and its id another one; with an algorithm in front
    it is never an artifact's.
    """
    one = Image(
        prefix + "b" * 64, ("registry.example/app:1",), (f"registry.example/app@sha256:{MANIFEST}",)
    )
    same = Image(f"sha256:{MANIFEST}", (), (f"registry.example/app@sha256:{MANIFEST}",))
    assert [removal_references([each, each]) for each in (one, same)] == [(one.id,), (same.id,)]


listed = st.lists(
    st.builds(
        image,
        st.integers(1, 2**32 - 1),
        st.sampled_from(["app:1", "quay.io/a/b:2", "docker.io/library/x:1"]),
        digests=st.sampled_from([(), (f"app@{DIGEST}",)]),
    ),
    max_size=6,
)


@given(listed)
def test_every_image_is_found_by_everything_that_it_carries(images: list[Image]) -> None:
    """By id, bare id, a prefix of 12 digits, each tag and each digest."""
    index = ImageIndex(images)
    for one in images:
        hexadecimal = bare_hex(one.id)
        for reference in (one.id, hexadecimal, hexadecimal[:12], *one.repo_tags, *one.repo_digests):
            assert one.id in index.find(reference)


@given(listed, st.text(max_size=40) | st.text(alphabet="abc0123456789/:@.", max_size=30))
def test_any_reference_means_listed_images_or_none(images: list[Image], reference: str) -> None:
    """Whatever a runtime says, only listed ids come out, and the order of the
    list changes nothing.
    """
    found = ImageIndex(images).find(reference)
    assert found <= {one.id for one in images}
    assert found == ImageIndex(reversed(images)).find(reference)


@given(st.text(max_size=40))
def test_a_full_name_stays_as_it_is(reference: str) -> None:
    """Names of a registry with a dot are already in full, whatever the rest."""
    full = normalized(f"registry.example/{reference}")
    assert full.startswith("registry.example/")


@pytest.mark.parametrize(
    "reference",
    ["busybox", "docker.io/busybox", "index.docker.io/library/busybox:latest", "library/busybox"],
)
def test_short_forms_of_the_default_registry_are_one_name(reference: str) -> None:
    """A container that names its image in another form than the list uses it all the same."""
    found = ImageIndex([Image("sha256:" + "a" * 64, ("docker.io/library/busybox:latest",))]).find(
        reference
    )
    assert found == {"sha256:" + "a" * 64}


def test_one_image_listed_with_and_without_its_algorithm_is_found_whole() -> None:
    """`sha256:aa…` and `aa…` mean the same, so a reference means both entries."""
    long, bare = "sha256:" + "a" * 64, "a" * 64
    assert ImageIndex([Image(long), Image(bare)]).find(long) == {long, bare}


@pytest.mark.regression
def test_a_digest_that_is_not_listed_is_not_found_by_the_tag_of_another_image() -> None:
    """The tag has moved on since: the image of the digest is another one, or not there at all."""
    moved = image(
        1, "docker.io/library/app:latest", "app:1", digests=(f"docker.io/library/app@{DIGEST}",)
    )
    index = ImageIndex([moved, image(2, "app:2")])
    for reference in ("app@{}", "app:1@{}", "docker.io/library/app@{}", "app:2@{}"):
        assert index.find(reference.format("sha256:" + "e" * 64)) == set()


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


@pytest.mark.regression
@given(named_images, names, digests)
def test_a_digest_is_never_resolved_through_a_tag(
    images: list[Image], name: str, digest: str
) -> None:
    """Whatever name stands before it, a digest means the images that are listed with that
    very digest, and no other.
    """
    carrying = {
        one.id for one in images if any(each.endswith(f"@{digest}") for each in one.repo_digests)
    }
    index = ImageIndex(images)
    assert index.find(f"{name}@{digest}") == carrying == index.find(digest)


@pytest.mark.regression
@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("registry.example/team/app:1", True),
        ("localhost:5000/app", True),
        ("[2001:db8::1]:5000/app:1", True),
        (f"registry.example/app:1@{DIGEST}", True),
        ("registry.example/app@sha512:" + "d" * 128, True),
        ("registry.example/" + "a" * 238, True),
        ("registry.example/" + "a" * 239, False),
        ("busybox:1", False),
        ("registry.example/Team/app", False),
        ("registry..example/app", False),
        ("-registry.example/app", False),
        ("registry.example/app:", False),
        ("registry.example/app:" + "1" * 129, False),
        ("registry.example/app@", False),
        ("registry.example/app@sha256:abc", False),
        ("registry.example/app@sha256:" + "D" * 64, False),
        ("registry.example/app@md5:" + "d" * 32, False),
        (f"registry.example/app@{DIGEST} ", False),
        (DIGEST, False),
        ("", False),
    ],
)
def test_only_what_every_runtime_understands_is_a_full_name(name: str, full: bool) -> None:
    """A CRI-O fails for anything else that a pod's spec may say, and that must not
    stop the removal of images.
    """
    assert is_full_name(name) is full

"""What the kubelet's records of pulls say of an image.

Source: kubelet, `pkg/kubelet/images/pullmanager` (fs_pullrecords.go; the records
here are as in its testdata).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

import pytest

from reclaim.kubelet.pull_records import PullRecords, pull_records, record_names
from reclaim.types import NEVER, Container, Image
from tests.pure.values import container, image

DIGEST = "registry.example/app@sha256:" + "d" * 64
APP = image(1, "registry.example/app:1", digests=(DIGEST,))
OTHER = image(2, "registry.example/other:1")
NOW = time.time()
HOUR = 3600.0


def at_once(read):  # type: ignore[no-untyped-def] # as generic as what it stands for
    """Reads on this thread."""
    return read()


def name_of(reference: str) -> str:
    return f"sha256-{hashlib.sha256(reference.encode()).hexdigest()}"


class Kubelet:
    """A root directory as a kubelet since 1.35 keeps it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pulled, self.pulling = (
            root / "image_manager" / "pulled",
            root / "image_manager" / "pulling",
        )
        self.pulled.mkdir(parents=True, mode=0o700)
        self.pulling.mkdir(mode=0o700)

    def records(self, reference: str, at: float = NOW, version: str = "v1beta1") -> Path:
        """It has pulled an image."""
        path = self.pulled / name_of(reference)
        credentials = {"registry.example/app": {"nodePodsAccessible": True}}
        self._write(
            path, "ImagePulledRecord", version, imageRef=reference, credentialMapping=credentials
        )
        os.utime(path, (at, at))
        return path

    def begins(self, pods_image: str, version: str = "v1beta1") -> Path:
        """It is going to pull an image."""
        path = self.pulling / name_of(pods_image)
        self._write(path, "ImagePullIntent", version, image=pods_image)
        return path

    def _write(self, path: Path, kind: str, version: str, **fields: object) -> None:
        head = {"kind": kind, "apiVersion": f"kubelet.config.k8s.io/{version}"}
        path.write_text(json.dumps({**head, **fields}))

    def read(self, *containers: Container) -> PullRecords:
        """What is read of it."""
        return pull_records(str(self.root), containers, at_once)  # type: ignore[arg-type]


@pytest.fixture
def kubelet(tmp_path: Path) -> Kubelet:
    return Kubelet(tmp_path / "kubelet")


def runs(one: Image, made_at: float) -> Container:
    """A container of a pod with this image."""
    return container("c", references=(one.id, *one.repo_tags))._replace(
        created_at_ns=int(made_at * 1e9)
    )


@pytest.mark.parametrize("reference", [APP.id, DIGEST, APP.repo_tags[0]])
@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
def test_a_record_by_id_digest_or_name_says_that_it_was_pulled(
    kubelet: Kubelet, reference: str, version: str
) -> None:
    """Which of them depends on what the runtime answers to a pull; the version of
    the record does not matter.
    """
    kubelet.records(reference, version=version)
    found = kubelet.read()
    assert found.pulled(APP) is True
    assert found.pulled(OTHER) is None


@pytest.mark.parametrize("pods_image", ["registry.example/app", "registry.example/app:1", DIGEST])
def test_a_pull_that_has_begun_counts(kubelet: Kubelet, pods_image: str) -> None:
    """Its record may not be there yet, or could not be written on a full disk: then it stays."""
    untagged = image(1, "registry.example/app:latest", *APP.repo_tags, digests=APP.repo_digests)
    kubelet.begins(pods_image)
    assert kubelet.read().pulled(untagged, NEVER) is True
    assert kubelet.read().pulled(OTHER) is None


def test_an_unfinished_record_counts(kubelet: Kubelet) -> None:
    """The kubelet writes a file beside it and renames that."""
    path = kubelet.records(APP.id)
    path.rename(f"{path}.tmp")
    assert kubelet.read().pulled(APP) is True


def test_an_image_that_came_after_the_last_change_has_no_record_because_it_was_not_pulled(
    kubelet: Kubelet,
) -> None:
    """As on a node that pulls nothing: since it came, nothing was recorded and nothing pruned."""
    changed = kubelet.pulled.stat().st_ctime
    time.sleep(0.02)  # longer than the tick of the clock that stamps files
    found = kubelet.read()
    assert found.complete_since == changed
    assert found.pulled(APP, changed + 0.01) is False
    for came in (None, changed, changed - 1.0, found.as_of + 1.0):
        assert found.pulled(APP, came) is None, (
            "not known, before the records, or after they were read"
        )


def test_a_change_since_may_have_been_a_prune(kubelet: Kubelet) -> None:
    """The kubelet prunes the records of images in use, so a missing one proves nothing."""
    came = time.time()
    time.sleep(0.02)
    kubelet.records(OTHER.id)
    assert kubelet.read().pulled(APP, came) is None


def test_a_container_whose_images_record_is_older_shows_that_nothing_was_pruned_since(
    kubelet: Kubelet,
) -> None:
    """Each prune since would have taken that record.

    Known is what came after the oldest such container.
    """
    kubelet.records(OTHER.id, NOW - 2 * HOUR)
    found = kubelet.read(
        runs(OTHER, NOW - HOUR), runs(OTHER, NOW - HOUR / 2), runs(APP, NOW - 3 * HOUR)
    )
    assert found.complete_since == NOW - HOUR
    assert found.pulled(APP, NOW - HOUR + 1) is False
    assert found.pulled(APP, NOW - HOUR - 1) is None


def test_a_record_that_is_younger_than_the_container_shows_it_since_it_was_written(
    kubelet: Kubelet,
) -> None:
    """It may have been pruned before, and written anew."""
    kubelet.records(OTHER.id, NOW - HOUR / 2)
    assert kubelet.read(runs(OTHER, NOW - HOUR)).complete_since == NOW - HOUR / 2


@pytest.mark.parametrize(
    "one",
    [
        runs(OTHER, NOW - HOUR)._replace(pod_uid=""),
        runs(OTHER, NOW - HOUR)._replace(image_references=()),
        runs(OTHER, 0.0),
    ],
)
def test_other_containers_show_nothing(kubelet: Kubelet, one: Container) -> None:
    """One that no kubelet made, of an unknown image, or made at an unknown time."""
    kubelet.records(OTHER.id, NOW - 2 * HOUR)
    assert kubelet.read(one).complete_since == kubelet.pulled.stat().st_ctime


def test_of_a_sandbox_image_it_is_never_said(kubelet: Kubelet) -> None:
    """The runtime pulls it itself, without the kubelet; an earlier one may
    be used by nobody any more.
    """
    time.sleep(0.02)
    found = kubelet.read()
    assert found.pulled(image(3, "registry.k8s.io/pause:3.9"), found.as_of) is None
    assert found.pulled(image(4, "registry.example/pulse:3.9"), found.as_of) is False


def test_without_the_directories_nothing_is_known(tmp_path: Path) -> None:
    """A kubelet before 1.35 makes none."""
    found = pull_records(str(tmp_path), (), at_once)  # type: ignore[arg-type]
    assert "are not known: No such file or directory" in found.problem
    assert found.pulled(APP, NOW) is None


def test_directories_that_others_may_write_are_not_believed(kubelet: Kubelet) -> None:
    """Anybody could remove a record there, or write one."""
    kubelet.records(APP.id)
    kubelet.pulled.chmod(0o777)
    found = kubelet.read()
    assert "every user may write" in found.problem
    assert found.pulled(APP) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"image": 1}', "\xff", "[" * 5000])
def test_a_pull_of_an_unknown_image_makes_everything_unknown(kubelet: Kubelet, text: str) -> None:
    """It may be of any image."""
    kubelet.begins("registry.example/app:1").write_text(text, encoding="latin-1")
    found = kubelet.read()
    assert found.problem
    assert found.pulled(APP, NOW) is None


def test_files_of_others_are_not_read(kubelet: Kubelet) -> None:
    """Nor is an intent that is being written."""
    (kubelet.pulled / "README").touch()
    (kubelet.pulling / "README").write_text("nothing")
    kubelet.begins("registry.example/app:1").rename(kubelet.pulling / f"{name_of('x')}.tmp")
    found = kubelet.read()
    assert (found.problem, found.names, found.pulling) == ("", frozenset(), frozenset())


def test_the_names_of_records_are_the_kubelets() -> None:
    """Source: fs_pullrecords.go, cacheFilename; its test has this pair."""
    docker = "docker.io/testing/test:latest"
    assert (
        "sha256-aef2af226629a35d5f3ef0fdbb29fdbebf038d0acd8850590e8c48e1e283aa56"
        in record_names(image(1, docker))
    )

"""The Containerfile builds, what it makes is small, and relieves a node under the
restrictions of the DaemonSet.

Built with Debian's buildah on a base made here: empty directories, with this machine's /usr and
/etc mounted over them, so that Python is there and nothing has to be pulled.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from signals.types import Signal
from tests.buildah import (
    IMAGE,
    MOUNTS,
    Buildah,
    build,
    build_again,
    make_root,
    skip_without_buildah,
)
from tests.bundles import unpacked_wheels
from tests.nodes.small_node import MIB, SmallNode

pytestmark = pytest.mark.house(
    "config/Containerfile", "config/install/sbom.py", "pyproject.toml", "tests/buildah.py"
)

LARGEST_MIB = 60
MOST_INODES = 1500  # pip and byte code would be three times as many


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program's wheel and those of its dependencies."""
    skip_without_buildah()
    return unpacked_wheels(tmp_path_factory)


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Iterator[Buildah]:
    """A buildah that has built the image."""
    directory = tmp_path_factory.mktemp("buildah")
    made = Buildah(directory)
    make_root(directory / "base")
    build(made, directory / "base", wheels)
    yield made
    shutil.rmtree(directory)


def test_the_image_is_small(buildah: Buildah) -> None:
    """Beside Python itself: at most 60 MiB in 1500 files, no pip, no byte code, and no grpcio."""
    container = buildah("from", "--pull-never", IMAGE)
    installed = Path(buildah("mount", container), "opt", "reclaimd")
    files = [path for path in installed.rglob("*") if not path.is_symlink()]
    assert len(files) <= MOST_INODES
    assert sum(path.stat().st_blocks * 512 for path in files) <= LARGEST_MIB * MIB
    assert not [path for path in files if path.suffix == ".pyc" or path.name in ("pip", "grpc")]
    buildah("rm", container)


def test_two_builds_have_the_same_digest(buildah: Buildah, wheels: Path) -> None:
    """Of the same wheels on the same base, at any time."""
    build_again(buildah, wheels, "localhost/reclaimd:again")
    first, again = (
        buildah("inspect", "--type", "image", "--format", "{{.FromImageDigest}}", tag)
        for tag in (IMAGE, "localhost/reclaimd:again")
    )
    assert first.startswith("sha256:")
    assert again == first


def test_its_bill_of_materials_has_every_distribution_and_nothing_else(buildah: Buildah) -> None:
    """Each with its version, and what the program needs, by their package URLs."""
    container = buildah("from", "--pull-never", IMAGE)
    installed = Path(buildah("mount", container), "opt", "reclaimd")
    bill = json.loads((installed / "sbom.cdx.json").read_text())
    found = {
        path.name.removesuffix(".dist-info")
        for path in installed.glob("lib/python3*/site-packages/*.dist-info")
    }
    buildah("rm", container)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    subject = bill["metadata"]["component"]
    listed = [subject, *bill["components"]]
    assert {
        f"{each['name'].replace('-', '_')}-{each['version']}".lower() for each in listed
    } == set(map(str.lower, found))
    (needs,) = [
        each["dependsOn"] for each in bill["dependencies"] if each["ref"] == subject["purl"]
    ]
    assert {"h2", "pydantic", "pyyaml"} <= {
        purl.removeprefix("pkg:pypi/").partition("@")[0] for purl in needs
    }
    assert set(needs) <= {each["bom-ref"] for each in bill["components"]}


@pytest.mark.regression
def test_a_command_in_the_image_needs_no_path(buildah: Buildah) -> None:
    """As in `kubectl exec daemonset/reclaimd -- reclaimd status`."""
    container = buildah("from", "--pull-never", IMAGE)
    options = ("--isolation", "chroot", "--network", "host", *MOUNTS)
    assert buildah("run", *options, container, "--", "reclaimd", "--version").startswith(
        "reclaimd "
    )
    buildah("rm", container)


def test_the_image_relieves_a_node_without_any_capability(
    buildah: Buildah, small_node: SmallNode
) -> None:
    """No capability, no new privileges, the node's directories and the socket mounted: old images
    go, and no file is written into the image."""
    small_node.add_images(3)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, 2 * MIB)
    directory = str(Path(file).parent)
    container = buildah("from", "--pull-never", IMAGE)
    bare = ("/usr/bin/setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
    program = ("/opt/reclaimd/bin/reclaimd", "reclaim", "--config", file, "-o", "json")
    options = (
        "--isolation",
        "chroot",
        "--network",
        "host",
        *MOUNTS,
        "--volume",
        f"{directory}:{directory}",
    )
    process = buildah.run("run", *options, container, "--", *bare, *program)
    assert process.returncode == 0, process.stdout + process.stderr
    assert '"satisfied"' in process.stdout
    assert small_node.removed("image")
    assert not list(Path(buildah("mount", container), "opt", "reclaimd").rglob("*.pyc"))
    buildah("rm", container)

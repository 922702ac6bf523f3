"""The wheel, the source distribution and the image: what they hold, that they are made the same
each time, that versions and names agree; and what `.ci/venv` says while it makes an environment.

The image is built with Debian's buildah on a base made here: empty directories, with this machine's
/usr and /etc mounted over them, so that Python is there and nothing has to be pulled.
"""

from __future__ import annotations

import re
import shutil
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from signals.types import Signal
from tests.buildah import IMAGE, MOUNTS, Buildah, build_again, make_root, skip_without_buildah
from tests.buildah import build as build_image
from tests.bundles import unpacked_wheels
from tests.nodes.small_node import MIB, SmallNode
from tests.repository import ROOT
from tests.sockets.config.conftest import build
from tests.sockets.config.stories import TOLD, assert_told, in_shell, stories_in
from tests.tool import tool

pytestmark = pytest.mark.house(
    *(".ci/index_page.py", ".ci/venv", ".github", ".gitignore", "config", "Makefile"),
    *("README.md", "pyproject.toml"),
    "tests/buildah.py",
)


WEB = "https://forge.example/o/r/blob/v1/"


@pytest.fixture(scope="module")
def made(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The wheel, one more, one that was told where the files are on the web, and what the source
    distribution unpacks to."""
    again, on_the_web, sdist = map(tmp_path_factory.mktemp, ("again", "web", "sdist"))
    packed = build("sdist", sdist)
    with tarfile.open(packed) as archive:
        archive.extractall(sdist, filter="data")
    return {
        "WHEEL": str(wheel),
        "AGAIN": str(build("wheel", again)),
        "INDEXED": str(build("wheel", on_the_web, RECLAIMD_SOURCE=WEB)),
        "SDIST": str(packed).removesuffix(".tar.gz"),
    }


@pytest.mark.parametrize(
    ("name", "number"), stories_in("wheel.txt", "sdist.txt", "workflows.txt", "venv.txt")
)
def test_what_is_made_of_this_tree_and_by_what(
    made: dict[str, str], tmp_path: Path, name: str, number: int
) -> None:
    """The wheel, the source distribution unpacked, the workflows, and an environment, for which a
    script is in the place of Python."""
    pytest.importorskip("check_wheel_contents", reason="check-wheel-contents, of the extra dev")
    if name == "sdist.txt" and not (ROOT / ".git").exists():
        pytest.skip("this tree is no clone, so nothing tells which files belong to it")
    shutil.copy(TOLD / "python3.99", tmp_path)
    variables = {"REPOSITORY": str(ROOT), "WEB": WEB, "OURS": sys.executable, **made}
    assert_told(name, number, in_shell(tmp_path, variables), {made[each]: each for each in made})


# ---- the image


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program's wheel and those of its dependencies."""
    skip_without_buildah()
    return unpacked_wheels(tmp_path_factory)


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Buildah:
    """A buildah that has built the image."""
    directory = tmp_path_factory.mktemp("buildah")
    made = Buildah(directory)
    make_root(directory / "base")
    build_image(made, directory / "base", wheels)
    return made


@pytest.fixture
def container(buildah: Buildah) -> Iterator[str]:
    """One of the image."""
    made = buildah("from", "--pull-never", IMAGE)
    yield made
    buildah("rm", made)


@pytest.mark.parametrize(("name", "number"), stories_in("image.txt"))
def test_the_image_is_small_and_has_a_bill_of_materials(
    buildah: Buildah, container: str, wheel: Path, tmp_path: Path, name: str, number: int
) -> None:
    """What Python itself takes is not counted."""
    tool("jq", "jq")
    (tmp_path / "inspected").write_text(buildah("inspect", container))
    mounted = Path(buildah("mount", container), "opt", "reclaimd")
    variables = {"MOUNTED": str(mounted), "BILL": str(mounted / "sbom.cdx.json")}
    hidden = {re.escape(wheel.name.split("-")[1]): "VERSION"}
    assert_told(name, number, in_shell(tmp_path, variables), hidden)


def test_two_builds_have_the_same_digest(buildah: Buildah, wheels: Path) -> None:
    """Of the same wheels on the same base, at any time."""
    build_again(buildah, wheels, "localhost/reclaimd:again")
    form = ("inspect", "--type", "image", "--format", "{{.FromImageDigest}}")
    first, again = (buildah(*form, tag) for tag in (IMAGE, "localhost/reclaimd:again"))
    assert first.startswith("sha256:")
    assert again == first


def test_the_image_relieves_a_node_without_any_capability(
    buildah: Buildah, container: str, small_node: SmallNode
) -> None:
    """No capability, no new privileges, the node's directories and the socket mounted: old images
    go, and no file is written into the image. A command needs no path, as in `kubectl exec`."""
    small_node.add_images(3)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, 2 * MIB)
    directory = str(Path(file).parent)
    options = ("--isolation", "chroot", "--network", "host", *MOUNTS, "--volume")
    inside = ("run", *options, f"{directory}:{directory}", container, "--")
    bare = ("/usr/bin/setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
    program = ("/opt/reclaimd/bin/reclaimd", "reclaim", "--config", file, "-o", "json")
    assert buildah(*inside, "reclaimd", "--version").startswith("reclaimd ")
    assert '"satisfied"' in buildah(*inside, *bare, *program)
    assert small_node.removed("image")
    assert not [*Path(buildah("mount", container), "opt", "reclaimd").rglob("*.pyc")]

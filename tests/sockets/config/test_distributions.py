"""The wheel, the source distribution and the image: what they hold, that they are made the same
each time, that versions and names agree; and what `.ci/venv` says while it makes an environment.

The image is built with Debian's buildah on a base made here: empty directories, with this machine's
/usr and /etc mounted over them, so that Python is there and nothing has to be pulled.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from signals.types import Signal
from tests.buildah import IMAGE, MOUNTS, Buildah, build_again, make_root, skip_without_buildah
from tests.buildah import build as build_image
from tests.bundles import unpacked_wheels
from tests.distributions import build
from tests.nodes.small_node import MIB, SmallNode
from tests.pages import PAGES, links
from tests.repository import ROOT

pytestmark = pytest.mark.house(
    *(".ci/index_page.py", ".ci/venv", ".github", ".gitignore", "config", "Makefile"),
    *("README.md", "pyproject.toml"),
    *("tests/buildah.py", "tests/distributions.py"),
)


def run(*command: str, cwd: Path = ROOT) -> str:
    """What a program prints."""
    return subprocess.run(
        command, cwd=cwd, check=True, capture_output=True, text=True, timeout=60.0
    ).stdout


# ---- the wheel


def test_a_wheel_is_made_the_same_each_time(wheel: Path, tmp_path: Path) -> None:
    """Byte by byte, for the same SOURCE_DATE_EPOCH; check-wheel-contents finds nothing."""
    assert build("wheel", tmp_path).read_bytes() == wheel.read_bytes()
    pytest.importorskip("check_wheel_contents", reason="check-wheel-contents, of the extra dev")
    checked = run(sys.executable, "-m", "check_wheel_contents", str(wheel))
    assert checked == f"{wheel}: OK\n"


def test_a_wheel_holds_config_and_docs_beside_the_code_and_nothing_twice(wheel: Path) -> None:
    """What the program installs and prints, and the examples; no byte code. An index can show its
    description, as `twine check --strict` asks: what it is written in is said."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (name,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        head, _, description = archive.read(name).decode().partition("\n\n")
    trees = ("config", "docs")
    data = tuple(f"eviction/{tree}/" for tree in trees)
    files = [path for tree in trees for path in (ROOT / tree).rglob("*") if path.is_file()]
    here = {path.relative_to(ROOT) for path in files}
    beside = {Path(name).relative_to("eviction") for name in names if name.startswith(data)}
    assert beside == {path for path in here if "__pycache__" not in path.parts}
    assert len(names) == len(set(names))
    assert not [name for name in names if "__pycache__" in name]
    assert "Description-Content-Type: text/markdown" in head
    assert description == (ROOT / "README.md").read_text()


def test_an_index_shows_pictures_and_links_of_the_page(tmp_path: Path) -> None:
    """If it is told where the files of the repository are on the web, and links to some of them."""
    source = "https://forge.example/o/r/blob/v1/"
    with zipfile.ZipFile(build("wheel", tmp_path, RECLAIMD_SOURCE=source)) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        head, _, description = archive.read(name).decode().partition("\n\n")
    paths = [link for link in links(ROOT / "README.md") if not link.startswith("https:")]
    assert all(f"({source}{path}" in description for path in paths)
    assert len(re.findall(r"\]\((?!https:)", description)) == 0
    assert f"]({source}config/pictures/kubelet.svg?raw=true)" in description
    urls = re.findall(rf"^Project-URL: \w+, {source}(.*)$", head, re.MULTILINE)
    assert urls
    assert all((ROOT / path).exists() for path in urls)


def test_the_version_is_named_everywhere_as_in_pyproject(wheel: Path) -> None:
    """In the tags of images, in what is said of archives and programs, and as the status on the
    first page."""
    before = r"\breclaimd[-: ]|newTag: |^Status: |^(?:appV|v)ersion: |image\.version=\""
    named = re.compile(rf"(?:{before})v?(\d+\.\d+\.\d+)", re.MULTILINE)
    texts = [*PAGES, ROOT / "config" / "Containerfile", *(ROOT / "config").rglob("*.yaml")]
    found = {str(path.relative_to(ROOT)): {*named.findall(path.read_text())} for path in texts}
    assert set().union(*found.values()) == {wheel.name.split("-")[1]}
    for name in ("../README.md", "Containerfile", "manifests/base.yaml", "kubernetes/Chart.yaml"):
        assert found[os.path.normpath(f"config/{name}")]


# ---- the workflows


def test_workflows_use_versions_and_no_more_rights_than_they_need() -> None:
    """Each action by its whole version; a job writes or signs only if it says so. The image is
    built as config/Containerfile says, and actionlint finds nothing, where it is."""
    workflows = [*(ROOT / ".github" / "workflows").iterdir()]
    for path in workflows:
        used = re.findall(r"uses: (\S+)", path.read_text())
        assert used
        pinned = re.compile(r"\./\S+|[\w-]+/[\w-]+@v\d+\.\d+\.\d+")
        assert not [each for each in used if not pinned.fullmatch(each)]
        assert yaml.safe_load(path.read_text())["permissions"] == {"contents": "read"}
    release = (ROOT / ".github" / "workflows" / "release.yaml").read_text()
    for words in ("--platform linux/amd64,linux/arm64 --manifest", '"$(git log -1 --format=%ct)"'):
        assert words in release
        assert words in (ROOT / "config" / "Containerfile").read_text()
    if actionlint := shutil.which("actionlint"):
        assert run(actionlint, *map(str, workflows)) == ""


# ---- the source distribution


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that a source distribution of this tree unpacks to; some 6 MB."""
    directory = tmp_path_factory.mktemp("sdist")
    made = build("sdist", directory)
    with tarfile.open(made) as archive:
        archive.extractall(directory, filter="data")
    return directory / made.name.removesuffix(".tar.gz")


def test_it_holds_every_file_of_the_repository(unpacked: Path) -> None:
    """Each file that git knows, and nothing else but what the build adds."""
    if not (ROOT / ".git").exists():
        pytest.skip("this tree is no clone, so nothing tells which files belong to it")

    def known(*options: str) -> set[str]:
        return set(run("git", "ls-files", "-z", *options).rstrip("\0").split("\0"))

    here = {name for name in known() if (ROOT / name).is_file()}
    held = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert held - known("--others", "--exclude-standard") == here | {"PKG-INFO"}
    programs = [{n for n in here if os.access(tree / n, os.X_OK)} for tree in (ROOT, unpacked)]
    assert programs[0] == programs[1]


def test_the_program_and_make_run_from_it(unpacked: Path) -> None:
    """Its packages are imported from there, it finds its scenarios, and every script of the recipes
    is there and can be run."""
    program = "import eviction, reclaim, signals; print(eviction, reclaim, signals)"
    assert run(sys.executable, "-c", program, cwd=unpacked).count(f"'{unpacked}/") == 3
    listed = run(sys.executable, "-m", "eviction", "drill", "--list", cwd=unpacked)
    assert len(listed.splitlines()) == len([*(ROOT / "config" / "scenarios").glob("*.yaml")])
    for target in ("run", "test"):
        recipe = run("make", "--no-print-directory", "-n", target, cwd=unpacked)
        scripts = {*re.findall(r"(?<![\w/])\.ci/[\w-]+", recipe)}
        assert ".ci/venv" in scripts
        assert [name for name in scripts if not os.access(unpacked / name, os.X_OK)] == []


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


def test_the_image_is_small_and_has_a_bill_of_materials(buildah: Buildah, container: str) -> None:
    """Beside Python itself at most 60 MiB in 1500 files, no pip, no byte code, and no grpcio. Each
    distribution is in the bill with its version, and what the program needs, by package URLs."""
    installed = Path(buildah("mount", container), "opt", "reclaimd")
    files = [path for path in installed.rglob("*") if not path.is_symlink()]
    assert len(files) <= 1500  # pip and byte code would be three times as many
    assert sum(path.stat().st_blocks * 512 for path in files) <= 60 * MIB
    assert not [path for path in files if path.suffix == ".pyc" or path.name in ("pip", "grpc")]
    bill = json.loads((installed / "sbom.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    subject, components = bill["metadata"]["component"], bill["components"]
    assert {
        f"{each['name'].replace('-', '_')}-{each['version']}".lower()
        for each in (subject, *components)
    } == {path.stem.lower() for path in installed.rglob("*.dist-info")}
    (needs,) = [
        set(each["dependsOn"]) for each in bill["dependencies"] if each["ref"] == subject["purl"]
    ]
    assert {"h2", "pydantic", "pyyaml"} <= {re.split("[/@]", purl)[1] for purl in needs}
    assert needs <= {each["bom-ref"] for each in components}
    labels = json.loads(buildah("inspect", container))["OCIv1"]["config"]["Labels"]
    said = {name.removeprefix("org.opencontainers.image."): text for name, text in labels.items()}
    assert said["version"] == subject["version"]
    assert (said["title"], said["licenses"]) == ("reclaimd", "Apache-2.0")


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


# ---- .ci/venv

STAND_IN = """\
#!/bin/sh
case "$*" in
  -V) echo "Python 3.99.1" ;;
  "-I -m venv "*) mkdir -p "$4/bin" "$4/lib/python3.99/site-packages" && cp "$0" "$4/bin/python" ;;
  "-I -m pip --version") echo "pip 99 (python 3.99)" ;;
  "-I -m pip install "*)
    echo "Obtaining file:///somewhere"
    for name in h2 grpcio; do echo "Collecting $name>=1"; echo "  Downloading $name-1.whl (1 kB)"; done
    if [ -n "$PIP_FAILS" ]; then
      echo "ERROR: no matching distribution" >&2
      echo "  (from versions: none)" >&2
      exit 1
    fi
    echo "Installing collected packages: h2, grpcio, reclaimd"
    echo "Successfully installed h2 grpcio reclaimd" ;;
  "-I -m compileall "*) ;;
  *) echo "unexpected: $*" >&2; exit 9 ;;
esac
"""
"""In place of Python: a script that answers as venv, pip and compileall do."""


def made_environment(directory: Path, terminal: str = "", fails: str = "") -> tuple[int, str]:
    """Exit code of the script, and what it says, on a terminal of this kind or elsewhere."""
    python = directory / "python3.99"
    python.write_text(STAND_IN)
    python.chmod(0o755)
    reader, writer = pty.openpty() if terminal else os.pipe()
    process = subprocess.run(
        [ROOT / ".ci" / "venv", directory / "venv", python, "drill"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=writer,
        env={**os.environ, "TERM": terminal, "PIP_FAILS": fails},
        check=False,
    )
    os.close(writer)
    said = b""
    try:
        while part := os.read(reader, 65536):
            said += part
    except OSError:  # nobody has the terminal open any more
        pass
    os.close(reader)
    assert process.stdout == b""
    return process.returncode, said.decode()


@pytest.mark.parametrize("terminal", ["", "dumb"])
def test_off_a_terminal_each_step_has_a_line(tmp_path: Path, terminal: str) -> None:
    """None for each package; the second run does nothing. So on that of an editor."""
    code, said = made_environment(tmp_path, terminal)
    head, *steps = said.splitlines()
    assert (code, "\x1b" in said) == (0, False)
    assert head.startswith(f"setting up {tmp_path / 'venv'} with Python 3.99.1")
    assert steps == [
        "  making an environment",
        "  downloading what the program needs",
        "  installing 3 packages",
        "  compiling",
    ]
    assert made_environment(tmp_path, terminal) == (0, "")


def test_on_a_terminal_one_line_changes_and_is_erased(tmp_path: Path) -> None:
    """It names the packages, with the seconds that have passed; the first one stays."""
    code, said = made_environment(tmp_path, "xterm")
    _, changing = said.split("\r\n")
    parts = [part.partition("s  ")[2] for part in changing.split("\r\x1b[K")]
    assert (code, parts[-1]) == (0, "")
    wanted = [
        "making an environment",
        "Collecting grpcio>=1",
        "Downloading grpcio-1.whl (1 kB)",
        "compiling",
    ]
    assert [part for part in parts if part in wanted] == wanted


@pytest.mark.parametrize("terminal", ["", "xterm"])
def test_what_pip_complains_of_is_seen(tmp_path: Path, terminal: str) -> None:
    """Each line of it, whole; the script fails as pip did, and the next run tries again."""
    code, said = made_environment(tmp_path, terminal, fails="1")
    seen = [line.rpartition("\x1b[K")[2] for line in said.splitlines()]
    complaint = ["ERROR: no matching distribution", "  (from versions: none)"]
    assert (code, [line for line in seen if line in complaint]) == (1, complaint)
    assert made_environment(tmp_path, terminal)[0] == 0

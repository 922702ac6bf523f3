"""The image of config/Containerfile, on a base of Debian's Python alone: interpreter,
standard library, and what both need of the shared libraries. As in the usual images of Python
there is no byte code."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.buildah import Buildah, build, make_root
from tests.real_node.loopfs import run_tool
from tests.real_node.oci import ImageTar

REFERENCE = "reclaimd.test/reclaimd:1"
INTERPRETER = Path("/usr/bin/python3")
LEFT_OUT = (
    "__pycache__",
    "test",
    "idlelib",
    "lib2to3",
    "tkinter",
    "turtledemo",
    "config-*",
    "sitecustomize.py",
)
# modules of the program
COMPILED = ("pydantic_core/*.so", "google/_upb/*.so", "_yaml*.so", "yaml/*.so")


@dataclass(frozen=True)
class ProgramImage:
    """A written image.

    `size_bytes`: of its tar; `start`: entry point and command, as a container without any runs.
    """

    tar: ImageTar
    size_bytes: int
    start: tuple[str, ...]


def write_program_image(directory: Path, wheels: Path) -> ProgramImage:
    """Builds the image of the program's wheel and those of its dependencies, and
    writes it into a directory.
    """
    directory.mkdir(parents=True)
    path = directory / "reclaimd.tar"
    with tempfile.TemporaryDirectory(prefix="buildah-") as store:
        root = Path(store) / "base"
        make_root(root)
        _add_python(root)
        buildah = Buildah(Path(store))
        build(buildah, root, wheels, REFERENCE)
        buildah("push", "--quiet", REFERENCE, f"docker-archive:{path}:{REFERENCE}")
        buildah("rmi", "--all", "--force")
    with tarfile.open(path) as archive:
        (entry,) = _member(archive, "manifest.json")
        config = _member(archive, entry["Config"])["config"]
    start = (*config.get("Entrypoint", ()), *config.get("Cmd", ()))
    tar = ImageTar(path, REFERENCE, f"sha256:{Path(entry['Config']).stem}", "", ())
    return ProgramImage(tar, path.stat().st_size, start)


def _member(archive: tarfile.TarFile, name: str) -> Any:
    file = archive.extractfile(name)
    assert file is not None, name
    return json.load(file)


def _add_python(root: Path) -> None:
    """Debian's Python, with the files of its version's name and the shared libraries."""
    interpreter = INTERPRETER.resolve()
    library = Path(
        run_tool(
            str(INTERPRETER), "-I", "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"
        ).strip()
    )
    shutil.copytree(
        library, _below(root, library), symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT)
    )
    here = (
        Path(sys.prefix)
        / "lib"
        / f"python{sys.version_info.major}.{sys.version_info.minor}"
        / "site-packages"
    )
    modules = [file for pattern in COMPILED for file in here.glob(pattern)]
    for file in {
        interpreter,
        *_libraries(interpreter, *library.glob("lib-dynload/*.so"), *modules),
    }:
        target = _below(root, file)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    _below(root, INTERPRETER).symlink_to(interpreter.name)
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/usr/sbin/nologin\n")


def _libraries(*programs: Path) -> set[Path]:
    """The shared libraries that programs are loaded with, and their loader."""
    return set(map(Path, re.findall(r"(/\S+) \(0x", run_tool("ldd", *programs))))


def _below(root: Path, path: Path) -> Path:
    """Where a path of this machine is below another root, which has this
    machine's links beside /usr.
    """
    return root / path.relative_to("/")

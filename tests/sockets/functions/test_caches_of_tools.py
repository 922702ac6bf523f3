"""Caches as huggingface_hub, uv and cargo make them: units go, and the tool fetches them again.

`CACHE_TOOLS=DIRECTORY` has their programs (`pip install huggingface_hub uv` in an environment of
its own); cargo may be anywhere. What they download is served from loopback.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from reclaim.function import Ready
from reclaim.types import Runtime
from tests.sockets.functions.test_caches import planned, runtime, stage_of

__all__ = ["runtime"]  # a fixture

TOOLS = os.environ.get("CACHE_TOOLS", "")
NAMES = ("one", "two")
Files = Mapping[str, bytes]
Headers = Mapping[str, str]


def program(name: str) -> str:
    """Its path; skips the test where there is none."""
    found = shutil.which(name, path=f"{TOOLS}:{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"no caches of real tools: no {name} (CACHE_TOOLS=)")
    return found


@contextmanager
def served(files: Files, headers: Headers) -> Iterator[tuple[str, list[str]]]:
    """An address at which these files are, and what was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = files.get(self.path)
            asked.append(f"{self.command} {self.path}")
            self.send_response(404 if content is None else 200)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("ETag", f'"{hashlib.sha256(content or b"").hexdigest()}"')
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            if content is not None and self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET  # noqa: N815 # as the library calls it

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def ran(*command: str, **environment: str) -> None:
    """A command that ends well."""
    done = subprocess.run(
        command,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120.0,
    )
    assert done.returncode == 0, done.stderr


def of_hugging_face(directory: Path, address: str) -> Path:
    """Two models."""
    python = Path(program("hf")).with_name("python")
    for name in NAMES:
        script = f"from huggingface_hub import hf_hub_download; hf_hub_download('org/{name}', 'x')"
        home = {"HF_HOME": str(directory), "HF_HUB_DISABLE_TELEMETRY": "1"}
        ran(str(python), "-c", script, HF_ENDPOINT=address, **home)
    return directory / "hub"


def of_uv(directory: Path, address: str) -> Path:
    """Two wheels."""
    cache = directory / "cache"
    ran(program("uv"), "venv", "--clear", str(directory / "venv"), UV_CACHE_DIR=str(cache))
    ran(
        *(program("uv"), "pip", "install", "--reinstall", *NAMES, "--link-mode", "copy"),
        UV_CACHE_DIR=str(cache),
        UV_INDEX_URL=f"{address}/simple",
        VIRTUAL_ENV=str(directory / "venv"),
    )
    return cache


def of_cargo(directory: Path, address: str) -> Path:
    """Two crates."""
    project = directory / "project"
    (project / "src").mkdir(parents=True, exist_ok=True)
    (project / "src" / "main.rs").write_text("fn main() {}\n")
    needs = "".join(f'{name} = {{version = "1.0.0", registry = "r"}}\n' for name in NAMES)
    package = '[package]\nname = "p"\nversion = "1.0.0"\nedition = "2021"\n[dependencies]\n'
    (project / "Cargo.toml").write_text(package + needs)
    ran(
        *(program("cargo"), "fetch", "--manifest-path", str(project / "Cargo.toml")),
        CARGO_HOME=str(directory / "home"),
        CARGO_REGISTRIES_R_INDEX=f"sparse+{address}/index/",
        RUSTUP_HOME=os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup")),
    )
    return directory / "home" / "registry"


def wheel(name: str) -> bytes:
    """A package that installs."""
    content = io.BytesIO()
    information = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(content, "w") as file:
        file.writestr(f"{name}.py", "x = 1\n" * 1000)
        file.writestr(
            f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        )
        file.writestr(
            f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{information}/RECORD", "")
    return content.getvalue()


def crate(name: str) -> bytes:
    """A crate as a registry has it."""
    content = io.BytesIO()
    package = f'[package]\nname = "{name}"\nversion = "1.0.0"\nedition = "2021"\n'
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for path, text in (("Cargo.toml", package), ("src/lib.rs", "")):
            entry = tarfile.TarInfo(f"{name}-1.0.0/{path}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return content.getvalue()


def index_of_crates() -> Files:
    """A sparse index, and its crates."""
    files = {"/index/config.json": json.dumps({"dl": "http://127.0.0.1/"}).encode()}
    for name in NAMES:
        content = crate(name)
        checksum = hashlib.sha256(content).hexdigest()
        entry = {
            "name": name,
            "vers": "1.0.0",
            "deps": [],
            "cksum": checksum,
            "features": {},
            "yanked": False,
        }
        files[f"/index/3/{name[0]}/{name}"] = json.dumps(entry).encode()
        files[f"/crates/{name}/1.0.0/download"] = content
    return files


WHEELS = {f"/simple/{name}/{name}-1.0-py3-none-any.whl": wheel(name) for name in NAMES}
PAGES = {
    f"/simple/{name}/": f'<a href="{name}-1.0-py3-none-any.whl">{name}</a>'.encode()
    for name in NAMES
}
MODELS = {f"/org/{name}/resolve/main/x": name.encode() * 5000 for name in NAMES}
HUB = {"X-Repo-Commit": "0" * 40}


@pytest.mark.parametrize(
    ("fetch", "files", "headers", "downloads", "units"),
    [
        pytest.param(of_hugging_face, MODELS, HUB, MODELS, 2, id="huggingface_hub"),
        pytest.param(of_uv, {**WHEELS, **PAGES}, {"Content-Type": "text/html"}, WHEELS, 2, id="uv"),
        pytest.param(
            of_cargo, index_of_crates(), {}, ("/crates/one/1.0.0/download",), 4, id="cargo"
        ),
    ],
)
def test_a_tool_fetches_again_what_went(
    tmp_path: Path,
    runtime: Runtime,  # the fixture
    fetch: Callable[[Path, str], Path],
    files: Files,
    headers: Headers,
    downloads: Mapping[str, bytes] | tuple[str, ...],
    units: int,
) -> None:
    """All units of its cache go; then it works as on the first day, and is asked for them again."""
    if "/index/config.json" in files:
        files = dict(files)
    with served(files, headers) as (address, asked):
        if "/index/config.json" in files:
            assert isinstance(files, dict)
            files["/index/config.json"] = json.dumps({"dl": f"{address}/crates"}).encode()
        cache = fetch(tmp_path, address)
        stage = stage_of(runtime, tmp_path)
        verdicts = planned(stage)
        assert len(verdicts) == units
        assert all(Path(each.id).is_relative_to(cache) for each in verdicts)
        assert all(isinstance(stage.check(each), Ready) for each in verdicts)
        assert all(stage.remove(each) for each in verdicts)
        asked.clear()
        assert fetch(tmp_path, address) == cache
        assert {f"GET {path}" for path in downloads} <= set(asked)
        assert len(planned(stage_of(runtime, tmp_path))) == units

"""Printed output beside the tests: compared whole, written anew with `UPDATE=1`."""

import difflib
import os
from pathlib import Path


def expect(path: Path, text: str) -> None:
    """Fails, with the difference, unless the file has exactly this text. `UPDATE=1` in the
    environment writes it."""
    if os.environ.get("UPDATE"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"{path.name} is missing: UPDATE=1 writes it"
    expected = path.read_text()
    if text != expected:
        was, now = expected.splitlines(keepends=True), text.splitlines(keepends=True)
        raise AssertionError("".join(difflib.unified_diff(was, now, path.name, "what is printed")))

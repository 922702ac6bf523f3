"""`.ci/venv` says what it does: a line that changes on a terminal, a few lines elsewhere,
and what pip complains of.

In place of Python stands a script that answers as venv, pip and compileall do.
"""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.repository import ROOT

pytestmark = pytest.mark.house(".ci/venv")

PYTHON = """\
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


@pytest.fixture
def python(tmp_path: Path) -> str:
    """Its path."""
    path = tmp_path / "python3.99"
    path.write_text(PYTHON)
    path.chmod(0o755)
    return str(path)


def made(
    directory: Path, python: str, stderr: int, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A run of the script."""
    command = [str(ROOT / ".ci" / "venv"), str(directory), python, "drill"]
    variables = {**os.environ, "TERM": "xterm", "PIP_FAILS": "", **environment}
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=variables,
        text=True,
        check=False,
    )


def on_a_terminal(directory: Path, python: str, **environment: str) -> tuple[int, str]:
    """Exit code, and what a terminal gets."""
    terminal, other = pty.openpty()
    process = made(directory, python, other, **environment)
    os.close(other)
    shown = b""
    try:
        while part := os.read(terminal, 65536):
            shown += part
    except OSError:  # nobody has it open any more
        pass
    finally:
        os.close(terminal)
    return process.returncode, shown.decode()


def test_off_a_terminal_each_step_has_a_line(tmp_path: Path, python: str) -> None:
    """None for each package; nothing on stdout; the second run does nothing."""
    process = made(tmp_path / "venv", python, subprocess.PIPE)
    assert (process.returncode, process.stdout) == (0, "")
    head, *steps = process.stderr.splitlines()
    assert head.startswith(f"setting up {tmp_path / 'venv'} with Python 3.99.1")
    assert steps == [
        "  making an environment",
        "  downloading what the program needs",
        "  installing 3 packages",
        "  compiling",
    ]
    again = made(tmp_path / "venv", python, subprocess.PIPE)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def test_on_a_terminal_one_line_changes_and_is_erased(tmp_path: Path, python: str) -> None:
    """It names the packages, with the seconds that have passed."""
    code, shown = on_a_terminal(tmp_path / "venv", python)
    assert code == 0
    lines = shown.split("\r\n")
    assert len(lines) == 2, "the first one stays"
    parts = [part.partition("s  ")[2] for part in lines[1].split("\r\x1b[K")]
    assert parts[-1] == ""
    wanted = [
        "making an environment",
        "Collecting grpcio>=1",
        "Downloading grpcio-1.whl (1 kB)",
        "compiling",
    ]
    assert [part for part in parts if part in wanted] == wanted


@pytest.mark.parametrize("terminal", [True, False])
def test_what_pip_complains_of_is_seen(tmp_path: Path, python: str, terminal: bool) -> None:
    """Each line of it, whole; the script fails as pip did, and the next run tries again."""
    if terminal:
        code, shown = on_a_terminal(tmp_path / "venv", python, PIP_FAILS="1")
    else:
        process = made(tmp_path / "venv", python, subprocess.PIPE, PIP_FAILS="1")
        code, shown = process.returncode, process.stderr
    assert code == 1
    seen = [line.rpartition("\x1b[K")[2] for line in shown.splitlines()]
    assert "ERROR: no matching distribution" in seen
    assert "  (from versions: none)" in seen
    assert made(tmp_path / "venv", python, subprocess.PIPE).returncode == 0


def test_on_a_dumb_terminal_it_is_lines(tmp_path: Path, python: str) -> None:
    """Such as that of an editor."""
    code, shown = on_a_terminal(tmp_path / "venv", python, TERM="dumb")
    assert code == 0
    assert "\x1b" not in shown
    assert "  installing 3 packages\r\n" in shown

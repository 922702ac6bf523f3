"""`reclaimd install --systemd`: places units, manual, completions and a configuration, or removes them again.

Does not cover: the program, which stays where it is installed; starting the service.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from glob import glob
from itertools import chain
from pathlib import Path

from eviction.ballast import read_ballast
from eviction.cli.options import answer_lines, configuration_of, exit_on, exit_with, print_message
from eviction.configuration.effective import ConfigurationError
from eviction.configuration.fingerprint import USUAL_FILE
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK, EXIT_USAGE
from eviction.shipped import shipped
from reclaim.ballast import BallastRefused, BallastSettings, remove_ballast

UNITS = "/etc/systemd/system"
OTHERS = {
    "/usr/local/share/man/man1/reclaimd.1": "man/reclaimd.1",
    "/usr/local/share/bash-completion/completions/reclaimd": "completions/reclaimd.bash",
    "/usr/local/share/zsh/site-functions/_reclaimd": "completions/_reclaimd",
    "/usr/local/share/fish/vendor_completions.d/reclaimd.fish": "completions/reclaimd.fish",
    "/etc/reclaimd/schema/configuration.v1alpha1.json": "schema/configuration.v1alpha1.json",
}
RECORD = "/usr/local/share/reclaimd/installed-files"
IN_THE_UNIT = b"ExecStart=/opt/reclaimd/bin/reclaimd "
UNSEEN = ("/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/")  # noqa: S108 # hidden by the unit, not used here
ELSEWHERE = "PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx install --python /usr/bin/python3 WHEEL"
START = "systemctl daemon-reload && systemctl enable reclaimd && systemctl restart reclaimd"
OF_THE_NODE = argparse.Namespace(config=None, config_dir=None)  # the options by which the service's is read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--systemd", action="store_true", required=True, help="for a service of systemd")
    parser.add_argument("--root", metavar="DIR", default="/", help="below another root; nothing is stopped")
    parser.add_argument("--remove", action="store_true", help="stop the service and remove what was placed")
    parser.add_argument("--purge", action="store_true", help="the same, and configuration, records and ballast")


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 1 a file cannot be written or removed; 2 the service could not run this program, or it rejects the
    configuration of the node.

    Example: reclaimd install --systemd --root /srv/look
    """
    root, removes = os.path.abspath(arguments.root).rstrip("/"), arguments.remove or arguments.purge
    if not root and os.geteuid() != 0:
        exit_with(EXIT_USAGE, "only root may write /etc and /usr/local; --root DIR installs below another root")
    files = {} if removes else _files(_program(root))
    if not root and not removes:
        configuration_of(OF_THE_NODE)
    os.umask(0o022)
    with exit_on(EXIT_NOT_RELIEVED, OSError):
        answer_lines(_replace(root, files))
        answer_lines(_leave(root, purge=arguments.purge) if removes else ())
    if not root and not removes:
        print_message(f"to start it, or to go on with what changed: {START}")
    return EXIT_OK


def _program(root: str) -> str:
    """The path of this program once `root` is /. Exits with 2 if the service could not see all of it there."""
    program = os.path.join(sysconfig.get_path("scripts"), "reclaimd")
    needed = (program, sys.executable, __file__, os.__file__)
    for path in (_once_moved(root, each) for each in (*needed, *map(os.path.realpath, needed))):
        if path.startswith(UNSEEN) or not os.access(program, os.X_OK):
            why = f"the service could not run {path} (ProtectHome= and PrivateTmp= hide home and temporary directories)"
            exit_with(EXIT_USAGE, f"{why}; install the program elsewhere, as in {ELSEWHERE}")
    return _once_moved(root, program)


def _once_moved(root: str, path: str) -> str:
    return path.removeprefix(root) if path.startswith(f"{root}/") else path


def _files(program: str) -> dict[str, bytes]:
    """Path -> content; last the record of all, and the configuration. Drop-ins are examples: systemd reads *.conf."""
    units, start = shipped("systemd"), shlex.quote(program).replace("%", "%%")
    of_units = {f"{UNITS}/{each.relative_to(units)}": each for each in sorted(units.rglob("*.*")) if each.is_file()}
    files = {f"{to}.example" if to.endswith(".conf") else to: each.read_bytes() for to, each in of_units.items()}
    files |= {to: shipped(source).read_bytes() for to, source in OTHERS.items()}
    unit = f"{UNITS}/reclaimd.service"
    files[unit] = files[unit].replace(IN_THE_UNIT, f"ExecStart={start} ".encode())
    files[RECORD] = "".join(f"{path}\n" for path in (*files, RECORD)).encode()
    return files | {USUAL_FILE: shipped("reclaimd.yaml").read_bytes()}


def _replace(root: str, files: dict[str, bytes]) -> Iterator[str]:
    """Removes what was placed earlier and is not among the files, then writes those that are new or differ."""
    former = (_read(f"{root}{RECORD}") or b"").decode().split()
    gone = [path for path in former if path not in files and os.path.lexists(f"{root}{path}")]
    units = [os.path.basename(path) for path in gone if os.path.dirname(path) == UNITS]
    stops = units and not root and os.path.isdir("/run/systemd/system")
    if stops:
        subprocess.run(["systemctl", "disable", "--now", *units], check=False)  # or they would outlive their files
    for path in gone:
        yield f"gone     {path}"
        os.unlink(f"{root}{path}")
        if "reclaimd" in os.path.dirname(path):
            with suppress(OSError):  # others are in it
                os.rmdir(os.path.dirname(f"{root}{path}"))
    if stops:
        subprocess.run(["systemctl", "daemon-reload"], check=False)
    for path, content in files.items():
        before = _read(f"{root}{path}")
        if before is not None and path == USUAL_FILE:
            yield f"kept     {path} (every field: reclaimd help configuration)"
        elif before != content:
            yield f"{'new' if before is None else 'changed':<9}{path}"
            _write(f"{root}{path}", content, 0o600 if path == USUAL_FILE else 0o644)


def _read(path: str) -> bytes | None:
    """None: there is nothing."""
    return Path(path).read_bytes() if os.path.lexists(path) else None


def _write(path: str, content: bytes, mode: int) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(f"{path}.new", "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(content)
    os.replace(f"{path}.new", path)


def _leave(root: str, *, purge: bool) -> Iterator[str]:
    """What the operator may want to keep: ballast, configuration and records, unless they are purged; own units."""
    word = "gone" if purge else "left"
    with suppress(ConfigurationError, BallastRefused):
        found = None if root else configuration_of(OF_THE_NODE).ballast
        if found is not None and read_ballast(settings := BallastSettings(found.path, found.size_bytes)) is not None:
            if purge:
                remove_ballast(settings)
            yield f"{word}     {found.path} (ballast)"
    for path in filter(os.path.lexists, (f"{root}/etc/reclaimd", f"{root}/var/lib/reclaimd")):
        yield f"{word}     {_once_moved(root, path)}"
        if purge:
            shutil.rmtree(path)
    for path in sorted(chain(*(glob(f"{root}{UNITS}/{own}") for own in ("reclaimd*", "*.d/reclaimd*.conf")))):
        yield f"left     {_once_moved(root, path)}"

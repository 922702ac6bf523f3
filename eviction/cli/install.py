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
EARLIER_RECORD = "/opt/reclaimd/installed-files"  # of 0.1.0
OF_THE_OPERATOR = ("/etc/reclaimd", "/var/lib/reclaimd")
IN_THE_UNIT = b"ExecStart=/opt/reclaimd/bin/reclaimd "
UNSEEN = ("/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/")  # noqa: S108 # hidden by the unit, not used here
ELSEWHERE = "PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx install --python /usr/bin/python3 WHEEL"
START = "systemctl daemon-reload && systemctl enable reclaimd && systemctl restart reclaimd"
OF_THE_NODE = argparse.Namespace(config=None, config_dir=None)  # the options by which the service's is read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--systemd", action="store_true", required=True, help="for a service of systemd")
    parser.add_argument("--root", metavar="DIR", default="/", help="below another root")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--dry-run", action="store_true", help="only say what would change, or why it cannot")
    instead.add_argument("--remove", action="store_true", help="stop the service and remove what was placed")
    instead.add_argument("--purge", action="store_true", help="the same, and configuration, records and ballast")


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 1 if a file cannot be written or removed; 2 if the service could not run this program, or the program
    rejects the configuration of the node."""
    root, removes = os.path.abspath(arguments.root), arguments.remove or arguments.purge
    here = root == "/"
    files = {} if removes else _files(_program(root))
    if here and not removes:
        configuration_of(OF_THE_NODE)
    if here and os.geteuid() != 0 and not arguments.dry_run:
        exit_with(EXIT_USAGE, "only root may write /etc and /usr/local; --root DIR installs below another root")
    os.umask(0o022)
    with exit_on(EXIT_NOT_RELIEVED, OSError):
        if here and removes:
            answer_lines(_ballast(purge=arguments.purge))
        answer_lines(_replace(root, files, dry_run=arguments.dry_run))
        answer_lines(_leave(root, purge=arguments.purge) if removes else _configure(root, dry_run=arguments.dry_run))
    if here and not removes:
        print_message(f"to start it, or to go on with what changed: {START}")
    return EXIT_OK


def _program(root: str) -> str:
    """The path of this program once `root` is /. Exits with 2 if the service could not see all of it there."""
    program = os.path.join(sysconfig.get_path("scripts"), "reclaimd")
    if not os.access(program, os.X_OK):
        exit_with(EXIT_USAGE, f"there is no {program}, which the service would run: {ELSEWHERE}")
    needed = (program, sys.executable, __file__, os.__file__)
    for path in (_once_moved(root, each) for each in (*needed, *map(os.path.realpath, needed))):
        if path.startswith(UNSEEN):
            why = "ProtectHome= and PrivateTmp= hide home and temporary directories from it"
            exit_with(
                EXIT_USAGE, f"the service could not see {path} ({why}); install the program elsewhere: {ELSEWHERE}"
            )
    return _once_moved(root, program)


def _once_moved(root: str, path: str) -> str:
    return path.removeprefix(root) if path.startswith(f"{root}/") else path


def _files(program: str) -> dict[str, bytes]:
    """Path -> content; last the record of all. A drop-in is an example, which systemd reads only as *.conf."""
    units, start = shipped("systemd"), shlex.quote(program).replace("%", "%%")
    of_units = {f"{UNITS}/{each.relative_to(units)}": each for each in sorted(units.rglob("*.*")) if each.is_file()}
    files = {f"{to}.example" if to.endswith(".conf") else to: each.read_bytes() for to, each in of_units.items()}
    files |= {to: shipped(source).read_bytes() for to, source in OTHERS.items()}
    unit = f"{UNITS}/reclaimd.service"
    files[unit] = files[unit].replace(IN_THE_UNIT, f"ExecStart={start} ".encode())
    return files | {RECORD: "".join(f"{path}\n" for path in (*files, RECORD)).encode()}


def _below(root: str, path: str) -> str:
    """A path below another root. Exits with 2 if it leads out of it."""
    place = os.path.join(root, path.lstrip("/"))
    real, directory = os.path.realpath(root), os.path.realpath(os.path.dirname(place))
    if os.path.commonpath((real, directory)) != real:
        exit_with(EXIT_USAGE, f"{place} is in {directory}, which is not below {root}")
    return place


def _read(path: str) -> bytes | None:
    """None: there is no such file."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _write(path: str, content: bytes, mode: int) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(f"{path}.new", "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(content)
    os.replace(f"{path}.new", path)


def _systemctl(*words: str) -> None:
    if os.path.isdir("/run/systemd/system"):
        subprocess.run(["systemctl", *words], check=False)  # it says itself what it cannot do


def _replace(root: str, files: dict[str, bytes], *, dry_run: bool) -> Iterator[str]:
    """Removes what was placed earlier and is not among the files, and writes those that are new or differ."""
    former = [line for name in (RECORD, EARLIER_RECORD) for line in (_read(_below(root, name)) or b"").decode().split()]
    former = [path for path in dict.fromkeys((*former, EARLIER_RECORD)) if path not in files]
    gone = {path: place for path in former if os.path.lexists(place := _below(root, path))}
    units = [os.path.basename(path) for path in gone if os.path.dirname(path) == UNITS]
    if units and root == "/" and not dry_run:
        _systemctl("disable", "--now", *units)  # enabled, they would outlive their files
    for path, place in gone.items():
        yield f"gone     {path}"
        if not dry_run:
            os.unlink(place)
            if "reclaimd" in os.path.dirname(path):
                with suppress(OSError):  # it is not empty
                    os.rmdir(os.path.dirname(place))
    if units and root == "/" and not dry_run:
        _systemctl("daemon-reload")
    for path, content in files.items():
        place = _below(root, path)
        before = _read(place)
        if before != content:
            yield f"{'new' if before is None else 'changed':<9}{path}"
            if not dry_run:
                _write(place, content, 0o644)


def _configure(root: str, *, dry_run: bool) -> Iterator[str]:
    place = _below(root, USUAL_FILE)
    if os.path.lexists(place):
        yield f"kept     {USUAL_FILE} (every field: reclaimd help configuration)"
        return
    yield f"new      {USUAL_FILE}"
    if not dry_run:
        _write(place, shipped("reclaimd.yaml").read_bytes(), 0o600)


def _ballast(*, purge: bool) -> Iterator[str]:
    """Without the program nothing uses it, and it still takes its space."""
    with suppress(ConfigurationError, BallastRefused):
        found = configuration_of(OF_THE_NODE).ballast
        if found is not None and read_ballast(settings := BallastSettings(found.path, found.size_bytes)) is not None:
            if purge:
                remove_ballast(settings)
            yield f"{'gone' if purge else 'left':<9}{found.path} (ballast)"


def _leave(root: str, *, purge: bool) -> Iterator[str]:
    """Configuration and records, removed or not, and units and drop-ins of the operator's."""
    for path in OF_THE_OPERATOR:
        if os.path.lexists(place := _below(root, path)):
            yield f"{'gone' if purge else 'left':<9}{path}"
            if purge:
                shutil.rmtree(place)
    for pattern in ("reclaimd*", "*.d/reclaimd*.conf"):
        yield from (f"left     {_once_moved(root, place)}" for place in sorted(glob(f"{root}{UNITS}/{pattern}")))

"""`reclaimd install --systemd`: places units, manual, completions and a configuration. It deletes
nothing but a unit or example that an earlier version has placed and this one has not.

Does not cover: the program, which stays where it is installed; starting the service; how files are
written safely (`below_root`).
"""

import os
import shlex
import subprocess
import sys
import sysconfig
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eviction.cli.below_root import NotTrustedError, check, exists, read, remove, write
from eviction.cli.local_node import LocalNode
from eviction.cli.output import answer_lines, exit_on, exit_with
from eviction.cli.progress import print_message
from eviction.configuration.fingerprint import USUAL_FILE
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK, EXIT_USAGE
from eviction.shipped import shipped

UNITS = "/etc/systemd/system"
UNIT = f"{UNITS}/reclaimd.service"
OTHERS = {
    "/usr/local/share/man/man1/reclaimd.1": "man/reclaimd.1",
    "/usr/local/share/bash-completion/completions/reclaimd": "completions/reclaimd.bash",
    "/usr/local/share/zsh/site-functions/_reclaimd": "completions/_reclaimd",
    "/usr/local/share/fish/vendor_completions.d/reclaimd.fish": "completions/reclaimd.fish",
    "/etc/reclaimd/schema/configuration.v1alpha1.json": "schema/configuration.v1alpha1.json",
}
RECORD = "/usr/local/share/reclaimd/installed-files"
LARGEST_RECORD_BYTES = 1 << 14
FORMER = (  # what earlier versions have placed
    f"{UNITS}/reclaimd-xfs.service",
    f"{UNITS}/reclaimd-xfs.socket",
    f"{UNITS}/reclaimd.service.d/no-network.conf.example",
    "/usr/local/share/doc/reclaimd/reclaimd.yaml",
)
IN_THE_UNIT = b"=/opt/reclaimd/bin/reclaimd "
# what the unit hides
UNSEEN = ("/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/")  # noqa: S108 # not used here
ELSEWHERE = (
    "PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx install --python /usr/bin/python3 WHEEL"
)
WITHOUT_CONFIGURATION = True
OPTIONS = ROOT = {"--root DIR": "below another root; nothing is stopped"}
GONE = {
    "--remove": "reclaimd uninstall stops the service and removes what was placed",
    "--purge": "reclaimd uninstall --purge deletes configuration, records and ballast too",
}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--systemd", action="store_true", required=True, help="for a service of systemd"
    )


def run(arguments: Namespace) -> int:
    """Exit 0; 1 a file cannot be written; 2 somebody else may write below the root, the service
    could not run this program, or it rejects the configuration of the node.

    Example: reclaimd install --systemd --root /srv/look
    """
    root = root_of(arguments)
    files = _files(_program(root))
    if root == "/":
        of_the_service()
    with changing(root):
        answer_lines(replace_placed(root, files))
    if root == "/":
        print_message(
            "to start it, or to go on with what changed: systemctl daemon-reload && systemctl"
            " enable reclaimd && systemctl restart reclaimd"
        )
    return EXIT_OK


def of_the_service() -> LocalNode:
    """The node, by the configuration that the service reads. Raises ConfigurationError."""
    return LocalNode(Namespace(config=None, config_dir=None))


def root_of(arguments: Namespace) -> str:
    """The root of the arguments. Exits with 2 if only root may change it."""
    given = "/" if arguments.root is None else arguments.root
    root = f"/{os.path.abspath(given).lstrip('/')}"
    if root == "/" and os.geteuid() != 0:
        exit_with(
            EXIT_USAGE, "only root may change /etc and /usr/local; --root DIR is for another root"
        )
    return root


@contextmanager
def changing(root: str, *directories: str) -> Iterator[None]:
    """In it, files below the root are changed, if it is trusted with the directories of
    all files that an installer can have placed, and these. Else exits with 2; with 1 if a
    file cannot be changed."""
    os.umask(0o022)
    with exit_on(EXIT_NOT_RELIEVED, OSError), exit_on(EXIT_USAGE, NotTrustedError):
        check(root, *map(os.path.dirname, _placeable()), *directories)
        yield


def _program(root: str) -> str:
    """The path of this program once `root` is /.

    Exits with 2 if the service could not see all of it there.
    """
    program = os.path.join(sysconfig.get_path("scripts"), "reclaimd")
    needed = (program, sys.executable, __file__, os.__file__)
    for path in (_once_moved(root, each) for each in (*needed, *map(os.path.realpath, needed))):
        if path.startswith(UNSEEN) or not os.access(program, os.X_OK):
            exit_with(
                EXIT_USAGE,
                f"the service could not run {path} (ProtectHome= and PrivateTmp= hide home and"
                f" temporary directories); install the program elsewhere, as in {ELSEWHERE}",
            )
    return _once_moved(root, program)


def _once_moved(root: str, path: str) -> str:
    return path.removeprefix(root.rstrip("/")) if path.startswith(f"{root}/") else path


def _files(program: str) -> dict[str, bytes]:
    """Path -> content; last the record of all, and the configuration.

    Drop-ins are examples: systemd reads *.conf.
    """
    units = shipped("systemd")
    start = shlex.quote(program).replace("%", "%%")
    files: dict[str, bytes] = {}
    for source in filter(Path.is_file, sorted(units.rglob("*.*"))):
        path = f"{UNITS}/{source.relative_to(units)}"
        files[f"{path}.example" if path.endswith(".conf") else path] = source.read_bytes()
    files |= {path: shipped(name).read_bytes() for path, name in OTHERS.items()}
    files[UNIT] = files[UNIT].replace(IN_THE_UNIT, f"={start} ".encode())
    files[RECORD] = "".join(f"{path}\n" for path in (*files, RECORD)).encode()
    return files | {USUAL_FILE: shipped("reclaimd.yaml").read_bytes()}


def _placeable() -> list[str]:
    """All that an installer of this program can have placed, but the
    configuration, which is the operator's.
    """
    return [*(path for path in _files("") if path != USUAL_FILE), *FORMER]


def replace_placed(root: str, files: dict[str, bytes]) -> Iterator[str]:
    """Removes what was placed earlier and is not among the files, then writes those that are new or
    differ; yields a line for each. Raises OSError, NotTrustedError."""
    record = read(root, RECORD, LARGEST_RECORD_BYTES)
    placeable = _placeable()
    if record is None or not 0 < len(record) <= LARGEST_RECORD_BYTES:
        if record is not None and not files:
            raise OSError(
                f"{RECORD} is not as an installer has written it: install once more, and then"
                " uninstall"
            )
        record = b""
    gone = []
    for path in dict.fromkeys(record.decode(errors="replace").split()):
        if path not in placeable:
            yield f"left     {path} (not a file that an installer places)"
        elif path not in files and exists(root, path):
            gone.append(path)
    units = [os.path.basename(path) for path in gone if os.path.dirname(path) == UNITS]
    stops = units and root == "/" and os.path.isdir("/run/systemd/system")
    if stops:
        # or they would outlive their files
        subprocess.run(["systemctl", "disable", "--now", *units], check=False)
    for path in gone:
        yield f"gone     {path}"
        remove(root, path)
    if stops:
        subprocess.run(["systemctl", "daemon-reload"], check=False)
    for path, content in files.items():
        before = read(root, path, len(content))
        if before is not None and path == USUAL_FILE:
            yield f"kept     {path} (every field: reclaimd help configuration)"
        elif before != content:
            yield f"{'new' if before is None else 'changed':<9}{path}"
            write(root, path, content, mode=0o600 if path == USUAL_FILE else 0o644)

"""The kubelet's names for log directories, logs and log symlinks, and the check of
log paths from the runtime.

| Thing | Form |
|---|---|
| pod log directory | `<podLogsDir>/<namespace>_<pod name>_<pod UID>` |
| container log | `<pod log directory>/<container name>/<restart count>.log` |
| rotated log | the same, `.<YYYYMMDD-hhmmss>`, then possibly `.gz`, or `.tmp` while it is made |
| log symlink | `<containerLogsDir>/<pod name>_<namespace>_<container name>-<container id>.log` |

Source: kubelet, `pkg/kubelet/kuberuntime/helpers.go` (BuildPodLogsDirectory,
parsePodUIDFromLogsDirectory) and `legacy.go` (logSymlink, getContainerIDFromLegacyLogSymlink).

A path from the runtime is never opened as it is. It is split into three entry names; any other
path counts as "no such log". (An empty `log_path` once made the kubelet delete what was in its
working directory, https://github.com/kubernetes/kubernetes/issues/107717; containers could
choose theirs, CVE-2025-0750.)
"""

import re
from typing import NamedTuple

from reclaim.evidence.states import is_pod_uid

LOG_SUFFIX = ".log"
SYMLINK_STEM_BYTES = 251  # 255 with the suffix, the longest file name on ext4
SHORTEST_ID = 6

_POD_DIRECTORY = re.compile(  # RFC 1123: a label, a subdomain
    r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?_[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?_(?P<uid>[^_]+)",
    re.ASCII,
)
_SYMLINK = re.compile(
    r"[a-z0-9][-.a-z0-9]{0,252}_[a-z0-9][-a-z0-9]{0,62}_[a-z0-9][-a-z0-9]{0,62}-[A-Za-z0-9]{6,}\.log",
    re.ASCII,
)
_CUT_SYMLINK = re.compile(r"[a-z0-9][-.a-z0-9]*(_[-a-z0-9]*(_[-A-Za-z0-9]*)?)?\.log", re.ASCII)
_NO_PATTERN = r"([^/*?\[\]\\\0]+)"
_CONTAINER_LOG = re.compile(rf"{_NO_PATTERN}/{_NO_PATTERN}/([0-9]{{1,10}}\.log)")


class LogPaths(NamedTuple):
    """The kubelet's `podLogsDir`, and the directory of its log symlinks. Both are absolute. Neither
    is followed if it is itself a symlink; symlinks above it are."""

    pod_logs_dir: str
    container_logs_dir: str


def _text(name: bytes) -> str:
    """A name as text; to the kubelet, names are UTF-8. `_bytes` restores it."""
    return name.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    """The bytes of a name. Raises UnicodeEncodeError for text that cannot be a name."""
    return text.encode("utf-8", "surrogateescape")


def is_entry_name(name: bytes) -> bool:
    """Whether this can be the name of a directory entry: no `.`, `..`, `/` or NUL."""
    return name not in (b"", b".", b"..") and b"/" not in name and b"\0" not in name


def printable(name: bytes) -> str:
    """A name as text, unique for each name.

    Bytes that are not UTF-8 become `\\xNN`, and a backslash is doubled.
    """
    return name.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def uid_of_kubelets_log_directory(name: bytes) -> str | None:
    """The UID if the name has exactly the form the kubelet uses, with a valid UID; else None."""
    match = _POD_DIRECTORY.fullmatch(_text(name))
    return match["uid"] if match and is_pod_uid(match["uid"]) else None


def symlink_name(pod: str, namespace: str, container: str, *, container_id: str) -> str:
    """The kubelet's name for the log symlink of a container.

    It has at most 255 bytes; the end of the container id is cut off. With the longest names,
    nothing is left of the id, and several containers share one name.
    """
    stem = _bytes(f"{pod}_{namespace}_{container}-{container_id}")[:SYMLINK_STEM_BYTES]
    return _text(stem) + LOG_SUFFIX


def is_kubelets_symlink(link_name: bytes) -> bool:
    """Whether the name has the form of the kubelet's log symlinks.

    At the maximum length, a part of that form.
    """
    form = _CUT_SYMLINK if is_cut(link_name) else _SYMLINK
    return form.fullmatch(_text(link_name)) is not None


def is_cut(link_name: bytes) -> bool:
    """Whether the name of a log symlink is so long that the container id may be cut off."""
    return len(link_name) >= SYMLINK_STEM_BYTES + len(LOG_SUFFIX)


def container_id_of_symlink(link_name: bytes) -> str:
    """The container id that the kubelet reads from the name of a log symlink: the text
    after the last `-`, without `.log`. It may be a prefix of an id, and empty if the end
    of the name is cut off."""
    return _text(link_name).rpartition("-")[2].removesuffix(LOG_SUFFIX)


def container_log_location(log_path: str, root: str) -> tuple[bytes, bytes, bytes] | None:
    """The names of the pod directory, container directory and file of a log below the pod log root,
    taken from the path that the runtime reported; None if the path is not that of a container log.

    Accepts only `<root>/<entry>/<entry>/<number>.log`, without `.`, `..`, `//`, NUL and shell
    pattern characters (the kubelet writes none of these, and would expand patterns).
    """
    directory = f"{root.rstrip('/')}/"
    match = _CONTAINER_LOG.fullmatch(log_path.removeprefix(directory))
    if match is None or not root.startswith("/") or not log_path.startswith(directory):
        return None
    try:
        pod, container, file = map(_bytes, match.groups())
    except UnicodeEncodeError:
        return None
    return (pod, container, file) if is_entry_name(pod) and is_entry_name(container) else None

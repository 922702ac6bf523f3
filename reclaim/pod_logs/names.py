"""The kubelet's names for log directories, logs and log symlinks, and the check of log paths from the runtime.

| Thing | Form |
|---|---|
| pod log directory | `<podLogsDir>/<namespace>_<pod name>_<pod UID>` |
| container log | `<pod log directory>/<container name>/<restart count>.log` |
| rotated log | the same followed by `.<YYYYMMDD-hhmmss>`, then maybe `.gz`, or `.tmp` while it is made |
| log symlink | `<containerLogsDir>/<pod name>_<namespace>_<container name>-<container id>.log` |

Source: kubelet, `pkg/kubelet/kuberuntime/helpers.go` (BuildPodLogsDirectory, parsePodUIDFromLogsDirectory) and
`legacy.go` (logSymlink, getContainerIDFromLegacyLogSymlink).

A path from the runtime is never opened as it is. It is split into three names of entries; any other path counts as "no
such log". (An empty `log_path` once made the kubelet delete what was in its working directory,
https://github.com/kubernetes/kubernetes/issues/107717; containers could choose theirs, CVE-2025-0750.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from reclaim.pods.states import is_pod_uid

LOG_SUFFIX = ".log"
SYMLINK_STEM_BYTES = 251  # with the suffix 255, the longest name of a file on ext4
SHORTEST_ID = 6

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)  # RFC 1123 label
_POD_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?", re.ASCII)  # RFC 1123 subdomain
_SYMLINK = re.compile(
    r"[a-z0-9][-.a-z0-9]{0,252}_[a-z0-9][-a-z0-9]{0,62}_[a-z0-9][-a-z0-9]{0,62}-[A-Za-z0-9]{6,}\.log", re.ASCII
)
_CUT_SYMLINK = re.compile(r"[a-z0-9][-.a-z0-9]*(_[-a-z0-9]*(_[-A-Za-z0-9]*)?)?\.log", re.ASCII)
_LOG_FILE = re.compile(r"[0-9]{1,10}\.log", re.ASCII)
_GLOB_CHARACTERS = frozenset("*?[]\\\0")


Identity = tuple[int, int]
"""Device and inode of a file."""


@dataclass(frozen=True, slots=True)
class LogPaths:
    """The kubelet's `podLogsDir`, and the directory of its log symlinks. Both absolute. What is a symlink itself is not
    followed; those above it are."""

    pod_logs_dir: str = "/var/log/pods"
    container_logs_dir: str = "/var/log/containers"


@dataclass(frozen=True, slots=True)
class ContainerLogLocation:
    """A container's log below the pod log root, as three names of entries."""

    pod_directory: bytes
    container_directory: bytes
    file: bytes


def _text(name: bytes) -> str:
    """A name as text that leads back to the same bytes, as Linux names are UTF-8 to the kubelet."""
    return name.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    """The bytes of a name. Raises UnicodeEncodeError for text that no name can be."""
    return text.encode("utf-8", "surrogateescape")


def is_entry_name(name: bytes) -> bool:
    """Whether this can be the name of an entry of a directory: one component, not empty, no `.` or `..`, no NUL."""
    return name not in (b"", b".", b"..") and b"/" not in name and b"\0" not in name


def printable(name: bytes) -> str:
    """A name as text, different for each name: bytes that are not UTF-8 become `\\xNN`, a backslash is doubled."""
    return name.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def printable_text(text: str) -> str:
    """The same for a name that was decoded."""
    return printable(_bytes(text))


def log_directory_name(namespace: str, name: str, uid: str) -> str:
    """The kubelet's name for the log directory of a pod."""
    return f"{namespace}_{name}_{uid}"


def uid_of_log_directory(name: bytes) -> str:
    """The UID that the kubelet reads from an entry of the pod log root: the text after the last `_`, or all of it."""
    return _text(name.rpartition(b"_")[2])


def uid_of_kubelets_log_directory(name: bytes) -> str | None:
    """The UID if the name has exactly the form that the kubelet gives, with a valid UID; else None."""
    namespace, _, rest = _text(name).partition("_")
    pod_name, _, uid = rest.partition("_")
    formed = _NAMESPACE.fullmatch(namespace) and _POD_NAME.fullmatch(pod_name) and is_pod_uid(uid)
    return uid if formed and "_" not in uid else None


def symlink_name(pod: str, namespace: str, container: str, container_id: str) -> str:
    """The kubelet's name for the log symlink of a container: at most 255 bytes; the end of the container's id is cut.

    With the longest names nothing of the id is left, and several containers share one name.
    """
    stem = _bytes(f"{pod}_{namespace}_{container}-{container_id}")[:SYMLINK_STEM_BYTES]
    return _text(stem) + LOG_SUFFIX


def is_kubelets_symlink(link_name: bytes) -> bool:
    """Whether the name has the form that the kubelet gives to a log symlink; at the greatest length a part of it."""
    form = _CUT_SYMLINK if is_cut(link_name) else _SYMLINK
    return form.fullmatch(_text(link_name)) is not None


def is_cut(link_name: bytes) -> bool:
    """Whether a log symlink has the greatest length, so that the container's id at its end may be cut."""
    return len(link_name) >= SYMLINK_STEM_BYTES + len(LOG_SUFFIX)


def container_id_of_symlink(path: str) -> str | None:
    """The container id that the kubelet reads from the path of a log symlink; None if it has fewer than 6 bytes.

    It is the text after the last `-`, without `.log`. It may be a prefix of an id; without any `-` it is the path.
    """
    container_id = path.rpartition("-")[2].removesuffix(LOG_SUFFIX)
    return container_id if path.endswith(LOG_SUFFIX) and len(_bytes(container_id)) >= SHORTEST_ID else None


def container_log_location(log_path: str, root: str) -> ContainerLogLocation | None:
    """The location of a log by the path that the runtime reported; None: the path is not one of a container's log.

    Accepted is only `<root>/<entry>/<entry>/<number>.log`, without `.`, `..`, `//`, NUL and the characters of shell
    patterns (the kubelet writes none of these characters, and would expand them).
    """
    directory = root.rstrip("/") + "/"
    if not root.startswith("/") or not log_path.startswith(directory) or _GLOB_CHARACTERS & set(log_path):
        return None
    try:
        names = _bytes(log_path.removeprefix(directory)).split(b"/")
    except UnicodeEncodeError:
        return None
    if len(names) != 3 or not all(is_entry_name(name) for name in names):
        return None
    if not _LOG_FILE.fullmatch(_text(names[2])):
        return None
    return ContainerLogLocation(*names)

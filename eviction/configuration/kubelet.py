"""Reads the configuration of the node's kubelet; never writes it.

In the kubelet's own order (`cmd/kubelet/app/server.go`):

1. The file. Only this step adds the default thresholds: all of them if the file does not set
   `evictionHard`, those of the other signals if it also sets `mergeDefaultEvictionSettings`.
2. The `*.conf` files of the drop-in directory and its subdirectories, in lexical order, each as
   a JSON merge patch. So a drop-in can remove a default, and `mergeDefaultEvictionSettings` in
   a drop-in changes nothing. `reclaim.kubelet.versions` says what older kubelets do in these steps.
3. All other defaults (`pkg/kubelet/apis/config/v1beta1/defaults.go`).
4. The flags of its command line, where they are known.

Since Kubernetes 1.25 a kubelet without a file has no default thresholds;
here it has them, as before.

`eviction.configuration.strict_yaml` says how the YAML of both is read.

Only the fields that reclaimd needs are read, and only what it uses is checked. Whatever else is
wrong is between the file and its kubelet.

Which file: the one that our own configuration names; else the files and flags that the kubelet
process was started with (`find_kubelet`); else the usual file.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from os.path import join
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import ConfigDict, ValidationError

from eviction.configuration.file import NO_RUNTIME
from eviction.configuration.fingerprint import DROP_IN_SUFFIX
from eviction.configuration.models import Model, name_in_file, setting
from eviction.configuration.strict_yaml import (
    ConfigurationError,
    parse_kubelets_drop_in,
    parse_kubelets_file,
    quoted,
    read_document_of,
    sentence_about,
    unfit_texts,
)
from eviction.configuration.threshold_config import (
    KUBELET_EVICTION_HARD,
    FieldError,
    ParsedThresholds,
    parse_threshold_config,
)
from eviction.types import EvictionError, Fields, Json
from reclaim.kubelet.versions import (
    DROP_INS_REMOVE,
    MERGES_DEFAULTS,
    NEWEST,
    OLDEST,
    KubeletVersion,
)
from reclaim.trust import trusts
from reclaim.workers import in_time
from signals.open_files import processes
from signals.quantity import QuantityError, parse_duration

API_VERSION = "kubelet.config.k8s.io/v1beta1"
KIND = "KubeletConfiguration"
KUBELET_CONFIG = "/var/lib/kubelet/config.yaml"
NAME = "kubelet"
SERVICE = "kubelet.service"
LARGEST_COMMAND_LINE_BYTES = 1 << 20
SEARCH_SECONDS = 2.0
DEFAULT_PORT = 10250
# where a kubelet that listens on all interfaces is asked
ALL_INTERFACES = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
EVICTION_MAPS = (
    "eviction_hard",
    "eviction_soft",
    "eviction_soft_grace_period",
    "eviction_minimum_reclaim",
)


def host_at(address: str) -> str:
    """The host in the URL of a server that listens at this address.

    The loopback if it listens on all interfaces.
    """
    address = ALL_INTERFACES.get(address, address)
    return f"[{address}]" if ":" in address else address


class KubeletFields(Model):
    """The fields of the kubelet's configuration that reclaimd needs, with the kubelet's defaults.

    An empty text and a duration of 0 count as not set.
    """

    model_config = ConfigDict(extra="ignore", alias_generator=name_in_file)

    eviction_hard: dict[str, str] = setting(dict)
    eviction_soft: dict[str, str] = setting(dict)
    eviction_soft_grace_period: dict[str, str] = setting(dict)
    eviction_minimum_reclaim: dict[str, str] = setting(dict)
    merge_default_eviction_settings: bool = False
    eviction_pressure_transition_period: str = ""
    image_gc_high_threshold_percent: int = setting(85, ge=0, le=100)
    image_gc_low_threshold_percent: int = setting(80, ge=0, le=100)
    image_minimum_gc_age: str = ""
    image_maximum_gc_age: str = ""
    feature_gates: dict[str, bool] = setting(dict)
    container_runtime_endpoint: str = ""
    image_service_endpoint: str = ""
    pod_logs_dir: str = ""
    healthz_bind_address: str = ""
    healthz_port: int = 10248
    address: str = ""
    port: int = 0
    tls_cert_file: str = ""


class KubeletConfiguration(KubeletFields):
    """The settings of this node's kubelet that reclaimd needs."""

    model_config = ConfigDict(defer_build=True)  # its values are already checked

    name: str
    """Of the file."""
    settings: Fields
    """The fields that are set, as written, and its default thresholds."""
    thresholds: ParsedThresholds
    root_directory: str = ""
    """Its `--root-dir`, empty if not known."""
    depends_on_version: bool
    """Whether kubelets of other versions read other settings."""


KUBELETS_FIELDS = {str(field.alias): field for field in KubeletFields.model_fields.values()}


def merged(documents: Sequence[Fields]) -> Json:
    """The documents merged in order, each as a JSON merge patch (RFC 7386).

    Maps are merged by key, everything else is replaced; null removes a key.
    """
    result: Json = {}
    for document in documents:
        for key, value in document.items():
            held = result.get(key)
            if value is None:
                result.pop(key, None)
            elif isinstance(value, dict):
                result[key] = merged([held if isinstance(held, dict) else {}, value])
            else:
                result[key] = value
    return result


def as_fields(document: Fields) -> Json:
    """The fields that are read in what a kubelet has merged, as Go's encoding/json finds them.

    It goes in the order of the keys, capitals first. A key in other capitals is the field as well;
    maps add up. Before that, the kubelet has written every field that is not a map, even one that
    nothing sets, except for two: so a key that comes before such a field's own loses.
    """
    names = {name.casefold(): name for name in KUBELETS_FIELDS}
    fields: list[Json] = []
    for key, value in sorted(document.items()):
        name = names.get(key.casefold(), "")
        left_out = name in ("imageServiceEndpoint", "tlsCertFile")
        if name and (key >= name or left_out or isinstance(value, dict)):
            fields.append({name: value})
    return merged(fields)


def kubelets_drop_ins(directory: str) -> Iterator[str]:
    """The kubelet's drop-ins in its order, that of Go's `filepath.WalkDir`.

    A symlink counts as a file, even one to a directory. A `directory` that is itself a file, or a
    symlink without a slash at its end, is the only one, if it has the suffix. Raises OSError.
    """
    if not stat.S_ISDIR(os.lstat(directory).st_mode):
        if directory.endswith(DROP_IN_SUFFIX):
            yield directory
        return
    with os.scandir(directory) as entries:
        by_name = sorted(entries, key=lambda entry: entry.name)
    for entry in by_name:
        if entry.is_dir(follow_symlinks=False):
            yield from kubelets_drop_ins(entry.path)
        elif entry.name.endswith(DROP_IN_SUFFIX):
            yield entry.path


def read_kubelet_configuration(
    path: str,
    directory: str = "",
    flags: Fields = MappingProxyType({}),
    *,
    version: KubeletVersion = NEWEST,
) -> KubeletConfiguration:
    """The effective settings of a kubelet of this version.

    `path`: of its file; `directory`: of its drop-ins; empty: none. `flags`: field -> value. Raises
    ConfigurationError.
    """
    read = partial(read_document_of, API_VERSION, KIND)
    try:
        document = read(path, parse=parse_kubelets_file) if path else {}
        paths = kubelets_drop_ins(directory) if directory else ()
        patches = [read(drop_in, parse=parse_kubelets_drop_in) for drop_in in paths]
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: cannot be read: {error.strerror}") from None
    names = [path] if path else []
    if flags or not path:
        names.append("the kubelet's flags")
    return kubelet_configuration(
        document, " and ".join(names), patches, flags=flags, version=version
    )


def kubelet_configuration(
    file: Json,
    name: str,
    drop_ins: Sequence[Json] = (),
    *,
    flags: Fields = MappingProxyType({}),
    version: KubeletVersion = NEWEST,
) -> KubeletConfiguration:
    """The effective settings from the documents of a file and its drop-ins, and from flags.

    Without `evictionHard` the file has the defaults, else the map as written, even if empty;
    `mergeDefaultEvictionSettings` adds the defaults of the other signals. A written value
    wins, even one that switches its signal off. A flag replaces the whole field, even a map,
    except for feature gates. `name`: the file's, for messages. Raises ConfigurationError.
    """
    file = {
        field: value
        for field, value in file.items()
        if field in KUBELETS_FIELDS and value is not None
    }

    def settings_of(version: KubeletVersion) -> Json:
        merges = file.get("mergeDefaultEvictionSettings") is True and version.has(MERGES_DEFAULTS)
        hard = KUBELET_EVICTION_HARD if merges or "evictionHard" not in file else {}
        patches = drop_ins if version.has(DROP_INS_REMOVE) else [merged(drop_ins)]
        document = as_fields(merged([{"evictionHard": hard}, file, *patches]))
        gates = [
            {"featureGates": source["featureGates"]}
            for source in (document, flags)
            if "featureGates" in source
        ]
        return {**document, **flags, **merged(gates)}

    document, newest, oldest = map(settings_of, (version, NEWEST, OLDEST))
    for field, problem in unfit_texts(document):
        raise ConfigurationError(f"{name}: {field}: {problem}")
    try:
        read = KubeletFields.model_validate(document)
        thresholds = parse_threshold_config(
            *(getattr(read, field) for field in EVICTION_MAPS), origin=name
        )
    except ValidationError as error:
        raise ConfigurationError(sentence_about(error.errors()[0], name)) from None
    except FieldError as error:
        raise ConfigurationError(f"{name}: {error}") from None
    return KubeletConfiguration.model_construct(
        **dict(read),
        name=name,
        settings={
            field: value for field, value in document.items() if value != "" and not is_zero(value)
        },
        thresholds=thresholds,
        depends_on_version=newest != oldest,
    )


def is_zero(value: Any) -> bool:
    """Whether a value is the text of a duration of 0."""
    try:
        return isinstance(value, str) and parse_duration(value) == 0
    except QuantityError:
        return False


KUBELETS_DEFAULTS = kubelet_configuration({}, "the kubelet's default")
"""The settings that are inherited where no kubelet's configuration is known."""


class KubeletProcess(NamedTuple):
    """A kubelet's command line. Paths are absolute, or empty if no flag names them.

    `flags`: the fields of its configuration that flags override. `parent`: of the process.
    """

    config: str
    config_dir: str
    root_dir: str
    flags: Fields
    parent: int


class _LeftAloneError(EvictionError):
    """Why a process called kubelet does not count as the node's, as the end of a sentence."""


# cmd/kubelet/app/options/options.go; flags override files (kubeletConfigFlagPrecedence)
FLAGS = {
    "address": "address",
    "container-runtime-endpoint": "containerRuntimeEndpoint",
    "eviction-hard": "evictionHard",
    "eviction-minimum-reclaim": "evictionMinimumReclaim",
    "eviction-pressure-transition-period": "evictionPressureTransitionPeriod",
    "eviction-soft": "evictionSoft",
    "eviction-soft-grace-period": "evictionSoftGracePeriod",
    "feature-gates": "featureGates",
    "healthz-bind-address": "healthzBindAddress",
    "healthz-port": "healthzPort",
    "image-gc-high-threshold": "imageGCHighThresholdPercent",
    "image-gc-low-threshold": "imageGCLowThresholdPercent",
    "image-service-endpoint": "imageServiceEndpoint",
    "minimum-image-ttl-duration": "imageMinimumGCAge",
    "port": "port",
    "tls-cert-file": "tlsCertFile",
}
"""Flag -> the field that it overrides."""
PATHS = ("config", "config-dir", "root-dir")
PRINTS = frozenset({"--version", "--version=true", "--version=raw", "--help", "--help=true", "-h"})


def parse_pairs(flag: str, text: str, field: str) -> dict[str, str]:
    """The flag form `signal<value,signal<value` (`=` for grace periods and minimum reclaim).

    Raises ConfigurationError.
    """
    operator = "<" if field in ("evictionHard", "evictionSoft") else "="
    pairs: dict[str, str] = {}
    for statement in filter(None, text.split(",")):
        name, separator, value = (part.strip() for part in statement.partition(operator))
        if not separator or not name or not value:
            example = f"nodefs.available{operator}{'1m30s' if 'grace' in flag else '10%'}"
            raise ConfigurationError(
                f"--{flag}: {quoted(statement)} is not of the form signal{operator}value, for"
                f" example {example}"
            )
        pairs[name] = value
    return pairs


def kubelet_of_node(
    own: Fields, root: str | None, version: KubeletVersion
) -> tuple[KubeletConfiguration | None, str]:
    """The configuration of the node's kubelet, and a sentence about the search, or empty.

    None if there is none. `own`: the fields of our own sources. `root`: where to look for /proc and
    the usual file, unless `own` names the file or says that there is none; None: nowhere. Raises
    ConfigurationError.
    """
    path = own.get("kubeletConfig")
    directory = own.get("kubeletConfigDir", "")
    remark = ""
    if path is None and root is not None and own.get("containerRuntimeEndpoint") != NO_RUNTIME:
        process, remark = find_kubelet(join(root, "proc"))
        if process is not None:
            kubelet = read_kubelet_configuration(
                process.config, directory or process.config_dir, process.flags, version=version
            )
            return kubelet.model_copy(update={"root_directory": process.root_dir}), ""
        path = join(root, KUBELET_CONFIG.lstrip("/"))
        if not os.path.exists(path):
            return None, remark or f"no kubelet is seen among the processes, and there is no {path}"
    return read_kubelet_configuration(path, directory, version=version) if path else None, remark


def find_kubelet(proc: str, seconds: float = SEARCH_SECONDS) -> tuple[KubeletProcess | None, str]:
    """The node's kubelet, and why none was found, as a sentence; empty if none runs.

    Anybody may call a program `kubelet`, and the settings read here move the marks of a root
    daemon. So a process counts only if

    * its name and the last part of its `argv[0]` are `kubelet` (one inside another program, as in
      k3s, does not count),
    * all its user ids are root's or our own: a setuid program has the real user id of whoever
      started it,
    * its executable is called `kubelet`, or, if that may not be read (a unit without capabilities),
      it runs in `kubelet.service`, which a user cannot choose,
    * it is in no PID namespace below ours, has our root directory, and sees the same file at the
      path of its `--config` (if that may be checked): the kubelet of a nested node is not this
      node's.

    If there are several, none is used. `proc`: /proc, or a directory like it. Takes at most
    `seconds`: reading the command line of a process whose memory is locked may hang. psutil would
    not help: it reads neither the root nor the PID namespaces of a process, and a command line of
    any length.
    """
    try:
        return in_time(lambda: _search(proc), seconds)
    except TimeoutError:
        return None, f"{proc} could not be searched for the kubelet within {seconds:g}s"
    except OSError:
        return None, ""


def _search(proc: str) -> tuple[KubeletProcess | None, str]:
    kubelets: dict[int, KubeletProcess] = {}
    ignored = ""
    for pid in processes(proc):
        try:
            process = _kubelet_at(join(proc, str(pid)))
        except OSError:  # it has ended
            continue
        except (_LeftAloneError, ValueError, KeyError, ConfigurationError) as error:
            why = f"its command line cannot be read ({error})"
            if isinstance(error, _LeftAloneError):
                why = str(error)
            ignored = f"process {pid} is called {NAME} but ignored: {why}"
        else:
            if process is not None:
                kubelets[pid] = process
    # without a child that it has just forked
    own = [pid for pid, process in kubelets.items() if process.parent not in kubelets]
    if len(own) > 1:
        return None, f"several kubelets run here: processes {', '.join(map(str, own))}"
    return (kubelets[own[0]], "") if own else (None, ignored)


def _kubelet_at(entry: str) -> KubeletProcess | None:
    """The kubelet that this process is; None if it is none.

    Raises _LeftAloneError if it is not known to be the node's; OSError, ValueError, KeyError,
    ConfigurationError.
    """
    if _read(entry, "comm") != b"kubelet\n":  # reading this never waits for the process
        return None
    program, *arguments = [part.decode() for part in _read(entry, "cmdline").split(b"\0")]
    first = arguments[0] if arguments else ""
    prints_and_ends = not PRINTS.isdisjoint(arguments) or first[:1] not in ("", "-")
    if os.path.basename(program) != NAME or prints_and_ends:
        return None
    parent = _parent_if_of_node(entry)
    given = given_flags(arguments)
    config, config_dir, root_dir = (
        _absolute(entry, given[name][-1] if name in given else "") for name in PATHS
    )
    if config and not (_same(f"{entry}/root{config}", config) and os.path.exists(config)):
        raise _LeftAloneError(f"its {config} is not visible here")
    if config_dir and not os.path.lexists(config_dir):
        raise _LeftAloneError(f"its {config_dir} is not visible here")
    return KubeletProcess(
        config,
        config_dir,
        root_dir,
        flags={
            field: _value_of(field, given[flag]) for flag, field in FLAGS.items() if flag in given
        },
        parent=parent,
    )


def _parent_if_of_node(entry: str) -> int:
    """The parent's id of a process that may be the node's kubelet.

    Raises _LeftAloneError, OSError, ValueError, KeyError.
    """
    lines = [line.partition(":") for line in _read(entry, "status").decode().splitlines()]
    status = {name: values.split() for name, _, values in lines}
    for uid in status["Uid"]:
        if not trusts(int(uid)):
            raise _LeftAloneError(f"it belongs to uid {uid}")
    if len(status.get("NSpid", "1")) > 1:
        raise _LeftAloneError("it runs in a PID namespace of its own")
    try:
        executable = os.readlink(join(entry, "exe")).removesuffix(" (deleted)")
        if os.path.basename(executable) != NAME:
            raise _LeftAloneError(f"its executable is {executable}")
    except PermissionError:
        if not any(
            SERVICE in group.split("/")
            for group in _read(entry, "cgroup").decode(errors="replace").splitlines()
        ):
            raise _LeftAloneError(
                f"its executable may not be read, and it does not run in {SERVICE}"
            ) from None
    if not _same(join(entry, "root"), "/"):
        raise _LeftAloneError("it has another root directory")
    return int(status["PPid"][0])


def _value_of(field: str, values: Sequence[str]) -> Any:
    """The value of a field whose flag was given with these texts. Lists and maps add them up.

    Raises ConfigurationError, ValueError.
    """
    default = KUBELETS_FIELDS[field].get_default(call_default_factory=True)
    if isinstance(default, int):
        return int(values[-1])
    if not isinstance(default, dict):
        return values[-1]
    pairs: Json = {}
    for value in values:
        pairs |= parse_pairs(NAME, value, field)
    if field == "featureGates":  # by Go's ParseBool, with which this kubelet has started
        return {gate: text[0] in "1tT" for gate, text in pairs.items()}
    return pairs


def given_flags(arguments: Iterable[str]) -> dict[str, list[str]]:
    """The flags that are known here, each with its values in order.

    As pflag reads them: both `--name value` and `--name=value`, and `_` is `-`. Everything else
    belongs to other flags: a kubelet does not start with an argument that belongs to none.
    """
    given: dict[str, list[str]] = {}
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            break
        name, equals, value = argument.removeprefix("--").partition("=")
        name = name.replace("_", "-")
        if argument.startswith("--") and name in (*FLAGS, *PATHS):
            given.setdefault(name, []).append(value if equals else next(rest, ""))
    return given


def _absolute(entry: str, path: str) -> str:
    """The absolute form of a path that is relative to the kubelet's working directory.

    Raises _LeftAloneError.
    """
    if not path or path.startswith("/"):
        return path
    try:
        return join(os.readlink(join(entry, "cwd")), path)
    except OSError:
        raise _LeftAloneError(
            f"{path} is relative to its working directory, which may not be read"
        ) from None


def _same(theirs: str, ours: str) -> bool:
    """Whether two paths lead to the same file; true also if theirs may not be followed."""
    try:
        return os.path.samefile(theirs, ours)
    except PermissionError:
        return True
    except OSError:
        return False


def _read(entry: str, name: str) -> bytes:
    """A file of a process.

    Raises OSError; ValueError if it is longer than any command line should be.
    """
    path = join(entry, name)
    with open(path, "rb") as file:
        data = file.read(LARGEST_COMMAND_LINE_BYTES + 1)
    if len(data) > LARGEST_COMMAND_LINE_BYTES:
        raise ValueError(f"{path} holds more than {LARGEST_COMMAND_LINE_BYTES} bytes")
    return data

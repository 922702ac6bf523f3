"""Which configuration the node's kubelet has is told by its process, and by no
other; else by the usual file.

The processes are directories of the form of /proc, in a directory of the test's own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from eviction.configuration.effective import Configuration, ConfigurationError, load
from eviction.configuration.kubelet import KUBELET_CONFIG, find_kubelet, given_flags
from eviction.wording.configuration_warnings import NO_THRESHOLD, configuration_warnings

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
ONE_GIB = HEAD + "evictionHard: {nodefs.available: 1Gi}\nimageMinimumGCAge: 7m\n"


class Machine:
    """A root directory with processes; `file`: a kubelet's configuration that
    is not the usual one.
    """

    def __init__(self, root: Path):
        self.root = root
        self.proc = root / "proc"
        self.proc.mkdir()
        self.file = root / "kubelet.yaml"
        self.file.write_text(ONE_GIB)
        self.usual = root / KUBELET_CONFIG.lstrip("/")
        self.usual.parent.mkdir(parents=True)

    def run(
        self,
        *arguments: str,
        pid: int = 100,
        comm: str = "kubelet",
        uids: str = "",
        ns_pid: str = "",
        parent: int = 1,
        exe: str = "/usr/bin/kubelet",
        argv0: str = "/usr/bin/kubelet",
        **links: str,
    ) -> Path:
        """A process with this command line."""
        entry = self.proc / str(pid)
        entry.mkdir()
        uid = os.geteuid()
        (entry / "comm").write_text(f"{comm}\n")
        (entry / "cmdline").write_bytes(
            b"".join(part.encode() + b"\0" for part in (argv0, *arguments))
        )
        uids = uids or f"{uid}\t{uid}\t{uid}\t{uid}"
        (entry / "status").write_text(
            f"Name:\t{comm}\nPPid:\t{parent}\nUid:\t{uids}\nNSpid:\t{ns_pid or pid}\n"
        )
        for name, target in {"exe": exe, "root": "/", "cwd": str(self.root), **links}.items():
            (entry / name).symlink_to(target)
        return entry

    def load(self, **flags: Any) -> Configuration:
        """Our configuration beside these processes."""
        return load(None, {}, flags, root=str(self.root))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Without any process."""
    return Machine(tmp_path)


def marks(configuration: Configuration) -> dict[str, str]:
    """The values of the thresholds, without the margin."""
    return {str(one.signal): str(one.value) for one in configuration.thresholds}


DEFAULTS = {
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}


@pytest.mark.parametrize(
    "form",
    [
        "--config={}",
        "--config {}",
        "--v=2 --node-labels a=b --config {}",
        "--config=/x --config={}",
    ],
)
def test_the_file_is_that_of_the_kubelets_command_line(machine: Machine, form: str) -> None:
    """In both forms of a flag, whatever other flags there are; of two the last
    counts, and not the usual file.
    """
    machine.usual.write_text(HEAD + "evictionHard: {nodefs.available: 99%}\n")
    machine.run("--kubeconfig=/etc/kubernetes/kubelet.conf", *form.format(machine.file).split())
    found = machine.load()
    assert marks(found) == {"nodefs.available": "1Gi"}
    assert found.thresholds[0].origin == f"{machine.file} plus margin 5% (at most 20Gi)"
    assert list(configuration_warnings(found)) == []


def test_a_relative_path_is_relative_to_the_kubelets_working_directory(machine: Machine) -> None:
    """Not to ours."""
    (machine.root / "conf.d").mkdir()
    (machine.root / "conf.d" / "1.conf").write_text(HEAD + "imageMinimumGCAge: 9m\n")
    machine.run("--config", "kubelet.yaml", "--config-dir", "conf.d")
    found = machine.load()
    assert marks(found) == {"nodefs.available": "1Gi"}
    assert found.image_minimum_gc_age_seconds == 540.0


def test_flags_override_the_file_as_in_the_kubelet(machine: Machine) -> None:
    """A map is replaced as a whole by the first flag, and a second one adds to it; the
    origin says that flags count.
    """
    machine.run(
        f"--config={machine.file}",
        "--eviction-hard=nodefs.available<3Gi,memory.available<1Gi",
        "--eviction_hard",
        "imagefs.available<20%",
        "--eviction-minimum-reclaim=imagefs.available=2Gi",
        "--minimum-image-ttl-duration=11m",
        "--image-gc-high-threshold=70",
        "--image-gc-low-threshold=60",
        "--feature-gates=KubeletSeparateDiskGC=false",
        "--root-dir=/data/kubelet",
        "--container-runtime-endpoint=unix:///run/crio/crio.sock",
    )
    found = machine.load()
    assert marks(found) == {"nodefs.available": "3Gi", "imagefs.available": "20%"}
    assert (
        found.thresholds[0].origin
        == f"{machine.file} and the kubelet's flags plus margin 5% (at most 20Gi)"
    )
    assert str(found.thresholds[1].min_reclaim) == "2Gi"
    assert (found.image_minimum_gc_age_seconds, found.image_gc_high_threshold_percent) == (
        660.0,
        70,
    )
    assert (found.root_directory, found.runtime_endpoint) == (
        "/data/kubelet",
        "unix:///run/crio/crio.sock",
    )
    assert found.kubelet is not None
    assert not found.kubelet.separate_disk_gc


def test_a_kubelet_without_a_file_has_flags_and_defaults(machine: Machine) -> None:
    """The usual file is not its."""
    machine.usual.write_text(ONE_GIB)
    machine.run("--eviction-hard=nodefs.available<7%")
    assert marks(machine.load()) == {"nodefs.available": "7%"}


def test_what_our_configuration_says_wins(machine: Machine) -> None:
    """A file that it names, the wish for none, and its own drop-in directory;
    then no process is looked at.
    """
    other, drop_ins = machine.root / "other.yaml", machine.root / "conf.d"
    other.write_text(HEAD + "evictionHard: {nodefs.available: 2Gi}\n")
    drop_ins.mkdir()
    (drop_ins / "1.conf").write_text(HEAD + "evictionHard: {nodefs.available: 4Gi}\n")
    machine.run(f"--config={machine.file}")
    assert marks(machine.load(kubeletConfig=str(other))) == {"nodefs.available": "2Gi"}
    assert marks(machine.load(kubeletConfig="")) == DEFAULTS
    assert marks(machine.load(kubeletConfigDir=str(drop_ins))) == {"nodefs.available": "4Gi"}
    assert machine.load(evictionHard={"nodefs.available": "5Gi"}).thresholds[0].origin == "flags"


LEFT_ALONE: dict[str, tuple[dict[str, Any], str]] = {
    "of somebody": ({"uids": "1234\t1234\t1234\t1234"}, "it belongs to uid 1234"),
    "setuid": ({"uids": "1234\t0\t0\t0"}, "it belongs to uid 1234"),
    "another program": ({"exe": "/usr/bin/sudo"}, "its executable is /usr/bin/sudo"),
    "nested": ({"ns_pid": "100\t7"}, "it runs in a PID namespace of its own"),
    "another root": ({"root": "/proc"}, "it has another root directory"),
    "no working directory": (
        {"arguments": ["--config=x"], "cwd": ""},
        "x is relative to its working directory",
    ),
    "no file": (
        {"arguments": ["--config=/nowhere/k.yaml"]},
        "its /nowhere/k.yaml is not visible here",
    ),
    "no directory": ({"arguments": ["--config-dir=/nowhere"]}, "its /nowhere is not visible here"),
    "a wrong flag": ({"arguments": ["--healthz-port=x"]}, "its command line cannot be read"),
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_a_process_that_may_not_be_the_nodes_kubelet_is_left_alone(
    machine: Machine, case: str
) -> None:
    """The usual file is taken instead, and it is said why; without one the defaults
    are, and that is said too.
    """
    given, why = dict(LEFT_ALONE[case][0]), LEFT_ALONE[case][1]
    arguments = given.pop("arguments", [f"--config={machine.file}"])
    without = given.pop("cwd", None) is not None
    entry = machine.run(*arguments, **given)
    if without:
        (entry / "cwd").unlink()
    (warning,) = configuration_warnings(machine.load())
    assert warning.startswith(
        "assuming the kubelet's default thresholds: process 100 is called kubelet"
    )
    assert why in warning
    machine.usual.write_text(HEAD + "evictionHard: {nodefs.available: 8%}\n")
    found = machine.load()
    assert marks(found) == {"nodefs.available": "8%"}
    (warning,) = configuration_warnings(found)
    assert warning.startswith(
        f"{machine.usual} is assumed to be the kubelet's configuration: process 100 is called"
        " kubelet"
    )
    assert why in warning


@pytest.mark.parametrize(
    "given",
    [
        {"comm": "k3s-server", "exe": "/usr/bin/k3s", "argv0": "/usr/bin/k3s"},
        {"comm": "kubelet", "argv0": "/bin/sh"},
        {"comm": "kubelet-helper", "argv0": "kubelet"},
        {"comm": "kubelet", "argv0": "kubelet-helper"},
    ],
)
def test_another_program_is_no_kubelet(machine: Machine, given: dict[str, Any]) -> None:
    """A kubelet inside another program, a script of that name, and names that only
    begin alike are not spoken of.
    """
    machine.run(f"--config={machine.file}", **given)
    assert find_kubelet(str(machine.proc)) == (None, "")


def test_of_several_kubelets_none_is_taken(machine: Machine) -> None:
    """What one has just forked, and what has ended in between, does not count as another."""
    machine.run(f"--config={machine.file}")
    machine.run(f"--config={machine.file}", pid=101, parent=100)
    (machine.proc / "102").mkdir()
    (machine.proc / "102" / "comm").write_text("kubelet\n")
    assert marks(machine.load()) == {"nodefs.available": "1Gi"}
    machine.run("--config=/other", pid=200, exe="/opt/kubelet (deleted)", argv0="kubelet", cwd="/")
    (machine.proc / "200" / "cmdline").write_bytes(b"kubelet\0")
    (warning,) = configuration_warnings(machine.load())
    assert (
        "several kubelets run here: processes 100, 200; name its file with kubeletConfig" in warning
    )


@pytest.mark.regression
@pytest.mark.parametrize(
    "arguments", [["--version"], ["--version=raw", "--v=2"], ["--v=2", "--help"], ["-h"], ["help"]]
)
def test_a_kubelet_that_only_prints_is_none(machine: Machine, arguments: list[str]) -> None:
    """What a monitoring script asks for its version is not a second kubelet; and alone
    it is nothing to speak of.
    """
    machine.run(*arguments, pid=50)
    assert find_kubelet(str(machine.proc)) == (None, "")
    machine.run(f"--config={machine.file}")
    found = machine.load()
    assert (marks(found), list(configuration_warnings(found))) == ({"nodefs.available": "1Gi"}, [])


def test_a_process_that_hangs_or_is_hostile_does_not_hold_the_start(machine: Machine) -> None:
    """Reading a command line may hang while the memory of its process is locked, and
    it may be huge or no text.
    """
    entry = machine.run(f"--config={machine.file}")
    (entry / "cmdline").write_bytes(b"kubelet\0" + b"\xff" * 100 + b"\0")
    assert "its command line cannot be read" in find_kubelet(str(machine.proc))[1]
    (entry / "cmdline").write_bytes(b"kubelet\0" + b"x" * (2 << 20))
    assert "holds more than 1048576 bytes" in find_kubelet(str(machine.proc))[1]
    (entry / "cmdline").unlink()
    os.mkfifo(entry / "cmdline")
    assert find_kubelet(str(machine.proc), seconds=0.05) == (
        None,
        f"{machine.proc} could not be searched for the kubelet within 0.05s",
    )
    with open(entry / "cmdline", "wb"):  # lets the thread that was left behind end
        pass


def test_a_file_of_the_kubelet_that_cannot_be_used_is_refused_by_name(machine: Machine) -> None:
    """As one that our own configuration names."""
    machine.run(f"--config={machine.file}")
    machine.file.write_text(HEAD + "evictionHard: {nodefs.available: '0'}\n")
    with pytest.raises(
        ConfigurationError,
        match=r"/kubelet\.yaml: evictionHard: nodefs\.available: must be above 0",
    ):
        machine.load()


def test_it_is_said_that_the_kubelets_defaults_are_taken(machine: Machine) -> None:
    """Where a kubelet was looked for and a mark is its default; not where none was wished,
    or no mark is left of it.
    """
    (warning,) = configuration_warnings(machine.load())
    assert warning == (
        "assuming the kubelet's default thresholds: no kubelet is seen among the processes, and"
        " there is no "
        f'{machine.usual}; name its file with kubeletConfig ("": there is none)'
    )
    own = dict.fromkeys(DEFAULTS, "9%")
    for flags in ({"kubeletConfig": ""}, {"evictionHard": own}):
        assert list(configuration_warnings(machine.load(**flags))) == []
    assert list(configuration_warnings(load(None, {}, {}))) == []


def test_a_configuration_without_a_threshold_is_warned_of(machine: Machine) -> None:
    """Also if only containerfs has one, as that has no effect."""
    machine.run(f"--config={machine.file}")
    for hard in ("{}", "{memory.available: 1Gi}", "{nodefs.available: 0%}"):
        machine.file.write_text(HEAD + f"evictionHard: {hard}\n")
        assert list(configuration_warnings(machine.load())) == [NO_THRESHOLD]
    machine.file.write_text(HEAD + "evictionHard: {containerfs.available: 5%}\n")
    assert next(configuration_warnings(machine.load())) == NO_THRESHOLD


@pytest.mark.parametrize(
    ("mark", "tiny"),
    [("10", True), ("1048575", True), ("0.1", True), ("1Mi", False), ("1%", False)],
)
def test_a_mark_of_a_few_bytes_in_the_kubelets_file_is_warned_of(
    machine: Machine, mark: str, tiny: bool
) -> None:
    """It is legal there, so it is no refusal; inodes are counted."""
    machine.run(f"--config={machine.file}")
    machine.file.write_text(
        HEAD + f"evictionHard: {{nodefs.available: '{mark}', nodefs.inodesFree: '10'}}\n"
    )
    warnings = list(configuration_warnings(machine.load()))
    assert [w.startswith("the kubelet's own mark nodefs.available ") for w in warnings] == [
        True
    ] * tiny


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (["--config", "/a", "--", "--config", "/b"], {"config": ["/a"]}),
        (["--config"], {"config": [""]}),
        (["--cgroups-per-qos", "--config=/a"], {"config": ["/a"]}),
        (["--config-dir", "--config"], {"config-dir": ["--config"]}),
        (["-v", "2", "config=/a", "--other", "/b", "--config=/a=b"], {"config": ["/a=b"]}),
    ],
)
def test_flags_have_the_syntax_of_pflag(arguments: list[str], given: dict[str, list[str]]) -> None:
    """A flag that needs a value takes the next argument, whatever it is."""
    assert given_flags(arguments) == given

"""Stories of a node as on a console: what is typed and what happens, with all that is printed.

A line of a story that begins with `$ ` is a step, one with `# ` a remark; the others are what the
step printed, which `UPDATE=1` writes. Two things at once are no story, but a test in Python.

| Step | What it does |
|---|---|
| `reclaimd …` | The command, with the node's configuration unless it names one. |
| `… \\| grep WORDS` | Of stdout the lines with these words; repeated until there is one. |
| `node {above: 2Mi, …}` | Writes the configuration: so much more than now is wanted; its fields. |
| `kubelet {…}` | Writes a configuration of the kubelet's, `DIRECTORY/kubelet.yaml`. |
| `images 3`, `pod web runs`, `pod web is gone` | The node has unused images, a pod, what is left of one. |
| `fill 8Mi`, `fill all` | A file grows at once for the daemon; no byte and no inode is left. |
| `daemon starts`, `daemon ends` | A daemon that has found its node; SIGTERM, and exit 0. |
| `daemon gets HUP` | A signal. |
| `log WORDS` | The next line of its log with these words, waited for. |
| `runtime stops`, `runtime starts`, `runtime reboots` | After a boot nothing runs. |
| `hour passes` | The containers have run for one. |
| `RemoveImage hangs`, `… is asked`, `… answers` | The next call of a method, waited for. |
| `ListImages fails` | All calls, until it answers. |
| `crictl rmi IMAGE` | Somebody else removes it. |
| `removed 2` | What the runtime has removed, once it is so much. |
| anything else | A command of the shell in the directory of the node; `$RECLAIMD` is the program. |
"""

from __future__ import annotations

import json
import shlex
from contextlib import ExitStack, nullcontext
from pathlib import Path
from signal import Signals
from typing import Any

import yaml

from eviction.surface.control_client import NotAskedError, ask
from reclaim.cri import cri_pb2 as pb
from signals.quantity import parse_quantity
from signals.types import Signal
from tests import forked
from tests.expected import expect
from tests.nodes.faults import Fail, Hang
from tests.nodes.small_node import AN_HOUR, SmallNode
from tests.printed import VARIES, normalized
from tests.reclaimd_process import (
    Daemon,
    answer,
    came_true,
    reclaimd_here,
    write_configuration,
)
from tests.repository import ROOT
from tests.sockets.config.stories import in_shell
from tests.stopped import stopped, wait_until_stopped

KUBELETS = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
COLUMNS = VARIES[-1:]
STAGE_VARIES = (
    (r"next look in .*", "next look …"),
    (r"; asking the runtime where its images are", "; watching"),
    (r"\na row that was not enough is tried again in .*", ""),
    (r'("(doing|device|type|next_look_\w+)": ).*', r"\1…"),
    (r"\bwatch\b", "interval"),
    (r"missing \d+ of", "missing BYTES of"),
    (r"process \d+", "process PID"),
    # a runtime to which another connection was made is asked for its version first
    (r"(ListImages|Version)(?= failed with PERMISSION_DENIED)", "METHOD"),
    *VARIES,
    (r"\n  \d+(?=\n)", "\n  SIZE"),
    (r"\b\d+\.\d(?=  TIME)", "SECONDS"),
)
"""What differs from run to run; in what `reclaimd config` prints only how columns are padded."""


def located(file: str) -> bool:
    """Whether the daemon answers, and knows where images are."""
    try:
        control = json.loads(Path(file).read_text())["controlSocket"]
        return ask(control, "status")["layout"] is not None
    except NotAskedError:
        return False


class Stage:
    """A small node, the file of its configuration, and at most one daemon."""

    daemon: Daemon

    def __init__(self, small: SmallNode, story: Path):
        self.small, self.directory = small, small.disk.parent
        self.file = f"{self.directory}/reclaimd.yaml"
        self.control = f"{self.directory}/run/control.sock"
        self._known = {
            "CONFIG": self.file,
            "DIRECTORY": str(self.directory),
            "REPOSITORY": str(ROOT),
        }
        self._story = story
        self._running = ExitStack()
        self._runtime_is_there = True
        self._names: dict[str, str] = {}
        self._told: list[dict[str, Any]] = []
        self._calls = 0

    def close(self) -> None:
        """Ends the daemon."""
        self._running.close()

    def plays(self) -> list[str]:
        """The story of this test goes as it is written; its lines."""
        said = ""
        for line in self._story.read_text().splitlines():
            if line.startswith("# "):
                said += f"\n{line}\n" if said else f"{line}\n"
            elif line.startswith("$ "):
                said += f"{line}\n"
                try:
                    printed = "\n".join(["", *self.does(line.removeprefix("$ "))])
                except AssertionError as error:
                    raise AssertionError(f"{said}{error}") from None
                varies = COLUMNS if line.startswith("$ reclaimd config") else STAGE_VARIES
                told = normalized(printed, self._known, varies).removeprefix("\n")
                said += f"{told}\n" if told else ""
        expect(self._story, said)
        return said.splitlines()

    def does(self, step: str) -> list[str]:
        """One step; the lines that it prints."""
        for name, path in self._known.items():
            step = step.replace(name, path)
        command, _, words = step.partition(" | grep ")
        lines: list[str] = []

        def printed() -> bool:
            lines[:] = self._do(command)
            return any(words in line for line in lines) or not words

        assert came_true(printed, every_seconds=0.2), "\n".join((step, *lines))
        return [line for line in lines if words in line or line.startswith(("! ", "[exit "))]

    def configure(self, above: str | None = None, **fields: Any) -> None:
        """Writes the configuration; the images of now are old enough, unless a daemon knows them."""
        signal = None if above is None else Signal.NODEFS_AVAILABLE
        size = int(parse_quantity(above or "0"))
        own = {
            "controlSocket": self.control,
            "stateFile": f"{self.directory}/state/images.json",
            "historyFile": f"{self.directory}/history",
            "imageMinimumGCAge": "0s",
        }
        given = {**own, **fields}
        if not hasattr(self, "daemon"):
            Path(self.small.configuration(signal, size, **given)).unlink()
        write_configuration(Path(self.file), **self.small.fields(signal, size, **given))

    def _do(self, step: str) -> list[str]:
        match step.split():
            case ["reclaimd", *_]:
                return self._reclaimd(*shlex.split(step)[1:])
            case ["node", *_]:
                self.configure(**yaml.safe_load(step.partition(" ")[2]))
            case ["kubelet", *_]:
                fields = yaml.safe_load(step.partition(" ")[2])
                file = self.directory / "kubelet.yaml"
                file.write_text(json.dumps({**KUBELETS, **fields}))
            case ["images", count]:
                for number, each in enumerate(self.small.add_images(int(count))):
                    self._names[each] = f"old/{number}"
            case ["pod", name, "runs"]:
                self.small.run(self.small.run_pod(name))
            case ["pod", name, "is", "gone"]:
                self.small.gone_pod(name)
            case ["fill", "all"]:
                self.small.fill(inodes=self.small.inodes_free() - 1)
                self.small.fill(self.small.available())
            case ["fill", size]:
                runs = hasattr(self, "daemon") and self.daemon.process.poll() is None
                with stopped(self.daemon.process.pid) if runs else nullcontext():
                    self.small.fill(int(parse_quantity(size)))
            case ["daemon", *words]:
                self._daemon(*words)
            case ["log", *_]:
                said = step.partition(" ")[2]
                event = self.daemon.wait_for(
                    lambda each: (
                        said in each["message"] and all(each is not told for told in self._told)
                    )
                )
                self._told.append(event)
                return [str(event["message"])]
            case ["runtime", "stops"]:
                self._runtime_is_there = False
                self.small.server.stop()
            case ["runtime", "reboots"]:
                self.small.runtime.reboot()
            case ["hour", "passes"]:
                for each in self.small.containers():
                    self.small.runtime.age(each, AN_HOUR)
            case ["runtime", "starts"]:
                self._runtime_is_there = True
                self.small.server.start()
            case ["removed", count]:
                assert came_true(lambda: len(self.small.removed()) >= int(count))
                return [
                    f"{each.kind} {self._names.get(each.id, '')}".strip()
                    for each in self.small.runtime.removals
                ]
            case ["crictl", "rmi", name]:
                self.small.runtime.answer(pb.RemoveImageRequest(image=pb.ImageSpec(image=name)))
            case [method, "hangs"]:
                self._calls = self.small.failpoints.calls[method]
                self.small.failpoints[method] = Hang(times=1)
            case [method, "fails"]:
                self.small.failpoints[method] = Fail(message="the metadata store is closed")
            case [method, "is", "asked"]:
                self.small.wait_for(method, self._calls + 1)
            case [method, "answers"]:
                del self.small.failpoints[method]
            case _:
                _, printed = in_shell(self.directory, {"RECLAIMD": str(forked.program())})(step)
                return printed.splitlines()
        return []

    def _reclaimd(self, *words: str) -> list[str]:
        own = () if "--config" in words else ("--config", self.file)
        done = reclaimd_here(*words, *own)
        if done.stdout.startswith("{"):
            answer(done)
        errors = [f"! {each}" for each in done.stderr.splitlines() if "for its turn" not in each]
        code = [f"[exit {done.returncode}]"] if done.returncode else []
        return [*done.stdout.splitlines(), *errors, *code]

    def _daemon(self, *words: str) -> None:
        match words:
            case ["starts"]:
                self.daemon = self._running.enter_context(Daemon("--config", self.file))
                assert came_true(lambda: located(self.file) or not self._runtime_is_there)
            case ["ends"]:
                assert self.daemon.stop() == 0
                self._running.close()
            case ["gets", name]:
                self.daemon.process.send_signal(Signals[f"SIG{name}"])
                if name == "STOP":
                    wait_until_stopped(self.daemon.process.pid)
                if name == "KILL":
                    self.daemon.process.wait(60.0)
                    self._running.close()

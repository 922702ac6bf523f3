"""The fleet's question: `reclaimd plan` of a hundred nodes as one table, over a second
implementation of `kubectl`.

The answers are real ones, of a small node in four states and with its runtime down. That a real
`kubectl exec` gives them is tested in `tests/kubelet/test_daemonset.py`.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import ENVIRONMENT, answer, reclaimd_here
from tests.repository import ROOT
from tests.tool import tool

PLAN = ROOT / "config" / "examples" / "fleet" / "plan.sh"
NODES, SIDE_BY_SIDE = 100, 4
HEAD = ["NODE", "UNDER PRESSURE", "AVAILABLE", "CONTAINERS", "IMAGES", "FREES", "LARGEST IMAGE"]

# It counts how many of it run at a time. The first wait for each other, and who sees that all are
# there notes it: so it is seen that they are asked side by side.
KUBECTL = f"""#!/bin/sh
cd "$FLEET" || exit 9
case "$1" in
  get) [ ! -e forbidden ] || {{ echo 'Error from server (Forbidden): pods is forbidden' >&2; exit 1; }}; cat pods ;;
  exec)
    pod=${{4#pod/}}
    : >"running/$pod"
    ls running | wc -l >>together
    until [ -e met ] || [ "$(ls running | wc -l | tee -a together)" = {SIDE_BY_SIDE} ]; do sleep 0.01; done
    : >met
    shift 5
    echo "$*" >>asked
    [ ! -e "hangs/$pod" ] || {{ rm "running/$pod"; exec sleep 1000; }}
    cat "said/$pod" >&2
    cat "answers/$pod"
    rm "running/$pod"
    exit "$(cat "codes/$pod")" ;;
esac
"""


class Fleet:
    """What `kubectl` knows of the nodes, in files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in ("running", "hangs", "said", "answers", "codes"):
            (directory / name).mkdir(parents=True)
        self.kubectl = directory / "kubectl"
        self.kubectl.write_text(KUBECTL)
        self.kubectl.chmod(0o755)
        self.pods: list[str] = []

    def add(self, stdout: str = "", stderr: str = "", code: int = 0, phase: str = "Running") -> str:
        """A node, with what `kubectl exec` prints there; its name."""
        number = f"{len(self.pods):03}"
        self.pods.append(f"reclaimd-{number} {phase} node-{number}\n")
        for name, text in (("answers", stdout), ("said", stderr), ("codes", str(code))):
            (self.directory / name / f"reclaimd-{number}").write_text(text)
        (self.directory / "pods").write_text("".join(self.pods))
        return f"node-{number}"

    def plan(self, *options: str) -> subprocess.CompletedProcess[str]:
        """The example, which asks each node for at most five seconds."""
        variables = {
            "KUBECTL": str(self.kubectl),
            "FLEET": str(self.directory),
            "TMPDIR": str(self.directory),
        }
        return subprocess.run(
            [str(PLAN), *options],
            capture_output=True,
            text=True,
            check=False,
            env={**ENVIRONMENT, **variables, "PARALLEL": str(SIDE_BY_SIDE), "PATIENCE": "5s"},
            timeout=120.0,
        )


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """No node yet."""
    tool("jq", "jq")
    return Fleet(tmp_path / "fleet")


def cells(line: str) -> list[str]:
    """Those of a line of the table: two spaces or more are between them."""
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def plans_of(small_node: SmallNode) -> list[Any]:
    """Nothing that may go; images; also a dead container; and under pressure."""
    quiet, plans = small_node.configuration(), []
    plans.append(answer(reclaimd_here("plan", "-o", "json", "--config", quiet)))
    small_node.add_images(3)
    small_node.add_image("registry.example/large/model:2", 9 * MIB)
    plans.append(
        answer(reclaimd_here("plan", "-o", "json", "--config", small_node.configuration()))
    )
    small_node.gone_pod("finished", writes=MIB)
    plans.append(
        answer(reclaimd_here("plan", "-o", "json", "--config", small_node.configuration()))
    )
    pressed = small_node.configuration(Signal.IMAGEFS_AVAILABLE, 2 * MIB)
    plans.append(answer(reclaimd_here("plan", "-o", "json", "--config", pressed)))
    return plans


def expected(node: str, plan: Any) -> list[str]:
    """The row of a plan."""
    goes = [each for each in plan["removals"] if each["result"] == "planned"]
    images = [each for each in goes if each["kind"] == "image"]
    largest = max(images, key=lambda each: each["size"], default=None)
    met = sorted({each["signal"] for each in plan["thresholds_met"]})
    least = min(
        plan["observations"],
        key=lambda each: (each["signal"] not in met, each["available"] / each["capacity"]),
    )
    frees = sum(each.get("frees", each["size"] or 0) for each in goes)
    return [
        node,
        ", ".join(met) or "-",
        f"{least['available'] / least['capacity'] * 100:.0f}% {least['signal']}",
        str(sum(each["kind"] == "container" for each in goes)),
        str(len(images)),
        amount(frees),
        "-" if largest is None else f"{amount(largest['size'])} {largest['name']}",
    ]


def amount(size_bytes: int) -> str:
    return f"{round(size_bytes / MIB, 1):g}MiB"


def test_a_hundred_nodes_in_one_table(small_node: SmallNode, fleet: Fleet) -> None:
    """Each row is what the plan says, those under pressure first, then those that lose most;
    who does not answer is named with the reason, and holds nobody up; never more are asked
    at a time than allowed."""
    plans = plans_of(small_node)
    assert len(plans[1]["removals"]) >= 4
    file = small_node.configuration()
    small_node.server.stop()
    away = reclaimd_here("plan", "-o", "json", "--config", file)
    assert (away.returncode, away.stdout) == (3, "")
    rows = {}
    for number in range(NODES - 5):
        plan = plans[number % len(plans)]
        node = fleet.add(json.dumps(plan), "some warning\n", code=number % 2)
        rows[node] = expected(node, plan)
    ended = "command terminated with exit code 3\n"
    silent = {
        fleet.add(stderr=away.stderr + ended, code=3): away.stderr.splitlines()[-1],
        fleet.add("{}"): "no plan, exit code 0",
        fleet.add(
            stderr='Error from server (NotFound): pods "x" not found\n', code=1
        ): "(NotFound)",
        fleet.add(phase="Pending"): "its pod reclaimd-098 is Pending",
    }
    hangs = fleet.add()
    (fleet.directory / "hangs" / "reclaimd-099").touch()
    process = fleet.plan("--signal", "imagefs.available", "--until", "30%")
    assert process.returncode == 1
    head, *lines, total = map(cells, process.stdout.splitlines())
    assert head == HEAD
    assert {line[0]: line for line in lines} == rows
    assert total[:2] == [f"{len(rows)} nodes", str(sum(int(row[3]) for row in rows.values()))]
    assert [line[1] for line in lines] == sorted(
        (line[1] for line in lines), key=lambda met: met == "-"
    )
    calm = [float(line[5].removesuffix("MiB")) for line in lines if line[1] == "-"]
    assert calm == sorted(calm, reverse=True)
    told = dict(line.split(": ", 1) for line in process.stderr.splitlines())
    assert set(told) == {*silent, hangs}
    assert all(why in told[node] for node, why in silent.items()), told
    assert told[hangs] == "no answer within 5s"
    together = [int(count) for count in (fleet.directory / "together").read_text().split()]
    assert max(together) == SIDE_BY_SIDE
    asked = set((fleet.directory / "asked").read_text().splitlines())
    assert asked == {"reclaimd plan -o json --signal imagefs.available --until 30%"}
    assert not list(fleet.directory.glob("tmp.*"))


def test_a_cluster_that_does_not_answer_fails(fleet: Fleet) -> None:
    """With what kubectl says, and where there is no pod of reclaimd; nothing on stdout."""
    (fleet.directory / "pods").touch()
    none = fleet.plan()
    (fleet.directory / "forbidden").touch()
    forbidden = fleet.plan()
    assert [(each.returncode, each.stdout) for each in (none, forbidden)] == [(1, "")] * 2
    assert none.stderr == "no pod of reclaimd in kube-system\n"
    assert "Forbidden" in forbidden.stderr


def test_the_pods_that_are_asked_are_those_of_the_daemonset() -> None:
    """Their label and namespace are those of the manifests."""
    base = ROOT / "config" / "kubernetes" / "base"
    daemonset = yaml.safe_load((base / "daemonset.yaml").read_text())
    (label,) = daemonset["spec"]["template"]["metadata"]["labels"].items()
    namespace = yaml.safe_load((base / "kustomization.yaml").read_text())["namespace"]
    assert f"get pods -n {namespace} -l {'='.join(label)} " in PLAN.read_text()

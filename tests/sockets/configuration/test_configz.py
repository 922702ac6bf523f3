"""Where no file of the kubelet is found, and the kubelet is asked for its pods anyway,
it tells its configuration.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eviction.configuration.effective import Configuration, load
from eviction.configuration.kubelet_ways import TOLD_BY_THE_KUBELET as NAME
from eviction.wording.configuration_warnings import configuration_warnings
from tests.pure.configuration.test_told import KUBELETS
from tests.rows import rows
from tests.sockets.kubelet_server import FOREVER_SECONDS, KubeletServer, Step, answer

pytestmark = pytest.mark.regression

TOLD = {
    "evictionHard": {
        "memory.available": "100Mi",
        "nodefs.available": "7%",
        "imagefs.available": "9%",
    },
    "mergeDefaultEvictionSettings": False,
    "imageGCHighThresholdPercent": 91,
    "imageMinimumGCAge": "3m0s",
    "podLogsDir": "/var/log/elsewhere",
    "somethingNewer": {"of": "a later kubelet"},
}


def loaded(root: Path, kubelet: KubeletServer, **fields: Any) -> Configuration:
    """The configuration on a machine without a kubelet among its processes, and without its usual
    file."""
    return load(None, {}, {"kubeletEndpoint": kubelet.url, **fields}, root=str(root))


def configz(document: object) -> bytes:
    """The kubelet's answer."""
    return answer(json.dumps(document).encode())


def test_the_kubelets_own_word_is_inherited_where_no_file_is_found(tmp_path: Path) -> None:
    """With its thresholds and nothing added: all defaults are in it already."""
    with KubeletServer(configz({"kubeletconfig": TOLD})) as kubelet:
        found = loaded(tmp_path, kubelet)
        assert [head.split()[1] for head in kubelet.requests] == ["/configz"]
    assert [(str(one.signal), str(one.value)) for one in found.thresholds] == [
        ("nodefs.available", "7%"),
        ("imagefs.available", "9%"),
    ]
    assert {one.origin.partition(" plus ")[0] for one in found.thresholds} == {NAME}
    own = {name: value for name, value in TOLD.items() if name in found.effective}
    assert {name: found.effective[name] for name in own} == own
    assert found.origins["podLogsDir"] == NAME
    assert list(configuration_warnings(found)) == []


def test_it_is_not_asked_where_its_file_is_known_or_is_said_to_be_none(tmp_path: Path) -> None:
    """Nor where it is not asked for its pods."""
    usual = tmp_path / "var/lib/kubelet/config.yaml"
    with KubeletServer(configz({"kubeletconfig": TOLD})) as kubelet:
        loaded(tmp_path, kubelet, kubeletConfig="")
        load(None, {}, {}, root=str(tmp_path))
        usual.parent.mkdir(parents=True)
        usual.write_text(KUBELETS)
        loaded(tmp_path, kubelet)
        assert kubelet.requests == []


@rows("""
    what           | status | body                                             | why
                   | 401    |                                                  | answered 401 Unauthorized
                   | 403    |                                                  | nodes/configz is enough
    garbage        | 200    | {                                                | is not JSON
    a list         | 200    | []                                               | has no object kubeletconfig
    wrong settings | 200    | {"kubeletconfig": {"imageMinimumGCAge": "soon"}} | /configz: imageMinimumGCAge:
    hangs          |        |                                                  | gave no complete answer within
""")
def test_a_kubelet_that_does_not_tell_is_said_and_its_defaults_are_taken(
    tmp_path: Path, status: int | None, body: str, why: str
) -> None:
    """By the start, `status` and `config`, with what was looked for before."""
    step: Step = FOREVER_SECONDS if status is None else answer(body.encode(), status)
    with KubeletServer(step) as kubelet:
        found = loaded(tmp_path, kubelet)
    (warning,) = configuration_warnings(found)
    assert warning.startswith("assuming the kubelet's default thresholds: no kubelet is seen")
    assert why in warning
    assert found.thresholds == load(None, {}, {}).thresholds

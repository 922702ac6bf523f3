"""The kubelet's configuration is what its process, or the usual file, says, read as a kubelet reads
it; and it is asked for its pods where its own files say who it is.

Sources: `cmd/kubelet/app/server.go`, `pkg/kubelet/eviction/helpers.go`.
"""

import contextlib
import os
import subprocess
from collections.abc import Collection, Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from eviction.configuration.effective import ConfigurationError, load
from eviction.configuration.kubelet import (
    find_kubelet,
    given_flags,
    kubelet_configuration,
    kubelets_drop_ins,
    merged,
    parse_pairs,
    read_kubelet_configuration,
)
from eviction.configuration.kubelet_ways import (
    IdentityFiles,
    KubeletPlace,
    kubelet_ways,
)
from eviction.configuration.threshold_config import (
    LEFT_TO_KUBELET,
    FieldError,
    parse_threshold_config,
)
from reclaim.kubelet.client import InvalidEndpoint, KubeletEndpoint
from signals.types import KUBELET_SIGNALS
from tests.pure.configuration.test_told import KUBELETS, TOLD, add_process, tell
from tests.pure.values import GIB, MIB, value
from tests.rows import rows

Map = Mapping[str, str]

# ---- the thresholds

FORMS = {
    "off": "0% 100%",
    "marks alone": "0.0% 00% 0.% +0% -0% -1e-60% 0%%",  # in single precision 1e-60 is 0
    "both": "5% 100.0% 0100% 1e2% 100.000001% 0.001% 1Ki 1.5Gi .5G 5. 100m 1n 2E3 1e-3",
    "minimum reclaims alone": "100.001% 500% 1e3% 0 0Mi 0e5 -0",
    "neither": "-1% -0.0001% -1 -1Gi x 1K 1GB % 12%345 NaN% inf%",
}
OFF, MARKS_ALONE, BOTH, RECLAIMS_ALONE, NEITHER = map(str.split, FORMS.values())
NEITHER += ["", "1 Gi"]
MARKS, RECLAIMS = {*OFF, *MARKS_ALONE, *BOTH}, {"100%", *BOTH, *RECLAIMS_ALONE}
TEXTS = [*OFF, *MARKS_ALONE, *BOTH, *RECLAIMS_ALONE, *NEITHER]
GRACES = {"30s": 30.0, "1m30s": 90.0, "250ms": 0.25, "0": 0.0}
NO_GRACES = ["", "-1ns", "5", "1d", "1 s", "1e3s"]
NAMES: tuple[str, ...] = (*KUBELET_SIGNALS, *LEFT_TO_KUBELET)

some_names = st.sampled_from([*NAMES * 4, "nodefs", "nodefs.inodesfree", ""])
marks = st.dictionaries(some_names, st.sampled_from([*TEXTS, *BOTH * 9]), max_size=3)
graces = st.dictionaries(some_names, st.sampled_from([*[*GRACES] * 9, *NO_GRACES]), max_size=6)


def judged(hard: Map, soft: Map, grace: Map, reclaim: Map) -> Any:
    """What ParseThresholdConfig makes of the maps: the field at fault, or the thresholds."""
    checks: tuple[tuple[str, Map, Collection[str]], ...] = (
        ("evictionHard", hard, MARKS),
        ("evictionSoft", soft, MARKS),
        ("evictionSoftGracePeriod", grace, GRACES),
        ("evictionMinimumReclaim", reclaim, RECLAIMS),
    )
    for field, entries, allowed in checks:
        if any(name not in NAMES or text not in allowed for name, text in entries.items()):
            return field
    if any(text not in OFF and name not in grace for name, text in soft.items()):
        return "evictionSoft"
    return [
        (
            name,
            value(entries[name]),
            GRACES[grace[name]] if entries is soft else 0.0,
            value(reclaim[name]) if name in reclaim else None,
        )
        for entries in (hard, soft)
        for name in KUBELET_SIGNALS
        if entries.get(name, "0%") not in OFF
    ]


def assert_as_judged(hard: Map, soft: Map, grace: Map, reclaim: Map) -> None:
    """parse_threshold_config says the same."""
    expected = judged(hard, soft, grace, reclaim)
    if isinstance(expected, str):
        with pytest.raises(FieldError, match=f"^{expected}: .{{1,400}}$"):
            parse_threshold_config(hard, soft, grace, minimum_reclaims=reclaim)
        return
    parsed = parse_threshold_config(hard, soft, grace, minimum_reclaims=reclaim).thresholds
    found = [(one.signal, one.value, one.grace_seconds, one.min_reclaim) for one in parsed]
    assert found == expected


@given(marks, marks, graces, marks)
def test_the_four_maps_are_thresholds_by_the_rules_of_the_kubelet(
    hard: Map, soft: Map, grace: Map, reclaim: Map
) -> None:
    """Hard before soft, in the order of the signals; of several problems the first is told."""
    assert_as_judged(hard, soft, grace, reclaim)


@pytest.mark.parametrize("signal", ["nodefs.available", "nodefs.inodesFree"])
def test_each_form_of_an_amount_is_taken_where_the_kubelet_takes_it(signal: str) -> None:
    """As a mark, a soft mark, and a minimum reclaim, of bytes as of inodes."""
    for text in TEXTS:
        written = {signal: text}
        assert_as_judged(written, {}, {}, {})
        assert_as_judged({}, written, {signal: "1m30s"}, {})
        assert_as_judged({signal: "1.5Gi"}, {}, {}, written)
    for grace in (*GRACES, *NO_GRACES):
        assert_as_judged({}, {signal: "1.5Gi"}, {signal: grace}, {})
    assert_as_judged({"x" * 2**20: "5%"}, {}, {}, {})


@rows("""
    gib  | mark
    40   | 3
    400  | 21
    2000 | 21
""")
def test_the_default_margin_is_5_percent_up_to_20_gibibytes(
    tmp_path: Path, gib: int, mark: int
) -> None:
    """A disk of 2 TB does not keep 100 GB empty; its inodes are not bound. Shares are truncated."""
    kubelet = tmp_path / "kubelet.yaml"
    kubelet.write_text(KUBELETS + "evictionHard: {nodefs.available: 1Gi, nodefs.inodesFree: 70%}\n")
    space, inodes = load(None, {}, {"kubeletConfig": str(kubelet)}).thresholds
    assert abs(space.mark(gib * GIB) - mark * GIB) < MIB
    assert inodes.mark(100) == 69 + 5


@rows("""
    text                 | pairs
                         | {}
    nodefs.available<10% | {nodefs.available: 10%}
    a<1,,b<2,            | {a: '1', b: '2'}
    a<1,a<1<2            | {a: 1<2}
    a                    |
    a=1                  |
    <1                   |
    a<                   |
    a<1,b                |
    <                    |
""")
def test_pairs_have_the_form_of_the_kubelets_flags(text: str, pairs: Any) -> None:
    """Commas between, the later of two equal signals wins; else the sentence shows the form."""
    form = r"^--x: '.*' is not of the form signal<value, for example"
    refused = pytest.raises(ConfigurationError, match=form)
    with refused if pairs is None else contextlib.nullcontext():
        assert parse_pairs("x", text, "evictionHard") == pairs


# ---- its files

values = st.recursive(
    st.none() | st.integers(0, 9) | st.sampled_from(["1m", "5%", "x", ""]) | st.just([1, 2]),
    lambda inner: st.dictionaries(
        st.sampled_from(["nodefs.available", "pid.available", "imageMinimumGCAge", "evictionHard"]),
        inner,
        max_size=3,
    ),
    max_leaves=6,
)
documents = st.lists(values.filter(lambda value: isinstance(value, dict)), max_size=3)


def merge_patch(target: Any, patch: Any) -> Any:
    """MergePatch of RFC 7386, as it stands there."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for name, change in patch.items():
        if change is None:
            target.pop(name, None)
        else:
            target[name] = merge_patch(target.get(name), change)
    return target


@given(documents)
def test_documents_are_merged_as_json_merge_patches(documents: list[dict[str, Any]]) -> None:
    """Each on what those before it made; what comes of it is read or refused, never half."""
    before = repr(documents)
    assert merged(documents) == reduce(merge_patch, documents, {})
    assert repr(documents) == before
    with contextlib.suppress(ConfigurationError):
        kubelet_configuration(merged(documents), "f")


DROP_INS = r"""
mkdir -p conf.d/50-site/deep.conf conf.d/9 other
printf "$HEAD" >config.yaml
minutes=0
for file in \
    conf.d/10.conf conf.d/50-site/1.conf conf.d/50-site/deep.conf/2.conf conf.d/50.conf \
    other/99.conf one.yaml
do
    minutes=$((minutes + 1))
    printf "${HEAD}imageMinimumGCAge: ${minutes}m\n" >$file
done
ln -s ../other conf.d/99-linked
ln -s conf.d link
ln -s other/99.conf one.conf
"""


def test_drop_ins_are_walked_as_by_go(tmp_path: Path) -> None:
    """`filepath.WalkDir`: in lexical order, entry by entry; a symlink is a file, also one to a
    directory, and the directory itself without a slash; a file is the only one, by its suffix."""
    head = {**os.environ, "HEAD": KUBELETS}
    subprocess.run(["sh", "-ec", DROP_INS], cwd=tmp_path, env=head, check=True)

    def age_by(drop_ins: str) -> object:
        file, drop_ins = f"{tmp_path}/config.yaml", f"{tmp_path}/{drop_ins}"
        return read_kubelet_configuration(file, drop_ins).settings.get("imageMinimumGCAge")

    conf, names = tmp_path / "conf.d", "10.conf 50-site/1.conf 50-site/deep.conf/2.conf 50.conf"
    walked = [os.path.relpath(path, conf) for path in kubelets_drop_ins(str(conf))]
    assert walked == names.split()
    places = "conf.d link link/ one.conf other/99.conf one.yaml"
    assert [*map(age_by, places.split())] == ["4m", None, "4m", "5m", "5m", None]
    (conf / "99.conf").symlink_to("../other/99.conf")
    assert age_by("conf.d") == "5m"


# ---- its process


def test_a_process_that_hangs_or_is_hostile_does_not_hold_the_start(tmp_path: Path) -> None:
    """Reading a command line may hang while the memory of its process is locked, and it may be
    huge or no text."""
    line, proc = add_process(tmp_path, []) / "cmdline", str(tmp_path / "proc")
    line.write_bytes(b"kubelet\0" + b"\xff" * 100 + b"\0")
    assert "its command line cannot be read" in find_kubelet(proc)[1]
    line.write_bytes(b"kubelet\0" + b"x" * (2 << 20))
    assert "holds more than 1048576 bytes" in find_kubelet(proc)[1]
    line.unlink()
    os.mkfifo(line)
    late = f"{proc} could not be searched for the kubelet within 0.05s"
    assert find_kubelet(proc, seconds=0.05) == (None, late)
    line.open("wb").close()  # lets the thread that was left behind end


@rows("""
    arguments                              | given
    --config /a -- --config /b             | {config: [/a]}
    --config                               | {config: ['']}
    --cgroups-per-qos --config=/a          | {config: [/a]}
    --config-dir --config                  | {config-dir: [--config]}
    -v 2 config=/a --other /b --config=/a=b | {config: [/a=b]}
""")
def test_flags_have_the_syntax_of_pflag(arguments: str, given: dict[str, list[str]]) -> None:
    """A flag that needs a value takes the next argument, whatever it is."""
    assert given_flags(arguments.split()) == given


# ---- how it is asked for its pods

FILES = ("token", "client.crt", "client.key")


def test_a_kubelet_is_asked_by_the_ways_that_are_told(tmp_path: Path) -> None:
    """In `told/ways.txt`: as whom, where, with which files, and by which certificate it is known;
    or why not. `open`: a file that every user may write."""

    def lines_of(number: int, story: str) -> Iterator[str]:
        root = tmp_path / str(number)
        (root / "pki").mkdir(parents=True)
        for name in ("pki/kubelet.crt", "pki/kubelet-client-current.pem", *FILES):
            (root / name).write_text("text")
        fields = yaml.safe_load(story.replace("ROOT", str(root)))
        if "open" in fields:
            (root / fields.pop("open")).chmod(0o666)
        if "missing" in fields:
            (root / fields.pop("missing")).unlink()
        token, *pair = (f"{root}/{name}" for name in FILES)
        files = IdentityFiles((token,), ((pair[0], pair[1]),), ())
        for way in kubelet_ways(KubeletPlace(str(root), files=files, **fields)):
            one, how = way.endpoint, way.problem
            if one is not None:
                own = filter(None, (one.token_file, one.certificate_file, one.key_file))
                how = (
                    f"{one.url} with {' '.join(own) or 'nothing'}, by {' '.join(one.pinned_files)}"
                )
            yield f"{way.identity}: {how}".replace(f"{root}/", "")

    tell(TOLD / "ways.txt", lines_of)


@rows("""
    url                     | host      | port
    http://127.0.0.1        | 127.0.0.1 | 10255
    http://localhost:10255/ | 127.0.0.1 | 10255
    http://[fd00::7]:65535  | fd00::7   | 65535
    https://[::1]           | ::1       | 10250
""")
def test_an_endpoint_is_an_address_and_a_port(url: str, host: str, port: int) -> None:
    """Without a port the kubelet's default; no name has to be resolved."""
    secure = url.startswith("https")
    endpoint = KubeletEndpoint(url, ca_file="/ca" if secure else "")
    assert (endpoint.address, endpoint.secure) == ((host, port), secure)


NO_URLS = """127.0.0.1 127.0.0.1:10250 unix://kubelet.sock unix:/run/kubelet.sock ftp://127.0.0.1
HTTP://127.0.0.1 http:// http://:10255 http://kubelet:10255 http://node-1.example.com
http://localhost.evil:1 http://user@127.0.0.1 http://user:secret@127.0.0.1
http://127.0.0.1@203.0.113.9 http://127.0.0.1/pods http://127.0.0.1// http://127.0.0.1?x=1
http://127.0.0.1#x http://127.0.0.1\\x http://127.0.0.1: http://127.0.0.1:0 http://127.0.0.1:65536
http://127.0.0.1:99999 http://127.0.0.1:-1 http://127.0.0.1:\u0661 http://127.1 http://2130706433
http://256.0.0.1 http://0177.0.0.1 http://1.2.3.4.5 http://::1 http://[127.0.0.1] http://[::1
http://[fe80::1%eth0] http://[] http://0.0.0.0 http://[::] http://224.0.0.1 http://[ff02::1]"""
WITH_SPACE = ["", " http://127.0.0.1", "http://127.0.0.1\n", "http://127.0.0.1\r\nX: y"]


@pytest.mark.parametrize("url", [*NO_URLS.split(), *WITH_SPACE])
def test_what_is_no_url_of_a_kubelet_is_refused(url: str) -> None:
    """In a sentence that does not repeat it, as it may hold a password."""
    with pytest.raises(InvalidEndpoint) as caught:
        KubeletEndpoint(url)
    assert caught.value.field == "kubeletEndpoint"
    assert "secret" not in str(caught.value)


@given(st.text("htps:/[]@?#.0123456789%abcdef ", max_size=40) | st.text(max_size=40))
def test_any_text_is_an_address_or_refused(url: str) -> None:
    """Never another error, and never a host with a user before it."""
    for text in (url, "http://" + url):
        with contextlib.suppress(InvalidEndpoint):
            endpoint = KubeletEndpoint(text)
            assert "@" not in text
            assert 0 < endpoint.address[1] < 65536

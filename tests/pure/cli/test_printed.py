"""What commands print without a node: helps, the status and a plan on any terminal, whole."""

import ast
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from eviction.cli.commands import COMMANDS
from eviction.cli.help import all_fields, shared_options
from eviction.cli.output import wrap_lines
from eviction.cli.parser import command_of
from eviction.cli.plan import plan_lines
from eviction.cli.status import lines
from eviction.cli.top import screen
from eviction.records.attribution import Attribution, Share, Use
from eviction.records.json_shapes import to_json
from eviction.records.passes import Pass, Trigger
from manual import options_of
from reclaim.types import Action, Kind, Outcome, Reason, ReclaimResult, Result
from schemas import PRINTED
from signals.types import KUBELET_SIGNALS, FilesystemRole, FsLayout
from tests.expected import expect
from tests.pure.records.documents import a_pass, a_status, outcome
from tests.pure.values import GIB, MIB
from tests.reclaimd_process import reclaimd_here
from tests.repository import ROOT
from tests.rows import rows
from tests.schemas import problems, schema_of, strict_validator, validator

EXPECTED = Path(__file__).with_name("expected")
ROWS, COLUMNS = 24, 80  # of the smallest terminal that is usual


def printed(*words: str) -> str:
    """What a command prints on stdout; it exits with 0, and says nothing on stderr."""
    done = reclaimd_here(*words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


# ---- help


@pytest.mark.parametrize("command", ["", *COMMANDS, "ballast create", "drill --observe"])
def test_every_help_fits_on_the_smallest_terminal(command: str) -> None:
    """24 lines of 80 columns; `reclaimd help COMMAND` is the same."""
    text = printed(*command.split(), "--help")
    assert len(text.splitlines()) <= ROWS
    assert max(map(len, text.splitlines())) <= COLUMNS
    if command in ("", *COMMANDS):
        assert text == printed("help", *command.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_help_has_what_is_the_commands_own_and_an_example_that_can_be_typed(command: str) -> None:
    """Each of its options in a row with a text, and none of those that all commands share but a
    hint; its exit codes. What belongs to one of two commands in one module is said for both."""
    text, (parser, _) = printed(command, "--help"), command_of(command)
    assert re.search(rf"^  .{{8}}{command} ", printed("help"), re.MULTILINE)
    assert text.startswith(f"usage: reclaimd {command} [OPTION ...]")
    for action in parser.groups()[""]:
        assert action.help, action.dest
        for name in action.option_strings:
            row = re.search(rf"^  (-\w, )?{name}\b", text, re.MULTILINE)
            assert row or f"  {name}, " in text, name
    assert "--eviction-hard" not in text
    shared = "--eviction-hard" in parser._option_string_actions or command == "help"
    assert ("reclaimd help configuration" in text) == shared
    end = text.rpartition("\n\n")[2]
    assert re.match(r"Exit 0\b.*; 2 .*Example: ", " ".join(end.split())), end
    parts = re.split(", (?:or|and later) ", end.partition("Example: ")[2])
    examples = [shlex.split(part.partition("reclaimd ")[2]) for part in parts]
    assert command in [name for name, *_ in examples]
    for name, *words in examples:
        command_of(name)[0].parse_args(words)


def test_the_configuration_is_explained_in_one_place() -> None:
    """Every option that commands share, in lines that fit, and the file with every field."""
    options, _, file = printed("help", "configuration").partition("The file, with every field:\n\n")
    assert file == all_fields() == (ROOT / "config" / "all-fields.yaml").read_text()
    assert max(map(len, options.splitlines())) <= COLUMNS
    actions = [action for actions in shared_options().values() for action in actions]
    spelled = {spelling for action in actions for spelling in action.option_strings}
    assert {"--config", "--eviction-hard", "--logging-format", "-v"} <= spelled
    assert {word.strip(",") for word in options.split() if word.startswith("-")} == spelled


def test_without_a_command_it_says_what_to_do_first() -> None:
    """What removes nothing, then the daemon, in a few lines; each command is one."""
    done = reclaimd_here()
    assert (done.returncode, done.stdout) == (2, "")
    expect(EXPECTED / "no-command.txt", done.stderr)
    for line in re.findall(r"^  reclaimd (.*?)  ", done.stderr, re.MULTILINE):
        name, *words = line.split()
        command_of(name)[0].parse_args(words)


# ---- status and top


def status(*signals: Sequence[Any], **fields: Any) -> dict[str, Any]:
    """The answer of a daemon: of each signal what is available, its mark and the seconds to it;
    `passes`: by their reasons."""
    seen = {"capacity": 10 * GIB, "stale": False, **fields.pop("seen", {})}
    near = fields.pop("near", {})
    return {
        **to_json(a_status(layout=FsLayout.SINGLE)),
        "observations": [{"signal": s, "available": a, **seen} for s, a, _, _ in signals],
        "thresholds": [
            {"signal": s, "effective": mark, "headroom_seconds": seconds, **near}
            for s, _, mark, seconds in signals
        ],
        "passes": [short_of(why) for why in fields.pop("passes", ["removed 1 object"])],
        **fields,
    }


def short_of(reason: str) -> dict[str, Any]:
    """A pass that was not enough."""
    acted_on = {"signal": "nodefs.available"}
    started = "2026-11-21T07:00:00.000Z"
    return {"started": started, "acted_on": acted_on, "result": "not_enough", "reason": reason}


def test_the_status_says_what_is_and_what_is_done() -> None:
    """Amounts, the time to each mark, results with their reason; what keeps the daemon from
    removing; control characters are escaped."""
    told = yaml.safe_load(Path(__file__).with_name("status.yaml").read_text())
    answers = {"before the first observation": to_json(a_status())}
    answers |= {name: status(*each.pop("signals"), **each) for name, each in told.items()}
    shown = [
        f"# {name}\n" + "\n".join(screen(lines(each), None, 99)) + "\n\n"
        for name, each in answers.items()
    ]
    text = "".join(shown)
    assert not set("\x1b\x07") & set(text)
    expect(EXPECTED / "status.txt", text)


@rows("""
    width | height
    80    | 24
    60    | 15
    120   | 50
    20    | 5
""")
def test_the_screen_fits_the_terminal_and_keeps_state_and_signals(width: int, height: int) -> None:
    """However much there is to show: six signals, many passes with long reasons, two reasons to
    remove nothing."""
    crowded = status(
        *((str(each), GIB, 2 * GIB, 8.1) for each in KUBELET_SIGNALS),
        held_off="nothing is removed for 5m, as of now; " * 3,
        dry_run=True,
        warnings=["w" * 500],
        passes=["because " * 100] * 9,
    )
    shown = screen(lines(crowded, width), width, height)
    assert len(shown) < height
    assert max(map(len, shown)) <= width
    for name in KUBELET_SIGNALS if width >= 60 else ():
        assert any(line.startswith(f"{name} ") for line in shown)


# ---- a plan


def planned(kept: int, **foretold: Any) -> Pass:
    """A plan in which one image may go, and so many containers and two images stay."""
    verdict = outcome(1, "old:1").verdict
    used = verdict._replace(name="app:1", action=Action.KEEP, reason=Reason.IN_USE)
    running = used._replace(kind=Kind.CONTAINER, reason=Reason.RUNNING, size_bytes=None)
    stay = [used, used, *(running._replace(name=f"pod-{each}/app") for each in range(kept - 2))]
    gone = Outcome(verdict._replace(**foretold), Result.PLANNED)
    done = ReclaimResult("DeleteUnusedImages", (gone,), tuple(map(Outcome, stay)))
    return a_pass(done, trigger=Trigger.REQUEST)


def test_a_plan_says_what_may_go_in_its_order_and_what_stays() -> None:
    """Many that stay are counted by reason on a terminal; the sizes of the runtime are told from
    bytes on the disk; what an image frees and when it is needed again say why it has its place."""
    shares = (Share(Use.IMAGES_MAY_GO, 3 * MIB, 1), Share(Use.ELSE, MIB))
    disk = Attribution("/disk", (FilesystemRole.IMAGEFS,), 10 * MIB, 4 * MIB, shares)
    foretold = planned(3, frees_bytes=MIB // 2, needed_in_seconds=9 * 86400.0)
    plans = (plan_lines(planned(100), 80), plan_lines(replace(foretold, attributions=(disk,))))
    expect(EXPECTED / "plan.txt", "\n\n".join("\n".join(each) for each in plans) + "\n")


@rows("""
    kept | width | everything | what
    100  |       |            | in a pipe, so that a name can be searched
    100  | 80    | yes        | all are asked for
    20   | 80    |            | few
""")
def test_few_objects_are_listed_and_all_where_that_is_asked_for(
    kept: int, width: int | None, everything: bool
) -> None:
    """One more than few are counted."""
    found = plan_lines(planned(kept), width, everything=everything)
    assert sum(line.startswith("keep ") for line in found) == kept
    assert not any("--all" in line for line in found)


# ---- wrapped lines

words = st.text("abc-/.", min_size=1, max_size=30)


@given(st.lists(st.lists(words, min_size=1, max_size=10).map(" ".join)), st.integers(20, 120))
def test_long_lines_go_on_indented_and_no_word_is_lost_or_broken(
    given_lines: list[str], width: int
) -> None:
    """Whatever the width; without a terminal every line stays as it is, as does a word that is too
    long, so that it can be copied."""
    assert " ".join(wrap_lines(given_lines, width)).split() == " ".join(given_lines).split()
    assert list(wrap_lines(given_lines, None)) == given_lines
    line = "  do:   raise the limit in the configuration"
    assert [*wrap_lines([line], 30)] == ["  do:   raise the limit in the", "      configuration"]


# ---- schemas of what is printed

LOG_METHODS = ("debug", "info", "warning", "error", "warn", "event", "in_text")
PRINTED_BY: dict[str, list[str]] = yaml.safe_load("""
    ballast: [ballast]
    check: [check]
    config: [effective-configuration]
    df: [disk-usage]
    doctor: [doctor]
    drill: [drill-report]
    history: [history, regret]
    plan: [plan]
    reclaim: [pass, nothing-to-do]
    status: [status]
    why: [why]
""")


def test_every_command_with_json_has_a_schema() -> None:
    """The kinds of documents, by the command that prints them; a new command needs an entry here
    and in PRINTED. `answer` and `Daemon` of `tests.reclaimd_process` hold all tests to them."""
    with_json = {
        each
        for each in COMMANDS
        if any("--output" in option.spellings for option in options_of(each))
    }
    assert PRINTED_BY.keys() == with_json
    assert {"log-line"}.union(*PRINTED_BY.values()) == PRINTED.keys()


@pytest.mark.parametrize("name", [*PRINTED, "configuration", "scenario"])
def test_every_field_of_what_is_printed_or_read_is_described(name: str) -> None:
    """Each part has a title and a description, each field a sentence."""
    schema = schema_of(name)
    parts = schema.get("$defs", {})
    for part in (schema, *parts.values()):
        assert part["title"]
        assert part["description"]
        for field, described in part.get("properties", {}).items():
            of_its_type = parts.get(described.get("$ref", "").rpartition("/")[2], {})
            text = {**of_its_type, **described}["description"]
            assert text.endswith("."), (part["title"], field)


def test_every_field_that_the_code_gives_to_the_log_is_in_its_schema() -> None:
    """Also those of lines that no test causes; `key` says which lines repeat each other, and is not
    written."""
    given = set()
    for path in sorted((ROOT / "eviction").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(value=owner, attr=method)) if (
                    method in LOG_METHODS and "log" in ast.unparse(owner)
                ):
                    given |= {each.arg for each in node.keywords if each.arg is not None}
    assert {"endpoint", "signal"} <= given
    assert given - {"key"} <= schema_of("log-line")["properties"].keys()


def test_what_has_a_field_too_many_or_too_few_is_found() -> None:
    """By the strict form of a schema, which tests rely on; a program of somebody else's allows
    further fields."""
    document = to_json(a_status(layout=FsLayout.SINGLE))
    wrong = ({**document, "colour": "red"}, dict([*document.items()][:-1]))
    found = [problems(strict_validator("status"), each) != [] for each in (document, *wrong)]
    assert found == [False, True, True]
    assert problems(validator("status"), wrong[0]) == []

"""What all rings share: namespaces of their own, scheduling on workers, and
the marks soak and house.
"""

import gc
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests import forked, own_machine
from tests.repository import ROOT
from tests.skips import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401 # hooks of this file, too

# started in the background by a shell: programs under test would
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # inherit that, and ignore Ctrl-C
# commands in this process would use it
for name in [each for each in os.environ if each.endswith("_ENDPOINT")]:
    del os.environ[name]
THEY_WAIT = (  # and share nothing
    "tests/drill/test_library.py",
    *("tests/faults/test_hangs.py", "tests/faults/test_matrix.py"),
    *(f"tests/real_node/test_{name}.py" for name in ("filesystems", "images", "relief")),
    "tests/sockets/test_stories.py",
)
MOUNTS = own_machine.enter()  # on import: it has to happen before the first thread


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Whole files go to workers, but tests that mostly wait one by one."""
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped] # it has no types

    class ByRing(LoadFileScheduling):  # type: ignore[misc] # nor has its class
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if nodeid.startswith(THEY_WAIT) else str(super()._split_scope(nodeid))

    return ByRing(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays to the end, and no garbage collection visits it: that
    took a quarter of the time.
    """
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    """Leaves no process behind."""
    forked.end()


def changed_files() -> tuple[str, ...]:
    """What differs from the last commit, as paths in the repository; everything
    (an empty path) without git.
    """
    command = [
        "git",
        "-C",
        str(ROOT),
        "status",
        "--porcelain",
        "--no-renames",
        "--untracked-files=all",
    ]
    try:
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ("",)
    return tuple(line[3:] for line in told.splitlines())


def is_left_out(item: pytest.Item, markexpr: str, changed: tuple[str, ...]) -> bool:
    """Whether a test waits for a run that names its mark, or for a change of what it is about."""
    if item.get_closest_marker("soak") is not None:
        return "soak" not in markexpr
    house = item.get_closest_marker("house")
    if house is None or "house" in markexpr or os.environ.get("HOUSE"):
        return False
    about = (item.path.relative_to(ROOT).as_posix(), *house.args)
    return not any(path.startswith(about) or not path for path in changed)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the tests that are left out of this run."""
    changed = changed_files()
    waiting = [is_left_out(item, config.option.markexpr, changed) for item in items]
    if any(waiting):
        config.hook.pytest_deselected(
            items=[item for item, waits in zip(items, waiting, strict=True) if waits]
        )
        items[:] = [item for item, waits in zip(items, waiting, strict=True) if not waits]

"""Only what the configuration names is loaded, and what cannot be used is refused with one sentence."""

from __future__ import annotations

import py_compile
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reclaim.plugins import A_WORD, KINDS_ALLOWED, Found, PluginFailed, load
from tests.plugin_distributions import on_the_path, write_distribution

NAME, MODULE = "shelf-for-reclaimd", "shelf_for_reclaimd"
TITLE = f"the reclaim function 'DustShelf' of the distribution '{NAME}'"
ALLOWED = f"allowed is {KINDS_ALLOWED}, each {A_WORD}"
METHODS = """
    def plan(self): return []
    def check(self, found): return True
    def remove(self, found): return None
    def present(self, found): return False
"""
SHELF = f"""
from reclaim.plugins import Found

class Shelf:
    kinds = ("crate",)
    def __init__(self, options):
        if not isinstance(options.get("boards"), int):
            raise ValueError("boards is missing;\\nallowed is a number")
        self.boards = options["boards"]
    {METHODS}
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """A directory in which distributions are installed."""
    made = tmp_path / "site"
    made.mkdir(0o755)
    with on_the_path(made):
        yield made


def write(site: Path, text: str = SHELF, value: str = f"{MODULE}:Shelf") -> Path:
    """The distribution of these tests; the path of its module."""
    return write_distribution(site, NAME, MODULE, text, {"DustShelf": value})


def refused(options: dict[str, Any] | None = None, entry: str = "DustShelf", distribution: str = NAME) -> str:
    """The sentence with which it is refused."""
    with pytest.raises(PluginFailed) as refusal:
        load(entry, distribution, {"boards": 3} if options is None else options)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_the_named_entry_point_is_constructed_with_its_options(site: Path) -> None:
    """The name of a distribution is written as pip takes it."""
    write(site)
    plugin: Any = load("DustShelf", "Shelf_for.Reclaimd", {"boards": 3})
    assert (type(plugin).__name__, plugin.boards, list(plugin.kinds)) == ("Shelf", 3, ["crate"])
    assert plugin.check(Found("a", True, "dusty"))


def test_no_other_entry_point_is_imported(site: Path) -> None:
    """Neither another one of the same distribution nor one of another; each would say so."""
    said = 'raise SystemExit("imported")\n'
    write_distribution(
        site, "other-for-reclaimd", "other_for_reclaimd", said, {"DustShelf": "other_for_reclaimd:Shelf"}
    )
    (site / "second_of_shelf.py").write_text(said)
    write_distribution(site, NAME, MODULE, SHELF, {"Second": "second_of_shelf:Shelf", "DustShelf": f"{MODULE}:Shelf"})
    load("DustShelf", NAME, {"boards": 3})
    assert MODULE in sys.modules
    assert not {"other_for_reclaimd", "second_of_shelf"} & sys.modules.keys()


def test_an_entry_point_that_is_refused_is_not_imported(site: Path) -> None:
    """Nor is anything else of its distribution."""
    write(site).chmod(0o666)
    refused()
    refused(entry="DoubtShelf")
    assert MODULE not in sys.modules


@pytest.mark.parametrize("name", ["no-such-distribution", ""])
def test_a_distribution_that_is_not_installed(name: str) -> None:
    """The interpreter for which it is not is named: reclaimd has one of its own."""
    assert refused(distribution=name) == f"the distribution '{name}' is not installed for {sys.executable}"


def test_a_distribution_without_that_function_names_those_that_it_has(site: Path) -> None:
    """Of the group, and only of that."""
    write_distribution(site, NAME, MODULE, SHELF, {"B": f"{MODULE}:Shelf", "A": f"{MODULE}:Shelf"})
    assert refused() == f"{TITLE} does not exist: of the entry-point group reclaimd.reclaim_functions it has 'A', 'B'"


def test_a_distribution_that_is_no_plugin() -> None:
    """pip has entry points, and none of ours."""
    assert refused(distribution="pip").endswith("of the entry-point group reclaimd.reclaim_functions it has none")


@pytest.mark.parametrize(
    ("text", "value", "said"),
    [
        ("import no_such\n", f"{MODULE}:Shelf", "ModuleNotFoundError: No module named 'no_such'"),
        ("1 +\n", f"{MODULE}:Shelf", f"SyntaxError: invalid syntax ({MODULE}.py, line 1)"),
        ("raise RuntimeError('two\\nlines')\n", f"{MODULE}:Shelf", "RuntimeError: two lines"),
        ("raise SystemExit(1)\n", f"{MODULE}:Shelf", "SystemExit: 1"),
        (SHELF, f"{MODULE}:Cupboard", f"AttributeError: module '{MODULE}' has no attribute 'Cupboard'"),
        (SHELF, "gone_with_reclaimd:Shelf", "ModuleNotFoundError: No module named 'gone_with_reclaimd'"),
        (SHELF, f"{MODULE}.deeper:Shelf", f"ModuleNotFoundError: No module named '{MODULE}.deeper'; "),
    ],
)
def test_an_import_that_fails(site: Path, text: str, value: str, said: str) -> None:
    """The type of the exception and its text, in one line."""
    write(site, text, value)
    assert refused().startswith(f"{TITLE} cannot be imported: {said}")


def test_an_entry_point_that_is_none(site: Path) -> None:
    """Its value does not read as a module and a name in it."""
    write(site, SHELF, "to be done")
    assert refused() == f"{TITLE} is 'to be done'; allowed is module:Class"


def test_options_that_it_refuses(site: Path) -> None:
    """In its own words."""
    write(site)
    assert refused({}) == f"{TITLE} refuses its options: ValueError: boards is missing; allowed is a number"


@pytest.mark.parametrize(
    ("text", "value", "said"),
    [
        ("class Shelf: pass\n", f"{MODULE}:Shelf", "TypeError: Shelf() takes no arguments"),
        ("Shelf = 3\n", f"{MODULE}:Shelf", "TypeError: 'int' object is not callable"),
        (SHELF, MODULE, "TypeError: 'module' object is not callable"),
        ("def Shelf(options): exit(3)\n", f"{MODULE}:Shelf", "SystemExit: 3"),
    ],
)
def test_what_cannot_be_constructed(site: Path, text: str, value: str, said: str) -> None:
    """Whatever the reason."""
    write(site, text, value)
    assert refused() == f"{TITLE} refuses its options: {said}"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("kinds = ('crate',)", "it has no plan, check, remove, present"),
        ("plan = check = remove = lambda self: 0; present = 3; kinds = ('crate',)", "it has no present"),
        (METHODS, "it has no kinds"),
        (f"kinds = 'crate'\n    {METHODS}", f"its kinds are 'crate'; {ALLOWED}"),
        (
            f"kinds = ('pod_log',)\n    {METHODS}",
            f"its kinds are ('pod_log',); {ALLOWED}",
        ),
        (f"kinds = property(lambda self: 1 / 0)\n    {METHODS}", "ZeroDivisionError: division by zero"),
    ],
)
def test_what_has_not_the_shape_of_a_plugin(site: Path, body: str, said: str) -> None:
    """What is missing is named."""
    write(site, f"class Shelf:\n    def __init__(self, options): pass\n    {body}\n")
    assert refused() == f"{TITLE} is not one: {said}"


# ---- who could have written it


def test_a_module_that_others_may_write_is_refused(site: Path) -> None:
    """It would run as root."""
    module = write(site)
    module.chmod(0o666)
    why = "every user may write it (mode 0666); allowed is at most 0644"
    assert refused() == f"{TITLE} is not loaded: {module} is not safe: {why}"


def test_entry_points_that_others_may_write_are_refused(site: Path) -> None:
    """They could name another module."""
    write(site)
    entries = site / "shelf_for_reclaimd-1.0.dist-info" / "entry_points.txt"
    entries.chmod(0o662)
    assert f"{entries} is not safe: every user may write it (mode 0662)" in refused()


def test_a_directory_that_others_may_write_is_refused(site: Path) -> None:
    """They could exchange the module."""
    write(site)
    site.chmod(0o777)
    assert f"every user may write its directory {site} (mode 0777); allowed is at most 0755" in refused()
    site.chmod(0o1777)  # as /tmp: an entry is its owner's
    load("DustShelf", NAME, {"boards": 3})


def test_byte_code_that_others_may_write_is_refused(site: Path) -> None:
    """It is what Python loads; pip's record does not always name it."""
    cached = Path(str(py_compile.compile(str(write(site)), doraise=True)))
    cached.chmod(0o666)
    assert f"{cached} is not safe: every user may write it" in refused()
    cached.unlink()
    cached.parent.chmod(0o777)
    assert f"{cached.parent} is not safe: every user may write its directory {cached.parent}" in refused()


def test_a_module_that_stands_in_front_of_the_installed_one_is_looked_at(site: Path, tmp_path: Path) -> None:
    """What the import would load counts, not what was installed; also an editable installation is such a case."""
    write(site)
    front = tmp_path / "front"
    front.mkdir()
    (front / f"{MODULE}.py").write_text(SHELF)
    (front / f"{MODULE}.py").chmod(0o666)
    with on_the_path(front):
        assert f"{front / f'{MODULE}.py'} is not safe: every user may write it" in refused()


def test_a_package_is_looked_at_from_its_top_to_its_module(site: Path, tmp_path: Path) -> None:
    """Without importing what is above it; and the directory in which it is, where another one could take its name."""
    write(site, SHELF, "cupboard_for_reclaimd.inner.shelf:Shelf")
    elsewhere = tmp_path / "elsewhere"
    package = elsewhere / "cupboard_for_reclaimd" / "inner"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "__init__.py").write_text("")
    (package / "shelf.py").write_text(SHELF)
    with on_the_path(elsewhere):
        for path, mode in (
            (package / "shelf.py", 0o666),
            (package / "__init__.py", 0o666),
            (package, 0o777),
            (package.parent / "__init__.py", 0o666),
            (package.parent, 0o777),
            (elsewhere, 0o777),
        ):
            before = path.stat().st_mode
            path.chmod(mode)
            assert " is not loaded: " in refused()
            assert any(f"{path}{words}" in refused() for words in (" (mode", " above it (mode", " is not safe"))
            path.chmod(before)
        assert refused() == f"{TITLE} cannot be imported: SystemExit: imported"

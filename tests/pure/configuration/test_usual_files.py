"""Which configuration files a process reads when its command line does not say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from eviction.configuration.fingerprint import configuration_files


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A root with the usual file and the usual directory."""
    (tmp_path / "etc/reclaimd/reclaimd.conf.d").mkdir(parents=True)
    (tmp_path / "etc/reclaimd/reclaimd.yaml").touch()
    return str(tmp_path)


def test_the_usual_files_are_read_where_they_exist(root: str, tmp_path: Path) -> None:
    """Both, or the one that is there; on another machine none."""
    file, directory = f"{root}/etc/reclaimd/reclaimd.yaml", f"{root}/etc/reclaimd/reclaimd.conf.d"
    assert configuration_files(None, None, {}, root=root) == (file, directory)
    Path(directory).rmdir()
    assert configuration_files(None, None, {}, root=root) == (file, None)
    assert configuration_files(None, None, {}, root=str(tmp_path / "empty")) == (None, None)


def test_a_usual_file_that_cannot_be_read_is_not_passed_over(root: str) -> None:
    """A dangling symlink is an error of whoever reads it, not a node without a configuration."""
    file = Path(f"{root}/etc/reclaimd/reclaimd.yaml")
    file.unlink()
    file.symlink_to("nowhere")
    assert configuration_files(None, None, {}, root=root)[0] == str(file)


@pytest.mark.parametrize(
    ("config", "config_dir", "environment", "found"),
    [
        ("/a", None, {}, ("/a", None)),
        ("/a", "/d", {}, ("/a", "/d")),
        (None, "/d", {"RECLAIMD_CONFIG": "/b"}, ("/b", "/d")),
        (None, None, {"RECLAIMD_CONFIG": "/b"}, ("/b", None)),
        ("/a", None, {"RECLAIMD_CONFIG": "/b"}, ("/a", None)),
        ("", None, {}, (None, None)),
        ("", "", {"RECLAIMD_CONFIG": "/b"}, (None, None)),
        (None, None, {"RECLAIMD_CONFIG": ""}, (None, None)),
    ],
)
def test_what_is_named_takes_the_place_of_both(
    root: str,
    config: str | None,
    config_dir: str | None,
    environment: dict[str, str],
    found: tuple[str | None, ...],
) -> None:
    """The command line before the environment; an empty text is none."""
    assert configuration_files(config, config_dir, environment, root=root) == found


def test_another_directory_may_stand_beside_the_usual_file(root: str) -> None:
    """Or none."""
    file = f"{root}/etc/reclaimd/reclaimd.yaml"
    assert configuration_files(None, "/d", {}, root=root) == (file, "/d")
    assert configuration_files(None, "", {}, root=root) == (file, None)

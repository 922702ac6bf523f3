"""The fingerprint of a configuration: when a command and the daemon have the same one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eviction.configuration.fingerprint import fingerprint_of, same_configuration


def test_the_same_files_flags_and_endpoints_make_the_same_fingerprint(tmp_path: Path) -> None:
    """By whatever path; other flags, another endpoint, and a file that changed in
    any way make another one.
    """
    file, link = tmp_path / "a.conf", tmp_path / "link"
    file.write_text("x: 1\n")
    link.symlink_to(file)
    daemon = fingerprint_of(
        str(file), str(tmp_path), {"root-dir": None}, environment={"PATH": "/bin"}
    )
    assert daemon == fingerprint_of(
        str(link), str(tmp_path), {}, environment={"CONTAINER_RUNTIME_ENDPOINT": ""}
    )
    assert same_configuration(daemon, daemon)
    assert same_configuration({}, daemon), (
        "a command that names no configuration accepts the daemon's"
    )
    assert not same_configuration(daemon, {})
    assert not same_configuration("text", daemon)
    assert daemon != fingerprint_of(str(file), None, {}, environment={})
    assert daemon != fingerprint_of(str(file), str(tmp_path), {"root-dir": "/x"}, environment={})
    assert daemon != fingerprint_of(
        str(file), str(tmp_path), {}, environment={"CONTAINER_RUNTIME_ENDPOINT": "unix:///x"}
    )
    before = file.stat()
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert daemon != fingerprint_of(str(file), str(tmp_path), {}, environment={})


def test_a_fingerprint_may_name_no_configuration(tmp_path: Path) -> None:
    """Without a file, a flag and an endpoint it names none; a file that is
    missing is an error, not none.
    """
    none = fingerprint_of(None, None, {"root-dir": None}, environment={})
    another = fingerprint_of(None, None, {}, environment={"IMAGE_SERVICE_ENDPOINT": "unix:///x"})
    assert same_configuration(none, another)
    assert not same_configuration(another, none)
    with pytest.raises(FileNotFoundError):
        fingerprint_of(str(tmp_path / "missing"), None, {}, environment={})

"""A program that a test needs and this machine may not have."""

import shutil

import pytest


def tool(name: str, package: str) -> str:
    """The path of a program; skips the test where it is not there. `package`:

    Debian's, for the reason.
    """
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} (Debian package {package})")
    return found

"""Files outside the logs, to which links among the logs lead: a careless removal would follow them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

FILES = ("a.log", "app/0.log", "app/1.log", "init0/0.log", "deep/er/0.log")


class Canary:
    """A tree outside the logs, and links that lead to it from inside. Nothing in it may ever change."""

    def __init__(self, directory: Path, pod_logs: Path, container_logs: Path) -> None:
        self.directory = directory
        for name in FILES:
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"the canary's {name}")
        (pod_logs / "default_ghost_uid-ghost").symlink_to(directory)
        (pod_logs / "default_spirit_uid-spirit").mkdir()
        (pod_logs / "default_spirit_uid-spirit" / "app").symlink_to(directory / "app")
        (container_logs / f"x_default_app-{'a' * 64}.log").symlink_to(directory / "a.log")
        (container_logs / f"y_default_app-{'b' * 64}.log").symlink_to(directory / "missing.log")
        (container_logs / f"z_default_app-{'c' * 64}.log").symlink_to(pod_logs / "default_ghost_uid-ghost/app/0.log")
        self._before = self._as_it_is()

    def touched(self) -> list[str]:
        """Directories and files of the tree that have changed."""
        now = self._as_it_is()
        if now == self._before:
            return []
        changed = {path for path in now.keys() | self._before.keys() if now.get(path) != self._before.get(path)}
        return [f"{path}, which is no log, was touched" for path in sorted(changed)]

    def _as_it_is(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for directory, names, files in os.walk(self.directory):
            found[directory] = sorted((*names, *files))
            for name in files:
                path = Path(directory, name)
                found[str(path)] = (path.read_bytes(), path.stat().st_ino, path.stat().st_ctime_ns)
        return found

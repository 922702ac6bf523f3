"""README.md as a package index shows it, which has no other file of the repository.

RECLAIMD_SOURCE=https://…/ (`make wheel SOURCE=`) says where these files are on the web: links and
pictures lead there then, and the index links to some of them. Without it, the text is the file's.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(?P<picture>!?)(?P<text>\[[^\]]*\])\((?!https?:)(?P<path>[^)\s]+)\)")
URLS = {"Documentation": "README.md", "Changelog": "CHANGELOG.md", "Security": "SECURITY.md"}


class IndexPage(MetadataHookInterface):
    """A hook of hatchling's (pyproject.toml names this file)."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Called with what `[project]` has, whenever a distribution is made."""
        text = Path(self.root, "README.md").read_text()
        if source := os.environ.get("RECLAIMD_SOURCE"):
            raw = {"!": "?raw=true", "": ""}  # a picture itself, not the page about it
            text = LINK.sub(
                lambda link: (
                    f"{link['picture']}{link['text']}({source}{link['path']}{raw[link['picture']]})"
                ),
                text,
            )
            metadata["urls"] = {name: f"{source}{path}" for name, path in URLS.items()}
        metadata["readme"] = {"content-type": "text/markdown", "text": text}

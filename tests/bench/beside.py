"""Another installation of reclaimd, an earlier version say, that takes its turn on the same node.

    RECLAIMD_BESIDE=/path/to/the/other/bin/reclaimd python -m tests.bench ablate

On a shared machine one run after the other compares two hours, not two programs. Only what both
versions offer is used: the command line, the configuration file, the JSON log.
"""

from __future__ import annotations

import json
from pathlib import Path

VARIABLE = "RECLAIMD_BESIDE"
NEWER_FIELDS = ("lockDirectory",)


def known_to_both(configuration: str) -> str:
    """The configuration file without the fields that the other version may not know."""
    path = Path(configuration)
    fields = json.loads(path.read_text())
    path.write_text(
        json.dumps({name: value for name, value in fields.items() if name not in NEWER_FIELDS})
    )
    return configuration

"""Which configuration files a process reads when its command line does not say so. Standard library only.

Every command reads what the daemon reads: a hook that is run by hand in an emergency must not forget the keep-list.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

USUAL_FILE = "/etc/reclaimd/reclaimd.yaml"
USUAL_DIRECTORY = "/etc/reclaimd/reclaimd.conf.d"
VARIABLE = "RECLAIMD_CONFIG"


def configuration_files(
    config: str | None, config_dir: str | None, environment: Mapping[str, str], root: str = "/"
) -> tuple[str | None, str | None]:
    """The configuration file and the directory of drop-ins; None: none.

    `config` and `config_dir` as on the command line: None is not given, an empty text is none. A file that nobody named
    is $RECLAIMD_CONFIG, else the usual one where it exists. The usual directory belongs to the usual file only. `root`:
    where the usual ones are looked for.
    """
    named = config if config is not None else environment.get(VARIABLE)
    usual_file, usual_directory = (os.path.join(root, path.lstrip("/")) for path in (USUAL_FILE, USUAL_DIRECTORY))
    file = (named or None) if named is not None else usual_file if os.path.lexists(usual_file) else None
    if config_dir is not None:
        return file, config_dir or None
    return file, usual_directory if named is None and os.path.isdir(usual_directory) else None

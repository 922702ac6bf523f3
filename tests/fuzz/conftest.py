"""FUZZ_INPUTS in the environment is the total number of inputs; without it the long
fuzz tests are not collected.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

PROPERTIES = 9
INPUTS = int(os.environ.get("FUZZ_INPUTS", "0"))

if INPUTS:
    settings.register_profile(
        "fuzz",
        max_examples=-(-INPUTS // PROPERTIES),
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("fuzz")
else:
    collect_ignore = ["test_fuzz.py", "test_http2.py"]

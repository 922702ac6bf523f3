"""What all rings share: mounts of this test process stay its own."""

from __future__ import annotations

import os

from reclaim.embedded.filesystem import PrivateMounts, enter_private_mounts

# As root every filesystem that a test mounts is seen by this process and its children only, and is gone with it, also
# after kill -9. Entered on import: it has to happen before the first thread.
MOUNTS = enter_private_mounts() if os.geteuid() == 0 else PrivateMounts(available=False, how="none", reason="no root")

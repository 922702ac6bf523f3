"""The daemon's loop with the functions of a row one after another, or side by side: what the bench
of the first byte compares. No switch of the product does that.

    python -m tests.bench.managers ORDER run --logging-format json --config FILE
"""

from __future__ import annotations

import os
import signal
import sys
import time

from eviction.configuration.effective import load
from eviction.engine.node import Node
from eviction.surface.daemon import Daemon
from eviction.wording.log import Log
from reclaim.functions.table import FUNCTIONS, table_of

SIDE_BY_SIDE, ONE_AFTER_ANOTHER = "side-by-side", "one-after-another"


def main(order: str, configuration: str) -> None:
    """Serves until SIGTERM."""
    functions = FUNCTIONS
    if order == ONE_AFTER_ANOTHER:
        functions = table_of(
            *(function._replace(side_by_side=False) for function in FUNCTIONS.values())
        )
    node = Node(load(configuration, os.environ, {}), functions=functions)
    log = Log(time.time, as_json=True)
    daemon = Daemon(node, log)
    node.prepare()
    daemon.prepare()
    signal.signal(signal.SIGTERM, lambda *_: daemon.stop())
    node.locate()
    node.detection.images()
    log.info("started")
    daemon.run()
    node.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[-1])

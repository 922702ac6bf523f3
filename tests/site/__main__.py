"""Writes the page: `python -m tests.site REPORT DIRECTORY [SOURCE]`.

REPORT: the HTML page of a drill. SOURCE: where the files of the repository are on the web; without
it, links to them are only text.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.bench.regret.page import MEASURED as REGRET
from tests.bench.regret.page import Results
from tests.kubelet.matrix_page import MEASURED as MATRIX
from tests.kubelet.matrix_page import read_all
from tests.site.page import site


def main(report: str, directory: str, source: str = "") -> None:
    """Writes index.html into the directory, which is made."""
    regret = json.loads(REGRET.read_text())
    text = site(Path(report).read_text(), read_all(MATRIX), Results(regret), regret["date"], source)
    file = Path(directory) / "index.html"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    print(file)


if __name__ == "__main__":
    main(*sys.argv[1:])

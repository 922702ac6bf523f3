"""A real Prometheus from Debian that scrapes one address and evaluates our
rules, on a port of its own.
"""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.ports import free_port
from tests.reclaimd_process import came_true

START_SECONDS = 30.0


class Prometheus:
    """Scrapes one address every half second, and evaluates the rules of a file as often."""

    def __init__(self, program: str, directory: Path, target: str, rules: Path):
        self._address = f"127.0.0.1:{free_port()}"
        file = directory / "prometheus.yml"
        scrape = {
            "job_name": "reclaimd",
            "scrape_interval": "500ms",
            "static_configs": [{"targets": [target]}],
        }
        often = {"evaluation_interval": "500ms"}
        file.write_text(
            json.dumps({"global": often, "scrape_configs": [scrape], "rule_files": [str(rules)]})
        )
        self._log = (directory / "prometheus.log").open("w")
        self._process = subprocess.Popen(
            [
                program,
                f"--config.file={file}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={self._address}",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def __enter__(self) -> Self:
        assert came_true(lambda: bool(self.query("up == 1"))), "nothing was scraped"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait(60.0)
        self._log.close()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The current result of an expression; empty while Prometheus does not answer.

        Fails for a bad expression.
        """
        url = f"http://{self._address}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        try:
            with urllib.request.urlopen(url, timeout=60.0) as answer:  # loopback
                document = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it is starting
                return []
            raise AssertionError(f"{expression}: {error.read().decode()}") from None
        except OSError:
            return []
        assert document["status"] == "success", document
        found: list[dict[str, Any]] = document["data"]["result"]
        return found

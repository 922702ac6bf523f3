"""A real Prometheus, Debian's, that scrapes what it is told to, on a port of its own."""

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
    """Scrapes one address every half second."""

    def __init__(self, program: str, directory: Path, target: str):
        self._address = f"127.0.0.1:{free_port()}"
        file = directory / "prometheus.yml"
        scrape = {"job_name": "reclaimd", "scrape_interval": "500ms", "static_configs": [{"targets": [target]}]}
        file.write_text(json.dumps({"scrape_configs": [scrape]}))
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
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(60.0)
        self._log.close()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """What an expression evaluates to now; empty while Prometheus does not answer. Fails for a bad expression."""
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
